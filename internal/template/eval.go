package template

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// evaluator evaluates nodes and expressions in one surrounding: the loops, the
// lambda variables or the arguments of a user's function that are in force.
// It is made for one evaluation and not shared.
type evaluator struct {
	p       *Plan
	loops   []loop
	lambdas []binding
	// args are the arguments of the user's function that is being called.
	args *Object
	// in says where the expression stands, for functions that only some places
	// allow.
	in place
	// rt is the running deployment, nil before it.
	rt Runtime
	// unknown, when not nil, collects the JSON pointers of what cannot be known
	// before the deployment, and evaluation goes on without it.
	unknown *[]string
	depth   int
	// caller is the call of the user's function, outer the evaluator that made
	// it: what a function was given may be secret.
	caller *call
	outer  *evaluator
}

// tainted reports whether a node uses secure values, its own or those that the
// user's function around it was called with.
func (e *evaluator) tainted(n *node) bool {
	if e.p.tainted(n) {
		return true
	}
	for x := e; x.caller != nil; x = x.outer {
		if e.p.taintedExpr(x.caller, map[any]bool{}) {
			return true
		}
	}
	return false
}

type place uint8

const (
	inTemplate place = iota
	inDefault        // a parameter's default
	inVariable
	inFunction // a user's function
)

type loop struct {
	name     string
	index    int
	resource bool
	unknown  bool // its index is not known: Options.Partial
}

type binding struct {
	name  string
	value any
}

// missing stands for a value that is not known yet, see evaluator.unknown.
type missing struct{}

func (e *evaluator) step(n int) error {
	if e.p.budget.steps.Add(-int64(n)) < 0 {
		return core.Errorf(core.CodeInvalidTemplate, "the template takes more than %d steps to evaluate: its loops are too large", e.p.t.limits.Steps)
	}
	return nil
}

// charge counts memory that a function makes.
func (e *evaluator) charge(bytes int) error {
	if e.p.budget.bytes.Add(-int64(bytes)) < 0 {
		return core.Errorf(core.CodeInvalidTemplate, "the template makes more than %d bytes of values", e.p.t.limits.Bytes)
	}
	return nil
}

func (e *evaluator) with(l loop) *evaluator {
	c := *e
	c.loops = append(e.loops[:len(e.loops):len(e.loops)], l)
	return &c
}

// node evaluates a node of the document; pointer is the JSON pointer of the
// value that it becomes.
func (e *evaluator) node(n *node, pointer string) (any, error) {
	if err := e.step(1); err != nil {
		return nil, err
	}
	if n.own {
		return n.raw(), nil // a nested deployment's: its expressions are not ours
	}
	switch n.kind {
	case kindString:
		if n.unknown {
			if e.unknown != nil {
				*e.unknown = append(*e.unknown, pointer)
				return missing{}, nil
			}
			return nil, &runtimeAt{n, &runtimeError{"a value of the parent deployment"}}
		}
		if n.expr == nil {
			return n.literal, nil
		}
		v, err := e.expr(n.expr)
		if err == nil {
			return v, nil
		}
		if e.unknown != nil && errors.Is(err, errRuntime) {
			*e.unknown = append(*e.unknown, pointer)
			return missing{}, nil
		}
		if errors.Is(err, errRuntime) {
			return nil, &runtimeAt{n, err}
		}
		return nil, e.locate(n, err)
	case kindArray:
		a := make([]any, 0, len(n.items))
		for i, m := range n.items {
			v, err := e.node(m, e.join(pointer, strconv.Itoa(i)))
			if err != nil {
				return nil, err
			}
			if _, gone := v.(missing); gone {
				v = nil
			}
			a = append(a, v)
		}
		return a, nil
	case kindObject:
		return e.object(n, pointer)
	}
	return n.value, nil
}

// runtimeAt is errRuntime with the node that asked.
type runtimeAt struct {
	n   *node
	err error
}

func (e *runtimeAt) Error() string {
	return invalid(e.n.path(), e.n.line, e.n.col, "%s", e.err).Error()
}
func (e *runtimeAt) Unwrap() error { return e.err }

// pointerEscape writes a name as a segment of a JSON pointer.
var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

func (e *evaluator) join(pointer, key string) string {
	if e.unknown == nil {
		return ""
	}
	return pointer + "/" + pointerEscape.Replace(key)
}

