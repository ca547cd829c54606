package postgres_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/radial-project/radial/internal/pgtest"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/postgres"
	"github.com/radial-project/radial/internal/store/storetest"
)

// databases are those of the suite's directories, so that a store opened again
// finds its data.
var databases struct {
	sync.Mutex
	of map[string]string
}

func databaseOf(t *testing.T, dir string) string {
	t.Helper()
	if dir == "" {
		return pgtest.Database(t)
	}
	dir = filepath.Clean(dir)
	databases.Lock()
	defer databases.Unlock()
	if databases.of == nil {
		databases.of = map[string]string{}
	}
	if databases.of[dir] == "" {
		databases.of[dir] = pgtest.Database(t)
	}
	return databases.of[dir]
}

func openAt(t *testing.T, dsn string, options ...storetest.Option) *postgres.Store {
	t.Helper()
	c := storetest.Configure(options...)
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{Listener: c.Listener, Clock: c.Clock})
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

// open is the store of one test.
func open(t *testing.T, options ...storetest.Option) store.Store {
	t.Helper()
	return openAt(t, databaseOf(t, storetest.Configure(options...).Dir), options...)
}

// TestStore_D43 runs the conformance suite against a real PostgreSQL.
func TestStore_D43(t *testing.T) { storetest.Run(t, open) }
