package template

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/core"
)

// parse wraps a body in what every template of language version 2.0 has.
func parse(t *testing.T, body string) *Template {
	t.Helper()
	tpl, err := Parse([]byte(symbolic(body)))
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

func symbolic(body string) string {
	return `{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes","version":"1.0.0",
	 "config":{"namespace":"[concat('n','s')]"}}},` + body + `}`
}

// live answers references from a table by symbol.
type live map[string]map[string]any

func (l live) Reference(r *Resource) (map[string]any, error) {
	if v, ok := l[r.Symbol]; ok {
		return v, nil
	}
	return nil, fmt.Errorf("%s is not made", r.Symbol)
}

func edges(p *Plan) map[string]string {
	out := map[string]string{}
	for _, r := range p.Resources {
		var deps []string
		for _, d := range r.DependsOn {
			deps = append(deps, d.Symbol)
		}
		out[r.Symbol] = strings.Join(deps, " ")
	}
	return out
}

func TestPlanSymbolic(t *testing.T) {
	tpl := parse(t, `"parameters":{"on":{"type":"bool"},"n":{"type":"int","defaultValue":2}},
	 "resources":{
	  "a":{"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"a"}}},
	  "off":{"condition":"[not(parameters('on'))]","import":"k","type":"core/Secret@v1","properties":{"x":"[fail('evaluated')]"}},
	  "each":{"copy":{"name":"loop","count":"[parameters('n')]"},"import":"k","type":"core/ConfigMap@v1","dependsOn":["off"],
	    "properties":{"metadata":{"name":"[format('m{0}', copyIndex())]"},"v":"[reference('a').x]"}},
	  "b":{"import":"k","type":"core/Pod@v1","dependsOn":["loop"],"properties":{}},
	  "c":{"import":"k","type":"core/Pod@v1","properties":{"v":"[reference(format('each[{0}]', 1)).x]"}},
	  "d":{"import":"k","type":"core/Pod@v1","dependsOn":["[format('each[{0}]', 0)]"],"properties":{}},
	  "s":{"copy":{"name":"serial","count":5,"mode":"serial","batchSize":2},"import":"k","type":"core/Pod@v1","properties":{}}}`)
	p, err := tpl.Plan(Options{Parameters: map[string]any{"ON": true}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "", "each[0]": "a", "each[1]": "a", "b": "each[0] each[1]", "c": "each[1]", "d": "each[0]",
		"s[0]": "", "s[1]": "", "s[2]": "s[0] s[1]", "s[3]": "s[0] s[1]", "s[4]": "s[2] s[3]"}
	if diff := cmp.Diff(want, edges(p)); diff != "" {
		t.Errorf("dependencies (-want +got):\n%s", diff)
	}
	r := p.Resources[2]
	if r.Symbol != "each[1]" || r.Type != "core/ConfigMap" || r.APIVersion != "v1" || r.Extension.Provider != "Kubernetes" || r.Extension.Config["namespace"] != "ns" {
		t.Errorf("resource: %+v %+v", r, r.Extension)
	}
	props, unknown, err := p.Known(r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(object{"metadata": object{"name": "m1"}}, props); diff != "" || len(unknown) != 1 || unknown[0] != "/v" {
		t.Errorf("known before: unknown %v, %s", unknown, diff)
	}
	props, err = p.Properties(r, live{"a": {"x": 3.0}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(object{"metadata": object{"name": "m1"}, "v": int64(3)}, props); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}

func TestPlanClassic(t *testing.T) {
	tpl, err := Parse([]byte(`{
	 // comments are allowed
	 "$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","contentVersion":"1.0.0.0",
	 "variables":{"copy":[{"name":"list","count":2,"input":"[copyIndex('list', 5)]"}],"o":{"copy":[{"name":"l","count":2,"input":{"i":"[copyIndex('l')]"}}]}},
	 "resources":[
	  {"type":"A.B/c","apiVersion":"1","name":"x","properties":{"p":"[reference('y').q]","list":"[variables('list')]","o":"[variables('o')]"}},
	  {"type":"A.B/c","apiVersion":"1","name":"y"},
	  {"type":"A.B/c/d","apiVersion":"1","name":"y/z","dependsOn":["[resourceId('A.B/c','y')]","A.B/c/x"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := tpl.Plan(Options{Scope: core.GroupID("g")})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"A.B/c/x": "A.B/c/y", "A.B/c/y": "", "A.B/c/d/y/z": "A.B/c/x A.B/c/y"}, edges(p)); diff != "" {
		t.Errorf("dependencies (-want +got):\n%s", diff)
	}
	if got := p.Resources[2].ID.String(); got != "/planes/radius/local/resourceGroups/g/providers/A.B/c/y/d/z" {
		t.Errorf("id %s", got)
	}
	props, err := p.Properties(p.Resources[0], live{"A.B/c/y": {"q": "Q"}})
	if err != nil {
		t.Fatal(err)
	}
	want := object{"p": "Q", "list": list{int64(5), int64(6)}, "o": object{"l": list{object{"i": int64(0)}, object{"i": int64(1)}}}}
	if diff := cmp.Diff(want, props); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}

func TestUserFunctions(t *testing.T) {
	tpl := parse(t, `"functions":[{"namespace":"my","members":{"twice":{"parameters":[{"name":"s","type":"string"}],
	 "output":{"type":"string","value":"[concat(parameters('s'),parameters('s'))]"}}}}],
	 "resources":{},"outputs":{"o":{"type":"string","value":"[my.TWICE('ab')]"}}`)
	p, err := tpl.Plan(Options{})
	if err != nil {
		t.Fatal(err)
	}
	outs, err := p.Outputs(nil)
	if err != nil || outs[0].Value != "abab" {
		t.Errorf("got %v, %v", outs, err)
	}
}

func TestOutputs(t *testing.T) {
	tpl := parse(t, `"parameters":{"s":{"type":"securestring","defaultValue":"pw"}},
	 "resources":{"a":{"import":"k","type":"core/Secret@v1","properties":{}},"e":{"existing":true,"import":"k","type":"core/Secret@v1","properties":{}}},
	 "outputs":{"plain":{"type":"int","value":"[reference('a').n]"},"secret":{"type":"securestring","value":"[parameters('s')]"},
	  "off":{"condition":false,"type":"string","value":"[fail('evaluated')]"},
	  "many":{"type":"array","copy":{"count":2,"input":"[copyIndex()]"}},
	  "full":{"type":"object","value":"[reference('a','v1','Full')]"}}`)
	p, err := tpl.Plan(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !p.Resources[1].Existing {
		t.Error("e is an existing resource")
	}
	outs, err := p.Outputs(live{"a": {"n": int64(4)}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Output{{Name: "plain", Type: "int", Value: int64(4)}, {Name: "secret", Type: "securestring", Value: "pw", Secure: true},
		{Name: "many", Type: "array", Value: list{int64(0), int64(1)}}, {Name: "full", Type: "object", Value: object{"type": "core/Secret", "apiVersion": "v1", "properties": object{"n": int64(4)}}}}
	if diff := cmp.Diff(want, outs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := p.Outputs(live{"a": {"n": "text"}}); err == nil || !strings.Contains(err.Error(), `output "plain" must be of type int, it is string`) {
		t.Errorf("an output of the wrong type: %v", err)
	}
	broken := errors.New("gone")
	if _, err := p.Outputs(failing{broken}); !errors.Is(err, broken) {
		t.Errorf("the runtime's error got lost: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Reference(*Resource) (map[string]any, error) { return nil, f.err }

func TestParameters_D33(t *testing.T) {
	tpl := parse(t, `"definitions":{"size":{"type":"object","properties":{"cpu":{"type":"int","minValue":1},"gpu":{"type":"bool","nullable":true}},"additionalProperties":false}},
	 "parameters":{
	  "name":{"type":"string","minLength":2,"maxLength":4},"kind":{"type":"string","allowedValues":["a","b"],"defaultValue":"a"},
	  "secret":{"type":"secureString","minLength":3,"defaultValue":"xyz"},"n":{"type":"int","minValue":1,"maxValue":3,"defaultValue":1},
	  "size":{"$ref":"#/definitions/size","defaultValue":{"cpu":1}},"many":{"type":"array","allowedValues":["x","y"],"defaultValue":["x"]},
	  "none":{"type":"string","nullable":true},"text":{"type":"string","defaultValue":"[parameters('name')]"}},
	 "resources":{},"outputs":{"o":{"type":"array","value":"[createArray(parameters('none'), parameters('text'), parameters('TEXT'))]"}}`)
	for name, c := range map[string]struct {
		params map[string]any
		want   string // of the error, "" for none
	}{
		"good":                 {map[string]any{"name": "ab"}, ""},
		"missing":              {map[string]any{}, `parameter "name" (string) has no value`},
		"D-33 unknown name":    {map[string]any{"name": "ab", "knd": "a"}, `the template has no parameter "knd"; did you mean "kind"? (it declares: name, kind, secret`},
		"too short":            {map[string]any{"name": "a"}, `parameter "name" must have a length of 2 or more, it has 1`},
		"too long":             {map[string]any{"name": "abcde"}, `length of 4 or less`},
		"wrong type":           {map[string]any{"name": 3}, `parameter "name" must be of type string, it is int`},
		"not allowed":          {map[string]any{"name": "ab", "kind": "c"}, `must be one of ["a","b"]`},
		"too large":            {map[string]any{"name": "ab", "n": 4}, `must be 3 or less`},
		"subset":               {map[string]any{"name": "ab", "many": []any{"y", "x"}}, ""},
		"no subset":            {map[string]any{"name": "ab", "many": []any{"z"}}, `must be one of`},
		"defined type":         {map[string]any{"name": "ab", "size": map[string]any{"cpu": 2, "gpu": true}}, ""},
		"inside defined type":  {map[string]any{"name": "ab", "size": map[string]any{"cpu": 0}}, `parameter "size", property "cpu", must be 1 or more`},
		"lacks a property":     {map[string]any{"name": "ab", "size": map[string]any{}}, `lacks the property "cpu"`},
		"undeclared property":  {map[string]any{"name": "ab", "size": map[string]any{"cpu": 1, "gpus": 1}}, `has the property "gpus", which its type does not declare; did you mean "gpu"?`},
		"null":                 {map[string]any{"name": nil}, `parameter "name" is null`},
		"text is never parsed": {map[string]any{"name": "[x]"}, ""},
	} {
		p, err := tpl.Plan(Options{Parameters: c.params})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		case c.want != "" && core.CodeOf(err) != core.CodeRecipeInvalid:
			t.Errorf("%s: code %s", name, core.CodeOf(err))
		}
		if name == "text is never parsed" && err == nil {
			outs, err := p.Outputs(nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(list{nil, "[x]", "[x]"}, outs[0].Value); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
	_, err := tpl.Plan(Options{Parameters: map[string]any{"name": "ab", "secret": "s!"}})
	if err == nil || strings.Contains(err.Error(), "s!") {
		t.Errorf("the error of a secure value: %v", err)
	}
	cycle := parse(t, `"parameters":{"a":{"type":"string","defaultValue":"[parameters('b')]"},"b":{"type":"string","defaultValue":"[parameters('a')]"}},"resources":{}`)
	if _, err := cycle.Plan(Options{}); err == nil || !strings.Contains(err.Error(), `the default of parameter "a" leads back to itself`) {
		t.Errorf("D-33: a cycle of defaults: %v", err)
	}
}

func TestFaultsOfTemplates(t *testing.T) {
	res := `"a":{"import":"k","type":"core/Secret@v1","properties":{}}`
	for name, c := range map[string]struct{ text, want string }{
		"not JSON":            {`{"a":`, "line 1, column 6"},
		"comma":               {"{\"a\":1\n\"b\":2}", `(line 2, column 1): a comma or '}' is expected`},
		"top member":          {`{"contentVersion":"1","resource":[]}`, `a template has no member "resource"; did you mean "resources"?`},
		"no resources":        {`{"contentVersion":"1"}`, `the member "resources" is missing`},
		"version":             {`{"contentVersion":"1","languageVersion":"9","resources":{}}`, `the language version "9" is not supported`},
		"array in 2.0":        {`{"contentVersion":"1","languageVersion":"2.0","resources":[]}`, "must be an object"},
		"object in classic":   {`{"contentVersion":"1","resources":{}}`, `need "languageVersion": "2.0"`},
		"imports in classic":  {`{"contentVersion":"1","imports":{},"resources":[]}`, `imports need "languageVersion": "2.0"`},
		"unknown import":      {symbolic(`"resources":{"a":{"import":"x","type":"t"}}`), `no import has the alias "x" (k)`},
		"import and more":     {symbolic(`"resources":{"a":{"import":"k","extension":"k","type":"t"}}`), "import or extension, not both"},
		"nested deployment":   {symbolic(`"resources":{"a":{"name":"n","type":"Microsoft.Resources/deployments"}}`), "a deployment has properties"},
		"dangling dependency": {symbolic(`"resources":{` + res + `,"b":{"import":"k","type":"t@v1","dependsOn":["aa"]}}`), `resources.b.dependsOn[0] (line 2,`},
		"dangling reference":  {symbolic(`"resources":{` + res + `},"outputs":{"o":{"type":"string","value":"[reference('b').x]"}}`), `the template has no resource "b"; did you mean "a"?`},
		"cycle": {symbolic(`"resources":{"x":{"import":"k","type":"t@v1","dependsOn":["y"]},"y":{"import":"k","type":"t@v1","dependsOn":["z"]},
		   "z":{"import":"k","type":"t@v1","properties":{"v":"[reference('x')]"}}}`), "resources depend on each other: x → y → z → x"},
		"twice":                {symbolic(`"resources":{` + res + `,` + res + `}`), `the member "a" stands twice`},
		"condition at runtime": {symbolic(`"resources":{` + res + `,"b":{"condition":"[reference('a').x]","import":"k","type":"t@v1"}}`), "a condition must be known before the deployment starts"},
		"condition not bool":   {symbolic(`"resources":{"b":{"condition":"yes","import":"k","type":"t@v1"}}`), "a condition must be a bool, it is of type string"},
		"skipped reference":    {symbolic(`"resources":{"b":{"condition":false,"import":"k","type":"t@v1"}},"outputs":{"o":{"type":"string","value":"[reference('b').x]"}}`), `"b" is not deployed: its condition is false`},
		"type of a parameter":  {symbolic(`"parameters":{"p":{"type":"number"}},"resources":{}`), `"number" is not a type`},
		"dangling $ref":        {symbolic(`"parameters":{"p":{"$ref":"#/definitions/x"}},"resources":{}`), "refers to no definition"},
		"nested function":      {symbolic(`"functions":[{"namespace":"n","members":{"f":{"parameters":[],"output":{"type":"string","value":"[n.f()]"}}}}],"resources":{},"outputs":{"o":{"type":"string","value":"[n.f()]"}}`), "nest deeper"},
		"name segments":        {`{"contentVersion":"1","resources":[{"type":"A.B/c/d","name":"x"}]}`, "needs a name of 2 segments, this one has 1"},
	} {
		tpl, err := Parse([]byte(c.text))
		if err == nil {
			var p *Plan
			if p, err = tpl.Plan(Options{}); err == nil {
				_, err = p.Outputs(live{})
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		} else if core.CodeOf(err) != core.CodeInvalidTemplate || !strings.Contains(err.Error(), "(line ") {
			t.Errorf("%s: code %s, %v: the error must say where", name, core.CodeOf(err), err)
		}
	}
}

// TestLimits holds each bound at its edge (part of S-42).
func TestLimits(t *testing.T) {
	many := func(n int) string {
		return `{"contentVersion":"1","languageVersion":"2.0","imports":{"k":{"provider":"K"}},"resources":{"a":{"copy":{"name":"l","count":` + fmt.Sprint(n) + `},"import":"k","type":"t@v1"}}}`
	}
	if err := plan(many(800)); err != nil {
		t.Errorf("800 resources: %v", err)
	}
	if err := plan(many(801)); err == nil || !strings.Contains(err.Error(), "from 0 to 800") {
		t.Errorf("801 resources: %v", err)
	}
	expression := func(n int) string {
		text := "['" + strings.Repeat("x", n-4) + "']"
		return symbolic(`"resources":{},"outputs":{"o":{"type":"string","value":"` + text + `"}}`)
	}
	if err := plan(expression(24_576)); err != nil {
		t.Errorf("an expression of 24,576 characters: %v", err)
	}
	if err := plan(expression(24_577)); err == nil || !strings.Contains(err.Error(), "the limit is 24576") {
		t.Errorf("an expression of 24,577 characters: %v", err)
	}
	if _, err := Parse(make([]byte, 4<<20+1)); err == nil || !strings.Contains(err.Error(), "the limit is 4194304") {
		t.Errorf("4 MiB and one byte: %v", err)
	}
	deep := strings.Repeat("[", 500) + strings.Repeat("]", 500)
	if err := plan(symbolic(`"resources":{},"variables":{"v":` + deep + `}`)); err == nil || !strings.Contains(err.Error(), "nests deeper") {
		t.Errorf("deep nesting: %v", err)
	}
	// Loops of loops, and text that doubles with every call.
	bomb := `map(range(0,10000), lambda('i', map(range(0,10000), lambda('j', 1))))`
	if err := plan(symbolic(`"resources":{},"outputs":{"o":{"type":"array","value":"[` + bomb + `]"}}`)); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a hundred million steps: %v", err)
	}
	doubling := `reduce(range(0,60), 'x', lambda('a','b', concat(lambdaVariables('a'),lambdaVariables('a'))))`
	if err := plan(symbolic(`"resources":{},"outputs":{"o":{"type":"string","value":"[` + doubling + `]"}}`)); err == nil || !strings.Contains(err.Error(), "bytes of values") {
		t.Errorf("2^60 characters: %v", err)
	}
}

func plan(text string) error {
	tpl, err := Parse([]byte(text))
	if err != nil {
		return err
	}
	p, err := tpl.Plan(Options{})
	if err != nil {
		return err
	}
	_, err = p.Outputs(nil)
	return err
}

// FuzzTemplate: whatever the text, evaluation ends, with a value or an error.
func FuzzTemplate(f *testing.F) {
	f.Add(symbolic(`"resources":{"a":{"import":"k","type":"t@v1","properties":{"x":"[format('{0}', 1)]"}}}`))
	f.Add(`{"contentVersion":"1","resources":[],"outputs":{"o":{"type":"string","value":"[concat('a', string(1))]"}}}`)
	f.Add(nestedTemplate("inner", `,"parameters":{"name":{"value":"[parameters('name')]"}}`, `{"contentVersion":"1","parameters":{"name":{"type":"string"}},"resources":[],"outputs":{"x":{"type":"string","value":"y"}}}`))
	f.Add(nestedTemplate("outer", "", `{"contentVersion":"1","resources":[{"copy":{"name":"l","count":2},"type":"A.B/c","apiVersion":"1","name":"[string(copyIndex())]"}]}`))
	f.Add(fmt.Sprintf(deletion, "", "", `{"import":"k8s","id":"/planes/Kubernetes/type/x/properties.metadata.name/y"}`))
	f.Fuzz(func(t *testing.T, text string) {
		tpl, err := ParseWith([]byte(text), Limits{TextBytes: 1 << 16, Nodes: 5000, Depth: 50, ExpressionLength: 1000, Parameters: 20,
			ResourceBytes: 1 << 15, Nested: 3, DeploymentName: 64, Variables: 20, Resources: 50, Outputs: 20, CopyCount: 50, Steps: 20_000, Bytes: 1 << 20})
		if err != nil {
			return
		}
		p, err := tpl.Plan(Options{Scope: core.GroupID("g"), Deployment: "d", NewGUID: func() string { return "g" }})
		if err != nil {
			return
		}
		for _, r := range p.Resources {
			_, _, _ = p.Known(r)
			_, _ = p.Properties(r, live{})
			if r.Extension != nil {
				if id, known, err := p.ExtensionID(r, nil); known && err == nil {
					if back, err := ParseExtensionID(id.String()); err != nil || !back.Equal(id) {
						t.Fatalf("%s is read back as %s, %v", id, back, err)
					}
				}
			}
			if r.Deployment {
				if n, err := p.Nested(r, nil); err == nil {
					for _, r := range n.Resources {
						_, _, _ = n.KnownBody(r)
					}
				}
			}
		}
		_, _ = p.Outputs(live{})
	})
}

// FuzzExpression: whatever the text, parsing ends, with an expression or an
// error that has a place inside it.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{"[a('b', 1)[2].c]", "[x.y('it''s')]", "[-1]", "[a(]", "[['x']", "[a('\xff')]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, is := isExpression(text); !is {
			return
		}
		_, err := parseExpression(text, DefaultLimits())
		var x *exprError
		if err != nil && (!errors.As(err, &x) || x.off < 0 || x.off > len(text)) {
			t.Fatalf("%q: %#v", text, err)
		}
	})
}

// FuzzParameters: whatever the text, reading a parameters file ends.
func FuzzParameters(f *testing.F) {
	f.Add(`{"parameters":{"a":{"value":"[x]"},"b":{"expression":"[concat('a',externalInputs('i'))]"}},"externalInputDefinitions":{"i":{"kind":"k"}}}`)
	f.Add(`{"a":{"reference":{"keyVault":{"id":"v"},"secretName":"s"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		file, err := ParseParameters([]byte(text))
		if err != nil {
			return
		}
		_, _, _ = file.Values(ParameterSources{
			Secret: func(SecretReference) (string, error) { return "s", nil },
			Input:  func(string, InputDefinition) (any, error) { return "i", nil },
		})
	})
}
