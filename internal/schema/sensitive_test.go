package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/radial-project/radial/internal/fuzztest"
)

// names are property names, those among them that a path could be confused by.
var names = []string{"a", "b", "a.b", "[*]", "*", `q"q`, `back\slash`, "", "ünïcode", "$sealed", "a/b~c", "properties", "secrets"}

// shapes draws schemas together with values that satisfy them, and puts a
// canary wherever the schema says sensitive.
type shapes struct {
	t        *rapid.T
	defs     map[string]any
	canaries []string
}

func (g *shapes) canary() string {
	c := fmt.Sprintf("canary-%d-", len(g.canaries))
	g.canaries = append(g.canaries, c)
	return c
}

func (g *shapes) chance(label string) bool { return rapid.Bool().Draw(g.t, label) }

// draw returns a schema and a value. Inside of a sensitive place everything is
// a canary, as it is sealed with it.
func (g *shapes) draw(depth int, inside bool) (map[string]any, any) {
	kinds := []string{"string", "object", "array", "map", "number", "any", "free"}
	if depth > 0 {
		kinds = append(kinds, "allOf", "anyOf", "ref", "nullable")
	} else {
		kinds = []string{"string", "number"}
	}
	kind := rapid.SampledFrom(kinds).Draw(g.t, "kind")
	mark := false
	if !inside && kind != "any" && kind != "nullable" {
		mark = rapid.IntRange(0, 2).Draw(g.t, "sensitive") == 0
	}
	secret := inside || mark
	text := func() string {
		if secret {
			return g.canary()
		}
		return "plain"
	}
	var s map[string]any
	var v any
	switch kind {
	case "string", "any":
		s, v = map[string]any{"type": "string"}, text()
	case "number":
		s, v = map[string]any{"type": "number"}, 7.0
		if secret {
			// A number that no counter or offset of the JSON could show by chance.
			n := 4242424242.0 + float64(len(g.canaries))
			g.canaries = append(g.canaries, fmt.Sprint(int64(n)))
			v = n
		}
	case "object":
		props, obj := map[string]any{}, map[string]any{}
		for range rapid.IntRange(1, 3).Draw(g.t, "members") {
			name := rapid.SampledFrom(names).Draw(g.t, "name")
			if _, twice := props[name]; twice {
				continue
			}
			child, value := g.draw(depth-1, secret)
			props[name], obj[name] = child, value
			if g.chance("default") {
				child["default"] = copyValue(value)
				if g.chance("left to the default") {
					delete(obj, name)
				}
			}
		}
		s, v = map[string]any{"type": "object", "properties": props}, obj
	case "array":
		items, item := g.draw(depth-1, secret)
		list := []any{item}
		if g.chance("twice") {
			list = append(list, copyValue(item))
		}
		s, v = map[string]any{"type": "array", "items": items}, list
	case "map":
		values, value := g.draw(depth-1, secret)
		s, v = map[string]any{"type": "object", "additionalProperties": values}, map[string]any{
			rapid.SampledFrom(names).Draw(g.t, "key"): value, "k": copyValue(value)}
	case "free":
		s, v = map[string]any{"type": "object"}, map[string]any{"x": []any{text()}}
	case "allOf":
		one, a := g.draw(depth-1, secret)
		two, b := g.draw(depth-1, secret)
		s = map[string]any{"allOf": []any{
			map[string]any{"type": "object", "properties": map[string]any{"one": one}},
			map[string]any{"type": "object", "properties": map[string]any{"two": two}}}}
		v = map[string]any{"one": a, "two": b}
	case "anyOf":
		one, a := g.draw(depth-1, secret)
		two, b := g.draw(depth-1, secret)
		s = map[string]any{rapid.SampledFrom([]string{"anyOf", "oneOf"}).Draw(g.t, "keyword"): []any{
			map[string]any{"type": "object", "properties": map[string]any{"l": one}, "required": []any{"l"}},
			map[string]any{"type": "object", "properties": map[string]any{"r": two}, "required": []any{"r"}}}}
		if v = map[string]any{"l": a}; g.chance("right") {
			v = map[string]any{"r": b}
		}
	case "ref":
		target, value := g.draw(depth-1, secret)
		name := fmt.Sprintf("d%d", len(g.defs))
		g.defs[name] = target
		s, v = map[string]any{"$ref": "#/$defs/" + name}, value
	case "nullable":
		s, v = g.draw(depth-1, inside)
		s["nullable"] = true
		if g.chance("null") {
			v = nil
		}
	}
	if mark {
		s[sensitiveKeyword] = true
	}
	return s, v
}

