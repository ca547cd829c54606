// Package observe puts itself between a room and a contract of another, and
// measures and traces what passes: the store, the drivers of recipes, the
// targets. It changes nothing of what passes, but for the trace that an
// operation carries.
package observe

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/telemetry"
)

// Store is a store whose calls are measured.
type Store struct {
	store.Store
	m   *telemetry.Metrics
	now func() time.Time
	// probe is the name under which Writable writes.
	probe string

	mu sync.Mutex
	// written is when a write was last known to have reached the disk; failed
	// says that the last one did not.
	written time.Time
	failed  bool
}

// NewStore measures a store. replica names this process among those of the
// store.
func NewStore(s store.Store, m *telemetry.Metrics, replica string) *Store {
	return &Store{Store: s, m: m, now: time.Now, probe: "probe of " + replica}
}

// read and write measure one call.
func (s *Store) read(ctx context.Context, call string) (context.Context, func(error)) {
	begun := s.now()
	ctx, span := telemetry.Step(ctx, "store "+call)
	return ctx, func(err error) {
		span.End(unexpected(err))
		s.m.Store(call, err, s.now().Sub(begun))
	}
}

func (s *Store) write(ctx context.Context, call string) (context.Context, func(error)) {
	ctx, done := s.read(ctx, call)
	return ctx, func(err error) {
		s.wrote(ctx, err)
		done(err)
	}
}

// wrote remembers whether the store could be written. A refusal says that it
// could be asked, which is not the same; a caller that went away says nothing.
func (s *Store) wrote(ctx context.Context, err error) {
	if err != nil && !core.IsCode(err, core.CodeUnavailable) || err != nil && ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed = err != nil; !s.failed {
		s.written = s.now()
	}
}

// unexpected leaves out the answers that are no fault of the store.
func unexpected(err error) error {
	for _, c := range []core.Code{core.CodeNotFound, core.CodeConflict, core.CodeNameConflict, store.Changed} {
		if core.IsCode(err, c) {
			return nil
		}
	}
	return err
}

// fresh is for how long a write that succeeded proves that the next one will.
const fresh = 5 * time.Second

// Writable reports whether the store can be written now. It writes only when
// no other write has shown that of late: a replica that is gone at once.
func (s *Store) Writable(ctx context.Context) error {
	s.mu.Lock()
	known := !s.failed && s.now().Sub(s.written) < fresh
	s.mu.Unlock()
	if known {
		return nil
	}
	// No rotation waits for a replica that has acknowledged every version.
	at := s.now()
	err := s.Heartbeat(ctx, store.Replica{Name: s.probe, Started: at, Seen: at, Keyset: math.MaxInt64})
	if err == nil {
		err = s.RemoveReplica(ctx, s.probe)
	}
	return err
}

// Accept implements [store.Writer]. The operation carries the caller's trace to
// its worker.
func (s *Store) Accept(ctx context.Context, w store.Write) (core.Resource, error) {
	w.Operation = traced(ctx, w.Operation)
	ctx, done := s.write(ctx, "Accept")
	r, err := s.Store.Accept(ctx, w)
	done(err)
	if err == nil && w.Operation != nil {
		s.m.Accepted(*w.Operation)
	}
	return r, err
}

// AcceptDelete implements [store.Writer].
func (s *Store) AcceptDelete(ctx context.Context, d store.Delete) (core.Resource, error) {
	d.Operation = traced(ctx, d.Operation)
	ctx, done := s.write(ctx, "AcceptDelete")
	r, err := s.Store.AcceptDelete(ctx, d)
	done(err)
	if err == nil && d.Operation != nil {
		s.m.Accepted(*d.Operation)
	}
	return r, err
}

func traced(ctx context.Context, op *core.Operation) *core.Operation {
	if op == nil || op.Trace != "" {
		return op
	}
	parent := telemetry.Traceparent(ctx)
	if parent == "" {
		return op
	}
	c := *op // the caller's own stays as it is
	c.Trace = parent
	return &c
}

// Get implements [store.Reader].
func (s *Store) Get(ctx context.Context, id core.ID) (core.Resource, *core.Operation, error) {
	ctx, done := s.read(ctx, "Get")
	r, op, err := s.Store.Get(ctx, id)
	done(err)
	return r, op, err
}

// List implements [store.Reader].
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	ctx, done := s.read(ctx, "List")
	p, err := s.Store.List(ctx, q)
	done(err)
	return p, err
}

