package dynamic

import (
	"context"
	"encoding/json"
	"maps"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/manifest"
)

// Access is what an operation wants of a resource.
type Access string

// The accesses.
const (
	AccessRead    Access = "read"
	AccessSecrets Access = "listSecrets"
	AccessWrite   Access = "write"
	AccessDelete  Access = "delete"
)

// APIOptions say for which operation, and as whom, an [API] reads and writes.
type APIOptions struct {
	// Operation is the running operation: what is written asynchronously becomes
	// its child (D-45).
	Operation string
	// SystemData is of whoever asked for the operation.
	SystemData core.SystemData
	// Owner, when not zero, is the resource that writes are made for: they carry
	// its mark (the tag [OwnerTag]), and what exists without it is not taken over
	// and not deleted.
	Owner core.ID
	// Allow is asked before every access, with the properties of a write.
	Allow func(ctx context.Context, a Access, id core.ID, properties map[string]any) error
	// Ended signals the end of an operation ([feed.Broker.Operation]).
	Ended func(operation string) (ended <-chan struct{}, stop func())
	// Special answers for types that have a room of their own; done is false for
	// others. action is "" for a read.
	Special func(ctx context.Context, id core.ID, apiVersion, action string, args map[string]any) (answer any, done bool, err error)
}

// OwnerTag is the tag that says what resource another was made for.
const OwnerTag = radapp.AnnotationOwner

// API is the control plane's resources for a running operation. Writes go the
// way of the wire's: defaults, validation, sealing, one transaction.
type API struct {
	p *Provider
	o APIOptions
}

var _ extension.ResourceAPI = (*API)(nil)

// API returns the resources as an operation reads and writes them.
func (p *Provider) API(o APIOptions) *API { return &API{p, o} }

// version is the API version to ask by: the type's default where none is named.
func (a *API) version(id core.ID, v string) (string, error) {
	if v != "" {
		return v, nil
	}
	tv, err := a.p.o.Types.Default(id.Type())
	if err != nil {
		return "", err
	}
	return tv.APIVersion, nil
}

// Get implements [extension.ResourceAPI].
func (a *API) Get(ctx context.Context, id core.ID, apiVersion string) (map[string]any, error) {
	id = a.p.present(id)
	if err := a.o.Allow(ctx, AccessRead, id, nil); err != nil {
		return nil, err
	}
	if id.IsScope() {
		r, _, err := a.p.o.Store.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		return map[string]any{"id": r.ID.String(), "name": r.ID.Name(), "location": r.Location, "tags": r.Tags, "properties": map[string]any{}}, nil
	}
	if a.o.Special != nil {
		if answer, done, err := a.o.Special(ctx, id, apiVersion, "", nil); done || err != nil {
			object, _ := answer.(map[string]any)
			return object, err
		}
	}
	apiVersion, err := a.version(id, apiVersion)
	if err != nil {
		return nil, err
	}
	answer, err := a.p.Get(ctx, Request{ID: id, APIVersion: apiVersion})
	if err != nil {
		return nil, err
	}
	return shownAs(answer.Resource)
}

// shownAs is a resource on the wire as a JSON object.
func shownAs(r wire.Resource) (map[string]any, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	object := map[string]any{}
	if err := arm.Decode(raw, &object); err != nil {
		return nil, err
	}
	return plain(object).(map[string]any), nil
}

// putOf is a body as the wire's PUT reads it. A body of an operation never speaks
// for an object of a cluster.
func putOf(id core.ID, body map[string]any) (wire.Put, error) {
	body = maps.Clone(body)
	for _, name := range []string{"owner", "implicitParents", "replaces", "id", "name", "type", "systemData"} {
		delete(body, name)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return wire.Put{}, core.Errorf(core.CodeInvalidContent, "the body of %s is not JSON: %w", id, err)
	}
	var put wire.Put
	if err := arm.Decode(raw, &put); err != nil {
		return put, err
	}
	if put.Properties == nil {
		put.Properties = map[string]any{}
	}
	return put, nil
}

