package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/scope"
)

// real is an engine on real clusters.
type real struct {
	*testing.T
	e         *Engine
	client    clientset.Interface
	namespace string
	j         *journal
	runs      int
}

func member(c *clustertest.Cluster, name string) scope.Connect {
	return func(context.Context) (*kubernetes.Cluster, error) {
		return kubernetes.New(name, c.Config, kubernetes.Options{})
	}
}

func newReal(t *testing.T) *real {
	t.Helper()
	c := clustertest.Start(t)
	t.Parallel()
	client, err := clientset.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	return &real{T: t, client: client, namespace: c.Namespace(t, "engine"), j: &journal{w: newWorld()},
		e: New(EngineOptions{Resolver: scope.NewResolver(map[string]scope.Connect{"local": member(c, "local")})})}
}

func (r *real) request(text string) Request {
	r.runs++
	return Request{Name: "main", Template: []byte(text), Base: extension.Scope{Namespace: r.namespace}, Run: fmt.Sprint(r.runs), Seed: []byte("seed"),
		Previous: r.j.previous(), Record: r.j.record}
}

func (r *real) must(q Request) *Result {
	r.Helper()
	res, err := r.e.Deploy(r.Context(), q)
	if err != nil {
		r.Fatal(err)
	}
	return res
}

func (r *real) configMap(name string) *corev1.ConfigMap {
	m, err := r.client.CoreV1().ConfigMaps(r.namespace).Get(r.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return m
}

// TestIDs: validate names what deploy answers, and the ids of the two planes lead
// to each other.
func TestIDs(t *testing.T) {
	r := newReal(t)
	role := "role-" + r.namespace
	inner := doc(`"parameters":{"n":{"type":"string"}},"resources":{"in":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[parameters('n')]"}}}}`)
	text := doc(`"resources":{
	 "loop":{"copy":{"name":"l","count":3},"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[format('m.{0}', copyIndex())]"},"data":{"n":"[string(copyIndex())]"}}},
	 "off":{"condition":false,"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"off"}}},
	 "lower":{"import":"k","type":"core/service@v1","properties":{"metadata":{"name":"svc"},"spec":{"ports":[{"name":"web","port":80}],"selector":{"a":"b"}}}},
	 "role":{"import":"k","type":"rbac.authorization.k8s.io/ClusterRole@v1","properties":{"metadata":{"name":"` + role + `"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}},` +
		module("m", `{"n":{"value":"nested"}}`, inner, "") + `}`)
	v, err := r.e.Validate(t.Context(), r.request(text))
	if err != nil || len(v.Unknown) > 0 {
		t.Fatalf("%v, unknown %v", err, v.Unknown)
	}
	if got, _ := r.client.CoreV1().ConfigMaps(r.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "!kubernetes.io/x"}); slices.ContainsFunc(got.Items, func(m corev1.ConfigMap) bool { return strings.HasPrefix(m.Name, "m.") }) {
		t.Error("S-13: validate made something")
	}
	res := r.must(r.request(text))
	t.Cleanup(func() {
		if _, err := r.e.Delete(context.Background(), DeleteRequest{Outputs: r.j.previous()}); err != nil {
			t.Error(err)
		}
	})
	names := func(list []Affected) (out []string) {
		for _, a := range list {
			out = append(out, a.ID+" "+string(mustJSON(a.Scope)))
		}
		return out
	}
	if diff := cmp.Diff(names(v.Resources), names(res.Resources)); diff != "" || len(res.Resources) != 6 {
		t.Errorf("S-13: validate and deploy name %d resources otherwise: %s", len(res.Resources), diff)
	}
	for _, a := range res.Resources {
		out, err := Translate(a.ID, core.LocalCluster)
		if err != nil || !strings.EqualFold(out, a.Output) {
			t.Errorf("S-15: %s is %s in the graph, translated %s, %v", a.ID, a.Output, out, err)
		}
		back, err := Translate(a.Output, "")
		if err != nil || !strings.EqualFold(back, a.ID) {
			t.Errorf("S-15: %s translates back to %s, %v", a.Output, back, err)
		}
		if a.Identity == nil || a.Identity.UID == "" || a.Identity.ConfigID == "" {
			t.Errorf("S-26: %s has the identity %+v", a.ID, a.Identity)
		}
	}
	if got := string(mustJSON(res.Resources[0].Scope)); got != `{"type":"Cluster","id":"local"}` {
		t.Errorf("S-15: scope %s", got)
	}
	for _, id := range []string{"/planes/radius/local/resourceGroups/g/providers/A.B/c/d", "x", "/planes/File/type/File"} {
		if out, err := Translate(id, "local"); err == nil {
			t.Errorf("S-15: %s translated to %s", id, out)
		}
	}
}