// Graph implements [store.Reader].
func (s *Store) Graph(ctx context.Context, root core.ID) (store.Graph, error) {
	ctx, done := s.read(ctx, "Graph")
	g, err := s.Store.Graph(ctx, root)
	done(err)
	return g, err
}

// Lease implements [store.Queue]. It belongs to no trace: those of the
// operations that it answers begin elsewhere.
func (s *Store) Lease(ctx context.Context, l store.Lease) ([]store.Leased, error) {
	begun := s.now()
	leased, err := s.Store.Lease(ctx, l)
	s.wrote(ctx, err)
	s.m.Store("Lease", err, s.now().Sub(begun))
	return leased, err
}

// Renew implements [store.Queue].
func (s *Store) Renew(ctx context.Context, op string, fence int64, until time.Time) error {
	begun := s.now()
	err := s.Store.Renew(ctx, op, fence, until)
	s.wrote(ctx, err)
	s.m.Store("Renew", err, s.now().Sub(begun))
	return err
}

// Progress implements [store.Queue].
func (s *Store) Progress(ctx context.Context, op string, fence int64, state core.State) error {
	ctx, done := s.write(ctx, "Progress")
	err := s.Store.Progress(ctx, op, fence, state)
	done(err)
	return err
}

// Park implements [store.Queue].
func (s *Store) Park(ctx context.Context, op string, fence int64) error {
	ctx, done := s.write(ctx, "Park")
	err := s.Store.Park(ctx, op, fence)
	done(err)
	return err
}

// SaveOutputs implements [store.Queue].
func (s *Store) SaveOutputs(ctx context.Context, op string, fence int64, put []core.Output, drop []core.ID) error {
	ctx, done := s.write(ctx, "SaveOutputs")
	err := s.Store.SaveOutputs(ctx, op, fence, put, drop)
	done(err)
	return err
}

// Append implements [store.Queue].
func (s *Store) Append(ctx context.Context, op string, fence int64, messages []store.Message) error {
	ctx, done := s.write(ctx, "Append")
	err := s.Store.Append(ctx, op, fence, messages)
	done(err)
	return err
}

// End implements [store.Queue].
func (s *Store) End(ctx context.Context, e store.Ending) error {
	ctx, done := s.write(ctx, "End")
	err := s.Store.End(ctx, e)
	done(err)
	return err
}

// Cancel implements [store.Queue]. What no worker held has ended by it.
func (s *Store) Cancel(ctx context.Context, c store.Cancel) (core.Operation, error) {
	ctx, done := s.write(ctx, "Cancel")
	op, err := s.Store.Cancel(ctx, c)
	done(err)
	if err == nil && op.State.Terminal() {
		s.m.Ended(op, op.State, s.now())
	}
	return op, err
}

// Expire implements [store.Queue].
func (s *Store) Expire(ctx context.Context, e store.Expiry) ([]core.Operation, error) {
	begun := s.now()
	ops, err := s.Store.Expire(ctx, e)
	s.wrote(ctx, err)
	s.m.Store("Expire", err, s.now().Sub(begun))
	for _, op := range ops {
		s.m.Ended(op, op.State, s.now())
	}
	return ops, err
}

// Sweep implements [store.History].
func (s *Store) Sweep(ctx context.Context, w store.Sweep) (int, error) {
	begun := s.now()
	n, err := s.Store.Sweep(ctx, w)
	s.wrote(ctx, err)
	s.m.Store("Sweep", err, s.now().Sub(begun))
	s.m.Swept(n)
	return n, err
}

// Reseal implements [store.Keysets].
func (s *Store) Reseal(ctx context.Context, r store.Resealing) error {
	begun := s.now()
	err := s.Store.Reseal(ctx, r)
	s.wrote(ctx, err)
	s.m.Store("Reseal", err, s.now().Sub(begun))
	s.m.Resealed(err)
	return err
}

// Heartbeat implements [store.Keysets].
func (s *Store) Heartbeat(ctx context.Context, r store.Replica) error {
	begun := s.now()
	err := s.Store.Heartbeat(ctx, r)
	s.wrote(ctx, err)
	s.m.Store("Heartbeat", err, s.now().Sub(begun))
	return err
}

// Purge implements [store.Purger] where the store does.
func (s *Store) Purge(ctx context.Context) error {
	p, ok := s.Store.(store.Purger)
	if !ok {
		return nil
	}
	ctx, done := s.read(ctx, "Purge")
	err := p.Purge(ctx)
	done(err)
	return err
}
