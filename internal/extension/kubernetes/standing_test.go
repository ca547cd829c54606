package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/extension"
)

// seed is RADIAL_SEED, or made up; it is printed when a test fails.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	if text := os.Getenv("RADIAL_SEED"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("RADIAL_SEED: %v", err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("RADIAL_SEED=%d", n)
		}
	})
	return rand.New(rand.NewPCG(n, 0))
}

// TestStands asks the API server whether we are right: what is said to stand as it
// is asked for keeps its version when it is applied, whatever is asked for.
func TestStands(t *testing.T) {
	b := newBench(t, Options{})
	random := seed(t)
	group := b.namespace + ".example.com"
	b.apply(extension.Resource{Type: "apiextensions.k8s.io/CustomResourceDefinition", APIVersion: "v1", Owner: ownerA, Properties: object(t, `{
		"metadata": {"name": "widgets.`+group+`"}, "spec": {"group": "`+group+`", "scope": "Namespaced",
		"names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
		"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
			"set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
			"atomic": {"type": "array", "items": {"type": "string"}},
			"map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"], "items": {"type": "object", "required": ["a"],
				"properties": {"a": {"type": "string"}, "b": {"type": "string", "default": "x"}, "c": {"type": "integer"}}}},
			"whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
			"parts": {"type": "object", "additionalProperties": {"type": "string"}},
			"maybe": {"type": "string", "nullable": true},
			"number": {"type": "number"},
			"filled": {"type": "object", "properties": {"given": {"type": "string"}, "default": {"type": "string", "default": "d"}}}}}}}}}]}}`)})
	for _, c := range []struct {
		kind, body string
		// unsure says that a server fills in or rewrites so much that we ask it.
		unsure bool
	}{
		{kind: "core/ConfigMap", body: `{"metadata": {"name": "m", "labels": {"l": "1"}, "annotations": {"n": ""}}, "data": {"a": "1", "b": "", "c.d": "[x]"}, "immutable": false}`},
		{kind: "core/ConfigMap", body: `{"metadata": {"name": "bare"}}`},
		{kind: "core/ConfigMap", body: `{"metadata": {"name": "empty"}, "data": {}}`, unsure: true},
		{kind: "core/Service", body: `{"metadata": {"name": "s"}, "spec": {"selector": {"app": "a"}, "ports": [{"name": "x", "port": 80, "protocol": "TCP", "targetPort": "web"}, {"name": "y", "port": 81, "protocol": "TCP", "targetPort": 8081}]}}`},
		{kind: "core/Service", body: `{"metadata": {"name": "t"}, "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}}`, unsure: true},
		{kind: "core/ServiceAccount", body: `{"metadata": {"name": "sa"}, "automountServiceAccountToken": false}`},
		{kind: "rbac.authorization.k8s.io/Role", body: `{"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]}`},
		{kind: "networking.k8s.io/NetworkPolicy", body: `{"metadata": {"name": "n"}, "spec": {"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"], "ingress": []}}`, unsure: true},
		{kind: "core/ResourceQuota", body: `{"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10", "cpu": "2"}}}`},
		{kind: "apps/Deployment", body: `{"metadata": {"name": "d"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "d"}}, "template": {"metadata": {"labels": {"a": "d"}}, "spec": {
			"containers": [{"name": "one", "image": "example.invalid/x:1", "args": ["a", "b"], "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
				"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}, {"name": "two", "image": "example.invalid/y:1"}],
			"tolerations": [{"key": "k", "operator": "Exists"}], "nodeSelector": {"n": "m"}}}}}`},
		{kind: "apps/Deployment", body: `{"metadata": {"name": "e"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "e"}}, "template": {"metadata": {"labels": {"a": "e"}}, "spec": {
			"containers": [{"name": "one", "image": "example.invalid/x:1", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1000m"}}}]}}}}`, unsure: true},
		{kind: group + "/Widget", body: `{"metadata": {"name": "w"}, "spec": {"set": ["a", "b"], "atomic": ["z", "y"], "map": [{"a": "1", "b": "x", "c": 3}, {"a": "2", "b": "y"}],
			"whole": {"k": "v"}, "parts": {"k": "v"}, "number": 1.5, "filled": {"given": "g"}}}`},
		{kind: group + "/Widget", body: `{"metadata": {"name": "v"}, "spec": {"map": [{"a": "1"}], "maybe": null, "number": 2}}`, unsure: true},
	} {
		r := extension.Resource{Type: c.kind, APIVersion: "v1", Owner: ownerA, Properties: object(t, c.body)}
		a, err := b.target.address(t.Context(), r, b.target.c.await)
		if err != nil {
			t.Fatal(err)
		}
		stamp(a.object, ownerA)
		name := c.kind + " " + a.object.GetName()
		put := func(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			made, _, err := b.target.c.apply(t.Context(), a, o, false)
			return made, err
		}
		first, err := put(a.object)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := stands(a.object, first, FieldManager); got == c.unsure {
			t.Errorf("%s as it was just made: stands is %t", name, got)
		}
		if stands(a.object, first, GuestManager) {
			t.Errorf("%s stands for a manager that never applied it", name)
		}
		// Somebody else has a part in it, and it has more than is asked for.
		patch := `{"metadata": {"annotations": {"other": "1"}}}`
		if _, err := a.client.Patch(t.Context(), a.object.GetName(), "application/merge-patch+json", []byte(patch), metav1.PatchOptions{FieldManager: "other"}); err != nil {
			t.Fatal(err)
		}
		said := 0
		// unchanged applies what is said to stand: its version stays, but for what a
		// controller writes in between.
		unchanged := func(asked *unstructured.Unstructured, live *unstructured.Unstructured) {
			t.Helper()
			for range maxTries {
				made, err := put(asked)
				if err == nil && made.GetResourceVersion() == live.GetResourceVersion() {
					return
				}
				if err != nil || !stands(asked, made, FieldManager) {
					break
				}
				live = made
			}
			text, _ := json.Marshal(asked.Object)
			t.Fatalf("%s was said to stand, and an apply changed it: %s", name, text)
		}
		for range 60 {
			asked := edit(random, a.object)
			live, err := b.target.live(t.Context(), a)
			if err != nil || live == nil {
				t.Fatalf("%s: %v", name, err)
			}
			if stands(asked, live, FieldManager) {
				said++
				unchanged(asked, live)
			} else if made, err := put(asked); err == nil && stands(asked, made, FieldManager) {
				unchanged(asked, made)
			}
		}
		t.Logf("%s: %d of 60 edits were said to stand", name, said)
	}
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var o unstructured.Unstructured
	if err := o.UnmarshalJSON([]byte(`{"kind": "K", "apiVersion": "v1", ` + strings.TrimPrefix(strings.TrimSpace(text), "{"))); err != nil {
		t.Fatal(err)
	}
	delete(o.Object, "kind")
	delete(o.Object, "apiVersion")
	return o.Object
}