func (e *evaluator) object(n *node, pointer string) (any, error) {
	o := NewObject()
	for _, m := range n.members {
		if isCopyList(m) {
			for _, c := range m.items {
				name := c.get("name").text
				list, err := e.copyList(c, e.join(pointer, name))
				if e.unknown != nil && errors.Is(err, errRuntime) {
					*e.unknown = append(*e.unknown, e.join(pointer, name))
					continue
				}
				if err != nil {
					return nil, err
				}
				o.Set(name, list)
			}
			continue
		}
		key := m.key
		if m.keyExpr != nil {
			v, err := e.expr(m.keyExpr)
			if err != nil {
				return nil, e.locate(m, err)
			}
			s, ok := v.(string)
			if !ok {
				return nil, m.errorf("the name of a member must be a string, it is of type %s", typeName(v))
			}
			key = s
		} else if strings.HasPrefix(key, "[[") {
			key, _ = isExpression(key)
		}
		v, err := e.node(m, e.join(pointer, key))
		if err != nil {
			return nil, err
		}
		if _, gone := v.(missing); gone {
			continue
		}
		o.Set(key, v)
	}
	return o, nil
}

// copyList evaluates {"name", "count", "input"}: an array of count values.
func (e *evaluator) copyList(c *node, pointer string) ([]any, error) {
	count, err := e.count(c.get("count"))
	if err != nil {
		return nil, err
	}
	list := make([]any, 0, count)
	for i := range count {
		v, err := e.with(loop{name: c.get("name").text, index: i}).node(c.get("input"), e.join(pointer, strconv.Itoa(i)))
		if err != nil {
			return nil, err
		}
		if _, gone := v.(missing); gone {
			v = nil
		}
		list = append(list, v)
	}
	return list, nil
}

func (e *evaluator) count(n *node) (int, error) {
	v, err := e.startRaw(n)
	if err != nil {
		return 0, err
	}
	i, ok := v.(int64)
	if !ok || i < 0 || i > int64(e.p.t.limits.CopyCount) {
		return 0, n.errorf("the count of a loop must be an integer from 0 to %d", e.p.t.limits.CopyCount)
	}
	return int(i), nil
}

// start evaluates what must be known before the deployment starts.
func (e *evaluator) start(n *node, what string) (any, error) {
	v, err := e.startRaw(n)
	if errors.Is(err, errRuntime) && !e.p.options.Partial {
		return nil, n.errorf("%s must be known before the deployment starts; it %v", what, errRuntime)
	}
	return v, err
}

// startRaw is start with errRuntime as it is.
func (e *evaluator) startRaw(n *node) (any, error) {
	c := *e
	c.unknown = nil
	return c.node(n, "")
}

// startOr is start that answers missing in a partial plan.
func (e *evaluator) startOr(n *node, what string) (any, error) {
	v, err := e.start(n, what)
	if e.p.options.Partial && errors.Is(err, errRuntime) {
		return missing{}, nil
	}
	return v, err
}

// settled gives errRuntime its place when nobody can go on without the value.
func (e *evaluator) settled(err error) error {
	var at *runtimeAt
	if errors.As(err, &at) {
		return at.n.errorf("it must be known before the deployment starts; it %v", errRuntime)
	}
	return err
}

// locate is node.locate that withholds values quoted in the message where the
// expression uses secure parameters.
func (e *evaluator) locate(n *node, err error) error {
	var x *exprError
	if errors.As(err, &x) && x.safe != "" && e.tainted(n) {
		return n.locate(&exprError{off: x.off, msg: x.safe})
	}
	return n.locate(err)
}

// text evaluates a member that must be a string known at the start; "" if n is
// nil.
func (e *evaluator) text(n *node, what string) (string, error) {
	if n == nil {
		return "", nil
	}
	v, err := e.start(n, what)
	if err != nil {
		return "", err
	}
	s, ok := v.(string)
	if !ok {
		return "", n.errorf("%s must be a string, it is of type %s", what, typeName(v))
	}
	return s, nil
}

func (e *evaluator) expr(x expression) (any, error) {
	if e.depth++; e.depth > e.p.t.limits.Depth*2 {
		return nil, exprErrorf(x.offset(), "calls nest deeper than %d levels", e.p.t.limits.Depth*2)
	}
	defer func() { e.depth-- }()
	if err := e.step(1); err != nil {
		return nil, err
	}
	switch x := x.(type) {
	case *stringLiteral:
		return x.value, nil
	case *intLiteral:
		return x.value, nil
	case *property:
		base, err := e.expr(x.base)
		if err != nil {
			return nil, err
		}
		if o, ok := base.(*Object); ok && o.Len() > 64 {
			if err := e.step(o.Len() / 64); err != nil { // a name may be looked for without case
				return nil, err
			}
		}
		return member(base, x.name, x.off)
	case *element:
		base, err := e.expr(x.base)
		if err != nil {
			return nil, err
		}
		index, err := e.expr(x.index)
		if err != nil {
			return nil, err
		}
		return at(base, index, x.off)
	case *call:
		return e.call(x)
	}
	panic("template: unknown kind of expression")
}

// maxNamesShown bounds the list of properties in the error of a missing one.
const maxNamesShown = 20

