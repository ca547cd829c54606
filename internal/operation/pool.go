package operation

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/telemetry"
)

// Defaults of Options.
const (
	DefaultConcurrency = 32
	DefaultLease       = 15 * time.Second
	DefaultAttempts    = 25
)

// minPause is the first pause after the store gave an error.
const minPause = 10 * time.Millisecond

// Options of a Pool. Queue, Controllers and Work are required.
type Options struct {
	Queue       store.Queue
	Controllers *Registry
	// Work is signalled when an operation may be leased; one signal may stand
	// for many.
	Work <-chan struct{}
	// Canceled signals when the end of an operation was asked for, Operation reads
	// it then. Without them only a cancellation from before the lease is seen.
	Canceled  func(operation string) (asked <-chan struct{}, stop func())
	Operation func(ctx context.Context, id string) (core.Operation, error)
	// Worker names this pool in leases.
	Worker string
	// Concurrency bounds the operations that run at a time.
	Concurrency int
	// Lease is how long an operation stays ours without a renewal. A killed
	// worker's operations are taken over that much later.
	Lease time.Duration
	// Attempts bounds how often an operation is begun: one that kills its
	// process each time must not do so for ever.
	Attempts int
	// Renew, when not nil, is given the resource of an end that the store
	// refused because it had changed, and says by true that it seals it with
	// keys that are in use now.
	Renew func(context.Context, *core.Resource) bool
	Log   *slog.Logger
	// Metrics counts; nil counts nothing.
	Metrics *telemetry.Metrics
	Now     func() time.Time
}

// Pool is the workers of one process.
type Pool struct {
	o     Options
	slots chan struct{}
	jobs  sync.WaitGroup
	// stopping is closed when Run's context ends.
	stopping chan struct{}
	// checked is when the store was last asked for leases of others.
	checked time.Time
	health  health
}

// New returns a pool that works once Run is called.
func New(o Options) *Pool {
	if o.Concurrency <= 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.Lease <= 0 {
		o.Lease = DefaultLease
	}
	if o.Attempts <= 0 {
		o.Attempts = DefaultAttempts
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Pool{o: o, slots: make(chan struct{}, o.Concurrency), stopping: make(chan struct{})}
}

// Run leases and works until ctx ends. Then it takes nothing more, tells its
// controllers to stop, gives back the leases of those that did not end, and
// returns when all have returned. Call it once.
func (p *Pool) Run(ctx context.Context) {
	p.o.Metrics.Workers(p.o.Concurrency)
	defer p.health.run()()
	jobs, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer func() {
		close(p.stopping)
		cancel(errShutdown)
		p.jobs.Wait()
	}()
	wake := time.NewTimer(0) // what an earlier process left
	defer wake.Stop()
	pause := minPause
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.o.Work:
		case <-wake.C:
		}
		err := p.drain(ctx, jobs)
		var again time.Duration
		if err == nil {
			again, err = p.lookAgain(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.o.Log.Warn("the store gives no work", "error", err.Error(), "again", pause)
			wake.Reset(pause)
			pause = min(pause*2, 5*time.Second)
		case again > 0:
			pause = minPause
			wake.Reset(again)
		default:
			pause = minPause
			wake.Stop()
		}
	}
}

// lookAgain says after what time to look for operations whose worker died, 0
// when there is nothing to wait for. It asks the store twice a lease at most:
// a lease that began since ends later than that.
func (p *Pool) lookAgain(ctx context.Context) (time.Duration, error) {
	now := p.o.Now()
	if due := p.checked.Add(p.o.Lease / 2); now.Before(due) {
		return due.Sub(now), nil
	}
	n, next, err := p.o.Queue.Pending(ctx)
	if err != nil || n == 0 {
		return 0, err
	}
	p.checked = now
	if next.IsZero() {
		return 0, nil // parked, or leased by us within this moment: a signal follows
	}
	return max(next.Sub(now), p.o.Lease/20), nil
}

// drain leases and starts operations until there are none.
func (p *Pool) drain(ctx, jobs context.Context) error {
	for {
		// Wait for one slot, take those that are free beside it.
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		free := 1
		for free < p.o.Concurrency && p.tryslot() {
			free++
		}
		now := p.o.Now()
		answered := p.health.ask(now)
		leased, err := p.o.Queue.Lease(ctx, store.Lease{Worker: p.o.Worker, Max: free, Now: now, Until: now.Add(p.o.Lease)})
		answered()
		for range free - len(leased) {
			<-p.slots
		}
		if err != nil {
			return err
		}
		for _, l := range leased {
			p.jobs.Add(1)
			go func() {
				defer func() {
					<-p.slots
					p.jobs.Done()
				}()
				p.run(jobs, l)
			}()
		}
		if len(leased) < free {
			return nil
		}
	}
}

func (p *Pool) tryslot() bool {
	select {
	case p.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// pause waits, and says false when the pool stops meanwhile.
func (p *Pool) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.stopping:
		return false
	}
}
