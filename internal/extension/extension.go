// Package extension is the contract of every kind of resource that is not the
// control plane's own (S-47): four calls on a Target. A Target is what a scope
// resolves to; it may hold short-lived credentials, which nothing stores.
package extension

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/radial-project/radial/internal/core"
)

// Resource is what a template asks a target to hold.
type Resource struct {
	// Type and APIVersion in the extension's spelling: "apps/Deployment" and
	// "v1", or "core/Secret" and "v1".
	Type       string
	APIVersion string
	// Properties is the resource's body; for Kubernetes the whole object
	// without apiVersion and kind.
	Properties map[string]any
	// Unevaluated are the JSON pointers of properties that are not known yet;
	// they are absent from Properties. Only Preview gets any, and then names
	// the resource without validating it.
	Unevaluated []string
	// Owner is the control plane's resource it is made for. Targets stamp it
	// where they can, so that an object is known to be ours.
	Owner core.ID
	// Existing says that the resource is read, never made: Preview is asked for its
	// name alone.
	Existing bool
	// UID is that of the object which an earlier run recorded as made, "" when
	// none is known. It spares a target that has to judge what it finds a call.
	UID string
}

// Ref finds a resource again, for get and delete. It is stored as an output's
// handle and holds no credential.
type Ref struct {
	// ID is the resource's id; for Kubernetes it carries the cluster's name.
	ID         core.ID `json:"id"`
	Type       string  `json:"type"`
	APIVersion string  `json:"apiVersion"`
	// Identifiers are the extension's own: {"metadata":{"name","namespace"}}.
	Identifiers json.RawMessage `json:"identifiers"`
	// UID is the target's own mark of this very object, "" before it is made.
	// Deletion carries it as a precondition.
	UID string `json:"uid,omitempty"`
	// ConfigID is the mark of the very place the resource is in, as
	// [Target.ConfigID] answered when it was made; "" where it is not known.
	ConfigID string `json:"configId,omitempty"`
	// Unverified says that whoever asks for a deletion knows neither uid nor
	// owner: what has the name is deleted.
	Unverified bool `json:"unverified,omitempty"`
	// Owner is the control plane's resource it was made for. A resource
	// without UID, planned and perhaps made by a run that was killed, is
	// deleted only when the target finds this stamp on it.
	Owner core.ID `json:"owner,omitzero"`
}

// State is a resource as the target holds it.
type State struct {
	Ref Ref
	// Properties is the live object.
	Properties map[string]any
	// About is what a preview can say about its values, nil for nothing.
	About *About
	// Secret are JSON pointers of entries of [Scope].Config that the target
	// keeps secret though the template does not: they are not to be stored.
	Secret []string
}

// About are JSON pointers into the properties of a preview.
type About struct {
	// ReadOnly values are the target's, Immutable ones stay as they were made.
	ReadOnly  []string
	Immutable []string
	// Unknown values show only when the resource is made; Calculated ones differ
	// each time; Unevaluated ones were not known to whoever asked.
	Unknown     []string
	Calculated  []string
	Unevaluated []string
}

// Target is a place where resources are made: a cluster, a cloud, a mailbox.
// Implementations are safe for concurrent use; every call ends when its
// context does.
type Target interface {
	// Preview validates and answers what Apply would make, without making it.
	// Its Ref names the resource before it exists: deterministic; one whose
	// target cannot know the name yet has a zero ID. A target that has nothing
	// to say answers an error of CodePreviewNotSupported, which fails nothing.
	Preview(ctx context.Context, r Resource) (State, error)
	// Apply creates or updates, and waits until the resource is ready.
	// Idempotent. A field that another manager owns is an error naming both; a
	// resource that exists and is stamped for another owner, or for none, is
	// never taken over: an error of core.CodeConflict names its owner.
	Apply(ctx context.Context, r Resource) (State, error)
	// Get returns the live resource; NotFound if there is none.
	Get(ctx context.Context, ref Ref) (State, error)
	// Delete removes and waits until it is gone, with what it made itself. A missing resource, and one
	// whose uid is another, are already deleted: no error. A ref of another
	// place (its ConfigID is not the target's) is an error of CodeWrongTarget,
	// and nothing is deleted (S-32).
	Delete(ctx context.Context, ref Ref) error
	// ConfigID is the mark of this very place, which a change of address or
	// credentials does not change: for Kubernetes the uid of the namespace
	// kube-system. "" where reading it is forbidden: deletions are then
	// unverified (S-48).
	ConfigID(ctx context.Context) (string, error)
}

