package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	_ "modernc.org/sqlite"

	"github.com/radial-project/radial/test/fault/plane"
)

// floor is what any server must pay for a write that is accepted, leased and
// ended: three commits of the same rows on the same disk, one after the other,
// and two loopback requests.
type floor interface {
	// write makes the three commits of one write.
	write(ctx context.Context, name string) error
	close()
}

// floorTables hold as many columns and bytes as a resource and its operation.
const floorTables = `CREATE TABLE resources (key TEXT PRIMARY KEY, id TEXT NOT NULL, properties TEXT NOT NULL, state TEXT NOT NULL, etag TEXT NOT NULL);
CREATE TABLE operations (id TEXT PRIMARY KEY, resource TEXT NOT NULL, state TEXT NOT NULL, worker TEXT, fence BIGINT NOT NULL)`

// floorCommits are the statements of the three commits; $1 is the row's key, $2
// its content.
var floorCommits = [3][]string{
	{`INSERT INTO resources VALUES ($1, $1, $2, 'Accepted', '1')`, `INSERT INTO operations VALUES ($1, $1, 'Accepted', NULL, 0)`},
	{`UPDATE operations SET worker = 'w', fence = fence + 1 WHERE id = $1`},
	{`UPDATE resources SET state = 'Succeeded', etag = '2' WHERE key = $1`, `UPDATE operations SET state = 'Succeeded', worker = NULL WHERE id = $1`},
}

var floorContent = strings.Repeat("x", 600)

// sqlFloor makes the commits by database/sql.
type sqlFloor struct {
	db    *sql.DB
	stmts [3][]*sql.Stmt
}

func sqliteFloor(ctx context.Context, path string) (floor, error) {
	db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return newSQLFloor(ctx, db)
}

func newSQLFloor(ctx context.Context, db *sql.DB) (floor, error) {
	f := &sqlFloor{db: db}
	for _, table := range strings.Split(floorTables, ";") {
		if _, err := db.ExecContext(ctx, table); err != nil {
			return nil, err
		}
	}
	for i, commit := range floorCommits {
		for _, text := range commit {
			s, err := db.PrepareContext(ctx, text)
			if err != nil {
				return nil, err
			}
			f.stmts[i] = append(f.stmts[i], s)
		}
	}
	return f, nil
}

func (f *sqlFloor) write(ctx context.Context, name string) error {
	for i, commit := range f.stmts {
		tx, err := f.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		for j, s := range commit {
			args := []any{name}
			if strings.Contains(floorCommits[i][j], "$2") {
				args = append(args, floorContent)
			}
			if _, err := tx.StmtContext(ctx, s).ExecContext(ctx, args...); err != nil {
				return err
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

func (f *sqlFloor) close() { _ = f.db.Close() }

// timeFloor measures n writes of the floor, in milliseconds each.
func timeFloor(ctx context.Context, f floor, from, n int) ([]float64, error) {
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(rw, `{"status":"Succeeded"}`)
	}))
	defer srv.Close()
	w := plane.NewClient(srv.URL)
	if _, err := w.Send(ctx, http.MethodPut, "/", body); err != nil { // the connection
		return nil, err
	}
	times := make([]float64, n)
	for i := range times {
		t := time.Now()
		for _, m := range []string{http.MethodPut, http.MethodGet} {
			if _, err := w.Send(ctx, m, "/", body); err != nil {
				return nil, err
			}
		}
		if err := f.write(ctx, fmt.Sprintf("row-%d", from+i)); err != nil {
			return nil, err
		}
		times[i] = milliseconds(time.Since(t))
	}
	return times, nil
}
