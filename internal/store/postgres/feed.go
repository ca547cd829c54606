package postgres

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// The feed is how a process hears of what all processes commit.
//
// A transaction's number (xid) is its changes' place in it. Numbers are given
// at the first write and commits come in any order, so a reader takes only what
// lies below the oldest transaction that still runs: nothing can appear there
// any more. Every process reads the same changes in the same order, under the
// same numbers, so that a client may go on at another replica where it stopped
// at this one.
//
// A notification says that there is something; it is sent outside of the
// transactions, because inside one it would make commits wait for each other,
// and once for all commits of a few milliseconds. It carries nothing: when one
// is lost, the sweep finds the rows.

const (
	channel = "radial_changes"
	// perXid are the places of one transaction's changes in [store.Change.Seq];
	// 2^53, what a JSON number carries, then allows for 2^45 transactions.
	perXid = 256
	// notifyPause is for how long notifications are collected.
	notifyPause = 3 * time.Millisecond
	// readPause is the least time between two reads.
	readPause = time.Millisecond
	// stalled is how long changes may lie above a transaction that does not
	// end (of whatever database of the server) before readers are told to look
	// for themselves.
	stalled = 2 * time.Second
	// keepChanges is how long a replica may be away without a Reset.
	keepChanges = 15 * time.Minute
	pruneEvery  = time.Minute
)

const insertChanges = `INSERT INTO changes (payload) VALUES ($1)`

// feedRow is a change as the table keeps it.
type feedRow struct {
	Kind      store.ChangeKind `json:"k,omitempty"`
	ID        core.ID          `json:"i"`
	Operation string           `json:"o,omitempty"`
	State     core.State       `json:"s,omitempty"`
	Deleted   bool             `json:"d,omitempty"`
	Work      bool             `json:"w,omitempty"`
}

func feedRows(cs []store.Change) []feedRow {
	out := make([]feedRow, len(cs))
	for i, c := range cs {
		out[i] = feedRow{c.Kind, c.ID, c.Operation, c.State, c.Deleted, c.Work}
	}
	return out
}

// feed reads the changes of all processes and hands them to one listener.
type feed struct {
	s      *Store
	pool   *pgxpool.Pool
	listen store.Listener
	sweep  time.Duration

	wake   chan struct{} // there may be changes to read
	notify chan struct{} // we have committed some
	cancel context.CancelFunc
	done   sync.WaitGroup
	// ours are the processes of the server that our notifications come from.
	ours sync.Map

	// next is the lowest number not read yet, horizon the oldest transaction that
	// ran at the last read; the reader's alone.
	next, horizon int64
	since         time.Time // when the reader first saw changes that it may not take
}

func startFeed(ctx context.Context, s *Store, config *pgxpool.Config, o Options) (*feed, error) {
	own := config.Copy()
	// A notification that is lost with the machine is found by the sweep.
	own.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	own.MaxConns = 2
	f := &feed{s: s, listen: o.Listener, sweep: o.Sweep, wake: make(chan struct{}, 1), notify: make(chan struct{}, 1)}
	own.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		f.ours.Store(conn.PgConn().PID(), true)
		return nil
	}
	own.BeforeClose = func(conn *pgx.Conn) { f.ours.Delete(conn.PgConn().PID()) }
	var err error
	if f.pool, err = pgxpool.NewWithConfig(ctx, own); err != nil {
		return nil, s.fault("opened", err)
	}
	var newest, pruned int64
	err = f.pool.QueryRow(ctx, `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, `+newestChange+`, (SELECT pruned FROM feed)`).Scan(&f.horizon, &newest, &pruned)
	if err != nil {
		f.pool.Close()
		return nil, s.fault("read", err)
	}
	f.next = resume(f.horizon, newest, pruned)
	running, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.done.Go(func() { f.read(running) })
	f.done.Go(func() { f.send(running) })
	f.done.Go(func() { f.hear(running, config.ConnConfig) })
	return f, nil
}

func (f *feed) stop() {
	f.cancel()
	f.done.Wait()
	f.pool.Close()
}

// committed says that this process has committed changes.
func (f *feed) committed() {
	poke(f.wake)
	poke(f.notify)
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// wait returns false when ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// send tells the other processes, one notification for all commits meanwhile.
func (f *feed) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.notify:
		}
		if !wait(ctx, notifyPause) {
			return
		}
		select { // committed while we waited: this notification is theirs too
		case <-f.notify:
		default:
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := f.pool.Exec(call, `SELECT pg_notify('`+channel+`', '')`)
		cancel()
		if err != nil && !wait(ctx, f.sweep) { // the others' sweeps find the rows meanwhile
			return
		}
	}
}

