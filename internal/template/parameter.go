package template

import (
	"encoding/json"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/radial-project/radial/internal/core"
)

// Parameter describes a declared parameter.
type Parameter struct {
	Name     string
	Type     string
	Required bool
	Secure   bool
	// Definition is the declaration as JSON.
	Definition json.RawMessage
}

type parameter struct {
	name string
	def  *node
	// nullable: by its declaration, or by the type that it refers to.
	nullable bool
}

func (p *parameter) typeName() string {
	if t := p.def.get("type"); t != nil {
		return t.text
	}
	if r := p.def.get("$ref"); r != nil {
		return r.text
	}
	return "any"
}

// secure reports whether the declaration itself is of a secure type; see also
// Template.secureType.
func (p *parameter) secure() bool { return strings.HasPrefix(strings.ToLower(p.typeName()), "secure") }

func isTrue(n *node) bool { return n != nil && n.kind == kindBool && n.value == true }

func (p *parameter) optional() bool { return p.def.get("defaultValue") != nil || p.nullable }

func (t *Template) readParameters(root *node) error {
	ps := root.get("parameters")
	if ps == nil {
		return nil
	}
	if err := ps.want("parameters", kindObject); err != nil {
		return err
	}
	if len(ps.members) > t.limits.Parameters {
		return ps.errorf("%d parameters; the limit is %d", len(ps.members), t.limits.Parameters)
	}
	for _, m := range ps.members {
		if err := m.want("a parameter", kindObject); err != nil {
			return err
		}
		p := &parameter{name: m.key, def: m}
		if err := t.checkType(m, 0); err != nil {
			return err
		}
		p.nullable = isTrue(m.get("nullable")) || isTrue(t.resolveType(m).get("nullable"))
		t.parameters = append(t.parameters, p)
		if other := t.paramIndex[strings.ToLower(m.key)]; other != nil {
			return m.errorf("the parameters %q and %q differ by case only, and are the same: rename one", other.name, m.key)
		}
		t.paramIndex[strings.ToLower(m.key)] = p
	}
	return nil
}

// resolveType follows $ref; nil when the definition is missing or loops.
func (t *Template) resolveType(def *node) *node {
	for range 16 {
		ref := def.get("$ref")
		if ref == nil {
			return def
		}
		name, ok := strings.CutPrefix(ref.text, "#/definitions/")
		if !ok {
			return nil
		}
		def = t.definitions.get(name)
		if def == nil { // a pointer into a definition: #/definitions/x/properties/y
			def = t.definitions
			for part := range strings.SplitSeq(name, "/") {
				part, ok := unescapeURI(part)
				part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
				if !ok || def == nil {
					return nil
				}
				if def.kind == kindArray {
					i, err := strconv.Atoi(part)
					if err != nil || i < 0 || i >= len(def.items) {
						return nil
					}
					def = def.items[i]
				} else {
					def = def.get(part)
				}
			}
		}
		if def == nil {
			return nil
		}
	}
	return nil
}

