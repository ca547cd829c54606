// Package fault kills, races and stalls the real control plane. Each test runs
// a sample, whose seed it prints; RADIAL_FAULT=all (make fault) runs all of it.
package fault

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/pgtest"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/test/fault/plane"
)

func TestMain(m *testing.M) {
	plane.Main()
	code := m.Run()
	pgtest.Stop()
	if err := clustertest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// patience bounds what must end. It asserts no speed: it ends a test that hangs.
const patience = 2 * time.Minute

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func all() bool { return os.Getenv("RADIAL_FAULT") == "all" }

// random is seeded by RADIAL_SEED, and otherwise by the time; the log says how
// to have it again.
func random(t *testing.T) *rand.Rand {
	seed, err := strconv.ParseUint(os.Getenv("RADIAL_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("RADIAL_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// home is where one store lives, and what belongs to it.
type home struct {
	config plane.Config
	// clone copies a store at rest.
	clone func(t *testing.T) home
}

// kind is a kind of store.
type kind struct {
	name string
	// replicas says that several processes may work on one store.
	replicas bool
	fresh    func(t *testing.T) home
}

func kinds() []kind {
	return []kind{{name: "SQLite", fresh: freshSQLite}, {name: "PostgreSQL", replicas: true, fresh: freshPostgres}}
}

func freshSQLite(t *testing.T) home { return sqliteIn(t.TempDir()) }

func sqliteIn(dir string) home {
	return home{
		config: plane.Config{Store: filepath.Join(dir, "radial.db"), KeyFile: filepath.Join(dir, "key")},
		clone: func(t *testing.T) home {
			to := t.TempDir()
			for _, name := range []string{"radial.db", "key"} {
				copyFile(t, filepath.Join(dir, name), filepath.Join(to, name))
			}
			return sqliteIn(to)
		},
	}
}

func freshPostgres(t *testing.T) home {
	return postgresIn(pgtest.Database(t), filepath.Join(t.TempDir(), "key"))
}

func postgresIn(dsn, key string) home {
	return home{
		config: plane.Config{Store: dsn, KeyFile: key},
		clone: func(t *testing.T) home {
			// An empty one is replaced by the copy, so that it has a name of its own.
			to := pgtest.Database(t)
			source, target := databaseName(t, dsn), databaseName(t, to)
			config, err := pgx.ParseConfig(dsn)
			if err != nil {
				t.Fatal(err)
			}
			config.Database = "postgres"
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.WithoutCancel(t.Context()))
			for _, statement := range []string{"DROP DATABASE " + target, "CREATE DATABASE " + target + " TEMPLATE " + source} {
				if _, err := conn.Exec(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			return postgresIn(to, key)
		},
	}
}

func databaseName(t *testing.T, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return config.Database
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// launch starts a control plane in a process of its own.
func launch(t *testing.T, c plane.Config) (*plane.Process, *plane.Client) {
	t.Helper()
	p, err := plane.Launch(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p, plane.NewClient(p.URL)
}

// inspect opens a store that no process uses.
func inspect(t *testing.T, h home, look func(store.Store)) {
	t.Helper()
	s, err := plane.Open(t.Context(), h.config.Store, func([]store.Change) {})
	if err != nil {
		t.Fatalf("open the store after the crash: %v", err)
	}
	defer s.Close()
	look(s)
}

// prepared is a store with the types, the environment and the application, and
// nobody on it.
func prepared(t *testing.T, h home, template, namespace string) home {
	t.Helper()
	p, err := plane.Start(t.Context(), h.config, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if err := plane.NewClient(p.URL).Prepare(patient(t), template, namespace); err != nil {
		t.Fatal(err)
	}
	return h
}
