package core

import (
	"encoding/json"
	"time"
)

// State is the provisioning state of a resource and the status of an operation.
type State string

// The states of D-19. Succeeded, Failed and Canceled are terminal.
const (
	StateAccepted  State = "Accepted"
	StateUpdating  State = "Updating"
	StateDeleting  State = "Deleting"
	StateSucceeded State = "Succeeded"
	StateFailed    State = "Failed"
	StateCanceled  State = "Canceled"
)

// Terminal reports whether nothing more happens by itself.
func (s State) Terminal() bool {
	return s == StateSucceeded || s == StateFailed || s == StateCanceled || s == ""
}

// Owner is the object of a cluster that a resource stands for (K-49). Two
// objects that map to the same id are told apart by UID.
type Owner struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// IsZero reports whether there is no owner: a resource made through the API.
func (o Owner) IsZero() bool { return o == Owner{} }

// SystemData says who wrote a resource and when, as the ARM wire has it.
type SystemData struct {
	CreatedBy          string    `json:"createdBy,omitempty"`
	CreatedByType      string    `json:"createdByType,omitempty"`
	CreatedAt          time.Time `json:"createdAt,omitzero"`
	LastModifiedBy     string    `json:"lastModifiedBy,omitempty"`
	LastModifiedByType string    `json:"lastModifiedByType,omitempty"`
	LastModifiedAt     time.Time `json:"lastModifiedAt,omitzero"`
}

// Resource is one resource as the store keeps it. Sensitive values inside
// Properties and Secrets are sealed before they get here.
type Resource struct {
	ID         ID
	APIVersion string
	Location   string
	Tags       map[string]string
	// Properties is the JSON object of the properties bag, without
	// provisioningState and status; sensitive values are sealed in place.
	Properties json.RawMessage
	// Status is the JSON object answered under properties.status
	// (computedValues, recipe, …), nil when there is none. Output resources
	// are not in it: they are rows of the inventory.
	Status json.RawMessage
	// Secrets are the sealed secrets that a recipe returned, by name (D-27).
	Secrets map[string]json.RawMessage
	// Keyset is the version of the data keyset with which the oldest sealed
	// value in Properties and Secrets was sealed, 0 when none is (D-24).
	Keyset int64
	State  State
	// ETag changes with every change of the resource.
	ETag string
	// Application and Environment are the ids the resource belongs to, zero
	// where it belongs to none. Indexed.
	Application ID
	Environment ID
	Owner       Owner
	// Implicit marks a group or an application that was made with its first
	// member and goes with its last (K-5).
	Implicit   bool
	SystemData SystemData
}

// Verb is what an operation does to its resource.
type Verb string

// The verbs of operations.
const (
	VerbPut    Verb = "PUT"
	VerbPatch  Verb = "PATCH"
	VerbDelete Verb = "DELETE"
)

// Operation is one asynchronous operation: its record is the queue's entry,
// the client's operation status and the history at once.
//
// Life: accepted (waiting for a worker) → leased (held by Worker under Fence
// until LeaseUntil; renewed or taken over) ⇄ parked (waits for its children,
// holds no slot and no lease) → ended.
type Operation struct {
	// ID is a UUID, the last segment of the operation status's id.
	ID         string
	ResourceID ID
	Verb       Verb
	APIVersion string
	State      State
	// Error is why it Failed or was Canceled; never a secret.
	Error *Error
	// Group is the resource group by which workers share fairly (D-47).
	Group string
	// Parent is the operation that waits for this one, "" for none (D-45).
	Parent string
	// Parked says that it waits for Children operations to end.
	Parked   bool
	Children int
	// Worker, Fence and LeaseUntil describe the newest lease.
	Worker     string
	Fence      int64
	LeaseUntil time.Time
	// Attempts counts leases, but those that ended in parking.
	Attempts int
	// CancelRequested is when its end was asked for while a worker held it,
	// zero if it was not. The worker ends it as Canceled, the one that holds
	// it now or the next one.
	CancelRequested time.Time
	// Trace is the W3C traceparent of the request that asked for it, "" where
	// nobody traces: what the workers do goes on in the same trace.
	Trace    string
	Created  time.Time
	Started  time.Time
	Ended    time.Time
	Deadline time.Time
}

// Failure is why an operation that has ended did not succeed, nil if it did; what
// names it where it left no reason: "its deletion".
func (o Operation) Failure(what string) error {
	switch {
	case o.State == StateSucceeded:
		return nil
	case o.Error != nil:
		return o.Error
	}
	return Errorf(CodeInternal, "%s ended as %s", what, o.State)
}

// OutputState says how far an output resource has come.
type OutputState string

// Planned outputs are recorded in one commit before the first is made (D-31).
const (
	OutputPlanned OutputState = "Planned"
	OutputMade    OutputState = "Made"
)

// Output is one resource that a recipe made or is about to make: a row of
// the inventory.
type Output struct {
	ID ID
	// LocalID is the symbolic name in the template, "" where it has none.
	LocalID string
	State   OutputState
	// Managed outputs are deleted with their resource; others are only shown.
	Managed bool
	// Claimed outputs are their resource's alone: of all resources that have an
	// output of this id, one at most has it so.
	Claimed bool
	// DependsOn are the ids of outputs of the same resource that this one
	// needs; deletion takes dependants first.
	DependsOn []ID
	// Handle is what the target that made it needs to delete it: a JSON object
	// of extension, scope, identifiers and uid. It holds no credentials.
	Handle json.RawMessage
}

// EdgeKind says what an edge of the graph means.
type EdgeKind string

// Kinds of edges.
const (
	EdgeConnection EdgeKind = "Connection"
	EdgeDependency EdgeKind = "Dependency"
	EdgeReference  EdgeKind = "Reference"
)

// Edge leads from a resource to what it uses.
type Edge struct {
	From ID
	To   ID
	Kind EdgeKind
	// Name is the connection's name.
	Name string
}
