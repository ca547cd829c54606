package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

const (
	// maxConflicts bounds how often a transaction that lost against another
	// is run again.
	maxConflicts = 50
	// maxLost bounds how often one is run again whose connection was found
	// dead before it could commit: the pool may hold several such.
	maxLost = 3
)

// tx is one write. Statements are queued and go out together (flush); the last
// of them go out with the commit, when the write's function has returned.
type tx struct {
	s       *Store
	ctx     context.Context
	conn    *pgxpool.Conn
	batch   *pgx.Batch
	changes []store.Change
	// ends are operations as they are after the commit.
	ends []core.Operation
	// told says that one of the statements adds the changes to the feed.
	told bool
	// committing says that the commit has gone out: what comes of it may
	// never be known.
	committing bool
}

// write runs fn in a transaction and returns when that is on disk, or has
// changed nothing. A ctx that ends withdraws what has not begun; after that the
// outcome is waited for. fn may run more than once, and must then do the same
// again from the start.
func (s *Store) write(ctx context.Context, fn func(*tx) error) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.calls.Done()
	conflicts, dead := 0, 0
	for {
		err, committing := s.attempt(ctx, fn)
		var own *core.Error
		switch {
		case err == nil:
			return nil
		case errors.As(err, &own):
			return err
		case again(err) && conflicts < maxConflicts:
			conflicts++
			time.Sleep(time.Duration(rand.Int64N(int64(conflicts)*int64(time.Millisecond) + 1)))
		case lost(err) && committing:
			return s.unknown(err)
		case lost(err) && dead < maxLost && ctx.Err() == nil:
			dead++
		default:
			return s.fault("written", err)
		}
	}
}

func (s *Store) attempt(ctx context.Context, fn func(*tx) error) (err error, committing bool) {
	acquire, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := s.pool.Acquire(acquire)
	if err != nil {
		return err, false
	}
	defer conn.Release()
	work, done := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer done()
	t := &tx{s: s, ctx: work, conn: conn, batch: &pgx.Batch{}}
	t.batch.Queue("BEGIN")
	if err = fn(t); err == nil {
		err = t.commit()
	}
	t.ended(err)
	return err, t.committing
}

// ended leaves nothing open on the connection after a failure, and else tells
// this process what was committed.
func (t *tx) ended(err error) {
	switch {
	case err != nil:
		if t.conn.Conn().PgConn().TxStatus() != 'I' { // else nothing was begun
			_, _ = t.conn.Exec(t.ctx, "ROLLBACK") // a broken connection has no transaction either
		}
	case len(t.changes) > 0:
		for _, o := range t.ends { // before anybody is told to look
			t.s.recent.add(o)
		}
		t.s.feed.committed()
		if t.s.hint != nil {
			t.s.hint(t.changes)
		}
	}
}

// do queues a statement. What it answers is handled when the batch comes back.
func (t *tx) do(q string, args ...any) *pgx.QueuedQuery {
	if t.s.trace != nil {
		t.s.trace(q)
	}
	return t.batch.Queue(q, args...)
}

// rows queues a statement whose rows go to each.
func (t *tx) rows(q string, args []any, each func(scan) error) {
	t.do(q, args...).Query(func(rows pgx.Rows) error { return eachRow(rows, each) })
}

// row queues a statement that answers one row at most, into the given places;
// found says whether it did.
func (t *tx) row(q string, args []any, found *bool, into ...any) {
	*found = false
	t.rows(q, args, func(sc scan) error {
		*found = true
		return sc(into...)
	})
}

// exec queues a statement and counts the rows it touches into n, which may be nil.
func (t *tx) exec(n *int64, q string, args ...any) {
	t.do(q, args...).Exec(func(tag pgconn.CommandTag) error {
		if n != nil {
			*n = tag.RowsAffected()
		}
		return nil
	})
}

// flush sends what is queued and handles the answers.
func (t *tx) flush() error {
	if t.batch.Len() == 0 {
		return nil
	}
	b := t.batch
	t.batch = &pgx.Batch{}
	return t.conn.SendBatch(t.ctx, b).Close()
}

// commit sends what is left, what is told to the listeners, and the commit.
func (t *tx) commit() error {
	if len(t.changes) > 0 && !t.told {
		payload, err := t.payload()
		if err != nil {
			return err
		}
		t.do(insertChanges, payload)
	}
	t.batch.Queue("COMMIT")
	t.committing = true
	return t.flush()
}

// payload is what goes to the listeners.
func (t *tx) payload() (string, error) {
	b, err := json.Marshal(feedRows(t.changes))
	if err != nil {
		return "", fmt.Errorf("changes: %w", err)
	}
	return string(b), nil
}

// changed records what to tell once the transaction is committed.
func (t *tx) changed(c store.Change) { t.changes = append(t.changes, c) }

// eachRow calls each for every row of an answer.
func eachRow(rows pgx.Rows, each func(scan) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// read runs a query outside of any transaction and calls each for every row.
// It is begun anew on a dead connection while no row has come.
func (s *Store) read(ctx context.Context, q string, args []any, each func(scan) error) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.calls.Done()
	work, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for dead := 0; ; dead++ {
		began := false
		rows, err := s.pool.Query(work, q, args...)
		if err == nil {
			err = eachRow(rows, func(sc scan) error {
				began = true
				return each(sc)
			})
		}
		if err == nil || began || !lost(err) || dead >= maxLost || ctx.Err() != nil {
			return s.fault("read", err)
		}
	}
}

// readRow reads one row; found is false when there is none.
func (s *Store) readRow(ctx context.Context, q string, args []any, into ...any) (found bool, err error) {
	err = s.read(ctx, q, args, func(sc scan) error {
		found = true
		return sc(into...)
	})
	return found, err
}
