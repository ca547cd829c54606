package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

func change(seq int64) store.Change { return store.Change{Seq: seq} }

func end(seq int64, op string) store.Change {
	return store.Change{Seq: seq, Operation: op, State: core.StateSucceeded}
}

// next reads one batch, which must be there already.
func next(t *testing.T, s *Subscription) Batch {
	t.Helper()
	batch, changed := s.take()
	if changed != nil {
		t.Fatal("nothing to read")
	}
	return batch
}

func quiet(t *testing.T, s *Subscription) {
	t.Helper()
	if batch, changed := s.take(); changed == nil {
		t.Fatalf("read %+v, want nothing", batch)
	}
}

func seqs(b Batch) []int64 {
	out := []int64{}
	for _, c := range b.Changes {
		out = append(out, c.Seq)
	}
	return out
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		published []int64
		since     int64
		reset     bool
		want      []int64
	}{
		"nothing published":             {nil, 0, true, nil},
		"a number of another process":   {nil, 7, true, nil},
		"from the start":                {[]int64{10, 11}, 0, true, nil},
		"before the first that is left": {[]int64{10, 11, 12, 13, 14, 15}, 11, true, nil},
		"the first that is left":        {[]int64{10, 11, 12, 13, 14, 15}, 12, false, []int64{13, 14, 15}},
		"between two numbers":           {[]int64{10, 20, 30}, 15, false, []int64{20, 30}},
		"up to date":                    {[]int64{10, 20}, 20, false, nil},
		"ahead of all":                  {[]int64{10, 20}, 21, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(4)
			newest := int64(0)
			for _, n := range c.published {
				b.Publish([]store.Change{change(n)})
				newest = n
			}
			s := b.Subscribe(c.since)
			if c.reset {
				if got := next(t, s); !got.Reset || got.Seq != newest || len(got.Changes) != 0 {
					t.Fatalf("first batch is %+v, want a reset at %d", got, newest)
				}
			} else if len(c.want) > 0 {
				if got := next(t, s); got.Reset || !slices.Equal(seqs(got), c.want) || got.Seq != newest {
					t.Fatalf("first batch is %+v, want %v", got, c.want)
				}
			}
			quiet(t, s)
			b.Publish([]store.Change{change(100), change(101)})
			if got := next(t, s); !slices.Equal(seqs(got), []int64{100, 101}) {
				t.Errorf("then came %+v", got)
			}
		})
	}
}

func TestSubscription_waits(t *testing.T) {
	t.Parallel()
	b := New()
	s := b.Subscribe(0)
	next(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next with an ended context: %v", err)
	}
	got := make(chan Batch)
	go func() {
		batch, _ := s.Next(t.Context())
		got <- batch
	}()
	b.Publish([]store.Change{change(5)})
	if batch := <-got; !slices.Equal(seqs(batch), []int64{5}) || batch.Seq != 5 {
		t.Errorf("read %+v", batch)
	}
}

func TestSubscription_tooSlow(t *testing.T) {
	t.Parallel()
	b := newBroker(4)
	b.Publish([]store.Change{change(1)})
	s := b.Subscribe(1)
	for n := range int64(100) { // nobody reads, and Publish goes on
		b.Publish([]store.Change{change(n + 2)})
	}
	if got := next(t, s); !got.Reset || got.Seq != 101 {
		t.Errorf("a reader that fell behind got %+v", got)
	}
	b.Publish([]store.Change{change(200)})
	if got := next(t, s); !slices.Equal(seqs(got), []int64{200}) {
		t.Errorf("after the reset came %+v", got)
	}
}

// TestSubscription_model reads at random times and wants each change once and
// in order, or a reset where the ring was passed.
func TestSubscription_model(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const size = 8
		b := newBroker(size)
		b.Publish([]store.Change{change(1)})
		s := b.Subscribe(1)
		seq, behind := int64(1), []int64{}
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				var cs []store.Change
				for range rapid.IntRange(0, 5).Draw(t, "n") {
					seq += rapid.Int64Range(1, 3).Draw(t, "gap")
					cs = append(cs, change(seq))
					behind = append(behind, seq)
				}
				b.Publish(cs)
			},
			"read": func(t *rapid.T) {
				batch, changed := s.take()
				switch {
				case len(behind) == 0:
					if changed == nil {
						t.Fatalf("read %+v, want nothing", batch)
					}
				case len(behind) > size:
					if !batch.Reset || batch.Seq != seq {
						t.Fatalf("read %+v after missing %v", batch, behind)
					}
				case batch.Reset || !slices.Equal(seqs(batch), behind):
					t.Fatalf("read %+v, want %v", batch, behind)
				}
				behind = behind[:0]
				if rapid.Bool().Draw(t, "reconnect") {
					s = b.Subscribe(s.Seq())
				}
			},
		})
	})
}

