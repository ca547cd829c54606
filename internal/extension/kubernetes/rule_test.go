package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

var stack = core.MustParseID("/planes/radius/local/resourceGroups/g/providers/Microsoft.Resources/deploymentStacks/s")

// wire sees and may change what goes to the API server; it stands on the way of
// real calls.
type wire struct {
	mu    sync.Mutex
	calls []string
	// before is called before a request is sent.
	before func(*http.Request)
	next   http.RoundTripper
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.calls = append(w.calls, r.Method+" "+r.URL.Path)
	w.mu.Unlock()
	if w.before != nil {
		w.before(r)
	}
	return w.next.RoundTrip(r)
}

func (w *wire) since(mark int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.calls[mark:]...)
}

func (w *wire) mark() int { return len(w.since(0)) }

// wired is the bench's cluster by a wire of its own.
func (b *bench) wired(o Options) (*Target, *wire) {
	b.Helper()
	return b.wiredTo(rest.CopyConfig(clustertest.Start(b.T).Config), o)
}

// wiredTo is the cluster of a configuration by a wire.
func (b *bench) wiredTo(config *rest.Config, o Options) (*Target, *wire) {
	b.Helper()
	w := &wire{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		w.next = next
		return w
	})
	c, err := New("local", config, o)
	if err != nil {
		b.Fatal(err)
	}
	return c.Target(b.namespace), w
}

func plain(r extension.Resource) extension.Resource {
	r.Owner = core.ID{}
	return r
}

func of(owner core.ID, r extension.Resource) extension.Resource {
	r.Owner = owner
	return r
}

