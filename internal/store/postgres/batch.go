package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/radial-project/radial/internal/core"
)

const (
	// maxBatch bounds the writes of one transaction, and so how long the first
	// waits for the last; it is below perXid, so that each has its own place in
	// the feed.
	maxBatch = 64
	// lanes is how many transactions of one kind run at a time: while one waits
	// for the disk the next is made, and what comes meanwhile goes together.
	lanes = 1
)

// errAlone says that a write must be made in a transaction of its own: what it
// needs goes beyond what writes can do together, or the transaction that it was
// part of failed for whatever reason, and it is to fail by its own fault only.
var errAlone = errors.New("to be written alone")

// call is a write that may be made together with others of its kind.
type call struct {
	// key names what no two writes of one transaction may share.
	key     string
	claimed atomic.Bool
	done    chan struct{}
	err     error
}

// batcher makes the writes that wait together, in one transaction of few
// statements: each lane takes all there are once it has a connection, so that a
// write which comes alone waits for nobody, and under load the work and the sync
// of a commit are shared.
type batcher[T any] struct {
	s    *Store
	head func(T) *call
	// write makes the writes of one transaction. It sets the err of each,
	// errAlone for those of which it has changed nothing.
	write func(*tx, []T) error

	mu      sync.Mutex
	waiting []T
	running int
}

// do adds a write and returns when it is on disk or was refused. A ctx that ends
// withdraws what has not begun; after that its outcome is waited for.
func (b *batcher[T]) do(ctx context.Context, w T) error {
	c := b.head(w)
	c.done = make(chan struct{})
	if err := ctx.Err(); err != nil {
		return b.s.fault("written", err)
	}
	if err := b.s.begin(); err != nil {
		return err
	}
	defer b.s.calls.Done()
	b.mu.Lock()
	b.waiting = append(b.waiting, w)
	if b.running < lanes {
		b.running++
		go b.lane()
	}
	b.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		if c.claimed.CompareAndSwap(false, true) {
			return b.s.fault("written", ctx.Err())
		}
		<-c.done
	}
	return c.err
}

// lane commits batches until nothing waits.
func (b *batcher[T]) lane() {
	for b.more() {
		b.commit()
	}
}

// more says whether something waits; if not, the lane has ended.
func (b *batcher[T]) more() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.running--
		return false
	}
	return true
}

// take claims what goes into one transaction, in the order in which it came.
func (b *batcher[T]) take() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch, left []T
	keys := map[string]bool{}
	for _, w := range b.waiting {
		switch c := b.head(w); {
		case len(batch) == maxBatch || keys[c.key]:
			left = append(left, w)
		case c.claimed.CompareAndSwap(false, true):
			keys[c.key] = true
			batch = append(batch, w)
		}
	}
	b.waiting = left
	return batch
}

// commit makes one batch.
func (b *batcher[T]) commit() {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	conn, err := b.s.pool.Acquire(ctx)
	if err != nil {
		err = errAlone // as the only one it knows what to do about it
	}
	batch := b.take()
	if err == nil && len(batch) > 0 {
		t := &tx{s: b.s, ctx: ctx, conn: conn, batch: &pgx.Batch{}}
		t.batch.Queue("BEGIN")
		if err = b.write(t, batch); err == nil {
			err = t.commit()
		}
		t.ended(err)
		err = outcome(b.s, err, t.committing)
	}
	if conn != nil {
		conn.Release()
	}
	for _, w := range batch {
		c := b.head(w)
		if err != nil {
			c.err = err
		}
		close(c.done)
	}
}

// outcome is what a failure of their transaction means for its writes.
func outcome(s *Store, err error, committing bool) error {
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case !committing || errors.As(err, &refused) && !lost(err):
		return errAlone // nothing was changed
	case lost(err):
		return s.unknown(err)
	default:
		return s.fault("written", err)
	}
}

// unknown is the error of a write whose commit was not answered.
func (s *Store) unknown(err error) error {
	return core.Errorf(core.CodeUnavailable, "the connection to %s was lost during a commit, and it is not known whether the write took effect: read before repeating it (%w)", s.where, err)
}
