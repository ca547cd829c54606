package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/fuzztest"
)

// wrap puts the schema of one type into a manifest.
func wrap(schema string) string {
	return `{"namespace":"My.Types","types":{"things":{"apiVersions":{"2025-01-01":{"schema":` + schema + `}}}}}`
}

const atSchema = "types.things.apiVersions.2025-01-01.schema"

func details(t testing.TB, err error) []string {
	t.Helper()
	var e *core.Error
	if !errors.As(err, &e) || len(e.Details) == 0 {
		t.Fatalf("not a core.Error with details: %#v", err)
	}
	var out []string
	for _, d := range e.Details {
		out = append(out, d.Target+": "+d.Message)
	}
	return out
}

// TestParse_D5 proves that a manifest is taken whole or refused with every
// fault at its path.
func TestParse_D5(t *testing.T) {
	tests := map[string]struct {
		in   string
		want []string // "path: start of the message", in order; empty for none
	}{
		"the peers' format": {`
namespace: MyCompany.Data
location: {global: 'http://localhost:8080'}
types:
  vaults:
    description: A vault.
    capabilities: [ManualResourceProvisioning]
    defaultApiVersion: 2025-01-01
    apiVersions:
      2025-01-01:
        schema:
          type: object
          properties:
            environment: {type: string}
            application: {type: string}
            size: {type: string, enum: ['S', 'M'], default: 'S'}
            since: {type: string, default: 2020-01-01}
          required: [environment]
      '2025-02-01-preview':
        schema: {}
        capabilities: []
`, nil},
		"JSON":           {wrap(`{"type":"object","properties":{}}`), nil},
		"no types yet":   {`{"namespace":"My.Types","types":{}}`, nil},
		"empty":          {``, []string{`: the manifest is empty`}},
		"not YAML":       {"a: [", []string{`: the manifest is neither YAML nor JSON`}},
		"a list":         {`[]`, []string{`: must be an object`}},
		"two documents":  {"namespace: My.Types\ntypes: {}\n---\nnamespace: My.Others\ntypes: {}\n", []string{`: the manifest holds more than one document`}},
		"unknown key":    {`{"namespace":"My.Types","type":{},"types":{}}`, []string{`type: unknown key: did you mean types?`}},
		"unknown deeper": {`{"namespace":"My.Types","types":{"a1":{"capabilites":[],"apiVersions":{"2025-01-01":{"shema":{}}}}}}`, []string{`types.a1.capabilites: unknown key: did you mean capabilities?`, `types.a1.apiVersions.2025-01-01.shema: unknown key: did you mean schema?`}},
		"aliases are the built-in types' own": {`{"namespace":"My.Types","types":{"a1":{"aliases":["X.Y/z"],"apiVersions":{}}}}`,
			[]string{`types.a1.aliases: unknown key`}},
		"names": {`{"namespace":"my.types","types":{"Things":{"apiVersions":{"v1":{}}},"ok":{"apiVersions":{"2025-1-1":{}}}}}`, []string{
			`namespace: "my.types" is not a namespace`, `types.Things: "Things" is not the name of a type`,
			`types.Things.apiVersions.v1: "v1" is not an API version`, `types.ok.apiVersions.2025-1-1: "2025-1-1" is not an API version`}},
		"names that differ in case": {`{"namespace":"My.Types","types":{"things":{"apiVersions":{}},"tHings":{"apiVersions":{}}}}`, []string{`types.things: differs from "tHings" in case only`}},
		"missing":                   {`{"types":{"a1":{}}}`, []string{`namespace: is required`, `types.a1.apiVersions: is required`}},
		"the service's namespace":   {`{"namespace":"System.Resources","types":{}}`, []string{`namespace: System.Resources is the service's own`}},
		"default version":           {`{"namespace":"My.Types","types":{"a1":{"defaultApiVersion":"2025-01-02","apiVersions":{"2025-01-01":{}}}}}`, []string{`types.a1.defaultApiVersion: "2025-01-02" is not among the API versions of the type: 2025-01-01`}},
		"capability":                {`{"namespace":"My.Types","types":{"a1":{"capabilities":["ManualResourceProvisoning","manual"],"apiVersions":{}}}}`, []string{`types.a1.capabilities[0]: unknown capability "ManualResourceProvisoning": did you mean ManualResourceProvisioning?`, `types.a1.capabilities[1]: unknown capability "manual"`}},
		"reserved":                  {wrap(`{"type":"object","properties":{"status":{"type":"object"},"provisioningState":{"type":"string"},"recipe":{"type":"object"},"environment":{"type":"integer"},"connections":{"type":"string"},"application":{"type":"string","x-radius-sensitive":true}}}`), []string{atSchema + `.properties.application: may be neither sensitive nor read-only`, atSchema + `.properties.connections: must be a map`, atSchema + `.properties.environment: must be of type string`, atSchema + `.properties.provisioningState: may not be declared`, atSchema + `.properties.recipe: may not be declared`, atSchema + `.properties.status: may not be declared`}},
		"sensitive by a branch":     {wrap(`{"type":"object","allOf":[{"type":"object","additionalProperties":{"type":"string","x-radius-sensitive":true}}]}`), []string{atSchema + `: property application would be sensitive`, atSchema + `: property environment would be sensitive`}},
		"every fault at once":       {`{"namespace":"My.Types","kind":"x","types":{"a1":{"apiVersions":{"2025-01-01":{"schema":{"type":"object","properties":{"p":{"type":"strin"},"q":{"type":"string","minLength":-1}}}},"2025-01-02":{"schema":{"type":"array"}}}},"a2":{"apiVersions":{"x":{"schema":7}}}}}`, []string{`kind: unknown key`, `types.a1.apiVersions.2025-01-01.schema.properties.p.type: unknown type "strin"`, `types.a1.apiVersions.2025-01-01.schema.properties.q.minLength: must be a whole number`, `types.a1.apiVersions.2025-01-02.schema.properties: properties need type object`, `types.a1.apiVersions.2025-01-02.schema.type: the root of a schema must be of type object`, `types.a2.apiVersions.x: "x" is not an API version`, `types.a2.apiVersions.x.schema: must be an object`}},
		"duplicate keys in YAML":    {"namespace: My.Types\ntypes:\n  a1: {apiVersions: {}}\n  a1: {apiVersions: {}}\n", []string{`types.a1: line 4: the key stands twice`}},
		"duplicate keys in JSON":    {`{"namespace":"My.Types","types":{"a1":{"apiVersions":{}},"a1":{"apiVersions":{}}}}`, []string{`types.a1: the key stands twice`}},
		"infinity":                  {"namespace: My.Types\ntypes:\n  a1:\n    apiVersions:\n      2025-01-01:\n        schema: {type: object, properties: {n: {type: number, maximum: .inf}}}\n", []string{`types.a1.apiVersions.2025-01-01.schema.properties.n.maximum: line 6: the value has no counterpart in JSON`}},
		"a dotted name":             {wrap(`{"type":"object","properties":{"a.b":{"type":"x"}}}`), []string{atSchema + `.properties["a.b"].type: unknown type "x"`}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m, err := Parse([]byte(tc.in))
			if len(tc.want) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if m != nil {
				t.Error("a manifest with faults is handed out")
			}
			got := details(t, err)
			for _, w := range tc.want {
				found := false
				for _, g := range got {
					found = found || strings.HasPrefix(g, w)
				}
				if !found {
					t.Errorf("no fault %q", w)
				}
			}
			if t.Failed() || len(got) < len(tc.want) {
				t.Errorf("faults:\n%s", strings.Join(got, "\n"))
			}
			for _, g := range got {
				if !strings.Contains(err.Error(), strings.TrimPrefix(g, ": ")) {
					t.Errorf("the message leaves out %q: %s", g, err)
				}
			}
		})
	}
}

