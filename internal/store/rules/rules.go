// Package rules holds what every implementation of the store decides by the same
// rules and says in the same words: given what stands in the database, may a
// write pass, and what becomes of the row. It is pure; the transaction around it
// is the implementation's.
package rules

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// ShownUsers is how many users a refused deletion names.
const ShownUsers = 10

// Standing is what the checks of a write need of the row that stands.
type Standing struct {
	Exists bool
	ID     core.ID
	ETag   string
	State  core.State
	Owner  core.Owner
	// Application is a key, "" for none.
	Application string
	System      core.SystemData
	// Live says that an operation lives on it.
	Live bool
	// Oldest is the oldest version of the data keyset in use, 0 for none; Open
	// says that the version of the new row is in use.
	Oldest int64
	Open   bool
	// Known are those of the keys asked for that have a row.
	Known []string
}

// Check is the part of the checks that updates and deletes share, in order.
func (c Standing) Check(id core.ID, expect string) error {
	if expect != "*" && expect != c.ETag {
		return ChangedError(id)
	}
	if c.Live {
		return core.Errorf(core.CodeConflict, "The target resource is in progress state: %s.", c.State).WithTarget(id.String())
	}
	return nil
}

// CheckDelete is all checks of a delete but those of its users.
func (c Standing) CheckDelete(d store.Delete) error {
	if !c.Exists {
		return NotFound(d.ID)
	}
	if err := c.Check(c.ID, d.Expect); err != nil {
		return err
	}
	if d.OwnerUID != "" && d.OwnerUID != c.Owner.UID {
		return c.ownerConflict(c.ID)
	}
	return nil
}

// ownerConflict says that an object of a cluster has the resource already.
func (c Standing) ownerConflict(id core.ID) error {
	e := core.Errorf(core.CodeNameConflict, "%s belongs to %s %s/%s of cluster %s: rename the new object, or remove that one",
		id, c.Owner.Kind, c.Owner.Namespace, c.Owner.Name, c.Owner.Cluster)
	if c.Owner.IsZero() {
		e = core.Errorf(core.CodeNameConflict, "%s was made through the API and stands for no object of a cluster: rename the object, or delete that resource", id)
	}
	e = e.WithTarget(id.String())
	e.Info = []core.ErrorInfo{{Type: "owner", Info: c.Owner}}
	return e
}

// sameOwner compares by uid, which only its cluster vouches for.
func sameOwner(a, b core.Owner) bool {
	return a == b || a.UID != "" && a.UID == b.UID && strings.EqualFold(a.Cluster, b.Cluster)
}

// Asked are the keys of which a write must know whether they have rows.
func Asked(w store.Write) []string {
	var asked []string
	for _, id := range append([]core.ID{w.Resource.ID}, ids(w.Parents)...) {
		if scope := ParentScope(id); !scope.IsZero() {
			asked = append(asked, scope.Key())
		}
		asked = append(asked, id.Key())
	}
	slices.Sort(asked)
	return slices.Compact(asked)
}

func ids(rs []core.Resource) []core.ID {
	out := make([]core.ID, len(rs))
	for i, r := range rs {
		out[i] = r.ID
	}
	return out
}

// Compose runs the checks of a write and returns the row to be stored, without
// its entity tag, and the parents to be made before it.
func (c Standing) Compose(w store.Write) (core.Resource, []core.Resource, error) {
	r := w.Resource
	missing, err := missingParents(r.ID, w.Parents, c.Known)
	if err != nil {
		return r, nil, err
	}
	if err := c.Check(r.ID, w.Expect); err != nil {
		return r, nil, err
	}
	if c.Exists && !r.Owner.IsZero() && !sameOwner(c.Owner, r.Owner) && (w.Replaces == "" || w.Replaces != c.Owner.UID) {
		return r, nil, c.ownerConflict(c.ID)
	}
	if r.Keyset, err = SealedWith(r, c.Oldest, c.Open); err != nil {
		return r, nil, err
	}
	r.Implicit = false
	if c.Exists {
		r.ID = c.ID
		r.SystemData.CreatedAt, r.SystemData.CreatedBy, r.SystemData.CreatedByType = c.System.CreatedAt, c.System.CreatedBy, c.System.CreatedByType
		if r.Owner.IsZero() {
			r.Owner = c.Owner
		}
	}
	return r, missing, nil
}

// Moved reports whether the row leaves an application, which may have held
// nothing else.
func (c Standing) Moved(r core.Resource) bool {
	return c.Application != "" && c.Application != r.Application.Key()
}

// missingParents returns those of parents that have no row, and NotFound when
// the scope of id, or of one to be made, neither has nor gets one.
func missingParents(id core.ID, parents []core.Resource, known []string) ([]core.Resource, error) {
	known = slices.Clone(known)
	var missing []core.Resource
	for _, p := range parents {
		if slices.Contains(known, p.ID.Key()) {
			continue
		}
		if err := inScope(p.ID, known); err != nil {
			return nil, err
		}
		known = append(known, p.ID.Key())
		missing = append(missing, p)
	}
	return missing, inScope(id, known)
}

func inScope(id core.ID, known []string) error {
	scope := ParentScope(id)
	if scope.IsZero() || slices.Contains(known, scope.Key()) {
		return nil
	}
	what := "plane"
	if len(scope.Scopes) > 0 {
		what = "resource group"
	}
	return core.Errorf(core.CodeNotFound, "the %s %s does not exist: create it first", what, scope).WithTarget(scope.String())
}

// ParentScope is the scope whose row must be there before a row of id: its
// group or plane; the zero ID for a plane.
func ParentScope(id core.ID) core.ID {
	if id.Provider != "" {
		return id.Scope()
	}
	if n := len(id.Scopes); n > 0 {
		return core.ID{Plane: id.Plane, Scopes: id.Scopes[:n-1]}
	}
	return core.ID{}
}

// Below are the bounds, exclusive, of the keys below a scope: "0" is the
// character after "/". No pattern is matched, so a name may hold any character.
func Below(scopeKey string) (from, to string) { return scopeKey + "/", scopeKey + "0" }

// Fenced is the error for a worker that lost its operation, whose fence stands
// at newest; ended says that it has ended.
func Fenced(op string, fence, newest int64, ended bool) *core.Error {
	if ended {
		return core.Errorf(core.CodeFenced, "operation %s has ended: the work of fence %d no longer counts", op, fence).WithTarget(op)
	}
	return core.Errorf(core.CodeFenced, "operation %s is under fence %d now: the work of fence %d no longer counts", op, newest, fence).WithTarget(op)
}

// WithoutInputs are a resource's secrets when its operation has ended.
func WithoutInputs(secrets map[string]json.RawMessage) map[string]json.RawMessage {
	if _, ok := secrets[store.InputsSecret]; !ok {
		return secrets
	}
	kept := maps.Clone(secrets)
	delete(kept, store.InputsSecret)
	return kept
}
