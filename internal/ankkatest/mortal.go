package ankkatest

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/clustertest"
)

// Behind stands before the API server: each call of an account comes to serve,
// which hands it on by next. It answers the path of the account's kubeconfig.
func (w *World) Behind(tb testing.TB, a Account, serve func(next http.Handler, w http.ResponseWriter, r *http.Request)) (kubeconfig string) {
	tb.Helper()
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(w.Config))
	if err != nil {
		tb.Fatal(err)
	}
	target, err := url.Parse(w.Config.Host)
	if err != nil {
		tb.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	// Without TLS no token would be sent.
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(proxy, w, r) }))
	tb.Cleanup(api.CloseClientConnections)
	c := w.As(tb, a)
	c.Host, c.CAFile = api.URL, ""
	c.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	kubeconfig = filepath.Join(tb.TempDir(), "kubeconfig")
	clustertest.WriteKubeconfig(tb, kubeconfig, c)
	return kubeconfig
}

// Mortal is a provider's process that dies at one of its calls: those to its
// cloud, and what it writes of a credential to the API server. Whoever stands in
// their way names each by [Mortal.Point], before it is carried out and after.
type Mortal struct {
	// Output is all that its processes have said.
	Output clustertest.Buffer
	// Spared is that the process lives, and only the answer is lost. Set it
	// before [Mortal.Arm].
	Spared bool

	mu      sync.Mutex
	process *process
	// armed counts the points from then on; at point kill the process dies.
	armed  bool
	kill   int
	points []string
	died   chan struct{}
}

type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// NewMortal is one without a process.
func NewMortal() *Mortal { return &Mortal{died: make(chan struct{})} }

// Start starts a process; it is killed at the test's end.
func (m *Mortal) Start(tb testing.TB, cmd *exec.Cmd) error {
	cmd.Stdout, cmd.Stderr = &m.Output, &m.Output
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{cmd, make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.ended) }()
	m.mu.Lock()
	m.process = p
	m.mu.Unlock()
	tb.Cleanup(func() { _ = cmd.Process.Kill(); <-p.ended })
	return nil
}

// Stop ends it gracefully.
func (m *Mortal) Stop(tb testing.TB) {
	tb.Helper()
	m.mu.Lock()
	p := m.process
	m.mu.Unlock()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		tb.Fatalf("the provider exits %d on SIGTERM:\n%s", code, m.Output.String())
	}
}

// Arm begins to count points, and has the process die at the one of this number,
// from 0; below 0 at none.
func (m *Mortal) Arm(kill int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.armed, m.kill = true, kill
}

// Died is closed when its point came.
func (m *Mortal) Died() <-chan struct{} { return m.died }

// Points are those that came since [Mortal.Arm].
func (m *Mortal) Points() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.points)
}

// Point is one moment; it answers whether the process was killed at it.
func (m *Mortal) Point(what string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.armed {
		return false
	}
	m.points = append(m.points, what)
	if len(m.points)-1 != m.kill {
		return false
	}
	if !m.Spared {
		_ = m.process.cmd.Process.Kill()
		<-m.process.ended
	}
	close(m.died)
	return true
}

// Between carries a call out between its two points. An answer whose process is
// gone, or that is to be lost, is not given.
func (m *Mortal) Between(what string, w http.ResponseWriter, do func(http.ResponseWriter)) {
	if m.Point("before " + what) {
		panic(http.ErrAbortHandler)
	}
	rec := httptest.NewRecorder()
	do(rec)
	if m.Point("after " + what) {
		panic(http.ErrAbortHandler)
	}
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

// WritesCredential is whether a call of the API server writes a request for a
// credential, or a Secret.
func WritesCredential(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return strings.Contains(r.URL.Path, "-storage-credential") || strings.Contains(r.URL.Path, "/secrets")
	}
	return false
}
