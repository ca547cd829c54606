package server_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/pgtest"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/postgres"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// Options of an Instance; the zero value serves.
type Options struct {
	// Dir holds store and key; "" is a directory of the test. Starting another
	// Instance on the same Dir after Stop resumes the same state.
	Dir string
	// Recipes runs recipes; nil fails every test that runs one.
	Recipes dynamic.Recipes
	// NoWorkers leaves operations waiting.
	NoWorkers bool
	// Workers bounds the operations at a time.
	Workers int
	// Lease of operations.
	Lease time.Duration
	// Deadline of operations.
	Deadline time.Duration
	// RecipeDeadline of one run.
	RecipeDeadline time.Duration
	// Keys say how keysets are looked after.
	Keys server.KeyOptions
	Log  *slog.Logger
	// Beside shares store and feed with another Instance, as a second process on
	// one store does.
	Beside *Instance
	// Wrap, if set, stands between the server and its store.
	Wrap func(store.Store) store.Store
}

// Instance is a running control plane.
type Instance struct {
	// URL is the base URL, http://127.0.0.1:port.
	URL    string
	Dir    string
	Server *server.Server
	Store  store.Store
	Feed   *feed.Broker
	Sealer *seal.Sealer

	stop func()
}

// onPostgres says on which store the tests run: on both, one after the other.
var onPostgres bool

// TestMain runs every test twice: on SQLite and on PostgreSQL. A plain go test is
// content with the first: that the stores do the same is what storetest proves.
func TestMain(m *testing.M) {
	code := m.Run()
	if clustertest.Whole() {
		onPostgres = true
		code = max(code, m.Run())
	}
	pgtest.Stop()
	os.Exit(code)
}

// database is the database of a directory: made with its first instance.
func database(tb testing.TB, dir string) string {
	tb.Helper()
	at := filepath.Join(dir, "database")
	if dsn, err := os.ReadFile(at); err == nil {
		return string(dsn)
	}
	dsn := pgtest.Database(tb)
	if err := os.WriteFile(at, []byte(dsn), 0o600); err != nil {
		tb.Fatal(err)
	}
	return dsn
}

// startInstance runs a whole control plane inside the test (a real HTTP server
// on loopback, a real store, real workers) until the test ends or Stop is called.
func startInstance(tb testing.TB, o Options) *Instance {
	tb.Helper()
	if o.Beside != nil {
		o.Dir = o.Beside.Dir
	}
	if o.Dir == "" {
		o.Dir = tb.TempDir()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(tb.Output(), nil))
	}
	ctx, cancel := context.WithCancel(context.Background())
	broker := feed.New()
	var kept store.Store
	var err error
	own := true
	switch {
	case onPostgres:
		kept, err = postgres.Open(ctx, database(tb, o.Dir), postgres.Options{Listener: broker.Publish})
	case o.Beside != nil:
		// One SQLite file is one process's: the second one is played by a second
		// server on the same open store.
		broker, kept, own = o.Beside.Feed, o.Beside.Store, false
	default:
		kept, err = sqlite.Open(ctx, filepath.Join(o.Dir, "radial.db"), sqlite.Options{Listener: broker.Publish})
	}
	if err != nil {
		tb.Fatalf("open the store: %v", err)
	}
	key, err := seal.LoadOrCreateKey(filepath.Join(o.Dir, "key"))
	if err != nil {
		tb.Fatalf("make the key: %v", err)
	}
	sealer, err := seal.Open(ctx, kept, key)
	if err != nil {
		tb.Fatalf("open the keyset: %v", err)
	}
	st := kept
	if o.Wrap != nil {
		st = o.Wrap(kept)
	}
	s, err := server.New(ctx, server.Options{
		Store: st, Feed: broker, Sealer: sealer, Recipes: o.Recipes, Loopback: true,
		Log: o.Log, Workers: o.Workers, Lease: o.Lease, Deadline: o.Deadline, Keys: o.Keys, RecipeDeadline: o.RecipeDeadline,
	})
	if err != nil {
		tb.Fatalf("start the server: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen: %v", err)
	}
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	var running sync.WaitGroup
	running.Go(func() { _ = h.Serve(listener) })
	if !o.NoWorkers {
		running.Go(func() { s.Work(ctx) })
	}
	i := &Instance{URL: "http://" + listener.Addr().String(), Dir: o.Dir, Server: s, Store: kept, Feed: broker, Sealer: sealer}
	i.stop = sync.OnceFunc(func() {
		s.Stop()
		_ = h.Close()
		cancel()
		running.Wait()
		if own {
			_ = kept.Close()
		}
	})
	tb.Cleanup(i.stop)
	return i
}

// Stop ends the control plane as a shutdown does.
func (i *Instance) Stop() { i.stop() }
