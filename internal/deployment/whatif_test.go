package deployment_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// changes are those of a what-if by the last part of the id.
func (p *plane) whatIf(name, body string) (map[string]map[string]any, answer) {
	p.Helper()
	a := p.must(200, "POST", all+"/"+name+"/whatIf"+version, body)
	out := map[string]map[string]any{}
	list, _ := at(a.body, "properties", "changes").([]any)
	for _, c := range list {
		id := text(at(c, "resourceId"))
		kind := id[strings.LastIndex(id[:strings.LastIndex(id, "/")], "/")+1:]
		if strings.HasPrefix(id, "/planes/Kubernetes/") {
			x, err := template.ParseExtensionID(id)
			if err != nil {
				p.Fatal(err)
			}
			kind = x.Get(template.KeyType) + "/" + x.Get(template.KeyName)
		}
		out[kind] = c.(map[string]any)
	}
	return out, a
}

func kinds(changes map[string]map[string]any) map[string]string {
	out := map[string]string{}
	for k, c := range changes {
		out[k] = text(c["changeType"])
	}
	return out
}

func wantKinds(t *testing.T, what string, got map[string]map[string]any, want map[string]string) {
	t.Helper()
	a, _ := json.Marshal(kinds(got))
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		t.Errorf("%s: changes are %s, want %s", what, a, b)
	}
}

// S-46: what-if answers from the live state, across planes and into nested
// deployments, and touches nothing.
func TestWhatIf_S46(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	params := []string{"name", `"shop"`, "password", `"` + password + `"`}
	first, raw := p.whatIf("shop", body(p.shop(), params...))
	wantKinds(t, "S-46 before anything is there", first, map[string]string{
		"applications/shop": "Create", "redisCaches/cache": "Create", "core/ConfigMap/shop": "Create", "core/ConfigMap/shop-deep": "Create", "core/Secret/shop": "Create",
	})
	wantNone(t, "what-if", []byte(raw.raw), password)
	if list, err := p.client.CoreV1().ConfigMaps(p.namespace).List(t.Context(), metav1.ListOptions{}); err != nil || hasConfigMap(list.Items, "shop") {
		t.Errorf("S-46 what-if made something: %v", err)
	}
	p.must(404, "GET", group+"/providers/Applications.Core/applications/shop"+ucp, "")
	p.must(404, "GET", all+"/shop"+version, "")

	p.deploy("shop", body(p.shop(), params...), core.StateSucceeded)
	versions := p.versions()
	same, _ := p.whatIf("shop", body(p.shop(), params...))
	wantKinds(t, "S-46 after it was deployed", same, map[string]string{
		// The host of the cache is read while it is deployed: that it is the same shows only then.
		"applications/shop": "NoChange", "redisCaches/cache": "NoChange", "core/ConfigMap/shop": "Deploy", "core/ConfigMap/shop-deep": "NoChange", "core/Secret/shop": "NoChange",
	})
	if got := p.versions(); got != versions {
		t.Errorf("S-46 a what-if changed %s into %s", versions, got)
	}

	t.Run("S-46 Modify names the properties", func(t *testing.T) {
		changed := strings.NewReplacer(`"data":{"a":"b"}`, `"data":{"a":"c","new":"x"}`, `"size":"[string(parameters('size'))]"`, `"size":"9"`).Replace(p.shop())
		got, _ := p.whatIf("shop", body(changed, "name", `"shop"`, "password", `"another"`))
		wantKinds(t, "S-46 changed", got, map[string]string{
			"applications/shop": "NoChange", "redisCaches/cache": "NoChange", "core/ConfigMap/shop": "Modify", "core/ConfigMap/shop-deep": "Modify", "core/Secret/shop": "Modify",
		})
		delta, _ := json.Marshal(got["core/ConfigMap/shop-deep"]["delta"])
		if string(delta) != `[{"after":"c","before":"b","path":"data.a","propertyChangeType":"Modify"},{"after":"x","path":"data.new","propertyChangeType":"Create"}]` {
			t.Errorf("the delta is %s", delta)
		}
		secret, _ := json.Marshal(got["core/Secret/shop"]["delta"])
		if !strings.Contains(string(secret), `"path":"data.password"`) || strings.Count(string(secret), "[secret]") != 2 {
			t.Errorf("the delta of the Secret is %s", secret)
		}
	})
	t.Run("S-46 Ignore and Delete", func(t *testing.T) {
		in := "/planes/Kubernetes/import.namespace/" + p.namespace + "/type/core%2FConfigMap/properties.metadata.name/"
		smaller := `{` + head + `,` + p.k8s() + `,"resources":{"read":{"existing":true,"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"shop"}}}},
			"deletedResources":[{"import":"k8s","id":"` + in + `shop-deep"},{"import":"k8s","id":"` + in + `never"}]}`
		got, _ := p.whatIf("shop", body(smaller))
		wantKinds(t, "S-46 a smaller template", got, map[string]string{
			"applications/shop": "Ignore", "redisCaches/cache": "Ignore", "core/ConfigMap/shop": "Ignore", "core/Secret/shop": "Ignore",
			"core/ConfigMap/shop-deep": "Delete", "core/ConfigMap/never": "NoChange",
		})
	})
	t.Run("S-46 resultFormat", func(t *testing.T) {
		send := strings.Replace(body(p.shop(), params...), `"mode":"Incremental"`, `"mode":"Incremental","whatIfSettings":{"resultFormat":"ResourceIdOnly"}`, 1)
		got, _ := p.whatIf("shop", send)
		for name, c := range got {
			if c["after"] != nil || c["before"] != nil || c["delta"] != nil {
				t.Errorf("%s has payloads", name)
			}
		}
		p.must(400, "POST", all+"/shop/whatIf"+version, strings.Replace(send, "ResourceIdOnly", "Everything", 1))
	})
	if got := p.versions(); got != versions {
		t.Errorf("S-46 the what-ifs changed %s into %s", versions, got)
	}
}