// edit changes a copy of an object in one place, or in none.
func edit(r *rand.Rand, o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	var at []func()
	var walk func(path string, v any, set func(any))
	walk = func(path string, v any, set func(any)) {
		switch path {
		case "/kind", "/apiVersion", "/metadata/name", "/metadata/namespace":
			return
		}
		switch v := v.(type) {
		case map[string]any:
			for name, item := range v {
				walk(path+"/"+name, item, func(x any) { v[name] = x })
				if path != "" && path != "/metadata" {
					at = append(at, func() { delete(v, name) })
				}
			}
			at = append(at, func() { v["more"] = "x" })
		case []any:
			for i, item := range v {
				walk(fmt.Sprintf("%s/%d", path, i), item, func(x any) { v[i] = x })
				at = append(at, func() { set(slices.Delete(slices.Clone(v), i, i+1)) }, func() { set(append(slices.Clone(v), runtime.DeepCopyJSONValue(item))) })
			}
			at = append(at, func() { slices.Reverse(v) }, func() { set([]any{}) })
		case string:
			at = append(at, func() { set(v + "x") }, func() { set("") }, func() { set(nil) })
		case int64:
			at = append(at, func() { set(v + 1) }, func() { set(float64(v)) })
		case float64:
			at = append(at, func() { set(v * 2) })
		case bool:
			at = append(at, func() { set(!v) })
		}
	}
	walk("", o.Object, nil)
	if r.IntN(4) > 0 {
		at[r.IntN(len(at))]()
	}
	return o
}

