package paired

import (
	"context"
	"log/slog"
	"sync"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
)

// Object is an object of the cluster that is paired with a resource.
type Object struct{ Kind, Namespace, Name string }

// Streamer is the change stream; *client.Client is one.
type Streamer interface {
	Watch(ctx context.Context, f func(arm.Change), o client.WatchOptions) error
}

// Waker turns the one change stream of a process into wake-ups of the objects
// that a changed resource concerns (K-32). What concerns an object it says
// itself, with Track, before it asks the control plane anything: so no change
// falls between the question and the answer.
//
// After every reconnect all objects are woken, those in flight first, since
// anything may have happened meanwhile.
type Waker struct {
	stream Streamer
	log    *slog.Logger

	mu      sync.Mutex
	wake    map[string]func(Object)
	objects map[Object]tracked
	byID    map[string]map[Object]struct{}
	up      bool
	why     error
	first   chan struct{} // closed when the stream is up for the first time
	once    sync.Once
}

type tracked struct {
	ids    []string
	flying bool
}

// NewWaker returns a Waker on a stream.
func NewWaker(s Streamer, log *slog.Logger) *Waker {
	return &Waker{stream: s, log: log, wake: map[string]func(Object){}, objects: map[Object]tracked{}, byID: map[string]map[Object]struct{}{},
		first: make(chan struct{})}
}

// Handle says who is told of objects of a kind. f must not block; it may be
// called more often than something changed.
func (w *Waker) Handle(kind string, f func(Object)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake[kind] = f
}

// Track replaces the ids that concern an object. flying marks those with
// something in flight or in fault, which are woken first after a reconnect.
func (w *Waker) Track(o Object, flying bool, ids ...core.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(o)
	t := tracked{flying: flying}
	for _, id := range ids {
		if id.IsZero() {
			continue
		}
		k := id.Key()
		t.ids = append(t.ids, k)
		if w.byID[k] == nil {
			w.byID[k] = map[Object]struct{}{}
		}
		w.byID[k][o] = struct{}{}
	}
	w.objects[o] = t
}

// Forget drops an object that is gone.
func (w *Waker) Forget(o Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(o)
}

func (w *Waker) drop(o Object) {
	for _, k := range w.objects[o].ids {
		delete(w.byID[k], o)
		if len(w.byID[k]) == 0 {
			delete(w.byID, k)
		}
	}
	delete(w.objects, o)
}

// Connected reports whether the change stream is up, and if not why.
func (w *Waker) Connected() (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up, w.why
}

// Followed is closed once the change stream has been up. It may have broken off
// since: Connected tells.
func (w *Waker) Followed() <-chan struct{} { return w.first }

// Start follows the change stream until the context ends: a manager's
// Runnable.
func (w *Waker) Start(ctx context.Context) error {
	_ = w.stream.Watch(ctx, w.changed, client.WatchOptions{Down: w.down})
	return nil // only the context ends it
}

// NeedLeaderElection makes it run where the controllers run.
func (w *Waker) NeedLeaderElection() bool { return true }

func (w *Waker) changed(ch arm.Change) {
	w.mu.Lock()
	var objects []Object
	if ch.Reset {
		if !w.up {
			w.log.Info("following the control plane's changes")
		}
		w.up, w.why = true, nil
		w.once.Do(func() { close(w.first) })
		for _, flying := range []bool{true, false} {
			for o, t := range w.objects {
				if t.flying == flying {
					objects = append(objects, o)
				}
			}
		}
	} else if id, err := core.ParseID(ch.ID); err == nil {
		for o := range w.byID[id.Key()] {
			objects = append(objects, o)
		}
	}
	calls := make([]func(), 0, len(objects))
	for _, o := range objects {
		if f := w.wake[o.Kind]; f != nil {
			calls = append(calls, func() { f(o) })
		}
	}
	w.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

func (w *Waker) down(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.up || w.why == nil {
		w.log.Warn("the control plane's changes cannot be followed; trying again", "error", err)
	}
	w.up, w.why = false, err
}
