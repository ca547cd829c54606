package seal

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// Defaults of KeeperOptions.
const (
	DefaultBeat   = 10 * time.Second
	DefaultMaxAge = 90 * 24 * time.Hour
	DefaultGrace  = 7 * 24 * time.Hour
	DefaultRate   = 500
	// liveBeats is after how many beats without one a replica is taken for gone.
	liveBeats = 4
	// pageSize is how many rows are listed at a time.
	pageSize = 200
	// rewrapEvery is how often the wrapping key is looked at.
	rewrapEvery = time.Minute
	// parallel is how many rows are sealed at a time: a store that commits
	// waiting transactions together gains by it.
	parallel = 8
)

// KeeperStore is what a Keeper asks of the store.
type KeeperStore interface {
	store.Keysets
	List(ctx context.Context, q store.Query) (store.Page, error)
}

// KeeperOptions make a Keeper. Store, Sealer, Changed and Name are required.
type KeeperOptions struct {
	Store  KeeperStore
	Sealer *Sealer
	// Changed is signalled when the store's keysets change
	// ([feed.Broker.Alert] of [store.ChangeKeysets]).
	Changed <-chan struct{}
	// Name is unique to this process.
	Name string
	// Beat is how often the replica says that it lives; one that says nothing
	// for four beats is not waited for. It loads the keysets again when it is
	// back, before it opens what was sealed meanwhile.
	Beat time.Duration
	// MaxAge is when a version is replaced by itself; negative is never.
	MaxAge time.Duration
	// Grace is how long a disabled version can still be opened, by requests
	// under way and replicas that were cut off, before it is destroyed. A backup
	// that is older than that does not need it: it holds its own keysets.
	Grace time.Duration
	// Rate bounds the rows that are sealed again, a second.
	Rate int
	Now  func() time.Time
	Log  *slog.Logger
}

// Keeper is one replica's part in the care of the data keysets: it loads what
// others add and says so, and one of all replicas, the oldest that lives,
// drives what is to be done.
//
// A rotation is: a version is added; every live replica loads it and
// acknowledges; it is promoted; every row that is sealed with an older one is
// sealed again; the older ones are disabled; after a grace they are destroyed.
// Each step is one transaction, and what the next one is follows from the store
// alone: whoever comes after a crash goes on. Two drivers at once do no harm.
type Keeper struct {
	o       KeeperOptions
	started time.Time
	// wake tells the driver that there may be something to do.
	wake chan struct{}

	// The driver's: purged says that nothing was overwritten since the store
	// was purged, rewrapped is when the wrapping key was looked at.
	purged    bool
	rewrapped time.Time

	mu sync.Mutex
	// trouble is what was logged last, so that it is logged once.
	trouble string
}

// NewKeeper returns a keeper that works once Run is called.
func NewKeeper(o KeeperOptions) *Keeper {
	o.Beat = cmp.Or(o.Beat, DefaultBeat)
	o.MaxAge = cmp.Or(o.MaxAge, DefaultMaxAge)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.Rate = cmp.Or(o.Rate, DefaultRate)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Sealer.log = o.Log
	return &Keeper{o: o, started: o.Now(), wake: make(chan struct{}, 1)}
}

// Run keeps the keysets until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var driver sync.WaitGroup
	driver.Go(func() { k.drive(ctx) })
	defer func() {
		driver.Wait()
		ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer done()
		_ = k.o.Store.RemoveReplica(ctx, k.o.Name) // or it is waited for a while
	}()
	beat := time.NewTicker(k.o.Beat)
	defer beat.Stop()
	for {
		k.note(k.Acknowledge(ctx))
		select {
		case k.wake <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		case <-k.o.Changed:
		}
	}
}

// Acknowledge loads what is new and says so: that of a replica whose load
// fails is what it had before, so that nothing is promoted that it cannot open.
func (k *Keeper) Acknowledge(ctx context.Context) error {
	upTo, loadErr := k.o.Sealer.Load(ctx)
	return errors.Join(loadErr, k.o.Store.Heartbeat(ctx, store.Replica{Name: k.o.Name, Started: k.started, Seen: k.o.Now(), Keyset: upTo}))
}

// note logs what goes wrong, once as long as it is the same.
func (k *Keeper) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text := ""
	if err != nil && !errors.Is(err, context.Canceled) {
		text = err.Error()
	}
	if text != "" && text != k.trouble {
		k.o.Log.Warn("the data keysets cannot be looked after", "error", text)
	}
	k.trouble = text
}

