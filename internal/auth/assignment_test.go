package auth

import (
	"context"
	"errors"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/store"
)

// shelf is a store of assignments that counts how often it is read.
type shelf struct {
	list  []core.Resource
	reads int
	down  error
}

func (s *shelf) List(context.Context, store.Query) (store.Page, error) {
	s.reads++
	return store.Page{Resources: s.list}, s.down
}

// TestAssignmentsFollow_D46: a decision never rests on what the process knows to
// be old, and nothing is read again without a reason.
func TestAssignmentsFollow_D46(t *testing.T) {
	t.Parallel()
	keep := func(name, properties string) core.Resource {
		return core.Resource{ID: id(group + "/providers/System.Authorization/roleAssignments/" + name), Properties: []byte(properties)}
	}
	s, b := &shelf{}, feed.New()
	odd := 0
	a := NewAssignments(s, b, func(core.ID, error) { odd++ }, given("user:fixed", Reader, plane))
	may := func(name string) bool {
		t.Helper()
		g, err := a.Grants(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return g.Decide(Identity{Name: name}, Access{Read, id(redis)}).Allowed
	}
	if may("alice") || !may("fixed") || s.reads != 1 {
		t.Fatalf("D-46: at first, after %d reads", s.reads)
	}
	s.list = []core.Resource{keep("a", `{"principal":{"kind":"user","name":"alice"},"role":"Reader"}`), keep("broken", `{"role":"Reader"}`)}
	b.Publish([]store.Change{{Seq: 1, ID: id(redis)}})
	if may("alice") || s.reads != 1 {
		t.Errorf("D-46: another change made it read %d times", s.reads)
	}
	b.Publish([]store.Change{{Seq: 2, ID: s.list[0].ID}})
	if !may("alice") || s.reads != 2 || odd != 1 {
		t.Errorf("D-46: after its change: %d reads, %d odd", s.reads, odd)
	}
	s.list, s.down = nil, errors.New("disk gone")
	b.Publish([]store.Change{{Seq: 3, ID: id(assign), Deleted: true}})
	if _, err := a.Grants(t.Context()); !core.IsCode(err, core.CodeUnavailable) {
		t.Errorf("D-46: what cannot be read is %v, want ServiceUnavailable", err)
	}
	s.down = nil
	if may("alice") || !may("fixed") {
		t.Error("D-46: a role that was taken away counts")
	}
	// Who fell out of the ring reads again.
	reads := s.reads
	flood := make([]store.Change, 10000)
	for n := range flood {
		flood[n] = store.Change{Seq: int64(10 + n), ID: id(redis)}
	}
	b.Publish(flood)
	if may("alice"); s.reads != reads+1 {
		t.Errorf("D-46: after a gap it read %d times", s.reads-reads)
	}
}

func BenchmarkDecide(b *testing.B) {
	var list []Assignment
	for n := range 10000 {
		list = append(list, given("user:u"+string(rune('a'+n%26))+string(rune('a'+n/26%26)), Reader, group))
	}
	list = append(list, given("group:team", Contributor, group))
	g := NewGrants(list)
	who := Identity{Name: "alice", Groups: []string{"a", "b", "c", "team"}}
	a := Access{Write, id(redis)}
	for b.Loop() {
		if !g.Decide(who, a).Allowed {
			b.Fatal("denied")
		}
	}
}
