// Package servertest gives a test a control plane of its own in the test's
// process: the real server on a real SQLite file behind a real socket. Only
// what a recipe makes is the test's: a [Recipe] says how one runs.
//
// A plane can be stopped and started again on the same address and file, which
// is how tests play an outage.
package servertest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/project"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// Plane is a control plane. Its methods may be called from any goroutine of
// the test.
type Plane struct {
	// URL is the base URL; it stays the same over Stop and Start.
	URL string
	// Recipes counts and steers the runs of recipes.
	Recipes *Recipes

	tb  testing.TB
	dir string
	// installation, when set, has the plane keep services.
	installation *project.Installation
	// change, when set, has the last word on what the server is made of.
	change func(*server.Options)
	// tls, when set, is what the plane serves by, and client whom it trusts.
	tls    *tls.Config
	client *http.Client

	mu   sync.Mutex
	addr string
	stop func()
	// requests are counted by "METHOD path".
	requests map[string]int
	// refuse, when set, answers a request in the server's place by true.
	refuse func(http.ResponseWriter, *http.Request) bool
	// answered, when set, is called after the server has handled a request and
	// before the answer is sent; true loses the answer.
	lose func(*http.Request) bool
}

// Start makes a plane with the environment "default" in group "default". It
// ends with the test.
func Start(tb testing.TB) *Plane {
	tb.Helper()
	return start(tb, &Plane{client: http.DefaultClient})
}

// StartServices is Start of a plane that keeps organizations, projects and
// services.
func StartServices(tb testing.TB, i project.Installation) *Plane {
	tb.Helper()
	return start(tb, &Plane{client: http.DefaultClient, installation: &i})
}

// StartWith is Start of a plane of which the test makes more than the recipes:
// change has the last word on what its server is made of, at every start.
func StartWith(tb testing.TB, change func(*server.Options)) *Plane {
	tb.Helper()
	return start(tb, &Plane{client: http.DefaultClient, change: change})
}

// StartTLS is Start of a plane that serves TLS, by a certificate that only its
// Client knows.
func StartTLS(tb testing.TB) *Plane {
	tb.Helper()
	model := httptest.NewTLSServer(nil)
	defer model.Close()
	return start(tb, &Plane{tls: &tls.Config{Certificates: model.TLS.Certificates}, client: model.Client()})
}

func start(tb testing.TB, p *Plane) *Plane {
	tb.Helper()
	p.tb, p.dir, p.Recipes, p.requests = tb, tb.TempDir(), newRecipes(), map[string]int{}
	p.Start()
	tb.Cleanup(p.Stop)
	p.Environment("default")
	return p
}

// Client reaches the plane.
func (p *Plane) Client() *http.Client { return p.client }

// Start starts a stopped plane.
func (p *Plane) Start() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		return
	}
	stop, err := p.start()
	if err != nil {
		p.tb.Fatalf("start the control plane: %v", err)
	}
	p.stop = stop
}

func (p *Plane) start() (func(), error) {
	ctx, cancel := context.WithCancel(context.Background())
	broker := feed.New()
	db, err := sqlite.Open(ctx, filepath.Join(p.dir, "radial.db"), sqlite.Options{Listener: broker.Publish})
	if err != nil {
		cancel()
		return nil, err
	}
	fail := func(err error) (func(), error) {
		cancel()
		return nil, errors.Join(err, db.Close())
	}
	kek, err := seal.LoadOrCreateKey(filepath.Join(p.dir, "key"))
	if err != nil {
		return fail(err)
	}
	sealer, err := seal.Open(ctx, db, kek)
	if err != nil {
		return fail(err)
	}
	o := server.Options{Store: db, Feed: broker, Sealer: sealer, Recipes: p.Recipes, Installation: p.installation}
	if p.change != nil {
		p.change(&o)
	}
	s, err := server.New(ctx, o)
	if err != nil {
		return fail(err)
	}
	addr := p.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fail(err)
	}
	p.addr = l.Addr().String()
	p.URL = "http://" + p.addr
	if p.tls != nil {
		l, p.URL = tls.NewListener(l, p.tls), "https://"+p.addr
	}
	h := &http.Server{Handler: p.observe(s)}
	var done sync.WaitGroup
	done.Go(func() { s.Work(ctx) })
	done.Go(func() { _ = h.Serve(l) })
	return func() {
		s.Stop()
		_ = h.Close()
		cancel()
		done.Wait()
		_ = db.Close()
	}, nil
}

// Stop cuts every connection and stops the plane. State stays.
func (p *Plane) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// observe counts requests and plays faults.
func (p *Plane) observe(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.requests[r.Method+" "+r.URL.Path]++
		refuse, lose := p.refuse, p.lose
		p.mu.Unlock()
		if refuse != nil && refuse(w, r) {
			return
		}
		if lose != nil && lose(r) {
			h.ServeHTTP(discard{http.Header{}}, r)
			panic(http.ErrAbortHandler) // the connection breaks, the work is done
		}
		h.ServeHTTP(w, r)
	})
}

