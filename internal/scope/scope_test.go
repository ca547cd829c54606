package scope_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/scope"
)

func TestResolve(t *testing.T) {
	opened := 0
	r := scope.NewResolver(map[string]scope.Connect{
		"local": func(context.Context) (*kubernetes.Cluster, error) {
			opened++
			return kubernetes.New("local", &rest.Config{Host: "https://127.0.0.1:1"}, kubernetes.Options{})
		},
		"far": func(context.Context) (*kubernetes.Cluster, error) { return nil, errors.New("its agent is away") },
	})
	for _, cluster := range []string{"local", "", "LOCAL"} {
		if _, err := r.Resolve(t.Context(), extension.Scope{Extension: "kubernetes", Cluster: cluster, Namespace: "n"}, nil); err != nil {
			t.Errorf("cluster %q: %v", cluster, err)
		}
	}
	if opened != 1 {
		t.Errorf("the connection was opened %d times", opened)
	}
	for name, c := range map[string]struct {
		scope extension.Scope
		want  string
	}{
		"unknown cluster":    {extension.Scope{Extension: "Kubernetes", Cluster: "east"}, `there is no cluster "east" (known: far, local)`},
		"unusable cluster":   {extension.Scope{Extension: "Kubernetes", Cluster: "far"}, `cluster "far" cannot be used: its agent is away`},
		"a type that is off": {extension.Scope{Extension: "Kubernetes", Type: "azureResourceManager", ID: "/subscriptions/s"}, `known are UserOwned; radial-server --azure-scopes turns this one on`},
		"unknown extension":  {extension.Scope{Extension: "Helm"}, `there is no extension "Helm"`},
	} {
		if _, err := r.Resolve(t.Context(), c.scope, nil); core.CodeOf(err) != core.CodeTarget || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// Resolving reaches out to nothing; the first call does, and names the cluster.
	target, err := r.Resolve(t.Context(), extension.Scope{Extension: "Kubernetes", Namespace: "n"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = target.Apply(t.Context(), extension.Resource{Type: "core/Secret", APIVersion: "v1", Properties: map[string]any{"metadata": map[string]any{"name": "s"}}})
	if core.CodeOf(err) != core.CodeTarget || !strings.Contains(err.Error(), `cluster "local"`) {
		t.Errorf("an unreachable cluster: %v", err)
	}
}
