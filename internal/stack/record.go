package stack

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/template"
)

// Type is the resource type of stacks.
const Type = "Microsoft.Resources/deploymentStacks"

// Action is what happens to a resource that is no longer managed.
type Action string

// The actions.
const (
	Delete Action = "delete"
	Detach Action = "detach"
)

// State is the provisioning state of a stack.
type State string

// The states, those that last last. Live ones say what is being done.
const (
	StateCreating  State = "creating"
	StateDeploying State = "deploying"
	StateUnmanage  State = "deletingResources"
	StateDeny      State = "updatingDenyAssignments"
	StateDeleting  State = "deleting"
	StateSucceeded State = "succeeded"
	StateFailed    State = "failed"
	StateCanceled  State = "canceled"
)

// Terminal reports whether nothing more happens by itself.
func (s State) Terminal() bool {
	return s == StateSucceeded || s == StateFailed || s == StateCanceled
}

// Statuses of a managed resource.
const (
	StatusManaged      = "managed"
	StatusDeleteFailed = "deleteFailed"
	StatusDenyFailed   = "removeDenyFailed"
)

// Managed is one resource of a stack, with all that it takes to delete it: the
// scope that it is in, its id and its identity. It holds no secret (S-26).
type Managed struct {
	deploy.Affected
	Status     string `json:"status,omitempty"`
	DenyStatus string `json:"denyStatus,omitempty"`
}

// Record is what is kept of a stack. It holds no secret (S-23).
type Record struct {
	ID          core.ID      `json:"id"`
	Description string       `json:"description,omitempty"`
	Unmanage    Action       `json:"actionOnUnmanage,omitempty"`
	Deny        DenySettings `json:"denySettings"`
	// Resources are managed, sorted by id, then by scope.
	Resources []Managed `json:"resources,omitempty"`
	// Policies are what the deny settings made. They are the stack's own, not its
	// template's.
	Policies []Managed `json:"policies,omitempty"`
	// Detached, Deleted and Failed are of the last update only.
	Detached []deploy.Affected `json:"detachedResources,omitempty"`
	Deleted  []deploy.Affected `json:"deletedResources,omitempty"`
	Failed   []deploy.Affected `json:"failedResources,omitempty"`

	State State       `json:"provisioningState,omitempty"`
	Error *core.Error `json:"error,omitempty"`
	// Deployment is the id of the last deployment, Run the run that wrote this.
	Deployment string            `json:"deploymentId,omitempty"`
	Run        string            `json:"run,omitempty"`
	Outputs    []template.Output `json:"outputs,omitempty"` // without secure ones
	Started    time.Time         `json:"started,omitzero"`
	Ended      time.Time         `json:"ended,omitzero"`
}

// scopeKey identifies where a resource is, by what its import says. Ids of
// owners compare without case, and the alias is no part of it.
func scopeKey(a deploy.Affected) string {
	if a.Scope == nil {
		return ""
	}
	key := strings.ToLower(a.Extension) + "|" + strings.ToLower(a.Scope.Type) + "|" + strings.ToLower(a.Scope.ID) + "|" + a.Scope.Fingerprint
	if !strings.EqualFold(a.Extension, kubernetes) && len(a.Config) > 0 {
		raw, _ := json.Marshal(a.Config) // strings, numbers, lists of them
		key += "|" + string(raw)
	}
	return key
}

// kubernetes is the extension whose ids name everything but the cluster.
const kubernetes = "Kubernetes"

// idKey is the form of an id to compare by.
func idKey(a deploy.Affected) string {
	if key, ok := a.Carried(); ok {
		return key
	}
	if a.Scope != nil {
		if key, ok := template.ExtensionKey(a.ID); ok {
			return key
		}
	}
	return strings.ToLower(a.ID)
}

// keyOf identifies a resource within a stack.
func keyOf(a deploy.Affected) string { return scopeKey(a) + "||" + idKey(a) }

// placeKey identifies a resource by the very place that it was found in, "" where
// that is not known: the same cluster may be named by more than one scope.
func placeKey(a deploy.Affected) string {
	if a.Scope == nil || a.Identity == nil || a.Identity.ConfigID == "" {
		return ""
	}
	return strings.ToLower(a.Extension) + "|" + a.Identity.ConfigID + "||" + idKey(a)
}

// set finds resources by both keys.
type set map[string]int

func setOf[T any](list []T, affected func(T) deploy.Affected) set {
	s := set{}
	for i, e := range list {
		s.add(affected(e), i)
	}
	return s
}

func (s set) add(a deploy.Affected, i int) {
	s[keyOf(a)] = i
	if k := placeKey(a); k != "" {
		s["@"+k] = i
	}
}

func (s set) find(a deploy.Affected) (int, bool) {
	if i, ok := s[keyOf(a)]; ok {
		return i, true
	}
	if k := placeKey(a); k != "" {
		if i, ok := s["@"+k]; ok {
			return i, true
		}
	}
	return 0, false
}

func itself(a deploy.Affected) deploy.Affected { return a }
func ofManaged(m Managed) deploy.Affected      { return m.Affected }

// sortManaged orders by id, then by scope (S-16).
func sortManaged(list []Managed) {
	slices.SortStableFunc(list, func(a, b Managed) int { return compare(a.Affected, b.Affected) })
}

func sortAffected(list []deploy.Affected) {
	slices.SortStableFunc(list, compare)
}

func compare(a, b deploy.Affected) int {
	return cmp.Or(cmp.Compare(idKey(a), idKey(b)), cmp.Compare(scopeKey(a), scopeKey(b)))
}
