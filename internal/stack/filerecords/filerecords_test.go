package filerecords

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/stack/recordstest"
)

func TestRecords_S57(t *testing.T) {
	recordstest.Run(t, func(t *testing.T) (here, there stack.Records) {
		path := filepath.Join(t.TempDir(), "stacks.json")
		return New(path), New(path)
	})
}

func TestRecords_damaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stacks.json")
	if err := os.WriteFile(path, []byte(`{"stacks":{"x":{"format":99}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(path).List(t.Context()); !core.IsCode(err, stack.CodeOutOfSync) {
		t.Errorf("a later release's: %v", err)
	}
	if err := os.WriteFile(path, []byte(`not JSON`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(path).Open(t.Context(), core.GroupID("g").Resource(stack.Type, "s")); err == nil {
		t.Error("a damaged file was taken for an empty one")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "not JSON" {
		t.Errorf("the damaged file was changed: %q, %v", b, err)
	}
}

// A process that was killed leaves its notes; whoever opens any stack of the file
// next takes them up, half a line left out.
func TestRecords_killed_S55(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stacks.json")
	shop, other := core.GroupID("g").Resource(stack.Type, "Shop"), core.GroupID("g").Resource(stack.Type, "other")
	row := func(name string, state core.OutputState) core.Output {
		return core.Output{ID: core.KubernetesID("local", "ns", "", "ConfigMap", name), LocalID: name, State: state}
	}
	s, err := New(path).Open(t.Context(), shop)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), stack.Record{ID: shop, State: stack.StateDeploying}); err != nil {
		t.Fatal(err)
	}
	for _, state := range []core.OutputState{core.OutputPlanned, core.OutputMade} {
		if err := s.Note(t.Context(), []core.Output{row("a", state), row("b", core.OutputPlanned)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Note(t.Context(), nil, []core.ID{row("b", "").ID}); err != nil {
		t.Fatal(err)
	}
	// Killed: nothing is closed but by the kernel, and the last line is cut off.
	kept := s.(*session)
	if _, err := kept.notes.WriteString(`{"stack":"`); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(kept.notes.Close(), unlock(kept.lock)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []core.ID{other, shop} {
		s, err = New(path).Open(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if id.Equal(other) {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if j := s.Journal(); len(j) != 1 || j[0].LocalID != "a" || j[0].State != core.OutputMade || s.Record().State != stack.StateDeploying {
		t.Errorf("S-55: journal %+v, record %+v", j, s.Record())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + ".notes"); !os.IsNotExist(err) {
		t.Errorf("the notes stay: %v", err)
	}
}
