package contract

import (
	"context"

	sdk "github.com/radial-project/radial/extensionsdk"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// Delete implements extension.Target.
//
// The place is judged twice (S-32): here, by a get before the deletion unless
// the place is known already, and by the extension, which is told the mark of
// the place that is meant. A reference without UID was planned by a run that did
// not live to record whether it was made. Extensions keep no stamp of who made
// what, so a resource of that name is left alone and named in an error; that
// there is none is the end that was asked for.
func (t *Target) Delete(ctx context.Context, ref extension.Ref) error {
	defer t.guard(ctx)()
	about := call{does: "delete", typ: ref.Type, identifiers: ref.Identifiers}
	if unnamed(ref) && ref.UID == "" && !ref.Unverified {
		return nil // planned, and refused or never asked for: nothing was told
	}
	r, err := t.reference(ref)
	if err != nil {
		return err
	}
	made := ref.UID != "" || ref.Unverified
	if place, _ := t.ConfigID(ctx); place == "" || !made {
		found, err := t.carrier.Get(ctx, r)
		switch {
		case notFound(err):
			if !made {
				return nil
			}
			// Gone, or in another place: the extension judges, by the mark.
		case err != nil:
			return t.fault(ctx, err, about)
		default:
			if _, err := t.state(ctx, found, ref.Type, ref.APIVersion); err != nil {
				return err
			}
		}
	}
	place, _ := t.ConfigID(ctx)
	if ref.ConfigID != "" && place != "" && ref.ConfigID != place {
		return core.Errorf(extension.CodeWrongTarget, "%s is in the place %q, and the configuration of %s leads to %q now: "+
			"nothing was deleted; deploy with the configuration of then, or forget the resource", t.name(about), ref.ConfigID, t, place).WithTarget(ref.ID.String())
	}
	if !made {
		return core.Errorf(core.CodeConflict, "%s exists, and whether it was made by a deployment that was interrupted is not known: %s keeps no owner. "+
			"Nothing was deleted: deploy it again and then delete it, or delete it by hand", t.name(about), t).WithTarget(ref.ID.String())
	}
	if r.ConfigID = ref.ConfigID; r.ConfigID == "" {
		r.ConfigID = place // the contract wants one where there is a configuration
	}
	answer, err := t.carrier.Delete(ctx, r)
	switch {
	case notFound(err):
		return nil
	case err != nil:
		return t.fault(ctx, err, about)
	case answer.Operation != nil:
		_, err := t.operation(ctx, *answer.Operation, about)
		return err
	case answer.Resource == nil:
		return nil
	}
	return t.gone(ctx, *answer.Resource, ref, about)
}

// gone waits for the end of a resource that is being deleted: an answer that it
// is not there.
func (t *Target) gone(ctx context.Context, r sdk.Resource, ref extension.Ref, about call) error {
	var l looks
	for !terminal(r.Status) {
		if err := t.o.Sleep(ctx, l.pause(r.RetryAfterSeconds, 0)); err != nil {
			return t.fault(ctx, err, about)
		}
		next, err := t.look(ctx, ref)
		switch {
		case notFound(err):
			return nil
		case err != nil && l.failed(ctx):
			continue
		case err != nil:
			return t.fault(ctx, err, about)
		}
		l.lost, r = 0, next
		if r.Status == "" || r.Status == sdk.Succeeded {
			return core.Errorf(extension.CodeRefused, "%s stands again after %s began to delete it: someone made it anew, or the deletion was given up", t.name(about), t).WithTarget(ref.ID.String())
		}
	}
	if r.Status == sdk.Failed || r.Status == sdk.Canceled {
		return t.ended(ctx, r.Status, r.Error, ref, about)
	}
	return nil
}
