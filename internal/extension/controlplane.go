package extension

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// Radius is the import by which templates that are compiled for Radius name
// resources of the control plane: {"import": "Radius", "type":
// "Applications.Core/applications@2023-10-01-preview", "properties": {"name",
// "properties", "tags"}}.
const Radius = "Radius"

// ControlPlane makes resources of the control plane for that import, in Group.
// Its writes are operations; whoever can wait for these without holding a
// worker's place writes by Address and API instead of Apply, which waits here.
type ControlPlane struct {
	API   ResourceAPI
	Group core.ID
}

var _ Target = ControlPlane{}

// imports of the control plane: Radius, and what its tools name the types of one
// namespace, such as radiusmycompanydata for MyCompany.Data.
var imports = regexp.MustCompile(`^(?i:radius[a-z0-9]*)$`)

// ImportsControlPlane reports whether a provider of imports is Radius, or one that
// its tools make for the types of a namespace.
func ImportsControlPlane(provider string) bool { return imports.MatchString(provider) }

// IsControlPlane reports whether a scope is that of such an import.
func IsControlPlane(s Scope) bool { return s.Type == "" && ImportsControlPlane(s.Extension) }

// Flat is a resource as templates that are compiled for Radius may read it: what
// is in its properties stands beside them, too, where nothing else has the name.
func Flat(whole map[string]any) map[string]any {
	properties, _ := whole["properties"].(map[string]any)
	flat := maps.Clone(properties)
	if flat == nil {
		return whole
	}
	maps.Copy(flat, whole)
	return flat
}

// WithControlPlane resolves the import Radius to a control plane, and all else by
// the given resolver.
func WithControlPlane(r Resolver, c ControlPlane) Resolver { return withControlPlane{r, c} }

type withControlPlane struct {
	Resolver
	c ControlPlane
}

// Resolve implements [Resolver].
func (w withControlPlane) Resolve(ctx context.Context, s Scope, secrets Secrets) (Target, error) {
	if IsControlPlane(s) {
		return w.c, nil
	}
	return w.Resolver.Resolve(ctx, s, secrets)
}

func (t ControlPlane) id(kind, name string) (core.ID, error) {
	if name == "" {
		return core.ID{}, core.Errorf(core.CodeInvalidTemplate, "a %s of the import Radius needs properties.name", kind)
	}
	if strings.HasPrefix(name, "/") || !strings.Contains(kind, "/") {
		return core.ID{}, core.Errorf(core.CodeInvalidTemplate, "%q is no name of a %s", name, kind)
	}
	return t.Group.Resource(kind, name), nil
}

func (t ControlPlane) ref(r Resource, id core.ID) Ref {
	identifiers, _ := json.Marshal(map[string]string{"name": id.Name()}) // of text
	return Ref{ID: id, Type: r.Type, APIVersion: r.APIVersion, Identifiers: identifiers, Owner: r.Owner}
}

// Address is where a resource stands, and its body as the control plane's PUT
// takes it.
func (t ControlPlane) Address(r Resource) (core.ID, map[string]any, error) {
	name, _ := r.Properties["name"].(string)
	id, err := t.id(r.Type, name)
	body := make(map[string]any, len(r.Properties))
	for k, v := range r.Properties {
		if k != "name" {
			body[k] = v
		}
	}
	return id, body, err
}

// Made is the reference of a resource that is there: an id of the control plane
// is the resource itself.
func (t ControlPlane) Made(r Resource, id core.ID) Ref {
	ref := t.ref(r, id)
	ref.UID = id.Key()
	return ref
}

// Preview implements [Target].
func (t ControlPlane) Preview(ctx context.Context, r Resource) (State, error) {
	id, body, err := t.Address(r)
	if err != nil || len(r.Unevaluated) > 0 {
		return State{Ref: t.ref(r, id)}, err
	}
	would, err := t.API.Preview(ctx, id, r.APIVersion, body)
	return State{Ref: t.ref(r, id), Properties: would, About: &About{ReadOnly: []string{
		"/systemData", "/properties/provisioningState", "/properties/status", "/properties/recipe",
	}}}, err
}

// Apply implements [Target].
func (t ControlPlane) Apply(ctx context.Context, r Resource) (State, error) {
	id, body, err := t.Address(r)
	if err != nil {
		return State{}, err
	}
	_, operation, err := t.API.Put(ctx, id, r.APIVersion, body, false)
	if err != nil {
		return State{}, err
	}
	s := State{Ref: t.Made(r, id)}
	if err := t.await(ctx, operation); err != nil {
		return s, err
	}
	s.Properties, err = t.API.Get(ctx, id, r.APIVersion)
	return s, err
}

func (t ControlPlane) await(ctx context.Context, operation string) error {
	if operation == "" {
		return nil
	}
	op, err := t.API.Await(ctx, operation)
	if err != nil {
		return err
	}
	return op.Failure("its operation")
}

// find is the resource of a reference: by its id, or by the name that it is
// identified by.
func (t ControlPlane) find(ref Ref) (core.ID, error) {
	if !ref.ID.IsZero() {
		return ref.ID, nil
	}
	var named struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(ref.Identifiers, &named); err != nil {
		return core.ID{}, core.Errorf(core.CodeInvalidTemplate, "the identifiers of a %s cannot be read", ref.Type)
	}
	return t.id(ref.Type, named.Name)
}

// Get implements [Target].
func (t ControlPlane) Get(ctx context.Context, ref Ref) (State, error) {
	id, err := t.find(ref)
	if err != nil {
		return State{}, err
	}
	whole, err := t.API.Get(ctx, id, ref.APIVersion)
	s := State{Ref: ref, Properties: whole}
	s.Ref.ID, s.Ref.UID = id, id.Key()
	return s, err
}

// Delete implements [Target].
func (t ControlPlane) Delete(ctx context.Context, ref Ref) error {
	id, err := t.find(ref)
	if err != nil {
		return err
	}
	operation, err := t.API.Delete(ctx, id, ref.APIVersion)
	if core.IsCode(err, core.CodeNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return t.await(ctx, operation)
}

// ConfigID implements [Target]: the group.
func (t ControlPlane) ConfigID(context.Context) (string, error) { return t.Group.Key(), nil }
