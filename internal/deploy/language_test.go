package deploy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// TestForms runs what the language has beside the symbolic form: each template
// says what it makes and answers.
func TestForms(t *testing.T) {
	classic := func(resources, more string) string {
		return `{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","contentVersion":"1.0.0.0","resources":[` + resources + `]` + more + `}`
	}
	for name, c := range map[string]struct{ text, own, objects, output string }{
		"S-40 classic, by name and by id": {
			text: classic(`{"type":"Test.X/things","apiVersion":"1","name":"b","dependsOn":["[resourceId('Test.X/things','a')]"],"properties":{"from":"[reference('a').v]","full":"[reference('a','1','Full').name]"}},
				{"type":"Test.X/things","apiVersion":"1","name":"a","properties":{"v":"7"}},
				{"type":"Test.X/sync","apiVersion":"1","name":"off","condition":false}`, `,"outputs":{"o":{"type":"string","value":"[concat(reference('b').from,reference('b').full)]"}}`),
			own: "a b", output: "7a"},
		"S-40 children, inside and beside": {
			text: classic(`{"type":"Test.X/sync","apiVersion":"1","name":"p","resources":[{"type":"kids","apiVersion":"1","name":"in","dependsOn":["p"],"properties":{}}]},
				{"type":"Test.X/sync/kids","apiVersion":"1","name":"p/out","dependsOn":["[resourceId('Test.X/sync','p')]"]}`, ""),
			own: "p in out"},
		"S-40 outer nested": {
			text: classic(`{"type":"Test.X/sync","apiVersion":"1","name":"a","properties":{"v":"7"}},
				{"type":"Microsoft.Resources/deployments","apiVersion":"2021-04-01","name":"n","dependsOn":["a"],"properties":{"mode":"Incremental","template":{"contentVersion":"1.0.0.0",
				"resources":[{"type":"Test.X/sync","apiVersion":"1","name":"[variables('n')]","properties":{"w":"[reference('a').v]"}}],"outputs":{"w":{"type":"string","value":"[variables('n')]"}}}}}`,
				`,"variables":{"n":"inner"},"outputs":{"o":{"type":"string","value":"[reference('n').outputs.w.value]"}}`),
			own: "a inner", output: "inner"},
		"S-40 linked": {
			text: classic(`{"type":"Microsoft.Resources/deployments","apiVersion":"2021-04-01","name":"l","properties":{"mode":"Incremental","templateLink":{"uri":"https://example.com/t/one.json"},"parameters":{"n":{"value":"x"}}}}`,
				`,"outputs":{"o":{"type":"string","value":"[reference('l').outputs.o.value]"}}`),
			own: "x-two", output: "two of x"},
		"S-40 loops over modules": {
			text: doc(`"resources":{"m":{"copy":{"name":"m","count":3},"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"[format('m{0}', copyIndex())]","properties":{"expressionEvaluationOptions":{"scope":"inner"},
				"parameters":{"n":{"value":"[copyIndex()]"}},"template":` + doc(`"parameters":{"n":{"type":"int"}},"resources":{"c":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[format('c{0}', parameters('n'))]"}}}},
				"outputs":{"n":{"type":"int","value":"[mul(parameters('n'),10)]"}}`) + `}}},"outputs":{"o":{"type":"string","value":"[join(map(references('m'), lambda('d', string(lambdaVariables('d').outputs.n.value))), ',')]"}}`),
			objects: "c0 c1 c2", output: "0,10,20"},
		"S-40 resources of a loop read by index": {
			text:    doc(`"resources":{"r":{"copy":{"name":"r","count":2},"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[format('r{0}', copyIndex())]"},"data":{"v":"[string(copyIndex(5))]"}}}},"outputs":{"o":{"type":"string","value":"[reference('r[1]').data.v]"}}`),
			objects: "r0 r1", output: "6"},
		"S-40 user functions, variables and types": {
			text: doc(`"definitions":{"name":{"type":"string","minLength":2}},"parameters":{"n":{"$ref":"#/definitions/name","defaultValue":"ab"}},"functions":[{"namespace":"f","members":{"twice":{"parameters":[{"name":"x","type":"string"}],"output":{"type":"string","value":"[concat(parameters('x'),parameters('x'))]"}}}}],
				"variables":{"copy":[{"name":"l","count":2,"input":"[copyIndex('l')]"}]},"resources":{` + cm("c", `{"v":"[f.twice(parameters('n'))]","l":"[string(variables('l'))]"}`, "") + `},"outputs":{"o":{"type":"string","value":"[concat(reference('c').data.v, reference('c').data.l)]"}}`),
			objects: "c", output: "abab[0,1]"},
		"S-40 extensions with configurations": {
			text: `{"contentVersion":"1.0.0.0","languageVersion":"2.2-experimental","extensions":{"k":{"name":"Kubernetes","version":"1.0.0","config":{"namespace":{"type":"string","defaultValue":"other"}}}},
				"resources":{"c":{"extension":"k","type":"core/ConfigMap","apiVersion":"v1","properties":{"metadata":{"name":"c"}}}},"outputs":{"o":{"type":"string","value":"[reference('c').metadata.name]"}}}`,
			objects: "c", output: "c"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeat(t)
			s.e.o.Link = func(_ context.Context, l template.Link) ([]byte, error) {
				switch l.URI {
				case "https://example.com/t/one.json":
					return []byte(`{"contentVersion":"1.0.0.0","parameters":{"n":{"type":"string"}},"resources":[{"type":"Microsoft.Resources/deployments","apiVersion":"2021-04-01","name":"two","properties":{"mode":"Incremental",
						"templateLink":{"relativePath":"two.json"},"parameters":{"n":{"value":"[parameters('n')]"}}}}],"outputs":{"o":{"type":"string","value":"[reference('two').outputs.o.value]"}}}`), nil
				case "https://example.com/t/two.json":
					return []byte(`{"contentVersion":"1.0.0.0","parameters":{"n":{"type":"string"}},"resources":[{"type":"Test.X/sync","apiVersion":"1","name":"[concat(parameters('n'),'-two')]"}],
						"outputs":{"o":{"type":"string","value":"[concat('two of ',parameters('n'))]"}}}`), nil
				}
				return nil, core.Errorf(core.CodeNotFound, "no template at %s", l.URI)
			}
			res := s.must(c.text)
			var own, objects []string
			for _, a := range res.Resources {
				name := a.ID[strings.LastIndex(a.ID, "/")+1:]
				if a.Scope == nil {
					own = append(own, name)
				} else {
					objects = append(objects, name)
				}
			}
			if got := strings.Join(own, " "); got != c.own {
				t.Errorf("made %q of the control plane, want %q", got, c.own)
			}
			if got := strings.Join(objects, " "); got != c.objects {
				t.Errorf("made the objects %q, want %q", got, c.objects)
			}
			if c.output != "" && (len(res.Outputs) != 1 || fmt.Sprint(res.Outputs[0].Value) != c.output) {
				t.Errorf("answered %v, want %q", res.Outputs, c.output)
			}
		})
	}
}

