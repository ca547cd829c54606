package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/servertest"
)

// runMain makes the test binary be the program, so that the tests see its real
// process: its streams, signals and exit.
const runMain = "RADIAL_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	clustertest.Main(m)
}

func TestParse(t *testing.T) {
	env := func(vars map[string]string) func(string) (string, bool) {
		return func(k string) (string, bool) { v, ok := vars[k]; return v, ok }
	}
	c, err := parse([]string{"--server", "http://127.0.0.1:1"}, env(map[string]string{"RADIAL_SERVER": "http://other", "RADIAL_CLUSTER": "east", "RADIAL_LEADER_ELECT": "true"}))
	if err != nil || c.server != "http://127.0.0.1:1" || c.cluster != "east" || !c.leaderElect {
		t.Errorf("parse = %+v, %v; a flag wins over its variable", c, err)
	}
	for name, tc := range map[string]struct {
		args []string
		vars map[string]string
		says string
	}{
		"NoServer":   {nil, nil, "--server is missing"},
		"BadServer":  {[]string{"--server", "radial.example.com"}, nil, "http or https"},
		"PlainToken": {[]string{"--server", "http://x", "--server-token-file", "token"}, nil, "plain HTTP"},
		"Cluster":    {[]string{"--server", "http://x", "--cluster", "East_1"}, nil, "cannot name a cluster"},
		"Level":      {[]string{"--server", "http://x", "--log-level", "loud"}, nil, "debug, info, warn, error"},
		"Format":     {[]string{"--server", "http://x"}, map[string]string{"RADIAL_LOG_FORMAT": "xml"}, "neither json nor text"},
		"Variable":   {[]string{"--server", "http://x"}, map[string]string{"RADIAL_LEADER_ELECT": "perhaps"}, "RADIAL_LEADER_ELECT"},
		"Argument":   {[]string{"http://x"}, nil, "everything is a flag"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(tc.args, env(tc.vars)); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("parse(%v) = %v, want an error that says %q", tc.args, err, tc.says)
			}
		})
	}
}

var install struct {
	once  sync.Once
	err   error
	admin kube.WithWatch
	token string
}

// program is a running radial-controller.
type program struct {
	t       *testing.T
	cmd     *exec.Cmd
	health  string
	metrics string
	out     clustertest.Buffer
	ended   chan error
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs the program under its own ServiceAccount with the shipped grants.
func start(t *testing.T, server string, args ...string) *program {
	t.Helper()
	c := clustertest.Start(t)
	install.once.Do(func() {
		s := runtime.NewScheme()
		_ = scheme.AddToScheme(s)
		_ = radapp.AddToScheme(s)
		if _, install.err = setup.Install(context.Background(), c.Config, installation.Files); install.err != nil {
			return
		}
		if install.admin, install.err = kube.NewWithWatch(c.Config, kube.Options{Scheme: s}); install.err != nil {
			return
		}
		account := &authenticationv1.TokenRequest{}
		install.err = install.admin.SubResource("token").Create(context.Background(), serviceAccount(), account)
		install.token = account.Status.Token
	})
	if install.err != nil {
		t.Fatal(install.err)
	}
	p := &program{t: t, health: freeAddress(t), metrics: freeAddress(t), ended: make(chan error, 1)}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	clustertest.WriteKubeconfig(t, kubeconfig, clustertest.WithToken(c.Config, install.token))
	p.cmd = exec.Command(os.Args[0], append([]string{"--kubeconfig", kubeconfig, "--server", server,
		"--health-listen", p.health, "--metrics-listen", p.metrics}, args...)...)
	p.cmd.Env = append(os.Environ(), runMain+"=1")
	p.cmd.Stdout = &p.out
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() { p.stop() })
	return p
}

func (p *program) stop() error {
	if p.ended == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.ended:
		p.ended = nil
		return err
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		return fmt.Errorf("it did not stop on SIGTERM: %w", <-p.ended)
	}
}

// get asks a path until it answers with the status, and returns the body.
func (p *program) get(url string, status int) string {
	p.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		resp, err := http.Get(url)
		if err == nil {
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode == status {
				return string(body)
			}
			err = fmt.Errorf("%s: %s", resp.Status, body)
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("GET %s did not answer %d: %v\n%s", url, status, err, p.out.String())
		}
		time.Sleep(20 * time.Millisecond) // a process that is about to listen signals nothing
	}
}

