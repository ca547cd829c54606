package deployment_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientset "k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deployment"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/store/sqlite"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

const (
	ucp     = "?api-version=2023-10-01-preview"
	version = "?api-version=2025-04-01"
	group   = "/planes/radius/local/resourceGroups/default"
	all     = group + "/providers/Microsoft.Resources/deployments"
)

// plane is a control plane of one test on a cluster, with everything real but
// what recipes make.
type plane struct {
	*testing.T
	url       string
	dir       string
	namespace string
	client    clientset.Interface
	log       *clustertest.Buffer
	db        *sqlite.Store
	recipes   *scripted
	// engine runs recipes in the place of the scripted ones when it is set.
	engine dynamic.Recipes
	stop   func()
	// before sees the targets' calls.
	resolver extension.Resolver
	authz    func(ctx context.Context, who auth.Identity, act auth.Act) error
	// door, when set, asks who calls; token is sent where a test names none.
	// workers bounds the operations at a time; zero is the default.
	workers int
	// workless says that other processes run operations.
	workless bool
	// args and env are more of a server that is a process of its own.
	args, env []string
	door      func(db *sqlite.Store, broker *feed.Broker) auth.Options
	token     string
}

// scripted are recipes that make nothing, or what a test says.
type scripted struct {
	mu      sync.Mutex
	ran     []string
	execute func(ctx context.Context, r recipe.Request) (recipe.Result, error)
	// undo, when set, is what a deletion answers.
	undo func(r recipe.Request) error
}

func (s *scripted) Execute(ctx context.Context, r recipe.Request) (recipe.Result, error) {
	s.mu.Lock()
	s.ran = append(s.ran, r.Resource.ID.Name())
	do := s.execute
	s.mu.Unlock()
	if do != nil {
		return do(ctx, r)
	}
	return recipe.Result{Values: map[string]any{"host": r.Resource.ID.Name() + ".example"}, Secrets: map[string]any{"password": "made-for-" + r.Resource.ID.Name()}}, nil
}

func (s *scripted) Delete(_ context.Context, r recipe.Request) error {
	s.mu.Lock()
	undo := s.undo
	s.mu.Unlock()
	if undo != nil {
		return undo(r)
	}
	return nil
}

// newPlane makes a plane with an environment, and waits for nothing.
func newPlane(t *testing.T, change ...func(*plane)) *plane {
	t.Helper()
	cluster := clustertest.Start(t)
	client, err := clientset.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{T: t, dir: t.TempDir(), client: client, log: &clustertest.Buffer{}, recipes: &scripted{}, namespace: cluster.Namespace(t, "deploy")}
	p.resolver = scope.NewResolver(map[string]scope.Connect{
		"local": func(context.Context) (*kubernetes.Cluster, error) {
			return kubernetes.New("local", cluster.Config, kubernetes.Options{})
		},
	})
	for _, c := range change {
		c(p)
	}
	p.start()
	t.Cleanup(func() { p.stop() })
	p.must(200, "PUT", group+ucp, `{}`)
	p.must(200, "PUT", group+"/providers/Applications.Core/environments/default"+ucp,
		`{"properties":{"compute":{"kind":"kubernetes","namespace":"`+p.namespace+`"}}}`)
	return p
}