// odd is a target of an extension that is unlike Kubernetes: it names a resource
// only when it is made, previews nothing, and keeps an entry of its configuration
// secret.
type odd struct{ made map[string]bool }

func (o *odd) Preview(context.Context, extension.Resource) (extension.State, error) {
	return extension.State{}, core.Errorf(extension.CodePreviewNotSupported, "no previews here")
}

func (o *odd) Apply(_ context.Context, r extension.Resource) (extension.State, error) {
	name := fmt.Sprint(r.Properties["name"])
	o.made[name] = true
	ids := mustJSON(map[string]any{"serial": "no-" + name})
	return extension.State{Ref: extension.Ref{ID: extension.ResourceID("Odd", "here", r.Type, ids), Type: r.Type, Identifiers: ids, UID: name, ConfigID: "here"},
		Properties: map[string]any{"name": name, "serial": "no-" + name}, Secret: []string{"/token", "/deep/key"}}, nil
}

func (o *odd) Get(_ context.Context, ref extension.Ref) (extension.State, error) {
	return extension.State{}, core.Errorf(core.CodeNotFound, "%s is not there", ref.Identifiers)
}

func (o *odd) Delete(_ context.Context, ref extension.Ref) error {
	delete(o.made, ref.UID)
	return nil
}

func (o *odd) ConfigID(context.Context) (string, error) { return "", nil }

