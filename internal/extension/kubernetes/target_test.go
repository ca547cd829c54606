package kubernetes

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

var (
	ownerA = core.MustParseID("/planes/radius/local/resourceGroups/g/providers/Applications.Datastores/redisCaches/A")
	ownerB = core.MustParseID("/planes/radius/local/resourceGroups/g/providers/Applications.Datastores/redisCaches/b")
)

// bench is one test's own surroundings.
type bench struct {
	*testing.T
	namespace string
	target    *Target
	client    clientset.Interface
	dynamic   dynamic.Interface
}

func newBench(t *testing.T, o Options) *bench {
	t.Helper()
	cluster := clustertest.Start(t)
	t.Parallel()
	c, err := New("local", cluster.Config, o)
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientset.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	ns := cluster.Namespace(t, "kube")
	return &bench{t, ns, c.Target(ns), client, dyn}
}

func (b *bench) apply(r extension.Resource) extension.State {
	b.Helper()
	s, err := b.target.Apply(b.Context(), r)
	if err != nil {
		b.Fatalf("apply %s: %v", r.Type, err)
	}
	return s
}

func configMap(name string, data map[string]any) extension.Resource {
	return extension.Resource{Type: "core/ConfigMap", APIVersion: "v1", Owner: ownerA,
		Properties: map[string]any{"metadata": map[string]any{"name": name}, "data": data}}
}

func deployment(name string, annotations map[string]any) extension.Resource {
	labels := map[string]any{"app": name}
	return extension.Resource{Type: "apps/Deployment", APIVersion: "v1", Owner: ownerA, Properties: map[string]any{
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"replicas": int64(1),
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels, "annotations": annotations},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "example.invalid/x:1"}}},
			},
		},
	}}
}

func wantError(t *testing.T, err error, code core.Code, parts ...string) {
	t.Helper()
	if !core.IsCode(err, code) {
		t.Errorf("got %v (code %s), want an error of code %s", err, core.CodeOf(err), code)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("the error %q does not say %q", err, p)
		}
	}
}

func TestApplyAndPreview(t *testing.T) {
	b := newBench(t, Options{})
	r := configMap("settings", map[string]any{"a": "1", "b": "2"})
	before, err := b.target.Preview(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "settings", metav1.GetOptions{}); !isNotFound(err) {
		t.Fatalf("Preview made something: %v", err)
	}
	made := b.apply(r)
	// K-36: the id carries the cluster's name.
	want := "/planes/kubernetes/local/namespaces/" + b.namespace + "/providers/core/ConfigMap/settings"
	if before.Ref.ID.String() != want || made.Ref.ID.String() != want {
		t.Errorf("ids %s and %s, want %s", before.Ref.ID, made.Ref.ID, want)
	}
	if before.Ref.UID != "" || made.Ref.UID == "" {
		t.Errorf("uid before %q, after %q: only what exists has one", before.Ref.UID, made.Ref.UID)
	}
	live, err := b.client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "settings", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if live.Annotations[OwnerKey] != ownerA.String() || live.Labels[OwnerKey] != OwnerHash(ownerA) {
		t.Errorf("the object is not stamped: %v %v", live.Annotations, live.Labels)
	}
	if live.ManagedFields[0].Manager != FieldManager || live.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("managed fields: %+v", live.ManagedFields[0])
	}

	again := b.apply(configMap("settings", map[string]any{"a": "3"}))
	if again.Ref.UID != made.Ref.UID {
		t.Error("an update made another object")
	}
	if got := again.Properties["data"].(map[string]any); got["a"] != "3" || got["b"] != nil {
		t.Errorf("data %v: a changed field is set, a dropped one goes", got)
	}
	same := b.apply(configMap("settings", map[string]any{"a": "3"}))
	if version(same) != version(again) {
		t.Error("applying the same wrote something")
	}
}

func version(s extension.State) any {
	return s.Properties["metadata"].(map[string]any)["resourceVersion"]
}

func TestApplyNamesConflicts(t *testing.T) {
	b := newBench(t, Options{})
	b.apply(configMap("shared", map[string]any{"a": "1"}))
	patch := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shared"},"data":{"a":"2"}}`
	if _, err := b.client.CoreV1().ConfigMaps(b.namespace).Patch(t.Context(), "shared", types.ApplyPatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "somebody", Force: new(true)}); err != nil {
		t.Fatal(err)
	}
	_, err := b.target.Apply(t.Context(), configMap("shared", map[string]any{"a": "3"}))
	wantError(t, err, core.CodeConflict, "ConfigMap "+b.namespace+"/shared", `"somebody"`, ".data.a")
	live, err := b.client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "shared", metav1.GetOptions{})
	if err != nil || live.Data["a"] != "2" {
		t.Errorf("the other manager's value was not kept: %v, %v", live.Data, err)
	}
}

