package template

import (
	"fmt"
	"sort"
	"strings"
	"sync"
)

// function is a built-in function. eval gets evaluated arguments; lazy
// evaluates those it needs itself (branches, lambdas, what reads the
// surroundings).
type function struct {
	name     string
	min, max int // number of arguments; max -1 is any
	eval     func(e *evaluator, args []any) (any, error)
	lazy     func(e *evaluator, c *call) (any, error)
}

// functionError is a fault of a function's arguments; the call gives it a name
// and a place. safe is msg without the values that it quotes; "" when it quotes
// none.
type functionError struct{ msg, safe string }

func (e *functionError) Error() string { return e.msg }

func failf(format string, args ...any) error {
	return &functionError{fmt.Sprintf(format, args...), withheld(format, args)}
}

// failQuoting is failf with words of its own for where values may be secret.
func failQuoting(safe, format string, args ...any) error {
	return &functionError{fmt.Sprintf(format, args...), safe}
}

// withheld is a message without the texts that it quotes; "" when it quotes
// none. Which of them came from a secure value is not tracked: in an expression
// that uses one, all are left out.
func withheld(format string, args []any) string {
	quotes := false
	kept := make([]any, len(args))
	for i, a := range args {
		if _, ok := a.(string); ok {
			quotes, a = true, "…"
		}
		kept[i] = a
	}
	if !quotes {
		return ""
	}
	return fmt.Sprintf(format, kept...)
}

var builtins = sync.OnceValue(func() map[string]*function {
	table := map[string]*function{}
	for _, group := range [][]function{
		logicFunctions(), numberFunctions(), stringFunctions(), encodingFunctions(), collectionFunctions(),
		lambdaFunctions(), contextFunctions(), runtimeFunctions(), dateFunctions(), cidrFunctions(),
	} {
		for _, f := range group {
			table[strings.ToLower(f.name)] = &f
		}
	}
	return table
})

// builtin finds a function without case; nil if there is none. Every list…
// name is the list function.
func builtin(name string) *function {
	lower := strings.ToLower(name)
	if f := builtins()[lower]; f != nil {
		return f
	}
	if strings.HasPrefix(lower, "list") && len(lower) > len("list") {
		return listFunction
	}
	return nil
}

func builtinNames() []string {
	names := make([]string, 0, len(builtins()))
	for _, f := range builtins() {
		names = append(names, f.name)
	}
	sort.Strings(names)
	return names
}

// Functions returns the names of the built-in functions, sorted.
func Functions() []string { return builtinNames() }

// The arg helpers return an argument as a type, or an error that names its
// number and type.

func argString(args []any, i int) (string, error) {
	s, ok := args[i].(string)
	if !ok {
		return "", wrongType(args, i, "a string")
	}
	return s, nil
}

func argInt(args []any, i int) (int64, error) {
	n, ok := args[i].(int64)
	if !ok {
		return 0, wrongType(args, i, "an int")
	}
	return n, nil
}

func argBool(args []any, i int) (bool, error) {
	b, ok := args[i].(bool)
	if !ok {
		return false, wrongType(args, i, "a bool")
	}
	return b, nil
}

func argArray(args []any, i int) ([]any, error) {
	a, ok := args[i].([]any)
	if !ok {
		return nil, wrongType(args, i, "an array")
	}
	return a, nil
}

func argObject(args []any, i int) (*Object, error) {
	o, ok := args[i].(*Object)
	if !ok {
		return nil, wrongType(args, i, "an object")
	}
	return o, nil
}

func wrongType(args []any, i int, want string) error {
	return &functionError{msg: fmt.Sprintf("argument %d must be %s, it is of type %s", i+1, want, typeName(args[i]))}
}