func member(base any, name string, off int) (any, error) {
	o, ok := base.(*Object)
	if !ok {
		return nil, exprErrorf(off, "a value of type %s has no property %q", typeName(base), name)
	}
	v, ok := o.Get(name)
	if !ok {
		names := o.Keys()
		if len(names) > maxNamesShown {
			names = append(names[:maxNamesShown:maxNamesShown], "…")
		}
		return nil, &exprError{off, fmt.Sprintf("the object has no property %q (it has: %s)", name, listOr(names, "none")), "the object has no such property"}
	}
	return v, nil
}

func at(base, index any, off int) (any, error) {
	switch i := index.(type) {
	case string:
		return member(base, i, off)
	case int64:
		a, ok := base.([]any)
		if !ok {
			return nil, exprErrorf(off, "a value of type %s has no elements", typeName(base))
		}
		if i < 0 || i >= int64(len(a)) {
			return nil, exprErrorf(off, "the index %d is out of range: the array has %d elements", i, len(a))
		}
		return a[i], nil
	}
	return nil, exprErrorf(off, "an index is an integer or a string, this one is of type %s", typeName(index))
}

func (e *evaluator) call(c *call) (any, error) {
	if c.user != nil {
		return e.callUser(c)
	}
	if c.fn.lazy != nil {
		v, err := c.fn.lazy(e, c)
		return v, placed(err, c)
	}
	args := make([]any, len(c.args))
	for i, a := range c.args {
		v, err := e.expr(a)
		if err != nil {
			return nil, err
		}
		args[i] = v
	}
	v, err := c.fn.eval(e, args)
	return v, placed(err, c)
}

// placed gives the error of a function's body the place of the call.
func placed(err error, c *call) error {
	var f *functionError
	if errors.As(err, &f) {
		x := &exprError{off: c.off, msg: c.name + ": " + f.msg}
		if f.safe != "" {
			x.safe = c.name + ": " + f.safe
		}
		return x
	}
	return err
}

func (e *evaluator) callUser(c *call) (any, error) {
	args := NewObject()
	for i, a := range c.args {
		v, err := e.expr(a)
		if err != nil {
			return nil, err
		}
		p := c.user.parameters[i]
		if p.def.get("type") != nil || p.def.get("$ref") != nil {
			if bad := e.p.t.fit(p.def, v, "the argument "+strconv.Quote(p.name)+" of "+c.user.name, 0); bad != nil {
				return nil, exprErrorf(c.off, "%s", bad.Message)
			}
		}
		args.Set(p.name, v)
	}
	inner := &evaluator{p: e.p, args: args, in: inFunction, depth: e.depth, caller: c, outer: e}
	return inner.node(c.user.output, "")
}

// parameter returns the value of a parameter, evaluating its default when it
// is asked for the first time.
func (e *evaluator) parameter(name string) (any, error) {
	p := e.p.t.paramIndex[strings.ToLower(name)]
	if p == nil {
		var names []string
		for _, q := range e.p.t.parameters {
			names = append(names, q.name)
		}
		return nil, failf("there is no parameter %q%s", name, didYouMean(name, names))
	}
	cell := e.p.params[p]
	switch cell.state {
	case cellDone:
		return cell.value, nil
	case cellBusy:
		return nil, failf("the default of parameter %q leads back to itself", p.name)
	case cellUnknown:
		return nil, &runtimeError{"parameters"}
	}
	cell.state = cellBusy
	inner := &evaluator{p: e.p, in: inDefault, depth: e.depth}
	v, err := inner.node(p.def.get("defaultValue"), "")
	if err != nil {
		cell.state = cellNew
		return nil, err
	}
	cell.state, cell.value = cellDone, v
	return v, nil
}

func (e *evaluator) variable(name string) (any, error) {
	key := strings.ToLower(name)
	n := e.p.t.variables[key]
	if n == nil {
		return nil, failf("there is no variable %q", name)
	}
	cell := e.p.vars[key]
	if cell == nil {
		cell = &lazyValue{}
		e.p.vars[key] = cell
	}
	switch cell.state {
	case cellDone:
		return cell.value, nil
	case cellBusy:
		return nil, failf("the variable %q leads back to itself", name)
	}
	cell.state = cellBusy
	inner := &evaluator{p: e.p, in: inVariable, depth: e.depth}
	var v any
	var err error
	if n.parent != nil && n.parent.kind == kindArray { // an entry of variables.copy
		v, err = inner.copyList(n, "")
	} else {
		v, err = inner.node(n, "")
	}
	if err != nil {
		cell.state = cellNew
		return nil, err
	}
	cell.state, cell.value = cellDone, v
	return v, nil
}

// lazyValue is evaluated when it is first asked for.
type lazyValue struct {
	state cellState
	value any
	given bool // by the deployment, not by a default
}

type cellState uint8

const (
	cellNew cellState = iota
	cellBusy
	cellDone
	cellUnknown // a parameter that the parent does not know yet
)