// drawSchema returns a compiled schema with a valid value and its canaries.
func drawSchema(t *rapid.T) (*Schema, map[string]any, []string) {
	g := &shapes{t: t, defs: map[string]any{}}
	root := map[string]any{"type": "object"}
	props, value := map[string]any{}, map[string]any{}
	for i := range rapid.IntRange(1, 3).Draw(t, "top") {
		name := rapid.SampledFrom(names).Draw(t, "top name")
		if _, twice := props[name]; twice {
			name = fmt.Sprint(name, i)
		}
		props[name], value[name] = g.draw(4, false)
	}
	root["properties"] = props
	if g.chance("open root") {
		s, v := g.draw(3, false)
		root["additionalProperties"] = s
		value["undeclared.name"] = v
	}
	root["$defs"] = g.defs
	text, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Compile(text)
	if err != nil {
		t.Fatalf("compile: %v\n%s", err, text)
	}
	// Only canaries that stand in the value count: a branch not taken has some too.
	plain := marshal(t, value)
	canaries := slices.DeleteFunc(slices.Clone(g.canaries), func(c string) bool { return !strings.Contains(plain, c) })
	if err := s.Validate(value); err != nil {
		t.Fatalf("a value made for the schema is refused: %v\n%s\n%s", err, text, plain)
	}
	return s, value, canaries
}

func marshal(t interface{ Fatal(...any) }, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestNoCanarySurvives_D16 seals, opens, redacts and lists the secrets of
// values of every shape that the language has.
func TestNoCanarySurvives_D16(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, value, canaries := drawSchema(t)
		before := marshal(t, value)
		sealed := map[string]any{} // by ticket: what an AEAD would hide
		paths := map[string]string{}
		seal := func(path string, v any) (any, error) {
			ticket := fmt.Sprintf("ticket-%d", len(sealed))
			sealed[ticket], paths[ticket] = v, path
			return map[string]any{"$sealed": ticket}, nil
		}
		if err := s.WalkSensitive(value, seal); err != nil {
			t.Fatal(err)
		}
		if left := contained(marshal(t, value), canaries); left != "" {
			t.Fatalf("%s survives sealing: %s", left, marshal(t, value))
		}
		redacted := copyValue(value).(map[string]any)
		s.Redact(redacted)
		if left := contained(marshal(t, redacted), append(slices.Clone(canaries), "$sealed\":\"ticket")); left != "" {
			t.Fatalf("%s survives redaction: %s", left, marshal(t, redacted))
		}
		open := func(path string, v any) (any, error) {
			ticket := v.(map[string]any)["$sealed"].(string)
			if paths[ticket] != path {
				return nil, fmt.Errorf("sealed at %s, opened at %s", paths[ticket], path)
			}
			return sealed[ticket], nil
		}
		if err := s.WalkSensitive(value, open); err != nil {
			t.Fatal(err)
		}
		if after := marshal(t, value); after != before {
			t.Fatalf("sealed and opened is not what it was:\n%s\n%s", before, after)
		}
		secrets := marshal(t, s.Secrets(value))
		for _, c := range canaries {
			if !strings.Contains(secrets, c) {
				t.Fatalf("%s is not among the secrets: %s", c, secrets)
			}
		}
		if after := marshal(t, value); after != before {
			t.Fatal("Secrets changed the value")
		}
	})
}

func contained(text string, canaries []string) string {
	for _, c := range canaries {
		if strings.Contains(text, c) {
			return c
		}
	}
	return ""
}

// TestNoCanaryInErrors_D13 breaks valid values everywhere and looks for what
// the message tells.
func TestNoCanaryInErrors_D13(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, value, canaries := drawSchema(t)
		broken := breakValue(t, value, 0).(map[string]any)
		err := s.Validate(broken)
		if err == nil {
			return
		}
		text := marshal(t, err)
		if left := contained(text, append(canaries, "brokenkey", "brokenvalue")); left != "" {
			t.Fatalf("the error shows %s: %s", left, text)
		}
	})
}

// TestDefaultsHold_D15 proves for any schema that what was valid stays valid
// with its defaults, and that filling twice is filling once.
func TestDefaultsHold_D15(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, value, _ := drawSchema(t)
		before := copyValue(value)
		s.ApplyDefaults(value)
		if err := s.Validate(value); err != nil {
			t.Fatalf("no longer valid: %v\n%s\n%s", err, marshal(t, before), marshal(t, value))
		}
		once := marshal(t, value)
		s.ApplyDefaults(value)
		if twice := marshal(t, value); twice != once {
			t.Fatalf("filled twice is not filled once:\n%s\n%s", once, twice)
		}
		if lost := missing(before, value); lost != "" {
			t.Fatalf("a given value is gone or changed: %s", lost)
		}
	})
}

