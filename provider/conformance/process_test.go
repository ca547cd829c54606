package conformance

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/provider/scripted"
)

func command(args []string, env map[string]string) (int, string) {
	var out clustertest.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	code := scripted.Main(ctx, args, func(n string) (string, bool) { v, ok := env[n]; return v, ok }, io.Discard, &out)
	return code, out.String()
}

func variables() map[string]string {
	return map[string]string{"ANKKA_CLOUD_PROVIDER": "scripted", "ANKKA_CLOUD_ACCOUNT": "a", "ANKKA_CLOUD_LOCATION": "l", "ANKKA_CLOUD_KMS_KEY": "",
		"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND": "2m", "ANKKA_CLOUD_ROTATION_GRACE": "1h", provider.EnvInstallation: "id"}
}

// A provider that is not told something stops and names it.
func TestProviderSettings_C16_C17_C22_C148(t *testing.T) {
	for name := range variables() {
		env := variables()
		delete(env, name)
		if code, text := command(nil, env); code != 2 || !strings.Contains(text, name) {
			t.Errorf("without %s: %d %s", name, code, text)
		}
	}
	for name, value := range map[string]string{provider.EnvInstallation: "Not An Id", "ANKKA_CLOUD_ROTATION_GRACE": "soon", "ANKKA_CLOUD_PROVIDER": "none"} {
		env := variables()
		env[name] = value
		if code, text := command(nil, env); code != 2 || !strings.Contains(text, name) {
			t.Errorf("%s=%s: %d %s", name, value, code, text)
		}
	}
	env := variables()
	if _, err := provider.LoadSettings("gcp", func(n string) (string, bool) { v, ok := env[n]; return v, ok }); err == nil {
		t.Error("a provider of another name runs")
	}
	if code, text := command([]string{"--lie", "nothing"}, env); code == 0 {
		t.Errorf("%d %s", code, text)
	}
}

// A scripted provider reaches nothing but loopback for its account.
func TestScriptedReachesNoCloud_C133(t *testing.T) {
	for _, u := range []string{"http://example.com", "http://10.0.0.1:80", "https://127.0.0.1", "file:///x"} {
		if _, err := scripted.NewRemote(u); err == nil {
			t.Errorf("%s is taken", u)
		}
	}
	if _, err := scripted.NewRemote("http://127.0.0.1:1"); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text := command([]string{"--kubeconfig", file, "--account-listen", "0.0.0.0:0"}, variables()); code != 1 || !strings.Contains(text, "loopback") {
		t.Errorf("--account-listen 0.0.0.0:0: %d %s", code, text)
	}
}

// An account in a file goes on where it was.
func TestAccountFile_C134(t *testing.T) {
	path := filepath.Join(t.TempDir(), "account")
	r := provider.Request{Installation: "id", Subject: v1alpha1.Subject{Project: "p", Service: "s"}, Account: "a", Location: "l"}
	ask := v1alpha1.CredentialAsk{Bucket: "b", Identity: "i"}
	var first provider.Credential
	for i := range 2 {
		a, err := scripted.NewAccount(path)
		if err != nil {
			t.Fatal(err)
		}
		c := scripted.Cloud{Account: a}
		if l, err := c.ListCredentials(t.Context(), r, ask); err != nil || len(l) != i {
			t.Fatalf("start %d: %v, %v", i, l, err)
		}
		if i == 0 {
			if first, err = c.IssueCredential(t.Context(), r, ask); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := c.EndCredential(t.Context(), r, ask, first.ID); err != nil || len(a.Live("p")) != 0 {
			t.Errorf("%v, %v", err, a.Live("p"))
		}
		var events []string
		for _, e := range a.Records() {
			if e.Event != "call" {
				events = append(events, e.Event)
			}
		}
		if got := strings.Join(events, " "); got != "issued ended" {
			t.Errorf("C-134: recorded are %q", got)
		}
	}
	if text := first.String(); strings.Contains(text, first.SecretKey) {
		t.Errorf("a credential shows its key: %s", text)
	}
}

// The process is alive, ready once it has read the requests, measures with
// bounded labels, and ends with 0 on SIGTERM.
func TestProcess_Health(t *testing.T) {
	t.Parallel()
	s := newStage(t, -1)
	address := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	health, metrics := address(), address()
	s.args = []string{"--health-listen", health, "--metrics-listen", metrics}
	s.start()
	get := func(url string) (int, string) {
		r, err := http.Get(url) //nolint:noctx // a test's
		if err != nil {
			return 0, ""
		}
		defer r.Body.Close()
		raw, _ := io.ReadAll(r.Body)
		return r.StatusCode, string(raw)
	}
	x := &T{World: s.world, ctx: t.Context(), scenario: Scenario{Rules: []string{"C-66"}}}
	x.do(func(x *T) {
		x.eventually("health", "/readyz is ready", func() bool { code, _ := get("http://" + health + "/readyz"); return code == http.StatusOK })
		svc := x.service(x.project(), "reports")
		x.ready(x.identity(svc))
		x.refused("C-101", x.request(svc, "kind-of-a-stranger", nil), "not implemented")
		if code, _ := get("http://" + health + "/healthz"); code != http.StatusOK {
			t.Errorf("/healthz answers %d", code)
		}
		var text string
		for _, want := range []string{`radial_provider_answers_total{kind="identity",phase="Ready"} 1`, `radial_provider_answers_total{kind="unknown",phase="Failed"} 1`, `radial_provider_cloud_calls_total{call="ensure_identity",outcome="ok"} 1`} {
			// Counted once the API server has answered, which the watch may be ahead of.
			x.eventually("metrics", "/metrics holds "+want, func() bool { _, text = get("http://" + metrics + "/metrics"); return strings.Contains(text, want) })
		}
		for _, no := range []string{svc.Project, "stranger", svc.namespace()} {
			if strings.Contains(text, no) {
				t.Errorf("/metrics holds %q, which a request says", no)
			}
		}
		start := time.Now()
		s.Stop(t)
		t.Logf("ended %s after SIGTERM", time.Since(start).Round(time.Millisecond))
	})
	for _, f := range x.failures {
		t.Error(f)
	}
}
