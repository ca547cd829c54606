package dynamic

import (
	"context"
	"encoding/json"
	"maps"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/store"
)

// show is a resource as GET answers it: the user's properties with sensitive
// values as null, what the recipe computed in the properties that the schema
// declares for it, provisioningState, recipe and status.
func (p *Provider) show(ctx context.Context, r core.Resource, tv *manifest.TypeVersion) (wire.Resource, error) {
	tv = p.versionOf(r, tv)
	if synchronous(tv) {
		return p.showWith(r, tv, nil) // it has no operation that could make any
	}
	outputs, err := p.o.Store.Outputs(ctx, r.ID)
	if err != nil {
		return wire.Resource{}, err
	}
	return p.showWith(r, tv, outputs)
}

// showWith is show of a resource with its outputs and the type version that it
// was written by.
func (p *Provider) showWith(r core.Resource, tv *manifest.TypeVersion, outputs []core.Output) (wire.Resource, error) {
	props, err := decode(r.Properties)
	if err != nil {
		return wire.Resource{}, err
	}
	status, err := ReadStatus(r)
	if err != nil {
		return wire.Resource{}, err
	}
	redact(props, tv)
	manual := props[propProvisioning] == provisioningManual
	computed, late := split(status.ComputedValues, tv)
	overlay(props, computed, tv)
	for name := range late {
		props[name] = nil
	}
	for name := range r.Secrets { // a secret of a declared name is there, but not shown
		if tv != nil && tv.Schema != nil && tv.Schema.Declares(name) {
			props[name] = nil
		}
	}
	if status.RecipeStatus != "" && !manual {
		props[propRecipe] = showRecipe(props[propRecipe], status)
	}
	shown := map[string]any{}
	if len(computed) > 0 {
		shown["computedValues"] = computed
	}
	if d := status.Recipe; d != nil {
		recipe := map[string]any{"templateKind": d.Kind, "templatePath": d.Path}
		if d.Version != "" {
			recipe["templateVersion"] = d.Version
		}
		if d.Digest != "" {
			recipe["digest"] = d.Digest
		}
		shown["recipe"] = recipe
	}
	if len(outputs) > 0 {
		shown["outputResources"] = showOutputs(outputs)
	}
	if len(shown) > 0 {
		props[propStatus] = shown
	}
	state := r.State
	if state == "" {
		state = core.StateSucceeded
	}
	props[propProvisioningState] = string(state)

	out := wire.Resource{ID: r.ID.String(), Name: r.ID.Name(), Type: r.ID.Type(), Location: r.Location, Tags: r.Tags, Properties: props}
	if r.SystemData != (core.SystemData{}) {
		if out.SystemData, err = json.Marshal(r.SystemData); err != nil {
			return out, err
		}
	}
	if !r.Owner.IsZero() {
		owner := wire.Owner(r.Owner)
		out.Owner = &owner
	}
	return out, nil
}

func synchronous(tv *manifest.TypeVersion) bool { return tv != nil && tv.Synchronous() }

// versionOf is the type version that a row was written by, tv where that is no
// longer registered.
func (p *Provider) versionOf(r core.Resource, tv *manifest.TypeVersion) *manifest.TypeVersion {
	if tv != nil && tv.APIVersion == r.APIVersion {
		return tv
	}
	if own, err := p.o.Types.Lookup(r.ID.Type(), r.APIVersion); err == nil {
		return own
	}
	return tv
}

// split parts the computed values that may be shown from those that the schema
// has come to call sensitive since the recipe answered them.
func split(computed map[string]any, tv *manifest.TypeVersion) (open, secret map[string]any) {
	if tv == nil || tv.Schema == nil {
		return computed, nil
	}
	for name, v := range computed {
		if !tv.Schema.Sensitive(name) {
			continue
		}
		if secret == nil {
			open, secret = maps.Clone(computed), map[string]any{}
		}
		delete(open, name)
		secret[name] = v
	}
	if secret == nil {
		return computed, nil
	}
	return open, secret
}

// overlay puts computed values into the properties that are declared for them:
// the read-only ones, and those that the user left to the recipe. A type that
// takes any property has all of them.
func overlay(props map[string]any, values map[string]any, tv *manifest.TypeVersion) {
	if tv == nil || tv.Schema == nil {
		return
	}
	for name, v := range values {
		_, given := props[name]
		if (tv.Schema.Declares(name) || tv.Schema.Open()) && (!given || tv.Schema.ReadOnly(name)) {
			props[name] = v
		}
	}
}

func showRecipe(given any, s Status) map[string]any {
	out := map[string]any{}
	if g, ok := given.(map[string]any); ok {
		for k, v := range g {
			out[k] = v
		}
	}
	if _, ok := out["name"]; !ok {
		out["name"] = "default"
		if s.Recipe != nil && s.Recipe.Name != "" {
			out["name"] = s.Recipe.Name
		}
	}
	out[propRecipeStatus] = s.RecipeStatus
	return out
}

func showOutputs(outputs []core.Output) []any {
	list := make([]any, len(outputs))
	for i, o := range outputs {
		list[i] = map[string]any{"id": o.ID.String(), "localID": o.LocalID, "radiusManaged": o.Managed}
	}
	return list
}

// Secrets answers listSecrets: the sensitive properties of a resource and the
// secrets that its recipe returned, in plaintext (D-26, D-27). A recipe's
// secret wins over a property of its name.
func (p *Provider) Secrets(ctx context.Context, req Request) (map[string]any, error) {
	id, tv, err := p.resolve(req.ID, req.APIVersion)
	if err != nil {
		return nil, err
	}
	r, _, err := p.o.Store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return p.secrets(r, p.versionOf(r, tv))
}

func (p *Provider) secrets(r core.Resource, tv *manifest.TypeVersion) (map[string]any, error) {
	out := map[string]any{}
	if tv != nil && tv.Schema != nil {
		props, err := p.plaintext(r, tv)
		if err != nil {
			return nil, err
		}
		out = tv.Schema.Secrets(props)
	}
	status, err := ReadStatus(r)
	if err != nil {
		return nil, err
	}
	_, late := split(status.ComputedValues, tv)
	maps.Copy(out, late)
	for name, sealed := range r.Secrets {
		if name == store.InputsSecret || name == hashKeySecret {
			continue // the operation's and the rendering's own
		}
		v, err := p.openSecret(r.ID, name, sealed)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

func (p *Provider) openSecret(id core.ID, name string, sealed json.RawMessage) (any, error) {
	var v any
	if err := json.Unmarshal(sealed, &v); err != nil {
		return nil, core.Errorf(core.CodeInternal, "a stored secret of %s cannot be read", id)
	}
	return p.o.Sealer.Open(id, seal.SecretPath(name), v)
}