// TestBody_S14: what a template has in properties is what the API server gets.
func TestBody_S14(t *testing.T) {
	r := newReal(t)
	r.must(r.request(doc(`"resources":{"m":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"m","labels":{"a":"b"},"annotations":{"x/y":"z"}},"data":{"text":"[format('{0}', 'ü')]","json":"[[not an expression]"},"binaryData":{"b":"AAEC"},"immutable":true}}}`)))
	m := r.configMap("m")
	if m == nil {
		t.Fatal("it was not made")
	}
	want := map[string]string{"text": "ü", "json": "[not an expression]"}
	if cmp.Diff(want, m.Data) != "" || cmp.Diff(map[string]string{"a": "b"}, m.Labels) != "" || cmp.Diff(map[string]string{"x/y": "z"}, m.Annotations) != "" ||
		string(m.BinaryData["b"]) != "\x00\x01\x02" || m.Immutable == nil || !*m.Immutable {
		t.Errorf("S-14: the object is %+v", m)
	}
}

// TestRuntimeNames_S17: names and definitions that come with the deployment.
func TestRuntimeNames_S17(t *testing.T) {
	r := newReal(t)
	group := r.namespace + ".example.com"
	res := r.must(r.request(doc(`"resources":{
	 "made":{"import":"k","type":"` + group + `/Thing@v1","dependsOn":["def"],"properties":{"metadata":{"name":"[format('t-{0}', reference('src').data.n)]"},"spec":{"size":3}}},
	 "src":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"src"},"data":{"n":"7"}}},
	 "def":{"import":"k","type":"apiextensions.k8s.io/CustomResourceDefinition@v1","properties":{"metadata":{"name":"things.` + group + `"},"spec":{"group":"` + group + `","scope":"Namespaced",
	  "names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}}},
	 "outputs":{"size":{"type":"int","value":"[reference('made').spec.size]"}}`)))
	if res.Outputs[0].Value != int64(3) {
		t.Errorf("outputs %v", res.Outputs)
	}
	if i := slices.IndexFunc(res.Resources, func(a Affected) bool { return a.Symbol == "made" }); i < 0 || !strings.HasSuffix(res.Resources[i].ID, "/properties.metadata.name/t-7") {
		t.Errorf("S-17: %+v", res.Resources)
	}
}

// TestDeletedFromCluster runs the seed's template, as repaired, against a cluster.
func TestDeletedFromCluster(t *testing.T) {
	r := newReal(t)
	maps := func(names ...string) string {
		var parts []string
		for _, n := range names {
			parts = append(parts, cm(n, `{"v":"1"}`, ""))
		}
		return strings.Join(parts, ",")
	}
	entry := func(a Affected) string {
		return fmt.Sprintf(`{"import":"k","id":%q,"identity":%s}`, a.ID, mustJSON(a.Identity))
	}
	res := r.must(r.request(doc(`"resources":{` + maps("a", "b") + `}`)))
	b := r.configMap("b").UID
	a := res.Resources[0]
	res = r.must(r.request(doc(`"resources":{` + maps("b", "c") + `},"deletedResources":[` + entry(a) + `]`)))
	if r.configMap("a") != nil || r.configMap("c") == nil || r.configMap("b").UID != b {
		t.Error("S-29: a is deleted, b the same object, c there")
	}
	if len(res.Deleted) != 1 || res.Deleted[0].ID != a.ID || res.Deleted[0].Unverified {
		t.Errorf("S-28: answered %+v", res.Deleted)
	}
	// S-30: again.
	if res = r.must(r.request(doc(`"resources":{},"deletedResources":[` + entry(a) + `]`))); res.Deleted[0].Error != nil {
		t.Errorf("S-30: %+v", res.Deleted)
	}
	// S-28: the bare form.
	bare := fmt.Sprintf(`{"import":"k","id":"/planes/Kubernetes/import.namespace/%s/type/core%%2Fconfigmap/properties.metadata.name/c"}`, r.namespace)
	if res = r.must(r.request(doc(`"resources":{},"deletedResources":[` + bare + `]`))); r.configMap("c") != nil || !res.Deleted[0].Unverified {
		t.Errorf("S-28: %+v", res.Deleted)
	}
	if r.configMap("b") == nil {
		t.Error("b was not asked for")
	}
}

