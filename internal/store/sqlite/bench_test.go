package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// BenchmarkWrite measures what one asynchronous PUT costs the store: accept,
// lease and end, each a commit on disk, at several clients at once. Each
// worker here is its client's own.
func BenchmarkWrite(b *testing.B) {
	for _, clients := range []int{1, 8} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) { benchmarkWrite(b, clients, 0) })
	}
	b.Run("clients=1/rows=100000", func(b *testing.B) { benchmarkWrite(b, 1, 100_000) })
}

// BenchmarkRead measures reads beside 100,000 rows.
func BenchmarkRead(b *testing.B) {
	ctx := context.Background()
	s := openBench(b)
	fillBench(b, s, 100_000)
	id := core.GroupID("bench").Resource("Applications.Core/extenders", "R5000")
	b.Run("get", func(b *testing.B) {
		for range b.N {
			if _, _, err := s.Get(ctx, id); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("page of 100", func(b *testing.B) {
		for range b.N {
			p, err := s.List(ctx, store.Query{Scope: core.GroupID("bench"), Type: "Applications.Core/extenders", Limit: 100, After: id.Key()})
			if err != nil || len(p.Resources) != 100 {
				b.Fatal(len(p.Resources), err)
			}
		}
	})
}

func openBench(b *testing.B) *sqlite.Store {
	s, err := sqlite.Open(context.Background(), filepath.Join(b.TempDir(), "radial.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	plane := core.ID{Plane: core.Segment{Type: "radius", Name: "local"}}
	for _, id := range []core.ID{plane, core.GroupID("bench")} {
		if _, err := s.Accept(context.Background(), store.Write{Resource: core.Resource{ID: id, State: core.StateSucceeded}, Now: time.Now()}); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// benchResource is a resource of ordinary size.
func benchResource(name string) core.Resource {
	return core.Resource{
		ID: core.GroupID("bench").Resource("Applications.Core/extenders", name), APIVersion: "2023-10-01-preview", State: core.StateAccepted,
		Properties: []byte(`{"environment":"/planes/radius/local/resourceGroups/default/providers/Applications.Core/environments/default","host":"a"}`),
	}
}

// fillBench writes rows from many clients at once, which share commits.
func fillBench(b *testing.B, s *sqlite.Store, rows int) {
	const clients = 256
	inParallel(b, clients, func(c int) error {
		for i := c; i < rows; i += clients {
			if _, err := s.Accept(context.Background(), store.Write{Resource: benchResource(fmt.Sprintf("r%d", i)), Now: time.Now()}); err != nil {
				return err
			}
		}
		return nil
	})
}

// inParallel runs f for each client and ends the benchmark on an error.
func inParallel(b *testing.B, clients int, f func(client int) error) {
	errs := make(chan error, clients)
	for c := range clients {
		go func() { errs <- f(c) }()
	}
	for range clients {
		if err := <-errs; err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkWrite(b *testing.B, clients, rows int) {
	ctx := context.Background()
	s := openBench(b)
	fillBench(b, s, rows)
	var n atomic.Int64
	write := func() error {
		i, now := n.Add(1), time.Now()
		r := benchResource(fmt.Sprintf("new%d", i))
		op := &core.Operation{ID: uuid.NewString(), ResourceID: r.ID, Verb: core.VerbPut, State: core.StateAccepted, Group: "bench", Created: now}
		if _, err := s.Accept(ctx, store.Write{Resource: r, Operation: op, Now: now}); err != nil {
			return err
		}
		got, err := s.Lease(ctx, store.Lease{Worker: "bench", Max: 1, Now: now, Until: now.Add(time.Minute)})
		if err != nil {
			return err
		}
		for _, l := range got {
			if err := s.End(ctx, store.Ending{Operation: l.Operation.ID, Fence: l.Operation.Fence, State: core.StateSucceeded, Now: time.Now()}); err != nil {
				return err
			}
		}
		return nil
	}
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	b.ResetTimer()
	start := time.Now()
	inParallel(b, clients, func(int) error {
		for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
			began := time.Now()
			if err := write(); err != nil {
				return err
			}
			took[i] = time.Since(began)
		}
		return nil
	})
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "writes/s")
	slices.Sort(took)
	b.ReportMetric(float64(took[b.N/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds()), "p99-µs")
}