// versions are the marks of all that a deployment of the shop makes.
func (p *plane) versions() string {
	p.Helper()
	var out strings.Builder
	maps, err := p.client.CoreV1().ConfigMaps(p.namespace).List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	for _, m := range maps.Items {
		if m.Name != "kube-root-ca.crt" {
			out.WriteString(m.Name + m.ResourceVersion + " ")
		}
	}
	secrets, err := p.client.CoreV1().Secrets(p.namespace).List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	for _, m := range secrets.Items {
		out.WriteString(m.Name + m.ResourceVersion + " ")
	}
	for _, id := range []string{"/providers/Applications.Core/applications/shop", "/providers/Applications.Datastores/redisCaches/cache"} {
		out.WriteString(p.must(200, "GET", group+id+ucp, "").header.Get("ETag") + " ")
	}
	return out.String()
}

// absent is a resolver whose owners of Azure's do not exist.
type absent struct{ extension.Resolver }

func (a absent) Resolve(ctx context.Context, s extension.Scope, secrets extension.Secrets) (extension.Target, error) {
	if s.Type == template.ScopeAzure {
		return nil, core.Errorf(core.CodeNotFound, "%s does not exist", s.ID)
	}
	return a.Resolver.Resolve(ctx, s, secrets)
}

// S-19: what is to be in a cluster that does not exist yet is a Create inside it.
// S-13: what-if and validate name the ids that the deployment reports.
func TestWhatIfBeforeTheOwner_S19(t *testing.T) {
	t.Parallel()
	p := newPlane(t, func(p *plane) { p.resolver = absent{p.resolver} })
	const cluster = "/subscriptions/0000/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/c1"
	got, raw := p.whatIf("early", body(`{`+head+`,"imports":{"k8s":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"shop","scope":{"type":"AzureResourceManager","id":"`+cluster+`"}}}},
	 "resources":{"web":{"import":"k8s","type":"apps/Deployment@v1","properties":{"metadata":{"name":"web"},"spec":{"replicas":2}}}}}`))
	wantKinds(t, "S-19", got, map[string]string{"apps/Deployment/web": "Create"})
	web := got["apps/Deployment/web"]
	if at(web, "scope", "type") != "AzureResourceManager" || at(web, "scope", "id") != cluster {
		t.Errorf("S-19 it is a Create, but not inside its owner: %s", raw.raw)
	}

	t.Run("S-13", func(t *testing.T) {
		send := body(p.shop(), "name", `"shop"`, "password", `"p"`)
		_, foreseen := p.whatIf("shop", send)
		validated := p.must(200, "POST", all+"/shop/validate"+version, send)
		made := p.deploy("shop", send, core.StateSucceeded)
		ids := func(list any, name string) string {
			var out []string
			entries, _ := list.([]any)
			for _, e := range entries {
				out = append(out, text(at(e, name)))
			}
			return strings.Join(out, "\n")
		}
		want := ids(at(made.body, "properties", "outputResources"), "id")
		if got := ids(at(foreseen.body, "properties", "changes"), "resourceId"); got != want {
			t.Errorf("what-if names\n%s\nthe deployment\n%s", got, want)
		}
		if got := ids(at(validated.body, "properties", "validatedResources"), "id"); got != want {
			t.Errorf("validate names\n%s\nthe deployment\n%s", got, want)
		}
	})
}

