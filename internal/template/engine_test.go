package template

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestConfiguration: an import whose configuration reads a resource waits for
// it, and so does every resource of the import; before, its scope has no id.
func TestConfiguration_of_an_import_that_is_not_known_yet(t *testing.T) {
	p, err := planOf(t, `{"contentVersion":"1","languageVersion":"2.0",
	 "imports":{"base":{"provider":"Kubernetes","config":{"namespace":"n"}},
	  "k":{"provider":"Kubernetes","config":{"scope":{"type":"AzureResourceManager","id":"[reference('owner').id]"},"namespace":"n"}}},
	 "resources":{"x":{"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"x"}}},
	  "owner":{"import":"base","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"owner"}}}}}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, owner := p.Resources[0], p.Resources[1]
	if len(x.DependsOn) != 1 || x.DependsOn[0] != owner {
		t.Errorf("x depends on %v", x.DependsOn)
	}
	if diff := cmp.Diff([]string{"/scope/id"}, x.Extension.Unknown); diff != "" {
		t.Errorf("unknown (-want +got):\n%s", diff)
	}
	if s, err := x.Extension.Scope(x.Extension.Config); err != nil || s.Type != ScopeAzure || s.ID != "" {
		t.Errorf("before: %+v, %v", s, err)
	}
	if id, known, err := p.ExtensionID(x, nil); err != nil || !known || id.Get(KeyName) != "x" {
		t.Errorf("the id is known though the owner is not there: %s, %v, %v", id, known, err)
	}
	config, err := p.Configuration(x.Extension, live{"owner": {"id": "/subscriptions/s/c"}})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := x.Extension.Scope(config); err != nil || s.ID != "/subscriptions/s/c" {
		t.Errorf("then: %+v, %v", s, err)
	}
}

func TestExtensionConfigs(t *testing.T) {
	text := `{"contentVersion":"1","languageVersion":"2.2-experimental","parameters":{"pw":{"type":"securestring","defaultValue":"KUBE"}},
	 "extensions":{"k8s":{"name":"Kubernetes","version":"1","config":{"kubeConfig":{"type":"secureString"},"namespace":{"type":"string","defaultValue":"d"}}},
	  "az":{"name":"AzureResourceManager","version":"1"}},
	 "resources":{"s":{"extension":"az","type":"My.Rp/t","apiVersion":"1","name":"n"},
	  "m":{"type":"Microsoft.Resources/deployments","apiVersion":"1","name":"m","properties":{"expressionEvaluationOptions":{"scope":"inner"},
	   "extensionConfigs":{"k8s":"[extensions('k8s').config]"},
	   "template":{"contentVersion":"1","languageVersion":"2.2-experimental","extensions":{"k8s":{"name":"Kubernetes","version":"1","config":{"kubeConfig":{"type":"secureString"},"namespace":{"type":"string"}}}},"resources":{}}}}}}`
	o := Options{At: "/subscriptions/s/resourceGroups/g"}
	p, err := planOf(t, text, o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"kubeConfig"}, p.Extensions[0].Missing); diff != "" || p.Resources[0].Extension != nil {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	o.ExtensionConfigs = map[string]map[string]any{"K8S": {"kubeconfig": map[string]any{"keyVaultReference": map[string]any{"keyVault": map[string]any{"id": "/v"}, "secretName": "s"}}}}
	if _, err := planOf(t, text, o); err == nil || !strings.Contains(err.Error(), `the secret "s" of /v: no source of secrets is configured`) {
		t.Errorf("a reference without a source: %v", err)
	}
	o.Secret = func(r SecretReference) (string, error) { return "from " + r.Vault, nil }
	if p, err = planOf(t, text, o); err != nil {
		t.Fatal(err)
	}
	n, err := p.Nested(p.Resources[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := n.Extensions[0].Scope(n.Extensions[0].Config)
	if diff := cmp.Diff(&Scope{Type: ScopeUserOwned, KubeConfig: "from /v", Secure: true}, s); diff != "" || err != nil || n.Extensions[0].Config["namespace"] != "d" {
		t.Errorf("inherited: %v %v (-want +got):\n%s", err, n.Extensions[0].Config, diff)
	}
	o.ExtensionConfigs = map[string]map[string]any{"k9s": {}}
	if _, err := planOf(t, text, o); err == nil || !strings.Contains(err.Error(), `"k9s", which is no extension of the template; did you mean "k8s"?`) {
		t.Errorf("an unknown alias: %v", err)
	}
}

func TestResourceOptions(t *testing.T) {
	p, err := planOf(t, symbolic(`"resources":{"a":{"import":"k","type":"t@v1","@options":{"onlyIfNotExists":[],"retryOn":[["A","B"],3],
	 "waitUntil":["[lambda('r', equals(lambdaVariables('r').status, 'up'))]","PT1M30S"]}},
	 "bad":{"import":"k","type":"t@v1","@options":{"waitFor":[]}}}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	o, err := p.Options(p.Resources[0])
	if err != nil {
		t.Fatal(err)
	}
	if !o.OnlyIfNotExists || o.RetryCount != 3 || len(o.RetryOn) != 2 || !o.WaitUntil || o.MaxWait != 90*time.Second {
		t.Errorf("options: %+v", o)
	}
	for status, want := range map[string]bool{"up": true, "down": false} {
		if got, err := p.Ready(p.Resources[0], o, map[string]any{"status": status}, live{}); err != nil || got != want {
			t.Errorf("%s: %v, %v", status, got, err)
		}
	}
	if _, err := p.Options(p.Resources[1]); err == nil || !strings.Contains(err.Error(), `no option "waitFor"`) {
		t.Errorf("an unknown option: %v", err)
	}
}

// TestPartial: a preview goes on where a deployment would have to run.
func TestPartial(t *testing.T) {
	text := symbolic(`"parameters":{"n":{"type":"int"},"s":{"type":"string"}},"resources":{
	 "l":{"copy":{"name":"c","count":"[parameters('n')]"},"import":"k","type":"t@v1","properties":{"metadata":{"name":"[format('x{0}',copyIndex())]"}}},
	 "i":{"condition":"[equals(parameters('s'),'y')]","import":"k","type":"t@v1","properties":{"metadata":{"name":"i"}}}},
	 "outputs":{"known":{"type":"int","value":1},"late":{"type":"string","value":"[parameters('s')]"}}`)
	o := Options{Partial: true, Parameters: map[string]any{"n": Unknown, "s": Unknown}}
	p, err := planOf(t, text, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Resources) != 2 || !p.Resources[0].Uncertain || !p.Resources[1].Uncertain {
		t.Fatalf("%+v", p.Resources)
	}
	if _, known, err := p.ExtensionID(p.Resources[0], nil); known || err != nil {
		t.Errorf("the id of an uncertain loop: %v, %v", known, err)
	}
	outs, unknown, err := p.KnownOutputs()
	if err != nil || len(outs) != 1 || len(unknown) != 1 || unknown[0] != "late" {
		t.Errorf("outputs %v, unknown %v, %v", outs, unknown, err)
	}
	o.Partial = false
	if _, err := planOf(t, text, o); err == nil || !strings.Contains(err.Error(), "must be known before the deployment starts") && !strings.Contains(err.Error(), "needs the state") {
		t.Errorf("not partial: %v", err)
	}
}

// TestQuestions: what lies outside the template is asked for by id, a list…
// function by its name, and an engine's own error comes back unchanged.
func TestQuestions(t *testing.T) {
	p, err := planOf(t, symbolic(`"resources":{"a":{"type":"My.Rp/t","apiVersion":"7","name":"n"}},
	 "outputs":{"own":{"type":"string","value":"[listKeys('a','8').key]"},"far":{"type":"string","value":"[reference('/subscriptions/s/providers/My.Rp/u/v','9','full').kind]"}}`),
		Options{At: "/subscriptions/s/resourceGroups/g"})
	if err != nil {
		t.Fatal(err)
	}
	rt := &questions{}
	outs, err := p.Outputs(rt)
	if err != nil || outs[0].Value != "K" || outs[1].Value != "far" {
		t.Errorf("%v, %v", outs, err)
	}
	want := []Question{{Function: "listKeys", Resource: p.Resources[0], ID: "/subscriptions/s/resourceGroups/g/providers/My.Rp/t/n", APIVersion: "8"},
		{Function: "reference", ID: "/subscriptions/s/providers/My.Rp/u/v", APIVersion: "9", Full: true}}
	if len(rt.asked) != 2 || rt.asked[0].ID != want[0].ID || rt.asked[0].Resource != want[0].Resource || rt.asked[0].Function != "listKeys" || rt.asked[0].APIVersion != "8" ||
		rt.asked[1].ID != want[1].ID || !rt.asked[1].Full || rt.asked[1].Resource != nil {
		t.Errorf("asked: %+v", rt.asked)
	}
	rt.err = errLive
	if _, err := p.Outputs(rt); err != errLive {
		t.Errorf("the engine's error: %v", err)
	}
}

type questions struct {
	live
	asked []Question
	err   error
}

func (q *questions) Ask(x Question) (any, error) {
	q.asked = append(q.asked, x)
	return map[string]any{"key": "K", "kind": "far"}, q.err
}
