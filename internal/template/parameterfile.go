package template

import (
	"errors"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// ParameterFile is a parsed parameters file: what a deployment is given.
type ParameterFile struct {
	// Definitions are the external inputs that the file needs, by name.
	Definitions map[string]InputDefinition

	n      *node
	limits Limits
}

// InputDefinition says what an external input is: its kind, such as
// sys.envVar, and what that kind is configured with.
type InputDefinition struct {
	Kind   string
	Config any
}

// ParameterSources answer what a parameters file refers to. A nil one refuses
// it.
type ParameterSources struct {
	Secret func(SecretReference) (string, error)
	Input  func(name string, d InputDefinition) (any, error)
}

var parameterFileMembers = []string{"$schema", "contentVersion", "metadata", "parameters", "extensionConfigs", "externalInputs", "externalInputDefinitions", "usingConfig"}

// ParseParameters reads a parameters file: {"parameters": {name: {"value"} or
// {"reference"} or {"expression"}}}, or the bare object of parameters.
func ParseParameters(text []byte) (*ParameterFile, error) {
	limits := DefaultLimits()
	if len(text) > limits.TextBytes {
		return nil, core.Errorf(core.CodeRecipeInvalid, "the parameters file has %d bytes; the limit is %d", len(text), limits.TextBytes)
	}
	root, err := parseJSON(string(text), limits)
	if err != nil {
		return nil, core.Errorf(core.CodeRecipeInvalid, "the parameters file: %w", err)
	}
	if err := root.want("a parameters file", kindObject); err != nil {
		return nil, err
	}
	f := &ParameterFile{n: root, limits: limits, Definitions: map[string]InputDefinition{}}
	if root.get("parameters") == nil && root.get("$schema") == nil && root.get("contentVersion") == nil {
		outer := &node{kind: kindObject, line: 1, col: 1, index: map[string]*node{}} // the bare object
		root.key = "parameters"
		outer.adopt(root)
		f.n = outer
	}
	for _, m := range f.n.members {
		known := false
		for _, name := range parameterFileMembers {
			known = known || strings.EqualFold(name, m.key)
		}
		if !known {
			return nil, m.errorf("a parameters file has no member %q%s", m.key, didYouMean(m.key, parameterFileMembers))
		}
	}
	if u := f.n.get("usingConfig"); u != nil && u.kind != kindNull {
		return nil, u.errorf("usingConfig is not supported: name the template and where it is deployed on the command line")
	}
	for _, name := range []string{"parameters", "extensionConfigs", "externalInputs", "externalInputDefinitions"} {
		if m := f.n.get(name); m != nil {
			if err := m.want(name, kindObject); err != nil {
				return nil, err
			}
		}
	}
	if ps := f.n.get("parameters"); ps != nil {
		if len(ps.members) > limits.Parameters {
			return nil, ps.errorf("%d parameters; the limit is %d", len(ps.members), limits.Parameters)
		}
		for _, m := range ps.members {
			if err := f.check(m, "expression"); err != nil {
				return nil, err
			}
		}
	}
	if d := f.n.get("externalInputDefinitions"); d != nil {
		for _, m := range d.members {
			kind := m.get("kind")
			if kind == nil || kind.kind != kindString {
				return nil, m.errorf("an external input has a kind (a string)")
			}
			def := InputDefinition{Kind: kind.text}
			if c := m.get("config"); c != nil {
				def.Config = Export(c.raw())
			}
			f.Definitions[m.key] = def
		}
	}
	return f, nil
}

func (f *ParameterFile) check(m *node, also string) error {
	if err := m.want("a parameter", kindObject); err != nil {
		return err
	}
	n := 0
	for _, x := range m.members {
		switch strings.ToLower(x.key) {
		case "value", "reference", "keyvaultreference", also:
			n++
		case "metadata":
		default:
			return x.errorf("a parameter's value has no member %q: it has value, reference or %s", x.key, also)
		}
	}
	if n != 1 {
		return m.errorf("%q has one of value, reference and %s", m.key, also)
	}
	return nil
}

// Values resolves the file: the values of parameters, and the configurations of
// extensions for Options.ExtensionConfigs. A value that is text is text, even
// when it looks like an expression; an error quotes none.
func (f *ParameterFile) Values(s ParameterSources) (params map[string]any, extensions map[string]map[string]any, err error) {
	t := &Template{limits: f.limits, root: f.n}
	p, err := t.Plan(Options{})
	if err != nil {
		return nil, nil, err
	}
	p.options.Secret = s.Secret
	if p.options.ExternalInputs, err = f.inputs(s); err != nil {
		return nil, nil, err
	}
	e := &evaluator{p: p}
	params = map[string]any{}
	if ps := f.n.get("parameters"); ps != nil {
		for _, m := range ps.members {
			if params[m.key], err = f.value(e, m); err != nil {
				return nil, nil, p.fault(err)
			}
		}
	}
	extensions = map[string]map[string]any{}
	if xs := f.n.get("extensionConfigs"); xs != nil {
		for _, x := range xs.members {
			if err := x.want("the configuration of an extension", kindObject); err != nil {
				return nil, nil, err
			}
			config := map[string]any{}
			for _, m := range x.members {
				if err := f.check(m, "expression"); err != nil {
					return nil, nil, err
				}
				v, err := f.value(e, m)
				if err != nil {
					return nil, nil, p.fault(err)
				}
				config[m.key] = map[string]any{"value": v, "secure": m.get("value") == nil && m.get("expression") == nil}
			}
			extensions[x.key] = config
		}
	}
	return params, extensions, nil
}

func (f *ParameterFile) inputs(s ParameterSources) (map[string]any, error) {
	out := map[string]any{}
	if given := f.n.get("externalInputs"); given != nil {
		for _, m := range given.members {
			if v := m.get("value"); v != nil {
				out[m.key] = Export(v.raw())
			}
		}
	}
	for name, d := range f.Definitions {
		if _, ok := out[name]; ok {
			continue
		}
		if s.Input == nil {
			return nil, f.n.get("externalInputDefinitions").errorf("the external input %q (%s) has no value: pass it", name, d.Kind)
		}
		v, err := s.Input(name, d)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

func (f *ParameterFile) value(e *evaluator, m *node) (any, error) {
	if v := m.get("value"); v != nil {
		return Export(v.raw()), nil
	}
	for _, name := range []string{"reference", "keyVaultReference"} {
		if r := m.get(name); r != nil {
			return e.p.secret(r.raw(), m.path())
		}
	}
	x := m.get("expression")
	if err := x.want("an expression", kindString); err != nil {
		return nil, err
	}
	c := &node{kind: kindString, line: x.line, col: x.col, key: x.key, parent: x.parent, text: x.text}
	if err := e.p.t.bind(c); err != nil {
		return nil, err
	}
	v, err := e.node(c, "")
	if errors.Is(err, errRuntime) {
		return nil, x.errorf("the expression of a parameter may not read resources")
	}
	return Export(v), err
}