func TestBombs(t *testing.T) {
	laughs := "namespace: My.Types\ntypes: {}\ndescription: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	var b strings.Builder
	b.WriteString(laughs)
	for i := range 20 {
		fmt.Fprintf(&b, "k%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i, i+1, i, i, i, i, i, i, i, i)
	}
	for name, in := range map[string]string{
		"anchors": b.String(),
		"depth":   strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000),
		"yaml":    strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"size":    strings.Repeat(" ", maxSize) + "{}",
		"itself":  "namespace: My.Types\ntypes: &t {a1: *t}\n",
	} {
		if _, err := Parse([]byte(in)); err == nil {
			t.Errorf("%s is read", name)
		} else if len(err.Error()) > 1<<20 {
			t.Errorf("%s: the message has %d bytes", name, len(err.Error()))
		}
	}
}

// TestRoundTrip proves that the JSON of a manifest is that manifest, which is
// how the store keeps it.
func TestRoundTrip(t *testing.T) {
	m, err := Parse([]byte(`
namespace: MyCompany.Data
types:
  vaults:
    capabilities: [ManualResourceProvisioning]
    apiVersions:
      2025-01-01: {schema: {type: object, properties: {n: {type: integer, default: 12345678901234567}, ref: {$ref: '#/properties/n'}}}}
      2024-01-01-preview: {capabilities: []}
`))
	if err != nil {
		t.Fatal(err)
	}
	first, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(first)
	if err != nil {
		t.Fatalf("%v\n%s", err, first)
	}
	second, _ := json.Marshal(again)
	if diff := cmp.Diff(string(first), string(second)); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(string(first), "12345678901234567") {
		t.Errorf("a number lost digits: %s", first)
	}
	if got := again.Types["vaults"].APIVersions["2024-01-01-preview"].Capabilities; got == nil {
		t.Error("a version without capabilities has got those of its type")
	}
	if strings.Contains(string(first), "codeReference") {
		t.Errorf("the common properties are in the registered schema: %s", first)
	}
}