// drive does what is to be done while this replica is the driver.
func (k *Keeper) drive(ctx context.Context) {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-again.C:
		}
		wait := k.o.Beat * 6
		if ours, err := k.drives(ctx); err != nil {
			k.note(err)
		} else if ours {
			more, err := k.Advance(ctx)
			switch {
			case err != nil:
				k.note(err)
			case more:
				wait = k.o.Beat / 10
			}
		}
		again.Reset(wait)
	}
}

// drives reports whether this replica is the driver: the oldest that lives.
func (k *Keeper) drives(ctx context.Context) (bool, error) {
	live, err := k.o.Store.Replicas(ctx, k.liveSince())
	if err != nil || len(live) == 0 {
		return false, err
	}
	oldest := slices.MinFunc(live, func(a, b store.Replica) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Name, b.Name))
	})
	return oldest.Name == k.o.Name, nil
}

func (k *Keeper) liveSince() time.Time { return k.o.Now().Add(-liveBeats * k.o.Beat) }

// Rotate begins a rotation: it adds a version, and the driver does the rest.
// Conflict while one has been added that is not promoted yet.
func (k *Keeper) Rotate(ctx context.Context) (store.Keyset, error) {
	wrapped, err := newKeyset(ctx, k.o.Sealer.kek, k.o.Sealer.ring.Load())
	if err != nil {
		return store.Keyset{}, err
	}
	added, err := k.o.Store.AddKeyset(ctx, wrapped, k.o.Now())
	if err == nil {
		k.o.Log.Info("a version of the data keyset is added", "version", added.Version)
	}
	return added, err
}

// Advance does all steps that can be done now, and reports whether there are
// others that wait for something.
func (k *Keeper) Advance(ctx context.Context) (more bool, err error) {
	now := k.o.Now()
	if now.Sub(k.rewrapped) >= rewrapEvery {
		k.rewrapped = now
		k.note(k.Rewrap(ctx)) // the wrapping key being away holds up nothing else
	}
	versions, err := k.o.Store.Versions(ctx)
	if err != nil {
		return false, err
	}
	var primary, added *store.Keyset
	for i := range versions {
		switch versions[i].State {
		case store.KeysetPrimary:
			primary = &versions[i]
		case store.KeysetAdded:
			added = &versions[i]
		}
	}
	if primary == nil {
		return false, core.Errorf(core.CodeInternal, "the store has no primary data keyset")
	}
	if added == nil && k.o.MaxAge > 0 && now.Sub(primary.Changed) >= k.o.MaxAge {
		fresh, err := k.Rotate(ctx)
		if err != nil {
			return true, ignore(err, core.CodeConflict)
		}
		added = &fresh
		if err := k.Acknowledge(ctx); err != nil {
			return true, err
		}
	}
	if added != nil {
		switch err := k.o.Store.PromoteKeyset(ctx, added.Version, k.liveSince(), now); {
		case core.IsCode(err, core.CodeConflict):
			return true, nil // not all have it
		case err != nil:
			return true, err
		}
		k.o.Log.Info("a version of the data keyset seals from now on", "version", added.Version)
		primary = added
	}
	if _, err := k.o.Sealer.Load(ctx); err != nil {
		return true, err
	}
	return k.retire(ctx, versions, primary.Version)
}

// retire seals again what older versions sealed, disables them, and destroys
// those whose grace is over.
func (k *Keeper) retire(ctx context.Context, versions []store.Keyset, primary int64) (more bool, err error) {
	if slices.ContainsFunc(versions, func(v store.Keyset) bool {
		return v.Version != primary && (v.State == store.KeysetRetired || v.State == store.KeysetPrimary)
	}) {
		k.purged = false
		if more, err = k.Reseal(ctx, primary); err != nil || more {
			return true, err
		}
	}
	for _, v := range versions {
		switch {
		case v.Version == primary || v.State == store.KeysetAdded:
		case v.State == store.KeysetDisabled:
			if destroyed(v) || k.o.Now().Sub(v.Changed) < k.o.Grace {
				continue
			}
			if err := k.o.Store.Rewrap(ctx, v.Version, []byte{}); err != nil {
				return true, err
			}
			k.o.Log.Info("a version of the data keyset is destroyed", "version", v.Version)
			k.purged = false
		default:
			switch err := k.o.Store.DisableKeyset(ctx, v.Version, k.o.Now()); {
			case core.IsCode(err, core.CodeConflict):
				more = true // a row has come that names it
			case err != nil:
				return true, err
			default:
				k.o.Log.Info("a version of the data keyset seals nothing any more", "version", v.Version)
			}
		}
	}
	if p, ok := k.o.Store.(store.Purger); ok && !more && !k.purged {
		if err := p.Purge(ctx); err != nil {
			return true, err
		}
	}
	k.purged = k.purged || !more
	return more, nil
}

