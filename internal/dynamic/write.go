package dynamic

import (
	"context"
	"maps"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/store"
)

// Put creates or replaces a resource.
func (p *Provider) Put(ctx context.Context, req Request, body wire.Put) (Answer, error) {
	return p.write(ctx, req, core.VerbPut, func(core.Resource, bool, *manifest.TypeVersion) (wire.Put, error) {
		body := body
		body.Properties = clone(body.Properties)
		return body, nil
	})
}

// Patch changes a resource by a JSON merge patch (RFC 7396) of its tags and
// properties. A sensitive property that the patch leaves out keeps its value
// (D-12).
func (p *Provider) Patch(ctx context.Context, req Request, patch map[string]any) (Answer, error) {
	return p.write(ctx, req, core.VerbPatch, func(stored core.Resource, exists bool, tv *manifest.TypeVersion) (wire.Put, error) {
		var body wire.Put
		if !exists {
			return body, core.Errorf(core.CodeNotFound, "%s does not exist, so there is nothing to change: create it by PUT", req.ID).WithTarget(req.ID.String())
		}
		props, err := p.plaintext(stored, tv)
		if err != nil {
			return body, err
		}
		if change, ok := patch["properties"]; ok {
			merged, ok := mergePatch(props, clone(change)).(map[string]any)
			if !ok {
				return body, core.Errorf(core.CodeInvalidContent, "properties must be a JSON object").WithTarget("properties")
			}
			props = merged
		}
		body.Properties, body.Location, body.Tags = props, stored.Location, maps.Clone(stored.Tags)
		if change, ok := patch["tags"]; ok {
			if body.Tags, err = patchTags(body.Tags, change); err != nil {
				return body, err
			}
		}
		return body, nil
	})
}

func patchTags(tags map[string]string, change any) (map[string]string, error) {
	bad := core.Errorf(core.CodeInvalidContent, "tags must be a JSON object of strings").WithTarget("tags")
	if change == nil {
		return nil, nil
	}
	object, ok := change.(map[string]any)
	if !ok {
		return nil, bad
	}
	if tags == nil {
		tags = map[string]string{}
	}
	for name, v := range object {
		switch v := v.(type) {
		case nil:
			delete(tags, name)
		case string:
			tags[name] = v
		default:
			return nil, bad
		}
	}
	return tags, nil
}

// compose makes the body of a write from the stored row.
type compose func(stored core.Resource, exists bool, tv *manifest.TypeVersion) (wire.Put, error)

// write computes a row from the stored one and commits it, again when the
// stored one changed meanwhile: no update is lost and none is refused for a
// race that the client cannot see. Two first writes are the exception: the
// second must not run on what it has not seen, and is refused (D-17).
func (p *Provider) write(ctx context.Context, req Request, verb core.Verb, compose compose) (Answer, error) {
	id, tv, err := p.resolve(req.ID, req.APIVersion)
	if err != nil {
		return Answer{}, err
	}
	for range maxRetries {
		stored, _, err := p.o.Store.Get(ctx, id)
		exists := err == nil
		if err != nil && !core.IsCode(err, core.CodeNotFound) {
			return Answer{}, err
		}
		if err := req.Preconditions.Check(id, stored.ETag); err != nil {
			return Answer{}, err
		}
		body, err := compose(stored, exists, tv)
		if err != nil {
			return Answer{}, err
		}
		w, err := p.prepare(ctx, id, tv, req, stored, body)
		if err != nil {
			return Answer{}, err
		}
		if !tv.Synchronous() {
			w.Operation = p.operation(id, verb, req.APIVersion, w)
			w.Operation.Parent = req.Parent
			w.Resource.State = core.StateAccepted
		}
		r, err := p.o.Store.Accept(ctx, w)
		if core.IsCode(err, store.Changed) && p.o.Sealer.Renew(ctx, &w.Resource) {
			r, err = p.o.Store.Accept(ctx, w)
		}
		if core.IsCode(err, store.Changed) {
			if !exists && w.Operation != nil {
				if err := req.Preconditions.Check(id, "created meanwhile"); err != nil {
					return Answer{}, err
				}
				return Answer{}, core.Errorf(core.CodeConflict, "The target resource is in progress state: %s. Another request created %s at the same moment; repeat this one if it is still wanted.", core.StateAccepted, id).WithTarget(id.String())
			}
			continue
		}
		if err != nil {
			return Answer{}, err
		}
		a := Answer{ETag: r.ETag}
		if w.Operation != nil {
			a.Operation = w.Operation.ID
		}
		if exists {
			a.Resource, err = p.show(ctx, r, tv)
		} else {
			a.Resource, err = p.showWith(r, tv, nil) // a new one has no outputs
		}
		return a, err
	}
	return Answer{}, core.Errorf(core.CodeConflict, "%s is being changed by others faster than this request could be applied: repeat it", id).WithTarget(id.String())
}

