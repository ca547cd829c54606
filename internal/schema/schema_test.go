package schema

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/radial-project/radial/internal/core"
)

func mustCompile(t testing.TB, text string) *Schema {
	t.Helper()
	s, err := Compile(json.RawMessage(text))
	if err != nil {
		t.Fatalf("compile: %v\n%s", err, text)
	}
	return s
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return m
}

// faults returns the faults of an error as "target: message", nil for none.
func faults(t testing.TB, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var e *core.Error
	if !errors.As(err, &e) || e.Code != core.CodeInvalidContent || len(e.Details) == 0 {
		t.Fatalf("not an InvalidRequestContent with details: %#v", err)
	}
	var out []string
	for _, d := range e.Details {
		out = append(out, d.Target+": "+d.Message)
	}
	return out
}

// TestLanguage_D16 walks through the schema language: what a value may be, and
// what refuses it.
func TestLanguage_D16(t *testing.T) {
	tests := map[string]struct {
		reason string
		schema string
		good   []string
		bad    []string
	}{
		"enum": {
			reason: "an enum allows its values and no other",
			schema: `{"type":"object","properties":{"a":{"type":"string","enum":["S","M"]}}}`,
			good:   []string{`{"a":"S"}`, `{}`},
			bad:    []string{`{"a":"s"}`, `{"a":null}`, `{"a":1}`},
		},
		"pattern": {
			reason: "a pattern may match anywhere unless anchored",
			schema: `{"type":"object","properties":{"a":{"type":"string","pattern":"^[a-z]+$"}}}`,
			good:   []string{`{"a":"abc"}`},
			bad:    []string{`{"a":"ABC"}`, `{"a":""}`},
		},
		"string bounds": {
			reason: "lengths count characters, not bytes",
			schema: `{"type":"object","properties":{"a":{"type":"string","minLength":2,"maxLength":3}}}`,
			good:   []string{`{"a":"ab"}`, `{"a":"éèê"}`},
			bad:    []string{`{"a":"a"}`, `{"a":"abcd"}`},
		},
		"formats": {
			reason: "formats of JSON Schema and of OpenAPI are checked, unknown ones are not",
			schema: `{"type":"object","properties":{"i32":{"type":"integer","format":"int32"},"b":{"type":"string","format":"byte"},
				"d":{"type":"string","format":"date-time"},"u":{"type":"string","format":"uuid"},"h":{"type":"string","format":"hostname"},
				"p":{"type":"string","format":"password"},"x":{"type":"string","format":"of-somebody"}}}`,
			good: []string{`{"i32":2147483647,"b":"aGk=","d":"2025-01-01T00:00:00Z","u":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","h":"db.local","p":"x","x":"y"}`},
			bad:  []string{`{"i32":2147483648}`, `{"b":"%%"}`, `{"d":"yesterday"}`, `{"u":"1"}`, `{"h":"-"}`},
		},
		"number bounds": {
			reason: "bounds include their value unless exclusive, as a flag (OpenAPI 3.0) or a number (3.1)",
			schema: `{"type":"object","properties":{"a":{"type":"number","minimum":1,"maximum":2},
				"b":{"type":"number","minimum":1,"exclusiveMinimum":true},"c":{"type":"number","exclusiveMaximum":2},
				"d":{"type":"number","minimum":1,"exclusiveMinimum":false},"e":{"type":"integer","multipleOf":5}}}`,
			good: []string{`{"a":1}`, `{"a":2}`, `{"b":1.01}`, `{"c":1.9}`, `{"d":1}`, `{"e":10}`, `{"e":10.0}`},
			bad:  []string{`{"a":0.9}`, `{"a":2.1}`, `{"b":1}`, `{"c":2}`, `{"d":0}`, `{"e":11}`, `{"e":1.5}`},
		},
		"arrays": {
			reason: "items, counts and uniqueness are checked",
			schema: `{"type":"object","properties":{"a":{"type":"array","items":{"type":"array","items":{"type":"integer"}},"minItems":1,"maxItems":2,"uniqueItems":true}}}`,
			good:   []string{`{"a":[[1,2]]}`, `{"a":[[],[1]]}`},
			bad:    []string{`{"a":[]}`, `{"a":[[1],[2],[3]]}`, `{"a":[[1],[1]]}`, `{"a":[["x"]]}`, `{"a":[1]}`, `{"a":{}}`},
		},
		"maps": {
			reason: "a map takes any name and checks its values, maps of maps too",
			schema: `{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"object","additionalProperties":{"type":"integer"}},"maxProperties":2}}}`,
			good:   []string{`{"m":{"x":{"y":1}}}`, `{"m":{}}`},
			bad:    []string{`{"m":{"x":1}}`, `{"m":{"x":{"y":"1"}}}`, `{"m":{"a":{},"b":{},"c":{}}}`},
		},
		"nullable": {
			reason: "null stands only where nullable says so, beside enums, references and compositions too",
			schema: `{"type":"object","$defs":{"o":{"type":"object","properties":{"x":{"type":"string"}}}},"properties":{
				"a":{"type":"string","nullable":true},"b":{"type":"string"},"c":{"type":"string","enum":["x"],"nullable":true},
				"d":{"nullable":true,"allOf":[{"$ref":"#/$defs/o"}]},"e":{"$ref":"#/$defs/o","nullable":true},"f":{"$ref":"#/$defs/o"}}}`,
			good: []string{`{"a":null}`, `{"c":null}`, `{"c":"x"}`, `{"d":null}`, `{"d":{"x":"1"}}`, `{"e":null}`, `{"e":{}}`, `{"f":{}}`},
			bad:  []string{`{"b":null}`, `{"d":{"x":1}}`, `{"d":{"y":1}}`, `{"e":{"y":1}}`, `{"f":null}`},
		},
		"oneOf": {
			reason: "exactly one branch may match, and only its properties go with it",
			schema: `{"type":"object","properties":{"v":{"oneOf":[
				{"type":"object","properties":{"kind":{"type":"string","enum":["a"]},"x":{"type":"string"}},"required":["kind"]},
				{"type":"object","properties":{"kind":{"type":"string","enum":["b"]},"y":{"type":"string"}},"required":["kind"]},
				{"type":"string"}]}}}`,
			good: []string{`{"v":{"kind":"a","x":"1"}}`, `{"v":{"kind":"b","y":"1"}}`, `{"v":"s"}`},
			bad:  []string{`{"v":{"kind":"a","y":"1"}}`, `{"v":{"kind":"c"}}`, `{"v":{}}`, `{"v":1}`, `{"v":{"kind":"a","z":1}}`},
		},
		"oneOf matched twice": {
			reason: "two matching branches are one too many",
			schema: `{"type":"object","properties":{"v":{"oneOf":[{"type":"number"},{"type":"integer"}]}}}`,
			good:   []string{`{"v":1.5}`},
			bad:    []string{`{"v":1}`},
		},
		"anyOf": {
			reason: "one matching branch is enough; branches may only constrain what stands beside them",
			schema: `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`,
			good:   []string{`{"a":"1"}`, `{"b":"1"}`, `{"a":"1","b":"1"}`},
			bad:    []string{`{}`, `{"a":"1","c":"1"}`},
		},
		"allOf": {
			reason: "properties of all branches are known, unknown ones are refused all the same",
			schema: `{"type":"object","$defs":{"base":{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}},
				"properties":{"v":{"allOf":[{"$ref":"#/$defs/base"},{"type":"object","properties":{"n":{"type":"integer"}}}]}}}`,
			good: []string{`{"v":{"id":"1","n":1}}`, `{"v":{"id":"1"}}`},
			bad:  []string{`{"v":{"n":1}}`, `{"v":{"id":"1","z":1}}`, `{"v":{"id":1}}`},
		},
		"allOf at the root": {
			reason: "the root composes like any object",
			schema: `{"type":"object","allOf":[{"type":"object","properties":{"a":{"type":"string"}}},{"type":"object","properties":{"b":{"type":"string"}}}]}`,
			good:   []string{`{"a":"1","b":"1"}`},
			bad:    []string{`{"c":1}`, `{"a":1}`},
		},
		"$ref": {
			reason: "references lead anywhere inside the document, also to themselves through a property",
			schema: `{"type":"object","definitions":{"tree":{"type":"object","properties":{"name":{"type":"string"},"kids":{"type":"array","items":{"$ref":"#/definitions/tree"}}}}},
				"components":{"schemas":{"P":{"type":"integer"}}},
				"properties":{"t":{"$ref":"#/definitions/tree"},"p":{"$ref":"#/components/schemas/P"},"q":{"$ref":"#/properties/p"},"a/b~c":{"type":"boolean"},"r":{"$ref":"#/properties/a~1b~0c"}}}`,
			good: []string{`{"t":{"name":"a","kids":[{"name":"b","kids":[]}]}}`, `{"p":1,"q":2,"r":true}`},
			bad:  []string{`{"t":{"kids":[{"kids":[{"nam":"x"}]}]}}`, `{"p":"1"}`, `{"q":"1"}`, `{"r":1}`},
		},
		"unknown properties": {
			reason: "what is not declared is refused at every depth; a bare object takes anything",
			schema: `{"type":"object","properties":{"o":{"type":"object","properties":{"a":{"type":"string"}}},"l":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}}},"free":{"type":"object"}}}`,
			good:   []string{`{"free":{"any":[1,{"thing":null}]}}`, `{"o":{"a":"1"},"l":[{"a":"1"}]}`},
			bad:    []string{`{"x":1}`, `{"o":{"x":1}}`, `{"l":[{"x":1}]}`},
		},
		"root additionalProperties": {
			reason: "the root may take properties it does not declare, of one schema",
			schema: `{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}}`,
			good:   []string{`{"a":1,"b":"x"}`},
			bad:    []string{`{"a":"x"}`, `{"b":1}`},
		},
		"platformOptions": {
			reason: "any value is allowed there and nowhere else",
			schema: `{"type":"object","properties":{"platformOptions":{"type":"object","additionalProperties":{"type":"any"}}}}`,
			good:   []string{`{"platformOptions":{"k":{"deep":[1,null]},"s":"x","n":null}}`},
			bad:    []string{`{"platformOptions":"x"}`},
		},
		"references before what they lead to": {
			reason: "a schema is read by the place where it stands, however it is come by",
			schema: `{"type":"object","properties":{"a":{"$ref":"#/properties/platformOptions/additionalProperties"},"b":{"allOf":[{"$ref":"#/properties/c/allOf/1"},{"type":"object","properties":{"x":{"type":"integer"}}}]},
				"c":{"allOf":[{"type":"object","properties":{"x":{"type":"integer"}}},{"required":["x"]}]},
				"platformOptions":{"type":"object","additionalProperties":{"type":"any"}}}}`,
			good: []string{`{"a":[1]}`, `{"b":{"x":1}}`, `{"c":{"x":1}}`},
			bad:  []string{`{"b":{}}`, `{"c":{}}`, `{"c":{"x":1,"y":1}}`},
		},
		"required and readOnly": {
			reason: "a required property that is read-only is for answers, not for requests",
			schema: `{"type":"object","properties":{"a":{"type":"string"},"r":{"type":"string","readOnly":true}},"required":["a","r"]}`,
			good:   []string{`{"a":"1"}`, `{"a":"1","r":"x"}`},
			bad:    []string{`{}`, `{"a":"1","r":1}`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := mustCompile(t, tc.schema)
			for _, v := range tc.good {
				if err := s.Validate(object(t, v)); err != nil {
					t.Errorf("%s: %s is refused: %v", tc.reason, v, err)
				}
			}
			for _, v := range tc.bad {
				if s.Validate(object(t, v)) == nil {
					t.Errorf("%s: %s is accepted", tc.reason, v)
				}
			}
		})
	}
}