// Reseal goes once over the rows that are sealed with an older version than
// primary, and reports whether any are left. Rows with a live operation are:
// their worker goes by what it has read, and ends soon.
func (k *Keeper) Reseal(ctx context.Context, primary int64) (left bool, err error) {
	q := store.Query{SealedBefore: primary, Limit: pageSize}
	done := 0
	for {
		begun := time.Now()
		page, err := k.o.Store.List(ctx, q)
		if err != nil {
			return true, err
		}
		skipped, err := k.resealPage(ctx, page.Resources)
		done += len(page.Resources) - skipped
		left = left || skipped > 0
		if err != nil {
			return true, err
		}
		if page.Next == "" {
			break
		}
		q.After = page.Next
		pace := time.Duration(len(page.Resources)) * time.Second / time.Duration(k.o.Rate)
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-time.After(pace - time.Since(begun)):
		}
	}
	if done > 0 {
		k.o.Log.Info("resources are sealed again", "version", primary, "resources", done, "left", left)
	}
	return left, nil
}

func (k *Keeper) resealPage(ctx context.Context, rows []core.Resource) (skipped int, err error) {
	var (
		mu    sync.Mutex
		group sync.WaitGroup
		slots = make(chan struct{}, parallel)
	)
	for _, r := range rows {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			rowErr := k.resealRow(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case rowErr == nil:
			case errors.Is(rowErr, errLive), core.IsCode(rowErr, store.Changed), core.IsCode(rowErr, core.CodeNotFound):
				skipped++
			default:
				skipped++
				err = rowErr
			}
		})
	}
	group.Wait()
	return skipped, err
}

// errLive says that a row is in the hands of a worker.
var errLive = errors.New("the resource has a live operation")

func (k *Keeper) resealRow(ctx context.Context, r core.Resource) error {
	if !r.State.Terminal() {
		return errLive
	}
	next, dead, err := k.o.Sealer.reseal(r)
	if err != nil {
		return err
	}
	if dead > 0 {
		k.o.Log.Warn("values of a resource look sealed and open with no key: they are left as they are", "resource", r.ID.String(), "values", dead)
	}
	return k.o.Store.Reseal(ctx, store.Resealing{ID: r.ID, Expect: r.ETag, Properties: next.Properties, Secrets: next.Secrets, Keyset: next.Keyset})
}

// Rewrap wraps anew what is wrapped with a key that is on its way out.
func (k *Keeper) Rewrap(ctx context.Context) error {
	kek := k.o.Sealer.kek
	err := kek.Refresh(ctx)
	versions, listErr := k.o.Store.Versions(ctx)
	if err = errors.Join(err, listErr); err != nil {
		return err
	}
	for _, v := range versions {
		if destroyed(v) {
			continue
		}
		wrapped, wrapErr := rewrap(ctx, v, kek)
		if wrapErr == nil && wrapped != nil {
			if wrapErr = k.o.Store.Rewrap(ctx, v.Version, wrapped); wrapErr == nil {
				k.o.Log.Info("a version of the data keyset is wrapped with another key", "version", v.Version, "key", kek.Source())
			}
		}
		if wrapErr != nil && v.State != store.KeysetDisabled {
			err = errors.Join(err, wrapErr)
		}
	}
	return err
}

// Status is the keysets as people see them.
type Status struct {
	Versions []VersionStatus `json:"versions"`
	// Waiting are live replicas that have not loaded the version that is added.
	Waiting []string `json:"waiting,omitempty"`
	// Key is where the wrapping key lies.
	Key string `json:"key"`
}

// VersionStatus is one version. It holds nothing of the key.
type VersionStatus struct {
	Version int64 `json:"version"`
	// State is that of the store, or Destroyed.
	State   string    `json:"state"`
	Created time.Time `json:"created"`
	Changed time.Time `json:"changed"`
}

// Status says which versions there are.
func (k *Keeper) Status(ctx context.Context) (Status, error) {
	versions, err := k.o.Store.Versions(ctx)
	if err != nil {
		return Status{}, err
	}
	live, err := k.o.Store.Replicas(ctx, k.liveSince())
	if err != nil {
		return Status{}, err
	}
	out := Status{Key: k.o.Sealer.kek.Source()}
	for _, v := range versions {
		state := string(v.State)
		if destroyed(v) {
			state = "Destroyed"
		}
		if v.State == store.KeysetAdded {
			for _, r := range live {
				if r.Keyset < v.Version {
					out.Waiting = append(out.Waiting, r.Name)
				}
			}
		}
		out.Versions = append(out.Versions, VersionStatus{v.Version, state, v.Created, v.Changed})
	}
	return out, nil
}

// ignore returns nil for an error of a code.
func ignore(err error, code core.Code) error {
	if core.IsCode(err, code) {
		return nil
	}
	return err
}
