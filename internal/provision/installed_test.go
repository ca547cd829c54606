package provision

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/radapp"
)

// The controller may do what it needs (every other test of this package runs
// under the shipped grants) and nothing of this.
func TestGrants(t *testing.T) {
	b := setupCluster(t)
	c, err := kube.NewWithWatch(b.cfg, kube.Options{Scheme: testScheme()})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("the controller may %s: %v", what, err)
		}
	}
	in := kube.InNamespace(b.ns)
	refused("list Secrets", c.List(t.Context(), &corev1.SecretList{}, in))
	_, err = c.Watch(t.Context(), &corev1.SecretList{}, in)
	refused("watch Secrets", err)
	refused("delete all Secrets", c.DeleteAllOf(t.Context(), &corev1.Secret{}, in))
	refused("create Recipes", c.Create(t.Context(), &radapp.Recipe{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: b.ns}, Spec: radapp.RecipeSpec{Type: "A.B/c"}}))
	refused("delete Recipes", c.Delete(t.Context(), &radapp.Recipe{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: b.ns}}))
	refused("create Pods", c.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: b.ns}}))
	refused("list Namespaces", c.List(t.Context(), &corev1.NamespaceList{}))
}

func TestCRD_K11(t *testing.T) {
	b := setupCluster(t)
	make := func(version, name string, spec map[string]any) error {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "radapp.io", Version: version, Kind: Kind})
		u.SetName(name)
		u.SetNamespace(b.ns)
		return b.admin.Create(t.Context(), u, kube.FieldValidation("Strict"))
	}
	full := map[string]any{
		"type": "Applications.Link/redisCaches", "secretName": "redis-secret", "application": "shop", "environment": "prod",
		"recipe": "big", "parameters": map[string]any{"size": map[string]any{"gb": int64(4)}}, "allowedNamespaces": []any{"*"},
	}
	for _, v := range []string{"v1alpha3", "v1"} {
		if err := make(v, "full-"+v, full); err != nil {
			t.Errorf("K-11: version %s refuses the whole spec: %v", v, err)
		}
		var r radapp.Recipe
		if err := b.admin.Get(t.Context(), types.NamespacedName{Namespace: b.ns, Name: "full-" + v}, &r); err != nil {
			t.Fatal(err)
		}
		if r.Spec.Recipe != "big" || string(r.Spec.Parameters.Raw) != `{"size":{"gb":4}}` || r.Spec.SecretName != "redis-secret" {
			t.Errorf("K-11: written as %s and read as the stored version it is %+v", v, r.Spec)
		}
	}
	for i, tc := range []struct {
		what, field string
		spec        map[string]any
	}{
		{"no type", "spec.type", map[string]any{"secretName": "x"}},
		{"a type without a namespace", "spec.type", map[string]any{"type": "redisCaches"}},
		{"a type with two slashes", "spec.type", map[string]any{"type": "A.B/c/d"}},
		{"a Secret name that is none", "spec.secretName", map[string]any{"type": "A.B/c", "secretName": "Mine!"}},
		{"parameters that are no object", "spec.parameters", map[string]any{"type": "A.B/c", "parameters": "x"}},
		{"a misspelt field", "spec.secretname", map[string]any{"type": "A.B/c", "secretname": "x"}},
	} {
		err := make("v1", fmt.Sprintf("bad-%d", i), tc.spec)
		if err == nil || !strings.Contains(err.Error(), tc.field) {
			t.Errorf("K-11: %s: %v; want a refusal that names %s", tc.what, err, tc.field)
		}
	}
}
