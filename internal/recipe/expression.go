package recipe

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// Fill resolves the expressions in the parameters of a direct module: one that
// knows nothing of recipes, so that whoever registers it says by
// {{context.resource.name}} what of the context goes where. A value that is one
// expression keeps the type of what it names, one within a text becomes part of
// it. {{context.a.b == "x" ? "s" : "m"}} chooses, and may be nested.
//
// A property that the resource does not have is null: the parameter is left out,
// so that the module's default applies. Any other name that is not there is an
// error of core.CodeRecipeInvalid.
func Fill(params map[string]any, c Context) (map[string]any, error) {
	root := map[string]any{"context": c.object()}
	out := make(map[string]any, len(params))
	for _, name := range slices.Sorted(maps.Keys(params)) {
		v, err := fill(params[name], root)
		if err != nil {
			return nil, core.Errorf(core.CodeRecipeInvalid, "the parameter %q: %w", name, err).WithTarget("parameters." + name)
		}
		if v != nil || params[name] == nil {
			out[name] = v
		}
	}
	return out, nil
}

// object is the context by the wire's names, with values as they are.
func (c Context) object() map[string]any {
	ref := func(r ContextRef) map[string]any { return map[string]any{"id": r.ID, "name": r.Name} }
	resource := map[string]any{"id": c.Resource.ID, "name": c.Resource.Name, "type": c.Resource.Type, "properties": open(c.Resource.Properties)}
	connections := map[string]any{}
	for name, r := range c.Resource.Connections {
		connections[name] = map[string]any{"id": r.ID, "name": r.Name, "type": r.Type, "properties": open(r.Properties)}
	}
	resource["connections"] = connections
	runtime := map[string]any{}
	if k := c.Runtime.Kubernetes; k != nil {
		runtime["kubernetes"] = map[string]any{"namespace": k.Namespace, "environmentNamespace": k.EnvironmentNamespace}
	}
	return map[string]any{"resource": resource, "application": ref(c.Application), "environment": ref(c.Environment), "runtime": runtime}
}

// open are properties, of which one that is absent is null.
type open map[string]any

func fill(v any, root map[string]any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, inner := range v {
			var err error
			if out[k], err = fill(inner, root); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			var err error
			if out[i], err = fill(inner, root); err != nil {
				return nil, err
			}
		}
		return out, nil
	case string:
		return fillText(v, root)
	}
	return v, nil
}

func fillText(text string, root map[string]any) (any, error) {
	var out strings.Builder
	for rest := text; ; {
		before, after, opens := strings.Cut(rest, "{{")
		inner, behind, closes := strings.Cut(after, "}}")
		if !opens || !closes {
			out.WriteString(rest)
			return out.String(), nil
		}
		v, err := resolve(inner, root)
		if err != nil {
			return nil, fmt.Errorf("{{%s}}: %w", inner, err)
		}
		if out.Len() == 0 && strings.TrimSpace(before) == "" && strings.TrimSpace(behind) == "" && rest == text {
			return v, nil
		}
		if v == nil {
			return nil, fmt.Errorf("{{%s}}: it has no value, and stands within a text", inner)
		}
		out.WriteString(before)
		out.WriteString(plain(v))
		rest = behind
	}
}

// plain is a value as a text: itself, or its JSON.
func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	raw, _ := json.Marshal(v) // it came as JSON
	return string(raw)
}

// resolve evaluates what stands between the braces:
//
//	choice := operand [ "==" operand "?" choice ":" choice ]
func resolve(text string, root map[string]any) (any, error) {
	p := &placeholder{text: text, root: root}
	v, err := p.choice()
	if err == nil && p.peek() != 0 {
		err = fmt.Errorf("unexpected %q: write a path of the context, or <path> == \"text\" ? \"text\" : \"text\"", p.text)
	}
	return v, err
}

// placeholder reads one expression.
type placeholder struct {
	text string // what is left
	root map[string]any
}

// peek is the next byte that is no space, 0 at the end.
func (p *placeholder) peek() byte {
	if p.text = strings.TrimSpace(p.text); p.text == "" {
		return 0
	}
	return p.text[0]
}

func (p *placeholder) take(token string) bool {
	p.peek()
	rest, ok := strings.CutPrefix(p.text, token)
	if ok {
		p.text = rest
	}
	return ok
}

func (p *placeholder) choice() (any, error) {
	left, err := p.operand()
	if err != nil || !p.take("==") {
		return left, err
	}
	right, err := p.operand()
	if err != nil {
		return nil, err
	}
	if !p.take("?") {
		return nil, fmt.Errorf("\"?\" is missing behind the comparison")
	}
	yes, err := p.choice()
	if err != nil {
		return nil, err
	}
	if !p.take(":") {
		return nil, fmt.Errorf("\":\" is missing behind \"?\"")
	}
	no, err := p.choice()
	if err != nil {
		return nil, err
	}
	if left != nil && right != nil && plain(left) == plain(right) {
		return yes, nil
	}
	return no, nil
}

// operand is a text in quotes, or a path.
func (p *placeholder) operand() (any, error) {
	if p.take(`"`) {
		text, rest, ok := strings.Cut(p.text, `"`)
		if !ok {
			return nil, fmt.Errorf("the quotes are not closed")
		}
		p.text = rest
		return text, nil
	}
	p.peek()
	end := strings.IndexAny(p.text, " \t=?:\"")
	if end < 0 {
		end = len(p.text)
	}
	path := p.text[:end]
	p.text = p.text[end:]
	var v any = p.root
	for _, step := range strings.Split(path, ".") {
		switch at := v.(type) {
		case nil:
			return nil, nil
		case open:
			v = at[step]
		case map[string]any:
			inner, ok := at[step]
			if !ok {
				return nil, fmt.Errorf("there is no %q in %q: known here are %s", step, path, strings.Join(slices.Sorted(maps.Keys(at)), ", "))
			}
			v = inner
		default:
			return nil, fmt.Errorf("%q in %q is below a value", step, path)
		}
	}
	if o, ok := v.(open); ok {
		v = map[string]any(o)
	}
	return v, nil
}
