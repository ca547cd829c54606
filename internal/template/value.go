package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
)

// Values are nil, bool, int64, float64, string, []any and *Object. They are
// never changed once made, so they are shared freely.

// Object is a JSON object that keeps the order of its members and finds them
// without case, as the template language asks.
type Object struct {
	keys   []string
	values map[string]any
}

// NewObject returns an empty object.
func NewObject() *Object { return &Object{values: map[string]any{}} }

// Len is the number of members.
func (o *Object) Len() int { return len(o.keys) }

// Keys returns the names of the members in their order.
func (o *Object) Keys() []string { return o.keys }

// Set adds a member, or replaces the one of exactly that name in its place.
func (o *Object) Set(key string, v any) {
	if _, ok := o.values[key]; !ok {
		o.keys = append(o.keys, key)
	}
	o.values[key] = v
}

// Get finds a member: the one of exactly that name, else one without case.
func (o *Object) Get(key string) (any, bool) {
	if v, ok := o.values[key]; ok {
		return v, true
	}
	for _, k := range o.keys {
		if strings.EqualFold(k, key) {
			return o.values[k], true
		}
	}
	return nil, false
}

// MarshalJSON writes the members in their order.
func (o *Object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	if err := writeJSON(&b, o); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writeJSON writes compact JSON without escaping of HTML.
func writeJSON(b *bytes.Buffer, v any) error {
	switch v := v.(type) {
	case *Object:
		b.WriteByte('{')
		for i, k := range v.keys {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeScalar(b, k); err != nil {
				return err
			}
			b.WriteByte(':')
			if err := writeJSON(b, v.values[k]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, e); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	default:
		return writeScalar(b, v)
	}
	return nil
}

func writeScalar(b *bytes.Buffer, v any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the newline of Encode
	return nil
}

func toJSON(v any) string {
	var b bytes.Buffer
	if err := writeJSON(&b, v); err != nil {
		return "" // only infinities fail, and none can be made
	}
	return b.String()
}

// Import turns a value of encoding/json (or of Kubernetes' unstructured) into
// one of this package. Members of maps come in the order of their names.
func Import(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, int64, string, *Object:
		return v, nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v), nil
		}
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case float32:
		return float64(v), nil
	case json.Number:
		return parseNumber(v.String())
	case []any:
		a := make([]any, len(v))
		for i, e := range v {
			x, err := Import(e)
			if err != nil {
				return nil, err
			}
			a[i] = x
		}
		return a, nil
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		o := NewObject()
		for _, k := range keys {
			x, err := Import(v[k])
			if err != nil {
				return nil, err
			}
			o.Set(k, x)
		}
		return o, nil
	}
	// Anything else (structs, typed maps and slices) by way of its JSON.
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("a value of type %T has no JSON: %w", v, err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var plain any
	if err := dec.Decode(&plain); err != nil {
		return nil, err
	}
	return Import(plain)
}

// sortedNames are the keys of a map in order.
func sortedNames(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	sort.Strings(names)
	return names
}

// Export turns a value of this package into maps and slices as encoding/json
// makes them, whole numbers as int64. The copy is deep: it may be changed.
func Export(v any) any {
	switch v := v.(type) {
	case *Object:
		m := make(map[string]any, len(v.keys))
		for _, k := range v.keys {
			m[k] = Export(v.values[k])
		}
		return m
	case []any:
		a := make([]any, len(v))
		for i, e := range v {
			a[i] = Export(e)
		}
		return a
	}
	return v
}

// typeName names the type of a value as the language does.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "string"
	case []any:
		return "array"
	default:
		return "object"
	}
}

// equal compares two values; strings with case.
func equal(a, b any) bool {
	switch a := a.(type) {
	case *Object:
		o, ok := b.(*Object)
		if !ok || len(a.keys) != len(o.keys) {
			return false
		}
		for _, k := range a.keys {
			v, ok := o.values[k]
			if !ok || !equal(a.values[k], v) {
				return false
			}
		}
		return true
	case []any:
		s, ok := b.([]any)
		if !ok || len(a) != len(s) {
			return false
		}
		for i := range a {
			if !equal(a[i], s[i]) {
				return false
			}
		}
		return true
	case int64:
		if f, ok := b.(float64); ok {
			return float64(a) == f
		}
	case float64:
		if i, ok := b.(int64); ok {
			return a == float64(i)
		}
	}
	if _, ok := b.([]any); ok {
		return false
	}
	return a == b
}

// toText is a value inside text: what string(), concat() and format() write.
func toText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return toJSON(v)
}
