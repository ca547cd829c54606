package template

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// seeded is a template with the scope and namespace of the first design, in
// whichever spelling of imports.
const seeded = `{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","contentVersion":"1.0.0.0","languageVersion":"2.0",
 "parameters":{"aks":{"type":"string","metadata":{"resourceType":"Microsoft.ContainerService/managedClusters@2022-04-01"}}},
 "imports":{"k8s":{%s,"version":"1.0.0","config":{"scope":{"type":"AzureResourceManager","id":"[parameters('aks')]"},"namespace":"default"}}},
 "resources":{"res1":{"import":"k8s","type":"apps/Deployment@v1",
  "id":"/planes/Kubernetes/import.namespace/default/type/apps%%2FDeployment/properties.metadata.name/web",
  "properties":{"metadata":{"name":"web"}}}}}`

const cluster = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c1"

func planOf(t *testing.T, text string, o Options) (*Plan, error) {
	t.Helper()
	tpl, err := Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	return tpl.Plan(o)
}

// TestImports_S1_S10: the JSON that the seed's first snippet compiles to
// carries the scope in the import's configuration.
func TestImports_S1_S10_scope_and_namespace(t *testing.T) {
	for _, provider := range []string{`"provider":"Kubernetes"`, `"type":"Kubernetes"`, `"name":"Kubernetes"`} {
		p, err := planOf(t, fmt.Sprintf(seeded, provider), Options{Parameters: map[string]any{"aks": cluster}})
		if err != nil {
			t.Fatal(err)
		}
		x := p.Resources[0].Extension
		s, err := x.Scope(x.Config)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&Scope{Type: ScopeAzure, ID: cluster}, s); diff != "" || x.Alias != "k8s" || x.Provider != "Kubernetes" || x.Config["namespace"] != "default" {
			t.Errorf("S-1, S-10: import %+v (-want +got):\n%s", x, diff)
		}
		id, known, err := p.ExtensionID(p.Resources[0], nil)
		if err != nil || !known || id.String() != "/planes/Kubernetes/import.namespace/default/type/apps%2FDeployment/properties.metadata.name/web" {
			t.Errorf("S-12: id %s, %v, %v", id, known, err)
		}
	}
}

func TestImports_S11_unknown_alias(t *testing.T) {
	_, err := Parse([]byte(strings.Replace(fmt.Sprintf(seeded, `"provider":"Kubernetes"`), `"import":"k8s"`, `"import":"k9s"`, 1)))
	if err == nil || !strings.Contains(err.Error(), `no import has the alias "k9s" (k8s)`) || !strings.Contains(err.Error(), "resources.res1.import (line 4, column") {
		t.Errorf("S-11: %v", err)
	}
}

func TestExtensionID_S12(t *testing.T) {
	for _, name := range []string{"web", "a/b", "a%2Fb", "100%", "x.y.z", "ü ß", "a b", "(*)", ".", ".."} {
		id := ExtensionID{"Kubernetes", []IDPart{{KeyNamespace, "n." + name}, {KeyType, "apps/Deployment"}, {KeyName, name}}}
		back, err := ParseExtensionID(id.String())
		if err != nil {
			t.Errorf("S-12: %s: %v", id, err)
			continue
		}
		if diff := cmp.Diff(id, back); diff != "" {
			t.Errorf("S-12: %s (-want +got):\n%s", id, diff)
		}
	}
	a, _ := ParseExtensionID("/planes/kubernetes/type/apps%2Fdeployment/import.namespace/n/properties.metadata.name/web")
	b, _ := ParseExtensionID("/Planes/Kubernetes/Import.Namespace/n/TYPE/apps%2FDeployment/properties.metadata.name/web")
	c, _ := ParseExtensionID("/planes/Kubernetes/import.namespace/n/type/apps%2FDeployment/properties.metadata.name/Web")
	if !a.Equal(b) || a.Equal(c) {
		t.Error("S-12: provider, keys and type compare without case, names with case")
	}
	for _, bad := range []string{"", "/planes/K", "/planes/K/type", "planes/K/type/t", "/planes/K/type/t/type/u", "/planes/K/type/%zz", "/planes/K/name/x", "/planes/K/type//name/x"} {
		if id, err := ParseExtensionID(bad); err == nil {
			t.Errorf("S-12: %q is read as %v", bad, id)
		}
	}
	// A thousand generated resources: ids are equal exactly when provider,
	// namespace, type and name are.
	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	byID, byTuple := map[string]string{}, map[string]string{}
	for range 1000 {
		provider, typ := "Kubernetes", pick("core/Secret", "core/ConfigMap", "apps/Deployment", "Secret")
		ns, name := pick("a", "b", "a.b", "a/b"), pick("x", "y", "x/y", "x%2Fy", "import.namespace")+pick("", "1", "2", "/type/core")
		body := map[string]any{"metadata": map[string]any{"name": name}}
		config := map[string]any{"namespace": ns}
		if rnd.IntN(2) == 0 { // the same namespace, from the body
			body["metadata"].(map[string]any)["namespace"], config["namespace"] = ns, "other"
		}
		id, err := MakeExtensionID(provider, typ, config, body, "")
		if err != nil {
			t.Fatal(err)
		}
		tuple := strings.Join([]string{provider, ns, kubernetesType(typ), name}, "\x00")
		if other, ok := byID[id.Key()]; ok && other != tuple {
			t.Fatalf("S-12: %q and %q have one id", other, tuple)
		}
		if other, ok := byTuple[tuple]; ok && other != id.Key() {
			t.Fatalf("S-12: %q has two ids", tuple)
		}
		byID[id.Key()], byTuple[tuple] = tuple, id.Key()
	}
}

