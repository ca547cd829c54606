// Package paired keeps a resource of the control plane in step with an object
// of a cluster: the resource paired with it. It is the adoption document's
// flowchart as a step function that any controller may call as often as it
// likes:
//
//	poll the operation in flight → read the resource → PUT what differs →
//	delete what the object was paired with before → done
//
// # Guarantees
//
//   - At most one operation an object is in flight. A step never waits: an
//     asynchronous answer ends it, a synchronous one goes straight on.
//   - "Up to date" compares with what was last applied successfully, resolved
//     ids included, and with the live resource (K-30).
//   - Nothing leaks (K-29): ids are deterministic, [Memory.Resource] is written
//     before the first PUT of an id, and with all memory lost the resource
//     itself is asked. A resource of another owner is neither changed nor
//     deleted (K-49).
//   - A failed goal is tried again after a pause that doubles to a bound
//     (K-31), at once when the goal or what it depends on changes.
//
// A step keeps no state of its own: the [Memory] is the caller's, to be stored
// where its kind stores state (a Recipe's status, a Deployment's annotation).
package paired

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
)

// API is what a step asks of the control plane; *client.Client is one.
type API interface {
	Get(ctx context.Context, id core.ID, apiVersion string) (*arm.Resource, string, error)
	Put(ctx context.Context, id core.ID, apiVersion string, body any, p ...client.Precondition) (*client.Answer, error)
	Delete(ctx context.Context, id core.ID, apiVersion, ownerUID string) (*client.Answer, error)
	Poll(ctx context.Context, token string) (done bool, err error)
}

// Goal is what the paired resource should be.
type Goal struct {
	ID         core.ID
	APIVersion string
	Body       arm.Put
	// RetryOn stands for what a failure may depend on beyond the body, such as
	// the environment's ETag: when it changes, a failed goal is tried at once.
	RetryOn string
}

// Kinds of operations.
const (
	PUT    = "PUT"
	DELETE = "DELETE"
)

// Memory is what a controller remembers of the pairing. Every part of it may
// be lost, or be forged by who can edit the object: a step believes the
// resource, not its memory, and touches only what the owner has.
type Memory struct {
	// Requested is the id asked for. Resource is another one when the type is an
	// alias.
	Requested string `json:"requested,omitempty"`
	// Resource is the id that was or is about to be PUT, as the server spells
	// it once it answered.
	Resource string `json:"resource,omitempty"`
	// APIVersion of Resource.
	APIVersion string `json:"apiVersion,omitempty"`
	// Previous is what the object was paired with before, to be deleted once
	// Resource is there.
	Previous []Former `json:"previous,omitempty"`
	// AppliedHash is the hash of the goal last applied successfully.
	AppliedHash string `json:"appliedHash,omitempty"`
	// LiveHash is the hash of the live values of the goal's properties right
	// after that; another one means that somebody else changed them.
	LiveHash string `json:"liveHash,omitempty"`
	// Operation is the one in flight.
	Operation *Operation `json:"operation,omitempty"`
	// Failure is the last failure of the present goal.
	Failure *Failure `json:"failure,omitempty"`
}

// Former is a resource that an object was paired with before.
type Former struct {
	ID         string `json:"id"`
	APIVersion string `json:"apiVersion,omitempty"`
}

// Operation is an asynchronous operation in flight.
type Operation struct {
	ResumeToken   string `json:"resumeToken"`
	OperationKind string `json:"operationKind"`
	// Hash is that of the goal of a PUT, Target the id of a DELETE.
	Hash   string `json:"hash,omitempty"`
	Target string `json:"target,omitempty"`
	// Started is when it was asked for: a controller that spares writes stores
	// the token only of an operation that takes long.
	Started time.Time `json:"started"`
}

// Failure says why the last attempt failed and when the next one is due.
type Failure struct {
	// Hash and RetryOn are those of the goal that failed.
	Hash    string    `json:"hash,omitempty"`
	RetryOn string    `json:"retryOn,omitempty"`
	Code    core.Code `json:"code"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
	RetryAt time.Time `json:"retryAt"`
}

// State is how far a step came.
type State string

// States of an Outcome.
const (
	// Done: the resource is there and as wanted; after Remove, gone.
	Done State = "Done"
	// InProgress: an operation runs, ours or another's. The change stream
	// tells when it ends.
	InProgress State = "InProgress"
	// Failed: see Err. RetryAfter is set when a retry makes sense.
	Failed State = "Failed"
)

// Outcome is the result of a step.
type Outcome struct {
	State State
	// Resource is the live resource, nil where there is none or it is not ours.
	Resource *arm.Resource
	// Err is why it Failed.
	Err *core.Error
	// Conflict is the first owner when Err is a NameConflict.
	Conflict *arm.Owner
	// RetryAfter is when to step again without a signal; 0 is never.
	RetryAfter time.Duration
	// Cleaning says that the resource is Done and ids of Memory.Previous are
	// still to be deleted: store the memory, tell who uses the resource, and
	// step again with Clean set.
	Cleaning bool
}

// Backoff of failed goals.
const (
	firstRetry = 2 * time.Second
	maxRetry   = 5 * time.Minute
	// conflictRetry is for the refusals whose end nobody tells.
	conflictRetry = 10 * time.Second
)

// Runner steps. Its fields are set once, before use.
type Runner struct {
	API API
	// Gone says whether the object behind an owner is verified gone; nil is
	// never. An error leaves the conflict as it is.
	Gone func(ctx context.Context, o arm.Owner) (bool, error)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

func (r *Runner) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

// Hash returns the hash of a goal: id, version and body with the owner and
// without what only the transaction needs.
func (g Goal) Hash() string {
	body := g.Body
	body.Replaces = ""
	return hashJSON([]any{g.ID.Key(), g.APIVersion, body})
}

// hashJSON hashes the JSON of v, whose maps encode in the order of their keys.
func hashJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("paired: a goal that is no JSON: " + err.Error()) // built from JSON
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// liveHash hashes the live values of the properties that the goal sets.
func liveHash(goal, live map[string]any) string {
	seen := make(map[string]any, len(goal))
	for _, k := range slices.Sorted(maps.Keys(goal)) {
		seen[k] = project(goal[k], live[k])
	}
	return hashJSON(seen)
}

// project reduces a live value to the members that the goal's value has, so
// that what the server computes inside an object is not taken for drift.
func project(goal, live any) any {
	g, ok := goal.(map[string]any)
	l, also := live.(map[string]any)
	if !ok || !also {
		return live
	}
	seen := make(map[string]any, len(g))
	for k := range g {
		seen[k] = project(g[k], l[k])
	}
	return seen
}
