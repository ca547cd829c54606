// Package canary proves that no secret leaves the places that are meant for it
// (D-24 to D-27): a control plane of real processes on a real cluster is given
// secrets of a form that nothing else has, and then everything that it wrote,
// logged, answered, exported or stored is searched for them.
package canary

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// The secrets. All begin alike, so that one search finds any of them.
const mark = "cnry7Qx"

func secret(name string) string { return mark + "-" + name + "-zZ" }

// spellings are how a secret may look when it gets out.
func spellings() [][]byte {
	out := [][]byte{[]byte(mark), []byte(url.QueryEscape(mark))}
	for shift := range 3 { // base64 of text that holds it at any place
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + mark))
		out = append(out, []byte(encoded[(shift*8+5)/6:len(encoded)-4]))
	}
	return append(out, []byte(fmt.Sprintf("%x", mark)))
}

func search(t *testing.T, where string, content []byte) {
	t.Helper()
	for _, s := range spellings() {
		if at := bytes.Index(content, s); at >= 0 {
			t.Errorf("%s shows a secret: …%s…", where, content[max(0, at-200):min(len(content), at+120)])
		}
	}
}

const manifest = `{"namespace":"Test.Canary","types":{
 "things":{"capabilities":["ManualResourceProvisioning"],"apiVersions":{"2025-08-01-preview":{"schema":{"type":"object","properties":{
   "environment":{"type":"string"},"application":{"type":"string"},
   "a.b":{"type":"object","properties":{"c.d":{"type":"string","x-radius-sensitive":true}}},
   "pin":{"type":"integer","x-radius-sensitive":true,"minimum":1000},
   "password":{"type":"string","x-radius-sensitive":true,"pattern":"^cnry","maxLength":60},
   "choice":{"type":"string","x-radius-sensitive":true,"enum":["zq81-one","zq81-two"]},
   "lists":{"type":"array","items":{"type":"array","items":{"type":"string","x-radius-sensitive":true}}},
   "maps":{"type":"object","additionalProperties":{"type":"object","additionalProperties":{"type":"string","x-radius-sensitive":true}}},
   "object":{"type":"object","x-radius-sensitive":true,"properties":{"k":{"type":"string"}}},
   "either":{"oneOf":[{"type":"string","x-radius-sensitive":true},{"type":"object","properties":{"v":{"type":"string","x-radius-sensitive":true}}}]},
   "host":{"type":"string"}}}}}},
 "open":{"capabilities":["ManualResourceProvisioning"],"apiVersions":{"2025-08-01-preview":{"schema":{"type":"object","properties":{"environment":{"type":"string"}},
   "additionalProperties":{"type":"string","x-radius-sensitive":true}}}}},
 "made":{"apiVersions":{"2025-08-01-preview":{"schema":{"type":"object","properties":{
   "environment":{"type":"string"},"application":{"type":"string"},"given":{"type":"string","x-radius-sensitive":true},"host":{"type":"string","readOnly":true},
   "token":{"type":"string","readOnly":true,"x-radius-sensitive":true}}}}}}}}`

// A recipe that makes a Secret and answers secrets; and one that fails, by a
// message of the API server that quotes what it was given.
func template(resources, outputs string) string {
	return `{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","languageVersion":"2.0","contentVersion":"1.0.0.0",
 "parameters":{"context":{"type":"object"},"generated":{"type":"securestring","defaultValue":"` + secret("generated") + `"}},
 "imports":{"kubernetes":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"","kubeConfig":""}}},
 "resources":{` + resources + `},"outputs":{` + outputs + `}}`
}

const given = `[parameters('context').resource.properties.given]`

var good = template(
	`"s":{"import":"kubernetes","type":"core/Secret@v1","properties":{"metadata":{"name":"made-secret"},"stringData":{"given":"`+given+`","generated":"[parameters('generated')]"}}}`,
	`"result":{"type":"object","value":{"values":{"host":"db.example","token":"`+secret("token")+`"},"secrets":{"password":"[parameters('generated')]","uri":"[format('redis://u:{0}@db', parameters('generated'))]"}}}`)

