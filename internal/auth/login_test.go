package auth_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/cli"
)

// TestLogin_D46 uses the real command line against a real control plane: a
// login, contexts, and commands that carry who it is.
func TestLogin_D46(t *testing.T) {
	t.Parallel()
	cluster, client := clusterOf(t)
	ns := cluster.Namespace(t, "login")
	f := start(t, client, auth.AuthenticatorOptions{})
	root := f.admin(cluster.Config)
	root.want(200, "PUT", shop, `{}`)
	root.want(200, "PUT", bank, `{}`)
	account(t, client, ns, "ann", "radial")
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, f.own.Bundle(), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"RADIAL_CONTEXTS": filepath.Join(dir, "contexts.yaml")}
	radial := func(want int, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		code := cli.Run(t.Context(), cli.Surroundings{Args: append([]string{"radial"}, args...), In: strings.NewReader(""), Out: &out, Err: &out,
			Getenv: func(k string) string { return env[k] }})
		if code != want {
			t.Fatalf("radial %s: exit %d, want %d: %s", strings.Join(args, " "), code, want, &out)
		}
		return out.String()
	}
	says := func(out, part string) {
		t.Helper()
		if !strings.Contains(out, part) {
			t.Errorf("it says %q, want %q", out, part)
		}
	}
	radial(1, "login", f.url, "--name", "bad", "--ca-file", ca, "--account", ns+"/nobody", "--kubeconfig", cluster.Kubeconfig)
	if _, err := os.Stat(env["RADIAL_CONTEXTS"]); err == nil {
		t.Error("a login that failed left a context")
	}
	out := radial(0, "login", f.url, "--name", "ann", "--ca-file", ca, "--account", ns+"/ann", "--kubeconfig", cluster.Kubeconfig)
	says(out, "no role yet")
	says(out, "serviceAccount:"+ns+"/ann")
	root.give(shop, "ann", "serviceAccount:"+ns+"/ann", "Reader")
	if out = radial(0, "group", "list"); !strings.Contains(out, "shop") || strings.Contains(out, "bank") {
		t.Errorf("D-46: ann sees %s", out)
	}
	says(radial(1, "group", "create", "mine"), "role Contributor")
	says(radial(0, "login", f.url, "--name", "admin", "--ca-file", ca, "--kubeconfig-user", "--kubeconfig", cluster.Kubeconfig), "Context admin is the current one")
	says(radial(0, "group", "list"), "bank")
	says(radial(0, "context", "list"), "kubeconfig")
	if out = radial(0, "group", "list", "--context", "ann"); strings.Contains(out, "bank") {
		t.Errorf("--context is not heeded: %s", out)
	}
	radial(0, "context", "use", "ann")
	says(radial(0, "logout"), "ann is forgotten")
	says(radial(4, "group", "list", "--context", "ann"), "no context")
	raw, err := os.ReadFile(env["RADIAL_CONTEXTS"])
	if err != nil || strings.Contains(string(raw), "PRIVATE") || strings.Contains(string(raw), "eyJ") {
		t.Errorf("D-46: a secret lies in the file of contexts: %v", err)
	}
}
