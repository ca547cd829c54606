// Package operation runs asynchronous operations: it leases them from the store
// when a commit says that there is work, hands each to the controller of its
// type and verb, and ends operation and resource together.
//
// # Guarantees
//
//   - No timer stands between an accepted write and its worker: the commit's
//     signal wakes it. Timers only find operations whose worker died.
//   - A controller's context ends before its lease does, so that what it does
//     outside never overlaps with another worker's.
//   - Only the holder of the newest fence ends an operation; a worker that lost
//     its lease changes nothing.
//   - Whatever a controller does (error, panic, deadline), its operation ends.
//     Only shutdown and the loss of a lease leave it to another worker.
//   - An operation whose end was asked for ends as Canceled as soon as its
//     controller has returned, and what that has finished by then counts as done.
package operation

import (
	"context"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// Outcome is how a controller's work ended well.
type Outcome struct {
	// Resource, when not nil, replaces properties, status and secrets of the row.
	Resource *core.Resource
	// Removed deletes the row, also with a Failure.
	Removed bool
	// Park gives up slot and lease until the operations that were accepted with
	// this one as their parent have ended (D-45). Run is called again then; the
	// other fields do not count.
	Park bool
	// Failure, when not nil, ends the operation as Failed, and Resource is kept
	// all the same: what a failed run has to remember.
	Failure *core.Error
}

// Controller does the work of an operation.
type Controller interface {
	// Run works until the operation is done or ctx ends. It may be called again
	// for the same operation after a crash: it must be idempotent. An error ends
	// the operation as Failed with that error; it must hold no secret.
	Run(ctx context.Context, job *Job) (Outcome, error)
}

// ControllerFunc is a function as a Controller.
type ControllerFunc func(ctx context.Context, job *Job) (Outcome, error)

// Run calls f.
func (f ControllerFunc) Run(ctx context.Context, job *Job) (Outcome, error) { return f(ctx, job) }

// Registry finds the controller of an operation. It is filled before the
// workers start and not changed afterwards.
type Registry struct {
	special  map[string]Controller
	fallback Controller
}

// NewRegistry returns a registry that answers fallback for every operation that
// has no controller of its own (D-29).
func NewRegistry(fallback Controller) *Registry {
	return &Registry{special: map[string]Controller{}, fallback: fallback}
}

// Register makes c the controller of a type and verb.
func (r *Registry) Register(resourceType string, verb core.Verb, c Controller) {
	r.special[key(resourceType, verb)] = c
}

// Find returns the controller of a type and verb.
func (r *Registry) Find(resourceType string, verb core.Verb) Controller {
	if c, ok := r.special[key(resourceType, verb)]; ok {
		return c
	}
	return r.fallback
}

func key(resourceType string, verb core.Verb) string {
	return strings.ToLower(resourceType) + "|" + string(verb)
}