func TestNeverTakesOver(t *testing.T) {
	b := newBench(t, Options{})
	hand := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hand-made"}, Data: map[string]string{"x": "y"}}
	if _, err := b.client.CoreV1().ConfigMaps(b.namespace).Create(t.Context(), hand, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, call := range []func(context.Context, extension.Resource) (extension.State, error){b.target.Preview, b.target.Apply} {
		_, err := call(t.Context(), configMap("hand-made", map[string]any{"a": "1"}))
		wantError(t, err, core.CodeConflict, "hand-made", "was not made by Radial")
	}
	other := configMap("others", map[string]any{"a": "1"})
	other.Owner = ownerB
	b.apply(other)
	_, err := b.target.Apply(t.Context(), configMap("others", map[string]any{"a": "2"}))
	wantError(t, err, core.CodeConflict, ownerB.String())

	// Nor deletes what has the name of something planned and never made.
	ids := []byte(`{"metadata":{"name":"hand-made","namespace":"` + b.namespace + `"}}`)
	if err := b.target.Delete(t.Context(), extension.Ref{Type: "core/ConfigMap", APIVersion: "v1", Identifiers: ids, Owner: ownerA}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "hand-made", metav1.GetOptions{}); err != nil {
		t.Errorf("the hand-made object: %v", err)
	}
}

func TestReadiness(t *testing.T) {
	b := newBench(t, Options{})
	state := b.apply(deployment("web", nil))
	available, _, _ := unstructured.NestedInt64(state.Properties, "status", "availableReplicas")
	if available != 1 {
		t.Errorf("Apply answered before the Deployment was available: %v", state.Properties["status"])
	}

	slow := newSlow(b)
	_, err := slow.Apply(t.Context(), deployment("stuck", map[string]any{"fakenode/fate": "never"}))
	wantError(t, err, extension.CodeNotReady, "Deployment "+b.namespace+"/stuck", "did not become ready within 1.5s", "kubectl -n "+b.namespace+" describe Deployment stuck")

	// A progress deadline that passes ends the wait before the time is over.
	r := deployment("failing", map[string]any{"fakenode/fate": "never"})
	r.Properties["spec"].(map[string]any)["progressDeadlineSeconds"] = int64(1)
	_, err = b.target.Apply(t.Context(), r)
	wantError(t, err, extension.CodeNotReady, "failing", "failed")
}

func newSlow(b *bench) *Target {
	c, err := New("local", clustertest.Start(b.T).Config, Options{ReadyTimeout: 1500 * time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	return c.Target(b.namespace)
}

func TestDelete(t *testing.T) {
	b := newBench(t, Options{})
	web := b.apply(deployment("web", nil))
	if err := b.target.Delete(t.Context(), web.Ref); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.AppsV1().Deployments(b.namespace).Get(t.Context(), "web", metav1.GetOptions{}); !isNotFound(err) {
		t.Errorf("the Deployment is there after Delete: %v", err)
	}
	sets, err := b.client.AppsV1().ReplicaSets(b.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(sets.Items) != 0 {
		t.Errorf("its ReplicaSets are there after Delete: %d, %v", len(sets.Items), err)
	}
	if err := b.target.Delete(t.Context(), web.Ref); err != nil {
		t.Errorf("a second Delete: %v", err)
	}

	first := b.apply(configMap("again", map[string]any{"a": "1"}))
	if err := b.target.Delete(t.Context(), first.Ref); err != nil {
		t.Fatal(err)
	}
	second := b.apply(configMap("again", map[string]any{"a": "2"}))
	if err := b.target.Delete(t.Context(), first.Ref); err != nil {
		t.Errorf("delete of an object that another uid replaced: %v", err)
	}
	if _, err := b.target.Get(t.Context(), second.Ref); err != nil {
		t.Errorf("the object of the other uid: %v", err)
	}

	// Planned, made, and its uid never recorded: the stamp finds it.
	planned := second.Ref
	planned.UID = ""
	if err := b.target.Delete(t.Context(), planned); err != nil {
		t.Fatal(err)
	}
	_, err = b.target.Get(t.Context(), second.Ref)
	wantError(t, err, core.CodeNotFound, "again")
}

// TestDeleteWaitsForFinalizers holds an object by a finalizer: Delete answers
// only when it is really gone, and Apply of the same name waits as well.
func TestDeleteWaitsForFinalizers(t *testing.T) {
	b := newBench(t, Options{})
	r := configMap("held", map[string]any{"a": "1"})
	r.Properties["metadata"].(map[string]any)["finalizers"] = []any{"example.com/hold"}
	made := b.apply(r)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := b.target.Delete(ctx, made.Ref)
	if err == nil || !strings.Contains(err.Error(), "example.com/hold") {
		t.Errorf("Delete of a held object answered %v; want the finalizer named", err)
	}
	deleted := make(chan error, 1)
	go func() { deleted <- b.target.Delete(t.Context(), made.Ref) }()
	applied := make(chan error, 1)
	go func() {
		_, err := b.target.Apply(t.Context(), configMap("held", map[string]any{"a": "2"}))
		applied <- err
	}()
	if _, err := b.client.CoreV1().ConfigMaps(b.namespace).Patch(t.Context(), "held", types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	if err := <-applied; err != nil {
		t.Error(err)
	}
	live, err := b.client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "held", metav1.GetOptions{})
	if err != nil || live.Data["a"] != "2" || string(live.UID) == made.Ref.UID {
		t.Errorf("after Apply: %v, %v", live, err)
	}
}

// TestKeep proves that a generated value is generated once.
func TestKeep(t *testing.T) {
	b := newBench(t, Options{})
	secret := func(password, other string) extension.Resource {
		return extension.Resource{Type: "core/Secret", APIVersion: "v1", Owner: ownerA, Properties: map[string]any{
			"metadata":   map[string]any{"name": "s", "annotations": map[string]any{KeepKey: "password"}},
			"stringData": map[string]any{"password": password, "other": other},
		}}
	}
	b.apply(secret("first", "one"))
	b.apply(secret("second", "two"))
	if _, err := b.target.Preview(t.Context(), secret("third", "three")); err != nil {
		t.Error(err)
	}
	live, err := b.client.CoreV1().Secrets(b.namespace).Get(t.Context(), "s", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(live.Data["password"]); got != "first" {
		t.Errorf("the kept key was generated again: it has the %s value", got)
	}
	if got := string(live.Data["other"]); got != "two" {
		t.Errorf("the other key has the value %q, want the template's", got)
	}
}

func TestFaults(t *testing.T) {
	b := newBench(t, Options{})
	for name, c := range map[string]struct {
		resource extension.Resource
		code     core.Code
		parts    []string
	}{
		"unknown kind":      {extension.Resource{Type: "apps/Deploiment", APIVersion: "v1", Properties: map[string]any{"metadata": map[string]any{"name": "x"}}}, core.CodeInvalidTemplate, []string{"Deploiment", `"local"`}},
		"unknown group":     {extension.Resource{Type: "nowhere.example/Thing", APIVersion: "v1", Properties: map[string]any{"metadata": map[string]any{"name": "x"}}}, core.CodeInvalidTemplate, []string{"nowhere.example/v1"}},
		"no version":        {extension.Resource{Type: "core/Secret"}, core.CodeInvalidTemplate, []string{"core/Secret@v1"}},
		"no name":           {extension.Resource{Type: "core/Secret", APIVersion: "v1"}, core.CodeInvalidTemplate, []string{"metadata.name"}},
		"cluster's own":     {extension.Resource{Type: "core/Namespace", APIVersion: "v1", Properties: map[string]any{"metadata": map[string]any{"name": "x", "namespace": "y"}}}, core.CodeInvalidTemplate, []string{"can have no namespace"}},
		"no such namespace": {extension.Resource{Type: "core/Secret", APIVersion: "v1", Properties: map[string]any{"metadata": map[string]any{"name": "x", "namespace": "missing"}}}, core.CodeNotFound, []string{`no namespace "missing"`, "kubectl create namespace missing"}},
		"refused value": {extension.Resource{Type: "core/Service", APIVersion: "v1", Properties: map[string]any{"metadata": map[string]any{"name": "x"},
			"spec": map[string]any{"type": "s3cr3t", "ports": []any{map[string]any{"port": int64(1)}}}}}, core.CodeInvalidTemplate, []string{"spec.type", "Unsupported value"}},
	} {
		_, err := b.target.Apply(t.Context(), c.resource)
		wantError(t, err, c.code, c.parts...)
		if err != nil && strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: the error quotes a value: %v", name, err)
		}
	}

	dead, err := New("far", &rest.Config{Host: "https://127.0.0.1:1"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = dead.Target("x").Apply(t.Context(), configMap("x", nil))
	wantError(t, err, core.CodeTarget, `cluster "far"`, "127.0.0.1:1", "cannot be reached")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.target.Apply(ended, configMap("x", nil)); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("a call whose context has ended answered %v", err)
	}
}

// TestCustomResource uses a kind that comes after discovery was read, and one
// whose definition goes away under its objects.
func TestCustomResource(t *testing.T) {
	b := newBench(t, Options{})
	group := b.namespace + ".example.com" // a group of this test's own
	widget := extension.Resource{Type: group + "/Widget", APIVersion: "v1", Owner: ownerA, Properties: map[string]any{
		"metadata": map[string]any{"name": "w"}, "spec": map[string]any{"size": int64(3)}}}
	_, err := b.target.Apply(t.Context(), widget)
	wantError(t, err, core.CodeInvalidTemplate, "serves no kind Widget")

	crd := b.apply(extension.Resource{Type: "apiextensions.k8s.io/CustomResourceDefinition", APIVersion: "v1", Owner: ownerA, Properties: map[string]any{
		"metadata": map[string]any{"name": "widgets." + group},
		"spec": map[string]any{"group": group, "scope": "Namespaced",
			"names": map[string]any{"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}}})
	made := b.apply(widget)
	got, err := b.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}).Namespace(b.namespace).Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil || string(got.GetUID()) != made.Ref.UID {
		t.Fatalf("the custom resource: %v", err)
	}
	if err := b.target.Delete(t.Context(), crd.Ref); err != nil {
		t.Fatal(err)
	}
	fresh := newSlow(b) // without the memory of the kind
	if err := fresh.Delete(t.Context(), made.Ref); err != nil {
		t.Errorf("delete of an object whose kind is gone: %v", err)
	}
}