// TestAnotherCluster_S32: the same name of a cluster leads to another one, which
// has an object of the same name: it survives, whatever way deletion is asked.
func TestAnotherCluster_S32(t *testing.T) {
	r := newReal(t)
	second := clustertest.Second(t)
	other, err := clientset.NewForConfig(second.Config)
	if err != nil {
		t.Fatal(err)
	}
	res := r.must(r.request(doc(`"resources":{` + cm("a", `{"v":"1"}`, "") + `}`)))
	if _, err := other.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.CoreV1().ConfigMaps(r.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	moved := New(EngineOptions{Resolver: scope.NewResolver(map[string]scope.Connect{"local": member(second, "local")})})
	q := r.request(doc(fmt.Sprintf(`"resources":{},"deletedResources":[{"import":"k","id":%q,"identity":%s}]`, res.Resources[0].ID, mustJSON(res.Resources[0].Identity))))
	got, err := moved.Deploy(t.Context(), q)
	if err == nil || !core.IsCode(got.Deleted[0].Error, extension.CodeWrongTarget) {
		t.Errorf("S-32: by deletedResources: %v", err)
	}
	if _, err := moved.Delete(t.Context(), DeleteRequest{Outputs: r.j.previous(), Record: r.j.record}); !core.IsCode(err, CodeDeleteFailed) || !core.IsCode(&core.AsError(err).Details[0], extension.CodeWrongTarget) {
		t.Errorf("S-32: by the journal: %v", err)
	}
	if _, err := other.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Errorf("S-32: the other cluster's object: %v", err)
	}
	if r.configMap("a") == nil || len(r.j.previous()) != 1 {
		t.Error("S-32: something was deleted or forgotten")
	}
}

// TestMoved_S35: an object that moves into a nested deployment, and under another
// alias, is the same object.
func TestMoved_S35(t *testing.T) {
	r := newReal(t)
	r.base(doc(`"resources":{` + module("one", `{}`, doc(`"resources":{`+cm("x", `{"v":"1"}`, "")+`}`), "") + `}`))
	uid := r.configMap("x").UID
	inner := strings.NewReplacer(`"k":{`, `"kube":{`, `"import":"k"`, `"import":"kube"`).Replace(doc(`"resources":{` + cm("x", `{"v":"2"}`, "") + `}`))
	res := r.base(doc(`"resources":{` + module("two", `{}`, inner, "") + `}`))
	if m := r.configMap("x"); m == nil || m.UID != uid || m.Data["v"] != "2" {
		t.Errorf("S-35: the object is %+v", m)
	}
	if len(res.Journal) != 1 || len(r.j.previous()) != 1 || r.j.previous()[0].LocalID != "two/x" {
		t.Errorf("S-35: the journal: %+v", r.j.previous())
	}
}

func (r *real) base(text string) *Result {
	r.Helper()
	q := r.request(text)
	q.Owner = core.GroupID("g").Resource("Microsoft.Resources/deploymentStacks", "s"+r.namespace)
	return r.must(q)
}

// TestValidateAsks: what a dry run finds is said by validate, for nested
// deployments too, and nothing is made.
func TestValidateAsks(t *testing.T) {
	r := newReal(t)
	bad := `"svc":{"import":"k","type":"core/Service@v1","properties":{"metadata":{"name":"svc"},"spec":{"ports":[{"port":0}]}}}`
	text := doc(`"resources":{` + cm("fine", `{"v":"1"}`, "") + `,` + module("m", `{}`, doc(`"resources":{`+bad+`}`), "") + `,
		"later":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[reference('fine').metadata.uid]"}}}}`)
	v, err := r.e.Validate(t.Context(), r.request(text))
	if !core.IsCode(err, CodeFailed) || !strings.HasPrefix(err.Error(), "resource m/svc (core/Service): ") || !strings.Contains(err.Error(), "spec.ports[0].port") {
		t.Errorf("got %v", err)
	}
	if ids(v.Resources) != "fine m/svc" && ids(v.Resources) != "fine" || !slices.Equal(v.Unknown, []string{"later"}) {
		t.Errorf("named %q, unknown %v", ids(v.Resources), v.Unknown)
	}
	if r.configMap("fine") != nil {
		t.Error("validate made something")
	}
	// Deployed as it is, the fault is the same resource's, and the rest is made.
	_, err = r.e.Deploy(t.Context(), r.request(text))
	if err == nil || !strings.Contains(err.Error(), "resource m/svc (core/Service): ") || r.configMap("fine") == nil {
		t.Errorf("got %v", err)
	}
}
