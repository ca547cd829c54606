package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// Bench measures a store: what an asynchronous PUT costs it (accept, lease and
// end, each a commit on disk) at several clients at once, each its own worker,
// and reads beside 100,000 rows. commits, when not nil, counts the commits so
// far, for how many writes share one.
func Bench(b *testing.B, open func(b *testing.B) store.Store, commits func() int64) {
	for _, clients := range []int{1, 8, 16} {
		b.Run(fmt.Sprintf("write/clients=%d", clients), func(b *testing.B) { benchWrite(b, open(b), clients, 0, commits) })
	}
	b.Run("write beside 100000/clients=1", func(b *testing.B) { benchWrite(b, open(b), 1, 100_000, commits) })
	b.Run("lease of 10000", func(b *testing.B) { benchLease(b, open(b)) })
	benchRead(b, open)
}

func benchRead(b *testing.B, open func(b *testing.B) store.Store) {
	ctx := context.Background()
	var s store.Store
	id := core.GroupID("bench").Resource(typeExt, "R5000")
	for _, one := range []struct {
		name string
		read func() error
	}{
		{"get", func() error {
			_, _, err := s.Get(ctx, id)
			return err
		}},
		{"page of 100", func() error {
			p, err := s.List(ctx, store.Query{Scope: core.GroupID("bench"), Type: typeExt, Limit: 100, After: id.Key()})
			if err == nil && len(p.Resources) != 100 {
				err = fmt.Errorf("a page of %d", len(p.Resources))
			}
			return err
		}},
		{"dependents", func() error {
			d, err := s.Dependents(ctx, store.Use{Of: core.GroupID("bench"), Limit: 10})
			if err == nil && d.Count != 100_000 {
				err = fmt.Errorf("%d dependents", d.Count)
			}
			return err
		}},
	} {
		b.Run("read/"+one.name, func(b *testing.B) {
			if s == nil {
				s = open(b)
				fillBench(b, s, 100_000)
			}
			for b.Loop() {
				if err := one.read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchScopes(b *testing.B, s store.Store) {
	for _, id := range []core.ID{planeID, core.GroupID("bench")} {
		if _, err := s.Accept(context.Background(), store.Write{Resource: plain(id, core.StateSucceeded), Expect: "*", Now: time.Now()}); err != nil {
			b.Fatal(err)
		}
	}
}

// benchResource is a resource of ordinary size.
func benchResource(name string) core.Resource {
	r := plain(core.GroupID("bench").Resource(typeExt, name), core.StateAccepted)
	r.Properties = []byte(`{"environment":"/planes/radius/local/resourceGroups/default/providers/Applications.Core/environments/default","host":"a"}`)
	return r
}

func benchPut(name string) store.Write {
	r, now := benchResource(name), time.Now()
	return store.Write{Resource: r, Now: now,
		Operation: &core.Operation{ID: uuid.NewString(), ResourceID: r.ID, Verb: core.VerbPut, State: core.StateAccepted, Group: "bench", Created: now}}
}

// fillBench writes rows from many clients at once, which share commits.
func fillBench(b *testing.B, s store.Store, rows int) {
	benchScopes(b, s)
	const clients = 64
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

func benchWrite(b *testing.B, s store.Store, clients, rows int, commits func() int64) {
	ctx := context.Background()
	fillBench(b, s, rows)
	var n atomic.Int64
	write := func() error {
		if _, err := s.Accept(ctx, benchPut(fmt.Sprintf("new%d", n.Add(1)))); err != nil {
			return err
		}
		now := time.Now()
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
	var before int64
	if commits != nil {
		before = commits()
	}
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
	if commits != nil {
		b.ReportMetric(float64(3*b.N)/float64(max(commits()-before, 1)), "calls/commit")
	}
}

// benchLease leases one of many that wait, of many groups, and ends it.
func benchLease(b *testing.B, s store.Store) {
	ctx := context.Background()
	benchScopes(b, s)
	inParallel(b, 64, func(c int) error {
		for i := range 160 {
			w := benchPut(fmt.Sprintf("w%d-%d", c, i))
			w.Operation.Group = fmt.Sprint("group", i)
			if _, err := s.Accept(ctx, w); err != nil {
				return err
			}
		}
		return nil
	})
	n := 0
	for b.Loop() {
		now := time.Now()
		got, err := s.Lease(ctx, store.Lease{Worker: "bench", Max: 1, Now: now, Until: now.Add(-time.Minute)}) // and back to the queue
		if err != nil {
			b.Fatal(err)
		}
		n += len(got)
	}
	if n < b.N {
		b.Fatalf("leased %d of %d", n, b.N)
	}
}