type resolving func(s extension.Scope, secrets extension.Secrets) (extension.Target, error)

func (r resolving) Resolve(_ context.Context, s extension.Scope, secrets extension.Secrets) (extension.Target, error) {
	return r(s, secrets)
}

// TestOddExtension: a resource that is named only when it is made is recorded
// before, found again by the next attempt, and deleted by what its target said.
func TestOddExtension_S47(t *testing.T) {
	s := newSeat(t)
	target := &odd{map[string]bool{}}
	var given []extension.Secrets
	s.e.o.Resolver = resolving(func(sc extension.Scope, secrets extension.Secrets) (extension.Target, error) {
		given = append(given, secrets)
		return target, nil
	})
	q := s.request(`{"contentVersion":"1.0.0.0","languageVersion":"2.0","parameters":{"pw":{"type":"securestring"}},
	 "imports":{"odd":{"provider":"Odd","version":"2.0.0","config":{"url":"https://x","token":"abc-not-for-keeping","deep":{"key":"def-not-for-keeping","n":1},"pw":"[parameters('pw')]"}}},
	 "resources":{"a":{"import":"odd","type":"Things/one","properties":{"name":"a"}},"b":{"import":"odd","type":"Things/one","properties":{"name":"[reference('a').serial]"}}}}`)
	q.Parameters = map[string]any{"pw": "ghi-not-for-keeping"}
	res, err := s.e.Deploy(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if ids(res.Resources) != "a b" || !target.made["a"] || !target.made["no-a"] {
		t.Fatalf("answered %q, made %v", ids(res.Resources), target.made)
	}
	if given[0]["pw"] != "ghi-not-for-keeping" {
		t.Errorf("the target was given %v", given)
	}
	if a := res.Resources[0]; string(a.Identifiers) != `{"serial":"no-a"}` || !strings.HasPrefix(a.Output, "/planes/extensions/Odd/places/") || a.Identity.ConfigID != "here" ||
		fmt.Sprint(a.Config) != "map[deep:map[n:1] url:https://x]" {
		t.Errorf("answered %+v", a)
	}
	for _, text := range []string{string(mustJSON(s.j.previous())), string(mustJSON(res))} {
		if strings.Contains(text, "not-for-keeping") {
			t.Errorf("a secret is kept: %s", text)
		}
	}
	if len(s.j.previous()) != 2 {
		t.Errorf("the journal: %v", s.j.previous())
	}
	// Another attempt of the run makes nothing; another run knows its rows again.
	last := target.made
	target.made = map[string]bool{}
	q.Previous = s.j.previous()
	if _, err := s.e.Deploy(t.Context(), q); err == nil || len(target.made) > 0 {
		t.Errorf("made again: %v, %v", target.made, err) // reading a, which is not there, fails
	}
	target.made = last
	q.Run, q.Previous = "run-2", s.j.previous()
	if _, err := s.e.Deploy(t.Context(), q); err != nil || len(s.j.previous()) != 2 {
		t.Errorf("%v, the journal: %v", err, s.j.previous())
	}
	if _, err := s.e.Delete(t.Context(), DeleteRequest{Outputs: s.j.previous(), Record: s.j.record}); err != nil || len(target.made) > 0 {
		t.Errorf("left %v, %v", target.made, err)
	}
}
