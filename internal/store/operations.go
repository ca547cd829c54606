package store

import (
	"context"
	"time"

	"github.com/radial-project/radial/internal/core"
)

// History answers what operations did and do.
type History interface {
	// Operations returns a page of operations, the one accepted last first. A
	// walk over all pages shows each operation that was there when it began
	// and matches once.
	Operations(ctx context.Context, q OperationQuery) (OperationPage, error)
	// Messages returns up to limit messages of an operation above after, in
	// order; 0 is no bound. NotFound if the operation is unknown.
	Messages(ctx context.Context, op string, after int64, limit int) ([]Message, error)
	// Counts says how the queue stands at now, without walking the history.
	Counts(ctx context.Context, now time.Time) (Counts, error)
	// Sweep removes what is older than it is to be kept, with at most Limit
	// rows of each kind in its one transaction. It returns how many rows went:
	// as many as the limit, and there may be more.
	Sweep(ctx context.Context, s Sweep) (int, error)
}

// OperationQuery selects operations. Zero fields do not restrict.
type OperationQuery struct {
	Resource core.ID
	// Group is [core.Operation.Group], letter by letter.
	Group string
	// Parent lists the operations that another waits for.
	Parent string
	// Live leaves out those that ended.
	Live bool
	// Limit bounds the page; 0 is no bound.
	Limit int
	// After is the Next of the page before. It is the store's own and opaque.
	After string
}

// OperationPage is one page of operations; Next is "" on the last.
type OperationPage struct {
	Operations []core.Operation
	Next       string
}

// Message is one line of an operation's log. It never holds a secret.
type Message struct {
	// Seq counts the messages of one operation from 1, over all its workers.
	Seq  int64
	Time time.Time
	Text string
}

// Counts are live operations by what they wait for and by state.
type Counts struct {
	// Waiting may be leased; Leased are held by a worker; Parked wait for
	// others.
	Waiting, Leased, Parked int
	// States counts all three by state.
	States map[core.State]int
	// Oldest is when the operation that has waited longest was accepted, zero
	// when none waits.
	Oldest time.Time
}

// Kept is how long ended operations and records of the audit stay, unless set.
const (
	KeptOperations = 7 * 24 * time.Hour
	KeptAudit      = 90 * 24 * time.Hour
)

// Sweep bounds what stays. Zero times remove nothing.
type Sweep struct {
	// Operations that ended before go, with their messages. Live ones stay,
	// however old they are.
	Operations time.Time
	// Audit records made before go.
	Audit time.Time
	Limit int
}

// Cancel asks for the end of an operation (D-20).
type Cancel struct {
	Operation string
	// Error is what a canceled operation shows: who asked, never a secret.
	Error *core.Error
	Now   time.Time
}

// Expiry ends what passed its deadline.
type Expiry struct {
	// Error is what an operation that is ended shows.
	Error *core.Error
	Now   time.Time
	Limit int
}
