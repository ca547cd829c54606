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
//     OperationFenced, ServiceUnavailable (the store cannot be reached or
//     written), and [Changed]; anything else is a defect.
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
	History
	Registry
	Keysets
	Audit
	Portable
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
	// OutputsOf returns the inventories of many resources by [core.ID.Key], in
	// one statement; a resource without outputs is not in the map.
	OutputsOf(ctx context.Context, ids []core.ID) (map[string][]core.Output, error)
	// Claimant returns the resource that has claimed an output (see
	// [Queue.SaveOutputs]), the zero ID for none.
	Claimant(ctx context.Context, output core.ID) (core.ID, error)
	// Operation returns one operation, live or ended. NotFound if unknown.
	Operation(ctx context.Context, id string) (core.Operation, error)
	// Graph returns what belongs to root (an application, an environment, a
	// group or a plane), everything it reaches by edges, those edges, and all
	// output resources, in a constant number of statements.
	Graph(ctx context.Context, root core.ID) (Graph, error)
	// Dependents says what uses something (D-6).
	Dependents(ctx context.Context, u Use) (Dependents, error)
}

// Use names what may be in use: Of, or Type.
type Use struct {
	// Of is a scope (used by all resources at and below it, a plane by its
	// groups too), or a resource: an environment or an application (used by
	// its members), or anything else (used by the resources that have an edge
	// to it, as an environment has to its recipe packs). It does not use
	// itself.
	Of core.ID
	// Type is used by its resources, with APIVersion not "" by those written
	// with that version.
	Type, APIVersion string
	// Limit bounds the ids that are returned, not the count; 0 is no bound.
	Limit int
}