// TestStanding holds what it costs to apply many again: one read for all, and a
// write for each that differs.
func TestStanding(t *testing.T) {
	b := newBench(t, Options{})
	const many = 20
	target, w := b.wired(Options{})
	maps := "/api/v1/namespaces/" + b.namespace + "/configmaps"
	config := func(i int, value string) extension.Resource {
		return configMap(fmt.Sprintf("c%d", i), map[string]any{"value": value})
	}
	uids := make([]string, many)
	for i := range many {
		uids[i] = b.apply(config(i, "1")).Ref.UID
		b.apply(of(ownerB, configMap(fmt.Sprintf("other%d", i), nil)))
	}
	// again applies all in one session, after all are announced.
	again := func(target *Target, w *wire, value func(i int) extension.Resource) []string {
		t.Helper()
		ctx := extension.WithSession(t.Context())
		resources := make([]extension.Resource, many)
		for i := range many {
			resources[i] = value(i)
			named := resources[i]
			named.Unevaluated = []string{"/"}
			if _, err := target.Preview(ctx, named); err != nil {
				t.Fatal(err)
			}
		}
		mark := w.mark()
		for i, r := range resources {
			r.UID = uids[i]
			s, err := target.Apply(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			if s.Ref.UID == "" || version(s) == nil || s.Properties["data"].(map[string]any)["value"] != r.Properties["data"].(map[string]any)["value"] {
				t.Errorf("resource %d answers %v", i, s)
			}
			uids[i] = s.Ref.UID
		}
		return w.since(mark)
	}
	_ = again(target, w, func(i int) extension.Resource { return config(i, "1") }) // discovery
	if got, want := again(target, w, func(i int) extension.Resource { return config(i, "1") }), []string{"GET " + maps}; !slices.Equal(got, want) {
		t.Errorf("applying again what stands took %v, want %v", got, want)
	}
	if got := b.data("c3")["value"]; got != "1" {
		t.Errorf("c3 has %q", got)
	}
	got := again(target, w, func(i int) extension.Resource { return config(i, map[bool]string{true: "2", false: "1"}[i%10 == 3]) })
	if want := []string{"GET " + maps, "PATCH " + maps + "/c3", "PATCH " + maps + "/c13"}; !slices.Equal(got, want) {
		t.Errorf("applying again of which two differ took %v, want %v", got, want)
	}
	// What somebody changed, deleted or made anew in the meantime is brought back.
	b.patch("c5", `{"data":{"value":null,"more":"x"}}`)
	for _, name := range []string{"c7", "c8"} {
		if err := b.client.CoreV1().ConfigMaps(b.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	before := uids[7]
	got = again(target, w, func(i int) extension.Resource { return config(i, "1") })
	if calls := strings.Join(got, ";"); !strings.Contains(calls, "/c5;") || strings.Contains(calls, "/c6") {
		t.Errorf("after drift it took %v", got)
	}
	if v := b.data("c5")["value"]; v != "1" {
		t.Errorf("what drifted stayed: %q", v)
	}
	if b.data("c7")["value"] != "1" || b.data("c8")["value"] != "1" || uids[7] == before {
		t.Error("what was deleted was not made again")
	}

	t.Run("without an owner", func(t *testing.T) {
		for i := range many {
			s := b.apply(plain(configMap(fmt.Sprintf("p%d", i), map[string]any{"value": "1"})))
			uids[i] = s.Ref.UID
		}
		plainly := func(value string) func(i int) extension.Resource {
			return func(i int) extension.Resource {
				return plain(configMap(fmt.Sprintf("p%d", i), map[string]any{"value": value}))
			}
		}
		if got, want := again(target, w, plainly("1")), []string{"GET " + maps}; !slices.Equal(got, want) {
			t.Errorf("what stands took %v, want %v", got, want)
		}
		if got := again(target, w, plainly("2")); len(got) != 1+many {
			t.Errorf("what differs took %v, want a read and %d writes", got, many)
		}
	})

	t.Run("where lists are forbidden", func(t *testing.T) {
		for i := range many {
			uids[i] = b.apply(config(i, "1")).Ref.UID
		}
		target, w := b.limited("get", "create", "patch")
		got := again(target, w, func(i int) extension.Resource { return config(i, "1") })
		if len(got) < 2 || slices.IndexFunc(got, func(c string) bool { return c == "GET "+maps }) < 0 || len(got)-slices.IndexFunc(got, func(c string) bool { return c == "GET "+maps }) != 1+many {
			t.Errorf("it took %v, want the list that is refused once and %d writes", got, many)
		}
	})
}

func (b *bench) patch(name, patch string) {
	b.Helper()
	if _, err := b.client.CoreV1().ConfigMaps(b.namespace).Patch(b.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		b.Fatal(err)
	}
}

// limited is the bench's cluster as a user who may do only that with ConfigMaps.
func (b *bench) limited(verbs ...string) (*Target, *wire) {
	b.Helper()
	user := b.namespace + "-limited"
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}}
	if _, err := b.client.RbacV1().Roles(b.namespace).Create(b.Context(), role, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	if _, err := b.client.RbacV1().RoleBindings(b.namespace).Create(b.Context(), binding, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	config := rest.CopyConfig(clustertest.Start(b.T).Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	target, w := b.wiredTo(config, Options{})
	// The authorizer takes a binding up a moment after it was made.
	err := apiwait.PollUntilContextCancel(b.Context(), 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := target.c.dynamic.Resource(configMaps).Namespace(b.namespace).Get(ctx, "c0", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return target, w
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