func (b *bench) data(name string) map[string]string {
	b.Helper()
	m, err := b.client.CoreV1().ConfigMaps(b.namespace).Get(b.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return m.Data
}

// TestCalls holds what a resource costs: making, changing what an owner's earlier
// run made, and deleting are one call each.
func TestCalls_S48(t *testing.T) {
	b := newBench(t, Options{})
	target, w := b.wired(Options{})
	if _, err := target.Apply(t.Context(), configMap("warm", nil)); err != nil {
		t.Fatal(err)
	}
	path := " /api/v1/namespaces/" + b.namespace + "/configmaps/c"
	step := func(what string, want []string, call func() error) {
		t.Helper()
		mark := w.mark()
		if err := call(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := w.since(mark); strings.Join(got, ";") != strings.Join(want, ";") {
			t.Errorf("%s took %v, want %v", what, got, want)
		}
	}
	var made extension.State
	apply := func(r extension.Resource) func() error {
		return func() (err error) { made, err = target.Apply(t.Context(), r); return err }
	}
	step("a name before", nil, func() error {
		r := configMap("c", nil)
		r.Unevaluated = []string{"/data"}
		_, err := target.Preview(t.Context(), r)
		return err
	})
	step("making", []string{"PATCH" + path}, apply(configMap("c", map[string]any{"a": "1"})))
	known := configMap("c", map[string]any{"a": "2"})
	known.UID = made.Ref.UID
	step("changing what the owner made", []string{"PATCH" + path}, apply(known))
	step("changing what is not known", []string{"PATCH" + path, "GET" + path, "PATCH" + path}, apply(configMap("c", map[string]any{"a": "3"})))
	step("deleting", []string{"DELETE" + path}, func() error { return target.Delete(t.Context(), made.Ref) })
	step("deleting what is gone", []string{"DELETE" + path}, func() error { return target.Delete(t.Context(), made.Ref) })
	step("making what was known", []string{"PATCH" + path, "GET" + path, "PATCH" + path}, apply(known))
	unowned := plain(configMap("c", map[string]any{"a": "1"}))
	step("deleting", []string{"DELETE" + path}, func() error { return target.Delete(t.Context(), made.Ref) })
	step("making without an owner", []string{"PATCH" + path}, apply(unowned))
	unowned.UID = made.Ref.UID
	step("making again without an owner", []string{"GET" + path}, apply(unowned)) // it stands
	unowned = plain(configMap("c", map[string]any{"a": "2"}))
	unowned.UID = made.Ref.UID
	step("changing without an owner", []string{"GET" + path, "PATCH" + path}, apply(unowned)) // somebody may own it by now
}

// TestCreateRace makes an object between our decision and our call: it is not
// merged into.
func TestCreateRace(t *testing.T) {
	b := newBench(t, Options{})
	target, w := b.wired(Options{})
	if _, err := target.Apply(t.Context(), configMap("warm", nil)); err != nil {
		t.Fatal(err)
	}
	hand := func(name string) {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"theirs": "1"}}
		if _, err := b.client.CoreV1().ConfigMaps(b.namespace).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	once := func(name string) func(*http.Request) {
		var do sync.Once
		return func(r *http.Request) {
			if r.Method == http.MethodPatch {
				do.Do(func() { hand(name) })
			}
		}
	}
	w.before = once("raced")
	_, err := target.Apply(t.Context(), configMap("raced", map[string]any{"ours": "1"}))
	wantError(t, err, core.CodeConflict, "raced", "was not made by Radial")
	if got := b.data("raced"); got["ours"] != "" || got["theirs"] != "1" {
		t.Errorf("somebody else's object was written to: %v", got)
	}
	m, err := b.client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "raced", metav1.GetOptions{})
	if err != nil || len(m.ManagedFields) != 1 || m.Annotations[OwnerKey] != "" {
		t.Errorf("traces of ours: %+v, %v", m.ObjectMeta, err)
	}

	// One that came and went is made.
	came := once("fleeting")
	w.before = func(r *http.Request) {
		came(r)
		if r.Method == http.MethodGet {
			if err := b.client.CoreV1().ConfigMaps(b.namespace).Delete(t.Context(), "fleeting", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := target.Apply(t.Context(), configMap("fleeting", map[string]any{"ours": "1"})); err != nil {
		t.Error(err)
	}

	// An API server that takes no version for a condition: the merge is undone.
	deaf := func(r *http.Request) {
		if r.Method != http.MethodPatch {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body = bytes.Replace(body, []byte(`,"resourceVersion":"1"`), nil, 1)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	race := once("merged")
	w.before = func(r *http.Request) { race(r); deaf(r) }
	_, err = target.Apply(t.Context(), configMap("merged", map[string]any{"ours": "1"}))
	wantError(t, err, core.CodeConflict, "merged", "at the same time")
	if got := b.data("merged"); got["ours"] != "" || got["theirs"] != "1" {
		t.Errorf("the merge was not undone: %v", got)
	}
}

func TestTakeOver(t *testing.T) {
	b := newBench(t, Options{})
	hand := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hand"}, Data: map[string]string{"x": "y"}}
	if _, err := b.client.CoreV1().ConfigMaps(b.namespace).Create(t.Context(), hand, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A plain deployment stamps nothing and may change what exists.
	b.apply(plain(configMap("plain", map[string]any{"a": "1"})))
	b.apply(plain(configMap("hand2", map[string]any{"a": "1"})))
	m, err := b.client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "plain", metav1.GetOptions{})
	if err != nil || len(m.Annotations)+len(m.Labels) != 0 {
		t.Errorf("a plain deployment stamped %v %v, %v", m.Annotations, m.Labels, err)
	}
	b.apply(plain(configMap("hand", map[string]any{"a": "1"})))
	if got := b.data("hand"); got["x"] != "y" || got["a"] != "1" {
		t.Errorf("a plain deployment of what exists: %v", got)
	}
	// A stack takes over what one of ours made, a recipe does not.
	_, err = b.target.Apply(t.Context(), configMap("plain", map[string]any{"a": "2"}))
	wantError(t, err, core.CodeConflict, "was not made by Radial")
	taken := b.apply(of(stack, configMap("plain", map[string]any{"a": "2"})))
	if err := b.client.CoreV1().ConfigMaps(b.namespace).Delete(t.Context(), "hand", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	hand.ResourceVersion = ""
	if _, err := b.client.CoreV1().ConfigMaps(b.namespace).Create(t.Context(), hand, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, call := range []func(context.Context, extension.Resource) (extension.State, error){b.target.Preview, b.target.Apply} {
		_, err := call(t.Context(), of(stack, configMap("hand", map[string]any{"a": "1"})))
		wantError(t, err, core.CodeConflict, "hand", "was not made by Radial", "rename or delete")
		// What is stamped is its owner's alone.
		_, err = call(t.Context(), plain(configMap("plain", map[string]any{"a": "3"})))
		wantError(t, err, core.CodeConflict, stack.String())
		_, err = call(t.Context(), of(ownerB, configMap("plain", map[string]any{"a": "3"})))
		wantError(t, err, core.CodeConflict, stack.String())
	}
	// With the uid known as well.
	known := plain(configMap("plain", map[string]any{"a": "3"}))
	known.UID = taken.Ref.UID
	_, err = b.target.Apply(t.Context(), known)
	wantError(t, err, core.CodeConflict, stack.String())

	// Let go of, it is nobody's and can be taken.
	if err := b.target.Release(t.Context(), extension.Ref{Type: taken.Ref.Type, APIVersion: "v1", Identifiers: taken.Ref.Identifiers, UID: taken.Ref.UID, Owner: ownerB}); err != nil {
		t.Fatal(err)
	}
	if m, _ := b.client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "plain", metav1.GetOptions{}); m.Annotations[OwnerKey] != stack.String() {
		t.Error("another's stamp was taken off")
	}
	if err := b.target.Release(t.Context(), taken.Ref); err != nil {
		t.Fatal(err)
	}
	m, err = b.client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "plain", metav1.GetOptions{})
	if err != nil || m.Annotations[OwnerKey]+m.Labels[OwnerKey] != "" || m.Data["a"] != "2" {
		t.Errorf("after Release: %+v, %v", m, err)
	}
	b.apply(plain(configMap("plain", map[string]any{"a": "4"})))
	if err := b.target.Delete(t.Context(), taken.Ref); err != nil {
		t.Fatal(err)
	}
	if err := b.target.Release(t.Context(), taken.Ref); err != nil {
		t.Errorf("Release of what is gone: %v", err)
	}
}

// TestDeleteIdentity proves what a deletion is vouched for by.
func TestDeleteIdentity_S32(t *testing.T) {
	b := newBench(t, Options{})
	ids := func(name string) []byte {
		return []byte(`{"metadata":{"name":"` + name + `","namespace":"` + b.namespace + `"}}`)
	}
	made := b.apply(configMap("c", nil))
	there := func(name string) bool {
		_, err := b.client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil
	}
	mark, err := b.target.ConfigID(t.Context())
	if err != nil || mark == "" || made.Ref.ConfigID != mark {
		t.Errorf("the cluster's mark is %q, %v; the reference has %q", mark, err, made.Ref.ConfigID)
	}
	other := made.Ref
	other.ConfigID = "another-cluster"
	wantError(t, b.target.Delete(t.Context(), other), extension.CodeWrongTarget, "ConfigMap "+b.namespace+"/c", "another-cluster", mark, "nothing was changed")
	_, err = b.target.Get(t.Context(), other)
	wantError(t, err, extension.CodeWrongTarget)
	wantError(t, b.target.Release(t.Context(), other), extension.CodeWrongTarget)
	gone := other
	gone.Type = "nowhere.example/Thing"
	wantError(t, b.target.Delete(t.Context(), gone), extension.CodeWrongTarget)
	if !there("c") {
		t.Fatal("the object is gone")
	}
	// D-31: planned, without uid: only what its owner stamped.
	b.apply(plain(configMap("plain", nil)))
	for _, owner := range []core.ID{{}, ownerA, stack} {
		if err := b.target.Delete(t.Context(), extension.Ref{Type: "core/ConfigMap", APIVersion: "v1", Identifiers: ids("plain"), Owner: owner}); err != nil || !there("plain") {
			t.Errorf("a planned deletion took what its owner did not stamp: %v", err)
		}
	}
	// S-27's bare form: what has the name; written as ids are.
	if err := b.target.Delete(t.Context(), extension.Ref{Type: "core/configmap", Identifiers: ids("plain"), Unverified: true}); err != nil || there("plain") {
		t.Errorf("an unverified deletion: %v", err)
	}
}

func TestDeleteFindsKinds(t *testing.T) {
	b := newBench(t, Options{})
	for _, ref := range []extension.Ref{
		{Type: "apps/deployment"}, {Type: "APPS/DEPLOYMENT"}, {Type: "apps/Deployment", APIVersion: "v1beta1"}, {Type: "apps/Deployment@v1beta2"},
	} {
		made := b.apply(deployment("web", nil))
		ref.UID, ref.Identifiers, ref.ConfigID = made.Ref.UID, made.Ref.Identifiers, made.Ref.ConfigID
		if got, err := b.target.Get(t.Context(), ref); err != nil || got.Ref.UID != made.Ref.UID {
			t.Errorf("get by %s@%s: %v", ref.Type, ref.APIVersion, err)
		}
		if err := b.target.Delete(t.Context(), ref); err != nil {
			t.Errorf("delete by %s@%s: %v", ref.Type, ref.APIVersion, err)
		}
		if _, err := b.client.AppsV1().Deployments(b.namespace).Get(t.Context(), "web", metav1.GetOptions{}); !isNotFound(err) {
			t.Fatalf("delete by %s@%s left it: %v", ref.Type, ref.APIVersion, err)
		}
	}
	// The namespace in the id of a kind that has none is dropped.
	role := b.apply(extension.Resource{Type: "rbac.authorization.k8s.io/ClusterRole", APIVersion: "v1", Owner: ownerA, Properties: map[string]any{"metadata": map[string]any{"name": b.namespace}}})
	role.Ref.Identifiers = []byte(`{"metadata":{"name":"` + b.namespace + `","namespace":"default"}}`)
	if err := b.target.Delete(t.Context(), role.Ref); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.RbacV1().ClusterRoles().Get(t.Context(), b.namespace, metav1.GetOptions{}); !isNotFound(err) {
		t.Errorf("the ClusterRole: %v", err)
	}
}

func TestDeleteSaysWhatHolds(t *testing.T) {
	b := newBench(t, Options{})
	c, err := New("local", clustertest.Start(t).Config, Options{DeleteTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	quick := c.Target(b.namespace)
	r := configMap("held", nil)
	r.Properties["metadata"].(map[string]any)["finalizers"] = []any{"example.com/a", "example.com/b"}
	made := b.apply(r)
	wantError(t, quick.Delete(t.Context(), made.Ref), extension.CodeNotReady, "ConfigMap "+b.namespace+"/held", `"local"`, "not gone after 300ms", "example.com/a, example.com/b")
	_, err = quick.Apply(t.Context(), configMap("held", nil))
	wantError(t, err, extension.CodeNotReady, "example.com/a")

	ns := b.apply(extension.Resource{Type: "core/Namespace", APIVersion: "v1", Owner: ownerA, Properties: map[string]any{"metadata": map[string]any{"name": b.namespace + "-x"}}})
	inner := configMap("inner", nil)
	inner.Properties["metadata"].(map[string]any)["namespace"] = b.namespace + "-x"
	inner.Properties["metadata"].(map[string]any)["finalizers"] = []any{"example.com/hold"}
	held := b.apply(inner)
	// It takes five seconds until a namespace says what is in it.
	slow, err := New("local", clustertest.Start(t).Config, Options{DeleteTimeout: 8 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, slow.Target("").Delete(t.Context(), ns.Ref), extension.CodeNotReady, "Namespace "+b.namespace+"-x", "finalizers remaining", "example.com/hold")
	// What goes into it now is refused with the reason.
	late := configMap("late", nil)
	late.Properties["metadata"].(map[string]any)["namespace"] = b.namespace + "-x"
	_, err = slow.Target("").Apply(t.Context(), late)
	wantError(t, err, core.CodeConflict, "deleting its namespace")
	for _, name := range []struct{ ns, name string }{{b.namespace, "held"}, {b.namespace + "-x", "inner"}} {
		if _, err := b.client.CoreV1().ConfigMaps(name.ns).Patch(t.Context(), name.name, types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.target.Delete(t.Context(), ns.Ref); err != nil {
		t.Error(err)
	}
	if err := b.target.Delete(t.Context(), held.Ref); err != nil {
		t.Errorf("an object whose namespace went with it: %v", err)
	}
}

func TestImmutableFields(t *testing.T) {
	b := newBench(t, Options{})
	r := deployment("web", nil)
	b.apply(r)
	changed := deployment("web", nil)
	labels := map[string]any{"app": "web", "s3cr3t": "s3cr3t"}
	spec := changed.Properties["spec"].(map[string]any)
	spec["selector"] = map[string]any{"matchLabels": labels}
	spec["template"].(map[string]any)["metadata"] = map[string]any{"labels": labels}
	for _, call := range []func(context.Context, extension.Resource) (extension.State, error){b.target.Preview, b.target.Apply} {
		_, err := call(t.Context(), changed)
		wantError(t, err, core.CodeInvalidTemplate, "Deployment "+b.namespace+"/web", `"local"`, "spec.selector", "immutable", "delete Deployment "+b.namespace+"/web and deploy again")
		if err != nil && strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("the error quotes a value: %v", err)
		}
	}
	// The next run with the field as it was succeeds.
	b.apply(r)
}

// TestWhatTheSameRunBrings applies a namespace, a definition and objects of both
// at once, as templates list them.
func TestWhatTheSameRunBrings_S48(t *testing.T) {
	b := newBench(t, Options{})
	c, err := New("local", clustertest.Start(t).Config, Options{})
	if err != nil {
		t.Fatal(err)
	}
	target, run := c.Target(b.namespace), extension.WithSession(t.Context())
	ns, group := b.namespace+"-new", b.namespace+".run.example.com"
	object := func(typ, version string, properties string) extension.Resource {
		r := extension.Resource{Type: typ, APIVersion: version, Owner: ownerA, Properties: map[string]any{}}
		if err := json.Unmarshal([]byte(properties), &r.Properties); err != nil {
			t.Fatal(err)
		}
		return r
	}
	all := []extension.Resource{
		object(group+"/gadget", "v1", `{"metadata":{"name":"g"},"spec":{"size":"1"}}`),
		object(group+"/Thing", "v1", `{"metadata":{"name":"t-`+b.namespace+`"}}`),
		object("core/ConfigMap", "v1", `{"metadata":{"name":"c","namespace":"`+ns+`"}}`),
		object("core/Namespace", "v1", `{"metadata":{"name":"`+ns+`"}}`),
		object("apiextensions.k8s.io/CustomResourceDefinition", "v1", `{"metadata":{"name":"gadgets.`+group+`"},"spec":{"group":"`+group+`","scope":"Namespaced",
			"names":{"kind":"Gadget","plural":"gadgets","singular":"gadget","listKind":"GadgetList"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`),
		object("apiextensions.k8s.io/CustomResourceDefinition", "v1", `{"metadata":{"name":"things.`+group+`"},"spec":{"group":"`+group+`","scope":"Cluster",
			"names":{"kind":"Thing","plural":"things","singular":"thing","listKind":"ThingList"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`),
	}
	_, err = target.Preview(run, all[0])
	wantError(t, err, core.CodeInvalidTemplate, "serves no kind gadget", "deploy the definition in the same template")
	if !isNotServed(err) {
		t.Error("it cannot be told from another fault of the template")
	}
	for _, r := range all[2:] {
		if _, err := target.Preview(run, r); err != nil {
			t.Fatal(err)
		}
	}
	planned := map[int]string{}
	for i, r := range all[:2] {
		s, err := target.Preview(run, r)
		if err != nil {
			t.Fatal(err)
		}
		planned[i] = s.Ref.ID.String()
	}
	errs := make([]error, len(all))
	made := make([]extension.State, len(all))
	var wg sync.WaitGroup
	for i, r := range all {
		wg.Go(func() {
			if i > 1 { // the definitions and the namespace are the last to begin
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
			}
			made[i], errs[i] = target.Apply(run, r)
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("%s: %v", all[i].Type, err)
		}
	}
	for i, id := range planned {
		if got := made[i].Ref.ID.String(); got != id {
			t.Errorf("planned as %s, made as %s", id, got)
		}
	}
	// A definition that fails does not let its objects wait.
	bad := object("apiextensions.k8s.io/CustomResourceDefinition", "v1", `{"metadata":{"name":"wrong"},"spec":{"group":"bad.`+group+`","scope":"Namespaced","names":{"kind":"Bad","plural":"bads"},"versions":[]}}`)
	if _, err := target.Preview(run, bad); err == nil {
		t.Error("a definition that is wrong was taken")
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := target.Apply(run, object("bad."+group+"/Bad", "v1", `{"metadata":{"name":"b"}}`))
		waiting <- err
	}()
	if _, err := target.Apply(run, bad); err == nil {
		t.Error("a definition that is wrong was made")
	}
	wantError(t, <-waiting, core.CodeInvalidTemplate, "serves no kind Bad")

	// Nor does a namespace; and what another run was about to make is no reason
	// to wait.
	lost := object("core/ConfigMap", "v1", `{"metadata":{"name":"c","namespace":"`+ns+`-bad"}}`)
	badNS := object("core/Namespace", "v1", `{"metadata":{"name":"`+ns+`-bad","labels":{"x":"not a label!"}}}`)
	named := badNS
	named.Unevaluated = []string{"/metadata/labels"}
	if _, err := target.Preview(run, named); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := target.Apply(run, lost)
		waiting <- err
	}()
	if _, err := target.Apply(run, badNS); err == nil {
		t.Error("a namespace that is wrong was made")
	}
	wantError(t, <-waiting, core.CodeNotFound, "has no namespace")
	if _, err := target.Preview(run, named); err != nil {
		t.Fatal(err)
	}
	read := extension.WithSession(t.Context())
	named.Existing = true // read, not made
	if _, err := target.Preview(read, named); err != nil {
		t.Fatal(err)
	}
	_, err = target.Apply(read, lost)
	wantError(t, err, core.CodeNotFound, "has no namespace")
}

func TestReadyTimeoutOfOneObject(t *testing.T) {
	b := newBench(t, Options{})
	r := deployment("stuck", map[string]any{"fakenode/fate": "never"})
	r.Properties["metadata"].(map[string]any)["annotations"] = map[string]any{ReadyTimeoutKey: "700ms"}
	state, err := b.target.Apply(t.Context(), r)
	wantError(t, err, extension.CodeNotReady, "within 700ms")
	if state.Ref.UID == "" {
		t.Error("what was made and did not become ready is not named")
	}
	for _, text := range []string{"soon", "-1s", "1000h"} {
		r.Properties["metadata"].(map[string]any)["annotations"] = map[string]any{ReadyTimeoutKey: text}
		_, err := b.target.Apply(t.Context(), r)
		wantError(t, err, core.CodeInvalidTemplate, ReadyTimeoutKey, "stuck")
	}
}

// TestClaimThatWaitsForAPod is not waited for: the pod that would use it may be
// what comes next.
func TestClaimThatWaitsForAPod(t *testing.T) {
	b := newBench(t, Options{})
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	if _, err := b.client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: b.namespace}, Provisioner: "example.com/none", VolumeBindingMode: &mode}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.apply(extension.Resource{Type: "core/PersistentVolumeClaim", APIVersion: "v1", Owner: ownerA, Properties: map[string]any{
		"metadata": map[string]any{"name": "data"},
		"spec": map[string]any{"storageClassName": b.namespace, "accessModes": []any{"ReadWriteOnce"},
			"resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}}}})
}

// TestRefusals names cluster, object, verb and remedy for what an API server can
// refuse a caller by.
func TestRefusals_S48(t *testing.T) {
	b := newBench(t, Options{})
	made := b.apply(configMap("c", nil))
	as := func(edit func(*rest.Config)) *Target {
		config := rest.CopyConfig(clustertest.Start(t).Config)
		edit(config)
		c, err := New("far", config, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c.Target(b.namespace)
	}
	eve := as(func(c *rest.Config) { c.Impersonate.UserName = "eve" })
	what := "ConfigMap " + b.namespace + "/c"
	_, err := eve.Apply(t.Context(), configMap("c", nil))
	wantError(t, err, core.CodeForbidden, "cannot apply "+what, `"far"`, "forbids it", `"eve"`, "grant that right")
	_, err = eve.Get(t.Context(), made.Ref)
	wantError(t, err, core.CodeForbidden, "cannot read "+what, `"far"`)
	// Forbidden to read the cluster's mark: the uid is what vouches.
	if id, err := eve.ConfigID(t.Context()); id != "" || err != nil {
		t.Errorf("a mark that may not be read: %q, %v", id, err)
	}
	wantError(t, eve.Delete(t.Context(), made.Ref), core.CodeForbidden, "cannot delete "+what)
	if _, err := b.client.RbacV1().Roles(b.namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "eve"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "delete"}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.RbacV1().RoleBindings(b.namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "eve"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "eve"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "eve"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second) // until the authorizer has seen it
	for {
		err := eve.Delete(t.Context(), made.Ref)
		if err == nil {
			break
		}
		if !core.IsCode(err, core.CodeForbidden) || time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := b.client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "c", metav1.GetOptions{}); !isNotFound(err) {
		t.Errorf("S-48: without the mark a deletion does not rely on the uid: %v", err)
	}

	nobody := as(func(c *rest.Config) {
		c.TLSClientConfig.CertData, c.TLSClientConfig.KeyData, c.TLSClientConfig.CertFile, c.TLSClientConfig.KeyFile = nil, nil, "", ""
		c.BearerToken = "ended-s3cr3t"
	})
	_, err = nobody.Apply(t.Context(), configMap("c", nil))
	wantError(t, err, core.CodeTarget, `"far"`, "401", "renew them")
	if err != nil && strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("the error holds a credential: %v", err)
	}
	strange := as(func(c *rest.Config) {
		c.TLSClientConfig.CAData, c.TLSClientConfig.CAFile = nil, ""
		c.Host = "https://127.0.0.1:1"
	})
	_, err = strange.Get(t.Context(), made.Ref)
	wantError(t, err, core.CodeTarget, `"far"`, "127.0.0.1:1", "cannot be reached", "see that the address")
}

// BenchmarkApply compares making objects with the same server-side applies by a
// bare client: ns/op of both are of one object at 16 in flight.
func BenchmarkApply(b *testing.B) {
	cluster := clustertest.Start(b)
	ns := cluster.Namespace(b, "bench")
	c, err := New("local", cluster.Config, Options{})
	if err != nil {
		b.Fatal(err)
	}
	target := c.Target(ns)
	run := func(b *testing.B, call func(name string) error) {
		names := make(chan string)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for name := range names {
					if err := call(name); err != nil {
						b.Error(err)
					}
				}
			})
		}
		for i := range b.N {
			names <- fmt.Sprintf("%s-%d-%d", strings.NewReplacer("/", "-", "#", "-").Replace(strings.ToLower(b.Name())), b.N, i)
		}
		close(names)
		wg.Wait()
	}
	bare := dynamic.NewForConfigOrDie(cluster.Config).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(ns)
	for range 2 { // the second is warm
		b.Run("bare", func(b *testing.B) {
			run(b, func(name string) error {
				o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"a": "1"}}}
				_, err := bare.Apply(b.Context(), name, o, metav1.ApplyOptions{FieldManager: "bare"})
				return err
			})
		})
		b.Run("target", func(b *testing.B) {
			run(b, func(name string) error {
				_, err := target.Apply(b.Context(), configMap(name, map[string]any{"a": "1"}))
				return err
			})
		})
	}
}
