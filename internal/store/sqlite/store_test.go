package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
	"github.com/radial-project/radial/internal/store/storetest"
)

// open is the store of one test.
func open(t *testing.T, options ...storetest.Option) store.Store {
	t.Helper()
	c := storetest.Configure(options...)
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	s, err := sqlite.Open(t.Context(), filepath.Join(c.Dir, "radial.db"), sqlite.Options{Listener: c.Listener, Clock: c.Clock})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// TestStore_D43 runs the conformance suite against the embedded default.
func TestStore_D43(t *testing.T) { storetest.Run(t, open) }
