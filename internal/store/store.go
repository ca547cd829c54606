// Package store says what the control plane asks of its persistence. Two
// implementations stand behind it: one SQLite file (package sqlite) and, for
// more than one machine, PostgreSQL; package storetest is the suite both pass.
//
// Nothing of the business lives here: a method is one transaction, its checks
// are those that only a transaction can make (one live operation a resource,
// fences, entity tags, owners, implicit parents).
//
// # Guarantees
//
//   - A method either commits whole or changes nothing; when it returns nil the
//     change is on disk.
//   - Ids compare without case ([core.ID.Key]) and come back in the case first
//     written.
//   - Listeners see a change only after its commit, in the order of commits.
//   - Errors are [core.Error]s: NotFound, Conflict, NameConflict,
//     PreconditionFailed, OperationFenced, ServiceUnavailable (the store cannot
//     be reached or written); anything else is a defect.
package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/radial-project/radial/internal/core"
)

// Store is the contract. Implementations are safe for concurrent use.
type Store interface {
	Reader
	Writer
	Queue
	Registry
	// Close waits for writes under way and closes the store.
	Close() error
}

// Reader answers from committed state.
type Reader interface {
	// Get returns one resource, a group or a plane included, and its live
	// operation if it has one. NotFound if there is none.
	Get(ctx context.Context, id core.ID) (core.Resource, *core.Operation, error)
	// List returns a page of resources in the order of their keys.
	List(ctx context.Context, q Query) (Page, error)
	// Outputs returns the inventory of a resource in the order it was planned.
	Outputs(ctx context.Context, id core.ID) ([]core.Output, error)
	// Operation returns one operation, live or ended. NotFound if unknown.
	Operation(ctx context.Context, id string) (core.Operation, error)
	// Graph returns what belongs to root (an application, an environment, a
	// group or a plane), everything it reaches by edges, those edges, and all
	// output resources, in a constant number of statements.
	Graph(ctx context.Context, root core.ID) (Graph, error)
}

// Query selects resources. Zero fields do not restrict.
type Query struct {
	// Scope is a plane, or a group; resources at and below it match. Scopes
	// themselves (groups) match only when Type says so.
	Scope core.ID
	// Type is "Namespace/type"; [TypeGroup] and [TypePlane] list scopes.
	Type        string
	Application core.ID
	Environment core.ID
	// Limit bounds the page; 0 is no bound.
	Limit int
	// After is the Next of the page before.
	After string
}

// Types of the rows that keep scopes.
const (
	TypeGroup = "System.Resources/resourceGroups"
	TypePlane = "System.Resources/planes"
)

// TypeOf is the type under which a row of id is kept: the id's own, or
// TypeGroup and TypePlane for scopes.
func TypeOf(id core.ID) string {
	switch {
	case id.Provider != "":
		return id.Type()
	case len(id.Scopes) > 0:
		return TypeGroup
	default:
		return TypePlane
	}
}

// Page is one page of a list; Next is "" on the last.
type Page struct {
	Resources []core.Resource
	Next      string
}

// Graph is a snapshot of resources and what binds them.
type Graph struct {
	Resources []core.Resource
	Edges     []core.Edge
	// Outputs by the key of the resource they belong to.
	Outputs map[string][]core.Output
}

// Writer changes resources.
type Writer interface {
	// Accept commits a write of a resource in one transaction: the row, its
	// edges, its implicit parents, and its operation, which is the job. With
	// w.Operation nil the write is complete in itself (a synchronous type).
	//
	// Checks, in this order: the scope exists or is among w.Parents (NotFound
	// naming it); Expect (Changed, see there); no live operation (Conflict:
	// "The target resource is in progress state: X."); the owner is the same,
	// or w.Replaces names the one stored (NameConflict, with the stored
	// core.Owner as Info "owner").
	//
	// It returns the resource as stored, with its new ETag.
	Accept(ctx context.Context, w Write) (core.Resource, error)
	// AcceptDelete commits the operation that deletes a resource and sets its
	// state. Same checks; NotFound if there is no such resource. With
	// d.Operation nil the row goes at once, with its edges and outputs, and
	// implicit parents that it leaves empty.
	AcceptDelete(ctx context.Context, d Delete) (core.Resource, error)
}