func (p *Provider) operation(id core.ID, verb core.Verb, apiVersion string, w store.Write) *core.Operation {
	return &core.Operation{
		ID: p.o.NewID(), ResourceID: id, Verb: verb, APIVersion: apiVersion, State: core.StateAccepted,
		Group: id.Scope().Key(), Created: w.Now, Deadline: w.Now.Add(p.o.Deadline),
	}
}

// prepare runs a body through defaults, validation, checks and sealing (D-7).
// Nothing is stored before all have passed.
func (p *Provider) prepare(ctx context.Context, id core.ID, tv *manifest.TypeVersion, req Request, stored core.Resource, body wire.Put) (store.Write, error) {
	now := p.o.Now()
	props := body.Properties
	if props == nil {
		props = map[string]any{}
	}
	dropServers(props)
	if tv.Schema != nil {
		storedProps, err := p.plaintext(stored, tv)
		if err != nil {
			return store.Write{}, err
		}
		tv.Schema.DropReadOnly(props, storedProps)
		tv.Schema.ApplyDefaults(props)
		if err := tv.Schema.Validate(props); err != nil {
			return store.Write{}, err
		}
	}
	if err := checkProvisioning(props); err != nil {
		return store.Write{}, err
	}
	edges, err := p.edges(id, props)
	if err != nil {
		return store.Write{}, err
	}
	if more := p.kind(tv).Edges; more != nil {
		edges = append(edges, more(id, props)...)
	}
	owner := stored.Owner
	if body.Owner != nil {
		if owner, err = ownerOf(*body.Owner); err != nil {
			return store.Write{}, err
		}
	}
	subject := Subject{ID: id, Type: tv, Properties: props, Owner: owner, ImplicitParents: body.ImplicitParents, SystemData: req.SystemData}
	place, err := p.o.Members.Place(ctx, subject)
	if err != nil {
		return store.Write{}, err
	}
	if runsRecipe(tv, props) && place.Environment.IsZero() {
		return store.Write{}, core.Errorf(core.CodeInvalidContent, "%s has no environment, so no recipe can be found for it: set properties.environment or properties.application, or properties.resourceProvisioning to %q", id, provisioningManual).WithTarget("properties.environment")
	}
	subject.Place = place
	if check := p.kind(tv).Check; check != nil {
		if err := check(ctx, subject); err != nil {
			return store.Write{}, err
		}
	}
	sealed, err := p.seal(id, tv, props)
	if err != nil {
		return store.Write{}, err
	}
	r := core.Resource{
		ID: id, APIVersion: tv.APIVersion, Location: body.Location, Tags: body.Tags, Properties: sealed,
		Status: stored.Status, Secrets: stored.Secrets, State: core.StateSucceeded,
		Application: place.Application, Environment: place.Environment, Owner: owner,
		Implicit: stored.Implicit, SystemData: systemData(req.SystemData, stored.SystemData),
	}
	if r.Location == "" {
		r.Location = "global"
	}
	r.SystemData.LastModifiedAt = now.UTC()
	if r.SystemData.CreatedAt.IsZero() {
		r.SystemData.CreatedAt = now.UTC()
	}
	if p.o.RecipeMay != nil && runsRecipe(tv, props) {
		if err := p.sealSeed(&r); err != nil {
			return store.Write{}, err
		}
	}
	if p.kind(tv).Renders && runsRecipe(tv, props) {
		if err := p.sealHashKey(&r); err != nil {
			return store.Write{}, err
		}
	}
	p.o.Sealer.Stamp(&r)
	return store.Write{Resource: r, Edges: edges, Parents: place.Parents, Expect: stored.ETag, Replaces: body.Replaces, Now: now}, nil
}

