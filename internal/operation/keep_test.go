package operation_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/store"
)

// sweeps tells of sweeps that removed something.
type sweeps struct {
	operation.Keeper
	removed chan int
}

func (s sweeps) Sweep(ctx context.Context, w store.Sweep) (int, error) {
	n, err := s.Keeper.Sweep(ctx, w)
	if n > 0 {
		s.removed <- n
	}
	return n, err
}

func TestKeep_D20(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	keep := func(k operation.Keeper, now func() time.Time) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			operation.Keep(ctx, operation.KeepOptions{Store: k, Now: now, Expire: 5 * time.Millisecond, Sweep: 5 * time.Millisecond})
			close(done)
		}()
		return func() { cancel(); <-done }
	}
	// No worker is there: one waits past its deadline, one may go on waiting.
	late, early := b.put("Test.Things/t", "late", -time.Second), b.put("Test.Things/t", "early", time.Hour)
	stop := keep(b.s, time.Now)
	op := b.ended(late)
	stop()
	if op.State != core.StateCanceled || op.Error == nil || !strings.Contains(op.Error.Message, "deadline") {
		t.Errorf("D-20: past its deadline the operation is %s, %+v", op.State, op.Error)
	}
	if r, live, err := b.s.Get(t.Context(), op.ResourceID); err != nil || live != nil || r.State != core.StateCanceled {
		t.Errorf("D-20: its resource is %s, %v, %v", r.State, live, err)
	}
	if op, err := b.s.Operation(t.Context(), early); err != nil || op.State != core.StateAccepted {
		t.Errorf("D-20: an operation within its deadline is %s, %v", op.State, err)
	}

	// Six days later the one that ended is still there, eight days later not; the
	// one that waits is.
	removed := make(chan int, 10)
	clock := func(days int) func() time.Time {
		return func() time.Time { return time.Now().Add(time.Duration(days) * 24 * time.Hour) }
	}
	if n, err := b.s.Sweep(t.Context(), store.Sweep{Operations: clock(6)().Add(-store.KeptOperations), Limit: 10}); err != nil || n != 0 {
		t.Errorf("D-20: within the week %d rows went, %v", n, err)
	}
	live := b.put("Test.Things/t", "live", 1000*time.Hour)
	stop = keep(sweeps{b.s, removed}, clock(8))
	select {
	case <-removed:
	case <-time.After(10 * time.Second):
		t.Fatal("D-20: nothing was removed")
	}
	stop()
	if _, err := b.s.Operation(t.Context(), late); !core.IsCode(err, core.CodeNotFound) {
		t.Errorf("D-20: after eight days the operation is still there: %v", err)
	}
	if op, err := b.s.Operation(t.Context(), live); err != nil || op.State != core.StateAccepted {
		t.Errorf("D-20: a live operation is %s, %v", op.State, err)
	}
}
