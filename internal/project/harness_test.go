package project_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/internal/audit"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/cloud"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/project"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/store/sqlite"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	clustertest.Parallel(4)
	clustertest.Main(m)
}

// settings of an installation with everything in the cloud but project secrets.
func settings() cloud.Settings {
	return cloud.Settings{Provider: "gcp", Account: "acme-production", Location: "Europe-West2", KMSKey: "ring/key", AcknowledgementBound: time.Minute, RotationGrace: time.Hour,
		ObjectStorage: true, Backups: true, NamePrefix: "acme"}
}

// people have tokens that the cluster minted for ServiceAccounts of theirs.
var people = []string{"root", "ann", "bob", "mallory"}

// house is a control plane behind authentication, with the tokens of the shipped
// grants towards the cluster.
type house struct {
	*ankkatest.World
	t      *testing.T
	url    string
	tokens map[string]string
	audit  *records
	store  *sqlite.Store
	dir    string
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

// logged writes the server's log to the test's.
type logged struct {
	mu    sync.Mutex
	t     *testing.T
	ended bool
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func (l *logged) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

var numbers atomic.Int64

// unique is an id that no other test of the package has.
func unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, numbers.Add(1)) }

func start(t *testing.T, set cloud.Settings) *house {
	t.Helper()
	return startBehind(t, set, nil)
}

// startBehind is start of a control plane that reaches its cluster through what
// may be away.
func startBehind(t *testing.T, set cloud.Settings, away *outage) *house {
	t.Helper()
	w := ankkatest.Start(t)
	config := w.As(t, ankkatest.ControlPlane)
	if away != nil {
		config = away.through(t, config)
	}
	h := &house{World: w, t: t, tokens: map[string]string{}, audit: &records{}}
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cluster, err := kubernetes.NewForConfig(w.Config)
	must(err)
	namespace := unique("people")
	must(w.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	for _, name := range people {
		must(w.Admin.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}))
		r, err := cluster.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{auth.DefaultAudience}}}, metav1.CreateOptions{})
		must(err)
		h.tokens[name] = r.Status.Token
	}
	h.tokens["namespace"] = namespace

	dir := t.TempDir()
	h.dir = dir
	broker := feed.New()
	h.store, err = sqlite.Open(ctx, filepath.Join(dir, "radial.db"), sqlite.Options{Listener: broker.Publish})
	must(err)
	t.Cleanup(func() { _ = h.store.Close() })
	kek, err := seal.LoadOrCreateKey(filepath.Join(dir, "key"))
	must(err)
	sealer, err := seal.Open(ctx, h.store, kek)
	must(err)
	types := manifest.NewRegistry(manifest.Builtin()...)
	// The log ends with the test, before t does.
	log := &logged{t: t}
	t.Cleanup(log.end)
	s, err := server.New(ctx, server.Options{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo})), Store: h.store, Feed: broker, Sealer: sealer, Types: types,
		Installation: &project.Installation{Settings: set, Config: config, Cluster: "local"}})
	must(err)
	a, err := auth.NewAuthenticator(auth.AuthenticatorOptions{Cluster: cluster})
	must(err)
	root := auth.Principal{Kind: auth.KindServiceAccount, Name: namespace + "/root"}
	web := httptest.NewServer(auth.Handler(s, auth.Options{
		Authenticator: a, Assignments: auth.NewAssignments(h.store, broker, nil), Root: auth.NamedRoots([]auth.Principal{root}), Store: h.store,
		Audit: h.audit.add, Canonical: types.Canonical,
	}))
	h.url = web.URL
	work, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Work(work) })
	t.Cleanup(func() {
		s.Stop()
		web.Close()
		stop()
		running.Wait()
	})
	return h
}

// principal of one of the people.
func (h *house) principal(who string) string {
	return "serviceAccount:" + h.tokens["namespace"] + "/" + who
}

type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