// TestCommonProperties_D15 proves that every type knows what every type knows,
// and nothing else that it does not declare.
func TestCommonProperties_D15(t *testing.T) {
	schemas := map[string]string{
		"declares nothing": `{"type":"object"}`,
		"composed":         `{"type":"object","allOf":[{"type":"object","properties":{"x":{"type":"string"}}}]}`,
		"a map":            `{"type":"object","additionalProperties":{"type":"integer"}}`,
	}
	for name, s := range schemas {
		t.Run(name, func(t *testing.T) {
			v := lookup(t, wrap(s))
			good := `{"environment":"/e","application":"/a","codeReference":"https://x","connections":{"c":{"source":"/r","disableDefaultEnvVars":true}},
				"recipe":{"name":"default","parameters":{"any":[1]},"recipeStatus":"success"},"resourceProvisioning":"manual","resources":[{"id":"/x"}]}`
			if err := v.Schema.Validate(object(t, good)); err != nil {
				t.Error(err)
			}
			for _, bad := range []string{`{"unknown":"x"}`, `{"environment":1}`, `{"connections":{"c":{}}}`, `{"resourceProvisioning":"internal"}`, `{"resources":[{}]}`, `{"recipe":{"nam":"x"}}`} {
				if v.Schema.Validate(object(t, bad)) == nil {
					t.Errorf("%s is accepted", bad)
				}
			}
		})
	}
	t.Run("no schema takes anything", func(t *testing.T) {
		v := lookup(t, `{"namespace":"My.Types","types":{"things":{"apiVersions":{"2025-01-01":{}}}}}`)
		if err := v.Schema.Validate(object(t, `{"environment":"/e","x":{"y":[1,null,"z"]}}`)); err != nil {
			t.Error(err)
		}
		if v.Schema.Validate(object(t, `{"environment":1}`)) == nil {
			t.Error("a common property is not checked")
		}
	})
}

