package provision

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
)

func TestGoal_K11(t *testing.T) {
	group := core.GroupID("default-demo")
	parents := paired.Parents{
		Environment: core.GroupID("default").Resource("Applications.Core/environments", "default"), ETag: "e1",
		Application: group.Resource("Applications.Core/applications", "demo"), Group: group,
	}
	open := client.Type{Name: "A.B/caches", APIVersion: "2025-01-01", Declared: map[string]bool{"size": true, "tls": true}}
	inert := open
	inert.Inert = true
	hidden := inert
	hidden.Declared = nil
	for name, tc := range map[string]struct {
		reason string
		spec   radapp.RecipeSpec
		given  string
		kind   client.Type
		want   map[string]any // beside application and environment
		fault  string
	}{
		"Plain":        {reason: "nothing asked for is nothing said", kind: open, want: map[string]any{}},
		"RecipeName":   {reason: "spec.recipe chooses the recipe", spec: radapp.RecipeSpec{Recipe: "big"}, kind: open, want: map[string]any{"recipe": map[string]any{"name": "big"}}},
		"Split":        {reason: "declared members are properties, others parameters", given: `{"size":1,"zone":"a"}`, kind: open, want: map[string]any{"size": float64(1), "recipe": map[string]any{"parameters": map[string]any{"zone": "a"}}}},
		"Inert":        {reason: "an inert type takes what it declares", given: `{"size":1}`, kind: inert, want: map[string]any{"size": float64(1)}},
		"Undeclared":   {reason: "on an inert type an undeclared member is named", given: `{"size":1,"zone":"a"}`, kind: inert, fault: "zone"},
		"InertRecipe":  {reason: "an inert type runs no recipe", spec: radapp.RecipeSpec{Recipe: "big"}, kind: inert, fault: "spec.recipe"},
		"InertUnknown": {reason: "without a schema the server judges", given: `{"zone":"a"}`, kind: hidden, want: map[string]any{"zone": "a"}},
		"Ours":         {reason: "what the spec has a field for is not a parameter", given: `{"Environment":"x"}`, kind: open, fault: "spec.environment"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &radapp.Recipe{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "demo", UID: "u"}, Spec: tc.spec}
			r.Spec.Type = "A.B/caches"
			if tc.given != "" {
				r.Spec.Parameters = &runtime.RawExtension{Raw: []byte(tc.given)}
			}
			g, err := goalOf(r, "local", parents, tc.kind)
			if tc.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fault) {
					t.Errorf("%s: error %v, want one that names %s", tc.reason, err, tc.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			tc.want["application"], tc.want["environment"] = parents.Application.String(), parents.Environment.String()
			if d := cmp.Diff(tc.want, g.Body.Properties); d != "" {
				t.Errorf("%s: properties (-want +got):\n%s", tc.reason, d)
			}
			if g.ID.String() != group.Resource("A.B/caches", "db").String() || g.RetryOn != "e1" || !g.Body.ImplicitParents || g.Body.Owner.UID != "u" {
				t.Errorf("%s: the goal is %+v", tc.reason, g)
			}
		})
	}
}

func TestData_K14(t *testing.T) {
	got, err := dataOf(map[string]any{"url": "a&b", "port": 6379, "tags": []any{"x"}, "none": nil, "with space": true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{"url": []byte("a&b"), "port": []byte("6379"), "tags": []byte(`["x"]`), "with_space": []byte("true")}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("keys (-want +got):\n%s", d)
	}
	if _, err := dataOf(map[string]any{"a b": 1, "a_b": 2}); err == nil || !strings.Contains(err.Error(), `"a b"`) || !strings.Contains(err.Error(), `"a_b"`) {
		t.Errorf("two properties in one key: %v; both have to be named", err)
	}
}

func TestPlan_K14(t *testing.T) {
	recipe := &radapp.Recipe{ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "u"}}
	data := map[string][]byte{"url": []byte("new")}
	secret := func(owned string, held map[string]string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationRecipe: "db"}}, Data: map[string][]byte{}}
		for k, v := range held {
			s.Data[k] = []byte(v)
		}
		s.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:note":{}}}`)},
			{Manager: FieldManager, FieldsV1: metav1.NewFieldsV1(owned)},
		}
		return s
	}
	for name, tc := range map[string]struct {
		reason string
		secret *corev1.Secret
		want   work
	}{
		"Absent":  {"an absent Secret is made", nil, work{create: true}},
		"Same":    {"what is as it should be is left alone", secret(`{"f:data":{"f:url":{}}}`, map[string]string{"url": "new", "note": "x"}), work{}},
		"Value":   {"a value that differs is written", secret(`{"f:data":{"f:url":{}}}`, map[string]string{"url": "old"}), work{apply: true}},
		"NotOurs": {"a key that somebody else has, even with our value, is taken over", secret(`{}`, map[string]string{"url": "new"}), work{apply: true}},
		"Stale":   {"a key of ours that is not answered any more goes; others stay", secret(`{"f:data":{"f:url":{},"f:host":{}}}`, map[string]string{"url": "new", "host": "h", "note": "x"}), work{drop: []string{"host"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, plan(tc.secret, recipe, data), cmp.AllowUnexported(work{})); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}
