package deployment

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// What a request brought and no store may have goes from memory, too, when its
// operation ended without having been run here.
func TestHeldInputsGo_S23(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "radial.db"), sqlite.Options{Listener: feed.New().Publish, Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := New(Options{Store: db, Now: func() time.Time { return now }})
	for _, id := range []core.ID{core.MustParseID("/planes/radius/local"), core.GroupID("default")} {
		if _, err := db.Accept(t.Context(), store.Write{Resource: core.Resource{ID: id, State: core.StateSucceeded}, Now: now}); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(name string) {
		id := core.GroupID("default").Resource(Type, name)
		s.hold(name, inputs{URI: name})
		if _, err := db.Accept(t.Context(), store.Write{Resource: core.Resource{ID: id, State: core.StateAccepted}, Now: now, Operation: &core.Operation{
			ID: name, ResourceID: id, Verb: core.VerbPut, State: core.StateAccepted, Group: core.GroupID("default").Key(), Created: now, Deadline: now.Add(time.Hour)}}); err != nil {
			t.Fatal(err)
		}
	}
	begin("canceled")
	begin("waiting")
	if _, err := db.Cancel(t.Context(), store.Cancel{Operation: "canceled", Error: core.Errorf(core.CodeCanceled, "by request"), Now: now}); err != nil {
		t.Fatal(err)
	}
	s.hold("refused", inputs{}) // and never accepted
	for _, step := range []struct {
		after time.Duration
		held  map[string]bool
	}{
		{0, map[string]bool{"canceled": true, "waiting": true, "refused": true}},
		{2 * heldBefore, map[string]bool{"canceled": false, "waiting": true, "refused": false}},
	} {
		now = now.Add(step.after)
		s.hold("next", inputs{})
		for name, want := range step.held {
			if _, ok := s.holds(name); ok != want {
				t.Errorf("S-23 after %s the inputs of %s are held: %t", step.after, name, ok)
			}
		}
	}
}