// Preview implements [extension.ResourceAPI]. What the resource belongs to need
// not exist yet: the same template may make it.
func (a *API) Preview(ctx context.Context, id core.ID, apiVersion string, body map[string]any) (map[string]any, error) {
	apiVersion, err := a.version(id, apiVersion)
	if err != nil {
		return nil, err
	}
	id, tv, err := a.p.resolve(id, apiVersion)
	if err != nil {
		return nil, err
	}
	put, err := putOf(id, body)
	if err != nil {
		return nil, err
	}
	if err := a.o.Allow(ctx, AccessWrite, id, put.Properties); err != nil {
		return nil, err
	}
	stored, _, err := a.p.o.Store.Get(ctx, id)
	if err != nil && !core.IsCode(err, core.CodeNotFound) {
		return nil, err
	}
	w, err := a.p.prepare(ctx, id, tv, Request{ID: id, APIVersion: apiVersion}, stored, put)
	if core.IsCode(err, core.CodeNotFound) {
		return a.previewAlone(id, tv, stored, put)
	}
	if err != nil {
		return nil, err
	}
	r, err := a.p.showWith(w.Resource, tv, nil)
	if err != nil {
		return nil, err
	}
	return shownAs(r)
}

// previewAlone is the preview of a resource that belongs to what is not there
// yet: checked by its schema alone.
func (a *API) previewAlone(id core.ID, tv *manifest.TypeVersion, stored core.Resource, put wire.Put) (map[string]any, error) {
	props := clone(put.Properties)
	dropServers(props)
	if tv.Schema != nil {
		old, err := a.p.plaintext(stored, tv)
		if err != nil {
			return nil, err
		}
		tv.Schema.DropReadOnly(props, old)
		tv.Schema.ApplyDefaults(props)
		if err := tv.Schema.Validate(props); err != nil {
			return nil, err
		}
	}
	raw, err := encode(props)
	if err != nil {
		return nil, err
	}
	location := put.Location
	if location == "" {
		location = "global"
	}
	r, err := a.p.showWith(core.Resource{ID: id, APIVersion: tv.APIVersion, Location: location, Tags: put.Tags, Properties: raw, State: core.StateSucceeded}, tv, nil)
	if err != nil {
		return nil, err
	}
	return shownAs(r)
}

// Put implements [extension.ResourceAPI].
func (a *API) Put(ctx context.Context, id core.ID, apiVersion string, body map[string]any, patch bool) (map[string]any, string, error) {
	apiVersion, err := a.version(id, apiVersion)
	if err != nil {
		return nil, "", err
	}
	put, err := putOf(id, body)
	if err != nil {
		return nil, "", err
	}
	if err := a.o.Allow(ctx, AccessWrite, a.p.present(id), put.Properties); err != nil {
		return nil, "", err
	}
	if !a.o.Owner.IsZero() {
		if mine, err := a.mine(ctx, id, true); err != nil || !mine {
			return nil, "", err
		}
		put.Tags = maps.Clone(put.Tags)
		if put.Tags == nil {
			put.Tags = map[string]string{}
		}
		put.Tags[OwnerTag] = a.o.Owner.String()
	}
	req := Request{ID: id, APIVersion: apiVersion, SystemData: a.o.SystemData, Parent: a.o.Operation}
	var answer Answer
	if patch {
		change := map[string]any{"properties": put.Properties}
		if put.Tags != nil {
			tags := map[string]any{}
			for k, v := range put.Tags {
				tags[k] = v
			}
			change["tags"] = tags
		}
		answer, err = a.p.Patch(ctx, req, change)
	} else {
		answer, err = a.p.Put(ctx, req, put)
	}
	if core.IsCode(err, core.CodeConflict) {
		if operation, ours := a.ours(ctx, id, core.VerbPut, core.VerbPatch); ours {
			return nil, operation, nil
		}
	}
	if err != nil {
		return nil, "", err
	}
	object, err := shownAs(answer.Resource)
	return object, answer.Operation, err
}