// TestNamespace_S8: the body's, else the import's, else an error naming both;
// what lives in no namespace has none in its id.
func TestNamespace_S8(t *testing.T) {
	for name, c := range map[string]struct {
		typ, config, body, want string
	}{
		"body first":     {"core/Secret", "c", "b", "/planes/Kubernetes/import.namespace/b/type/core%2FSecret/properties.metadata.name/x"},
		"then config":    {"Secret", "c", "", "/planes/Kubernetes/import.namespace/c/type/core%2FSecret/properties.metadata.name/x"},
		"neither":        {"core/Secret", "", "", ""},
		"cluster-scoped": {"core/Namespace", "c", "", "/planes/Kubernetes/type/core%2FNamespace/properties.metadata.name/x"},
	} {
		id, err := MakeExtensionID("Kubernetes", c.typ, map[string]any{"namespace": c.config}, map[string]any{"metadata": map[string]any{"name": "x", "namespace": c.body}}, "")
		if c.want == "" {
			if err == nil || !strings.Contains(err.Error(), "metadata.namespace") || !strings.Contains(err.Error(), "config.namespace") {
				t.Errorf("S-8: %s: %v", name, err)
			}
			continue
		}
		if err != nil || id.String() != c.want {
			t.Errorf("S-8: %s: %s, %v", name, id, err)
		}
	}
}

// TestExtensionID_S13: the id is known before the call, in loops and under
// conditions, and is what the running deployment says.
// TestExtensionKey holds the short way to a key against the long one.
func TestExtensionKey_S12(t *testing.T) {
	pieces := rapid.SampledFrom([]string{"Kubernetes", "type", "TYPE", "Type", "import.namespace", "properties.metadata.name", "apps%2FDeployment", "core%2fConfigMap", "%41", "a", "B", "%C3%84", "%c3%84", "Ä",
		"%", "%2", "%2F", "%25", "+", "$", "-._~", "", "x%20Y", "\u017f"})
	rapid.Check(t, func(t *rapid.T) {
		segments := rapid.SliceOfN(pieces, 0, 9).Draw(t, "segments")
		text := rapid.SampledFrom([]string{"/planes/", "/Planes/", "/plane/", "planes/"}).Draw(t, "prefix") + strings.Join(segments, "/")
		got, ok := ExtensionKey(text)
		id, err := ParseExtensionID(text)
		if ok != (err == nil) || ok && got != id.Key() {
			t.Fatalf("%q: the key is %q, %t; taken apart it is %q, %v", text, got, ok, id.Key(), err)
		}
	})
}

