package schema

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// documentURL names the translated document; nothing is ever loaded from it.
const documentURL = "radial:///schema"

// A schema is translated in two forms. The closed form refuses properties that
// nothing declares; it stands wherever a value stands by itself. The open form
// leaves that to the schema around it; it stands in branches of a composition,
// which each know a part of the properties only.
const (
	open   = 0
	closed = 1
)

// translator writes nodes as JSON Schema 2020-12.
type translator struct {
	defs   map[string]any
	number map[*node]int
	queue  []func()
}

// translate returns the document for root and remembers where each node
// stands in it (node.loc), so that it can be checked by itself.
func translate(root *node) map[string]any {
	t := &translator{defs: map[string]any{}, number: map[*node]int{}}
	doc := t.emit(root, closed, "#")
	for len(t.queue) > 0 {
		next := t.queue[0]
		t.queue = t.queue[1:]
		next()
	}
	doc["$defs"] = t.defs
	return doc
}

// reference returns the reference to a node, which it emits once in each form.
func (t *translator) reference(n *node, form int) string {
	if _, ok := t.number[n]; !ok {
		t.number[n] = len(t.number)
	}
	name := fmt.Sprintf("%d%c", t.number[n], "oc"[form])
	ref := "#/$defs/" + name
	if _, ok := t.defs[name]; !ok {
		t.defs[name] = true
		t.queue = append(t.queue, func() { t.defs[name] = t.emit(n, form, ref) })
	}
	return ref
}

// emit writes n in a form; loc is where the result will stand.
func (t *translator) emit(n *node, form int, loc string) map[string]any {
	if n.loc[form] == "" {
		n.loc[form] = loc
	}
	if n.nullable && len(n.same()) > 0 {
		// What a branch says about the type must not forbid the null.
		inner := *n
		inner.nullable = false
		return map[string]any{"anyOf": []any{
			map[string]any{"type": "null"},
			t.emit(&inner, form, loc+"/anyOf/1"),
		}}
	}
	out := map[string]any{}
	t.emitValue(n, out)
	if n.ref != nil {
		f := open
		if form == closed && n.props == nil && n.additional == nil && len(n.same()) == 1 {
			f = closed
		}
		out["$ref"] = t.reference(n.ref, f)
	}
	if n.items != nil {
		out["items"] = t.emit(n.items, closed, loc+"/items")
	}
	if n.props != nil {
		props := make(map[string]any, len(n.props))
		for name, c := range n.props {
			props[name] = t.emit(c, closed, loc+"/properties/"+escape(name))
		}
		out["properties"] = props
	}
	required := slices.DeleteFunc(slices.Clone(n.required), func(name string) bool {
		c := n.props[name]
		return c != nil && c.isReadOnly() // the service's to fill, not the client's
	})
	if len(required) > 0 {
		out["required"] = asAny(required)
	}
	if len(n.all) > 0 {
		out["allOf"] = t.branches(n.all, loc+"/allOf")
	}
	for _, c := range n.choices {
		out[c.keyword] = t.branches(c.branches, loc+"/"+c.keyword)
	}
	switch {
	case n.additional != nil:
		out["additionalProperties"] = t.emit(n.additional, closed, loc+"/additionalProperties")
	case n.closed:
		out["additionalProperties"] = false
	case n.freeForm(form == closed) && n.at != "":
		out["additionalProperties"] = true
	case form == closed && out["$ref"] == nil || form == closed && (n.props != nil || len(n.same()) > 1):
		if n.typ == "object" || n.typ == "" && len(n.same()) > 0 {
			out["unevaluatedProperties"] = false
		}
	}
	return out
}

func (t *translator) branches(nodes []*node, loc string) []any {
	var out []any
	for i, b := range nodes {
		out = append(out, t.emit(b, open, fmt.Sprintf("%s/%d", loc, i)))
	}
	return out
}