// ours finds the write of a resource that an earlier attempt of this operation
// began, and had no time to record.
func (a *API) ours(ctx context.Context, id core.ID, verbs ...core.Verb) (operation string, ok bool) {
	_, live, err := a.p.o.Store.Get(ctx, a.p.present(id))
	if err != nil || live == nil || a.o.Operation == "" || live.Parent != a.o.Operation {
		return "", false
	}
	for _, v := range verbs {
		if live.Verb == v {
			return live.ID, true
		}
	}
	return "", false
}

// mine reports whether a resource is this owner's to write or delete: one that
// does not exist is. With must, another's is an error.
func (a *API) mine(ctx context.Context, id core.ID, must bool) (bool, error) {
	r, _, err := a.p.o.Store.Get(ctx, a.p.present(id))
	if core.IsCode(err, core.CodeNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	mark := r.Tags[OwnerTag]
	if lower(mark) == a.o.Owner.Key() {
		return true, nil
	}
	if !must {
		return false, nil
	}
	if mark != "" {
		return false, core.Errorf(core.CodeConflict, "%s belongs to %s: give one of the two another name", r.ID, mark).WithTarget(r.ID.String())
	}
	return false, core.Errorf(core.CodeConflict, "%s exists and was not made for %s: rename or delete it, it is not taken over", r.ID, a.o.Owner).WithTarget(r.ID.String())
}

// Delete implements [extension.ResourceAPI].
func (a *API) Delete(ctx context.Context, id core.ID, apiVersion string) (string, error) {
	apiVersion, err := a.version(id, apiVersion)
	if err != nil {
		return "", err
	}
	if err := a.o.Allow(ctx, AccessDelete, a.p.present(id), nil); err != nil {
		return "", err
	}
	if !a.o.Owner.IsZero() {
		if mine, err := a.mine(ctx, id, false); err != nil || !mine {
			return "", err // another's has its name now: ours is gone
		}
	}
	answer, err := a.p.Delete(ctx, Request{ID: id, APIVersion: apiVersion, SystemData: a.o.SystemData, Parent: a.o.Operation}, "")
	if core.IsCode(err, core.CodeConflict) {
		if operation, ours := a.ours(ctx, id, core.VerbDelete); ours {
			return operation, nil
		}
	}
	return answer.Operation, err
}

// Operation implements [extension.ResourceAPI].
func (a *API) Operation(ctx context.Context, operation string) (core.Operation, error) {
	return a.p.o.Store.Operation(ctx, operation)
}

// Await implements [extension.ResourceAPI].
func (a *API) Await(ctx context.Context, operation string) (core.Operation, error) {
	for {
		// Registered before each look: no end between the two is missed.
		ended, stop := a.o.Ended(operation)
		op, err := a.p.o.Store.Operation(ctx, operation)
		if err != nil || op.State.Terminal() {
			stop()
			return op, err
		}
		select {
		case <-ended:
			stop()
		case <-ctx.Done():
			stop()
			return op, context.Cause(ctx)
		}
	}
}

// Ask implements [extension.ResourceAPI].
func (a *API) Ask(ctx context.Context, id core.ID, apiVersion, action string, args map[string]any) (any, error) {
	id = a.p.present(id)
	if err := a.o.Allow(ctx, AccessSecrets, id, nil); err != nil {
		return nil, err
	}
	if a.o.Special != nil {
		if answer, done, err := a.o.Special(ctx, id, apiVersion, action, args); done || err != nil {
			conceal.Add(ctx, answer)
			return answer, err
		}
	}
	if lower(action) != "listsecrets" {
		return nil, core.Errorf(core.CodeNotFound, "%s has no action %q: resources of the control plane know listSecrets", id, action).WithTarget(id.String())
	}
	apiVersion, err := a.version(id, apiVersion)
	if err != nil {
		return nil, err
	}
	secrets, err := a.p.Secrets(ctx, Request{ID: id, APIVersion: apiVersion})
	if err != nil {
		return nil, err
	}
	secrets, _ = plain(secrets).(map[string]any)
	conceal.Add(ctx, secrets)
	return secrets, nil
}