// Codes of errors about targets and scopes, beside core.CodeTarget.
const (
	// CodeWrongTarget: the same reference leads to another place than before.
	CodeWrongTarget = core.CodeWrongTarget
	// CodeScopeGone: the owner that a scope names does not exist any more, and
	// all inside it went with it (S-31).
	CodeScopeGone = core.CodeScopeGone
	// CodeCredentialsNeeded: the credentials of the scope are not stored, and
	// were not supplied with this request (S-37, S-45).
	CodeCredentialsNeeded = core.CodeCredentialsNeeded
	// CodePreviewNotSupported: the target has no preview of this resource. A
	// deployment goes on, a what-if answers Unsupported.
	CodePreviewNotSupported core.Code = "PreviewNotSupported"
	// CodeRefused: an extension said no; its own code is in the text.
	CodeRefused core.Code = "ExtensionRefused"
)

// ErrCredentials is in the tree of an error of a target that did not take the
// credentials it was called with: they have ended or were rotated. A resolver
// that can get others does, and calls once more.
var ErrCredentials = errors.New("the credentials were refused")

// ErrNotServed is in the tree of Preview's error when the target does not know
// the type. Another resource of the same run may bring it (a custom resource's
// definition): ask again when all others were previewed.
var ErrNotServed = errors.New("the type is not served")

// CodeNotReady is the code of a resource that was applied and did not become
// ready: its error says what the target reports.
const CodeNotReady core.Code = "ResourceNotReady"

// Secrets are the secret entries of a configuration, by name: the kubeConfig
// of a UserOwned scope, the secure entries of another extension's. They come
// with a request, stay in the process and are never stored, logged or answered.
type Secrets map[string]any

// Releaser is implemented by targets that stamp owners. Release takes the
// owner's stamp off a resource and leaves the resource: it is no longer managed
// (detached), and somebody else may take it over. A missing resource, another
// one of that name, and one with another's stamp are left as they are.
type Releaser interface {
	Release(ctx context.Context, ref Ref) error
}

// DefaultNamespace is implemented by targets that have one: that of a Radial
// scope is its environment's when the import names none.
type DefaultNamespace interface{ DefaultNamespace() string }

// Resolver turns a reference to a scope into a Target.
type Resolver interface {
	// Resolve returns the target of a scope. An unknown, unreachable or
	// forbidden one is an error of core.CodeTarget (or one of the codes above)
	// that names it, and the action that failed. secrets are nil for a scope
	// that needs none. Calls for one scope within one session ([WithSession])
	// are one request for credentials; a new session asks anew.
	Resolve(ctx context.Context, s Scope, secrets Secrets) (Target, error)
}

// Scope refers to where resources live, without credentials. It is stored, and
// is comparable: two equal scopes are one place.
type Scope struct {
	// Extension is "Kubernetes" or another registered name; Version as a
	// template names it, "" for none.
	Extension string `json:"extension"`
	Version   string `json:"version,omitempty"`
	// Type is that of the scope in an import's configuration (S-2):
	// AzureResourceManager, Radial or UserOwned. "" is Cluster.
	Type string `json:"type,omitempty"`
	// ID is the owner's, of the types AzureResourceManager and Radial, as it
	// was written.
	ID string `json:"id,omitempty"`
	// Fingerprint of a UserOwned scope is the ConfigID of its cluster (S-38).
	Fingerprint string `json:"fingerprint,omitempty"`
	// CredentialType is Admin or User; "" is Admin.
	CredentialType string `json:"credentialType,omitempty"`
	// Cluster is the member cluster's name, "local" for the server's own.
	Cluster string `json:"cluster,omitempty"`
	// Namespace is the default namespace, for extensions that know one.
	Namespace string `json:"namespace,omitempty"`
	// Config is the rest of the configuration, without secrets: a JSON object
	// with sorted keys, "" for none.
	Config string `json:"config,omitempty"`
}
