package deployment_test

import (
	"fmt"
	"strings"
	"testing"
)

// S-45: a kubeConfig stays with the process that took the request. One that works
// on nothing says so at once, in place of a deployment that could only fail; what
// needs none it takes.
func TestKubeConfigWithoutWorkers_S45(t *testing.T) {
	t.Parallel()
	p := newPlane(t, func(p *plane) { p.workless = true })
	kubeconfig := fmt.Sprintf("%q", "apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts: []\n")
	template := `{` + head + `,"parameters":{"kc":{"type":"securestring"}},"imports":{"k8s":{"provider":"Kubernetes","version":"1.0.0",
	 "config":{"namespace":"n","scope":{"type":"UserOwned","kubeConfig":"[parameters('kc')]"}}}},
	 "resources":{"a":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"a"}}}}}`
	with := body(template, "kc", kubeconfig)
	refused := func(what string, a answer) {
		t.Helper()
		if at(a.body, "error", "code") != "CredentialsNeeded" || !strings.Contains(a.raw, "--local") {
			t.Errorf("S-45: %s: status %d: %s", what, a.status, a.raw)
		}
	}
	refused("a deployment", p.send("PUT", all+"/own"+version, with))
	refused("a stack", p.send("PUT", stacks+"/own"+version, with))
	p.must(404, "GET", all+"/own"+version, "")
	p.must(404, "GET", stacks+"/own"+version, "")
	plain := `{` + head + `,"resources":{}}`
	p.must(201, "PUT", all+"/plain"+version, body(plain))
	p.must(201, "PUT", stacks+"/plain"+version, body(plain))
}
