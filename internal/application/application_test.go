package application

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/manifest"
)

func TestAllowed_K4(t *testing.T) {
	for _, c := range []struct {
		reason             string
		entries            []string
		cluster, namespace string
		want               bool
	}{
		{"K-4 none", nil, "local", "a", false},
		{"K-4 any", []string{"*"}, "east", "a", true},
		{"K-4 a name is of the local cluster", []string{"a"}, "local", "a", true},
		{"K-4 no cluster is the local one", []string{"a"}, "", "a", true},
		{"K-4 a name is of no other cluster", []string{"a"}, "east", "a", false},
		{"K-4 the local cluster by its name", []string{"local/a"}, "", "a", true},
		{"K-4 the local cluster whole", []string{"local/*"}, "local", "a", true},
		{"K-4 clusters compare without case", []string{"East/a"}, "east", "a", true},
		{"K-4 one of several", []string{"b", "east/*", "a"}, "local", "a", true},
		{"K-4 a prefix is no match", []string{"a"}, "local", "ab", false},
	} {
		if got := Allowed(c.entries, c.cluster, c.namespace); got != c.want {
			t.Errorf("%s: Allowed(%v, %q, %q) = %v", c.reason, c.entries, c.cluster, c.namespace, got)
		}
	}
}

func TestCheckEnvironment_K4(t *testing.T) {
	for entry, ok := range map[string]bool{
		"*": true, "shop": true, "east/shop": true, "east/*": true, "east.eu/shop": true,
		"": false, "*/shop": false, "Shop": false, "shop/": false, "/shop": false, "a/b/c": false, "sh*p": false,
	} {
		err := checkEnvironment(context.Background(), dynamic.Subject{Properties: map[string]any{"allowedNamespaces": []any{entry}}})
		if (err == nil) != ok || !ok && !core.IsCode(err, core.CodeInvalidContent) {
			t.Errorf("K-4: entry %q: %v", entry, err)
		}
	}
}

// TestParents_K5: what an implicit application is made of is JSON, whatever
// characters the names have.
func TestParents_K5(t *testing.T) {
	r := New(nil, manifest.NewRegistry(manifest.Builtin()...))
	group := core.GroupID("default-shop")
	environment := core.GroupID("default").Resource(TypeEnvironment, "e\U000e0001")
	parents, err := r.parents(dynamic.Subject{ID: group.Resource("Applications.Core/extenders", "x"), Owner: core.Owner{Namespace: "a\ab"}}, group.Resource(TypeApplication, "shop"), environment)
	if err != nil || len(parents) != 2 {
		t.Fatalf("%v, %v", parents, err)
	}
	var got struct {
		Environment string
		Extensions  []struct{ Kind, Namespace string }
	}
	if err := json.Unmarshal(parents[1].Properties, &got); err != nil {
		t.Fatalf("K-5: %q: %v", parents[1].Properties, err)
	}
	if got.Environment != environment.String() || len(got.Extensions) != 1 || got.Extensions[0].Namespace != "a\ab" {
		t.Errorf("K-5: %+v", got)
	}
}