// Write is a create or an update.
type Write struct {
	// Resource is the whole new row. ID keeps the stored case on an update.
	// SystemData's created fields, Implicit, and Owner when zero, are kept from
	// the stored row.
	Resource core.Resource
	// Operation is the job; ID, ResourceID, Verb, APIVersion, State, Group,
	// Parent, Created and Deadline are given by the caller.
	Operation *core.Operation
	// Edges replace the edges that leave the resource.
	Edges []core.Edge
	// Parents are groups and applications made when they do not exist yet, in
	// order, marked Implicit.
	Parents []core.Resource
	// Expect is the ETag of the row that the caller computed from, "" when it
	// saw none. When the row has changed meanwhile, the error matches
	// [Changed]: read again and retry. ["*" skips the check.]
	Expect string
	// Replaces is the UID of a stored owner known to be gone.
	Replaces string
	Now      time.Time
}

// Delete removes a resource.
type Delete struct {
	ID        core.ID
	Operation *core.Operation
	// State is the resource's state while the operation lives.
	State core.State
	// Expect as in Write.
	Expect string
	// OwnerUID, when not "", must be the stored owner's (else NameConflict).
	OwnerUID string
	Now      time.Time
}

// Changed is the code of the error that says a row changed since it was read.
const Changed core.Code = "Changed"

// Queue is the operations table as a queue.
type Queue interface {
	// Lease takes up to max operations that wait (accepted and not parked, or
	// with a lease that ran out), each with a new fence, oldest first, groups
	// in turn. It returns at once, with none if there are none.
	Lease(ctx context.Context, l Lease) ([]Leased, error)
	// Renew moves the end of a lease. OperationFenced if it is lost.
	Renew(ctx context.Context, op string, fence int64, until time.Time) error
	// Progress sets operation and resource to a live state (Updating).
	Progress(ctx context.Context, op string, fence int64, s core.State) error
	// Park gives up slot and lease until as many child operations (those with
	// Parent op) as are live have ended (D-45); if none is live the operation
	// waits for a worker at once.
	Park(ctx context.Context, op string, fence int64) error
	// SaveOutputs records outputs of the operation's resource: put inserts or
	// replaces by id, drop removes. Fenced.
	SaveOutputs(ctx context.Context, op string, fence int64, put []core.Output, drop []core.ID) error
	// End ends operation and resource together, wakes the parent when its last
	// child ended, and removes implicit parents left empty by a deletion.
	// OperationFenced if another worker holds a newer lease or it has ended.
	End(ctx context.Context, e Ending) error
	// Pending counts live operations, and says when the earliest lease of
	// another worker ends (zero if none): when to look again without a signal.
	Pending(ctx context.Context) (n int, next time.Time, err error)
}

// Lease asks for work.
type Lease struct {
	Worker string
	Max    int
	Now    time.Time
	Until  time.Time
}

// Leased is an operation with its resource and inventory as they stand.
type Leased struct {
	Operation core.Operation
	Resource  core.Resource
	Outputs   []core.Output
}

// Ending is the end of an operation.
type Ending struct {
	Operation string
	Fence     int64
	State     core.State
	Error     *core.Error
	// Resource, when not nil, replaces Properties, Status and Secrets of the
	// row. State and ETag are set in any case.
	Resource *core.Resource
	// Removed deletes the row with its edges and outputs.
	Removed bool
	Now     time.Time
}

// Registry keeps what is neither resource nor operation.
type Registry interface {
	// PutManifest stores the manifest of one namespace, whole.
	PutManifest(ctx context.Context, namespace string, manifest json.RawMessage) error
	// DeleteManifest removes it. NotFound if there is none.
	DeleteManifest(ctx context.Context, namespace string) error
	// Manifests returns all stored manifests by namespace.
	Manifests(ctx context.Context) (map[string]json.RawMessage, error)
	// Keyset returns the wrapped data keyset; when there is none, it stores
	// and returns initial.
	Keyset(ctx context.Context, initial []byte) ([]byte, error)
}

// Change tells that a commit touched a resource or an operation.
type Change struct {
	// Seq grows by at least one with every change of a process.
	Seq       int64      `json:"seq"`
	ID        core.ID    `json:"id"`
	Operation string     `json:"operation,omitempty"`
	State     core.State `json:"state,omitempty"`
	// Deleted says that the resource is gone.
	Deleted bool `json:"deleted,omitempty"`
	// Work says that an operation may now be leased.
	Work bool `json:"-"`
}

// Listener is told of changes after their commit, in order. It must not block.
type Listener func([]Change)