// Dependents are the users of something: the first of them in the order of
// their keys, and how many there are.
type Dependents struct {
	IDs   []core.ID `json:"ids"`
	Count int       `json:"count"`
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
	// SealedBefore, when not 0, selects rows whose oldest sealed value was
	// sealed with a version of the data keyset below it.
	SealedBefore int64
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

// Graph is a snapshot of resources and what binds them: as much as a graph
// shows, and no more, since there may be very many.
type Graph struct {
	// Nodes in the order of their keys.
	Nodes []Node
	// Edges leave nodes: in the order of these, then of the keys they lead to,
	// their kinds and names.
	Edges []GraphEdge
}

// Node is a resource in a graph.
type Node struct {
	ID    string
	State core.State
	// Properties only where they hold a URL ("://").
	Properties json.RawMessage
	// Outputs are the ids of the inventory, in the order planned.
	Outputs []string
}

// GraphEdge is an edge between nodes, given by their places in Nodes.
type GraphEdge struct {
	From int32
	// To is -1 where nothing of that id is stored; ToID is then the id as it
	// was written, else "".
	To   int32
	ToID string
	Kind core.EdgeKind
	Name string
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
	// core.Owner as Info "owner"). An owner on a resource that has none, made
	// through the API, is a NameConflict too, with a zero core.Owner as Info;
	// a write without an owner passes, and the stored owner stays.
	//
	// A write of a group or an application that was made implicitly makes it
	// explicit: from then on it stays when its last member goes. The same
	// resource among w.Parents does not.
	//
	// It returns the resource as stored, with its new ETag.
	Accept(ctx context.Context, w Write) (core.Resource, error)
	// AcceptDelete commits the operation that deletes a resource and sets its
	// state. Same checks; NotFound if there is no such resource; Conflict for a
	// scope that holds anything, and with d.Unused for what is in use, naming
	// the first users. With d.Operation nil the row goes at once, with its
	// edges and outputs, and implicit parents that it leaves empty.
	AcceptDelete(ctx context.Context, d Delete) (core.Resource, error)
}

// Write is a create or an update.
type Write struct {
	// Resource is the whole new row. ID keeps the stored case on an update.
	// SystemData's created fields, and Owner when zero, are kept from the
	// stored row. Implicit is ignored: only Parents make implicit rows.
	//
	// Keyset must name the version of the oldest sealed value in the row, or
	// an older one. With 0, a row that looks as if it held sealed values is
	// taken to be sealed with the oldest version in use. A version that was
	// disabled meanwhile is a Changed error: seal again and retry.
	Resource core.Resource
	// Operation is the job; ID, ResourceID, Verb, APIVersion, State, Group,
	// Parent, Trace, Created and Deadline are given by the caller.
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
	// Expect as in Write, letter by letter: "" is the tag of no row, so that a
	// delete must name a tag or "*".
	Expect string
	// Unused refuses to delete what something uses ([Use]), checked in the
	// same transaction: no user can come between.
	Unused bool
	// OwnerUID, when not "", must be the stored owner's (else NameConflict).
	OwnerUID string
	Now      time.Time
}

// Changed is the code of the error that says a row changed since it was read.
const Changed core.Code = "Changed"

// Queue is the operations table as a queue. Lease and Renew tell no change: who
// holds a lease until when is of no interest to anybody else.
type Queue interface {
	// Lease takes up to max operations that wait (accepted and not parked, or
	// with a lease that ran out), each with a new fence. Groups come in turn
	// over all calls of a process, and each gives its oldest first: a group
	// with a thousand operations does not hold back another's one (D-47). It
	// returns at once, with none if there are none.
	Lease(ctx context.Context, l Lease) ([]Leased, error)
	// Renew moves the end of a lease. OperationFenced if it is lost.
	Renew(ctx context.Context, op string, fence int64, until time.Time) error
	// Progress sets operation and resource to a live state (Updating).
	Progress(ctx context.Context, op string, fence int64, s core.State) error
	// Park gives up slot and lease until as many child operations (those with
	// Parent op) as are live have ended (D-45); if none is live the operation
	// waits for a worker at once. It ends the fence: whoever parked can do no
	// more under it, and the next lease has a new one. The attempt is given
	// back: Attempts counts workers that were lost, not waits.
	Park(ctx context.Context, op string, fence int64) error
	// SaveOutputs records outputs of the operation's resource: put inserts or
	// replaces by id, drop removes. Fenced.
	//
	// One that is to be Claimed, and is another resource's claim, is recorded
	// without: [Reader.Claimant] says whose it is. A claim lasts as long as the
	// output is recorded as claimed; a planned one of a resource on which no
	// operation lives goes to whoever claims it next.
	SaveOutputs(ctx context.Context, op string, fence int64, put []core.Output, drop []core.ID) error
	// Append adds messages to the log of an operation; Seq is given by the
	// store. Fenced.
	Append(ctx context.Context, op string, fence int64, messages []Message) error
	// End ends operation and resource together, wakes the parent when its last
	// child ended, and removes implicit parents left empty by a deletion. The
	// end of an operation as Canceled cancels its live children as Cancel does.
	// OperationFenced if another worker holds a newer lease or it has ended.
	End(ctx context.Context, e Ending) error
	// Pending counts live operations, and says when the earliest lease of
	// another worker ends (zero if none): when to look again without a signal.
	Pending(ctx context.Context) (n int, next time.Time, err error)
	// Cancel ends an operation that no worker holds (waiting, parked, or with
	// a lease that ran out) at once as Canceled, with its resource, and wakes
	// its parent as End does. One that a worker holds is marked
	// (CancelRequested) and its worker told by a [ChangeCancel]; to mark it
	// again is nil. Its live children, and theirs, are canceled alike in the
	// same transaction. It returns the operation as it is then. Conflict if it
	// has ended, NotFound if it is unknown.
	Cancel(ctx context.Context, c Cancel) (core.Operation, error)
	// Expire ends up to Limit operations that passed their deadline while no
	// worker held them, as Cancel does, and returns them, without the children
	// that it canceled with them. Those held are their worker's to end.
	Expire(ctx context.Context, e Expiry) ([]core.Operation, error)
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

// InputsSecret is the name among a resource's secrets of what only the operation
// that runs on it may know, sealed: its inputs. It goes with the operation's end,
// in the same transaction, however and by whomever that is ended.
const InputsSecret = "$operation"

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
	// Parentless says that the leased operation has no Parent, so that its end
	// wakes nobody. It changes nothing but what an end costs.
	Parentless bool
	Now        time.Time
}

// Registry keeps what is neither resource nor operation.
type Registry interface {
	// PutManifest stores the manifest of one namespace, whole. Expect is the
	// manifest that the caller computed from, byte for byte, nil when it saw
	// none. When another one is stored meanwhile, the error matches [Changed]:
	// read again and retry.
	PutManifest(ctx context.Context, namespace string, manifest, expect json.RawMessage) error
	// DeleteManifest removes the manifest that the caller saw, likewise.
	DeleteManifest(ctx context.Context, namespace string, expect json.RawMessage) error
	// Manifests returns all stored manifests by namespace.
	Manifests(ctx context.Context) (map[string]json.RawMessage, error)
	// Keyset returns the primary version of the data keyset, wrapped; when
	// there is none, it stores initial as version 1 and returns that.
	Keyset(ctx context.Context, initial []byte) ([]byte, error)
}

// ChangeKind says what a change is about.
type ChangeKind string

// The kinds of changes. All but ChangeState are for the server's processes and
// of no interest to clients.
const (
	// ChangeState: a resource or an operation changed.
	ChangeState ChangeKind = ""
	// ChangeCancel: the end of the leased Operation was asked for.
	ChangeCancel ChangeKind = "cancel"
	// ChangeMessages: Operation has more messages.
	ChangeMessages ChangeKind = "messages"
	// ChangeManifests and ChangeKeysets: they are to be loaded again. Which
	// manifest it was says ID, see [ProviderID].
	ChangeManifests ChangeKind = "manifests"
	ChangeKeysets   ChangeKind = "keysets"
	// ChangeReset: changes may have been missed; whatever was read before may
	// be stale. A store of several processes says it, and one that was filled
	// from a backup. Its Seq may be that of the Reset before.
	ChangeReset ChangeKind = "reset"
)

// Change tells that a commit touched a resource or an operation.
type Change struct {
	Kind ChangeKind `json:"kind,omitempty"`
	// Seq grows by at least one with every change that a process is told.
	Seq       int64      `json:"seq"`
	ID        core.ID    `json:"id"`
	Operation string     `json:"operation,omitempty"`
	State     core.State `json:"state,omitempty"`
	// Deleted says that the resource is gone.
	Deleted bool `json:"deleted,omitempty"`
	// Work says that an operation may now be leased.
	Work bool `json:"-"`
}

// ProviderID is the id under which a change of a namespace's manifest is told.
func ProviderID(namespace string) core.ID {
	return core.ID{Plane: core.Segment{Type: "radius", Name: "local"}}.Resource("System.Resources/resourceProviders", namespace)
}

// Listener is told of changes after their commit, in order: those of its own
// process and those of all others on the same store. It must not block and must
// not call the store.
type Listener func([]Change)