func (p *plane) start() {
	p.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	fail := func(err error) {
		cancel()
		p.Fatal(err)
	}
	broker := feed.New()
	db, err := sqlite.Open(ctx, filepath.Join(p.dir, "radial.db"), sqlite.Options{Listener: broker.Publish})
	if err != nil {
		fail(err)
	}
	p.db = db
	kek, err := seal.LoadOrCreateKey(filepath.Join(p.dir, "key"))
	if err != nil {
		fail(err)
	}
	sealer, err := seal.Open(ctx, db, kek)
	if err != nil {
		fail(err)
	}
	var decides atomic.Pointer[auth.Authorizer]
	if p.door != nil {
		p.authz = func(ctx context.Context, who auth.Identity, act auth.Act) error {
			return decides.Load().Allow(ctx, who, act)
		}
	}
	var recipes dynamic.Recipes = p.recipes
	if p.engine != nil {
		recipes = p.engine
	}
	s, err := server.New(ctx, server.Options{
		Store: db, Feed: broker, Sealer: sealer, Recipes: recipes, Workers: p.workers, Workless: p.workless, Loopback: p.door == nil, Log: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Deployments: server.DeploymentOptions{
			Resolver: p.resolver, Base: extension.Scope{Cluster: "local"}, Authorize: p.authz,
			Link: deployment.Links(deployment.LinkOptions{Developer: true, Fetcher: oci.New(oci.Options{AllowFiles: true})}),
		},
	})
	if err != nil {
		fail(err)
	}
	var h http.Handler = s
	if p.door != nil {
		o := p.door(db, broker)
		o.Canonical = s.Types().Canonical
		decides.Store(auth.NewAuthorizer(o))
		h = auth.Handler(s, o)
	}
	web := httptest.NewServer(h)
	p.url = web.URL
	var done sync.WaitGroup
	done.Go(func() { s.Work(ctx) })
	var once sync.Once
	p.stop = func() {
		once.Do(func() {
			s.Stop()
			web.Close()
			cancel()
			done.Wait()
			_ = db.Close()
		})
	}
}

type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

func (p *plane) send(method, path, body string, header ...string) answer {
	p.Helper()
	target := path
	if strings.HasPrefix(path, "/") {
		target = p.url + path
	}
	r, err := http.NewRequestWithContext(p.Context(), method, target, strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		p.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &a.body)
	return a
}

func (p *plane) must(status int, method, path, body string, header ...string) answer {
	p.Helper()
	a := p.send(method, path, body, header...)
	if a.status != status {
		p.Fatalf("%s %s: status %d, want %d: %s", method, path, a.status, status, a.raw)
	}
	return a
}

// begin sends a deployment, and returns the link to follow it by.
func (p *plane) begin(name, body string) string {
	p.Helper()
	a := p.send("PUT", all+"/"+name+version, body)
	if a.status != 201 && a.status != 200 {
		p.Fatalf("PUT %s: status %d: %s", name, a.status, a.raw)
	}
	link := a.header.Get("Azure-AsyncOperation")
	if link == "" {
		p.Fatalf("PUT %s: no Azure-AsyncOperation", name)
	}
	return link
}

// await waits for an operation and returns its last status.
func (p *plane) await(link string) answer {
	p.Helper()
	for range 12 {
		a := p.must(200, "GET", link, "", "Prefer", "wait=10")
		if core.State(text(a.body["status"])).Terminal() {
			return a
		}
	}
	p.Fatalf("the operation did not end: %s", link)
	return answer{}
}

// deploy runs a deployment to its end and answers its GET.
func (p *plane) deploy(name, body string, want core.State) answer {
	p.Helper()
	end := p.await(p.begin(name, body))
	a := p.must(200, "GET", all+"/"+name+version, "")
	if got := at(a.body, "properties", "provisioningState"); got != string(want) {
		p.Fatalf("deployment %s is %v, want %s: %s\noperation: %s", name, got, want, a.raw, end.raw)
	}
	return a
}

func text(v any) string { s, _ := v.(string); return s }

// at walks a JSON value by names and indices.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[step]
		case int:
			list, _ := v.([]any)
			if step >= len(list) {
				return nil
			}
			v = list[step]
		}
	}
	return v
}

// body is a PUT's body of a template and parameters.
func body(template string, parameters ...string) string {
	ps := make([]string, 0, len(parameters)/2)
	for i := 0; i+1 < len(parameters); i += 2 {
		ps = append(ps, fmt.Sprintf("%q:{\"value\":%s}", parameters[i], parameters[i+1]))
	}
	return `{"properties":{"mode":"Incremental","template":` + template + `,"parameters":{` + strings.Join(ps, ",") + `}}}`
}

const head = `"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","contentVersion":"1.0.0.0","languageVersion":"2.0"`

// k8s is an import of Kubernetes in the plane's namespace.
func (p *plane) k8s() string {
	return `"imports":{"k8s":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"` + p.namespace + `"}}}`
}

// file writes a file of the test.
func (p *plane) file(name, content string) string {
	p.Helper()
	path := filepath.Join(p.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		p.Fatal(err)
	}
	return path
}

// eventually waits for what a test has no signal for.
func (p *plane) eventually(what string, ok func() bool) {
	p.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			p.Fatal("it did not happen: " + what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