// hear listens on a connection of its own and makes a new one when it fails.
func (f *feed) hear(ctx context.Context, config *pgx.ConnConfig) {
	for ctx.Err() == nil {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err == nil {
			_, err = conn.Exec(ctx, `LISTEN `+channel)
			poke(f.wake) // what came before this connection
			for err == nil {
				var told *pgconn.Notification
				if told, err = conn.WaitForNotification(ctx); err != nil {
					break
				}
				if _, own := f.ours.Load(told.PID); !own { // of ours we knew at their commit
					poke(f.wake)
				}
			}
			_ = conn.Close(context.WithoutCancel(ctx))
		}
		if !wait(ctx, f.sweep) {
			return
		}
	}
}

// read reads whenever there may be something.
func (f *feed) read(ctx context.Context) {
	sweep := time.NewTimer(f.sweep)
	defer sweep.Stop()
	pruned := time.Now()
	pause := readPause
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-sweep.C:
		}
		more, err := f.take(ctx)
		again := f.sweep
		if err == nil && more {
			// Someone's transaction still runs below changes that are there.
			// Its end is not told if it changed nothing of ours.
			again = min(pause, f.sweep)
			pause = min(2*pause, f.sweep/4)
		} else {
			pause = readPause
		}
		sweep.Reset(again)
		if err == nil && time.Since(pruned) > pruneEvery {
			pruned = time.Now()
			f.prune(ctx)
		}
		if !wait(ctx, readPause) {
			return
		}
	}
}

// newestChange is the highest number of all changes: asked in this way it is one
// step into the index, and not a walk over all changes that are kept.
const newestChange = `coalesce((SELECT late.xid::text::bigint FROM changes late ORDER BY late.xid DESC LIMIT 1), 0)`

// selectChanges answers at least one row: the oldest transaction that runs, how
// far the feed was pruned, the newest of all changes, and those from $1 on that
// may be taken.
const selectChanges = `WITH h AS (SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xmin)
	SELECT h.xmin::text::bigint, (SELECT pruned FROM feed), ` + newestChange + `, c.xid::text::bigint, c.payload
	FROM h LEFT JOIN changes c ON c.xid >= $1::text::xid8 AND c.xid < h.xmin ORDER BY c.xid`

// resume is where to read on once all changes below the horizon are read. The
// horizon itself will not do: a server that crashes takes back the numbers of
// transactions of which nothing was on disk (those of notifications, say), and
// gives them to others.
func resume(horizon, newest, pruned int64) int64 { return min(horizon, max(newest, pruned)+1) }

// take reads what is there and hands it on; more says that there are changes
// which may not be taken yet.
func (f *feed) take(ctx context.Context) (more bool, err error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := f.pool.Query(call, selectChanges, itoa(f.next))
	if err != nil {
		return false, err
	}
	var horizon, pruned, newest int64
	var told []store.Change
	err = eachRow(rows, func(sc scan) error {
		var xid *int64
		var payload *string
		if err := sc(&horizon, &pruned, &newest, &xid, &payload); err != nil || xid == nil {
			return err
		}
		var cs []feedRow
		if err := json.Unmarshal([]byte(*payload), &cs); err != nil {
			return err
		}
		for i, c := range cs {
			told = append(told, store.Change{Kind: c.Kind, Seq: *xid*perXid + int64(min(i, perXid-1)),
				ID: c.ID, Operation: c.Operation, State: c.State, Deleted: c.Deleted, Work: c.Work})
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	more = newest >= horizon
	switch now := time.Now(); {
	case horizon < f.next || pruned >= f.next:
		// Another server under the same address, or we were away too long.
		told = append([]store.Change{f.reset(horizon)}, told...)
		if horizon < f.next {
			told = told[:1]
		}
	case !more || horizon > f.horizon:
		f.since = time.Time{}
	case f.since.IsZero():
		f.since = now
	case now.Sub(f.since) > stalled:
		f.since = now
		told = append(told, f.reset(f.next))
	}
	f.next, f.horizon = resume(horizon, newest, pruned), horizon
	if len(told) > 0 {
		f.listen(told)
	}
	return more, nil
}

// reset is the change that says that others were missed, below a number.
func (f *feed) reset(xid int64) store.Change {
	return store.Change{Kind: store.ChangeReset, Seq: xid*perXid - 1}
}

// prune removes what every replica has read long ago; that several do it at
// once costs little.
func (f *feed) prune(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// A failure leaves rows to the next time.
	_, _ = f.pool.Exec(call, `WITH gone AS (DELETE FROM changes WHERE at < now() - make_interval(secs => $1)
			AND xid < pg_snapshot_xmin(pg_current_snapshot()) RETURNING xid::text::bigint AS xid)
		UPDATE feed SET pruned = greatest(pruned, (SELECT max(xid) FROM gone)) WHERE EXISTS (SELECT 1 FROM gone)`, keepChanges.Seconds())
}
