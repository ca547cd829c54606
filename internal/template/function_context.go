package template

import (
	"strings"
	"time"
)

// contextFunctions read the plan: parameters, variables, loops, and where the
// deployment stands.
func contextFunctions() []function {
	return []function{
		{name: "parameters", min: 1, max: 1, lazy: func(e *evaluator, c *call) (any, error) {
			name, err := e.nameArgument(c)
			if err != nil {
				return nil, err
			}
			if e.in == inFunction {
				v, ok := e.args.Get(name)
				if !ok {
					return nil, failf("the function has no parameter %q%s", name, didYouMean(name, e.args.Keys()))
				}
				return v, nil
			}
			return e.parameter(name)
		}},
		{name: "variables", min: 1, max: 1, lazy: func(e *evaluator, c *call) (any, error) {
			name, err := e.nameArgument(c)
			if err != nil {
				return nil, err
			}
			if e.in == inDefault {
				return nil, failf("the default of a parameter may not use variables")
			}
			return e.variable(name)
		}},
		{name: "copyIndex", max: 2, lazy: copyIndex},
		{name: "newGuid", lazy: func(e *evaluator, _ *call) (any, error) {
			if e.in != inDefault {
				return nil, failf("it may be used only in the default of a parameter")
			}
			if e.p.options.NewGUID == nil {
				return nil, failf("no source of new GUIDs is given")
			}
			return e.p.options.NewGUID(), nil
		}},
		{name: "utcNow", max: 1, lazy: utcNow},
		{name: "deployment", lazy: func(e *evaluator, _ *call) (any, error) {
			o := NewObject()
			o.Set("name", e.p.options.Deployment)
			return o, nil
		}},
		{name: "resourceGroup", lazy: func(e *evaluator, _ *call) (any, error) {
			if e.p.options.Scope.IsZero() {
				return nil, failf("the deployment has no resource group")
			}
			o := NewObject()
			o.Set("id", e.p.options.Scope.String())
			o.Set("name", e.p.options.Scope.Name())
			return o, nil
		}},
		{name: "resourceId", min: 2, max: -1, eval: resourceID},
		{name: "extensionResourceId", min: 3, max: -1, eval: func(_ *evaluator, args []any) (any, error) {
			base, err := argString(args, 0)
			if err != nil {
				return nil, err
			}
			return typeAndNames(base, args[1:])
		}},
	}
}

func (e *evaluator) nameArgument(c *call) (string, error) {
	v, err := e.expr(c.args[0])
	if err != nil {
		return "", err
	}
	return argString([]any{v}, 0)
}

// copyIndex([loop], [offset]): without a name the innermost loop of the
// resource, else the innermost.
func copyIndex(e *evaluator, c *call) (any, error) {
	args := make([]any, len(c.args))
	for i, a := range c.args {
		v, err := e.expr(a)
		if err != nil {
			return nil, err
		}
		args[i] = v
	}
	name, offset := "", int64(0)
	if len(args) > 0 {
		if s, ok := args[0].(string); ok {
			name, args = s, args[1:]
		}
	}
	if len(args) > 1 {
		return nil, failf("it takes the name of a loop and an offset")
	}
	if len(args) == 1 {
		var err error
		if offset, err = argInt(args, 0); err != nil {
			return nil, err
		}
	}
	var found *loop
	for i := range e.loops {
		l := &e.loops[i]
		if name != "" && strings.EqualFold(l.name, name) || name == "" && (found == nil || l.resource || !found.resource) {
			found = l
		}
	}
	switch {
	case found != nil:
		return int64(found.index) + offset, nil
	case name != "":
		return nil, failf("no loop around it has the name %q", name)
	}
	return nil, failf("it stands in no loop")
}

// utcNow writes the time of the deployment in ISO 8601, basic form, or in one
// of a few forms.
func utcNow(e *evaluator, c *call) (any, error) {
	if e.in != inDefault {
		return nil, failf("it may be used only in the default of a parameter")
	}
	now := e.p.options.Now
	if now.IsZero() {
		return nil, failf("no time is given")
	}
	form := ""
	if len(c.args) == 1 {
		var err error
		if form, err = e.nameArgument(c); err != nil {
			return nil, err
		}
	}
	layouts := map[string]string{
		"": "20060102T150405Z", "u": "2006-01-02 15:04:05Z", "o": "2006-01-02T15:04:05.0000000Z",
		"d": "01/02/2006", "yyyy-MM-dd": "2006-01-02", "yyyyMMdd": "20060102", "yyyyMMddHHmmss": "20060102150405",
		"yyyy-MM-ddTHH:mm:ssZ": "2006-01-02T15:04:05Z", "yyyy-MM-ddTHH:mm:ss": "2006-01-02T15:04:05",
	}
	layout, ok := layouts[form]
	if !ok {
		return nil, failf("the form of time is not supported: u, o, d, yyyy-MM-dd, yyyyMMdd, yyyyMMddHHmmss and yyyy-MM-ddTHH:mm:ssZ are")
	}
	return now.In(time.UTC).Format(layout), nil
}

// resourceID builds the id of a resource in the deployment's scope, or in the
// group (of the same plane) that comes before the type.
func resourceID(e *evaluator, args []any) (any, error) {
	scope := e.p.options.Scope
	if scope.IsZero() {
		return nil, failf("the deployment has no scope")
	}
	first, err := argString(args, 0)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(first, "/") {
		for i, s := range scope.Scopes {
			if strings.EqualFold(s.Type, "resourceGroups") {
				scope.Scopes = append(scope.Scopes[:0:0], scope.Scopes...)
				scope.Scopes[i].Name = first
			}
		}
		args = args[1:]
	}
	return typeAndNames(scope.String(), args)
}

func typeAndNames(base string, args []any) (any, error) {
	typ, err := argString(args, 0)
	if err != nil {
		return nil, err
	}
	types := strings.Split(typ, "/")
	if len(types) < 2 {
		return nil, failf("the type has the form Namespace/type")
	}
	if len(types)-1 != len(args)-1 {
		return nil, failf("the type has %d segments, here are %d names", len(types)-1, len(args)-1)
	}
	id := base + "/providers/" + types[0]
	for i, t := range types[1:] {
		name, err := argString(args, i+1)
		if err != nil {
			return nil, err
		}
		id += "/" + t + "/" + name
	}
	return id, nil
}