type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// Refuse answers the requests for which f returns true in the server's place;
// nil ends it.
func (p *Plane) Refuse(f func(http.ResponseWriter, *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = f
}

// Lose handles the requests for which f returns true and then breaks the
// connection, so that their answer is lost; nil ends it.
func (p *Plane) Lose(f func(*http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = f
}

// Requests counts the requests with a method whose path contains part.
func (p *Plane) Requests(method, part string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for k, c := range p.requests {
		m, path, _ := strings.Cut(k, " ")
		if m == method && strings.Contains(strings.ToLower(path), strings.ToLower(part)) {
			n += c
		}
	}
	return n
}

// Writes counts the requests that change something.
func (p *Plane) Writes() int {
	return p.Requests("PUT", "") + p.Requests("PATCH", "") + p.Requests("DELETE", "")
}

// Put writes a resource as an administrator would and waits for its end.
func (p *Plane) Put(id string, apiVersion, body string) {
	p.tb.Helper()
	r := p.do(http.MethodPut, id, apiVersion, body)
	defer r.Body.Close()
	if r.StatusCode >= 300 {
		var e json.RawMessage
		_ = json.NewDecoder(r.Body).Decode(&e)
		p.tb.Fatalf("PUT %s: %s: %s", id, r.Status, e)
	}
}

// Delete deletes a resource as an administrator would.
func (p *Plane) Delete(id, apiVersion string) {
	p.tb.Helper()
	r := p.do(http.MethodDelete, id, apiVersion, "")
	r.Body.Close()
	if r.StatusCode >= 300 {
		p.tb.Fatalf("DELETE %s: %s", id, r.Status)
	}
}

func (p *Plane) do(method, id, apiVersion, body string) *http.Response {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	p.tb.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, p.URL+id+"?api-version="+apiVersion, strings.NewReader(body))
	if err != nil {
		p.tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	r, err := p.client.Do(req)
	if err != nil {
		p.tb.Fatal(err)
	}
	return r
}

// APIVersion is that of the types of Applications.*.
const APIVersion = "2023-10-01-preview"

// EnvironmentID is the id of an environment of group default.
func EnvironmentID(name string) string {
	return core.GroupID("default").Resource("Applications.Core/environments", name).String()
}

// Environment makes an environment, open to every namespace, in group default.
func (p *Plane) Environment(name string) {
	p.tb.Helper()
	p.Put(core.GroupID("default").String(), APIVersion, `{}`)
	p.Put(EnvironmentID(name), APIVersion, `{"location":"global","properties":{
		"compute":{"kind":"kubernetes","namespace":"radial-test"},"allowedNamespaces":["*"]}}`)
}

// Recipes stands where the engine stands: it is called by the real workers.
type Recipes struct {
	mu      sync.Mutex
	execute func(context.Context, recipe.Request) (recipe.Result, error)
	remove  func(context.Context, recipe.Request) error
	runs    map[string]int
	deletes map[string]int
}

func newRecipes() *Recipes {
	return &Recipes{runs: map[string]int{}, deletes: map[string]int{}}
}

// Result is what a run answers unless OnExecute says otherwise.
func Result() recipe.Result {
	return recipe.Result{
		Values:  map[string]any{"host": "redis.example", "port": 6379},
		Secrets: map[string]any{"password": "hunter2", "url": "redis://:hunter2@redis.example:6379"},
	}
}

// OnExecute says how recipes run from now on; nil is the default.
func (r *Recipes) OnExecute(f func(context.Context, recipe.Request) (recipe.Result, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.execute = f
}

// OnDelete says how deletions run from now on; nil is the default.
func (r *Recipes) OnDelete(f func(context.Context, recipe.Request) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove = f
}

// Runs counts the runs for a resource.
func (r *Recipes) Runs(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs[strings.ToLower(id)]
}

// Deletes counts the deletions of a resource.
func (r *Recipes) Deletes(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deletes[strings.ToLower(id)]
}

// Execute is called by a worker.
func (r *Recipes) Execute(ctx context.Context, req recipe.Request) (recipe.Result, error) {
	r.mu.Lock()
	r.runs[req.Resource.ID.Key()]++
	f := r.execute
	r.mu.Unlock()
	if f != nil {
		return f(ctx, req)
	}
	return Result(), nil
}

// Delete is called by a worker.
func (r *Recipes) Delete(ctx context.Context, req recipe.Request) error {
	r.mu.Lock()
	r.deletes[req.Resource.ID.Key()]++
	f := r.remove
	r.mu.Unlock()
	if f != nil {
		return f(ctx, req)
	}
	return nil
}
