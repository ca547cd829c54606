package deploy

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// ResourceAPI is how a deployment reads and writes the control plane's own
// resources; it stands below so that recipes can hand it on.
type ResourceAPI = extension.ResourceAPI

// Request is a deployment to be run, validated or previewed.
type Request struct {
	// ID is the deployment's own id, zero where no control plane keeps it. Name
	// is its name.
	ID   core.ID
	Name string
	// Template is the text of the template.
	Template []byte
	// Parsed is the template where the caller has parsed it already.
	Parsed *template.Template
	// Parameters are values by name, ExtensionConfigs and ExternalInputs as
	// [template.Options] has them.
	Parameters       map[string]any
	ExtensionConfigs map[string]map[string]any
	ExternalInputs   map[string]any
	// Scope is the resource group that control-plane resources are made in; At
	// is a scope of another plane, as text.
	Scope    core.ID
	At       string
	Location string
	// Base is where resources go whose import says no scope: the cluster and
	// namespace of the server or of the environment.
	Base extension.Scope
	// Owner is stamped on what is made: a stack's or a recipe's id. Zero stamps
	// nothing: a plain deployment owns nothing it makes.
	Owner core.ID
	// Kind is the kind of recipe that the deployment is of, kept in every handle;
	// "" for a deployment of its own.
	Kind string
	// Resources are the control plane's own, written on behalf of this run; nil
	// takes the engine's.
	Resources ResourceAPI
	// Preview asks every target, by a dry run, for all that is known before the
	// first resource is made, so that what a target would refuse leaves nothing
	// half made. It costs a call for each resource.
	Preview bool
	// Run names this run: all attempts of one operation have the same. What the
	// journal says was made in this run is not made again (S-45).
	Run string
	// Started is utcNow(), Seed what newGuid() is derived from, the same for all
	// attempts: 32 random bytes, a secret.
	Started time.Time
	Seed    []byte
	// Previous are the journal's entries before this attempt.
	Previous []core.Output
	// Record keeps entries: all planned ones in one commit before the first
	// resource is made, outcomes in batches. nil keeps nothing.
	Record Record
	// Secret answers references to key stores; nil refuses them.
	Secret func(template.SecretReference) (string, error)
	// Secrets are credentials that came with the request and stand in no
	// template, such as kubeConfigs for the deletion under UserOwned scopes, by
	// the scope's fingerprint ("" is for any), and secret entries of another
	// extension's configuration, by the extension's name.
	Secrets map[string]extension.Secrets
	// Begin is asked before a nested deployment begins, with its id; an error
	// fails it, and nothing of it is made. nil lets all begin.
	Begin func(ctx context.Context, id core.ID) error
	// Progress is told of every step; it may be nil and is called from one
	// goroutine at a time.
	Progress func(Event)
	// Park makes Deploy return with [Result].Waiting when nothing but operations
	// of the control plane is left to wait for, instead of waiting.
	Park bool
	// Parallel bounds the resources in flight; 0 is 16.
	Parallel int
}

// Event is one step of a deployment on its way, for people and for the list of
// its operations. It holds no secret.
type Event struct {
	Time time.Time `json:"time"`
	// Deployment is the path of names of nested deployments, "" at the root.
	Deployment string `json:"deployment,omitempty"`
	// Symbol and Type are the resource's in its template.
	Symbol string `json:"symbol,omitempty"`
	Type   string `json:"type,omitempty"`
	ID     string `json:"id,omitempty"`
	// Operation is Create, Read (of what exists), Delete, Detach (of an entry of
	// deletedResources that stays) or EvaluateDeploymentOutput.
	Operation string `json:"operation"`
	// State is Running, Succeeded, Failed, Canceled or NotRun.
	State    string        `json:"state"`
	Duration time.Duration `json:"duration,omitempty"`
	// Text says what happens, in a few words.
	Text  string      `json:"text,omitempty"`
	Error *core.Error `json:"error,omitempty"`
}

// Affected is one resource that a deployment made or deleted, as deployments
// and stacks answer and keep it (S-15, S-26). It holds no secret.
type Affected struct {
	// Scope is that of an extension's resource, nil for the control plane's own.
	Scope *Scope `json:"scope,omitempty"`
	// ID is S-12's for an extension's resource, else the resource's id.
	ID string `json:"id"`
	// Alias, Extension and Version are those of its import.
	Extension string `json:"extension,omitempty"`
	Version   string `json:"version,omitempty"`
	// Config is the import's configuration beside the scope, without secrets.
	Config      map[string]any  `json:"config,omitempty"`
	Type        string          `json:"type,omitempty"`
	APIVersion  string          `json:"apiVersion,omitempty"`
	Identifiers json.RawMessage `json:"identifiers,omitempty"`
	// Identity is what makes its deletion safe, nil when it is not known.
	Identity *Identity `json:"identity,omitempty"`
	// Output is its id in the graph (/planes/kubernetes/…).
	Output string `json:"output,omitempty"`
	Symbol string `json:"symbol,omitempty"`
	// DependsOn are the IDs (with their scopes' keys) that it needs: deletion
	// takes dependants first.
	DependsOn []string `json:"dependsOn,omitempty"`
	// Unverified marks a deletion that no identity vouched for; Note says what is
	// worth saying, such as that the owner is gone.
	Unverified bool        `json:"unverified,omitempty"`
	Note       string      `json:"note,omitempty"`
	Error      *core.Error `json:"error,omitempty"`
}

