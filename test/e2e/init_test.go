package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/ocitest"
)

// initialised is what the tests read of `radial init -o json`.
type initialised struct {
	Objects []struct {
		Kind   string `json:"kind"`
		Name   string `json:"name"`
		Result string `json:"result"`
	} `json:"objects"`
	Group       bool `json:"groupCreated"`
	Environment bool `json:"environmentCreated"`
	Recipes     []struct {
		ResourceType string `json:"resourceType"`
	} `json:"recipesRegistered"`
}

// TestInit_K42 prepares a cluster that knows nothing of Radial, and a control plane that is empty, for each other.
func TestInit_K42(t *testing.T) {
	bin := programs(t)
	cluster := clustertest.Start(t)
	i := installation{bin: bin, dir: t.TempDir()}
	url := startServer(t, i, cluster.Kubeconfig)
	server := []string{"RADIAL_SERVER=" + url, "RADIAL_DIR=" + i.dir}
	kubectl := func(args ...string) answer {
		t.Helper()
		return execute(t, filepath.Join(bin, "devcluster"), nil, append([]string{"kubectl", "--kubeconfig", cluster.Kubeconfig}, args...)...)
	}
	if a := kubectl("get", "recipes.radapp.io"); a.code == 0 {
		t.Fatalf("the cluster knows Recipes before init: %s", a.out)
	}
	run := func() initialised {
		t.Helper()
		a := execute(t, filepath.Join(bin, "radial"), server, "init", "--kubeconfig", cluster.Kubeconfig, "-o", "json")
		if a.code != 0 {
			t.Fatalf("radial init: %s%s", a.err, i.logs())
		}
		return decode[initialised](t, a.out)
	}

	first := run()
	t.Run("K-42 installs kinds, policy, accounts and grants", func(t *testing.T) {
		for _, o := range first.Objects {
			if o.Result != "created" {
				t.Errorf("%s %s was %s", o.Kind, o.Name, o.Result)
			}
			if a := kubectl("get", strings.ToLower(o.Kind), o.Name, "-n", "radial-system"); a.code != 0 {
				t.Errorf("%s %s is not in the cluster: %s", o.Kind, o.Name, a.err)
			}
		}
		for _, want := range []string{"CustomResourceDefinition", "MutatingAdmissionPolicy", "ServiceAccount", "ClusterRole"} {
			found := false
			for _, o := range first.Objects {
				found = found || o.Kind == want
			}
			if !found {
				t.Errorf("no %s was installed", want)
			}
		}
		may := func(verb, kind string) bool {
			return kubectl("auth", "can-i", verb, kind, "--as", "system:serviceaccount:radial-system:radial-controller", "-n", "default").code == 0
		}
		if !may("patch", "deployments.apps") || !may("list", "recipes.radapp.io") {
			t.Error("the controller's account may not do its work")
		}
		if may("list", "secrets") || may("create", "deployments.apps") {
			t.Error("the controller's account may do more than its work")
		}
	})
	t.Run("K-42 creates the default environment and registers recipes that work", func(t *testing.T) {
		if !first.Group || !first.Environment || len(first.Recipes) == 0 {
			t.Fatalf("init did not make the defaults: %+v", first)
		}
		a := execute(t, filepath.Join(bin, "radial"), server, "resource", "create", "Applications.Datastores/redisCaches", "cache", "-e", "default", "-o", "json", "--timeout", limit.String())
		if a.code != 0 || !strings.Contains(a.out, `"provisioningState": "Succeeded"`) {
			t.Fatalf("the registered recipe does not provision: %s%s%s", a.out, a.err, i.logs())
		}
	})
	t.Run("K-42 changes nothing the second time", func(t *testing.T) {
		execute(t, filepath.Join(bin, "radial"), server, "recipe", "register", "default", "--resource-type", "Applications.Datastores/redisCaches", "--template-path", "registry.example.com/mine:1")
		second := run()
		for _, o := range second.Objects {
			if o.Result != "unchanged" {
				t.Errorf("%s %s was %s", o.Kind, o.Name, o.Result)
			}
		}
		if second.Group || second.Environment || len(second.Recipes) != 0 {
			t.Errorf("the second init made %+v", second)
		}
		a := execute(t, filepath.Join(bin, "radial"), server, "recipe", "show", "default", "--resource-type", "Applications.Datastores/redisCaches")
		if !strings.Contains(a.out, "registry.example.com/mine:1") {
			t.Errorf("init has replaced a recipe that somebody registered:\n%s", a.out)
		}
	})
	t.Run("K-42 pushes its recipes to a registry, from where they work", func(t *testing.T) {
		registry := ocitest.Registry(t, "")
		other := installation{bin: bin, dir: t.TempDir()}
		env := []string{"RADIAL_SERVER=" + startServer(t, other, cluster.Kubeconfig), "RADIAL_DIR=" + other.dir, "DOCKER_CONFIG=" + t.TempDir()}
		a := execute(t, filepath.Join(bin, "radial"), env, "init", "--kubeconfig", cluster.Kubeconfig, "--recipe-registry", registry+"/radial", "--plain-http", "-o", "json")
		if a.code != 0 {
			t.Fatalf("radial init: %s%s", a.err, other.logs())
		}
		if made := decode[initialised](t, a.out); len(made.Recipes) == 0 {
			t.Errorf("no recipes were registered: %s", a.out)
		}
		if a := execute(t, filepath.Join(bin, "radial"), env, "recipe", "list"); !strings.Contains(a.out, registry+"/radial/redis:") || strings.Contains(a.out, "file:") {
			t.Errorf("the recipes are not those of the registry:\n%s", a.out)
		}
		a = execute(t, filepath.Join(bin, "radial"), env, "resource", "create", "Applications.Datastores/redisCaches", "pushed", "-e", "default", "--timeout", limit.String())
		if a.code != 0 {
			t.Fatalf("the pushed recipe does not provision: %s%s%s", a.out, a.err, other.logs())
		}
	})
	t.Run("without a cluster it says which to name", func(t *testing.T) {
		missing := filepath.Join(t.TempDir(), "kubeconfig")
		a := execute(t, filepath.Join(bin, "radial"), server, "init", "--kubeconfig", missing)
		if a.code == 0 || !strings.Contains(a.err, "no cluster to prepare") || !strings.Contains(a.err, missing) {
			t.Errorf("exit code %d: %s", a.code, a.err)
		}
	})
}

// startServer runs radial-server alone against a cluster until the test ends, and returns its URL.
func startServer(t *testing.T, i installation, kubeconfig string) string {
	t.Helper()
	ready := filepath.Join(i.dir, "ready")
	logs := filepath.Join(i.dir, "logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(logs, "radial-server.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Add(i.dir); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(i.bin, "radial-server"), "--developer-mode", "--listen", "127.0.0.1:0",
		"--store", filepath.Join(i.dir, "radial.db"), "--kubeconfig", kubeconfig, "--ready-file", ready)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	patience := time.After(limit)
	for {
		if url, err := os.ReadFile(ready); err == nil {
			return strings.TrimSpace(string(url))
		}
		select {
		case <-w.Events:
		case <-ended:
			t.Fatalf("radial-server ended before it was ready%s", i.logs())
		case <-patience:
			t.Fatalf("radial-server was not ready within %s%s", limit, i.logs())
		}
	}
}
