package deployment

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// radiusExtension is the import by which templates that are compiled for Radius
// name resources of the control plane: {"import": "Radius", "type":
// "Applications.Core/applications@2023-10-01-preview", "properties": {"name",
// "properties", "tags"}}.
const radiusExtension = "Radius"

// radiusTarget makes resources of the control plane for that import. It waits for
// the operations that it begins.
type radiusTarget struct {
	api   extension.ResourceAPI
	group core.ID
}

func (t radiusTarget) id(kind, name string) (core.ID, error) {
	if name == "" {
		return core.ID{}, core.Errorf(core.CodeInvalidTemplate, "a %s of the import Radius needs properties.name", kind)
	}
	if strings.HasPrefix(name, "/") || !strings.Contains(kind, "/") {
		return core.ID{}, core.Errorf(core.CodeInvalidTemplate, "%q is no name of a %s", name, kind)
	}
	return t.group.Resource(kind, name), nil
}

func (t radiusTarget) ref(r extension.Resource, id core.ID) extension.Ref {
	identifiers, _ := json.Marshal(map[string]string{"name": id.Name()}) // of text
	return extension.Ref{ID: id, Type: r.Type, APIVersion: r.APIVersion, Identifiers: identifiers, Owner: r.Owner}
}

// body is a resource's body as the control plane's PUT takes it.
func (t radiusTarget) body(r extension.Resource) (core.ID, map[string]any, error) {
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

// Preview implements [extension.Target].
func (t radiusTarget) Preview(ctx context.Context, r extension.Resource) (extension.State, error) {
	id, body, err := t.body(r)
	if err != nil || len(r.Unevaluated) > 0 {
		return extension.State{Ref: t.ref(r, id)}, err
	}
	would, err := t.api.Preview(ctx, id, r.APIVersion, body)
	return extension.State{Ref: t.ref(r, id), Properties: would, About: &extension.About{ReadOnly: []string{
		"/systemData", "/properties/provisioningState", "/properties/status", "/properties/recipe",
	}}}, err
}

// Apply implements [extension.Target].
func (t radiusTarget) Apply(ctx context.Context, r extension.Resource) (extension.State, error) {
	id, body, err := t.body(r)
	if err != nil {
		return extension.State{}, err
	}
	_, operation, err := t.api.Put(ctx, id, r.APIVersion, body, false)
	if err != nil {
		return extension.State{}, err
	}
	s := extension.State{Ref: t.ref(r, id)}
	s.Ref.UID = id.Key() // an id of the control plane is the resource itself
	if err := t.await(ctx, operation); err != nil {
		return s, err
	}
	s.Properties, err = t.api.Get(ctx, id, r.APIVersion)
	return s, err
}

func (t radiusTarget) await(ctx context.Context, operation string) error {
	if operation == "" {
		return nil
	}
	op, err := t.api.Await(ctx, operation)
	switch {
	case err != nil:
		return err
	case op.State != core.StateSucceeded && op.Error != nil:
		return op.Error
	case op.State != core.StateSucceeded:
		return core.Errorf(core.CodeInternal, "its operation ended as %s", op.State)
	}
	return nil
}

// find is the resource of a reference: by its id, or by the name that it is
// identified by.
func (t radiusTarget) find(ref extension.Ref) (core.ID, error) {
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

// Get implements [extension.Target].
func (t radiusTarget) Get(ctx context.Context, ref extension.Ref) (extension.State, error) {
	id, err := t.find(ref)
	if err != nil {
		return extension.State{}, err
	}
	whole, err := t.api.Get(ctx, id, ref.APIVersion)
	s := extension.State{Ref: ref, Properties: whole}
	s.Ref.ID, s.Ref.UID = id, id.Key()
	return s, err
}

// Delete implements [extension.Target].
func (t radiusTarget) Delete(ctx context.Context, ref extension.Ref) error {
	id, err := t.find(ref)
	if err != nil {
		return err
	}
	operation, err := t.api.Delete(ctx, id, ref.APIVersion)
	if core.IsCode(err, core.CodeNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return t.await(ctx, operation)
}

// ConfigID implements [extension.Target]: the group.
func (t radiusTarget) ConfigID(context.Context) (string, error) { return t.group.Key(), nil }
