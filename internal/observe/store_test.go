package observe_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/observe"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
	"github.com/radial-project/radial/internal/store/storetest"
	"github.com/radial-project/radial/internal/telemetry"
)

// readOnly is a store whose disk is full while full is set: it answers, and
// takes nothing.
type readOnly struct {
	store.Store
	full bool
}

func (r *readOnly) Heartbeat(ctx context.Context, h store.Replica) error {
	if r.full {
		return core.Errorf(core.CodeUnavailable, "the disk is full")
	}
	return r.Store.Heartbeat(ctx, h)
}

func (r *readOnly) Accept(ctx context.Context, w store.Write) (core.Resource, error) {
	if r.full {
		return core.Resource{}, core.Errorf(core.CodeUnavailable, "the disk is full")
	}
	return r.Store.Accept(ctx, w)
}

func open(t *testing.T) store.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "r.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Readiness means that the store can be written: a disk that fills up while
// reads go on is seen with the first write that fails, and so is its end.
func TestWritable(t *testing.T) {
	t.Parallel()
	full := &readOnly{Store: open(t)}
	s := observe.NewStore(full, telemetry.NewMetrics(), "a")
	ctx := t.Context()
	if err := s.Writable(ctx); err != nil {
		t.Fatalf("a good store is not ready: %v", err)
	}
	if left, err := full.Replicas(ctx, time.Time{}); err != nil || len(left) > 0 {
		t.Errorf("the probe leaves %v, %v", left, err)
	}
	full.full = true
	plane := core.MustParseID("/planes/radius/local")
	if _, err := s.Accept(ctx, store.Write{Resource: core.Resource{ID: plane, State: core.StateSucceeded}, Now: time.Now()}); !core.IsCode(err, core.CodeUnavailable) {
		t.Fatalf("%v", err)
	}
	if err := s.Writable(ctx); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("ready though nothing can be written: %v", err)
	}
	full.full = false
	if err := s.Writable(ctx); err != nil {
		t.Errorf("it stays unready: %v", err)
	}
	if err := full.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Accept(ctx, store.Write{Resource: core.Resource{ID: plane}, Now: time.Now()}); err == nil {
		t.Error("a closed store took a write")
	}
	if err := s.Writable(ctx); err == nil {
		t.Error("ready though the store is closed")
	}
}

// A caller that gives up says nothing about the store.
func TestWritable_CallerGone(t *testing.T) {
	t.Parallel()
	s := observe.NewStore(open(t), nil, "a")
	if err := s.Writable(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = s.Accept(gone, store.Write{Resource: core.Resource{ID: core.MustParseID("/planes/radius/local")}, Now: time.Now()})
	if err := s.Writable(t.Context()); err != nil {
		t.Errorf("a client that went away makes the store unready: %v", err)
	}
}

// The trace of the request lies with the operation, and the caller's own
// operation is left as it was.
func TestTraceIsStored(t *testing.T) {
	t.Parallel()
	s := observe.NewStore(open(t), nil, "a")
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ctx := telemetry.Continue(t.Context(), parent)
	plane := core.MustParseID("/planes/radius/local")
	id := plane.Resource("A.B/things", "x")
	if _, err := s.Accept(ctx, store.Write{Resource: core.Resource{ID: plane, State: core.StateSucceeded}, Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	op := &core.Operation{ID: "op", ResourceID: id, Verb: core.VerbPut, State: core.StateAccepted, Created: time.Now()}
	if _, err := s.Accept(ctx, store.Write{Resource: core.Resource{ID: id, State: core.StateAccepted}, Operation: op, Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	leased, err := s.Lease(t.Context(), store.Lease{Worker: "w", Max: 1, Now: time.Now(), Until: time.Now().Add(time.Minute)})
	if err != nil || len(leased) != 1 {
		t.Fatalf("%v, %v", leased, err)
	}
	if got := leased[0].Operation.Trace; !strings.HasPrefix(got, parent[:36]) {
		t.Errorf("the operation's trace is %q, want one of %q", got, parent)
	}
	if op.Trace != "" {
		t.Error("the caller's operation was changed")
	}
}

// A store that is away leaves the scrape whole but for what only it knows.
func TestCollect_StoreAway(t *testing.T) {
	t.Parallel()
	db := open(t)
	m := telemetry.NewMetrics()
	m.Register(observe.Collect(db))
	if n := value(t, m.Gatherer(), "radial_store_up"); n != 1 {
		t.Fatalf("radial_store_up is %v", n)
	}
	away := telemetry.NewMetrics()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	away.Register(observe.Collect(db))
	families, err := away.Gatherer().Gather()
	if err != nil {
		t.Fatalf("the scrape fails with the store: %v", err)
	}
	for _, f := range families {
		if f.GetName() == "radial_store_up" && f.GetMetric()[0].GetGauge().GetValue() != 0 {
			t.Error("a closed store is up")
		}
		if f.GetName() == "radial_operations_live" {
			t.Error("a store that is away answers how many operations live")
		}
	}
}

// The measured store is a store: whatever it is wrapped around. It takes as long
// as the store's own suite, so it runs with the other long tests.
func TestConformance(t *testing.T) {
	if os.Getenv("RADIAL_FAULT") != "all" {
		t.Skip("RADIAL_FAULT=all runs the conformance suite once more against the measured store")
	}
	storetest.Run(t, func(t *testing.T, options ...storetest.Option) store.Store {
		t.Helper()
		c := storetest.Configure(options...)
		if c.Dir == "" {
			c.Dir = t.TempDir()
		}
		m := telemetry.NewMetrics()
		s, err := sqlite.Open(t.Context(), filepath.Join(c.Dir, "radial.db"), sqlite.Options{Listener: c.Listener, Clock: c.Clock, Committed: m.Committed})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return observe.NewStore(s, m, "a")
	})
}

// idle is a store that costs nothing, to see what measuring costs.
type idle struct{ store.Store }

func (idle) Accept(context.Context, store.Write) (core.Resource, error) { return core.Resource{}, nil }

func BenchmarkAccept(b *testing.B) {
	w := store.Write{Resource: core.Resource{ID: core.MustParseID("/planes/radius/local/providers/A.B/things/x")}, Operation: &core.Operation{Verb: core.VerbPut}}
	for name, s := range map[string]store.Store{"bare": idle{}, "measured": observe.NewStore(idle{}, telemetry.NewMetrics(), "a")} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Accept(b.Context(), w); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
