package postgres

import (
	"sync"
	"time"

	"github.com/radial-project/radial/internal/core"
)

const (
	// recentEnds is how many operations that this process has ended it
	// remembers, and recentFor for how long: who waits for an end asks for the
	// operation at once. That is far less than operations are kept, so none is
	// remembered that another process has swept.
	recentEnds = 1024
	recentFor  = 10 * time.Second
)

// recent are operations as they stand in the database after their end was
// committed: nothing changes them any more, so that they need not be read.
type recent struct {
	mu   sync.Mutex
	ring [recentEnds]string
	next int
	of   map[string]ended
}

type ended struct {
	operation core.Operation
	at        time.Time
}

func (r *recent) add(o core.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]ended{}
	}
	slot := &r.ring[r.next%recentEnds]
	r.next++
	delete(r.of, *slot)
	*slot = o.ID
	r.of[o.ID] = ended{o, time.Now()}
}

func (r *recent) get(id string) (core.Operation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.of[id]
	return e.operation, ok && time.Since(e.at) < recentFor
}

// forget is for who removes operations.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.of)
}
