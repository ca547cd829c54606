package auth_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/audit"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/auth/aggregation"
	"github.com/radial-project/radial/internal/auth/serving"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/store/sqlite"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

const (
	plane   = "/planes/radius/local"
	shop    = plane + "/resourceGroups/shop"
	bank    = plane + "/resourceGroups/bank"
	version = "?api-version=2023-10-01-preview"
	roles   = "/providers/System.Authorization/roleAssignments/"
)

// front is a whole control plane behind authentication: real store, real
// server, a real TLS listener, and the cluster of the tests where it has one.
type front struct {
	t     *testing.T
	url   string
	port  int
	own   *serving.Own
	log   *clustertest.Buffer
	audit *records
	store *sqlite.Store
}

type records struct {
	mu   sync.Mutex
	list []audit.Record
}

func (r *records) add(one audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, one)
}

func (r *records) all() []audit.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]audit.Record(nil), r.list...)
}

// clusterOf returns the cluster of the tests and a client of its administrator.
func clusterOf(t *testing.T) (*clustertest.Cluster, kubernetes.Interface) {
	t.Helper()
	c := clustertest.Start(t)
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	return c, client
}

// start puts a control plane up. roots are root beside whom the cluster makes.
func start(t *testing.T, cluster kubernetes.Interface, o auth.AuthenticatorOptions, roots ...auth.Principal) *front {
	t.Helper()
	return startAs(t, []string{"127.0.0.1", "localhost"}, cluster, o, roots...)
}

// startAs is start under names of one's own.
func startAs(t *testing.T, names []string, cluster kubernetes.Interface, o auth.AuthenticatorOptions, roots ...auth.Principal) *front {
	t.Helper()
	ctx := t.Context()
	f := &front{t: t, log: &clustertest.Buffer{}, audit: &records{}}
	log := slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	broker := feed.New()
	db, err := sqlite.Open(ctx, filepath.Join(dir, "radial.db"), sqlite.Options{Listener: broker.Publish})
	must(err)
	t.Cleanup(func() { _ = db.Close() })
	f.store = db
	key, err := seal.LoadOrCreateKey(filepath.Join(dir, "key"))
	must(err)
	sealer, err := seal.Open(ctx, db, key)
	must(err)
	types := manifest.NewRegistry(manifest.Builtin()...)
	s, err := server.New(ctx, server.Options{Store: db, Feed: broker, Sealer: sealer, Types: types, Log: log})
	must(err)

	reviews := []auth.Review{auth.NamedRoots(roots)}
	if cluster != nil {
		o.Cluster = cluster
		trust, err := auth.TrustOf(ctx, cluster, log)
		must(err)
		following, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { trust.Run(following) })
		t.Cleanup(func() { stop(); running.Wait() })
		o.Proxies, o.Authorities = append(o.Proxies, trust.Proxies...), append(o.Authorities, trust.Authorities...)
		review, err := auth.ClusterReview(cluster, 50*time.Millisecond)
		must(err)
		reviews = append(reviews, review)
	}
	o.Log = log
	a, err := auth.NewAuthenticator(o)
	must(err)
	handler := auth.Handler(aggregation.Handler(s), auth.Options{
		Authenticator: a, Assignments: auth.NewAssignments(db, broker, nil), Root: auth.AnyReview(reviews...), Store: db,
		Audit: f.audit.add, Canonical: types.Canonical, Log: log,
	})
	f.own, err = serving.OpenOwn(ctx, serving.OwnOptions{Keep: serving.DirKeep{Dir: filepath.Join(dir, "tls")}, Names: names})
	must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	f.port = listener.Addr().(*net.TCPAddr).Port
	f.url = "https://" + listener.Addr().String()
	web := &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	work, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Work(work) })
	running.Go(func() { _ = web.Serve(tls.NewListener(listener, serving.Config(f.own))) })
	t.Cleanup(func() {
		s.Stop()
		_ = web.Close()
		stop()
		running.Wait()
	})
	return f
}

// caller is somebody with a client of their own.
type caller struct {
	f      *front
	client *http.Client
	header http.Header
}

func (f *front) caller(certs ...tls.Certificate) *caller {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(f.own.Bundle())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certs}}
	f.t.Cleanup(transport.CloseIdleConnections)
	return &caller{f: f, client: &http.Client{Transport: transport}, header: http.Header{}}
}

func (f *front) bearer(token string) *caller {
	c := f.caller()
	c.header.Set("Authorization", "Bearer "+token)
	return c
}

// admin is the cluster's administrator, by client certificate.
func (f *front) admin(config *rest.Config) *caller {
	f.t.Helper()
	cert, key := config.CertData, config.KeyData
	if len(cert) == 0 {
		cert, key = read(f.t, config.CertFile), read(f.t, config.KeyFile)
	}
	return f.caller(pair(f.t, cert, key))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func pair(t *testing.T, cert, key []byte) tls.Certificate {
	t.Helper()
	p, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

type answer struct {
	status int
	header http.Header
	body   map[string]any
	raw    string
}

func (a answer) message() string {
	e, _ := a.body["error"].(map[string]any)
	m, _ := e["message"].(string)
	return m
}

func (c *caller) send(method, path, body string, header ...string) answer {
	c.f.t.Helper()
	if !strings.Contains(path, "?") {
		path += version
	}
	r, err := http.NewRequestWithContext(c.f.t.Context(), method, c.f.url+path, strings.NewReader(body))
	if err != nil {
		c.f.t.Fatal(err)
	}
	r.Header = c.header.Clone()
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.client.Do(r)
	if err != nil {
		c.f.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		c.f.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &a.body)
	return a
}

// want sends and checks the status, and that the message holds all parts.
func (c *caller) want(status int, method, path, body string, parts ...string) answer {
	c.f.t.Helper()
	a := c.send(method, path, body)
	c.f.check(a, status, method+" "+path, parts...)
	return a
}

func (f *front) check(a answer, status int, what string, parts ...string) {
	f.t.Helper()
	if a.status != status {
		f.t.Fatalf("%s: %d, want %d: %s", what, a.status, status, a.raw)
	}
	for _, p := range parts {
		if !strings.Contains(a.message(), p) {
			f.t.Errorf("%s: the message does not say %q: %s", what, p, a.message())
		}
	}
}

// give assigns a role by root.
func (c *caller) give(scope, name, principal, role string, more ...string) {
	c.f.t.Helper()
	kind, who, _ := strings.Cut(principal, ":")
	p := map[string]any{"principal": map[string]string{"kind": kind, "name": who}, "role": role}
	for i := 0; i < len(more); i += 2 {
		p[more[i]] = more[i+1]
	}
	body, err := json.Marshal(map[string]any{"properties": p})
	if err != nil {
		c.f.t.Fatal(err)
	}
	c.want(200, "PUT", scope+roles+name, string(body))
}

// account makes a ServiceAccount with a token for an audience.
func account(t *testing.T, client kubernetes.Interface, namespace, name string, audiences ...string) string {
	t.Helper()
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return token(t, client, namespace, name, audiences...)
}

func token(t *testing.T, client kubernetes.Interface, namespace, name string, audiences ...string) string {
	t.Helper()
	r, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}
