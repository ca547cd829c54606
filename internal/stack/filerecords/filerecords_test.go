package filerecords

import (
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
