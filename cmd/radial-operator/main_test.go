package main

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/internal/clustertest"
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

func whole() map[string]string {
	return map[string]string{
		"ANKKA_CLOUD_PROVIDER": "gcp", "ANKKA_CLOUD_ACCOUNT": "acme", "ANKKA_CLOUD_LOCATION": "europe-west2", "ANKKA_CLOUD_KMS_KEY": "",
		"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND": "2m", "ANKKA_CLOUD_ROTATION_GRACE": "1h",
		"ANKKA_OBJECT_STORAGE": "cloud", "ANKKA_PROJECT_SECRETS": "cluster", "ANKKA_BACKUPS": "none", "ANKKA_KEYRING": "local", "ANKKA_OBJECT_STORAGE_NAME_PREFIX": "acme",
	}
}

func command(t *testing.T, vars map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = []string{runMain + "=1", "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	for k, v := range vars {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd
}

// What the installation does not say, or says wrongly, stops the process at
// once, by its name.
func TestStopsAtStart_C16_C21_C22_C23_C25_C26_C27_C149_C155(t *testing.T) {
	for name, tc := range map[string]struct {
		variable, value string // value "-" is not set
		says            []string
	}{
		"UnknownProvider_C23":  {"ANKKA_CLOUD_PROVIDER", "gpc", []string{"ANKKA_CLOUD_PROVIDER", `"gpc"`, "none", "gcp", "s3"}},
		"NoProvider_C16":       {"ANKKA_CLOUD_PROVIDER", "-", []string{"ANKKA_CLOUD_PROVIDER"}},
		"NoAccount_C25":        {"ANKKA_CLOUD_ACCOUNT", "-", []string{"ANKKA_CLOUD_ACCOUNT"}},
		"EmptyAccount_C25":     {"ANKKA_CLOUD_ACCOUNT", "", []string{"ANKKA_CLOUD_ACCOUNT"}},
		"NoLocation_C26":       {"ANKKA_CLOUD_LOCATION", "-", []string{"ANKKA_CLOUD_LOCATION"}},
		"NoBound_C21":          {"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND", "-", []string{"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND"}},
		"BadBound_C27":         {"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND", "2 minutes", []string{"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND", "duration"}},
		"NoGrace_C22":          {"ANKKA_CLOUD_ROTATION_GRACE", "-", []string{"ANKKA_CLOUD_ROTATION_GRACE"}},
		"BadGrace_C27":         {"ANKKA_CLOUD_ROTATION_GRACE", "-1h", []string{"ANKKA_CLOUD_ROTATION_GRACE", "duration"}},
		"LongPrefix_C149":      {"ANKKA_OBJECT_STORAGE_NAME_PREFIX", strings.Repeat("a", 51), []string{"ANKKA_OBJECT_STORAGE_NAME_PREFIX", "51"}},
		"HyphenPrefix_C149":    {"ANKKA_OBJECT_STORAGE_NAME_PREFIX", "-acme", []string{"ANKKA_OBJECT_STORAGE_NAME_PREFIX", "hyphen"}},
		"BadChoice_C155":       {"ANKKA_OBJECT_STORAGE", "clouds", []string{"ANKKA_OBJECT_STORAGE", `"clouds"`}},
		"KeyringNoKey_C155":    {"ANKKA_KEYRING", "cloud", []string{"ANKKA_KEYRING", "ANKKA_CLOUD_KMS_KEY"}},
		"CloudNoProvider_C155": {"ANKKA_CLOUD_PROVIDER", "none", []string{"ANKKA_OBJECT_STORAGE", "the installation has none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vars := whole()
			vars[tc.variable] = tc.value
			if tc.value == "-" {
				delete(vars, tc.variable)
			}
			// Were it to go on it would fail differently: there is no cluster.
			cmd := command(t, vars, "--health-listen=0", "--metrics-listen=0")
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 2 {
				t.Fatalf("exit %d (%v)\n%s", cmd.ProcessState.ExitCode(), err, errs.String())
			}
			for _, want := range tc.says {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("%q does not say %q", errs.String(), want)
				}
			}
		})
	}
}

