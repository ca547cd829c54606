package template

import "strings"

// listFunction stands for every list… function: they ask a resource's provider
// for its secrets, which targets have no call for.
var listFunction = &function{name: "list", min: 1, max: -1, lazy: func(_ *evaluator, c *call) (any, error) {
	return nil, failf("%s is not supported: read the resource with reference()", c.name)
}}

// runtimeFunctions read the state of resources.
func runtimeFunctions() []function {
	return []function{
		{name: "reference", min: 1, max: 3, lazy: func(e *evaluator, c *call) (any, error) {
			if err := e.mayRead(c); err != nil {
				return nil, err
			}
			r, err := e.referred(c)
			if err != nil {
				return nil, err
			}
			if e.rt == nil {
				return nil, &runtimeError{"reference"}
			}
			full := false
			if len(c.args) == 3 {
				v, err := e.expr(c.args[2])
				if err != nil {
					return nil, err
				}
				s, err := argString([]any{v}, 0)
				if err != nil {
					return nil, err
				}
				full = strings.EqualFold(s, "full")
			}
			return e.read(r, full)
		}},
		{name: "references", min: 1, max: 2, lazy: func(e *evaluator, c *call) (any, error) {
			if err := e.mayRead(c); err != nil {
				return nil, err
			}
			name, err := e.nameArgument(c)
			if err != nil {
				return nil, err
			}
			loop := e.p.loopMembers(name)
			if loop == nil {
				return nil, failf("no resource loop has the name %q", name)
			}
			if e.rt == nil {
				return nil, &runtimeError{"references"}
			}
			out := []any{}
			for _, r := range loop {
				v, err := e.read(r, false)
				if err != nil {
					return nil, err
				}
				out = append(out, v)
			}
			return out, nil
		}},
		{name: "resourceInfo", min: 1, max: 1, lazy: func(e *evaluator, c *call) (any, error) {
			r, err := e.referred(c)
			if err != nil {
				return nil, err
			}
			o := NewObject()
			o.Set("name", r.Name)
			o.Set("type", r.Type)
			o.Set("apiVersion", r.APIVersion)
			if r.Extension == nil {
				o.Set("id", r.ID.String())
			}
			return o, nil
		}},
	}
}

func (e *evaluator) mayRead(c *call) error {
	switch e.in {
	case inDefault:
		return failf("the default of a parameter may not use %s", c.name)
	case inVariable:
		return failf("a variable may not use %s: use it in a resource or an output", c.name)
	case inFunction:
		return failf("a function may not use %s: pass the value as an argument", c.name)
	}
	return nil
}

// referred finds the resource that the first argument names.
func (e *evaluator) referred(c *call) (*Resource, error) {
	name, err := e.nameArgument(c)
	if err != nil {
		return nil, err
	}
	matches := e.p.find(name)
	switch {
	case len(matches) == 1 && matches[0].Skipped:
		return nil, failf("the resource %q is not deployed: its condition is false", name)
	case len(matches) == 1:
		return matches[0], nil
	case len(matches) > 1:
		return nil, failf("%q names %d resources: name one of them", name, len(matches))
	}
	return nil, failf("the template has no resource %q%s", name, didYouMean(name, e.p.names()))
}

func (e *evaluator) read(r *Resource, full bool) (any, error) {
	if r.Skipped {
		return nil, nil
	}
	live, err := e.rt.Reference(r)
	if err != nil {
		return nil, err
	}
	v, err := Import(live)
	if err != nil {
		return nil, err
	}
	if !full {
		return v, nil
	}
	o := NewObject()
	o.Set("type", r.Type)
	o.Set("apiVersion", r.APIVersion)
	o.Set("properties", v)
	return o, nil
}