// checkType checks the declaration of a type, not a value.
func (t *Template) checkType(def *node, depth int) error {
	if depth > 16 {
		return nil // a recursive definition: checked already
	}
	if ref := def.get("$ref"); ref != nil {
		target := t.resolveType(def)
		if target == nil {
			return ref.errorf("%q refers to no definition of this template", ref.text)
		}
		return nil
	}
	typ := def.get("type")
	if typ == nil {
		return nil // anything
	}
	if err := typ.want("a type", kindString); err != nil {
		return err
	}
	switch strings.ToLower(typ.text) {
	case "string", "securestring", "int", "bool", "object", "secureobject", "array":
	default:
		return typ.errorf("%q is not a type (string, securestring, int, bool, object, secureObject, array)", typ.text)
	}
	for _, name := range []string{"items", "additionalProperties"} {
		if d := def.get(name); d != nil && d.kind == kindObject {
			if err := t.checkType(d, depth+1); err != nil {
				return err
			}
		}
	}
	var inside []*node
	if ps := def.get("properties"); ps != nil && ps.kind == kindObject {
		inside = append(inside, ps.members...)
	}
	if ps := def.get("prefixItems"); ps != nil && ps.kind == kindArray {
		inside = append(inside, ps.items...)
	}
	if m := def.get("discriminator").get("mapping"); m != nil {
		inside = append(inside, m.members...)
	}
	for _, d := range inside {
		if d.kind != kindObject {
			return d.errorf("a type must be an object, it is %s", d.kind)
		}
		if err := t.checkType(d, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// mismatch is the error of a value that does not fit its declaration. It never
// quotes the value.
func mismatch(where, format string, args ...any) *core.Error {
	return core.Errorf(core.CodeRecipeInvalid, "%s "+format, append([]any{where}, args...)...)
}

// fit checks a value against the declaration of its type. where names the
// value for errors: parameter "size", or parameter "size", property "cpu".
func (t *Template) fit(def *node, v any, where string, depth int) *core.Error {
	if depth > t.limits.Depth {
		return mismatch(where, "nests too deep")
	}
	nullable := isTrue(def.get("nullable"))
	full := t.resolveType(def)
	if full == nil {
		return mismatch(where, "has a type that the template does not define")
	}
	if v == nil {
		if nullable || isTrue(full.get("nullable")) {
			return nil
		}
		return mismatch(where, "is null")
	}
	for _, d := range []*node{full, def} {
		if err := t.fitOne(d, v, where, depth); err != nil {
			return err
		}
		if full == def {
			break
		}
	}
	return nil
}

func (t *Template) fitOne(def *node, v any, where string, depth int) *core.Error {
	if typ := def.get("type"); typ != nil {
		want := strings.TrimPrefix(strings.ToLower(typ.text), "secure")
		if want != typeName(v) {
			return mismatch(where, "must be of type %s, it is %s", typ.text, typeName(v))
		}
	}
	if allowed := def.get("allowedValues"); allowed != nil && !isAllowed(allowed, v) {
		raw := allowed.raw()
		return mismatch(where, "must be one of %s", toJSON(raw))
	}
	length := -1
	switch v := v.(type) {
	case string:
		length = utf8.RuneCountInString(v)
	case []any:
		length = len(v)
	case *Object:
		length = v.Len()
	case int64:
		if m := intOf(def.get("minValue")); m != nil && v < *m {
			return mismatch(where, "must be %d or more", *m)
		}
		if m := intOf(def.get("maxValue")); m != nil && v > *m {
			return mismatch(where, "must be %d or less", *m)
		}
	}
	if length >= 0 {
		if m := intOf(def.get("minLength")); m != nil && int64(length) < *m {
			return mismatch(where, "must have a length of %d or more, it has %d", *m, length)
		}
		if m := intOf(def.get("maxLength")); m != nil && int64(length) > *m {
			return mismatch(where, "must have a length of %d or less, it has %d", *m, length)
		}
	}
	switch v := v.(type) {
	case []any:
		return t.fitArray(def, v, where, depth)
	case *Object:
		return t.fitObject(def, v, where, depth)
	}
	return nil
}

func intOf(n *node) *int64 {
	if n == nil {
		return nil
	}
	if i, ok := n.value.(int64); ok {
		return &i
	}
	return nil
}

// isAllowed: with array-valued members the whole value must match one; with
// scalar members an array must be a subset.
func isAllowed(allowed *node, v any) bool {
	member := func(v any) bool {
		for _, a := range allowed.items {
			plain := a.raw()
			if equal(plain, v) {
				return true
			}
		}
		return false
	}
	if member(v) {
		return true
	}
	list, ok := v.([]any)
	if !ok {
		return false
	}
	for _, a := range allowed.items {
		if a.kind == kindArray {
			return false
		}
	}
	for _, e := range list {
		if !member(e) {
			return false
		}
	}
	return true
}

func (t *Template) fitArray(def *node, v []any, where string, depth int) *core.Error {
	prefix := def.get("prefixItems")
	for i, e := range v {
		d := def.get("items")
		if prefix != nil && i < len(prefix.items) {
			d = prefix.items[i]
		}
		switch {
		case d == nil:
		case d.kind == kindBool && d.value == false:
			return mismatch(where, "must have no more than %d items", i)
		case d.kind == kindObject:
			if err := t.fit(d, e, where+", an item,", depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Template) fitObject(def *node, v *Object, where string, depth int) *core.Error {
	if d := def.get("discriminator"); d != nil {
		return t.fitDiscriminated(d, v, where, depth)
	}
	props := def.get("properties")
	if props != nil {
		for _, p := range props.members {
			value, ok := v.Get(p.key)
			if !ok {
				full := t.resolveType(p)
				if isTrue(p.get("nullable")) || full != nil && isTrue(full.get("nullable")) {
					continue
				}
				return mismatch(where, "lacks the property %q", p.key)
			}
			if err := t.fit(p, value, where+", property \""+p.key+"\",", depth+1); err != nil {
				return err
			}
		}
	}
	extra := def.get("additionalProperties")
	if extra == nil {
		return nil
	}
	for _, k := range v.Keys() {
		if props.get(k) != nil {
			continue
		}
		if extra.kind == kindBool && extra.value == false {
			var names []string
			for _, p := range props.members {
				names = append(names, p.key)
			}
			return mismatch(where, "has the property %q, which its type does not declare%s", k, didYouMean(k, names))
		}
		if extra.kind == kindObject {
			value, _ := v.Get(k)
			if err := t.fit(extra, value, where+", property \""+k+"\",", depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Template) fitDiscriminated(d *node, v *Object, where string, depth int) *core.Error {
	name, mapping := d.get("propertyName"), d.get("mapping")
	if name == nil || mapping == nil {
		return mismatch(where, "has a type whose discriminator lacks propertyName or mapping")
	}
	value, _ := v.Get(name.text)
	text, _ := value.(string)
	def := mapping.exact(text)
	if def == nil {
		var names []string
		for _, m := range mapping.members {
			names = append(names, m.key)
		}
		return mismatch(where, "must have a property %q of %s", name.text, strings.Join(names, ", "))
	}
	return t.fit(def, v, where, depth+1)
}

// checkSupplied refuses values that the template does not declare.
func (t *Template) checkSupplied(values map[string]any) error {
	var unknown []string
	for name := range values {
		if t.paramIndex[strings.ToLower(name)] == nil {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	sort.Strings(unknown)
	var names []string
	for _, p := range t.parameters {
		names = append(names, p.name)
	}
	return core.Errorf(core.CodeRecipeInvalid, "the template has no parameter %q%s (it declares: %s)",
		unknown[0], didYouMean(unknown[0], names), listOr(names, "none")).WithTarget("parameters." + unknown[0])
}
