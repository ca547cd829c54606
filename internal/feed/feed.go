// Package feed tells the rest of a process what the store has committed: the
// change stream of the API, the long polls on operations, and the workers.
//
// The [Broker]'s Publish is the store's listener. It never blocks and never
// waits for a reader: changes go into one ring that all subscriptions read at
// their own pace, and a reader that fell out of the ring is told so (Reset)
// instead of being lied to.
//
// # Guarantees
//
//   - A subscription sees every change after its starting point once and in
//     order, or a Reset in place of those it can no longer have.
//   - A waiter that registers before it reads the store cannot miss the end of
//     its operation: a change is published after its commit, so either the
//     read sees the end or the waiter is told.
//   - A signal of work is never lost; several may become one.
//   - When the store says that changes may have been missed ([store.ChangeReset],
//     of a store that several processes share), every reader gets a Reset, every
//     waiter and watcher is woken to look for itself, and there may be work.
package feed

import (
	"context"
	"slices"
	"sort"
	"sync"

	"github.com/radial-project/radial/internal/store"
)

// ringSize is how many changes a reader may be behind: a few seconds at the
// highest write rate that one SQLite file takes.
const ringSize = 8192

// Broker distributes the changes of one process. The zero value is not usable;
// [New] makes one. All methods are safe for concurrent use.
type Broker struct {
	work chan struct{}

	mu sync.Mutex
	// ring holds the changes with positions next-len … next-1; a position is
	// the count of changes published before, so it has no gaps as Seq may.
	ring []store.Change
	next int64
	size int
	// floor is the position below which a Reset of the store has put an end to
	// the ring.
	floor int64
	// changed is closed by the next Publish; nil while nobody waits.
	changed chan struct{}
	waits   map[string]map[chan struct{}]struct{}
	// alerts are woken by the kinds of changes that only processes care for:
	// by an operation's id, or "" for manifests and keysets.
	alerts map[alert]map[chan struct{}]struct{}
	// ended holds the operations whose end is still in the ring.
	ended map[string]int64
	// canceled are the operations whose end was asked for last.
	canceled recent
}

// recent remembers as many names as a ring holds.
type recent struct {
	names [256]string
	next  int
}

func (r *recent) add(name string) {
	r.names[r.next%len(r.names)] = name
	r.next++
}

func (r *recent) has(name string) bool { return slices.Contains(r.names[:], name) }

// New returns a broker that has seen nothing.
func New() *Broker { return newBroker(ringSize) }

func newBroker(size int) *Broker {
	return &Broker{
		work: make(chan struct{}, 1), size: size,
		waits: map[string]map[chan struct{}]struct{}{}, ended: map[string]int64{},
		alerts: map[alert]map[chan struct{}]struct{}{},
	}
}

// Publish takes the changes of a commit, in order. It is a [store.Listener].
func (b *Broker) Publish(changes []store.Change) {
	if len(changes) == 0 {
		return
	}
	work := false
	b.mu.Lock()
	for _, c := range changes {
		switch c.Kind {
		case store.ChangeState:
		case store.ChangeReset:
			b.reset(c)
			work = true
			continue
		case store.ChangeManifests:
			b.alert(alert{kind: c.Kind})
			c.Operation = ""
		case store.ChangeCancel:
			b.canceled.add(c.Operation)
			fallthrough
		default:
			b.alert(alert{c.Kind, c.Operation})
			continue
		}
		b.append(c)
		work = work || c.Work
		if !ends(c) {
			continue
		}
		b.ended[c.Operation] = b.next - 1
		for ch := range b.waits[c.Operation] {
			close(ch)
		}
		delete(b.waits, c.Operation)
	}
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	b.mu.Unlock()
	if work {
		b.Signal()
	}
}

// reset takes a place in the ring that no reader can pass, and wakes those who
// wait to look for themselves.
func (b *Broker) reset(c store.Change) {
	c.Operation = ""
	b.append(c)
	b.floor = b.next
	clear(b.ended)
	for _, set := range b.waits {
		for ch := range set {
			close(ch)
		}
	}
	clear(b.waits)
	for a := range b.alerts {
		b.alert(a)
	}
}

// alert is what a watcher is woken by.
type alert struct {
	kind      store.ChangeKind
	operation string
}

func (b *Broker) alert(a alert) {
	for ch := range b.alerts[a] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Alert registers for a kind of change other than of state: cancel and messages
// of one operation, manifests or keysets of the store (operation is "" then).
// The channel holds one signal however many changes there are; a Reset signals
// too. Register first, then read the store, then wait; stop releases it. A
// cancellation of moments ago signals at once: who leased an operation can only
// register after it did.
//
// Changes of manifests are also told to subscriptions, in their place.
func (b *Broker) Alert(kind store.ChangeKind, operation string) (more <-chan struct{}, stop func()) {
	a, ch := alert{kind, operation}, make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if kind == store.ChangeCancel && b.canceled.has(operation) {
		ch <- struct{}{}
	}
	if b.alerts[a] == nil {
		b.alerts[a] = map[chan struct{}]struct{}{}
	}
	b.alerts[a][ch] = struct{}{}
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.alerts[a], ch)
		if len(b.alerts[a]) == 0 {
			delete(b.alerts, a)
		}
	}
}

