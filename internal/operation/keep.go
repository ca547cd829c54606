package operation

import (
	"context"
	"log/slog"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// Defaults of KeepOptions.
const (
	DefaultExpire = 15 * time.Second
	DefaultSweep  = 10 * time.Minute
)

// keepBatch bounds the rows of one transaction, so that no write waits long
// behind the sweep.
const keepBatch = 500

// Keeper is what a Keep needs of the store.
type Keeper interface {
	Expire(ctx context.Context, e store.Expiry) ([]core.Operation, error)
	Sweep(ctx context.Context, s store.Sweep) (int, error)
}

// KeepOptions tune a Keep. Store is required.
type KeepOptions struct {
	Store Keeper
	// Operations and Audit are how long operations that ended and records of the
	// audit stay; zero is the default of the store.
	Operations, Audit time.Duration
	// Expire is how often operations past their deadline are looked for that no
	// worker holds; Sweep is how often what is old is removed.
	Expire, Sweep time.Duration
	Log           *slog.Logger
	Now           func() time.Time
}

// Keep ends what waits past its deadline and removes what is older than it is to
// be kept (D-20), until ctx ends. Any number of processes may do so at once.
func Keep(ctx context.Context, o KeepOptions) {
	if o.Operations <= 0 {
		o.Operations = store.KeptOperations
	}
	if o.Audit <= 0 {
		o.Audit = store.KeptAudit
	}
	if o.Expire <= 0 {
		o.Expire = DefaultExpire
	}
	if o.Sweep <= 0 {
		o.Sweep = DefaultSweep
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	expire, sweep := time.NewTicker(o.Expire), time.NewTicker(o.Sweep)
	defer expire.Stop()
	defer sweep.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-expire.C:
			err = o.expire(ctx)
		case <-sweep.C:
			err = o.sweep(ctx)
		}
		if err != nil && ctx.Err() == nil {
			o.Log.Warn("the history of operations could not be kept in order; it is tried again", "error", err.Error())
		}
	}
}

func (o *KeepOptions) expire(ctx context.Context) error {
	for {
		ended, err := o.Store.Expire(ctx, store.Expiry{
			Error: core.Errorf(core.CodeCanceled, "the operation passed its deadline before a worker could end it. What it made so far is recorded: repeat the request to go on, or delete the resource"),
			Now:   o.Now(), Limit: keepBatch,
		})
		if err != nil {
			return err
		}
		for _, op := range ended {
			o.Log.Info("operation ended", "operation", op.ID, "resource", op.ResourceID.String(), "state", string(op.State), "error", "deadline")
		}
		if len(ended) < keepBatch {
			return nil
		}
	}
}

func (o *KeepOptions) sweep(ctx context.Context) error {
	now := o.Now()
	for {
		gone, err := o.Store.Sweep(ctx, store.Sweep{Operations: now.Add(-o.Operations), Audit: now.Add(-o.Audit), Limit: keepBatch})
		if err != nil || gone < keepBatch {
			return err
		}
	}
}