var bad = template(
	`"s":{"import":"kubernetes","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"bad","labels":{"x":"[concat(parameters('generated'), ' ')]"}},
	  "data":"[createObject(concat(parameters('context').resource.properties.given, ' x'), 'v', concat(parameters('generated'), ' y'), 'w')]"}}`, ``)

func TestCanary_D24(t *testing.T) {
	i := start(t)
	i.follow()

	must := func(method, path, v string, body any) {
		t.Helper()
		if s := i.write(method, path, v, body); s != "Succeeded" {
			t.Fatalf("%s %s ended as %s", method, path, s)
		}
	}
	for name, content := range map[string]string{"good.json": good, "bad.json": bad} {
		if err := os.WriteFile(filepath.Join(i.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	recipeOf := func(file string) map[string]any {
		return map[string]any{"templateKind": "template", "templatePath": "file://" + filepath.Join(i.dir, file)}
	}
	must("PUT", group, ucp, map[string]any{})
	must("PUT", plane+"/providers/System.Resources/resourceProviders/Test.Canary/manifest", ucp, manifest)
	must("PUT", plane+"/resourceGroups/default", ucp, map[string]any{})
	environment := plane + "/resourceGroups/default/providers/Applications.Core/environments/default"
	must("PUT", environment, ucp, map[string]any{"location": "global", "properties": map[string]any{
		"compute": map[string]any{"kind": "kubernetes", "namespace": i.ns}, "allowedNamespaces": []string{"*"},
		"recipes": map[string]any{
			"Test.Canary/made": map[string]any{"default": recipeOf("good.json"), "bad": recipeOf("bad.json")},
		}}})
	app := group + "/providers/Applications.Core/applications/app"
	must("PUT", app, ucp, map[string]any{"location": "global", "properties": map[string]any{"environment": environment}})

	things := group + "/providers/Test.Canary/things"
	shapes := map[string]any{
		"environment": environment, "application": app, "host": "h", "a.b": map[string]any{"c.d": secret("named")}, "pin": 77120931, "password": secret("password"), "choice": "zq81-one",
		"lists": []any{[]any{secret("l1")}, []any{secret("l2"), secret("l3")}}, "maps": map[string]any{"m": map[string]any{"k": secret("m")}},
		"object": map[string]any{"k": secret("object")}, "either": map[string]any{"v": secret("either")},
	}
	must("PUT", things+"/one", version, map[string]any{"properties": shapes})
	must("PUT", group+"/providers/Test.Canary/open/one", version, map[string]any{"properties": map[string]any{"environment": environment, "anything": secret("open")}})
	must("PATCH", things+"/one", version, map[string]any{"properties": map[string]any{"password": secret("patched"), "either": secret("either-string")}})
	t.Run("D-25 GET and list redact", func(t *testing.T) {
		props := i.send("GET", things+"/one", version, nil).json()["properties"].(map[string]any)
		for _, name := range []string{"pin", "password", "choice", "object", "either"} {
			if v, there := props[name]; !there || v != nil {
				t.Errorf("%s is %v", name, v)
			}
		}
		for _, path := range []string{things, group + "/providers/Test.Canary/open", plane + "/resources", group + "/resources"} {
			if a := i.send("GET", path, version, nil); a.status != 200 && !strings.HasSuffix(path, "/resources") {
				t.Errorf("GET %s: %d %s", path, a.status, a.raw)
			}
		}
	})
	t.Run("D-26 listSecrets answers", func(t *testing.T) {
		got := i.secretly("POST", things+"/one/listSecrets", version, map[string]any{})
		for _, want := range []string{secret("named"), secret("patched"), secret("either-string"), secret("l3"), secret("m"), secret("object"), "zq81-one", "77120931"} {
			if !strings.Contains(got.raw, want) {
				t.Errorf("%s is missing: %s", want, got.raw)
			}
		}
		if got := i.secretly("POST", group+"/providers/Test.Canary/open/one/listSecrets", version, map[string]any{}); !strings.Contains(got.raw, secret("open")) {
			t.Errorf("of a root map: %s", got.raw)
		}
	})

	// Refused writes: what is wrong with a secret is said without it.
	for name, body := range map[string]any{
		"pattern":     map[string]any{"password": "x" + secret("pattern")},
		"length":      map[string]any{"password": mark + strings.Repeat("z", 80)},
		"enum":        map[string]any{"choice": secret("enum")},
		"wrong type":  map[string]any{"password": map[string]any{secret("key"): secret("value")}},
		"whole":       map[string]any{"object": secret("not-an-object")},
		"nested key":  map[string]any{"maps": map[string]any{secret("nested-key"): secret("nested-value")}},
		"no oneOf":    map[string]any{"either": []any{secret("list")}},
		"list":        map[string]any{"lists": secret("no-list")},
		"environment": map[string]any{"environment": 3, "password": secret("beside")},
	} {
		for _, method := range []string{"PUT", "PATCH"} {
			if a := i.send(method, things+"/one", version, map[string]any{"properties": body}); a.status != 400 {
				t.Errorf("%s of %s: %d %s", method, name, a.status, a.raw)
			}
		}
	}
	i.send("PUT", things+"/one", version, `{"properties":{"password":"`+secret("broken")+`"`)
	i.send("PUT", things+"/one", version, map[string]any{"properties": shapes}, "If-Match", `"stale"`)
	i.send("PUT", things+"/one", version, `"`+secret("text")+`"`)
	i.send("PUT", things+"/one", "2000-01-01", map[string]any{"properties": shapes})

	// Recipes.
	made := group + "/providers/Test.Canary/made"
	must("PUT", made+"/db", version, map[string]any{"properties": map[string]any{"environment": environment, "application": app, "given": secret("given")}})
	t.Run("D-27 secrets of a recipe reach listSecrets, not GET", func(t *testing.T) {
		got := i.secretly("POST", made+"/db/listSecrets", version, map[string]any{})
		for _, want := range []string{secret("given"), secret("generated"), secret("token"), "redis://u:" + secret("generated") + "@db"} {
			if !strings.Contains(got.raw, want) {
				t.Errorf("%s is missing: %s", want, got.raw)
			}
		}
		if props := i.send("GET", made+"/db", version, nil).json()["properties"].(map[string]any); props["host"] != "db.example" || props["token"] != nil {
			t.Errorf("GET answers %v", props)
		}
	})
	t.Run("D-24 a failed recipe's error is stored without the secret that it quotes", func(t *testing.T) {
		body := map[string]any{"properties": map[string]any{"environment": environment, "given": secret("quoted"), "recipe": map[string]any{"name": "bad"}}}
		if s := i.write("PUT", made+"/bad", version, body); s != "Failed" {
			t.Fatalf("it ended as %s", s)
		}
		list := i.send("GET", plane+"/providers/System.Resources/locations/global/operationStatuses?resource="+made+"/bad", ucp, nil)
		if !strings.Contains(list.raw, "[secret]") {
			t.Errorf("the error quoted nothing, so this proves nothing: %s", list.raw)
		}
		// It is done again with what is stored, and fails again.
		again := i.send("POST", i.operationOf(list)+"/retry", ucp, map[string]any{})
		if again.status != 202 {
			t.Fatalf("retry: %d %s", again.status, again.raw)
		}
		if s := i.await(again); s != "Failed" {
			t.Errorf("the retry ended as %s", s)
		}
	})

	// The cluster's side.
	i.connected(t)
	for _, action := range []string{app, environment} {
		i.send("POST", action+"/getGraph", ucp, map[string]any{})
	}
	graphs := strings.Replace(i.applicationOf(), "\n", "", -1)
	if graphs != "" {
		i.send("POST", graphs+"/getGraph", ucp, map[string]any{})
	}

	t.Run("D-24 defect 12: two rotations while the server runs, and everything opens", func(t *testing.T) {
		sealed := i.files(t)
		rotate := plane + "/providers/System.Resources/keysets"
		for n := range 2 {
			if a := i.send("POST", rotate+"/rotate", ucp, map[string]any{}); a.status != 202 {
				t.Fatalf("rotation %d: %d %s", n, a.status, a.raw)
			}
			i.eventually("the rotation ends", func() bool {
				versions, _ := i.send("GET", rotate, ucp, nil).json()["versions"].([]any)
				if len(versions) != n+2 {
					return false
				}
				for v, e := range versions {
					if state := e.(map[string]any)["state"]; state != "Primary" && v == len(versions)-1 || state != "Disabled" && v < len(versions)-1 {
						return false
					}
				}
				return true
			})
			must("PUT", things+fmt.Sprint("/after", n), version, map[string]any{"properties": shapes})
		}
		for path, want := range map[string]string{things + "/one": secret("patched"), made + "/db": secret("token"), things + "/after0": secret("password")} {
			if got := i.secretly("POST", path+"/listSecrets", version, map[string]any{}); !strings.Contains(got.raw, want) {
				t.Errorf("%s answers %s", path, got.raw)
			}
		}
		now := i.files(t)
		for _, text := range ciphertexts(sealed) {
			if bytes.Contains(now, []byte(text)) {
				t.Fatal("the files hold what was sealed before the rotations")
			}
		}
	})
	i.send("GET", "/openapi/v3", "", nil)
	i.scrape(t)

	must("DELETE", made+"/db", version, nil)
	must("DELETE", things+"/one", version, nil)
	i.write("DELETE", made+"/bad", version, nil)
	search(t, "the store, while the server runs", i.files(t))
	i.objects(t)
	i.stop()
	search(t, "the store", i.files(t))
	i.audited(t, environment, shapes)
	i.mu.Lock()
	defer i.mu.Unlock()
	search(t, "an HTTP answer", i.answers.Bytes())
	search(t, "a log", i.logs.Bytes())
	search(t, "a trace", i.traces.Bytes())
	if i.traces.Len() == 0 {
		t.Error("no trace was exported, so none was searched")
	}
	if !bytes.Contains(i.logs.Bytes(), []byte("DEBUG")) || !bytes.Contains(i.answers.Bytes(), []byte("change {")) {
		t.Error("there are no debug logs or no changes, so none were searched")
	}
	for _, number := range []string{"77120931"} {
		for where, content := range map[string][]byte{"an HTTP answer": i.answers.Bytes(), "a log": i.logs.Bytes(), "a trace": i.traces.Bytes()} {
			if bytes.Contains(content, []byte(number)) {
				t.Errorf("%s shows a secret number", where)
			}
		}
	}
}

// audited does what is decided about and what steers operations on a guarded
// server, and searches the audit log, in its file and in the store.
func (i *system) audited(t *testing.T, environment string, shapes map[string]any) {
	t.Helper()
	nobody := i.guard()
	things, made := group+"/providers/Test.Canary/things", group+"/providers/Test.Canary/made"
	i.send("PUT", things+"/guarded", version, map[string]any{"properties": shapes})
	i.send("PATCH", things+"/guarded", version, map[string]any{"properties": map[string]any{"password": "x" + secret("audited")}})
	i.secretly("POST", things+"/after0/listSecrets", version, map[string]any{})
	administrator := i.client
	i.client = nobody
	if a := i.send("GET", things+"/after0", version, nil, "Authorization", "Bearer "+secret("bearer")); a.status != 401 {
		t.Errorf("a token of nobody: %d %s", a.status, a.raw)
	}
	i.client = administrator
	put := i.send("PUT", made+"/steered", version, map[string]any{"properties": map[string]any{"environment": environment, "given": secret("steered")}})
	if put.status != 201 {
		t.Fatalf("PUT: %d %s", put.status, put.raw)
	}
	at := operations + "/" + operationIn(put)
	for n := range 2 {
		if a := i.send("POST", at+"/cancel", ucp, map[string]any{}); a.status != 202 || a.json()["status"] != "Canceled" {
			t.Fatalf("cancel: %d %s", a.status, a.raw)
		}
		i.send("GET", at+"/messages", ucp, nil)
		if n > 0 {
			break
		}
		again := i.send("POST", at+"/retry", ucp, map[string]any{})
		if again.status != 202 {
			t.Fatalf("retry: %d %s", again.status, again.raw)
		}
		at = operations + "/" + operationIn(again)
	}
	i.stop() // the audit log is whole then
	search(t, "the store of a guarded server", i.files(t))
	lines, err := os.ReadFile(i.auditFile())
	if err != nil {
		t.Fatal(err)
	}
	search(t, "the audit file", lines)
	kept, err := sqlite.Open(t.Context(), filepath.Join(i.dir, "radial.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	page, err := kept.AuditRecords(t.Context(), store.AuditQuery{})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := json.Marshal(page.Records)
	if err != nil {
		t.Fatal(err)
	}
	search(t, "the audit table", rows)
	if n := bytes.Count(lines, []byte("\n")); len(page.Records) < 8 || n != len(page.Records) {
		t.Errorf("the audit file has %d decisions, the table %d: too few were searched", n, len(page.Records))
	}
	for _, want := range []string{"write Test.Canary/things", "secrets Test.Canary/things", `"allowed":false`} {
		if !bytes.Contains(rows, []byte(want)) {
			t.Errorf("no record says %s, so none was searched: %s", want, rows)
		}
	}
}

// operations is where every operation is found by its id.
const operations = plane + "/providers/System.Resources/locations/global/operationStatuses"

// operationIn is the id of the operation that an answer started.
func operationIn(a answer) string {
	link, _, _ := strings.Cut(a.header.Get("Azure-AsyncOperation"), "?")
	return link[strings.LastIndexByte(link, '/')+1:]
}

// operationOf is where the newest operation of a list is found.
func (i *system) operationOf(list answer) string {
	i.t.Helper()
	all, _ := list.json()["value"].([]any)
	if len(all) == 0 {
		i.t.Fatalf("no operation: %s", list.raw)
	}
	name, _ := all[0].(map[string]any)["name"].(string)
	return operations + "/" + name
}

// ciphertexts are the sealed values in a store's bytes.
func ciphertexts(content []byte) (out []string) {
	for _, part := range bytes.Split(content, []byte(`"$sealed":"`))[1:] {
		if text, _, ok := bytes.Cut(part, []byte(`"`)); ok && len(text) > 40 {
			out = append(out, string(text))
		}
	}
	return out
}

// files are the bytes of the store, its log included.
func (i *system) files(t *testing.T) []byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(i.dir, "radial.db*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no store: %v", err)
	}
	var out []byte
	for _, p := range paths {
		if filepath.Ext(p) == ".key" {
			continue
		}
		raw, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, raw...)
	}
	return out
}

// scrape keeps the metrics, from wherever the server's log says they are.
func (i *system) scrape(t *testing.T) {
	t.Helper()
	i.mu.Lock()
	logs := i.logs.String()
	i.mu.Unlock()
	_, after, ok := strings.Cut(logs, `"metrics and probes are served","url":"`)
	address, _, _ := strings.Cut(after, `"`)
	if !ok {
		t.Fatal("the server's log names no address of metrics")
	}
	if a := i.send("GET", address+"/metrics", "", nil); a.status != 200 || !strings.Contains(a.raw, "radial_") {
		t.Errorf("metrics: %d %.200s", a.status, a.raw)
	}
}

// install makes the CRDs and the controller's namespace.
func (i *system) install() {
	i.t.Helper()
	client, err := dynamic.NewForConfig(i.cluster.Config)
	if err != nil {
		i.t.Fatal(err)
	}
	kinds := map[string]schema.GroupVersionResource{
		"CustomResourceDefinition": {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		"Namespace":                {Version: "v1", Resource: "namespaces"},
	}
	for _, name := range []string{"namespace.yaml", "crd.yaml"} {
		raw, err := installation.Files.ReadFile(name)
		if err != nil {
			i.t.Fatal(err)
		}
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
			u := new(unstructured.Unstructured)
			if decoder.Decode(&u.Object) != nil {
				break
			}
			kind, ok := kinds[u.GetKind()]
			if !ok {
				continue // the processes of this test are the cluster's administrator
			}
			if _, err := client.Resource(kind).Create(i.t.Context(), u, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				i.t.Fatalf("make %s %s: %v", u.GetKind(), u.GetName(), err)
			}
		}
	}
}

var recipes = schema.GroupVersionResource{Group: "radapp.io", Version: "v1alpha3", Resource: "recipes"}

// connected has a Recipe with a Secret and a Deployment that connects to it, and
// one whose recipe fails; it waits until the data has reached the Deployment.
func (i *system) connected(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	client, err := dynamic.NewForConfig(i.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	typed, err := kubernetes.NewForConfig(i.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	make := func(name, recipe string) {
		t.Helper()
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "radapp.io/v1alpha3", "kind": "Recipe",
			"metadata": map[string]any{"name": name, "namespace": i.ns},
			"spec":     map[string]any{"type": "Test.Canary/made", "secretName": name + "-values", "recipe": recipe}}}
		i.eventually("Recipe "+name+" is made", func() bool {
			_, err := client.Resource(recipes).Namespace(i.ns).Create(ctx, u, metav1.CreateOptions{})
			return err == nil
		})
	}
	make("db", "inner")
	make("broken", "broken")
	// The same recipes, as the Recipes' own environment names them: what they
	// are given comes from the template itself.
	inner := strings.ReplaceAll(strings.ReplaceAll(good, given, secret("inner")), "made-secret", "inner-secret")
	broken := strings.ReplaceAll(bad, "parameters('context').resource.properties.given", "parameters('generated')")
	for name, content := range map[string]string{"inner.json": inner, "broken.json": broken} {
		if err := os.WriteFile(filepath.Join(i.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	environment := plane + "/resourceGroups/default/providers/Applications.Core/environments/default"
	i.write("PATCH", environment, ucp, map[string]any{"properties": map[string]any{"recipes": map[string]any{"Test.Canary/made": map[string]any{
		"inner":  map[string]any{"templateKind": "template", "templatePath": "file://" + filepath.Join(i.dir, "inner.json")},
		"broken": map[string]any{"templateKind": "template", "templatePath": "file://" + filepath.Join(i.dir, "broken.json")},
	}}}})
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: i.ns, Annotations: map[string]string{"radapp.io/enabled": "true", "radapp.io/connection-db": "db"}},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/c"}}}}},
	}
	if _, err := typed.AppsV1().Deployments(i.ns).Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	i.eventually("connection data reaches the Deployment", func() bool {
		d, err := typed.AppsV1().Deployments(i.ns).Get(ctx, "web", metav1.GetOptions{})
		return err == nil && len(d.Spec.Template.Spec.Containers[0].Env) > 0
	})
	i.eventually("the broken Recipe says so", func() bool {
		u, err := client.Resource(recipes).Namespace(i.ns).Get(ctx, "broken", metav1.GetOptions{})
		raw, _ := json.Marshal(u)
		return err == nil && strings.Contains(string(raw), "\"reason\"") && strings.Contains(string(raw), "Failed")
	})
	t.Run("D-27 the Secrets hold what the recipe returned", func(t *testing.T) {
		s, err := typed.CoreV1().Secrets(i.ns).Get(ctx, "db-values", metav1.GetOptions{})
		if err != nil || string(s.Data["password"]) != secret("generated") {
			t.Errorf("the Recipe's Secret holds %v, %v", s.Data, err)
		}
		list, err := typed.CoreV1().Secrets(i.ns).List(ctx, metav1.ListOptions{})
		if err != nil || !slices.ContainsFunc(list.Items, func(s corev1.Secret) bool {
			return strings.HasPrefix(s.Name, "web-connections-") && string(s.Data["CONNECTION_DB_PASSWORD"]) == secret("generated")
		}) {
			t.Errorf("no connection Secret holds the password: %v", err)
		}
	})
}

// applicationOf is the id of the application that the Deployment's namespace
// stands for.
func (i *system) applicationOf() string {
	return plane + "/resourceGroups/" + i.ns + "/providers/Applications.Core/applications/" + i.ns
}

// objects searches everything in the cluster but Secrets: objects, statuses,
// events.
func (i *system) objects(t *testing.T) {
	t.Helper()
	client, err := dynamic.NewForConfig(i.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(i.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := found.ServerPreferredNamespacedResources()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Name == "secrets" {
				continue
			}
			for _, ns := range []string{i.ns, installation.Namespace} {
				list, err := client.Resource(gv.WithResource(r.Name)).Namespace(ns).List(context.Background(), metav1.ListOptions{})
				if err != nil {
					continue
				}
				for _, o := range list.Items {
					raw, err := json.Marshal(o.Object)
					if err != nil {
						t.Fatal(err)
					}
					seen[r.Name]++
					search(t, r.Name+" "+o.GetName(), raw)
				}
			}
		}
	}
	for _, name := range []string{"recipes", "deployments", "events"} {
		if seen[name] == 0 {
			t.Errorf("no %s were searched: %v", name, seen)
		}
	}
}
