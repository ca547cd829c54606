package canary

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

const (
	limit   = 90 * time.Second
	prefix  = "/apis/api.ucp.dev/v1alpha3"
	plane   = "/planes/radius/local"
	group   = plane + "/resourceGroups/canary"
	ucp     = "2023-10-01-preview"
	version = "2025-08-01-preview"
)

// system is a control plane of real processes: radial-server on SQLite and
// radial-controller, at log level debug, with everything they say kept.
type system struct {
	t       *testing.T
	dir     string
	cluster *clustertest.Cluster
	ns      string
	url     string
	// answers are all HTTP answers but those of listSecrets; logs what both
	// processes wrote; traces what they exported.
	mu      sync.Mutex
	answers bytes.Buffer
	logs    bytes.Buffer
	traces  bytes.Buffer
	server  *exec.Cmd
	// env is what every process is started with; client asks the server.
	env    []string
	client *http.Client
}

// locked writes to a buffer that several goroutines write to.
type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func start(t *testing.T) *system {
	t.Helper()
	i := &system{t: t, dir: t.TempDir(), cluster: clustertest.Start(t), client: http.DefaultClient}
	i.ns = i.cluster.Namespace(t, "canary")
	traces := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			if z, err := gzip.NewReader(r.Body); err == nil {
				body = z
			}
		}
		raw, _ := io.ReadAll(body)
		_, _ = locked{&i.mu, &i.traces}.Write(raw)
	}))
	t.Cleanup(traces.Close)
	kubeconfig := filepath.Join(i.dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, kubeconfigOf(t, i.cluster.Config), 0o600); err != nil {
		t.Fatal(err)
	}
	i.env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+traces.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
		"OTEL_BSP_SCHEDULE_DELAY=200", "OTEL_TRACES_SAMPLER=always_on")
	i.install()
	ready := filepath.Join(i.dir, "ready")
	i.server = i.process(i.env, "radial-server", "--developer-mode", "--listen", "127.0.0.1:0", "--store", filepath.Join(i.dir, "radial.db"),
		"--key-file", filepath.Join(i.dir, "key"), "--kubeconfig", kubeconfig, "--ready-file", ready, "--log-level", "debug", "--log-format", "json")
	i.eventually("radial-server answers", func() bool {
		raw, err := os.ReadFile(ready)
		i.url = strings.TrimSpace(string(raw))
		return err == nil && i.url != ""
	})
	i.process(i.env, "radial-controller", "--kubeconfig", kubeconfig, "--server", i.url, "--health-listen", "0", "--metrics-listen", "0", "--log-level", "debug")
	return i
}

// guard starts the server on the same store once more, as it stands in a
// cluster: with TLS and an audit log, for the cluster's administrator, whom the
// client is from now on; nobody has no certificate. It works on nothing, so that
// operations wait.
func (i *system) guard() (nobody *http.Client) {
	i.t.Helper()
	ready, tlsDir := filepath.Join(i.dir, "guarded"), filepath.Join(i.dir, "tls")
	i.server = i.process(i.env, "radial-server", "--workers=false", "--listen", "127.0.0.1:0", "--store", filepath.Join(i.dir, "radial.db"),
		"--key-file", filepath.Join(i.dir, "key"), "--kubeconfig", filepath.Join(i.dir, "kubeconfig"), "--ready-file", ready, "--log-level", "debug", "--log-format", "json",
		"--metrics-listen", "0", "--tls-self-made", tlsDir, "--audit-file", i.auditFile())
	i.eventually("the guarded radial-server answers", func() bool {
		raw, err := os.ReadFile(ready)
		i.url = strings.TrimSpace(string(raw))
		return err == nil && i.url != ""
	})
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(tlsDir, "ca.crt"))
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		i.t.Fatalf("no authority: %v", err)
	}
	own, err := rest.TLSConfigFor(i.cluster.Config)
	if err != nil {
		i.t.Fatal(err)
	}
	client := func(c *tls.Config) *http.Client {
		transport := &http.Transport{TLSClientConfig: c}
		i.t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	i.client = client(&tls.Config{RootCAs: pool, Certificates: own.Certificates, GetClientCertificate: own.GetClientCertificate})
	return client(&tls.Config{RootCAs: pool})
}

