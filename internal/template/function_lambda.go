package template

import (
	"sort"
	"strings"
)

// lambdaFunctions take lambda('x', body) as an argument and evaluate its body
// once an element.
func lambdaFunctions() []function {
	return []function{
		{name: "lambda", min: 1, max: -1, lazy: func(*evaluator, *call) (any, error) {
			return nil, failf("a lambda stands only as an argument of map, filter, reduce, sort, toObject, groupBy or mapValues")
		}},
		{name: "lambdaVariables", min: 1, max: 1, lazy: func(e *evaluator, c *call) (any, error) {
			v, err := e.expr(c.args[0])
			if err != nil {
				return nil, err
			}
			name, err := argString([]any{v}, 0)
			if err != nil {
				return nil, err
			}
			for i := len(e.lambdas) - 1; i >= 0; i-- {
				if strings.EqualFold(e.lambdas[i].name, name) {
					return e.lambdas[i].value, nil
				}
			}
			return nil, failf("no lambda around it has the variable %q", name)
		}},
		{name: "map", min: 2, max: 2, lazy: overArray(1, 2, func(a []any, f lambdaCall) (any, error) {
			out := make([]any, 0, len(a))
			err := f.each(a, func(_, r any) error {
				out = append(out, r)
				return nil
			})
			return out, err
		})},
		{name: "filter", min: 2, max: 2, lazy: overArray(1, 2, func(a []any, f lambdaCall) (any, error) {
			out := []any{}
			err := f.each(a, func(v, r any) error {
				keep, err := boolAnswer(r)
				if keep {
					out = append(out, v)
				}
				return err
			})
			return out, err
		})},
		{name: "sort", min: 2, max: 2, lazy: overArray(2, 2, func(a []any, f lambdaCall) (any, error) {
			out := append([]any{}, a...)
			var fault error
			sort.SliceStable(out, func(i, j int) (less bool) {
				if fault != nil {
					return false
				}
				var r any
				if r, fault = f(out[i], out[j]); fault == nil {
					less, fault = boolAnswer(r)
				}
				return less
			})
			return out, fault
		})},
		{name: "mapValues", min: 2, max: 2, lazy: func(e *evaluator, c *call) (any, error) {
			v, err := e.expr(c.args[0])
			if err != nil {
				return nil, err
			}
			o, err := argObject([]any{v}, 0)
			if err != nil {
				return nil, err
			}
			f, err := e.lambda(c, 1, 1, 1)
			if err != nil {
				return nil, err
			}
			out := NewObject()
			for _, k := range o.Keys() {
				r, err := f(o.values[k])
				if err != nil {
					return nil, err
				}
				out.Set(k, r)
			}
			return out, nil
		}},
		{name: "reduce", min: 3, max: 3, lazy: func(e *evaluator, c *call) (any, error) {
			a, err := e.array(c)
			if err != nil {
				return nil, err
			}
			sum, err := e.expr(c.args[1])
			if err != nil {
				return nil, err
			}
			f, err := e.lambda(c, 2, 2, 3)
			if err != nil {
				return nil, err
			}
			for i, v := range a {
				if sum, err = f(sum, v, int64(i)); err != nil {
					return nil, err
				}
			}
			return sum, nil
		}},
		{name: "toObject", min: 2, max: 3, lazy: keyed(func(o *Object, k string, v any) { o.Set(k, v) })},
		{name: "groupBy", min: 2, max: 3, lazy: keyed(func(o *Object, k string, v any) {
			list, _ := o.values[k].([]any)
			o.Set(k, append(list[:len(list):len(list)], v))
		})},
	}
}

// lambdaCall calls a lambda with its variables; those that it does not name
// are dropped.
type lambdaCall func(values ...any) (any, error)

// each calls a lambda with each element and its place, and hands on what it
// answers beside the element.
func (f lambdaCall) each(a []any, take func(v, r any) error) error {
	for i, v := range a {
		r, err := f(v, int64(i))
		if err != nil {
			return err
		}
		if err := take(v, r); err != nil {
			return err
		}
	}
	return nil
}

// boolAnswer is what a lambda that decides has answered.
func boolAnswer(r any) (bool, error) {
	b, ok := r.(bool)
	if !ok {
		return false, failf("the lambda must answer a bool, it answered a value of type %s", typeName(r))
	}
	return b, nil
}

// array evaluates the first argument of c, which must be an array.
func (e *evaluator) array(c *call) ([]any, error) {
	v, err := e.expr(c.args[0])
	if err != nil {
		return nil, err
	}
	return argArray([]any{v}, 0)
}

// lambda reads argument i of c as a lambda of least to most variables.
func (e *evaluator) lambda(c *call, i, least, most int) (lambdaCall, error) {
	l, ok := c.args[i].(*call)
	if !ok || l.fn == nil || l.fn.name != "lambda" {
		return nil, failf("argument %d must be a lambda", i+1)
	}
	n := len(l.args) - 1
	if n < least || n > most {
		return nil, failf("the lambda of argument %d has %d variables, it takes %d to %d", i+1, n, least, most)
	}
	names := make([]string, n)
	for j := range names {
		name, ok := constant(l, j)
		if !ok {
			return nil, failf("variable %d of the lambda must be a string", j+1)
		}
		names[j] = name
	}
	return func(values ...any) (any, error) {
		inner := *e
		inner.lambdas = e.lambdas[:len(e.lambdas):len(e.lambdas)]
		for j, name := range names {
			inner.lambdas = append(inner.lambdas, binding{name, values[j]})
		}
		return inner.expr(l.args[n])
	}, nil
}

func overArray(least, most int, op func([]any, lambdaCall) (any, error)) func(*evaluator, *call) (any, error) {
	return func(e *evaluator, c *call) (any, error) {
		a, err := e.array(c)
		if err != nil {
			return nil, err
		}
		f, err := e.lambda(c, 1, least, most)
		if err != nil {
			return nil, err
		}
		if err := e.charge(16 * len(a)); err != nil {
			return nil, err
		}
		return op(a, f)
	}
}

// keyed is toObject and groupBy: a lambda for the key, an optional one for the
// value.
func keyed(put func(o *Object, k string, v any)) func(*evaluator, *call) (any, error) {
	return func(e *evaluator, c *call) (any, error) {
		a, err := e.array(c)
		if err != nil {
			return nil, err
		}
		key, err := e.lambda(c, 1, 1, 1)
		if err != nil {
			return nil, err
		}
		value := lambdaCall(func(values ...any) (any, error) { return values[0], nil })
		if len(c.args) == 3 {
			if value, err = e.lambda(c, 2, 1, 1); err != nil {
				return nil, err
			}
		}
		out := NewObject()
		for _, v := range a {
			k, err := key(v)
			if err != nil {
				return nil, err
			}
			name, ok := k.(string)
			if !ok {
				return nil, failf("the lambda must answer a string as key, it answered a value of type %s", typeName(k))
			}
			r, err := value(v)
			if err != nil {
				return nil, err
			}
			put(out, name, r)
		}
		return out, nil
	}
}
