// Package plane puts the real control plane together for tests that break it:
// the rooms that radial-server wires (store, sealing, types, recipes, server,
// workers) behind a real socket, in this process or in a child process that can
// be killed, with a seam at the store that the program itself does not have.
package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/internal/container"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/recipe/template"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/store"
)

// Config says what a plane is made of.
type Config struct {
	// Store is the path of a SQLite file, or the URL of a PostgreSQL database.
	Store string
	// KeyFile protects the keyset; replicas of one database share it.
	KeyFile string
	// Kubeconfig names the cluster that recipes are run against. Without it
	// the recipes are a [Gate].
	Kubeconfig string
	// GateTime is how long a run of the gate takes once it is open.
	GateTime time.Duration
	// Lease and Workers as in the server's options.
	Lease   time.Duration
	Workers int
	// Verbose logs to standard error.
	Verbose bool
}

// Plane is a running control plane.
type Plane struct {
	URL   string
	Store store.Store
	// Gate is where recipes wait, nil when they run against a cluster.
	Gate *Gate

	stop func()
}

// Stop ends the plane as a shutdown does.
func (p *Plane) Stop() { p.stop() }

// Start runs a plane in this process. wrap, if not nil, stands between the
// server and its store.
func Start(ctx context.Context, c Config, wrap func(store.Store) store.Store) (_ *Plane, err error) {
	log := slog.New(slog.DiscardHandler)
	if c.Verbose {
		log = slog.Default()
	}
	broker := feed.New()
	kept, err := open(ctx, c.Store, broker.Publish, broker.Hint)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, kept.Close())
		}
	}()
	key, err := seal.LoadOrCreateKey(c.KeyFile)
	if err != nil {
		return nil, err
	}
	sealer, err := seal.Open(ctx, kept, key)
	if err != nil {
		return nil, err
	}
	st := kept
	if wrap != nil {
		st = wrap(kept)
	}
	p := &Plane{Store: kept}
	types := manifest.NewRegistry(manifest.Builtin()...)
	var recipes dynamic.Recipes
	if c.Kubeconfig == "" {
		p.Gate = NewGate(c.GateTime)
		recipes = p.Gate
	} else if recipes, err = engine(c, st, types); err != nil {
		return nil, err
	}
	s, err := server.New(ctx, server.Options{
		Store: st, Feed: broker, Sealer: sealer, Recipes: recipes, Types: types,
		Log: log, Workers: c.Workers, Lease: c.Lease, Loopback: true,
	})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.URL = "http://" + listener.Addr().String()
	web := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { _ = web.Serve(listener) })
	running.Go(func() { s.Work(work) })
	p.stop = sync.OnceFunc(func() {
		s.Stop()
		_ = web.Close()
		cancel()
		running.Wait()
		_ = kept.Close()
	})
	return p, nil
}

// engine runs templates from files against the cluster of the kubeconfig.
func engine(c Config, st store.Reader, types *manifest.Registry) (*recipe.Engine, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", c.Kubeconfig, err)
	}
	config.QPS = -1
	resolver := scope.NewResolver(map[string]scope.Connect{core.LocalCluster: func(context.Context) (*kubernetes.Cluster, error) {
		return kubernetes.New(core.LocalCluster, config, kubernetes.Options{})
	}})
	driver := template.New(template.Options{
		Fetcher: oci.New(oci.Options{AllowFiles: true}), Resolver: resolver, Now: time.Now, NewGUID: uuid.NewString,
	})
	return recipe.NewEngine(recipe.Options{
		Drivers:  map[string]recipe.Driver{"template": driver},
		Rendered: container.Drivers(container.NewRenderer(container.RendererOptions{Resolver: resolver})), Canonical: types.Canonical, Cluster: core.LocalCluster,
		Load: func(ctx context.Context, id core.ID) (core.Resource, error) {
			r, _, err := st.Get(ctx, id)
			return r, err
		},
	}), nil
}

// Gate stands where the recipe engine stands: runs wait until it is opened, and
// then take their time. So as many operations are in flight as a test wants.
type Gate struct {
	open chan struct{}
	once sync.Once
	time time.Duration
}

// NewGate returns a closed gate.
func NewGate(d time.Duration) *Gate { return &Gate{open: make(chan struct{}), time: d} }

// Open lets all runs pass, those that wait and those to come.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// Execute implements [dynamic.Recipes].
func (g *Gate) Execute(ctx context.Context, _ recipe.Request) (recipe.Result, error) {
	if err := g.pass(ctx); err != nil {
		return recipe.Result{}, err
	}
	return recipe.Result{Values: map[string]any{"host": "made.example"}}, nil
}

// Delete implements [dynamic.Recipes].
func (g *Gate) Delete(ctx context.Context, _ recipe.Request) error { return g.pass(ctx) }

func (g *Gate) pass(ctx context.Context) error {
	select {
	case <-g.open:
	case <-ctx.Done():
		return ctx.Err()
	}
	if g.time == 0 {
		return nil
	}
	work := time.NewTimer(g.time) // what a cloud takes, not a wait for an event
	defer work.Stop()
	select {
	case <-work.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
