package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

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

func benchmarkWrite(b *testing.B, clients, rows int) {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, filepath.Join(b.TempDir(), "radial.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	plane := core.ID{Plane: core.Segment{Type: "radius", Name: "local"}}
	for _, id := range []core.ID{plane, core.GroupID("bench")} {
		if _, err := s.Accept(ctx, store.Write{Resource: core.Resource{ID: id, State: core.StateSucceeded}, Now: time.Now()}); err != nil {
			b.Fatal(err)
		}
	}
	var n atomic.Int64
	write := func(synchronous bool) error {
		i := n.Add(1)
		now := time.Now()
		id := core.GroupID("bench").Resource("Applications.Core/extenders", fmt.Sprintf("r%d", i))
		op := &core.Operation{ID: fmt.Sprintf("op-%016x-%d", uint64(i)*0x9e3779b97f4a7c15, i), ResourceID: id, Verb: core.VerbPut, State: core.StateAccepted, Group: "bench", Created: now}
		if synchronous {
			op = nil
		}
		r := core.Resource{ID: id, APIVersion: "2023-10-01-preview", Properties: []byte(`{"environment":"/planes/radius/local/resourceGroups/default/providers/Applications.Core/environments/default","host":"a"}`), State: core.StateAccepted}
		if _, err := s.Accept(ctx, store.Write{Resource: r, Operation: op, Now: now}); err != nil || synchronous {
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
	fill := make(chan error, 256)
	for range cap(fill) {
		go func() {
			var err error
			for i := 0; i < rows/cap(fill) && err == nil; i++ {
				err = write(true)
			}
			fill <- err
		}()
	}
	for range cap(fill) {
		if err := <-fill; err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	start := time.Now()
	errs := make(chan error, clients)
	var left atomic.Int64
	left.Store(int64(b.N))
	for range clients {
		go func() {
			var err error
			for left.Add(-1) >= 0 && err == nil {
				err = write(false)
			}
			errs <- err
		}()
	}
	for range clients {
		if err := <-errs; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "writes/s")
}
