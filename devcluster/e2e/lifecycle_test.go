package e2e

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func makeConfigMap(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"kept": "yes"}}
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func hasConfigMap(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	cm, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("what was written before is not there: %v", err)
	}
	if cm.Data["kept"] != "yes" {
		t.Errorf("data after the restart: %v", cm.Data)
	}
}

func TestRestartKeepsStateAndKubeconfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	readyFile := filepath.Join(t.TempDir(), "ready")
	r := cluster(t, dir, "--ready-file", readyFile, "--fake-nodes", "2")
	makeConfigMap(t, r.client(), "before")
	makeDeployment(t, r.client(), deployment("web", 2, nil))
	waitAvailable(t, r.client(), "web", 2)
	old := filepath.Join(t.TempDir(), "copied.kubeconfig")
	content, err := os.ReadFile(r.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, content, 0o600); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if r.err != nil {
		t.Errorf("SIGTERM: it ended with %v\n%s", r.err, r.output())
	}
	if _, err := os.Stat(readyFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ready file outlived the cluster: %v", err)
	}

	r = cluster(t, dir, "--ready-file", readyFile) // with one node less
	if b, err := os.ReadFile(readyFile); err != nil || strings.TrimSpace(string(b)) != r.kubeconfig() {
		t.Errorf("ready file: %q, %v; want %s", b, err, r.kubeconfig())
	}
	client := clientFor(t, old)
	hasConfigMap(t, client, "before")
	waitAvailable(t, client, "web", 2)
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 1 || nodes.Items[0].Name != "fake-0" {
		t.Errorf("%d nodes, want fake-0 alone: the other is of the start before", len(nodes.Items))
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := cluster(t, dir, "--fake-nodes", "0")

	t.Run("a second process on the same directory", func(t *testing.T) {
		out, err := call(t, "up", "--state", dir)
		if err == nil {
			t.Fatal("it started")
		}
		for _, want := range []string{dir, "pid " + strconv.Itoa(r.cmd.Process.Pid), "stop", "--state"} {
			if !strings.Contains(out, want) {
				t.Errorf("the refusal does not say %q:\n%s", want, out)
			}
		}
	})
	t.Run("a port that is taken", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		out, err := call(t, "up", "--state", t.TempDir(), "--port", port)
		if err == nil || !strings.Contains(out, "port "+port) || !strings.Contains(out, "--port") {
			t.Errorf("err %v; want a refusal that names port %s and a remedy:\n%s", err, port, out)
		}
	})
	t.Run("the directory's own port, taken meanwhile", func(t *testing.T) {
		other := t.TempDir()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		if err := os.WriteFile(filepath.Join(other, "port"), []byte(port), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := call(t, "up", "--state", other)
		if err == nil || !strings.Contains(out, "port "+port) || !strings.Contains(out, "kubeconfigs") {
			t.Errorf("err %v; want a refusal that names port %s and what a move means:\n%s", err, port, out)
		}
	})
	t.Run("a component that cannot start", func(t *testing.T) {
		out, err := call(t, "up", "--state", t.TempDir(), "--apiserver-args", "--no-such-flag")
		if err == nil || !strings.Contains(out, "kube-apiserver") || !strings.Contains(out, "unknown flag: --no-such-flag") {
			t.Errorf("err %v; want the component and the end of its log:\n%s", err, out)
		}
	})
	t.Run("a command line that cannot be meant", func(t *testing.T) {
		for _, args := range [][]string{{"up"}, {"up", "--state", dir, "--node", "virtual"}, {"up", "stray"}, {"nonsense"}, {}} {
			_, err := call(t, args...)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 {
				t.Errorf("devcluster %v: %v, want exit status 2", args, err)
			}
		}
	})
}

// What a cluster that was killed wrote is there after the next start: nothing was lost but the order of the end.
func TestKilledAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := cluster(t, dir, "--fake-nodes", "0", "--no-scheduler", "--no-controller-manager")
	makeConfigMap(t, r.client(), "before")
	if err := r.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	r.waitEnd()
	if r.err != nil {
		t.Errorf("SIGQUIT: it ended with %v\n%s", r.err, r.output())
	}
	r = cluster(t, dir, "--fake-nodes", "0", "--no-scheduler", "--no-controller-manager")
	hasConfigMap(t, r.client(), "before")
}

func TestKilledComponentComesBack(t *testing.T) {
	t.Parallel()
	r := cluster(t, t.TempDir())
	client := r.client()
	for i, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "fake-node"} {
		pid := r.component(name)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r.waitLine(name + " (pid " + strconv.Itoa(pid) + ") ended: signal: killed")
		r.waitLine(name + " started again")
		if name == "etcd" || name == "kube-apiserver" {
			waitServing(t, client)
		}
		app := "after-" + strconv.Itoa(i)
		makeDeployment(t, client, deployment(app, 2, nil))
		waitAvailable(t, client, app, 2)
	}
}

// waitServing waits until the API server answers again; nothing tells when.
func waitServing(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	eventually(t, "API server serving", func() error {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
		return err
	})
}

func TestKilledSupervisorTakesAllWithIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := cluster(t, dir)
	makeConfigMap(t, r.client(), "before")
	pids := r.children()
	if len(pids) != 5 {
		t.Fatalf("%d components, want 5", len(pids))
	}
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.waitEnd()
	// A new start waits for the lock, which the components share: when it is up, they are gone.
	next := cluster(t, dir)
	for _, pid := range pids {
		if runs(pid) {
			t.Errorf("pid %d outlived its supervisor", pid)
		}
	}
	hasConfigMap(t, next.client(), "before")
}

func TestStopCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := cluster(t, dir, "--fake-nodes", "0", "--no-scheduler")
	pids := r.children()
	if out, err := call(t, "stop", "--state", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, pid := range pids {
		if runs(pid) {
			t.Errorf("stop returned while pid %d ran", pid)
		}
	}
	r.waitEnd()
	if r.err != nil {
		t.Errorf("it ended with %v", r.err)
	}
	if out, err := call(t, "stop", "--state", dir); err != nil || !strings.Contains(out, "no cluster is running") {
		t.Errorf("a second stop: %v\n%s", err, out)
	}
}

func TestWithoutControllerManager(t *testing.T) {
	t.Parallel()
	r := cluster(t, t.TempDir(), "--no-controller-manager")
	makePod(t, r.client(), "bare", nil)
	waitPod(t, r.client(), "bare", "ready", func(p *corev1.Pod) bool { return p != nil && podReady(p) })
}

func TestAssets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "assets")
	for range 2 { // the second finds its links
		if out, err := call(t, "assets", dir); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for name, want := range map[string]string{"etcd": "etcd Version", "kube-apiserver": "Kubernetes v1.", "kubectl": "Client Version: v1."} {
		args := []string{"--version"}
		if name == "kubectl" {
			args = []string{"version", "--client"}
		}
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, name), args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s %v: %v, %q, want %q", name, args, err, out, want)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"help"}, "devcluster up --state DIR"},
		{[]string{"--help"}, "devcluster up --state DIR"},
		{[]string{"help", "up"}, "--ready-file"},
		{[]string{"up", "--help"}, "--apiserver-args"},
		{[]string{"help", "fake-node"}, "fakenode/fate"},
		{[]string{"version"}, "kubernetes v1."},
	} {
		if out, err := call(t, c.args...); err != nil || !strings.Contains(out, c.want) {
			t.Errorf("devcluster %v: %v, want %q in:\n%s", c.args, err, c.want, out)
		}
	}
}