func (i *system) auditFile() string { return filepath.Join(i.dir, "audit.log") }

func kubeconfigOf(t *testing.T, c *rest.Config) []byte {
	t.Helper()
	raw, err := clustertest.Kubeconfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// process starts one of the repository's programs until the test ends.
func (i *system) process(env []string, name string, args ...string) *exec.Cmd {
	i.t.Helper()
	cmd := exec.Command(clustertest.Program(i.t, name), args...)
	cmd.Env = env
	cmd.Stdout = locked{&i.mu, &i.logs}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		i.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	i.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
		if i.t.Failed() {
			i.mu.Lock()
			defer i.mu.Unlock()
			tail := i.logs.Bytes()
			i.t.Logf("logs end with:\n%s", tail[max(0, len(tail)-6000):])
		}
	})
	return cmd
}

// stop ends the server in order, so that its files are as it leaves them.
func (i *system) stop() {
	i.t.Helper()
	_ = i.server.Process.Signal(syscall.SIGTERM)
	i.eventually("radial-server ends", func() bool { return syscall.Kill(i.server.Process.Pid, 0) != nil })
}

func (i *system) eventually(what string, f func() bool) {
	i.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(limit); !f(); {
		select {
		case <-tick.C:
		case <-deadline:
			i.t.Fatalf("%s: not within %s", what, limit)
		}
	}
}

type answer struct {
	status int
	header http.Header
	raw    string
}

func (a answer) json() map[string]any {
	var out map[string]any
	_ = json.Unmarshal([]byte(a.raw), &out)
	return out
}

// send sends a request and keeps the answer for the scan.
func (i *system) send(method, path, apiVersion string, body any, header ...string) answer {
	i.t.Helper()
	a := i.secretly(method, path, apiVersion, body, header...)
	i.mu.Lock()
	defer i.mu.Unlock()
	fmt.Fprintf(&i.answers, "%s %s %d %v\n%s\n", method, path, a.status, a.header, a.raw)
	return a
}

// secretly is send of what may answer secrets.
func (i *system) secretly(method, path, apiVersion string, body any, header ...string) answer {
	i.t.Helper()
	url := path
	if strings.HasPrefix(path, "/") {
		url = i.url + prefix + path
	}
	if apiVersion != "" && !strings.Contains(url, "api-version=") {
		url += map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")] + "api-version=" + apiVersion
	}
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			i.t.Fatal(err)
		}
		reader = bytes.NewReader(raw)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, reader)
	if err != nil {
		i.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	resp, err := i.client.Do(r)
	if err != nil {
		i.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(raw)}
}

// write sends a write, waits for its operation, and returns its state. What is
// known of the operation is asked for too, so that it is scanned.
func (i *system) write(method, path, apiVersion string, body any) string {
	i.t.Helper()
	a := i.send(method, path, apiVersion, body)
	if a.status >= 300 {
		i.t.Fatalf("%s %s: %d %s", method, path, a.status, a.raw)
	}
	return i.await(a)
}

// await waits for the operation that an answer started, and returns its state.
func (i *system) await(a answer) string {
	i.t.Helper()
	at := a.header.Get("Azure-AsyncOperation")
	if at == "" {
		return "Succeeded"
	}
	for {
		s := i.send("GET", at, "", nil, "Prefer", "wait=20")
		state, _ := s.json()["status"].(string)
		if state == "Succeeded" || state == "Failed" || state == "Canceled" {
			base, _, _ := strings.Cut(at, "?")
			i.send("GET", base+"/messages", ucp, nil)
			i.send("GET", strings.Replace(base, "perationStatuses", "perationResults", 1), ucp, nil)
			return state
		}
		if s.status >= 300 {
			i.t.Fatalf("operation %s: %d %s", at, s.status, s.raw)
		}
	}
}

// follow keeps the change stream until the test ends.
func (i *system) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	i.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", i.url+"/watch/changes", nil)
	if err != nil {
		i.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		i.t.Fatal(err)
	}
	go func() {
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			_, _ = locked{&i.mu, &i.answers}.Write(append([]byte("change "), append(lines.Bytes(), '\n')...))
		}
	}()
}