func lookup(t testing.TB, text string) *TypeVersion {
	t.Helper()
	m, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := NewRegistry()
	r.Set(m)
	v, err := r.Lookup("My.Types/things", "2025-01-01")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return m
}

func TestDefaultVersion(t *testing.T) {
	for _, tc := range []struct {
		in   Type
		want string
	}{
		{Type{}, ""},
		{Type{APIVersions: map[string]*APIVersion{"2024-01-01": {}, "2025-01-01-preview": {}}}, "2025-01-01-preview"},
		{Type{APIVersions: map[string]*APIVersion{"2025-01-01": {}, "2025-01-01-preview": {}}}, "2025-01-01"},
		{Type{DefaultAPIVersion: "2024-01-01", APIVersions: map[string]*APIVersion{"2024-01-01": {}, "2025-01-01": {}}}, "2024-01-01"},
	} {
		if got := tc.in.Default(); got != tc.want {
			t.Errorf("%v: %q, want %q", keys(tc.in.APIVersions), got, tc.want)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(wrap(`{"type":"object","properties":{"a":{"type":"string"}}}`)))
	f.Add([]byte("namespace: My.Types\ntypes:\n  a1:\n    apiVersions: &v {2025-01-01: {schema: {type: object}}}\n  a2: {apiVersions: *v}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("? [x]\n: 1\n"))
	f.Add([]byte("types: {<<: {a: 1}}\nnamespace: !!binary aGk=\n"))
	f.Add([]byte(`{"namespace":"A1.B1","types":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzztest.Bounded(t, len(data), func() {
			m, err := Parse(data)
			if err != nil {
				details(t, err)
				return
			}
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Parse(text); err != nil {
				t.Fatalf("the JSON of an accepted manifest is refused: %v\n%s", err, text)
			}
			r := NewRegistry(Builtin()...)
			r.Set(m)
			for name, mt := range m.Types {
				for v := range mt.APIVersions {
					if _, err := r.Lookup(m.Namespace+"/"+name, v); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	})
}

// TestDocumentation holds docs/types.md to the code: its manifest is accepted,
// and the message it quotes is what a bad write is told.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/types.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(yaml|text)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 || blocks[0][1] != "yaml" || blocks[1][1] != "text" {
		t.Fatalf("the page has other blocks than it had: %d", len(blocks))
	}
	m, err := Parse([]byte(blocks[0][2]))
	if err != nil {
		t.Fatal(err)
	}
	r := NewRegistry()
	r.Set(m)
	v, err := r.Default("MyCompany.Messaging/topics")
	if err != nil {
		t.Fatal(err)
	}
	props := object(t, `{"environment":"/e"}`)
	v.Schema.ApplyDefaults(props)
	if got, _ := json.Marshal(props); string(got) != `{"environment":"/e","partitions":{"count":3},"retentionDays":7}` {
		t.Errorf("defaults: %s", got)
	}
	err = v.Schema.Validate(object(t, `{"environment":"/e","retentionDays":100,"writerKey":"short"}`))
	if err == nil || err.Error() != strings.TrimSpace(blocks[1][2]) {
		t.Errorf("the page quotes another message than %v", err)
	}
	bad := strings.Replace(blocks[0][2], "minimum: 1", "minimum: one", 1)
	if _, err := Parse([]byte(bad)); err == nil || !strings.Contains(string(page), "`"+details(t, err)[0]+"`") {
		t.Errorf("the page quotes another fault than %v", err)
	}
	for name := range decoded(common) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("the page leaves out that every type has %s", name)
		}
	}
	for _, c := range capabilities {
		if !strings.Contains(string(page), "`"+c+"`") {
			t.Errorf("the page leaves out the capability %s", c)
		}
	}
}
