package template

import "strings"

// listFunction stands for every list… function: an action of a resource's
// provider that answers what GET does not.
var listFunction = &function{name: "list", min: 1, max: 3, lazy: func(e *evaluator, c *call) (any, error) {
	if err := e.mayRead(c); err != nil {
		return nil, err
	}
	q := Question{Function: c.name}
	args, err := e.arguments(c)
	if err != nil {
		return nil, err
	}
	if q.Resource, q.ID, err = e.target(c, args); err != nil {
		return nil, err
	}
	if len(args) > 1 {
		if q.APIVersion, err = argString(args, 1); err != nil {
			return nil, err
		}
	} else if q.Resource == nil {
		return nil, failf("the second argument, the version of the API, is missing")
	}
	for _, a := range args[min(2, len(args)):] {
		q.Args = append(q.Args, Export(a))
	}
	return e.ask(q)
}}

// runtimeFunctions read the state of resources.
func runtimeFunctions() []function {
	fs := []function{
		{name: "reference", min: 1, max: 3, lazy: reference},
		{name: "references", min: 1, max: 2, lazy: func(e *evaluator, c *call) (any, error) {
			if err := e.mayRead(c); err != nil {
				return nil, err
			}
			args, err := e.arguments(c)
			if err != nil {
				return nil, err
			}
			name, err := argString(args, 0)
			if err != nil {
				return nil, err
			}
			if !e.p.loopNames[strings.ToLower(name)] {
				return nil, failQuoting("no resource loop has that name", "no resource loop has the name %q", name)
			}
			full := false
			if len(args) == 2 {
				s, err := argString(args, 1)
				if err != nil {
					return nil, err
				}
				full = strings.EqualFold(s, "full")
			}
			if e.rt == nil {
				return nil, &runtimeError{"references"}
			}
			out := []any{}
			for _, r := range e.p.loopMembers(name) {
				if r.Skipped {
					continue
				}
				v, err := e.read(r, r.APIVersion, full)
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
				o.Set("id", r.ResourceID)
			}
			return o, nil
		}},
	}
	for _, f := range []struct {
		name     string
		min, max int
	}{
		{"providers", 1, 2}, {"pickZones", 3, 5}, {"toLogicalZone", 3, 3}, {"toLogicalZones", 3, 3}, {"toPhysicalZone", 3, 3},
		{"toPhysicalZones", 3, 3}, {"invokeResourceMethod", 2, -1},
	} {
		fs = append(fs, function{name: f.name, min: f.min, max: f.max, lazy: func(e *evaluator, c *call) (any, error) {
			args, err := e.arguments(c)
			if err != nil {
				return nil, err
			}
			q := Question{Function: f.name}
			if f.name == "invokeResourceMethod" {
				if err := e.mayRead(c); err != nil {
					return nil, err
				}
				if q.Resource, q.ID, err = e.target(c, args); err != nil {
					return nil, err
				}
				args = args[1:]
			}
			for _, a := range args {
				q.Args = append(q.Args, Export(a))
			}
			return e.ask(q)
		}})
	}
	return fs
}

// reference(name or id, [apiVersion], ['Full'])
func reference(e *evaluator, c *call) (any, error) {
	if err := e.mayRead(c); err != nil {
		return nil, err
	}
	args, err := e.arguments(c)
	if err != nil {
		return nil, err
	}
	full, version := false, ""
	if len(args) > 1 {
		if version, err = argString(args, 1); err != nil {
			return nil, err
		}
		// reference('symbol', 'full') is the short form of symbolic names.
		if strings.EqualFold(version, "full") && len(args) == 2 {
			full, version = true, ""
		}
	}
	if len(args) == 3 {
		s, err := argString(args, 2)
		if err != nil {
			return nil, err
		}
		full = strings.EqualFold(s, "full")
	}
	r, id, err := e.target(c, args)
	if err != nil {
		return nil, err
	}
	if r == nil && version == "" {
		return nil, failQuoting("that resource is not in the template: name the version of its API", "the resource %q is not in the template: name the version of its API as second argument", id)
	}
	if e.rt == nil {
		return nil, &runtimeError{"reference"}
	}
	if r != nil {
		if version == "" {
			version = r.APIVersion
		}
		return e.read(r, version, full)
	}
	return e.ask(Question{Function: "reference", ID: id, APIVersion: version, Full: full})
}

