// Package extensionsdk lets a program be an extension of Radial: something that
// holds resources which templates ask for. The program implements [Extension];
// [Main] serves it over both carriers of the contract, HTTP (contract v2 of
// Bicep's extensibility) and gRPC (Bicep's local deploy), and [HTTP] and [GRPC]
// serve it inside of something larger.
//
// docs/extensions.md says what the calls must do; examples/extension is a whole
// one.
package extensionsdk

import (
	"context"
	"encoding/json"
	"fmt"
)

// Limits of the contract, which the host keeps to.
const (
	// MaxRequest and MaxResponse are bytes of one body.
	MaxRequest  = 4 << 20
	MaxResponse = 20 << 20
)

// Statuses of a resource or an operation that has ended. Any other says that it
// is on its way; none at all is Succeeded.
const (
	Succeeded = "Succeeded"
	Failed    = "Failed"
	Canceled  = "Canceled"
)

// Specification is what a template asks for.
type Specification struct {
	Type       string         `json:"type"`
	APIVersion string         `json:"apiVersion,omitempty"`
	Properties map[string]any `json:"properties"`
	// Config is the import's configuration, secrets included.
	Config map[string]any `json:"config,omitempty"`
	// ConfigID is the mark of the place that the caller means, "" where it does
	// not say. An extension refuses a place that is another.
	ConfigID string `json:"configId,omitempty"`
	// Metadata comes with previews.
	Metadata *SpecificationMetadata `json:"metadata,omitempty"`
}

// SpecificationMetadata says what of a specification is not known yet: JSON
// pointers of values that stand for expressions.
type SpecificationMetadata struct {
	Unevaluated []string `json:"unevaluated"`
}

// Reference finds a resource again.
type Reference struct {
	Type        string         `json:"type"`
	APIVersion  string         `json:"apiVersion,omitempty"`
	Identifiers map[string]any `json:"identifiers"`
	Config      map[string]any `json:"config,omitempty"`
	ConfigID    string         `json:"configId,omitempty"`
}

// Resource is a resource as the extension holds it.
type Resource struct {
	Type       string `json:"type"`
	APIVersion string `json:"apiVersion,omitempty"`
	// Identifiers, with type and configuration, tell the resource from all
	// others. Its shape is the extension's.
	Identifiers map[string]any `json:"identifiers"`
	Properties  map[string]any `json:"properties"`
	// Config echoes the configuration without its secrets: what is not echoed
	// counts as secret.
	Config map[string]any `json:"config,omitempty"`
	// ConfigID is the mark of the place that the configuration leads to, and
	// stays when its address or credentials change.
	ConfigID string `json:"configId,omitempty"`
	Status   string `json:"status,omitempty"`
	// Error is why the status is Failed or Canceled.
	Error *Error `json:"error,omitempty"`
	// Metadata comes with previews.
	Metadata *ResourceMetadata `json:"metadata,omitempty"`
	// RetryAfterSeconds is when to look again at a resource that is on its way;
	// nil leaves it to the caller. It travels as the header Retry-After.
	RetryAfterSeconds *int `json:"-"`
}

// ResourceMetadata are JSON pointers (/properties/…) of what a preview can say
// about its values.
type ResourceMetadata struct {
	// ReadOnly values are the extension's, Immutable ones stay as they were made.
	ReadOnly  []string `json:"readOnly,omitempty"`
	Immutable []string `json:"immutable,omitempty"`
	// Unknown values show only when the resource is made, Calculated ones differ
	// each time, Unevaluated ones are those of the request.
	Unknown     []string `json:"unknown,omitempty"`
	Calculated  []string `json:"calculated,omitempty"`
	Unevaluated []string `json:"unevaluated,omitempty"`
}

// Operation is work that is followed by a handle of its own, where the resource
// cannot tell how far it is.
type Operation struct {
	Status string `json:"status"`
	// RetryAfterSeconds is when to ask again; 60 where it is not said.
	RetryAfterSeconds *int `json:"retryAfterSeconds,omitempty"`
	// Handle is the extension's own, and needed until the operation has ended.
	Handle map[string]any `json:"operationHandle,omitempty"`
	// Identifiers are those of the resource that is being made. The contract has
	// no such member and leaves open how a caller finds what was made; without
	// it, and without a preview that names the resource, ours cannot.
	Identifiers map[string]any `json:"identifiers,omitempty"`
	Error       *Error         `json:"error,omitempty"`
}

// Answer is what came of a createOrUpdate or a delete: the resource as it is
// now, or an operation to follow. A deletion that answers neither is done.
type Answer struct {
	Resource  *Resource
	Operation *Operation
}

// Error is an error of the contract. It holds no secret.
type Error struct {
	// Code is for programs. [CodeNotFound] and [CodePreviewNotSupported] have a
	// meaning of their own.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Target is a JSON pointer into the request.
	Target  string         `json:"target,omitempty"`
	Details []ErrorDetail  `json:"details,omitempty"`
	Inner   map[string]any `json:"innererror,omitempty"`
	// HTTPStatus is the status to answer with over HTTP; 0 is that of the code.
	HTTPStatus int `json:"-"`
}

// ErrorDetail is one of several faults.
type ErrorDetail struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Target  string `json:"target,omitempty"`
}

// Codes that the host understands.
const (
	// CodeNotFound: there is no such resource.
	CodeNotFound = "ResourceNotFound"
	// CodePreviewNotSupported: nothing useful can be said before it is made. It
	// fails no deployment.
	CodePreviewNotSupported = "PreviewNotSupported"
	// CodeConfigMismatch: the configuration leads to another place than ConfigID
	// says.
	CodeConfigMismatch = "ConfigIdMismatch"
	// CodeInvalid: the request asks for what cannot be.
	CodeInvalid = "InvalidRequest"
)

func (e *Error) Error() string { return e.Message }

// Errorf makes an error of a code.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// At says what of the request an error is about, by a JSON pointer.
func (e *Error) At(pointer string) *Error {
	c := *e
	c.Target = pointer
	return &c
}

// Extension is what a program implements. Methods are called at the same time.
// Errors that are no [*Error] are answered as internal ones, with their text.
type Extension interface {
	// Preview answers what CreateOrUpdate would make, and makes nothing.
	Preview(ctx context.Context, s Specification) (Resource, error)
	// CreateOrUpdate makes the resource what the specification says; asked for
	// the same twice, it does nothing the second time. An answer whose resource
	// is on its way is followed by Get.
	CreateOrUpdate(ctx context.Context, s Specification) (Answer, error)
	// Get answers the resource, or an error of [CodeNotFound].
	Get(ctx context.Context, r Reference) (Resource, error)
	// Delete deletes. A resource that is not there is no error. An answer whose
	// resource is on its way is followed by Get until that finds none.
	Delete(ctx context.Context, r Reference) (Answer, error)
}

// Follower is an extension that answers operations. Over gRPC, which cannot
// carry them, they are followed on the extension's side.
type Follower interface {
	Follow(ctx context.Context, handle map[string]any) (Operation, error)
}

// Typed is an extension that has descriptions of its types, in the format of
// Bicep's type files: by path, with the path of the index.
type Typed interface {
	TypeFiles(ctx context.Context) (index string, files map[string]string, err error)
}

// Wait is [Operation].RetryAfterSeconds.
func Wait(seconds int) *int { return &seconds }

func object(v map[string]any) map[string]any {
	if v == nil {
		return map[string]any{}
	}
	return v
}

func text(v map[string]any) string {
	raw, err := json.Marshal(object(v))
	if err != nil {
		return "{}" // of JSON's own types: cannot be
	}
	return string(raw)
}