// missing names a value of given that is not in got.
func missing(given, got any) string {
	switch g := given.(type) {
	case map[string]any:
		m, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprint(given)
		}
		for k, e := range g {
			if _, ok := m[k]; !ok {
				return k
			}
			if lost := missing(e, m[k]); lost != "" {
				return lost
			}
		}
	case []any:
		l, ok := got.([]any)
		if !ok || len(l) != len(g) {
			return fmt.Sprint(given)
		}
		for i, e := range g {
			if lost := missing(e, l[i]); lost != "" {
				return lost
			}
		}
	default:
		if fmt.Sprint(given) != fmt.Sprint(got) {
			return fmt.Sprint(given)
		}
	}
	return ""
}

// breakValue puts wrong types and unknown keys into v, below the top level.
func breakValue(t *rapid.T, v any, depth int) any {
	if depth > 0 && rapid.IntRange(0, 3).Draw(t, "break") == 0 {
		return rapid.SampledFrom([]any{"brokenvalue", []any{"brokenvalue"}, map[string]any{"brokenkey": "brokenvalue"}, nil, true}).Draw(t, "wrong")
	}
	switch c := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range sortedKeys(c) {
			out[k] = breakValue(t, c[k], depth+1)
		}
		if depth > 0 && rapid.Bool().Draw(t, "extra") {
			out["brokenkey"] = "brokenvalue"
		}
		return out
	case []any:
		out := []any{}
		for _, e := range c {
			out = append(out, breakValue(t, e, depth+1))
		}
		return out
	}
	return v
}

// TestPaths_D24 pins the paths that sealed values are bound to: stored data
// depends on them.
func TestPaths_D24(t *testing.T) {
	s := mustCompile(t, `{"type":"object","$defs":{"s":{"type":"string","x-radius-sensitive":true}},
		"properties":{
			"p":{"$ref":"#/$defs/s"},
			"a.b":{"type":"object","properties":{"c.d":{"$ref":"#/$defs/s"}}},
			"aa":{"type":"array","items":{"type":"array","items":{"$ref":"#/$defs/s"}}},
			"mm":{"type":"object","additionalProperties":{"type":"object","additionalProperties":{"$ref":"#/$defs/s"}}},
			"ma":{"type":"object","additionalProperties":{"type":"array","items":{"$ref":"#/$defs/s"}}},
			"o":{"type":"object","x-radius-sensitive":true,"properties":{"k":{"type":"string"}}},
			"n":{"type":"integer","x-radius-sensitive":true},
			"l":{"type":"array","x-radius-sensitive":true,"items":{"type":"string"}},
			"plain":{"type":"string"}},
		"additionalProperties":{"$ref":"#/$defs/s"}}`)
	props := object(t, `{"p":"1","a.b":{"c.d":"1"},"aa":[["1","2"],[]],"mm":{"x":{"y":"1"}},"ma":{"x":["1"]},"o":{"k":"1"},"n":1,"l":["1"],"plain":"1","undeclared":"1"}`)
	var got []string
	if err := s.WalkSensitive(props, func(path string, v any) (any, error) { got = append(got, path); return nil, nil }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	want := []string{`["a.b"]["c.d"]`, "[*]", "aa[*][*]", "aa[*][*]", "l", "ma[*][*]", "mm[*][*]", "n", "o", "p"}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(object(t, `{"p":null,"a.b":{"c.d":null},"aa":[[null,null],[]],"mm":{"x":{"y":null}},"ma":{"x":[null]},"o":null,"n":null,"l":null,"plain":"1","undeclared":null}`), props); diff != "" {
		t.Errorf("in place (-want +got):\n%s", diff)
	}
	for name, want := range map[string]bool{"p": true, "aa": true, "plain": false, "undeclared": true} {
		if s.Sensitive(name) != want {
			t.Errorf("Sensitive(%s) is %v", name, !want)
		}
	}
	boom := errors.New("boom")
	if err := s.WalkSensitive(object(t, `{"aa":[["1"]]}`), func(string, any) (any, error) { return nil, boom }); !errors.Is(err, boom) {
		t.Errorf("the error of the function is lost: %v", err)
	}
}

// TestPathsDiffer proves that two places never share a path by their names.
func TestPathsDiffer(t *testing.T) {
	seen := map[string][]string{}
	for _, a := range append([]string{"a.b.c", "x"}, names...) {
		for _, b := range append([]string{"b.c", "c"}, names...) {
			p := Path(a, b)
			if other, ok := seen[p]; ok && !slices.Equal(other, []string{a, b}) {
				t.Errorf("%q and %q share the path %s", other, []string{a, b}, p)
			}
			seen[p] = []string{a, b}
		}
	}
}

// TestSecrets_D26 shows what listSecrets answers.
func TestSecrets_D26(t *testing.T) {
	s := mustCompile(t, `{"type":"object","properties":{
		"password":{"type":"string","x-radius-sensitive":true},"host":{"type":"string"},
		"secrets":{"type":"object","x-radius-sensitive":true,"properties":{"url":{"type":"string"},"key":{"type":"string","nullable":true}}},
		"data":{"type":"object","additionalProperties":{"type":"object","properties":{"encoding":{"type":"string"},"value":{"type":"string","x-radius-sensitive":true}}}}}}`)
	got := s.Secrets(object(t, `{"password":"p","host":"h","secrets":{"url":"u","key":null},"data":{"x":{"encoding":"base64","value":"v"},"y":{"encoding":"string"}}}`))
	if diff := cmp.Diff(object(t, `{"password":"p","url":"u","data":{"x":{"value":"v"}}}`), normal(t, got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"string","default":"x","x-radius-sensitive":true}}}`), []byte(`{"a":"b"}`))
	f.Add([]byte(`{"type":"object","$defs":{"t":{"type":"object","properties":{"n":{"type":"integer","default":1},"k":{"type":"array","items":{"$ref":"#/$defs/t"}}}}},"properties":{"t":{"$ref":"#/$defs/t"}}}`), []byte(`{"t":{"k":[{},{"n":1e400}]}}`))
	f.Add([]byte(`{"type":"object","allOf":[{"$ref":"#"}]}`), []byte(`{}`))
	f.Add([]byte(`{"type":"object","properties":{"v":{"nullable":true,"oneOf":[{"type":"object","properties":{"a":{"type":"integer","readOnly":true}}},{"type":"array","items":{"type":"string"}}]}}}`), []byte(`{"v":[["x"]],"w":1}`))
	f.Add([]byte(`{"type":"object","properties":{"p":{"$ref":"#/properties/p/items"}}}`), []byte(`{"p":null}`))
	f.Add([]byte(`{"type":"object","additionalProperties":{"type":"number","multipleOf":0.1,"minimum":1e-300}}`), []byte(`{"x":1e300}`))
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"string","enum":["x",null],"nullable":true,"format":"uri"}}}`), []byte(`{"a":"://"}`))
	f.Fuzz(func(t *testing.T, schema, value []byte) {
		fuzztest.Bounded(t, len(schema)+len(value), func() {
			s, err := Compile(schema)
			if err != nil {
				if len(err.Error()) == 0 {
					t.Fatal("an error without a text")
				}
				return
			}
			var props, stored map[string]any
			if json.Unmarshal(value, &props) != nil || props == nil {
				return
			}
			_ = json.Unmarshal(value, &stored)
			s.DropReadOnly(props, stored)
			s.ApplyDefaults(props)
			_ = s.Validate(props)
			_ = s.Secrets(props)
			before := marshal(t, props)
			if err := s.WalkSensitive(props, func(_ string, v any) (any, error) { return []any{v}, nil }); err != nil {
				t.Fatal(err)
			}
			if err := s.WalkSensitive(props, func(_ string, v any) (any, error) { return v.([]any)[0], nil }); err != nil {
				t.Fatal(err)
			}
			if after := marshal(t, props); after != before {
				t.Fatalf("two walks see different places:\n%s\n%s\n%s", schema, before, after)
			}
			s.Redact(props)
		})
	})
}