// Key tells an affected resource from every other: two with the same key are
// one resource. DependsOn is made of keys.
func (a Affected) Key() string {
	if a.Scope == nil {
		return strings.ToLower(a.ID)
	}
	if id, ok := a.Carried(); ok {
		return id
	}
	id, ok := template.ExtensionKey(a.ID)
	if !ok {
		id = a.ID
	}
	return a.Scope.Key() + id
}

// Carried is the id in the graph of a resource of an extension that is a program
// of its own, as a key; ok is false for others. What identifies such a resource
// only its extension knows, so that its id in the template may hold no more than
// its symbol: two modules may have one symbol, and a symbol may be renamed.
func (a Affected) Carried() (key string, ok bool) {
	key = strings.ToLower(a.Output)
	return key, strings.HasPrefix(key, "/planes/"+extension.Plane+"/")
}

// Scope is the scope of a resource as it is kept and answered. Type is one of
// AzureResourceManager, Radial and UserOwned, or Cluster for a resource whose
// import has no scope: it is where the request's Base says, and ID is the name
// of that cluster.
type Scope struct {
	Type        string `json:"type"`
	ID          string `json:"id,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
}

// Key is type and id (of a UserOwned scope the fingerprint) in lower case.
func (s Scope) Key() string {
	id := s.ID
	if s.Fingerprint != "" {
		id = s.Fingerprint
	}
	return strings.ToLower(s.Type + ":" + id)
}

// Identity is the cluster's mark and the object's own, as identity of an entry
// of deletedResources has them too; there owner may stand beside them, the id
// that the object was stamped with, for one whose uid was never learned.
type Identity struct {
	ConfigID string `json:"configId,omitempty"`
	UID      string `json:"uid,omitempty"`
}

// Result is what came of a deployment, of a failed one too.
type Result struct {
	// Waiting says that it has not ended: see [Request].Park.
	Waiting bool
	// Outputs are the template's, in its order.
	Outputs []template.Output
	// Resources are all that were made, those of nested deployments included,
	// sorted by id (S-16). Of a failed deployment they are those made so far.
	Resources []Affected
	// Deleted is the answer to deletedResources; one that failed has Error.
	Deleted []Affected
	// Journal are the entries of this run as the inventory has them now, in the
	// order of the templates. What Previous has beyond them is the owner's to
	// delete ([Engine.Delete]); a deployment without owner drops it when it
	// succeeds.
	Journal []core.Output
	// Deployments are the nested ones, by path.
	Deployments []Nested
	Warnings    []string
	// Secrets are the credentials of the UserOwned scopes that the run reached, by
	// fingerprint: for what follows in the same request. They are never kept.
	Secrets map[string]extension.Secrets `json:"-"`
}

// Nested is a nested deployment that ended.
type Nested struct {
	ID      core.ID
	Path    string
	State   core.State
	Outputs []template.Output
	Error   *core.Error
	Started time.Time
	Ended   time.Time
}

// Validation is the answer to validate: every resource with the id that the
// deployment will report (S-13), as far as it is known before.
type Validation struct {
	Resources []Affected
	// Unknown are symbols whose id needs a running deployment.
	Unknown []string
	// Warnings say what the deployment would fail at, unless somebody else sees to
	// it before: a namespace that nobody makes.
	Warnings []string
	// Credentials are the parameters whose value is the kubeConfig of a UserOwned
	// scope: what is not kept, not even sealed (S-45).
	Credentials []string
}

// Change is one resource of a what-if (S-46).
type Change struct {
	Affected
	// Kind is Create, Delete, Modify, NoChange, Ignore, Deploy or Unsupported.
	Kind string `json:"changeType"`
	// Properties are the changes of a Modify.
	Properties []PropertyChange `json:"delta,omitempty"`
	Before     map[string]any   `json:"before,omitempty"`
	After      map[string]any   `json:"after,omitempty"`
	// Reason says why it is of its kind; of a Create, why it would fail.
	Reason string `json:"unsupportedReason,omitempty"`
}

// PropertyChange is one property of a change: Kind is Create, Delete, Modify,
// Array or NoEffect.
type PropertyChange struct {
	Path     string           `json:"path"`
	Kind     string           `json:"propertyChangeType"`
	Before   any              `json:"before,omitempty"`
	After    any              `json:"after,omitempty"`
	Children []PropertyChange `json:"children,omitempty"`
}
