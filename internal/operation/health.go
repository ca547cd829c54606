package operation

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// stuckAfter is how long the store may take to answer a worker before the
// process counts as stuck: a store that is away answers with an error long
// before.
const stuckAfter = 2 * time.Minute

// health is what is known of a pool from outside.
type health struct {
	mu      sync.Mutex
	running bool
	// asked is when the store was asked for work, zero while it is not.
	asked time.Time
}

func (h *health) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// run notes that the pool runs until the returned function is called.
func (h *health) run() (end func()) {
	h.set(func() { h.running = true })
	return func() { h.set(func() { h.running = false }) }
}

// ask notes that the store is asked until the returned function is called.
func (h *health) ask(now time.Time) (answered func()) {
	h.set(func() { h.asked = now })
	return func() { h.set(func() { h.asked = time.Time{} }) }
}

// Working reports whether the workers live: nil, or why a new process would do
// better. A store that is away is no reason, since they ask it again; nor is it
// that all of them are busy.
func (p *Pool) Working() error {
	p.health.mu.Lock()
	defer p.health.mu.Unlock()
	switch {
	case !p.health.running:
		return errors.New("the workers do not run")
	case !p.health.asked.IsZero() && p.o.Now().Sub(p.health.asked) > stuckAfter:
		return fmt.Errorf("the store has not answered the workers since %s", p.health.asked.UTC().Format(time.RFC3339))
	}
	return nil
}
