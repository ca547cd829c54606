package adopt

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
)

// unreachable is how long a deletion waits for a server that does not answer, or
// refuses it, before a tombstone takes its place (K-29).
const unreachable = 10 * time.Second

// letGo ends the pairing of a Deployment that is being deleted. Its finalizer
// goes as soon as the control plane has accepted the deletion.
func (r *Reconciler) letGo(ctx context.Context, d *appsv1.Deployment, s *session, in Intent) (time.Duration, error) {
	i := slices.Index(d.Finalizers, Finalizer)
	if i < 0 {
		return 0, nil // the API server's to end
	}
	wait, left, err := r.unpair(ctx, d, s, in, d.DeletionTimestamp.Time)
	if err != nil || !left {
		return wait, err
	}
	path := "/metadata/finalizers/" + itoa(i)
	_, err = r.patch(ctx, d, types.JSONPatchType, marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": string(d.UID)},
		{"op": "test", "path": path, "value": Finalizer},
		{"op": "remove", "path": path},
	}))
	return 0, err
}

// unpair asks for the deletion of the container resource and answers whether
// the object may go on without it: deleted, accepted, or remembered in a
// tombstone. since is when the deletion was first wanted.
func (r *Reconciler) unpair(ctx context.Context, d *appsv1.Deployment, s *session, in Intent, since time.Time) (time.Duration, bool, error) {
	ref := r.reference(d, in)
	r.track(client.ObjectKeyFromObject(d), s, ref, nil)
	var id core.ID
	if group, err := ref.Scope(); err == nil {
		id = containerID(group, d.Name)
	}
	out, err := r.Runner.Remove(ctx, id, containerVersion, string(d.UID), &s.mem)
	r.track(client.ObjectKeyFromObject(d), s, ref, nil)
	switch {
	case err != nil:
		return r.postpone(ctx, d, s, id, since, r.backoff(s), "the Radial server cannot be reached; its container resource will be deleted when it is back")
	case out.State == paired.Done, s.mem.Operation != nil && s.mem.Operation.OperationKind == paired.DELETE:
		s.down, s.attempts = time.Time{}, 0
		// Accepted; what else it was paired with follows without the object.
		return 0, true, r.bury(ctx, d, remaining(s.mem, id))
	case out.State == paired.Failed:
		r.tell(d, s, Status{Phrase: PhraseFailed, Conditions: []metav1.Condition{{
			Type: ConditionReady, Status: metav1.ConditionFalse, Reason: ReasonContainerFailed, Message: shorten(out.Err.Message)}}})
		return r.postpone(ctx, d, s, id, since, out.RetryAfter, "the Radial server refuses to delete its container resource; that is tried again without it")
	}
	return out.RetryAfter, false, nil
}

// postpone lets a deletion that is not accepted wait until its time is over, and
// then leaves it to a tombstone: nothing that holds the server up holds the
// object, or its namespace, for longer.
func (r *Reconciler) postpone(ctx context.Context, d *appsv1.Deployment, s *session, id core.ID, since time.Time, pause time.Duration, why string) (time.Duration, bool, error) {
	if left := unreachable - r.now().Sub(since); left > 0 {
		return min(pause, left), false, nil
	}
	if err := r.bury(ctx, d, pairs(s.mem, id)); err != nil {
		return 0, false, err
	}
	r.eventf(d, corev1.EventTypeWarning, ReasonTombstone, "%s", why)
	return 0, true, nil
}

// remaining are the ids that are still to be deleted when one deletion is accepted.
func remaining(m paired.Memory, id core.ID) []core.ID {
	if m.Operation == nil {
		return nil
	}
	var ids []core.ID
	for _, left := range pairs(m, id) {
		if target, err := core.ParseID(m.Operation.Target); err == nil && target.Equal(left) {
			continue
		}
		ids = append(ids, left)
	}
	return ids
}

// pairs are the distinct ids that an object is or was paired with.
func pairs(m paired.Memory, id core.ID) []core.ID {
	texts := []string{id.String(), m.Resource}
	for _, f := range m.Previous {
		texts = append(texts, f.ID)
	}
	var ids []core.ID
	for _, text := range texts {
		if p, err := core.ParseID(text); err == nil && p.IsResource() && !slices.ContainsFunc(ids, p.Equal) {
			ids = append(ids, p)
		}
	}
	return ids
}

// handBack undoes an adoption whose annotations are gone (K-7): container
// resource, injected data, finalizer and status go; a hold ends. The rest is
// as its user wrote it.
func (r *Reconciler) handBack(ctx context.Context, d *appsv1.Deployment, s *session, in Intent) (time.Duration, error) {
	status := ParseStatus(d)
	// A replace with a file that knows nothing of us takes finalizer and status
	// off, too; what is left of us, here or on the object, says that there was
	// an adoption. Removing what another owner has is refused, so asking once
	// more is safe.
	_, marked := d.Annotations[AnnotationHeld]
	if slices.Contains(d.Finalizers, Finalizer) || status.Container != "" || s.mem.Resource != "" || s.mem.Operation != nil ||
		marked || d.Spec.Template.Annotations[AnnotationHash] != "" {
		if s.unready.IsZero() {
			s.unready = r.now()
		}
		wait, left, err := r.unpair(ctx, d, s, in, s.unready)
		if err != nil || !left {
			return wait, err
		}
		s.mem = paired.Memory{}
	}
	live := new(appsv1.Deployment) // managedFields are not in the cache
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(d), live); err != nil {
		return 0, err
	}
	if live.UID != d.UID || live.DeletionTimestamp != nil || ours(d) && ObservedHash(live) != ObservedHash(d) || ParseIntent(live.Annotations).Adopted {
		return stale, nil
	}
	var after Status
	text := ""
	if len(in.Faults) > 0 { // not adopted, but somebody meant to speak to us
		var rep report
		for _, f := range in.Faults {
			rep.warn(ConditionAnnotation, f.Message)
		}
		rep.fail(ConditionAnnotation, rep.warnings[0].Message, false)
		rep.warnings = nil
		after = rep.status(status, live, &session{}, false, r.now())
		text = after.Text()
	}
	before := secretsOf(d.Name, &live.Spec.Template)
	settled := live.Spec.Paused || live.Status.ObservedGeneration == live.Generation
	if ops := farewell(live, text); ops != nil {
		r.note(s, text)
		var err error
		if live, err = r.patch(ctx, live, types.JSONPatchType, marshal(ops)); err != nil {
			return 0, err
		}
	}
	s.unready = time.Time{}
	r.tell(d, s, after)
	if len(before) > 0 {
		if all, err := r.retire(ctx, live, settled, before); err != nil || !all {
			return again, err
		}
	}
	if len(in.Faults) == 0 {
		r.forget(client.ObjectKeyFromObject(d))
	}
	return 0, nil
}
