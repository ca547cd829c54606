// Package sqlite keeps the control plane in one SQLite file: the embedded
// default for one machine. It is a [store.Store]; package storetest holds the
// suite that proves it.
//
// One goroutine writes. It takes all writes that wait, runs each in its own
// savepoint of one transaction and commits once for all of them, so that many
// clients share the cost of reaching the disk and one client pays for nothing
// but its own. Reads run beside it on a pool of their own (write-ahead log) and
// see what is committed. Every commit is on disk (synchronous=FULL).
//
// One process uses a file at a time, held by a lock beside it. That is why Open
// may release all leases: whoever held them is gone.
package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// applicationID marks the file as ours in its header ("RADI").
const applicationID = 0x52414449

// logLimit is the size in bytes to which the write-ahead log shrinks again
// after a burst.
const logLimit = 64 << 20

// Options are what a store is opened with. The zero value is good.
type Options struct {
	// Listener is told of every commit, on the writer's goroutine: it must not
	// block and must not call the store.
	Listener store.Listener
	// Clock stands in where a call gives no time, and numbers the changes; nil
	// is time.Now.
	Clock func() time.Time
	// Committed is told of every commit: how many writes shared it and how long
	// it took, the disk included. It must not block.
	Committed func(writes int, took time.Duration)
}

// Store is one open file.
type Store struct {
	path  string
	clock func() time.Time
	lock  *lock
	// etags are unique over processes by the prefix, within one by the count.
	etagPrefix string
	etagCount  int64 // the writer's goroutine only
	// lastGroup is the group that was served last (see Lease); the writer's
	// goroutine only.
	lastGroup *string

	writer *writer
	reads  *sql.DB
	// drawing is held by the graph that reads on two connections (see snapshot).
	drawing sync.Mutex
	// stmts are the prepared reads by their text.
	stmts sync.Map
}

var _ store.Store = (*Store)(nil)

// Open opens the file at path and makes it when there is none. It takes the
// lock, migrates the schema forwards and hands operations that were under way
// when the last process ended back to the queue. ctx bounds the opening only.
func Open(ctx context.Context, path string, o Options) (_ *Store, err error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, core.Errorf(core.CodeUnavailable, "open store: %w", err)
	}
	s := &Store{path: path, clock: o.Clock, etagPrefix: etagPrefix()}
	if s.lock, err = acquire(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.lock.release())
		}
	}()
	if err := private(path); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn(path, "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "secure_delete(1)",
		"cache_size(-8000)", fmt.Sprintf("journal_size_limit(%d)", logLimit)))
	if err != nil {
		return nil, s.fault("opened", err)
	}
	db.SetMaxOpenConns(1)
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	if err := s.migrate(ctx, db); err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, s.fault("opened", err)
	}
	if s.reads, err = sql.Open("sqlite", dsn(path, "query_only(1)", "cache_size(-4000)")); err != nil {
		return nil, s.fault("opened", err)
	}
	readers := min(max(runtime.GOMAXPROCS(0), 2), 8) + 1 // a graph takes two
	s.reads.SetMaxOpenConns(readers)
	s.reads.SetMaxIdleConns(readers)
	s.writer = startWriter(s, db, conn, o)
	if err := s.recover(ctx); err != nil {
		return nil, errors.Join(err, s.writer.close(), s.reads.Close())
	}
	return s, nil
}

// dsn is the driver's name for the file with these pragmas on each connection.
func dsn(path string, pragmas ...string) string {
	q := url.Values{"_pragma": append([]string{"busy_timeout(10000)"}, pragmas...)}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// private makes the file with access for its user alone; SQLite gives the same
// to the files it lays beside it.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return core.Errorf(core.CodeUnavailable, "open store: %w; give the server a directory that it may write", err)
	}
	return f.Close()
}

func etagPrefix() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// etag returns an entity tag that was never used before.
func (s *Store) etag() string {
	s.etagCount++
	return fmt.Sprintf("%s-%x", s.etagPrefix, s.etagCount)
}

// nanos is t as the tables keep it; the zero time is the clock's.
func (s *Store) nanos(t time.Time) int64 {
	if t.IsZero() {
		t = s.clock()
	}
	return t.UnixNano()
}

// recover releases all leases: this process holds the lock of the file, so no
// worker lives that could hold one. Parked operations stay so while a child of
// theirs lives.
func (s *Store) recover(ctx context.Context) error {
	return s.writer.do(ctx, func(t *tx) error {
		for _, q := range []string{
			`UPDATE operations SET worker = '', lease_until = 0 WHERE ended = 0 AND lease_until > 0`,
			`UPDATE operations SET (children, parked) = ` + liveChildren + ` WHERE ended = 0 AND parked = 1`,
		} {
			if _, err := t.exec(q); err != nil {
				return err
			}
		}
		return nil
	})
}

// Close waits for writes under way and closes the file. Calls after it fail
// with ServiceUnavailable.
func (s *Store) Close() error {
	if !s.writer.stop() {
		return nil
	}
	s.stmts.Range(func(_, v any) bool {
		_ = v.(*sql.Stmt).Close()
		return true
	})
	// The readers close first, so that the writer's connection is the last and
	// folds the log into the file.
	return errors.Join(s.reads.Close(), s.writer.close(), s.lock.release())
}