// TestLanguageFaults_D16 proves that what is outside the language is refused
// at its path, every fault of a document at once.
func TestLanguageFaults_D16(t *testing.T) {
	tests := map[string]struct {
		schema string
		want   []string // "path: part of the message"
	}{
		"not an object":         {`[]`, []string{": a schema must be an object, not array"}},
		"root type":             {`{"type":"string"}`, []string{"type: the root"}},
		"no type":               {`{"type":"object","properties":{"a":{}}}`, []string{"properties.a: a schema must say its type"}},
		"unknown type":          {`{"type":"object","properties":{"a":{"type":"strng"}}}`, []string{`properties.a.type: unknown type "strng"`}},
		"type any":              {`{"type":"object","properties":{"a":{"type":"any"}}}`, []string{"properties.a.type: type any is allowed under"}},
		"type any deeper":       {`{"type":"object","properties":{"platformOptions":{"type":"object","additionalProperties":{"type":"array","items":{"type":"any"}}}}}`, []string{"properties.platformOptions.additionalProperties.items.type: type any"}},
		"additional true":       {`{"type":"object","additionalProperties":true}`, []string{"additionalProperties: additionalProperties must be a schema"}},
		"misspelt mark":         {`{"type":"object","properties":{"a":{"type":"string","x-radius-sensitve":true}}}`, []string{`properties.a.x-radius-sensitve: unknown keyword "x-radius-sensitve": did you mean "x-radius-sensitive"`}},
		"misspelt keyword":      {`{"type":"object","propertes":{}}`, []string{`propertes: unknown keyword "propertes": did you mean "properties"`}},
		"not":                   {`{"type":"object","properties":{"a":{"not":{}, "type":"string"}}}`, []string{`properties.a.not: keyword "not" is not part`}},
		"external reference":    {`{"type":"object","properties":{"a":{"$ref":"https://example.com/x"}}}`, []string{"properties.a.$ref: reference", "leads out of the document"}},
		"dangling reference":    {`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}}}`, []string{"leads nowhere"}},
		"reference to itself":   {`{"type":"object","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"allOf":[{"$ref":"#/$defs/a"}]}}}`, []string{"refers to itself"}},
		"bad pattern":           {`{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}`, []string{"properties.a.pattern: is not a regular expression"}},
		"bad bound":             {`{"type":"object","properties":{"a":{"type":"string","minLength":-1},"b":{"type":"number","minimum":"1"}}}`, []string{"properties.a.minLength: must be a whole number", "properties.b.minimum: must be a number, not string"}},
		"bad default":           {`{"type":"object","properties":{"a":{"type":"string","default":1}}}`, []string{"properties.a.default: the default does not satisfy"}},
		"array without items":   {`{"type":"object","properties":{"a":{"type":"array"}}}`, []string{"properties.a: an array must say the schema of its items"}},
		"required undeclared":   {`{"type":"object","properties":{"o":{"type":"object","properties":{"a":{"type":"string"}},"required":["b"]}}}`, []string{`properties.o.required: "b" is required but not declared`}},
		"sensitive root":        {`{"type":"object","x-radius-sensitive":true}`, []string{"x-radius-sensitive: the root cannot be sensitive"}},
		"definitions elsewhere": {`{"type":"object","properties":{"a":{"type":"object","$defs":{}}}}`, []string{"properties.a.$defs: $defs may stand at the root"}},
		"dotted name":           {`{"type":"object","properties":{"a.b":{"type":"x"}}}`, []string{`properties["a.b"].type: unknown type`}},
		"mixed type list":       {`{"type":["string","null"]}`, []string{"type: must be a string, not array"}},
		"several":               {`{"type":"object","properties":{"a":{"type":"x"},"b":{"type":"y"},"c":{"type":"string","minLength":"z"}}}`, []string{"properties.a.type", "properties.b.type", "properties.c.minLength"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(json.RawMessage(tc.schema))
			all := strings.Join(faults(t, err), "\n")
			for _, want := range tc.want {
				if !strings.Contains(all, want) {
					t.Errorf("no fault %q among:\n%s", want, all)
				}
			}
		})
	}
}

