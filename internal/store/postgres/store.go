// Package postgres keeps the control plane in a PostgreSQL database, for more
// than one machine: any number of replicas, of the API and of workers, share
// it. It is a [store.Store]; package storetest holds the suite that proves it.
//
// # How a write goes
//
// A write is one transaction of at most six statements, in two round trips for
// most: the first locks and reads, the second writes and commits. What it must
// be alone with, it locks by name before it writes anything (see locks.go), so
// that it waits but does not fail; a deadlock or a conflict that remains is
// tried again inside.
//
// # How replicas hear of each other
//
// Every transaction adds what it changed to a table. Each process reads that
// table below the oldest transaction that still runs, and so hears of all
// changes of all processes in one order (see feed.go).
package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

const (
	// callTimeout bounds a call to a database that does not answer.
	callTimeout = 30 * time.Second
	// connectTimeout bounds the making of a connection.
	connectTimeout = 5 * time.Second
	// minConnections is how many connections the pool may have at least.
	minConnections = 16
)

// Options are what a store is opened with. The zero value is good.
type Options struct {
	// Listener is told of every commit of every process, on a goroutine of
	// the store's: it must not block.
	Listener store.Listener
	// Hint, when not nil, is told of the commits of this process alone, at once
	// and from any goroutine, before they have a place in the feed (Seq is 0):
	// it may wake those who wait, and the Listener is told again in order.
	Hint store.Listener
	// Clock stands in where a call gives no time; nil is time.Now.
	Clock func() time.Time
	// Sweep is how often the change feed is read without being told, nil is a
	// second. It bounds how late a change is heard of when notifications fail.
	Sweep time.Duration

	// dial makes the connections that writes and reads go over; tests only.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Store is one process's connection to the database.
type Store struct {
	pool  *pgxpool.Pool
	where string // host and database, for messages
	clock func() time.Time

	etagPrefix string
	etagCount  atomic.Int64

	// turn is the group that was served last (see Lease).
	turn struct {
		sync.Mutex
		group string
	}

	// accepts and ends are the writes that are made together.
	accepts *batcher[*accepting]
	ends    *batcher[*ending]

	recent recent

	feed   *feed
	hint   store.Listener
	closed atomic.Bool
	// calls counts writes under way, for Close.
	calls sync.WaitGroup
	mu    sync.RWMutex // keeps calls.Add apart from calls.Wait
	// trace is told of every statement of a write; tests only.
	trace func(statement string)
}

var _ store.Store = (*Store)(nil)

// Open connects to the database that dsn names (a URL or key=value words, see
// pgx), migrates its schema forwards, and begins to listen. ctx bounds the
// opening only. pool_max_conns in dsn sets the size of the pool.
func Open(ctx context.Context, dsn string, o Options) (_ *Store, err error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Sweep <= 0 {
		o.Sweep = time.Second
	}
	if o.Listener == nil {
		o.Listener = func([]store.Change) {}
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil { // its text has the password taken out
		return nil, core.Errorf(core.CodeUnavailable, "the address of the store is not one of PostgreSQL: %v", err)
	}
	config.ConnConfig.ConnectTimeout = connectTimeout
	if !setsPoolSize(dsn) {
		config.MaxConns = int32(max(minConnections, 4*runtime.GOMAXPROCS(0)))
	}
	// Keys compare byte by byte, and nothing else is compared: what a database's
	// default isolation is must not change what a write means.
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed"
	config.ConnConfig.RuntimeParams["application_name"] = "radial"
	// Every statement is a few steps into indexes, whatever its values and however
	// many rows there are: to plan it once a connection is enough, and a plan made
	// while tables were small must not walk them when they have grown.
	for name, value := range map[string]string{"plan_cache_mode": "force_generic_plan", "jit": "off",
		"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"} {
		config.ConnConfig.RuntimeParams[name] = value
	}
	s := &Store{clock: o.Clock, etagPrefix: etagPrefix(), hint: o.Hint,
		where: fmt.Sprintf("PostgreSQL at %s:%d, database %s", config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Database)}
	s.accepts = &batcher[*accepting]{s: s, head: func(a *accepting) *call { return &a.call }, write: (*tx).acceptAll}
	s.ends = &batcher[*ending]{s: s, head: func(e *ending) *call { return &e.call }, write: (*tx).endAll}
	if err := s.migrate(ctx, config.ConnConfig); err != nil {
		return nil, err
	}
	if s.feed, err = startFeed(ctx, s, config.Copy(), o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.feed.stop()
		}
	}()
	if o.dial != nil {
		config.ConnConfig.DialFunc = o.dial
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, s.fault("opened", err)
	}
	return s, nil
}

func setsPoolSize(dsn string) bool {
	c, err := pgx.ParseConfig(dsn)
	return err == nil && c.RuntimeParams["pool_max_conns"] != ""
}

func etagPrefix() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// etag returns an entity tag that was never used before, in any process.
func (s *Store) etag() string { return fmt.Sprintf("%s-%x", s.etagPrefix, s.etagCount.Add(1)) }

// nanos is t as the tables keep it; the zero time is the clock's.
func (s *Store) nanos(t time.Time) int64 {
	if t.IsZero() {
		t = s.clock()
	}
	return t.UnixNano()
}

// begin counts a call in, unless the store is closed.
func (s *Store) begin() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed.Load() {
		return s.closedError()
	}
	s.calls.Add(1)
	return nil
}

// Close waits for calls under way and closes the connections. Calls after it
// fail with ServiceUnavailable.
func (s *Store) Close() error {
	s.mu.Lock()
	was := s.closed.Swap(true)
	s.mu.Unlock()
	if was {
		return nil
	}
	s.calls.Wait()
	s.feed.stop()
	s.pool.Close()
	return nil
}