// emitValue writes the keywords that concern the value itself.
func (t *translator) emitValue(n *node, out map[string]any) {
	for _, k := range []string{"pattern", "format", "minLength", "maxLength", "multipleOf",
		"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"} {
		if v, ok := n.raw[k]; ok {
			out[k] = v
		}
	}
	if n.typ != "" {
		out["type"] = n.typ
		if n.nullable {
			out["type"] = []any{n.typ, "null"}
		}
	}
	if enum, ok := n.raw["enum"].([]any); ok {
		if n.nullable && !slices.Contains(enum, any(nil)) {
			enum = append(slices.Clone(enum), nil)
		}
		out["enum"] = enum
	}
	// OpenAPI 3.0 writes an exclusive bound as a flag beside the bound.
	for _, b := range []struct{ bound, exclusive string }{{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}} {
		bound, has := n.raw[b.bound]
		switch x := n.raw[b.exclusive].(type) {
		case json.Number:
			out[b.exclusive] = x
		case bool:
			if x && has {
				out[b.exclusive] = bound
				has = false
			}
		}
		if has {
			out[b.bound] = bound
		}
	}
}

// freeForm reports whether n is an object of which nothing is known, so that
// any property may stand in it. A branch that only constrains what others
// declare is none.
func (n *node) freeForm(alone bool) bool {
	if n.open {
		return true
	}
	if n.typ != "object" || n.props != nil || n.additional != nil || n.closed || len(n.same()) > 0 {
		return false
	}
	if alone {
		return true
	}
	return n.required == nil && n.raw["minProperties"] == nil && n.raw["maxProperties"] == nil
}

// isReadOnly reports whether the node or what it refers to is read-only.
func (n *node) isReadOnly() bool {
	if n.readOnly {
		return true
	}
	return n.ref != nil && n.ref.isReadOnly() || slices.ContainsFunc(n.all, (*node).isReadOnly)
}

func asAny(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// newCompiler returns a compiler that knows the formats of OpenAPI 3 beside
// those of JSON Schema. A format that nobody knows is documentation.
func newCompiler(doc map[string]any) (*jsonschema.Compiler, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is loaded
	for name, check := range formats {
		c.RegisterFormat(&jsonschema.Format{Name: name, Validate: check})
	}
	if err := c.AddResource(documentURL, doc); err != nil {
		return nil, err
	}
	return c, nil
}

var formats = map[string]func(any) error{
	"int32": func(v any) error { return whole(v, math.MinInt32, math.MaxInt32) },
	"int64": func(v any) error { return whole(v, math.MinInt64, math.MaxInt64) },
	"byte": func(v any) error {
		if s, ok := v.(string); ok {
			_, err := base64.StdEncoding.DecodeString(s)
			return err
		}
		return nil
	},
}

// whole checks that a number, where v is one, lies in [least, most].
func whole(v any, least, most int64) error {
	var r *big.Rat
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		if err != nil || math.Abs(f) > 1e30 { // keeps 1e999999999 from being written out
			return fmt.Errorf("not in range")
		}
		r, _ = new(big.Rat).SetString(string(v))
	case float64:
		r = new(big.Rat).SetFloat64(v)
	case int:
		r = new(big.Rat).SetInt64(int64(v))
	case int64:
		r = new(big.Rat).SetInt64(v)
	default:
		return nil
	}
	if r == nil || !r.IsInt() || r.Cmp(new(big.Rat).SetInt64(least)) < 0 || r.Cmp(new(big.Rat).SetInt64(most)) > 0 {
		return fmt.Errorf("not in range")
	}
	return nil
}

// copyValue copies a JSON value deeply.
func copyValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := maps.Clone(v)
		for k, e := range m {
			m[k] = copyValue(e)
		}
		return m
	case []any:
		l := slices.Clone(v)
		for i, e := range l {
			l[i] = copyValue(e)
		}
		return l
	default:
		return v
	}
}