// TestPlaintextConstraints_D11 proves that what is declared about a sensitive
// value is enforced while it can still be read.
func TestPlaintextConstraints_D11(t *testing.T) {
	s := mustCompile(t, `{"type":"object","properties":{
		"p":{"type":"string","x-radius-sensitive":true,"minLength":8,"maxLength":12,"pattern":"^[a-z]+$"},
		"e":{"type":"string","x-radius-sensitive":true,"enum":["gold","silver"]},
		"n":{"type":"integer","x-radius-sensitive":true,"minimum":10},
		"o":{"type":"object","x-radius-sensitive":true,"properties":{"k":{"type":"string"}},"required":["k"]}}}`)
	for _, good := range []string{`{"p":"abcdefgh"}`, `{"e":"gold"}`, `{"n":10}`, `{"o":{"k":"v"}}`} {
		if err := s.Validate(object(t, good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	bad := map[string]string{
		`{"p":"canary"}`:               "p: must have at least 8 characters (minLength)",
		`{"p":"canarycanarycanary"}`:   "p: must have at most 12 characters (maxLength)",
		`{"p":"CANARYCANARY"}`:         "p: must match the pattern ^[a-z]+$",
		`{"e":"canary"}`:               "e: must be one of gold, silver (enum)",
		`{"n":7}`:                      "n: must be at least 10 (minimum)",
		`{"o":{}}`:                     "o: a required property is missing in it (required)",
		`{"o":{"k":7}}`:                "o: must be string, not number (type) (in a value inside it)",
		`{"o":{"k":"v","canary":"x"}}`: "o: holds a property that the schema does not declare",
	}
	for v, want := range bad {
		err := s.Validate(object(t, v))
		if err == nil || err.Error() != "Schema validation failed: "+want {
			t.Errorf("%s:\n got %v\nwant %s", v, err, want)
		}
	}
}

// TestNull_D12 proves that a null is judged by the schema, sensitive or not.
func TestNull_D12(t *testing.T) {
	s := mustCompile(t, `{"type":"object","properties":{
		"a":{"type":"string","x-radius-sensitive":true},
		"b":{"type":"string","x-radius-sensitive":true,"nullable":true}},"required":["a"]}`)
	if got := faults(t, s.Validate(object(t, `{"a":null}`))); len(got) != 1 || got[0] != "a: a: must be string and may not be null (type)" {
		t.Errorf("a redacted null where null may not stand: %q", got)
	}
	if err := s.Validate(object(t, `{"a":"x","b":null}`)); err != nil {
		t.Errorf("a null where null may stand: %v", err)
	}
	if got := faults(t, s.Validate(object(t, `{"b":"x"}`))); len(got) != 1 || got[0] != "a: a: is required" {
		t.Errorf("an omitted sensitive field: %q", got)
	}
	props := object(t, `{"a":"x","b":null}`)
	if err := s.WalkSensitive(props, func(path string, v any) (any, error) { return "sealed:" + path, nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(object(t, `{"a":"sealed:a","b":null}`), props); diff != "" {
		t.Errorf("a null is not sealed, it stays a null (-want +got):\n%s", diff)
	}
}

// TestMessage_D13 proves what a validation error shows and what it does not.
func TestMessage_D13(t *testing.T) {
	s := mustCompile(t, `{"type":"object","properties":{
		"size":{"type":"string","enum":["S","M","L"]},
		"port":{"type":"integer","maximum":65535},
		"data":{"type":"object","additionalProperties":{"type":"object","properties":{"value":{"type":"string","x-radius-sensitive":true,"maxLength":3}},"required":["value"]}},
		"list":{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer"}}}},
		"shape":{"oneOf":[{"type":"object","properties":{"kind":{"type":"string","enum":["x"]},"canaryDeclared":{"type":"integer"}},"required":["kind"]},{"type":"string","maxLength":2}]}},
		"required":["size"]}`)
	err := s.Validate(object(t, `{"siz":"S","port":70000,"list":[{"n":"canaryA"},{"canaryB":1}],
		"data":{"canaryC":{"value":"canaryD"},"canaryE":{"canaryF":"canaryG"}},
		"shape":{"kind":"x","canaryDeclared":"canaryH"}}`))
	want := []string{
		`: siz: is not a property of this type; did you mean size?`,
		`data: data: a required property is missing in it (required) (in a value inside it)`,
		`data: data: holds a property that the schema does not declare (in a value inside it)`,
		`data: data: must have at most 3 characters (maxLength) (in a value inside it)`,
		`list: list: holds a property that the schema does not declare (in a value inside it)`,
		`list: list: must be integer, not string (type) (in a value inside it)`,
		`port: port: must be at most 65535 (maximum)`,
		`shape: shape: must be integer, not string (type) (in a value inside it)`,
		`size: size: is required`,
	}
	if diff := cmp.Diff(want, faults(t, err)); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(err.Error(), "Schema validation failed: ") {
		t.Errorf("message: %s", err)
	}
	all, _ := json.Marshal(core.AsError(err))
	if strings.Contains(string(all), "canary") {
		t.Errorf("the error shows a nested key or a submitted value: %s", all)
	}
}

// TestDefaults_D15 proves where defaults land.
func TestDefaults_D15(t *testing.T) {
	tests := map[string]struct{ reason, schema, in, want string }{
		"missing": {"a missing property gets its default, a given one is kept, null included",
			`{"type":"object","properties":{"a":{"type":"string","default":"x"},"b":{"type":"string","default":"y"},"c":{"type":"string","nullable":true,"default":"z"}}}`,
			`{"b":"mine","c":null}`, `{"a":"x","b":"mine","c":null}`},
		"required": {"a default satisfies required",
			`{"type":"object","properties":{"a":{"type":"string","default":"x"}},"required":["a"]}`, `{}`, `{"a":"x"}`},
		"nested": {"defaults reach into given objects, items and map values",
			`{"type":"object","properties":{"o":{"type":"object","properties":{"a":{"type":"integer","default":1}},"required":["a"]},
			 "l":{"type":"array","items":{"type":"object","properties":{"a":{"type":"integer","default":2}}}},
			 "m":{"type":"object","additionalProperties":{"type":"object","properties":{"a":{"type":"integer","default":3}}}}}}`,
			`{"o":{},"l":[{},{"a":9}],"m":{"k":{}}}`, `{"o":{"a":1},"l":[{"a":2},{"a":9}],"m":{"k":{"a":3}}}`},
		"parent made": {"a missing object is made when defaults alone make it valid, and only then",
			`{"type":"object","properties":{
			 "made":{"type":"object","properties":{"deep":{"type":"object","properties":{"a":{"type":"integer","default":1}}}}},
			 "incomplete":{"type":"object","properties":{"a":{"type":"integer","default":1},"b":{"type":"string"}},"required":["b"]},
			 "none":{"type":"object","properties":{"a":{"type":"integer"}}},
			 "nullable":{"type":"object","nullable":true,"properties":{"a":{"type":"integer","default":1}}},
			 "map":{"type":"object","additionalProperties":{"type":"object","properties":{"a":{"type":"integer","default":1}}}},
			 "list":{"type":"array","items":{"type":"object","properties":{"a":{"type":"integer","default":1}}}}}}`,
			`{}`, `{"made":{"deep":{"a":1}}}`},
		"default of the parent": {"a parent's own default is completed by those below it",
			`{"type":"object","properties":{"o":{"type":"object","default":{"b":2},"properties":{"a":{"type":"integer","default":1},"b":{"type":"integer"}}}}}`,
			`{}`, `{"o":{"a":1,"b":2}}`},
		"readOnly": {"a read-only property gets none",
			`{"type":"object","properties":{"a":{"type":"string","readOnly":true,"default":"x"}}}`, `{}`, `{}`},
		"references": {"defaults come through references and allOf",
			`{"type":"object","$defs":{"p":{"type":"integer","default":5},"o":{"type":"object","properties":{"a":{"$ref":"#/$defs/p"}}}},
			 "properties":{"x":{"$ref":"#/$defs/p"},"o":{"$ref":"#/$defs/o"}},"allOf":[{"type":"object","properties":{"y":{"type":"integer","default":6}}}]}`,
			`{}`, `{"x":5,"y":6,"o":{"a":5}}`},
		"oneOf": {"the branch that fits gives its defaults",
			`{"type":"object","properties":{"v":{"oneOf":[
			 {"type":"object","properties":{"kind":{"type":"string","enum":["a"]},"x":{"type":"integer","default":1}},"required":["kind"]},
			 {"type":"object","properties":{"kind":{"type":"string","enum":["b"]},"y":{"type":"integer","default":2}},"required":["kind"]}]}}}`,
			`{"v":{"kind":"b"}}`, `{"v":{"kind":"b","y":2}}`},
		"recursive": {"a schema below itself makes no endless tree",
			`{"type":"object","$defs":{"t":{"type":"object","properties":{"n":{"type":"integer","default":1},"next":{"$ref":"#/$defs/t"}}}},"properties":{"t":{"$ref":"#/$defs/t"}}}`,
			`{"t":{"next":{}}}`, `{"t":{"n":1,"next":{"n":1}}}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := mustCompile(t, tc.schema)
			got := object(t, tc.in)
			s.ApplyDefaults(got)
			if diff := cmp.Diff(object(t, tc.want), normal(t, got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			again := object(t, tc.in)
			s.ApplyDefaults(again)
			s.ApplyDefaults(again)
			if diff := cmp.Diff(normal(t, got), normal(t, again)); diff != "" {
				t.Errorf("a second run changes something:\n%s", diff)
			}
			if err := s.Validate(got); err != nil {
				t.Errorf("the result is not valid: %v", err)
			}
		})
	}
	t.Run("nothing shared", func(t *testing.T) {
		s := mustCompile(t, `{"type":"object","properties":{"o":{"type":"object","default":{"l":[1]},"properties":{"l":{"type":"array","items":{"type":"integer"}}}}}}`)
		first, second := map[string]any{}, map[string]any{}
		s.ApplyDefaults(first)
		first["o"].(map[string]any)["l"].([]any)[0] = "changed"
		s.ApplyDefaults(second)
		if diff := cmp.Diff(object(t, `{"o":{"l":[1]}}`), normal(t, second)); diff != "" {
			t.Error("two resources share one default:", diff)
		}
	})
}

// TestReadOnly_D15 proves that what is the service's stays the service's.
func TestReadOnly_D15(t *testing.T) {
	s := mustCompile(t, `{"type":"object","properties":{
		"a":{"type":"string"},"host":{"type":"string","readOnly":true},
		"secrets":{"type":"object","properties":{"name":{"type":"string","readOnly":true}}},
		"o":{"type":"object","properties":{"w":{"type":"string"},"r":{"type":"string","readOnly":true}}},
		"l":{"type":"array","items":{"type":"object","properties":{"w":{"type":"string"},"r":{"type":"string","readOnly":true}}}},
		"m":{"type":"object","additionalProperties":{"type":"object","properties":{"w":{"type":"string"},"r":{"type":"string","readOnly":true}}}}}}`)
	stored := `{"a":"old","host":"db","secrets":{"name":"s"},"o":{"w":"1","r":"2"},"l":[{"w":"1","r":"2"}],"m":{"k":{"w":"1","r":"2"}}}`
	tests := map[string]struct{ reason, in, stored, want string }{
		"ignored":     {"a request cannot set it", `{"a":"x","host":"evil","o":{"w":"9","r":"evil"}}`, `{}`, `{"a":"x","o":{"w":"9"}}`},
		"kept":        {"the stored value stays, whatever the request says", `{"a":"x","host":"evil"}`, stored, `{"a":"x","host":"db","secrets":{"name":"s"}}`},
		"kept nested": {"in objects, items and map values too", `{"o":{"w":"9"},"l":[{"w":"9","r":"evil"},{"w":"8","r":"evil"}],"m":{"k":{"w":"9","r":"evil"},"n":{}}}`, stored, `{"host":"db","secrets":{"name":"s"},"o":{"w":"9","r":"2"},"l":[{"w":"9","r":"2"},{"w":"8"}],"m":{"k":{"w":"9","r":"2"},"n":{}}}`},
		"the service": {"provisioningState and status are ignored", `{"a":"x","provisioningState":"Failed","status":{"x":1}}`, `{}`, `{"a":"x"}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := object(t, tc.in)
			s.DropReadOnly(got, object(t, tc.stored))
			if diff := cmp.Diff(object(t, tc.want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	if !s.ReadOnly("host") || s.ReadOnly("a") || s.ReadOnly("nothing") || !s.Declares("host") || s.Declares("nothing") {
		t.Error("ReadOnly or Declares is wrong")
	}
}

// normal brings json.Number and other numbers into one form.
func normal(t testing.TB, v any) map[string]any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return object(t, string(b))
}

func TestHostileNumbers(t *testing.T) {
	s := mustCompile(t, `{"type":"object","properties":{"n":{"type":"integer","format":"int64","minimum":0,"multipleOf":2}}}`)
	for _, n := range []json.Number{"1e999999999", "1e-999999999", "-0", "1E400", "0.1"} {
		_ = s.Validate(map[string]any{"n": n}) // returns, and does not write out a billion digits
	}
	// Rules calculate with numbers: what is beyond any use is refused before.
	s = mustCompile(t, `{"type":"object","properties":{"n":{"type":"number","minimum":1,"multipleOf":3},"list":{"type":"array","items":{"type":"number","maximum":9}}}}`)
	for _, n := range []json.Number{"1e999999999", "1e-999999999", "1E+401", "1e99999999999999999999", json.Number(strings.Repeat("9", 401))} {
		got := faults(t, s.Validate(map[string]any{"n": n, "list": []any{n}}))
		if len(got) != 2 || !strings.Contains(got[0], "too many digits") || !strings.Contains(got[1], "too many digits") {
			t.Errorf("%.20s: %q, want a fault of each property", n, got)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	s := mustCompile(b, `{"type":"object","properties":{"environment":{"type":"string"},"application":{"type":"string"},"host":{"type":"string"},
		"port":{"type":"integer","minimum":1,"maximum":65535},"secrets":{"type":"object","x-radius-sensitive":true,"properties":{"password":{"type":"string"}}}},"required":["environment"]}`)
	v := object(b, `{"environment":"/planes/radius/local/resourceGroups/default/providers/Applications.Core/environments/default","host":"db","port":6379,"secrets":{"password":"x"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Validate(v); err != nil {
			b.Fatal(err)
		}
	}
}

// TestDocumentation_D16 holds the list of keywords in docs/types.md to the code.
func TestDocumentation_D16(t *testing.T) {
	page, err := os.ReadFile("../../docs/types.md")
	if err != nil {
		t.Fatal(err)
	}
	for k := range keywords {
		if !strings.Contains(string(page), "`"+k+"`") && !strings.Contains(string(page), "`"+k+".") {
			t.Errorf("the page leaves out the keyword %s", k)
		}
	}
	for _, f := range []string{"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uri-reference", "uuid", "json-pointer", "regex", "byte"} {
		s := mustCompile(t, `{"type":"object","properties":{"v":{"type":"string","format":"`+f+`"}}}`)
		if !strings.Contains(string(page), "`"+f+"`") || s.Validate(map[string]any{"v": "%(not a value of any format"}) == nil {
			t.Errorf("format %s is not checked, or not named", f)
		}
	}
}
