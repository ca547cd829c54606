package template

import (
	"math"
	"strconv"
	"strings"
)

func logicFunctions() []function {
	return []function{
		{name: "true", eval: func(*evaluator, []any) (any, error) { return true, nil }},
		{name: "false", eval: func(*evaluator, []any) (any, error) { return false, nil }},
		{name: "null", eval: func(*evaluator, []any) (any, error) { return nil, nil }},
		{name: "if", min: 3, max: 3, lazy: func(e *evaluator, c *call) (any, error) {
			v, err := e.expr(c.args[0])
			if err != nil {
				return nil, err
			}
			b, err := argBool([]any{v}, 0)
			if err != nil {
				return nil, err
			}
			if b {
				return e.expr(c.args[1])
			}
			return e.expr(c.args[2])
		}},
		{name: "and", min: 2, max: -1, lazy: shortCircuit(false)},
		{name: "or", min: 2, max: -1, lazy: shortCircuit(true)},
		{name: "not", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			b, err := argBool(args, 0)
			return !b, err
		}},
		{name: "bool", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			switch v := args[0].(type) {
			case bool:
				return v, nil
			case int64:
				return v != 0, nil
			case string:
				switch strings.ToLower(v) {
				case "true", "1":
					return true, nil
				case "false", "0":
					return false, nil
				}
				return nil, failf("the text is neither true nor false")
			}
			return nil, wrongType(args, 0, "a string or an int")
		}},
		{name: "coalesce", min: 1, max: -1, lazy: func(e *evaluator, c *call) (any, error) {
			for _, a := range c.args {
				v, err := e.expr(a)
				if err != nil || v != nil {
					return v, err
				}
			}
			return nil, nil
		}},
		{name: "equals", min: 2, max: 2, eval: func(e *evaluator, args []any) (any, error) {
			return equal(args[0], args[1]), e.step(weight(args[0]) / 16)
		}},
		{name: "less", min: 2, max: 2, eval: ordering(func(c int) bool { return c < 0 })},
		{name: "lessOrEquals", min: 2, max: 2, eval: ordering(func(c int) bool { return c <= 0 })},
		{name: "greater", min: 2, max: 2, eval: ordering(func(c int) bool { return c > 0 })},
		{name: "greaterOrEquals", min: 2, max: 2, eval: ordering(func(c int) bool { return c >= 0 })},
	}
}

func shortCircuit(stop bool) func(*evaluator, *call) (any, error) {
	return func(e *evaluator, c *call) (any, error) {
		for i, a := range c.args {
			v, err := e.expr(a)
			if err != nil {
				return nil, err
			}
			b, ok := v.(bool)
			if !ok {
				return nil, failf("argument %d must be a bool, it is of type %s", i+1, typeName(v))
			}
			if b == stop {
				return stop, nil
			}
		}
		return !stop, nil
	}
}

func ordering(want func(int) bool) func(*evaluator, []any) (any, error) {
	return func(_ *evaluator, args []any) (any, error) {
		c, err := compare(args)
		return want(c), err
	}
}

// compare orders two numbers, or two strings by their code units.
func compare(args []any) (int, error) {
	if a, ok := args[0].(string); ok {
		b, err := argString(args, 1)
		return strings.Compare(a, b), err
	}
	a, ok := number(args[0])
	if !ok {
		return 0, wrongType(args, 0, "a number or a string")
	}
	b, ok := number(args[1])
	if !ok {
		return 0, wrongType(args, 1, "a number")
	}
	if x, ok := args[0].(int64); ok { // exact beyond 2^53
		if y, ok := args[1].(int64); ok {
			switch {
			case x < y:
				return -1, nil
			case x > y:
				return 1, nil
			}
			return 0, nil
		}
	}
	switch {
	case a < b:
		return -1, nil
	case a > b:
		return 1, nil
	}
	return 0, nil
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func numberFunctions() []function {
	return []function{
		{name: "add", min: 2, max: 2, eval: arithmetic(func(a, b int64) (int64, bool) { s := a + b; return s, (s > a) == (b > 0) })},
		{name: "sub", min: 2, max: 2, eval: arithmetic(func(a, b int64) (int64, bool) { s := a - b; return s, (s < a) == (b > 0) })},
		{name: "mul", min: 2, max: 2, eval: arithmetic(func(a, b int64) (int64, bool) {
			if a == 0 || b == 0 {
				return 0, true
			}
			if a == -1 && b == math.MinInt64 || b == -1 && a == math.MinInt64 {
				return 0, false
			}
			p := a * b
			return p, p/b == a
		})},
		{name: "div", min: 2, max: 2, eval: division(func(a, b int64) int64 { return a / b })},
		{name: "mod", min: 2, max: 2, eval: division(func(a, b int64) int64 { return a % b })},
		{name: "min", min: 1, max: -1, eval: extreme(func(a, b int64) bool { return a < b })},
		{name: "max", min: 1, max: -1, eval: extreme(func(a, b int64) bool { return a > b })},
		{name: "int", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			switch v := args[0].(type) {
			case int64:
				return v, nil
			case float64:
				return int64(v), nil
			case string:
				n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
				if err != nil {
					return nil, failf("the text is not an integer")
				}
				return n, nil
			}
			return nil, wrongType(args, 0, "a string or an int")
		}},
		{name: "float", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			switch v := args[0].(type) {
			case int64:
				return float64(v), nil
			case float64:
				return v, nil
			case string:
				f, err := strconv.ParseFloat(v, 64)
				if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
					return nil, failf("the text is not a number")
				}
				return f, nil
			}
			return nil, wrongType(args, 0, "a string or a number")
		}},
	}
}

func arithmetic(op func(a, b int64) (int64, bool)) func(*evaluator, []any) (any, error) {
	return func(_ *evaluator, args []any) (any, error) {
		a, err := argInt(args, 0)
		if err != nil {
			return nil, err
		}
		b, err := argInt(args, 1)
		if err != nil {
			return nil, err
		}
		v, ok := op(a, b)
		if !ok {
			return nil, failf("the result is out of the range of 64 bits")
		}
		return v, nil
	}
}

func division(op func(a, b int64) int64) func(*evaluator, []any) (any, error) {
	return func(_ *evaluator, args []any) (any, error) {
		a, err := argInt(args, 0)
		if err != nil {
			return nil, err
		}
		b, err := argInt(args, 1)
		if err != nil {
			return nil, err
		}
		if b == 0 {
			return nil, failf("division by zero")
		}
		if a == math.MinInt64 && b == -1 {
			return nil, failf("the result is out of the range of 64 bits")
		}
		return op(a, b), nil
	}
}

// extreme is min and max: of one array, or of all arguments.
func extreme(better func(a, b int64) bool) func(*evaluator, []any) (any, error) {
	return func(_ *evaluator, args []any) (any, error) {
		if a, ok := args[0].([]any); ok && len(args) == 1 {
			args = a
		}
		if len(args) == 0 {
			return nil, failf("the array is empty")
		}
		best, err := argInt(args, 0)
		if err != nil {
			return nil, err
		}
		for i := range args {
			v, err := argInt(args, i)
			if err != nil {
				return nil, err
			}
			if better(v, best) {
				best = v
			}
		}
		return best, nil
	}
}
