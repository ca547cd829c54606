package extension

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/radial-project/radial/internal/core"
)

func TestResourceID(t *testing.T) {
	a := ResourceID("Files", "dir-1", "File", json.RawMessage(`{"path":"Notes/a b.txt"}`))
	if got, want := a.Type(), "Files/File"; got != want {
		t.Errorf("type %q, want %q", got, want)
	}
	for reason, other := range map[string]core.ID{
		"another place":      ResourceID("Files", "dir-2", "File", json.RawMessage(`{"path":"Notes/a b.txt"}`)),
		"case of a path":     ResourceID("Files", "dir-1", "File", json.RawMessage(`{"path":"notes/a b.txt"}`)),
		"another extension":  ResourceID("Files2", "dir-1", "File", json.RawMessage(`{"path":"Notes/a b.txt"}`)),
		"another type":       ResourceID("Files", "dir-1", "Link", json.RawMessage(`{"path":"Notes/a b.txt"}`)),
		"a path that encode": ResourceID("Files", "dir-1", "File", json.RawMessage(`{"path":"Notes/a-b.txt"}`)),
	} {
		if a.Equal(other) {
			t.Errorf("%s: both are %s", reason, a)
		}
	}
	for reason, same := range map[string]core.ID{
		"spaces":                     ResourceID("Files", "dir-1", "File", json.RawMessage(` { "path" : "Notes/a b.txt" } `)),
		"case of extension and type": ResourceID("files", "dir-1", "file", json.RawMessage(`{"path":"Notes/a b.txt"}`)),
	} {
		if !a.Equal(same) {
			t.Errorf("%s: %s and %s", reason, a, same)
		}
	}
	two := ResourceID("X", "", "A.B/c/d", json.RawMessage(`{"b":1,"a":2}`))
	if want := ResourceID("X", "", "A.B/c/d", json.RawMessage(`{"a":2,"b":1}`)); !two.Equal(want) {
		t.Error("the order of identifiers makes another id")
	}
}

// Whatever an extension calls its types and resources, the id is one that the
// store takes back.
func TestResourceIDParses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		identifiers, err := json.Marshal(map[string]any{rapid.String().Draw(t, "key"): rapid.String().Draw(t, "value")})
		if err != nil {
			t.Fatal(err)
		}
		id := ResourceID(rapid.String().Draw(t, "extension"), rapid.String().Draw(t, "config"), rapid.String().Draw(t, "type"), identifiers)
		back, err := core.ParseID(id.String())
		if err != nil || !back.Equal(id) || !back.IsResource() {
			t.Fatalf("%s → %s (%v)", id, back, err)
		}
	})
}