// TestAnyBranchSeals_D16 proves that a value is sealed when any branch that may
// describe it calls it sensitive, whichever applies.
func TestAnyBranchSeals_D16(t *testing.T) {
	const secret = `{"type":"string","x-radius-sensitive":true}`
	for name, tc := range map[string]struct{ schema, value string }{
		"declared here, a map's value there": {`{"allOf":[{"type":"object","properties":{"x":{"type":"string"}}},{"type":"object","additionalProperties":` + secret + `}]}`, `{"x":"canary"}`},
		"one of several":                     {`{"oneOf":[{"type":"object","properties":{"x":{"type":"string","maxLength":3}}},{"type":"object","properties":{"x":` + secret + `},"required":["x"]}]}`, `{"x":"canary"}`},
		"whole or in part":                   {`{"anyOf":[{"type":"object","x-radius-sensitive":true,"properties":{"x":{"type":"string"}}},{"type":"string"}]}`, `"canary"`},
		"beside a reference":                 {`{"$ref":"#/$defs/plain","x-radius-sensitive":true}`, `"canary"`},
		"behind two references":              {`{"$ref":"#/$defs/again"}`, `{"deep":["canary"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustCompile(t, `{"type":"object","$defs":{"plain":{"type":"string"},"again":{"$ref":"#/$defs/far"},"far":{"type":"object","properties":{"deep":{"type":"array","items":`+secret+`}}}},"properties":{"v":`+tc.schema+`}}`)
			props := object(t, `{"v":`+tc.value+`}`)
			s.Redact(props)
			if text := marshal(t, props); strings.Contains(text, "canary") {
				t.Errorf("left in the clear: %s", text)
			}
			if !s.Sensitive("v") {
				t.Error("v does not count as sensitive")
			}
		})
	}
}