func TestParse(t *testing.T) {
	vars := whole()
	lookup := func(m map[string]string) func(string) (string, bool) {
		return func(k string) (string, bool) { v, ok := m[k]; return v, ok }
	}
	vars["RADIAL_LEADER_ELECT"], vars["RADIAL_LOG_LEVEL"] = "true", "warn"
	c, err := parse([]string{"--log-level=debug", "--namespace=ankka-platform", "--health-listen=:8081", "--metrics-listen=:9090"}, lookup(vars))
	if err != nil || !c.leaderElect || c.logLevel != "debug" || c.settings.Provider != "gcp" || c.settings.AcknowledgementBound != 2*time.Minute {
		t.Errorf("parse = %+v, %v; a flag wins over its variable", c, err)
	}
	if c, err = parse([]string{"--leader-elect"}, lookup(map[string]string{"ANKKA_CLOUD_PROVIDER": "none"})); err != nil || !c.leaderElect || c.settings.HasProvider() {
		t.Errorf("parse = %+v, %v; without a provider that is all there is to say", c, err)
	}
	for name, tc := range map[string]struct {
		args []string
		vars map[string]string
		says string
	}{
		"Level":    {[]string{"--log-level", "loud"}, nil, "debug, info, warn, error"},
		"Format":   {nil, map[string]string{"RADIAL_LOG_FORMAT": "xml"}, "neither json nor text"},
		"Variable": {nil, map[string]string{"RADIAL_LEADER_ELECT": "perhaps"}, "RADIAL_LEADER_ELECT"},
		"Argument": {[]string{"gcp"}, nil, "everything is a flag"},
	} {
		t.Run(name, func(t *testing.T) {
			vars := whole()
			maps.Copy(vars, tc.vars)
			if _, err := parse(tc.args, lookup(vars)); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("parse = %v, want an error that says %q", err, tc.says)
			}
		})
	}
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

func kubeconfig(t *testing.T, c *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	clustertest.WriteKubeconfig(t, path, c)
	return path
}

func fetch(url string) (int, string) {
	res, err := http.Get(url) //nolint:noctx // bounded by the caller
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	raw, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(raw)
}

// The real process under the shipped grant, with the flags of the shipped
// Deployment: it elects itself, serves, answers probes and scrapes, and gives
// its lease back when it is told to end.
func TestServes(t *testing.T) {
	w := ankkatest.Start(t)
	project := w.Project(t, "main")
	health, metrics := freeAddress(t), freeAddress(t)
	cmd := command(t, whole(), "--kubeconfig", kubeconfig(t, w.As(t, ankkatest.Operator)), "--namespace=ankka-platform", "--leader-elect", "--health-listen="+health, "--metrics-listen="+metrics)
	var out clustertest.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })

	s := &v1alpha1.AnkkaService{Spec: v1alpha1.AnkkaServiceSpec{ProjectID: project, ServiceName: "reports", Image: "registry.example.com/reports:1", ProvisionObjectStorage: true}}
	s.Name, s.Namespace = "reports", v1alpha1.Namespace(project)
	if err := w.Admin.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), ankkatest.Limit)
	defer cancel()
	watch, err := w.Admin.Watch(ctx, &v1alpha1.AnkkaServiceList{}, client.InNamespace(s.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	served := false
	for e := range watch.ResultChan() {
		if got, ok := e.Object.(*v1alpha1.AnkkaService); ok && got.Status.Lifecycle == v1alpha1.LifecycleUpdateInProgress {
			served = true
			break
		}
	}
	if !served {
		t.Fatalf("the service is not served\n%s", out.String())
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := fetch("http://" + health + path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if _, body := fetch("http://" + metrics + "/metrics"); !strings.Contains(body, `radial_operator_services{lifecycle="UpdateInProgress"} 1`) || !strings.Contains(body, `radial_operator_requests{kind="bucket",state="Waiting"} 1`) {
		t.Errorf("metrics:\n%s", body)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "radial-operator", Namespace: v1alpha1.PlatformNamespace}}
	if err := w.Admin.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		t.Errorf("the lease: %v, %v", lease.Spec.HolderIdentity, err)
	}
	if strings.Contains(out.String(), `"level":"ERROR"`) {
		t.Errorf("errors were logged:\n%s", out.String())
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("ended: %v\n%s", err, out.String())
	}
	if err := w.Admin.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil || *lease.Spec.HolderIdentity != "" {
		t.Errorf("the lease is still %q's, %v", *lease.Spec.HolderIdentity, err)
	}
}
