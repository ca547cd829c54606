package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/store"
)

// A deletion with cascade=true deletes what uses its target and then the target
// (D-6). It is an operation on a row of its own, which only says what is to go:
// it accepts the deletions of all users as its children and parks until they
// have ended, in rounds until there are no users left. The target itself goes by
// an ordinary deletion, whose transaction knows that nobody came meanwhile.

// typeCascade is the type of the rows that cascading deletions run on.
const typeCascade = "System.Resources/deletions"

// maxRounds bounds how often a cascade looks for users again: what is made
// faster than it is deleted ends it.
const maxRounds = 12

// maxWaits bounds how often it waits for deletions, for the same reason: each
// wait takes two fences, and is no attempt.
const maxWaits = 24

// target is what a cascade deletes: a scope or a resource, or a registration.
type target struct {
	ID string `json:"id,omitempty"`
	// Namespace alone is a whole resource provider.
	Namespace string `json:"namespace,omitempty"`
	Type      string `json:"type,omitempty"`
	Version   string `json:"apiVersion,omitempty"`
}

func (t target) String() string {
	switch {
	case t.ID != "":
		return t.ID
	case t.Version != "":
		return "API version " + t.Version + " of type " + t.Namespace + "/" + t.Type
	case t.Type != "":
		return "type " + t.Namespace + "/" + t.Type
	}
	return "resource provider " + t.Namespace
}

// cascades reports whether a DELETE asks for it.
func cascades(r *arm.Request) bool { return strings.EqualFold(r.Query("cascade"), "true") }

// startCascade accepts a cascading deletion and answers how to follow it.
func (s *Server) startCascade(w http.ResponseWriter, r *arm.Request, t target) error {
	raw, err := json.Marshal(t)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(strings.ToLower(t.String())))
	id := localPlane.Resource(typeCascade, hex.EncodeToString(sum[:8]))
	now := s.o.Now()
	op := &core.Operation{
		ID: uuid.NewString(), ResourceID: id, Verb: core.VerbDelete, APIVersion: APIVersion, State: core.StateAccepted,
		Group: localPlane.Key(), Created: now, Deadline: now.Add(s.deadline()),
	}
	_, err = s.o.Store.Accept(r.Context(), store.Write{
		Resource:  core.Resource{ID: id, APIVersion: APIVersion, Location: "global", Properties: raw, State: core.StateAccepted},
		Operation: op, Expect: "*", Now: now,
	})
	if core.IsCode(err, core.CodeConflict) {
		return core.Errorf(core.CodeConflict, "%s is being deleted with all that uses it already: wait for that", t).WithTarget(t.String())
	}
	if err != nil {
		return err
	}
	arm.SetAsync(w, r, id, op.ID)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (s *Server) deadline() time.Duration {
	if s.o.Deadline > 0 {
		return s.o.Deadline
	}
	return dynamic.DefaultDeadline
}

// cascade is the controller of cascading deletions. Each run is one round.
func (s *Server) cascade(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
	var t target
	if err := json.Unmarshal(job.Resource.Properties, &t); err != nil {
		return operation.Outcome{}, core.Errorf(core.CodeInternal, "the deletion %s cannot be read", job.Resource.ID)
	}
	fail := func(err error) (operation.Outcome, error) {
		if ctx.Err() != nil || core.IsCode(err, core.CodeFenced) || core.IsCode(err, core.CodeUnavailable) {
			return operation.Outcome{}, err
		}
		return operation.Outcome{Removed: true, Failure: core.AsError(err)}, nil
	}
	if err := s.childrenFailed(ctx, job.Operation.ID); err != nil {
		return fail(err)
	}
	for range maxRounds {
		users, err := s.users(ctx, t)
		if err != nil {
			return fail(err)
		}
		if len(users) == 0 {
			err := s.deleteTarget(ctx, t)
			if core.IsCode(err, core.CodeConflict) {
				job.Say("something uses " + t.String() + " again: looking once more")
				continue
			}
			if err != nil {
				return fail(err)
			}
			return operation.Outcome{Removed: true}, nil
		}
		if job.Operation.Fence > 2*maxWaits {
			break
		}
		begun, err := s.deleteUsers(ctx, job, users)
		if err != nil {
			return fail(err)
		}
		if begun {
			return operation.Outcome{Park: true}, nil
		}
	}
	return fail(core.Errorf(core.CodeConflict, "%s was not deleted: what uses it is made again as fast as it is deleted. Stop what makes it, and repeat the request", t))
}