func systemData(given, stored core.SystemData) core.SystemData {
	out := stored
	if stored.CreatedAt.IsZero() {
		out = core.SystemData{CreatedBy: given.CreatedBy, CreatedByType: given.CreatedByType, CreatedAt: given.CreatedAt}
	}
	out.LastModifiedBy, out.LastModifiedByType = given.LastModifiedBy, given.LastModifiedByType
	return out
}

// ownerOf checks an owner that a controller sent: half an owner could never be
// compared.
func ownerOf(o wire.Owner) (core.Owner, error) {
	owner := core.Owner(o)
	if owner.IsZero() {
		return owner, nil
	}
	for name, v := range map[string]string{"cluster": o.Cluster, "namespace": o.Namespace, "kind": o.Kind, "name": o.Name, "uid": o.UID} {
		if v == "" {
			return owner, core.Errorf(core.CodeInvalidContent, "owner.%s is missing: an owner names cluster, namespace, kind, name and uid", name).WithTarget("owner." + name)
		}
	}
	return owner, nil
}

func (p *Provider) kind(tv *manifest.TypeVersion) Kind { return p.o.Kinds[lower(tv.Type)] }

// Delete deletes a resource. ownerUID, when not "", must be its owner's.
func (p *Provider) Delete(ctx context.Context, req Request, ownerUID string) (Answer, error) {
	id, tv, err := p.resolve(req.ID, req.APIVersion)
	if err != nil {
		return Answer{}, err
	}
	r, _, err := p.o.Store.Get(ctx, id)
	if core.IsCode(err, core.CodeNotFound) {
		return Answer{Missing: true}, nil
	}
	if err != nil {
		return Answer{}, err
	}
	if err := req.Preconditions.Check(id, r.ETag); err != nil {
		return Answer{}, err
	}
	d := store.Delete{ID: id, State: core.StateDeleting, Expect: "*", Unused: p.kind(tv).Unused, OwnerUID: ownerUID, Now: p.o.Now()}
	if req.Preconditions.IfMatch != "" && req.Preconditions.IfMatch != "*" {
		d.Expect = r.ETag
	}
	if !tv.Synchronous() {
		d.Operation = p.operation(id, core.VerbDelete, req.APIVersion, store.Write{Now: d.Now})
		d.Operation.Parent = req.Parent
	}
	r, err = p.o.Store.AcceptDelete(ctx, d)
	switch {
	case core.IsCode(err, core.CodeNotFound):
		return Answer{Missing: true}, nil
	case core.IsCode(err, store.Changed):
		return Answer{}, req.Preconditions.Check(id, "changed")
	case err != nil:
		return Answer{}, err
	}
	a := Answer{ETag: r.ETag}
	if d.Operation != nil {
		a.Operation = d.Operation.ID
	}
	return a, nil
}

// clone copies a JSON value deeply.
func clone[T any](v T) T {
	var walk func(any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			out := make(map[string]any, len(v))
			for k, e := range v {
				out[k] = walk(e)
			}
			return out
		case []any:
			out := make([]any, len(v))
			for i, e := range v {
				out[i] = walk(e)
			}
			return out
		default:
			return v
		}
	}
	if out, ok := walk(v).(T); ok {
		return out
	}
	return v
}

// mergePatch applies an RFC 7396 patch to target, which it may change.
func mergePatch(target, patch any) any {
	change, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, ok := target.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for name, v := range change {
		if v == nil {
			delete(object, name)
			continue
		}
		object[name] = mergePatch(object[name], v)
	}
	return object
}