func TestProgram_K43_K44(t *testing.T) {
	t.Parallel()
	plane := servertest.Start(t)
	p := start(t, plane.URL)
	p.get("http://"+p.health+"/readyz", 200)
	p.get("http://"+p.health+"/healthz", 200)

	ns := clustertest.Start(t).Namespace(t, "program")
	recipe := &radapp.Recipe{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: ns}, Spec: radapp.RecipeSpec{Type: "Applications.Link/redisCaches", SecretName: "redis"}}
	w, err := install.admin.Watch(t.Context(), &radapp.RecipeList{}, kube.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := install.admin.Create(t.Context(), recipe); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for ready := false; !ready; {
		select {
		case e := <-w.ResultChan():
			r, ok := e.Object.(*radapp.Recipe)
			ready = ok && e.Type != watch.Deleted && len(r.Status.Conditions) > 0 && r.Status.Conditions[0].Status == metav1.ConditionTrue
		case <-limit.C:
			t.Fatalf("the Recipe did not become Ready:\n%s", p.out.String())
		}
	}
	t.Logf("Recipe Ready %s after its creation", time.Since(begun).Round(time.Millisecond))

	metrics := p.get("http://"+p.metrics+"/metrics", 200)
	for _, m := range []string{`controller_runtime_reconcile_total{controller="recipe",result="success"}`, `controller="deployment"`, "rest_client_requests_total"} {
		if !strings.Contains(metrics, m) {
			t.Errorf("K-43: /metrics has no %s", m)
		}
	}

	if anonymous, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid)); err == nil {
		for line := range strings.Lines(string(anonymous)) {
			if strings.HasPrefix(line, "Anonymous:") || strings.HasPrefix(line, "Rss:") {
				t.Log(strings.TrimSpace(line))
			}
		}
	}

	plane.Stop()
	if why := p.get("http://"+p.health+"/readyz?verbose", 500); !strings.Contains(why, "serving") {
		t.Errorf("readyz while the control plane is away: %s", why)
	}
	p.get("http://"+p.health+"/healthz", 200) // restarting would mend nothing
	plane.Start()
	p.get("http://"+p.health+"/readyz", 200)

	if err := p.stop(); err != nil {
		t.Errorf("on SIGTERM it ended with %v", err)
	}
	entries := 0
	for s := bufio.NewScanner(strings.NewReader(p.out.String())); s.Scan(); entries++ {
		var e struct{ Level, Msg string }
		if err := json.Unmarshal(s.Bytes(), &e); err != nil || e.Level == "" || e.Msg == "" {
			t.Errorf("K-43: this line on stdout is no log entry: %s", s.Text())
		}
		if strings.Contains(s.Text(), "hunter2") {
			t.Errorf("a secret is in the log: %s", s.Text())
		}
		if e.Level == "ERROR" {
			t.Errorf("an error in a run without one: %s", s.Text())
		}
	}
	if entries == 0 {
		t.Error("K-43: nothing was logged to stdout")
	}
}

func TestProgram_ElectsALeader(t *testing.T) {
	t.Parallel()
	plane := servertest.Start(t)
	first := start(t, plane.URL, "--leader-elect")
	first.get("http://"+first.health+"/readyz", 200)
	holder := func() string {
		var l coordinationv1.Lease
		if err := install.admin.Get(t.Context(), kube.ObjectKey{Namespace: installation.Namespace, Name: "radial-controller"}, &l); err != nil || l.Spec.HolderIdentity == nil {
			return ""
		}
		return *l.Spec.HolderIdentity
	}
	w, err := install.admin.Watch(t.Context(), &coordinationv1.LeaseList{}, kube.InNamespace(installation.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	await := func(what string, ok func() bool) {
		t.Helper()
		limit := time.NewTimer(30 * time.Second)
		defer limit.Stop()
		for !ok() {
			select {
			case <-w.ResultChan():
			case <-limit.C:
				t.Fatalf("%s did not happen", what)
			}
		}
	}
	await("an election", func() bool { return holder() != "" })
	leader := holder()
	second := start(t, plane.URL, "--leader-elect")
	second.get("http://"+second.health+"/readyz", 200) // a standby is ready to lead
	if holder() != leader {
		t.Error("a second replica took the lead from a living first")
	}
	if err := first.stop(); err != nil {
		t.Error(err)
	}
	await("a change of the lead", func() bool { h := holder(); return h != "" && h != leader })
}

func serviceAccount() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: installation.ControllerAccount, Namespace: installation.Namespace}}
}