// childrenFailed says which deletions of a cascade did not succeed.
func (s *Server) childrenFailed(ctx context.Context, parent string) error {
	var failed store.Dependents
	var faults []core.Error
	q := store.OperationQuery{Parent: parent, Limit: scanPage}
	for {
		page, err := s.o.Store.Operations(ctx, q)
		if err != nil {
			return err
		}
		for _, op := range page.Operations {
			if op.State != core.StateFailed && op.State != core.StateCanceled {
				continue
			}
			if failed.Count++; failed.Count <= shownUsers {
				failed.IDs = append(failed.IDs, op.ResourceID)
				if op.Error != nil {
					faults = append(faults, *op.Error)
				}
			}
		}
		if page.Next == "" {
			break
		}
		q.After = page.Next
	}
	if failed.Count == 0 {
		return nil
	}
	return core.Errorf(core.CodeConflict, "these could not be deleted, and what they use was kept: %s", listed(failed)).WithDetails(faults...)
}

// users are what a target is used by.
func (s *Server) users(ctx context.Context, t target) ([]core.ID, error) {
	var uses []store.Use
	switch {
	case t.ID != "":
		id, err := core.ParseID(t.ID)
		if err != nil {
			return nil, err
		}
		uses = append(uses, store.Use{Of: id})
	case t.Type != "":
		uses = append(uses, store.Use{Type: t.Namespace + "/" + t.Type, APIVersion: t.Version})
	default:
		m, _ := s.types.Manifest(t.Namespace)
		if m == nil {
			return nil, nil
		}
		for name := range m.Types {
			if full := m.Namespace + "/" + name; !s.types.Builtin(full) {
				uses = append(uses, store.Use{Type: full})
			}
		}
	}
	var out []core.ID
	for _, u := range uses {
		d, err := s.o.Store.Dependents(ctx, u)
		if err != nil {
			return nil, err
		}
		out = append(out, d.IDs...)
	}
	return out, nil
}

// deleteUsers begins the deletion of those users that take an operation, and
// says whether there were any. When there are none, the others (applications,
// environments, recipe packs) are deleted, as far as nothing uses them: what
// uses one must have gone before.
func (s *Server) deleteUsers(ctx context.Context, job *operation.Job, users []core.ID) (begun bool, err error) {
	var whole []core.Resource
	for _, id := range users {
		r, live, err := s.o.Store.Get(ctx, id)
		if core.IsCode(err, core.CodeNotFound) {
			continue
		}
		if err != nil {
			return begun, err
		}
		if live != nil {
			if live.Parent == job.Operation.ID {
				begun = true
				continue
			}
			return begun, core.Errorf(core.CodeConflict, "%s is in progress (%s) and cannot be deleted now: repeat the request when operation %s has ended", id, r.State, live.ID).WithTarget(id.String())
		}
		if tv, err := s.types.Lookup(id.Type(), r.APIVersion); err == nil && tv.Synchronous() {
			whole = append(whole, r)
			continue
		}
		job.Say("deleting " + id.String())
		a, err := s.provider.Delete(ctx, dynamic.Request{ID: id, APIVersion: r.APIVersion, Parent: job.Operation.ID}, "")
		if err != nil {
			return begun, err
		}
		begun = begun || a.Operation != ""
	}
	if begun || len(whole) == 0 {
		return begun, nil
	}
	// A user of a user goes first; each pass deletes at least one, or all are held.
	for len(whole) > 0 {
		var kept []core.Resource
		var held error
		for _, r := range whole {
			_, err := s.provider.Delete(ctx, dynamic.Request{ID: r.ID, APIVersion: r.APIVersion}, "")
			switch {
			case core.IsCode(err, core.CodeConflict):
				kept, held = append(kept, r), err
			case err != nil:
				return false, err
			default:
				job.Say("deleted " + r.ID.String())
			}
		}
		if len(kept) == len(whole) {
			return false, held
		}
		whole = kept
	}
	return false, nil
}

// deleteTarget deletes what nothing uses any more. Conflict when something does
// after all.
func (s *Server) deleteTarget(ctx context.Context, t target) error {
	if t.ID == "" {
		return s.removeRegistration(ctx, t)
	}
	id, err := core.ParseID(t.ID)
	if err != nil {
		return err
	}
	_, err = s.o.Store.AcceptDelete(ctx, store.Delete{ID: id, Expect: "*", Unused: true, Now: s.o.Now()})
	if core.IsCode(err, core.CodeNotFound) {
		return nil // it was made implicitly and went with its last member
	}
	return err
}

// removeRegistration takes a namespace, a type or an API version out of its
// manifest.
func (s *Server) removeRegistration(ctx context.Context, t target) error {
	return s.edit(ctx, t.Namespace, false, func(m *manifest.Manifest) (*manifest.Manifest, error) {
		if m == nil || t.Type == "" {
			return nil, nil
		}
		name, typ, err := findType(m, t.Type)
		if err != nil {
			return m, nil
		}
		if t.Version == "" {
			delete(m.Types, name)
			return m, nil
		}
		if v, _, err := findVersion(m, name, typ, t.Version); err == nil {
			delete(typ.APIVersions, v)
			if typ.DefaultAPIVersion == v {
				typ.DefaultAPIVersion = ""
			}
		}
		return m, nil
	})
}