func (e *evaluator) arguments(c *call) ([]any, error) {
	args := make([]any, len(c.args))
	for i, a := range c.args {
		v, err := e.expr(a)
		if err != nil {
			return nil, err
		}
		args[i] = v
	}
	return args, nil
}

func (e *evaluator) mayRead(c *call) error {
	why := ""
	switch e.in {
	case inDefault:
		why = "the default of a parameter may not use " + c.name
	case inVariable:
		why = "a variable may not use " + c.name + ": use it in a resource or an output"
	case inFunction:
		why = "a function may not use " + c.name + ": pass the value as an argument"
	default:
		return nil
	}
	return &functionError{msg: why}
}

// target finds the resource that the first argument names: one of the plan, or
// the id of another.
func (e *evaluator) target(c *call, args []any) (*Resource, string, error) {
	name, err := argString(args, 0)
	if err != nil {
		return nil, "", err
	}
	if strings.HasPrefix(name, "/") && len(e.p.find(name)) == 0 {
		return nil, name, nil
	}
	r, err := e.named(name)
	if err != nil {
		return nil, "", err
	}
	return r, r.ResourceID, nil
}

// referred is target of a resource that must be of the plan.
func (e *evaluator) referred(c *call) (*Resource, error) {
	name, err := e.nameArgument(c)
	if err != nil {
		return nil, err
	}
	return e.named(name)
}

func (e *evaluator) named(name string) (*Resource, error) {
	matches := e.p.find(name)
	if len(matches) > 1 { // two resources of one name, of which one is skipped
		var made []*Resource
		for _, r := range matches {
			if !r.Skipped {
				made = append(made, r)
			}
		}
		if len(made) == 1 {
			matches = made
		}
	}
	switch {
	case len(matches) == 1 && matches[0].Skipped && matches[0].Extension == nil && matches[0].ResourceID != "" && strings.HasPrefix(name, "/"):
		return matches[0], nil // read by its id, as it is
	case len(matches) == 1 && matches[0].Skipped:
		return nil, failQuoting("the resource is not deployed: its condition is false", "the resource %q is not deployed: its condition is false", name)
	case len(matches) == 1:
		return matches[0], nil
	case len(matches) > 1:
		return nil, failQuoting("the name is that of several resources", "%q names %d resources: name one of them", name, len(matches))
	}
	return nil, failQuoting("the template has no such resource", "the template has no resource %q%s", name, didYouMean(name, e.p.names()))
}

func (e *evaluator) read(r *Resource, version string, full bool) (any, error) {
	if r.Skipped {
		return e.ask(Question{Function: "reference", ID: r.ResourceID, APIVersion: version, Full: full})
	}
	if a, ok := e.rt.(Asker); ok && full && r.Extension == nil {
		return answered(a.Ask(Question{Function: "reference", Resource: r, ID: r.ResourceID, APIVersion: version, Full: true}))
	}
	live, err := e.rt.Reference(r)
	if err != nil {
		return nil, err
	}
	v, err := Import(live)
	if err != nil || !full {
		return v, err
	}
	o := NewObject()
	o.Set("type", r.Type)
	o.Set("apiVersion", r.APIVersion)
	o.Set("properties", v)
	return o, nil
}

// ask puts a question to the running deployment, or before it to who answers
// what needs none.
func (e *evaluator) ask(q Question) (any, error) {
	if a, ok := e.rt.(Asker); ok {
		return answered(a.Ask(q))
	}
	startTime := !strings.HasPrefix(strings.ToLower(q.Function), "list") && q.Function != "reference" && q.Function != "invokeResourceMethod"
	if startTime && e.p.options.Ask != nil {
		return answered(e.p.options.Ask(q))
	}
	if e.rt == nil {
		return nil, &runtimeError{q.Function}
	}
	return nil, failf("it is not supported here: only the properties of this template's own resources can be read, with reference()")
}

func answered(v any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return Import(v)
}
