// Package recipe runs recipes: it finds what an environment registered for a
// type, builds the context, merges parameters, and hands both to the driver of
// the recipe's kind. Drivers live in its subpackages.
package recipe

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// Definition is a recipe as an operator registered it.
type Definition struct {
	// Name is "default" unless the developer chose another.
	Name string `json:"name"`
	// Kind selects the driver: "bicep" and "template" are ARM templates,
	// "terraform" an OpenTofu module.
	Kind string `json:"templateKind"`
	// Path is where the template lies: an OCI reference by tag or digest, or in
	// developer mode a file:// URL.
	Path       string         `json:"templatePath"`
	Version    string         `json:"templateVersion,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
	PlainHTTP  bool           `json:"plainHttp,omitempty"`
	// Outputs maps what is answered to outputs of the template, for one that
	// does not answer in the shape of recipes: property → output, and under
	// "secrets" secret → output. Only recipe packs have it.
	Outputs map[string]any `json:"outputs,omitempty"`
	// Digest is the content's digest, recorded when a run first read it.
	Digest string `json:"digest,omitempty"`
}

// Context is the object that a recipe gets as its parameter "context"
// (field names are the wire's).
type Context struct {
	Resource    ContextResource `json:"resource"`
	Application ContextRef      `json:"application"`
	Environment ContextRef      `json:"environment"`
	Runtime     ContextRuntime  `json:"runtime"`
}

// ContextRef names an application or an environment.
type ContextRef struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// ContextResource is the resource that the recipe provisions. Properties hold
// sensitive values in the clear: a Context never reaches a log.
type ContextResource struct {
	ID          string                       `json:"id"`
	Name        string                       `json:"name"`
	Type        string                       `json:"type"`
	Properties  map[string]any               `json:"properties,omitempty"`
	Connections map[string]ContextConnection `json:"connections,omitempty"`
}

// ContextConnection is a resource that the recipe's resource connects to.
type ContextConnection struct {
	ID         string         `json:"id"`
	Name       string         `json:"name"`
	Type       string         `json:"type"`
	Properties map[string]any `json:"properties,omitempty"`
}

// ContextRuntime says where containers of the application run.
type ContextRuntime struct {
	Kubernetes *ContextKubernetes `json:"kubernetes,omitempty"`
}

// ContextKubernetes names namespaces.
type ContextKubernetes struct {
	Namespace            string `json:"namespace"`
	EnvironmentNamespace string `json:"environmentNamespace"`
	// Owner is the object that the resource stands for, as an owner reference:
	// what a recipe makes with it goes with that object, and a request to the
	// cloud provider is served for it (C-143). Absent for a resource without one.
	Owner *ContextOwner `json:"owner,omitempty"`
}

// ContextOwner is an owner reference of Kubernetes.
type ContextOwner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

// Run is one execution of a recipe.
type Run struct {
	Definition Definition
	Context    Context
	// Parameters are merged: definition < environment < developer (D-33).
	Parameters map[string]any
	// Owner is the resource's id, Scope where its outputs go.
	Owner core.ID
	Scope extension.Scope
	// Previous is the inventory before the run.
	Previous []core.Output
	// Record keeps outputs in the store; drivers call it with every planned
	// output before the first is made, and with outcomes in batches (D-31).
	Record func(ctx context.Context, put []core.Output, drop []core.ID) error
	// Progress tells what is being done, for people; never a secret.
	Progress func(message string)
	// Resources are the control plane's own, as the recipe may write them; nil
	// refuses them. Attempt is the same for all attempts of one run, and Seed a
	// secret of it, from which what is made up is derived.
	Resources extension.ResourceAPI
	Attempt   string
	Seed      []byte
	// Started is the time of the run, the same for all its attempts; zero is now.
	Started time.Time
	// Request is what was asked of the engine, with all that it was given: for
	// drivers that render a type themselves. It holds secrets.
	Request *Request
}

// ErrWaiting is what a run answers that waits for operations of the control plane,
// which it has begun by its Resources: it is called again when they have ended.
var ErrWaiting = errors.New("the recipe waits for operations of the control plane")

// Deletion asks for the end of what recipes made.
type Deletion struct {
	// Outputs go dependants first, and leave the inventory by Record.
	Outputs []core.Output
	Record  func(ctx context.Context, put []core.Output, drop []core.ID) error
	// Resources are as in [Run].
	Resources extension.ResourceAPI
}

// Result is what a run answered.
type Result struct {
	Values  map[string]any
	Secrets map[string]any
	// Outputs is the new inventory; what Previous holds beyond it is deleted by
	// the engine after success.
	Outputs []core.Output
	// Resources are further ids that the recipe names in result.resources.
	Resources []string
	// Definition as run, with Digest set (D-32).
	Definition Definition
	// Warnings for people.
	Warnings []string
}

// Driver runs recipes of one kind.
type Driver interface {
	// Execute runs the recipe to its end. Errors carry one of the Recipe codes
	// and name the template and, inside it, the resource at fault. ErrWaiting
	// when it has to be called again.
	Execute(ctx context.Context, run Run) (Result, error)
	// Delete deletes outputs, dependants first, and drops each as it goes. It
	// needs no template. ErrWaiting when it has to be called again.
	Delete(ctx context.Context, d Deletion) error
	// Parameters returns the parameters that a template declares, by name, for
	// recipe show.
	Parameters(ctx context.Context, d Definition) (map[string]json.RawMessage, error)
}
