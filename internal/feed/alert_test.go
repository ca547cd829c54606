package feed

import (
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

func signalled(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestAlert(t *testing.T) {
	t.Parallel()
	b := newBroker(4)
	cancel, stop := b.Alert(store.ChangeCancel, "one")
	other, stopOther := b.Alert(store.ChangeCancel, "two")
	defer stopOther()
	keysets, stopKeysets := b.Alert(store.ChangeKeysets, "")
	defer stopKeysets()
	s := b.Subscribe(0)
	next(t, s) // the first is a Reset
	b.Publish([]store.Change{{Seq: 1, Kind: store.ChangeCancel, Operation: "one", State: core.StateUpdating}, {Seq: 2, Kind: store.ChangeCancel, Operation: "one"}})
	if !signalled(cancel) || signalled(cancel) {
		t.Error("want one signal for two cancellations")
	}
	if signalled(other) || signalled(keysets) {
		t.Error("another watcher was woken")
	}
	quiet(t, s)
	b.Publish([]store.Change{{Seq: 3, Kind: store.ChangeKeysets}})
	if !signalled(keysets) {
		t.Error("no signal for keysets")
	}
	stop()
	b.Publish([]store.Change{{Seq: 4, Kind: store.ChangeCancel, Operation: "one"}})
	if signalled(cancel) {
		t.Error("signalled after stop")
	}
	if n := len(b.alerts); n != 2 {
		t.Errorf("%d sets of watchers are kept, want 2", n)
	}
}

// TestAlertLate: who registers for a cancellation right after it is told, and a
// change of a manifest has a place among the changes of resources.
func TestAlertLate(t *testing.T) {
	t.Parallel()
	b := newBroker(4)
	b.Publish([]store.Change{{Seq: 1, Kind: store.ChangeCancel, Operation: "one"}})
	cancel, stop := b.Alert(store.ChangeCancel, "one")
	defer stop()
	if !signalled(cancel) {
		t.Error("a cancellation before the registration was not told")
	}
	other, stopOther := b.Alert(store.ChangeCancel, "two")
	defer stopOther()
	if signalled(other) {
		t.Error("a cancellation that never was is told")
	}
	s := b.Subscribe(0)
	next(t, s) // the first is a Reset
	id := store.ProviderID("Test.Things")
	b.Publish([]store.Change{{Seq: 2, Kind: store.ChangeManifests, ID: id}})
	got := next(t, s)
	if len(got.Changes) != 1 || !got.Changes[0].ID.Equal(id) || got.Seq != 2 || b.Seq() != 2 {
		t.Errorf("the change of a manifest came as %+v", got)
	}
}

// TestReset: after changes that may have been missed nobody goes on as if
// nothing had happened.
func TestReset(t *testing.T) {
	t.Parallel()
	for _, before := range []int{0, 1, 3, 4, 9} { // in a ring of four
		b := newBroker(4)
		for i := range before {
			b.Publish([]store.Change{change(int64(i + 1))})
		}
		upToDate, behind := b.Subscribe(0), b.Subscribe(0)
		next(t, upToDate)
		if before > 0 {
			behind = b.Subscribe(int64(before))
		} else {
			next(t, behind)
		}
		ended, _ := b.Operation("op")
		cancel, _ := b.Alert(store.ChangeCancel, "op")
		signalled(b.Work())
		b.Publish([]store.Change{{Seq: 50, Kind: store.ChangeReset}, change(51)})
		for name, s := range map[string]*Subscription{"up to date": upToDate, "registered": behind} {
			if got := next(t, s); !got.Reset || got.Seq != 51 {
				t.Errorf("%s after %d changes: %+v, want a Reset", name, before, got)
			}
			quiet(t, s)
		}
		if !signalled(ended) || !signalled(cancel) || !signalled(b.Work()) {
			t.Errorf("after %d changes: a waiter, a watcher or the workers were not woken", before)
		}
		if got := next(t, b.Subscribe(49)); !got.Reset {
			t.Errorf("subscribed before the Reset: %+v", got)
		}
		s := b.Subscribe(51)
		b.Publish([]store.Change{change(52)})
		if got := seqs(next(t, s)); len(got) != 1 || got[0] != 52 {
			t.Errorf("read %v after the Reset", got)
		}
	}
}
