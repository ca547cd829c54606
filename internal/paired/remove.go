package paired

import (
	"context"

	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
)

// Clean takes one step of deleting what the object was paired with before.
// Call it after an Apply that answered Cleaning, once those who use the
// resource know of the new one.
func (r *Runner) Clean(ctx context.Context, ownerUID string, m *Memory) (Outcome, error) {
	if running, err := r.poll(ctx, m, ""); running || err != nil {
		return Outcome{State: InProgress}, err
	}
	return r.drop(ctx, m.Previous, ownerUID, m)
}

// Remove takes one step of deleting the paired resource and everything the
// object was paired with before; the outcome is Done when all is gone. id is
// the deterministic id, asked even when the memory is empty, and zero where
// none can be told. What another owner has is left alone.
//
// An outcome InProgress whose memory has a DELETE operation was accepted by
// the control plane: it will happen whatever becomes of the object.
func (r *Runner) Remove(ctx context.Context, id core.ID, apiVersion, ownerUID string, m *Memory) (Outcome, error) {
	if running, err := r.poll(ctx, m, ""); running || err != nil {
		return Outcome{State: InProgress}, err
	}
	if m.APIVersion == "" {
		m.APIVersion = apiVersion
	}
	targets := append([]Former(nil), m.Previous...)
	if m.Resource != "" {
		targets = append(without(targets, m.Resource), Former{m.Resource, m.APIVersion})
	}
	if !id.IsZero() {
		targets = append(without(targets, id.String()), Former{id.String(), apiVersion})
	}
	return r.drop(ctx, targets, ownerUID, m)
}

// drop deletes targets in turn; an asynchronous one ends the step.
func (r *Runner) drop(ctx context.Context, targets []Former, ownerUID string, m *Memory) (Outcome, error) {
	for _, t := range targets {
		target := t.ID
		hash := hashJSON([]string{DELETE, target})
		if f := m.Failure; f != nil && f.Hash == hash && r.now().Before(f.RetryAt) {
			return r.held(m, nil), nil
		}
		id, err := core.ParseID(target)
		if err != nil || !id.IsResource() {
			m.forget(target) // a forged or broken memory names nothing
			continue
		}
		a, err := r.delete(ctx, id, t.APIVersion, ownerUID)
		switch core.CodeOf(err) {
		case "":
		case core.CodeNotFound, core.CodeNameConflict, core.CodeInvalidResourceType:
			// Gone with its group or its type, or another object's: nothing of
			// ours is left there.
			m.forget(target)
			continue
		case core.CodeConflict:
			return Outcome{State: InProgress, RetryAfter: conflictRetry}, nil
		case core.CodeUnavailable, core.CodeUnauthorized:
			return Outcome{}, err
		default:
			if ctx.Err() != nil {
				return Outcome{}, err
			}
			return r.fail(m, hash, "", err), nil
		}
		if a.Token != "" {
			m.Operation = &Operation{ResumeToken: a.Token, OperationKind: DELETE, Hash: hash, Target: target, Started: r.now()}
			return Outcome{State: InProgress}, nil
		}
		m.forget(target)
	}
	m.Failure = nil
	return Outcome{State: Done}, nil
}

// delete asks for a deletion, in the version that the type has today where it
// has lost the one that is remembered: the id names the resource in any.
func (r *Runner) delete(ctx context.Context, id core.ID, apiVersion, ownerUID string) (*client.Answer, error) {
	a, err := r.API.Delete(ctx, id, apiVersion, ownerUID)
	types, ok := r.API.(interface {
		Type(ctx context.Context, resourceType string) (client.Type, error)
	})
	if !ok || !core.IsCode(err, core.CodeInvalidAPIVersion) {
		return a, err
	}
	now, terr := types.Type(ctx, id.Type())
	if terr != nil || now.APIVersion == apiVersion {
		return a, err
	}
	return r.API.Delete(ctx, id, now.APIVersion, ownerUID)
}

// forget drops an id that needs no deletion any more.
func (m *Memory) forget(target string) {
	m.Previous = without(m.Previous, target)
	if m.Resource == target {
		m.Resource = ""
	}
}