// send sends as one of the people; "" sends no token.
func (h *house) send(who, method, path, body string, header ...string) answer {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	if who != "" {
		r.Header.Set("Authorization", "Bearer "+h.tokens[who])
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return h.do(r)
}

func (h *house) do(r *http.Request) answer {
	h.t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	d := json.NewDecoder(bytes.NewReader(raw))
	_ = d.Decode(&a.body)
	return a
}

// want sends and checks the status, and that the answer holds all parts.
func (h *house) want(status int, who, method, path, body string, parts ...string) answer {
	h.t.Helper()
	a := h.send(who, method, path, body)
	if a.status != status {
		h.t.Fatalf("%s: %s %s: %d, want %d: %s", who, method, path, a.status, status, a.raw)
	}
	for _, p := range parts {
		if !strings.Contains(a.raw, p) {
			h.t.Errorf("%s %s: the answer does not say %q: %s", method, path, p, a.raw)
		}
	}
	if status >= 400 && (a.body["status"] != float64(status) || a.body["error"] == "" || a.body["error"] == nil) && !strings.HasPrefix(path, "/planes") {
		h.t.Errorf("%s %s: no flat error: %s", method, path, a.raw)
	}
	return a
}

// organization makes one of ann's with bob as member, and a project in it.
func (h *house) organization() (organization, project string) {
	h.t.Helper()
	organization, project = unique("acme"), unique("shop")
	h.want(201, "root", "POST", "/organizations/"+organization, `{"displayName":"Acme","owner":"`+h.principal("ann")+`"}`)
	h.want(201, "ann", "POST", "/organizations/"+organization+"/members", `{"principal":"`+h.principal("bob")+`"}`)
	h.want(201, "bob", "POST", "/projects/"+project, `{"organization":"`+organization+`","displayName":"Shop","backups":true}`)
	return organization, project
}

// service is the AnkkaService of a project as the cluster holds it.
func (h *house) service(project, name string) *v1alpha1.AnkkaService {
	h.t.Helper()
	var a v1alpha1.AnkkaService
	if err := h.Admin.Get(h.t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(project), Name: name}, &a); err != nil {
		h.t.Fatal(err)
	}
	return &a
}

// await asks for a service, held by the server, until it is as it is wanted.
func (h *house) await(project, name string, ready func(body map[string]any) bool) map[string]any {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), ankkatest.Limit)
	defer cancel()
	etag, last := "", map[string]any(nil)
	for {
		a := func() answer {
			r, err := http.NewRequestWithContext(ctx, "GET", h.url+"/services/"+project+"/"+name, nil)
			if err != nil {
				h.t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+h.tokens["bob"])
			if etag != "" {
				r.Header.Set("If-None-Match", etag)
				r.Header.Set("Prefer", "wait=20")
			}
			return h.do(r)
		}()
		switch a.status {
		case 200:
			etag, last = a.header.Get("ETag"), a.body
			if ready(a.body) {
				return a.body
			}
		case 304:
		default:
			h.t.Fatalf("%d: %s", a.status, a.raw)
		}
		if ctx.Err() != nil {
			h.t.Fatalf("the service did not become as wanted: %v", last)
		}
	}
}

// report writes a status as the operator does, by its own token.
func (h *house) report(a *v1alpha1.AnkkaService, st v1alpha1.AnkkaServiceStatus) {
	h.t.Helper()
	operator := ankkatest.Connect(h.t, h.As(h.t, ankkatest.Operator))
	st.Generation, st.ObservedGeneration = a.Spec.Generation, a.Generation
	a.Status = st
	if err := operator.Status().Update(h.t.Context(), a); err != nil {
		h.t.Fatal(err)
	}
}

// remove deletes a service and waits until it is gone. The cluster takes its time
// for the first object of a kind that it has just learnt of.
func (h *house) remove(project, name string) {
	h.t.Helper()
	at := "/services/" + project + "/" + name
	a := h.send("bob", "DELETE", at, "")
	if a.status == 204 {
		return
	}
	if a.status != 202 {
		h.t.Fatalf("DELETE %s: %d %s", at, a.status, a.raw)
	}
	for deadline := time.Now().Add(ankkatest.Limit); ; {
		a := h.send("bob", "GET", at, "")
		if a.status == 200 {
			a = h.send("bob", "GET", at, "", "If-None-Match", a.header.Get("ETag"), "Prefer", "wait=20")
		}
		if a.status == 404 {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%s is still there: %d %s", at, a.status, a.raw)
		}
	}
}

func text(body map[string]any, path ...string) string {
	var v any = body
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	s, _ := v.(string)
	return s
}
