// Package dynamic is the provider of every resource type: one generic resource
// whose behaviour comes from its type's manifest (schema, capabilities), never
// from its name (D-1).
//
// The front half, [Provider], answers the API: a write runs defaults, then
// validation of the plaintext, then sealing, then one transaction that stores
// resource, edges, implicit parents and operation (D-7). The back half,
// [Controller], is the default controller of the workers: it stores inert
// resources as they are and runs recipes for all others (D-29).
//
// What a type means beyond its manifest comes in from outside: [Membership]
// (applications and environments) and [Kind] (checks of one type).
package dynamic

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/store"
)

// DefaultDeadline is how long an operation may take (D-20).
const DefaultDeadline = 24 * time.Hour

// DefaultRecipeDeadline is how long one run of a recipe, or the deletion of what
// it made, may take (D-47): less than the operation, so that its end is told as
// the recipe's failure and remembered.
const DefaultRecipeDeadline = 12 * time.Hour

// maxRetries bounds how often a write is computed again because its row changed
// under it.
const maxRetries = 32

// Subject is a write as checks see it: valid by its schema, in plaintext.
type Subject struct {
	ID   core.ID
	Type *manifest.TypeVersion
	// Properties are in plaintext: never to be logged or quoted.
	Properties map[string]any
	// Owner is the object that the resource stands for, zero for none.
	Owner core.Owner
	// ImplicitParents asks for group and application to be made.
	ImplicitParents bool
	SystemData      core.SystemData
	// Place is to what it belongs: for [Kind].Check only.
	Place Place
}

// Place is to what a resource belongs.
type Place struct {
	Application core.ID
	Environment core.ID
	// Parents are made with the resource where they do not exist.
	Parents []core.Resource
}

// Membership decides to what a resource belongs, and whether it may.
type Membership interface {
	Place(ctx context.Context, s Subject) (Place, error)
}

// Kind is what a type means beyond its manifest. Nil members do nothing.
type Kind struct {
	// Check refuses a write.
	Check func(ctx context.Context, s Subject) error
	// Unused refuses to delete what others use (D-6), in the transaction.
	Unused bool
	// Edges are to what a resource of this type uses, beside its connections.
	Edges func(id core.ID, props map[string]any) []core.Edge
	// Renders says that Radial makes what a resource of this type stands for,
	// unless it is manual, by no recipe of anyone's. Its run gets what each
	// connection carries, what its Edges lead to, and a secret of its own.
	Renders bool
}

// Options of a Provider. Store, Types, Sealer and Members are required.
type Options struct {
	Store   store.Store
	Types   *manifest.Registry
	Sealer  *seal.Sealer
	Members Membership
	// Kinds by the type's name in lower case.
	Kinds    map[string]Kind
	Deadline time.Duration
	// RecipeDeadline of one run of a recipe.
	RecipeDeadline time.Duration
	// Ended signals the end of an operation, for recipes that wait for those which
	// they began ([feed.Broker.Operation]).
	Ended func(operation string) (ended <-chan struct{}, stop func())
	// RecipeMay decides what the recipe of a resource may do with resources of the
	// control plane; nil is nothing.
	RecipeMay func(ctx context.Context, of core.Resource, a Access, id core.ID) error
	Now       func() time.Time
	NewID     func() string
}

// Provider answers reads and writes of resources. It is safe for concurrent use.
type Provider struct{ o Options }

// New returns a provider.
func New(o Options) *Provider {
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	if o.RecipeDeadline == 0 {
		o.RecipeDeadline = DefaultRecipeDeadline
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	return &Provider{o: o}
}

// Answer is what a write answers.
type Answer struct {
	Resource wire.Resource
	ETag     string
	// Operation is the id of the operation to follow, "" when the write is
	// complete.
	Operation string
	// Missing says that there was nothing to delete.
	Missing bool
}

// Request is a request on one resource.
type Request struct {
	ID            core.ID
	APIVersion    string
	Preconditions arm.Preconditions
	SystemData    core.SystemData
	// Parent is the operation that waits for the one which the request starts,
	// "" for none (D-45).
	Parent string
}

// resolve finds the type of an id and returns the id under the type's present
// name (K-12: an alias is one resource with it).
func (p *Provider) resolve(id core.ID, apiVersion string) (core.ID, *manifest.TypeVersion, error) {
	tv, err := p.o.Types.Lookup(id.Type(), apiVersion)
	if err != nil {
		return id, nil, err
	}
	return id.WithType(tv.Type), tv, nil
}

// Unused reports whether a resource of a type is only deleted when nothing uses
// it.
func (p *Provider) Unused(resourceType string) bool {
	t, ok := p.o.Types.Canonical(resourceType)
	return ok && p.o.Kinds[lower(t)].Unused
}

// Get answers one resource.
func (p *Provider) Get(ctx context.Context, req Request) (Answer, error) {
	id, tv, err := p.resolve(req.ID, req.APIVersion)
	if err != nil {
		return Answer{}, err
	}
	r, _, err := p.o.Store.Get(ctx, id)
	if err != nil {
		return Answer{}, err
	}
	out, err := p.show(ctx, r, tv)
	return Answer{Resource: out, ETag: r.ETag}, err
}

// List answers a page of the resources of a type at and below a scope.
func (p *Provider) List(ctx context.Context, collection core.ID, apiVersion string, page arm.PageOf) ([]wire.Resource, string, error) {
	id, tv, err := p.resolve(collection, apiVersion)
	if err != nil {
		return nil, "", err
	}
	if _, _, err := p.o.Store.Get(ctx, id.Scope()); err != nil {
		return nil, "", err
	}
	found, err := p.o.Store.List(ctx, store.Query{Scope: id.Scope(), Type: tv.Type, Limit: page.Limit, After: page.After})
	if err != nil {
		return nil, "", err
	}
	ids := make([]core.ID, len(found.Resources))
	for i, r := range found.Resources {
		ids[i] = r.ID
	}
	outputs, err := p.o.Store.OutputsOf(ctx, ids)
	if err != nil {
		return nil, "", err
	}
	out := make([]wire.Resource, len(found.Resources))
	for i, r := range found.Resources {
		if out[i], err = p.showWith(r, p.versionOf(r, tv), outputs[r.ID.Key()]); err != nil {
			return nil, "", err
		}
	}
	return out, found.Next, nil
}

// decode reads a JSON object; numbers keep their digits. nil reads as empty.
func decode(raw json.RawMessage) (map[string]any, error) {
	object := map[string]any{}
	if len(raw) == 0 {
		return object, nil
	}
	if err := arm.Decode(raw, &object); err != nil {
		return nil, err
	}
	if object == nil {
		object = map[string]any{}
	}
	return object, nil
}