// append puts one change into the ring, over the oldest when it is full.
func (b *Broker) append(c store.Change) {
	if len(b.ring) < b.size {
		b.ring = append(b.ring, c)
	} else {
		slot := &b.ring[b.next%int64(b.size)]
		if pos, ok := b.ended[slot.Operation]; ok && pos == b.next-int64(b.size) {
			delete(b.ended, slot.Operation)
		}
		*slot = c
	}
	b.next++
}

func (b *Broker) at(pos int64) store.Change { return b.ring[pos%int64(b.size)] }

// oldest is the lowest position that a reader can still have.
func (b *Broker) oldest() int64 { return max(b.next-int64(len(b.ring)), b.floor) }

// ends reports whether a change is the end of an operation.
func ends(c store.Change) bool {
	return c.Operation != "" && c.State != "" && c.State.Terminal()
}

// Hint wakes whoever waits for changes that are committed and will be published
// in their turn: it has no place for readers of the feed, and spares a worker
// and a waiting client the time until then.
func (b *Broker) Hint(changes []store.Change) {
	work := false
	b.mu.Lock()
	for _, c := range changes {
		if c.Kind != store.ChangeState {
			continue
		}
		work = work || c.Work
		if ends(c) {
			for ch := range b.waits[c.Operation] {
				close(ch)
			}
			delete(b.waits, c.Operation)
		}
	}
	b.mu.Unlock()
	if work {
		b.Signal()
	}
}

// Work is signalled when an operation may be leased. It holds one signal
// however many operations there are: who takes it leases until nothing is
// left, or hands it on with [Broker.Signal] when it took all that it asked for.
func (b *Broker) Work() <-chan struct{} { return b.work }

// Signal says that there may be work, without a change behind it.
func (b *Broker) Signal() {
	select {
	case b.work <- struct{}{}:
	default:
	}
}

// Operation registers for the end of an operation: ended is closed once the
// change that ends it is published, at once if that was a moment ago. Register
// first, then read the operation from the store, then wait; stop releases it.
func (b *Broker) Operation(id string) (ended <-chan struct{}, stop func()) {
	ch := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.ended[id]; ok {
		close(ch)
		return ch, func() {}
	}
	set := b.waits[id]
	if set == nil {
		set = map[chan struct{}]struct{}{}
		b.waits[id] = set
	}
	set[ch] = struct{}{}
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(set, ch)
		if len(set) == 0 && len(b.waits[id]) == 0 {
			delete(b.waits, id)
		}
	}
}

// WaitOperation returns nil when the operation has ended, the error of ctx when
// that ends first; the caller reads from the store what the end was. An end
// that is older than the ring is not known here: who has not registered before
// its read (see [Broker.Operation]) must have read a moment ago.
func (b *Broker) WaitOperation(ctx context.Context, id string) error {
	ended, stop := b.Operation(id)
	defer stop()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Seq is the number of the newest change that was published, 0 before the first.
func (b *Broker) Seq() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newest()
}

// Batch is what a subscription has to tell.
type Batch struct {
	// Reset says that changes were lost, or that it is unknown whether any
	// were: what was read before may be stale. Changes is empty then.
	Reset bool
	// Seq is where the reader stands after this batch: what to subscribe from
	// next time.
	Seq     int64
	Changes []store.Change
}

// Subscription is one reader's place in the feed. It holds no buffer, so
// nothing grows when it is not read; it is for one goroutine at a time.
type Subscription struct {
	b     *Broker
	pos   int64
	seq   int64
	reset bool
}

// Subscribe starts after the change numbered since, which may come from an
// earlier connection. When the ring does not reach back to it (it is 0, too
// old, or of another process), the first batch is a Reset.
func (b *Broker) Subscribe(since int64) *Subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &Subscription{b: b, pos: b.next, seq: b.newest()}
	if b.oldest() == b.next || since < b.at(b.oldest()).Seq || since > b.newest() {
		s.reset = true
		return s
	}
	n := sort.Search(int(b.next-b.oldest()), func(i int) bool { return b.at(b.oldest()+int64(i)).Seq > since })
	s.pos, s.seq = b.oldest()+int64(n), since
	return s
}

// newest is the number of the last change, 0 before the first.
func (b *Broker) newest() int64 {
	if b.next == 0 {
		return 0
	}
	return b.at(b.next - 1).Seq
}

// Next returns what happened since the call before, and waits while that is
// nothing. The error is that of ctx.
func (s *Subscription) Next(ctx context.Context) (Batch, error) {
	for {
		batch, changed := s.take()
		if changed == nil {
			return batch, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		}
	}
}

// Seq is where the subscription stands: the number of the last change that it
// returned or that a Reset skipped.
func (s *Subscription) Seq() int64 { return s.seq }

// take returns what is there, or a channel that closes when there is more.
func (s *Subscription) take() (Batch, <-chan struct{}) {
	b := s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.reset || s.pos < b.oldest():
		s.reset, s.pos, s.seq = false, b.next, b.newest()
		return Batch{Reset: true, Seq: s.seq}, nil
	case s.pos == b.next:
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		return Batch{}, b.changed
	}
	out := make([]store.Change, 0, b.next-s.pos)
	for ; s.pos < b.next; s.pos++ {
		out = append(out, b.at(s.pos))
	}
	s.seq = out[len(out)-1].Seq
	return Batch{Seq: s.seq, Changes: out}, nil
}
