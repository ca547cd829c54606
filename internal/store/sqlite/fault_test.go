package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	lib "modernc.org/sqlite/lib"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
	"github.com/radial-project/radial/internal/store/storetest"
)

func group(name string) store.Write {
	return store.Write{Resource: core.Resource{ID: core.GroupID(name), State: core.StateSucceeded}, Expect: "*"}
}

func plane() store.Write {
	return store.Write{Resource: core.Resource{ID: core.ID{Plane: core.Segment{Type: "radius", Name: "local"}}, State: core.StateSucceeded}, Expect: "*"}
}

func mustAccept(t *testing.T, s store.Store, ws ...store.Write) {
	t.Helper()
	for _, w := range ws {
		if _, err := s.Accept(t.Context(), w); err != nil {
			t.Fatalf("accept %s: %v", w.Resource.ID, err)
		}
	}
}

// wantError checks code and text.
func wantError(t *testing.T, err error, code core.Code, says ...string) {
	t.Helper()
	if core.CodeOf(err) != code {
		t.Fatalf("error is %q (%v), want %q", core.CodeOf(err), err, code)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q does not say %q", err, s)
		}
	}
}

// TestDiskFull_D43 fills the disk under an open store.
func TestDiskFull_D43(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var full atomic.Bool
	watchDisk(t, dir, func(e effect) int32 {
		if full.Load() && e.kind == "write" {
			return lib.SQLITE_FULL
		}
		return lib.SQLITE_OK
	})
	var told atomic.Int64
	s := open(t, storetest.Dir(dir), storetest.Listener(func(cs []store.Change) { told.Add(int64(len(cs))) }))
	mustAccept(t, s, plane(), group("before"))
	before, heard := storetest.DumpOf(t, s), told.Load()
	full.Store(true)
	_, err := s.Accept(t.Context(), group("during"))
	wantError(t, err, core.CodeUnavailable, dir, "disk is full", "free space")
	if got := storetest.DumpOf(t, s); got != before {
		t.Errorf("a write that failed left:\n%s\nbefore it was:\n%s", got, before)
	}
	if told.Load() != heard {
		t.Error("a write that failed was told to the listener")
	}
	full.Store(false)
	mustAccept(t, s, group("after"))
	if _, _, err := s.Get(t.Context(), core.GroupID("after")); err != nil {
		t.Error(err)
	}
	_, _, err = s.Get(t.Context(), core.GroupID("during"))
	wantError(t, err, core.CodeNotFound)
}

// TestNewerRelease_D44 opens a file that a newer release has migrated.
func TestNewerRelease_D44(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "radial.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mustAccept(t, s, plane())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	raw(t, path, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (900, 1)`)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.Open(t.Context(), path, sqlite.Options{})
	wantError(t, err, core.CodeUnavailable, path, "900", "a newer release has used it", "start that release")
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("the refused file was changed")
	}
	raw(t, path, `DELETE FROM goose_db_version WHERE version_id = 900`)
	s, err = sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatalf("after the refusal: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// raw runs a statement in a file that no store has open.
func raw(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func TestOpen_refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(t *testing.T, path string)
		says    string
	}{
		"a file of another program": {func(t *testing.T, path string) { raw(t, path, `CREATE TABLE theirs (a)`) }, "another program"},
		"what is no database": {func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(strings.Repeat("no database\n", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a SQLite database"},
		"a directory": {func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "radial.db")
			c.prepare(t, path)
			_, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			wantError(t, err, core.CodeUnavailable, path, c.says)
			// The lock is free again for who corrects the cause.
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Fatalf("after the cause is gone: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a directory that is not there", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "none", "radial.db")
		_, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		wantError(t, err, core.CodeUnavailable, path, "a directory that exists")
	})
}

// TestOpen_paths opens files whose names mean something in a URI.
func TestOpen_paths(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b?mode=ro.db", "100%41.db", "#x&_pragma=y.db", "ümläut.db"} {
		path := filepath.Join(t.TempDir(), name)
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatalf("open %q: %v", name, err)
		}
		mustAccept(t, s, plane())
		for _, f := range []string{path, path + "-wal", path + ".lock"} {
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v: others may read it", f, info.Mode())
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCanceled withdraws what has not begun.
func TestCanceled(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustAccept(t, s, plane())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Accept(ctx, group("g"))
	if err == nil { // the writer was faster than the caller's giving up: then it is committed
		if _, _, err := s.Get(t.Context(), core.GroupID("g")); err != nil {
			t.Errorf("Accept returned nil and nothing is there: %v", err)
		}
		return
	}
	wantError(t, err, core.CodeUnavailable, "stopped waiting")
	mustAccept(t, s, group("later"))
	_, _, err = s.Get(t.Context(), core.GroupID("g"))
	wantError(t, err, core.CodeNotFound)
}
