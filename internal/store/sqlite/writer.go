package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// maxBatch bounds how many writes share a commit, and so how long the first of
// them waits for the others.
const maxBatch = 256

// writer owns the one connection that writes.
type writer struct {
	s      *Store
	db     *sql.DB
	conn   *sql.Conn
	stmts  map[string]*sql.Stmt
	listen store.Listener
	// committed is told of commits, see Options.
	committed func(writes int, took time.Duration)
	seq       int64
	trace     func(statement string) // tests count statements; else nil

	requests chan *request
	done     chan struct{} // closed when the goroutine has ended

	// commits is held while a commit is made: who shares it sees no commit
	// between its first read on one connection and that on another.
	commits sync.RWMutex

	mu     sync.RWMutex // keeps sends on requests apart from its close
	closed atomic.Bool  // set under mu
}

// request is one write on its way. Its fn may run more than once (see commit),
// and must then do the same again from the start.
type request struct {
	fn      func(*tx) error
	changes []store.Change
	err     error
	claimed atomic.Bool // by the writer, or by a caller that gave up
	done    chan struct{}
}

func startWriter(s *Store, db *sql.DB, conn *sql.Conn, o Options) *writer {
	if o.Listener == nil {
		o.Listener = func([]store.Change) {}
	}
	if o.Committed == nil {
		o.Committed = func(int, time.Duration) {}
	}
	w := &writer{
		s: s, db: db, conn: conn, listen: o.Listener, committed: o.Committed, stmts: map[string]*sql.Stmt{},
		// Numbers of a later process are above those of an earlier one, so that
		// a reader of the feed that was away meanwhile is not taken for one
		// that has seen everything. Microseconds fit a JSON number.
		seq:      s.clock().UnixMicro(),
		requests: make(chan *request, maxBatch), done: make(chan struct{}),
	}
	go w.run()
	return w
}

// do runs fn in a transaction and returns when that is on disk, or has changed
// nothing. A ctx that ends before the writer comes to it withdraws the write;
// after that its outcome is waited for.
func (w *writer) do(ctx context.Context, fn func(*tx) error) error {
	r := &request{fn: fn, done: make(chan struct{})}
	w.mu.RLock()
	if w.closed.Load() {
		w.mu.RUnlock()
		return w.s.closedError()
	}
	select {
	case w.requests <- r:
		w.mu.RUnlock()
	case <-ctx.Done():
		w.mu.RUnlock()
		return w.s.fault("written", ctx.Err())
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		if r.claimed.CompareAndSwap(false, true) {
			return w.s.fault("written", ctx.Err())
		}
		<-r.done
	}
	return r.err
}

// run is the writer's goroutine: it ends when requests is closed and empty.
func (w *writer) run() {
	defer close(w.done)
	batch := make([]*request, 0, maxBatch)
	for r := range w.requests {
		batch = claim(batch[:0], r)
	more:
		for len(batch) < maxBatch {
			select {
			case r, ok := <-w.requests:
				if !ok {
					break more
				}
				batch = claim(batch, r)
			default:
				break more
			}
		}
		if len(batch) > 0 {
			w.commit(batch)
		}
	}
}

func claim(batch []*request, r *request) []*request {
	if r.claimed.CompareAndSwap(false, true) {
		return append(batch, r)
	}
	return batch
}

// commit writes a batch and tells everyone. When SQLite itself fails (a full
// disk, say) the whole transaction is gone, the innocent with the guilty; each
// is then tried once more alone, so that a write fails by its own fault only.
func (w *writer) commit(batch []*request) {
	begun := time.Now()
	if err := w.attempt(batch); err == nil {
		w.committed(len(batch), time.Since(begun))
		w.publish(batch)
	} else if len(batch) == 1 {
		batch[0].err = w.s.fault("written", err)
	} else {
		for i := range batch {
			if err := w.attempt(batch[i : i+1]); err != nil {
				batch[i].err = w.s.fault("written", err)
			} else {
				w.publish(batch[i : i+1])
			}
		}
	}
	for _, r := range batch {
		close(r.done)
	}
}

// attempt runs a batch in one transaction. The error is SQLite's, and then
// nothing was changed; that of a single write lies in its request.
func (w *writer) attempt(batch []*request) (err error) {
	if err := w.step("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = w.step("ROLLBACK") // fails when SQLite has rolled back itself
		}
	}()
	for _, r := range batch {
		if err := w.runOne(r); err != nil {
			return err
		}
	}
	w.commits.Lock()
	defer w.commits.Unlock()
	return w.step("COMMIT")
}

func (w *writer) runOne(r *request) error {
	if err := w.step("SAVEPOINT one"); err != nil {
		return err
	}
	t := &tx{w: w}
	r.err, r.changes = r.fn(t), t.changes
	if r.err != nil {
		r.changes = nil
		var own *core.Error
		if !errors.As(r.err, &own) {
			if unusable(r.err) {
				return r.err
			}
			r.err = w.s.fault("written", r.err)
		}
		if err := w.step("ROLLBACK TO one"); err != nil {
			return err
		}
	}
	return w.step("RELEASE one")
}

// publish numbers the changes of a committed batch and hands them on.
func (w *writer) publish(batch []*request) {
	var all []store.Change
	for _, r := range batch {
		for _, c := range r.changes {
			w.seq++
			c.Seq = w.seq
			all = append(all, c)
		}
	}
	if len(all) > 0 {
		w.listen(all)
	}
}

// stop lets no more writes in and waits for those under way. It reports false
// when that was done before.
func (w *writer) stop() bool {
	w.mu.Lock()
	was := w.closed.Swap(true)
	if !was {
		close(w.requests)
	}
	w.mu.Unlock()
	<-w.done
	return !was
}

// close ends the goroutine and closes the connection.
func (w *writer) close() error {
	w.stop()
	for _, st := range w.stmts {
		_ = st.Close()
	}
	return errors.Join(w.conn.Close(), w.db.Close())
}

// prepared returns the statement for a text, prepared once; the caller runs it.
func (w *writer) prepared(q string) (*sql.Stmt, error) {
	if w.trace != nil {
		w.trace(q)
	}
	if st, ok := w.stmts[q]; ok {
		return st, nil
	}
	// No context: a statement of the writer is never interrupted half way.
	st, err := w.conn.PrepareContext(context.Background(), q)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", q, err)
	}
	w.stmts[q] = st
	return st, nil
}

// step runs a statement that steers the transaction.
func (w *writer) step(q string) error {
	st, err := w.prepared(q)
	if err == nil {
		_, err = st.ExecContext(context.Background())
	}
	return err
}

// tx is what a write may do. It lives for one run of a request's fn.
type tx struct {
	w       *writer
	changes []store.Change
}

// changed records what to tell once the transaction is committed.
func (t *tx) changed(c store.Change) { t.changes = append(t.changes, c) }

// exec runs a statement and returns how many rows it touched.
func (t *tx) exec(q string, args ...any) (int64, error) {
	st, err := t.w.prepared(q)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// row runs a statement that answers one row; found is false when it has none.
func (t *tx) row(q string, args []any, into ...any) (found bool, err error) {
	st, err := t.w.prepared(q)
	if err != nil {
		return false, err
	}
	err = st.QueryRowContext(context.Background(), args...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// rows runs a statement and calls each for every row.
func (t *tx) rows(q string, args []any, each func(scan) error) error {
	st, err := t.w.prepared(q)
	if err != nil {
		return err
	}
	return eachRow(context.Background(), st, args, each)
}
