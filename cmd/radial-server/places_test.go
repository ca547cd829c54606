package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// TestPlaces starts with places that can and cannot be: what is wrong is said
// before anything is deployed.
func TestPlaces(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	kubeconfig := filepath.Join(t.TempDir(), "east")
	const text = `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],"clusters":[{"name":"k","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"u","user":{"token":"t"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const aks = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c"
	for name, c := range map[string]struct {
		o    options
		want string
	}{
		"not a pair":           {options{members: []string{"east"}}, "name=kubeconfig-file"},
		"no file":              {options{members: []string{"east=" + kubeconfig + ".none"}}, "--member-cluster east cannot be read"},
		"twice":                {options{members: []string{"east=" + kubeconfig, "East=" + kubeconfig}}, `"East" stands twice`},
		"the server's own":     {options{cluster: "local", kubeconfig: kubeconfig, members: []string{"local=" + kubeconfig}}, `"local" stands twice`},
		"endpoint without TLS": {options{azureScopes: []string{"*"}, azureEndpoint: "http://arm"}, "--azure-endpoint"},
	} {
		if _, err := places(c.o, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, err := places(options{cluster: "local", kubeconfig: kubeconfig, members: []string{"east=" + kubeconfig}, azureScopes: []string{aks}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []extension.Scope{{}, {Cluster: "east"}, {Type: "Radial", ID: "/planes/kubernetes/east"}} {
		s.Extension = "Kubernetes"
		if _, err := r.Resolve(t.Context(), s, nil); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	_, err = r.Resolve(t.Context(), extension.Scope{Extension: "Kubernetes", Type: "AzureResourceManager", ID: aks + "2"}, nil)
	if !core.IsCode(err, core.CodeForbidden) {
		t.Errorf("a cluster beyond --azure-scopes: %v", err)
	}
}
