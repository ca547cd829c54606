// Package recordstest is what every form of [stack.Records] has to do.
package recordstest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/stack"
)

// Run tests records; open makes another process's view of the same ones.
func Run(t *testing.T, open func(t *testing.T) (here, there stack.Records)) {
	id := core.GroupID("g").Resource(stack.Type, "Shop.1")
	other := core.GroupID("g").Resource(stack.Type, "shop-1")
	row := func(name, text string) core.Output {
		return core.Output{ID: core.KubernetesID("local", "ns", "", "ConfigMap", name), LocalID: name, State: core.OutputMade, Handle: json.RawMessage(text)}
	}
	begin := func(t *testing.T, r stack.Records, id core.ID) stack.Session {
		t.Helper()
		s, err := r.Open(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Run("what is kept is read, by this process and by others", func(t *testing.T) {
		here, there := open(t)
		if _, err := here.Read(t.Context(), id); !core.IsCode(err, core.CodeNotFound) || !strings.Contains(err.Error(), "Shop.1") {
			t.Fatalf("no record: %v", err)
		}
		s := begin(t, here, id)
		if got := s.Record(); !got.ID.Equal(id) || got.State != "" || len(s.Journal()) != 0 {
			t.Fatalf("a new stack: %+v", got)
		}
		must(t, s.Note(t.Context(), []core.Output{row("a", `{"run":"1"}`), row("b", `{"run":"1"}`)}, nil))
		must(t, s.Note(t.Context(), []core.Output{row("b", `{"run":"2"}`), row("c", `{"run":"2"}`)}, []core.ID{row("a", "").ID}))
		want := stack.Record{ID: id, Unmanage: stack.Detach, State: stack.StateSucceeded, Resources: []stack.Managed{{
			Affected: deploy.Affected{Scope: &deploy.Scope{Type: "Cluster", ID: "local"}, ID: "/planes/Kubernetes/x/y", Identity: &deploy.Identity{ConfigID: "c", UID: "u"}, DependsOn: []string{"x"}},
			Status:   stack.StatusManaged,
		}}}
		must(t, s.Save(t.Context(), want))
		got, err := there.Read(t.Context(), id)
		must(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		must(t, s.Close())
		s = begin(t, there, id)
		journal := s.Journal()
		if len(journal) != 2 || journal[0].LocalID != "b" || !strings.Contains(string(journal[0].Handle), "2") || journal[1].LocalID != "c" || !reflect.DeepEqual(s.Record(), want) {
			t.Fatalf("journal %+v, record %+v", journal, s.Record())
		}
		must(t, s.Close())
	})
	t.Run("S-55 one update at a time, and the holder is named", func(t *testing.T) {
		here, there := open(t)
		s := begin(t, here, id)
		if _, err := there.Open(t.Context(), id); !core.IsCode(err, core.CodeConflict) || !strings.Contains(err.Error(), "process ") || !strings.Contains(err.Error(), "Shop.1") {
			t.Fatalf("a second update: %v", err)
		}
		must(t, s.Save(t.Context(), stack.Record{ID: id, State: stack.StateDeploying}))
		if _, err := there.Open(t.Context(), id); !core.IsCode(err, core.CodeConflict) {
			t.Fatalf("a second update after a write: %v", err)
		}
		must(t, s.Close())
		s = begin(t, there, id)
		if s.Record().State != stack.StateDeploying {
			t.Fatalf("record: %+v", s.Record())
		}
		must(t, s.Close())
	})
	t.Run("a stack that is removed is gone", func(t *testing.T) {
		here, there := open(t)
		for _, id := range []core.ID{id, other} {
			s := begin(t, here, id)
			must(t, s.Save(t.Context(), stack.Record{ID: id, State: stack.StateSucceeded}))
			must(t, s.Close())
		}
		list, err := there.List(t.Context())
		must(t, err)
		if len(list) != 2 || list[0].ID.Name() != "shop-1" || list[1].ID.Name() != "Shop.1" {
			t.Fatalf("list: %+v", list)
		}
		s := begin(t, there, id)
		must(t, s.Remove(t.Context()))
		must(t, s.Close())
		if _, err := here.Read(t.Context(), id); !core.IsCode(err, core.CodeNotFound) {
			t.Fatalf("after its removal: %v", err)
		}
		if list, err = here.List(t.Context()); err != nil || len(list) != 1 || !list[0].ID.Equal(other) {
			t.Fatalf("list: %+v, %v", list, err)
		}
	})
	t.Run("a stack that was only opened leaves nothing", func(t *testing.T) {
		here, _ := open(t)
		must(t, begin(t, here, id).Close())
		if list, err := here.List(t.Context()); err != nil || len(list) != 0 {
			t.Fatalf("list: %+v, %v", list, err)
		}
	})
}