func TestExtensionID_S13(t *testing.T) {
	p, err := planOf(t, symbolic(`"parameters":{"on":{"type":"bool","defaultValue":true}},"resources":{
	 "a":{"condition":"[parameters('on')]","import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"a"}}},
	 "m":{"copy":{"name":"l","count":3},"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[format('m{0}',copyIndex())]"},"v":"[reference('a').x]"}},
	 "n":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[reference('a').x]"}}}}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	rt := live{"a": {"x": "late"}}
	for _, r := range p.Resources {
		before, known, err := p.ExtensionID(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		after, _, err := p.ExtensionID(r, rt)
		if err != nil {
			t.Fatal(err)
		}
		if r.Symbol == "n" {
			if known || after.Get(KeyName) != "late" {
				t.Errorf("S-13: %s: known %v, then %s", r.Symbol, known, after)
			}
			continue
		}
		if !known || !before.Equal(after) {
			t.Errorf("S-13: %s: %s before (known: %v), %s after", r.Symbol, before, known, after)
		}
	}
}

// TestPlan_S16: the order of keys, of the template and of the parameters,
// changes neither the resources nor their ids.
func TestPlan_S16_order_of_keys(t *testing.T) {
	entries := []string{
		`"a":{"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"a"}}}`,
		`"b":{"type":"core/Secret@v1","dependsOn":["a"],"import":"k","properties":{"metadata":{"name":"b"},"x":"[reference('c').v]"}}`,
		`"c":{"properties":{"metadata":{"name":"c"}},"import":"k","type":"core/Secret@v1","copy":{"count":2,"name":"c2"}}`,
	}
	entries[2] = `"c":{"properties":{"metadata":{"name":"c"}},"import":"k","type":"core/Secret@v1"}`
	var first string
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		p, err := planOf(t, symbolic(`"resources":{`+entries[order[0]]+","+entries[order[1]]+","+entries[order[2]]+`}`), Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, r := range p.Resources {
			id, _, err := p.ExtensionID(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			got[id.String()] = r.Symbol
			if r.Symbol == "b" && len(r.DependsOn) != 2 {
				t.Errorf("S-16: b depends on %d resources", len(r.DependsOn))
			}
		}
		if text := fmt.Sprint(got); first == "" {
			first = text
		} else if text != first {
			t.Errorf("S-16: %s, then %s", first, text)
		}
	}
}

const deletion = `{"contentVersion":"1.0.0.0","languageVersion":"2.0",
 "imports":{"k8s":{"type":"Kubernetes","version":"1.0.0","config":{"scope":{"type":"AzureResourceManager","id":"` + cluster + `"}%s}}},
 "resources":{%s},
 "deletedResources":[%s]}`

// TestDeletedResources_S33: resources and deletedResources may stand in one
// template; the same one in both is refused (the part of loading).
func TestDeletedResources_S33(t *testing.T) {
	web := `{"import":"k8s","id":"/planes/Kubernetes/import.namespace/default/type/apps%2FDeployment/properties.metadata.name/web"}`
	known := strings.Replace(web, `"import"`, `"identity":{"cluster":"u","uid":"v"},"import"`, 1)
	res := func(name string) string {
		return `"r":{"import":"k8s","type":"apps/deployment@v1","properties":{"metadata":{"name":"` + name + `"}}}`
	}
	p, err := planOf(t, fmt.Sprintf(deletion, "", "", web), Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := p.Deleted[0]
	if d.Type != "apps/Deployment" || d.Name != "web" || d.Namespace != "default" || d.Extension.Alias != "k8s" || d.Identity != nil {
		t.Errorf("S-33: %+v", d)
	}
	if p, err = planOf(t, fmt.Sprintf(deletion, `,"namespace":"default"`, res("other"), known), Options{}); err != nil || len(p.Resources) != 1 || p.Deleted[0].Identity["uid"] != "v" {
		t.Errorf("S-33: both: %v", err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"in both":        {fmt.Sprintf(deletion, `,"namespace":"default"`, res("web"), web), "deployed or deleted, not both"},
		"twice":          {fmt.Sprintf(deletion, "", "", web+","+strings.Replace(web, "Deployment", "deployment", 1)), "stands twice in deletedResources"},
		"unknown alias":  {fmt.Sprintf(deletion, "", "", strings.Replace(web, `"k8s"`, `"k"`, 1)), `no import has the alias "k" (k8s)`},
		"other provider": {fmt.Sprintf(deletion, "", "", strings.Replace(web, "/planes/Kubernetes", "/planes/Other", 1)), "the id is of the provider Other"},
		"no id":          {fmt.Sprintf(deletion, "", "", `{"import":"k8s"}`), "has an id"},
		"bad id":         {fmt.Sprintf(deletion, "", "", `{"import":"k8s","id":"web"}`), "must start with /planes/"},
	} {
		if _, err := planOf(t, c.text, Options{}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "(line ") {
			t.Errorf("S-33: %s: got %v, want %q with a place", name, err, c.want)
		}
	}
}

// TestScope_S2: the types of scopes are told apart by type, and each fault is
// said with its line and column.
func TestScope_S2(t *testing.T) {
	imp := func(config string) string {
		return `{"contentVersion":"1","languageVersion":"2.0","parameters":{"kc":{"type":"securestring","defaultValue":"KUBECONFIG"}},"imports":{"k":{"provider":"Kubernetes","config":` + config + `}},"resources":{}}`
	}
	for config, want := range map[string]string{
		`{"scope":{"type":"AzureResourceManager"}}`:           `has no id (a string)`,
		`{"scope":{"type":"AzureResourceManager","id":3}}`:    `must be a string, it is of type int`,
		`{"scope":{"type":"AzureResourceManager","id":"c1"}}`: `must start with /`,
		`{"scope":{"type":"Moon","id":"/x"}}`:                 `has the type "Moon": it is one of AzureResourceManager, UserOwned and Radial`,
		`{"scope":{"type":"Radial","id":"/x","extra":1}}`:     `has a property "extra"`,
		`{"scope":"x"}`:             `must be an object with type`,
		`{"clusterType":"Managed"}`: `no managedClusterId`,
		`{"scope":{"type":"Radial","id":"/x"},"credentialType":"Guest"}`: `is Admin or User`,
	} {
		if _, err := planOf(t, imp(config), Options{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "imports.k") || !strings.Contains(err.Error(), "(line 1, column ") {
			t.Errorf("S-2: %s: got %v, want %q", config, err, want)
		}
	}
	for config, want := range map[string]*Scope{
		`{"clusterType":"Managed","managedClusterId":"/c","credentialType":"User"}`:  {Type: ScopeAzure, ID: "/c", CredentialType: "User"},
		`{"scope":{"type":"userowned","kubeConfig":"[parameters('kc')]"}}`:           {Type: ScopeUserOwned, KubeConfig: "KUBECONFIG", Secure: true},
		`{"scope":{"type":"UserOwned","kubeConfig":"text"}}`:                         {Type: ScopeUserOwned, KubeConfig: "text"},
		`{"kubeconfig":"[parameters('kc')]","namespace":"n","clusterType":"Custom"}`: {Type: ScopeUserOwned, KubeConfig: "KUBECONFIG", Secure: true},
		`{"kubeConfig":"","namespace":"n"}`:                                          nil,
	} {
		p, err := planOf(t, imp(config), Options{})
		if err != nil {
			t.Errorf("%s: %v", config, err)
			continue
		}
		got, err := p.Extensions[0].Scope(p.Extensions[0].Config)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", config, err, diff)
		}
	}
}

// TestExisting_S52: what is read as existing is in the plan as such, and
// apart from what is made (the pure part).
func TestExisting_S52(t *testing.T) {
	p, err := planOf(t, symbolic(`"resources":{"e":{"existing":true,"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"e"}}},
	 "a":{"existing":true,"type":"My.Rp/t","apiVersion":"1","name":"x","resourceGroup":"other"},
	 "b":{"type":"My.Rp/t","apiVersion":"1","name":"x","properties":{"v":"[reference('e').data]"}}}`), Options{At: "/subscriptions/s/resourceGroups/g"})
	if err != nil {
		t.Fatal(err)
	}
	if !p.Resources[0].Existing || !p.Resources[1].Existing || p.Resources[2].Existing {
		t.Errorf("S-52: %+v", p.Resources)
	}
	if got := p.Resources[1].ResourceID; got != "/subscriptions/s/resourceGroups/other/providers/My.Rp/t/x" {
		t.Errorf("S-52: id %s", got)
	}
	if d := p.Resources[2].DependsOn; len(d) != 1 || d[0] != p.Resources[0] {
		t.Errorf("S-52: what reads an existing resource waits for it: %v", d)
	}
}
