package template

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/core"
)

func nestedTemplate(scope, parameters, body string) string {
	return `{"contentVersion":"1","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes","config":{"namespace":"outer"}}},
	 "parameters":{"name":{"type":"string","defaultValue":"parent"},"pw":{"type":"securestring","defaultValue":"TOPSECRET"}},"variables":{"v":"of the parent"},
	 "resources":{"a":{"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"a"}}},
	  "dep":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"dep","properties":{"mode":"Incremental",
	   "expressionEvaluationOptions":{"scope":"` + scope + `"}` + parameters + `,
	   "template":` + body + `}}},
	 "outputs":{"o":{"type":"string","value":"[reference('dep').outputs.x.value]"}}}`
}

func TestNested_S40_inner_and_outer(t *testing.T) {
	inner := `{"contentVersion":"1","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes","config":{"namespace":"inner"}}},
	 "parameters":{"name":{"type":"string"},"pw":{"type":"string","defaultValue":"none"}},"variables":{"v":"of the nested"},
	 "resources":{"m":{"copy":{"name":"l","count":2},"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[format('{0}-{1}',parameters('name'),copyIndex())]"},"v":"[variables('v')]"}}},
	 "outputs":{"x":{"type":"string","value":"[parameters('name')]"},"s":{"type":"securestring","value":"[parameters('pw')]"}}}`
	p, err := planOf(t, nestedTemplate("inner", `,"parameters":{"name":{"value":"[reference('a').late]"},"pw":{"value":"[parameters('pw')]"}}`, inner), Options{Scope: core.GroupID("g")})
	if err != nil {
		t.Fatal(err)
	}
	dep := p.Resources[1]
	if len(dep.DependsOn) != 1 || !dep.Deployment {
		t.Errorf("dep: %+v", dep)
	}
	// Before: names are not known, the number is.
	early, err := p.Nested(dep, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(early.Resources) != 2 {
		t.Errorf("before: %d resources", len(early.Resources))
	}
	if _, known, err := early.ExtensionID(early.Resources[0], nil); known || err != nil {
		t.Errorf("before: the id is known: %v, %v", known, err)
	}
	rt := live{"a": {"late": "now"}}
	n, err := p.Nested(dep, rt)
	if err != nil {
		t.Fatal(err)
	}
	id, known, err := n.ExtensionID(n.Resources[1], nil)
	if err != nil || !known || id.String() != "/planes/Kubernetes/import.namespace/inner/type/core%2FConfigMap/properties.metadata.name/now-1" {
		t.Errorf("id %s, %v, %v", id, known, err)
	}
	props, err := n.Properties(n.Resources[0], rt)
	if err != nil || props["v"] != "of the nested" {
		t.Errorf("properties %v, %v", props, err)
	}
	outs, err := n.Outputs(rt)
	if err != nil {
		t.Fatal(err)
	}
	public, secure := OutputsValue(outs)
	if diff := cmp.Diff(object{"x": object{"type": "string", "value": "now"}, "s": object{"type": "securestring"}}, public); diff != "" || secure["s"] != "TOPSECRET" {
		t.Errorf("outputs: secure %v (-want +got):\n%s", secure, diff)
	}

	// Outer: the parent's parameters, variables and loops; [[ one level later.
	outer := `{"contentVersion":"1","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes","config":{"namespace":"[parameters('name')]"}}},"variables":{"v":"of the nested"},
	 "resources":{"m":{"copy":{"name":"l","count":2},"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[format('{0}-{1}',parameters('name'),copyIndex())]"},
	  "outer":"[variables('v')]","inner":"[[variables('v')]","text":"[[[x]"}},
	  "n":{"import":"k","type":"core/ConfigMap@v1","dependsOn":["l"],"properties":{"metadata":{"name":"n"}}}},
	 "outputs":{"x":{"type":"string","value":"[reference('a').late]"}}}`
	if p, err = planOf(t, nestedTemplate("outer", "", outer), Options{Scope: core.GroupID("g")}); err != nil {
		t.Fatal(err)
	}
	if n, err = p.Nested(p.Resources[1], rt); err != nil {
		t.Fatal(err)
	}
	if props, err = n.Properties(n.Resources[1], rt); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(object{"metadata": object{"name": "parent-1"}, "outer": "of the parent", "inner": "of the nested", "text": "[x]"}, props); diff != "" {
		t.Errorf("outer (-want +got):\n%s", diff)
	}
	if d := n.Resources[2].DependsOn; len(d) != 2 {
		t.Errorf("a loop inside is named as a whole: %d", len(d))
	}
	if outs, err = n.Outputs(rt); err != nil || outs[0].Value != "now" {
		t.Errorf("outer outputs %v, %v", outs, err)
	}
}

// TestNested_S40_faults: a fault inside says where in the whole document.
func TestNested_S40_faults(t *testing.T) {
	body := func(value string) string {
		return `{"contentVersion":"1","resources":[],
	"outputs":{"x":{"type":"string","value":"` + value + `"}}}`
	}
	for name, c := range map[string]struct{ text, want string }{
		"inner syntax":      {nestedTemplate("inner", "", body("[nothing()]")), "resources.dep.properties.template.outputs.x.value (line 7, column 44): there is no function nothing"},
		"inner and parent":  {nestedTemplate("inner", "", body("[parameters('name')]")), `resources.dep.properties.template.outputs.x.value (line 7, column 44): parameters: there is no parameter "name"`},
		"outer parameters":  {nestedTemplate("outer", `,"parameters":{"a":{"value":1}}`, body("x")), "set expressionEvaluationOptions.scope to inner"},
		"unknown parameter": {nestedTemplate("inner", `,"parameters":{"nam":{"value":1}}`, body("x")), `the template of dep has no parameter "nam"`},
		"complete":          {strings.Replace(nestedTemplate("inner", "", body("x")), "Incremental", "Complete", 1), "allowed at the root only"},
		"long name":         {strings.Replace(nestedTemplate("inner", "", body("x")), `"name":"dep"`, `"name":"`+strings.Repeat("n", 65)+`"`, 1), "65 characters; the limit is 64"},
		"link":              {strings.Replace(nestedTemplate("inner", "", "{}"), `"template":{}`, `"templateLink":{"uri":"https://example.com/t.json"}`, 1), "linked templates cannot be fetched here"},
	} {
		p, err := planOf(t, c.text, Options{Scope: core.GroupID("g")})
		if err == nil {
			var n *Plan
			if n, err = p.Nested(p.Resources[1], live{"a": {}}); err == nil {
				_, err = n.Outputs(live{})
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestNested_links(t *testing.T) {
	text := strings.Replace(nestedTemplate("inner", `,"parameters":{"p":{"value":"x"}}`, "{}"), `"template":{}`, `"templateLink":{"relativePath":"sub/t.json","contentVersion":"1.0.0.0"}`, 1)
	var asked Link
	p, err := planOf(t, text, Options{Scope: core.GroupID("g"), URI: "https://example.com/dir/main.json", Link: func(l Link) ([]byte, error) {
		asked = l
		return []byte(`{"contentVersion":"1.0.0.0","parameters":{"p":{"type":"string"}},"resources":[],"outputs":{"x":{"type":"string","value":"[deployment().properties.templateLink.uri]"}}}`), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := p.Nested(p.Resources[1], live{})
	if err != nil {
		t.Fatal(err)
	}
	outs, err := n.Outputs(live{})
	if err != nil || outs[0].Value != "https://example.com/dir/sub/t.json" || asked.URI != outs[0].Value {
		t.Errorf("%v, %v, asked for %+v", outs, err, asked)
	}
}

// TestNested_flat: an inner deployment with its parameters put in is the same
// as the flat template.
func TestNested_S40_flat(t *testing.T) {
	res := func(name string) string {
		return `"r":{"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"` + name + `"},"d":{"a":["[add(1,2)]"]}}}`
	}
	k := `"imports":{"k":{"provider":"Kubernetes","config":{"namespace":"outer"}}}`
	flat, err := planOf(t, `{"contentVersion":"1","languageVersion":"2.0",`+k+`,"resources":{`+res("n")+`}}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := planOf(t, nestedTemplate("inner", `,"parameters":{"p":{"value":"n"}}`, `{"contentVersion":"1","languageVersion":"2.0",`+k+`,"parameters":{"p":{"type":"string"}},"resources":{`+res("[parameters('p')]")+`}}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := p.Nested(p.Resources[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := flat.KnownBody(flat.Resources[0])
	got, unknown, err := n.KnownBody(n.Resources[0])
	if diff := cmp.Diff(want, got); diff != "" || err != nil || len(unknown) > 0 {
		t.Errorf("%v %v (-flat +nested):\n%s", err, unknown, diff)
	}
}

func TestChildResources_S40(t *testing.T) {
	classic := `{"contentVersion":"1","resources":[{"type":"A.B/c","apiVersion":"1","name":"[concat('x','')]","condition":false,
	 "resources":[{"type":"d","name":"y","dependsOn":["x"],"resources":[{"type":"e","apiVersion":"2","name":"z","dependsOn":["[resourceId('A.B/c/d','x','y')]"]}]}]}]}`
	p, err := planOf(t, classic, Options{At: "/subscriptions/s/resourceGroups/g"})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Resources) != 2 || p.Resources[1].ResourceID != "/subscriptions/s/resourceGroups/g/providers/A.B/c/x/d/y/e/z" || p.Resources[0].APIVersion != "1" || p.Resources[1].APIVersion != "2" {
		t.Fatalf("children: %+v", p.Resources)
	}
	if len(p.Resources[0].DependsOn) != 0 || len(p.Resources[1].DependsOn) != 1 {
		t.Error("a skipped parent does not count, and nesting alone makes no dependency")
	}
}

// TestSecureValues_S41: no message holds what a secure parameter holds, in
// whichever way it was made of it.
func TestSecureValues_S41_in_no_error(t *testing.T) {
	secret := "hunter2-and-more"
	for name, out := range map[string]string{
		"fail":             `[fail(parameters('pw'))]`,
		"computed":         `[fail(concat('x', toUpper(parameters('pw'))))]`,
		"by a variable":    `[fail(variables('v'))]`,
		"reversed":         `[fail(join(map(range(0,3), lambda('i', substring(parameters('pw'), sub(2, lambdaVariables('i')), 1))), ''))]`,
		"a format":         `[format(concat('{', parameters('pw'), '}'))]`,
		"a key":            `[createObject(toUpper(parameters('pw')), 1).x]`,
		"an object":        `[parameters('o').x]`,
		"a name":           `[parameters(parameters('pw'))]`,
		"a resource":       `[reference(parameters('pw')).x]`,
		"a parsed number":  `[int(parameters('pw'))]`,
		"a user function":  `[f.g(parameters('pw'))]`,
		"a date":           `[dateTimeAdd(parameters('pw'), 'P1D')]`,
		"a type":           `[if(true(), parameters('pw'), 1).x]`,
		"an index":         `[parameters('o')[toUpper(parameters('pw'))]]`,
		"a formatted name": `[format(concat('{', toUpper(parameters('pw')), '}'))]`,
		"a form":           `[format(concat('{0:', toUpper(parameters('pw')), '}'), 1)]`,
		"a nested default": `[fail(parameters('d'))]`,
	} {
		text := symbolic(`"parameters":{"pw":{"type":"securestring"},"o":{"type":"secureObject"},"d":{"type":"string","defaultValue":"[concat(toUpper(parameters('pw')),'')]"}},
		 "functions":[{"namespace":"f","members":{"g":{"parameters":[{"name":"x","type":"string"}],"output":{"type":"string","value":"[fail(toUpper(parameters('x')))]"}}}}],
		 "variables":{"v":"[concat('a', toUpper(parameters('pw')))]"},
		 "resources":{},"outputs":{"x":{"type":"string","value":"` + out + `"}}`)
		p, err := planOf(t, text, Options{Parameters: map[string]any{"pw": secret, "o": map[string]any{secret: 1, "k" + strings.ToUpper(secret): 2}}})
		if err == nil {
			_, err = p.Outputs(live{})
		}
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		all := strings.ToLower(err.Error() + core.AsError(err).Target)
		for e := errors.Unwrap(err); e != nil; e = errors.Unwrap(e) {
			all += strings.ToLower(e.Error())
		}
		if strings.Contains(all, secret) || strings.Contains(all, secret[:8]) || strings.Contains(all, "nuh") {
			t.Errorf("S-41: %s: %v", name, err)
		}
		if !strings.Contains(err.Error(), "(line ") {
			t.Errorf("S-41: %s: the message does not say where: %v", name, err)
		}
	}
	// The same messages do quote what is no secret.
	if err := plan(symbolic(`"resources":{},"outputs":{"x":{"type":"string","value":"[fail('because')]"}}`)); err == nil || !strings.Contains(err.Error(), "because") {
		t.Errorf("%v", err)
	}
}

// TestLimits_S42_passed_by_one holds every count at its edge.
func TestLimits_S42_passed_by_one(t *testing.T) {
	members := func(n int, member string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, member, i)
		}
		return b.String()
	}
	deep := func(n int) string {
		body := `{"contentVersion":"1","resources":[]}`
		for i := range n {
			body = fmt.Sprintf(`{"contentVersion":"1","resources":[{"type":"Microsoft.Resources/deployments","apiVersion":"1","name":"d%d","properties":{"mode":"Incremental","expressionEvaluationOptions":{"scope":"inner"},"template":%s}}]}`, i, body)
		}
		return body
	}
	for name, c := range map[string]struct {
		at   func(n int) string
		n    int
		want string
	}{
		"parameters": {func(n int) string {
			return symbolic(`"resources":{},"parameters":{` + members(n, `"p%d":{"type":"int","defaultValue":1}`) + `}`)
		}, 256, "257 parameters; the limit is 256"},
		"variables": {func(n int) string { return symbolic(`"resources":{},"variables":{` + members(n, `"v%d":1`) + `}`) }, 512, "513 variables; the limit is 512"},
		"outputs": {func(n int) string {
			return symbolic(`"resources":{},"outputs":{` + members(n, `"o%d":{"type":"int","value":1}`) + `}`)
		}, 64, "65 outputs; the limit is 64"},
		"resources": {func(n int) string {
			return symbolic(`"resources":{` + members(n, `"r%d":{"import":"k","type":"t@v1"}`) + `}`)
		}, 800, "801 resources; the limit is 800"},
		"loop": {func(n int) string {
			return symbolic(fmt.Sprintf(`"resources":{"r":{"copy":{"name":"l","count":%d},"import":"k","type":"t@v1"}}`, n))
		}, 800, "from 0 to 800"},
		"definition": {func(n int) string {
			frame := `{"import":"k","type":"t@v1","properties":{"x":""}}`
			return symbolic(`"resources":{"r":` + strings.Replace(frame, `""`, `"`+strings.Repeat("x", n-len(frame))+`"`, 1) + `}`)
		}, 1 << 20, "1048577 bytes; the limit is 1048576"},
		"nesting": {func(n int) string {
			if n > 16 {
				return deep(n)
			}
			return deep(n)
		}, 16, "nest deeper than 16 levels"},
	} {
		if err := plan(c.at(c.n)); err != nil {
			t.Errorf("S-42: %s: %d: %v", name, c.n, err)
		}
		if err := plan(c.at(c.n + 1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("S-42: %s: %d: got %v, want %q", name, c.n+1, err, c.want)
		}
	}
	tpl, err := Parse([]byte(symbolic(`"resources":{}`)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tpl.Plan(Options{Deployment: strings.Repeat("d", 65)}); err == nil || !strings.Contains(err.Error(), "65 characters; the limit is 64") {
		t.Errorf("S-42: a deployment's name of 65 characters: %v", err)
	}
	if _, err := ParseParameters(make([]byte, 4<<20+1)); err == nil || !strings.Contains(err.Error(), "the limit is 4194304") {
		t.Errorf("S-42: a parameters file of 4 MiB and one byte: %v", err)
	}
}