func TestOperation_registeredBeforeItsEnd(t *testing.T) {
	t.Parallel()
	b := New()
	ended, stop := b.Operation("op")
	defer stop()
	b.Publish([]store.Change{{Seq: 1, Operation: "op", State: core.StateUpdating}, end(2, "other"), {Seq: 3, State: core.StateSucceeded}})
	select {
	case <-ended:
		t.Fatal("told of an end that was not there")
	default:
	}
	b.Publish([]store.Change{end(4, "op")})
	<-ended
}

func TestWaitOperation_D21(t *testing.T) {
	t.Parallel()
	t.Run("D-21 an end of a moment ago", func(t *testing.T) {
		t.Parallel()
		b := New()
		b.Publish([]store.Change{end(1, "op")})
		if err := b.WaitOperation(t.Context(), "op"); err != nil {
			t.Error(err)
		}
	})
	t.Run("D-21 the caller's time runs out", func(t *testing.T) {
		t.Parallel()
		b := New()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.WaitOperation(ctx, "op"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if len(b.waits) != 0 {
			t.Errorf("%d waits are left", len(b.waits))
		}
	})
	t.Run("D-21 many waiters, operations and ends at once", func(t *testing.T) {
		t.Parallel()
		b := newBroker(16) // far fewer than there are ends
		var wg sync.WaitGroup
		for i := range 100 {
			op := fmt.Sprint(i % 50)
			ended, stop := b.Operation(op)
			wg.Go(func() {
				defer stop()
				select {
				case <-ended:
				case <-t.Context().Done():
					t.Errorf("the end of %s was missed", op)
				}
			})
		}
		for i := range 50 {
			wg.Go(func() { b.Publish([]store.Change{end(int64(i), fmt.Sprint(i))}) })
		}
		wg.Wait()
		if len(b.waits) != 0 || len(b.ended) > 16 {
			t.Errorf("left behind: %d waits, %d ends", len(b.waits), len(b.ended))
		}
	})
}

func TestWork(t *testing.T) {
	t.Parallel()
	b := New()
	b.Publish([]store.Change{change(1)})
	select {
	case <-b.Work():
		t.Fatal("signalled without work")
	default:
	}
	for n := range int64(10) { // several signals become one, and none blocks
		b.Publish([]store.Change{{Seq: n + 2, Work: true}})
	}
	<-b.Work()
	select {
	case <-b.Work():
		t.Error("signalled twice for one wake-up")
	default:
	}
	b.Signal()
	<-b.Work()
}

// BenchmarkPublish measures what the store's writer pays, with readers that
// wait and readers that never come.
func BenchmarkPublish(b *testing.B) {
	br := New()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	for range 10 {
		br.Subscribe(0)
		s := br.Subscribe(0)
		go func() {
			for {
				if _, err := s.Next(ctx); err != nil {
					return
				}
			}
		}()
	}
	for i := range b.N {
		br.Publish([]store.Change{{Seq: int64(i + 1), Operation: "op", State: core.StateAccepted, Work: true}})
	}
}

// TestHint_D21 wakes a waiting client and a worker ahead of the feed, and leaves
// the feed as it is.
func TestHint_D21(t *testing.T) {
	b := New()
	b.Publish([]store.Change{{Seq: 7}})
	reader := b.Subscribe(7)
	ended, stop := b.Operation("op")
	defer stop()
	b.Hint([]store.Change{{Operation: "op", State: core.StateUpdating}, {Kind: store.ChangeCancel, Operation: "op", State: core.StateCanceled}})
	select {
	case <-ended:
		t.Fatal("a change that ends nothing ended the wait")
	case <-b.Work():
		t.Fatal("a change without work signals it")
	default:
	}
	change := store.Change{Operation: "op", State: core.StateSucceeded, Work: true}
	b.Hint([]store.Change{change})
	<-ended
	<-b.Work()
	change.Seq = 8
	b.Publish([]store.Change{change})
	got, err := reader.Next(t.Context())
	if err != nil || got.Reset || len(got.Changes) != 1 || got.Changes[0].Seq != 8 {
		t.Errorf("the reader got %+v (%v), want the published change alone", got, err)
	}
}