// S-46: a namespace that the template makes is no fault; one that nobody makes is
// said with the resources that it would fail, as the deployment then says it.
func TestWhatIfWithoutNamespace_S46(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	objects := func(namespace, more string) string {
		return `{` + head + `,"imports":{"k8s":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"` + namespace + `"}}},
		 "resources":{"a":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"a"}}},
		  "b":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"b"},"data":{"uid":"[reference('a').metadata.uid]"}}},
		  "there":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"there","namespace":"` + p.namespace + `"}}}` + more + `}}`
	}
	missing := p.namespace + "-none"
	got, _ := p.whatIf("lost", body(objects(missing, "")))
	wantKinds(t, "S-46", got, map[string]string{"core/ConfigMap/a": "Create", "core/ConfigMap/b": "Create", "core/ConfigMap/there": "Create"})
	for name, want := range map[string]string{"a": missing, "b": missing, "there": ""} {
		reason := text(got["core/ConfigMap/"+name]["unsupportedReason"])
		if want == "" && reason != "" || want != "" && !strings.Contains(reason, `has no namespace "`+want+`"`) {
			t.Errorf("S-46: of %s it says %q, want about namespace %q", name, reason, want)
		}
	}
	valid := p.must(200, "POST", all+"/lost/validate"+version, body(objects(missing, "")))
	if d := at(valid.body, "properties", "diagnostics", 0); text(at(d, "level")) != "Warning" || !strings.Contains(text(at(d, "message")), missing) {
		t.Errorf("validate says of it: %s", valid.raw)
	}
	end := p.deploy("lost", body(objects(missing, "")), core.StateFailed)
	if said := text(at(end.body, "properties", "error", "message")); !strings.Contains(said, missing) {
		t.Errorf("the deployment fails by %q, which does not name the namespace", said)
	}

	// Made by the template, or perhaps by what is known only while it runs.
	made := p.namespace + "-made"
	for name, more := range map[string]string{
		"beside": `,"ns":{"import":"k8s","type":"core/Namespace@v1","properties":{"metadata":{"name":"` + made + `"}}}`,
		"nested": `,"n":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"n","properties":{"mode":"Incremental","expressionEvaluationOptions":{"scope":"inner"},"template":{` +
			head + `,` + p.k8s() + `,"resources":{"ns":{"import":"k8s","type":"core/Namespace@v1","properties":{"metadata":{"name":"` + made + `"}}}}}}}`,
		"unknown": `,"ns":{"import":"k8s","type":"core/Namespace@v1","properties":{"metadata":{"name":"[reference('there').metadata.labels.name]"}}}`,
	} {
		got, raw := p.whatIf("home", body(objects(made, more)))
		if c := got["core/ConfigMap/a"]; text(c["changeType"]) != "Create" || c["unsupportedReason"] != nil {
			t.Errorf("S-46: with a namespace made %s: %s", name, raw.raw)
		}
	}
}
