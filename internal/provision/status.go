package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
)

// stalled ends a pass until the Recipe, or something that concerns it, is
// changed: time alone does not help.
type stalled struct{ reason, message string }

func (e *stalled) Error() string { return e.reason + ": " + e.message }

// waiting ends a pass while something is under way. The change stream wakes;
// after, when not 0, is a retry by time.
type waiting struct {
	reason, message string
	after           time.Duration
	// fault says that it waits after a failure, not for an operation.
	fault bool
}

func (e *waiting) Error() string { return e.reason + ": " + e.message }

// conditions turns the end of a pass into the conditions of kstatus: Ready
// always; Reconciling and Stalled only while true.
func (p *pass) conditions(err error) {
	s := &p.recipe.Status
	gen := p.recipe.Generation
	set := func(kind string, on bool, reason, message string) {
		status := metav1.ConditionTrue
		if !on {
			status = metav1.ConditionFalse
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
			ObservedGeneration: gen, LastTransitionTime: metav1.NewTime(p.r.Now())})
	}
	unset := func(kind string) { meta.RemoveStatusCondition(&s.Conditions, kind) }
	s.ObservedGeneration = gen

	var block *stalled
	var wait *waiting
	switch {
	case err == nil:
		set(radapp.ConditionReady, true, radapp.ReasonReady, p.summary())
		unset(radapp.ConditionReconciling)
		unset(radapp.ConditionStalled)
	case errors.As(err, &block):
		set(radapp.ConditionReady, false, block.reason, block.message)
		set(radapp.ConditionStalled, true, block.reason, block.message)
		unset(radapp.ConditionReconciling)
	case errors.As(err, &wait):
		reason, progress := wait.reason, "Progressing"
		if wait.fault {
			progress = "ProgressingWithRetry"
		}
		set(radapp.ConditionReady, false, reason, wait.message)
		set(radapp.ConditionReconciling, true, progress, wait.message)
		unset(radapp.ConditionStalled)
	}
}

func (p *pass) summary() string {
	if name := secretName(p.recipe); name != "" {
		return fmt.Sprintf("%s is provisioned; its values are in Secret %s", p.recipe.Status.Resource, name)
	}
	return fmt.Sprintf("%s is provisioned", p.recipe.Status.Resource)
}

// finish writes the status once and says when to come back.
func (p *pass) finish(ctx context.Context, err error) (reconcile.Result, error) {
	p.forget() // memory into status
	var block *stalled
	var wait *waiting
	var result reconcile.Result
	var retry error
	if !core.IsCode(err, core.CodeUnavailable) && !core.IsCode(err, core.CodeUnauthorized) {
		p.r.unanswered.Delete(p.recipe.UID)
	}
	switch {
	case err == nil:
		result.RequeueAfter = p.again
		p.settled = p.memory.Operation == nil && len(p.memory.Previous) == 0
	case errors.As(err, &block):
	case errors.As(err, &wait):
		result.RequeueAfter = wait.after
	case ctx.Err() != nil:
		return result, nil // stopping
	case core.IsCode(err, core.CodeUnavailable), core.IsCode(err, core.CodeUnauthorized):
		// The Waker logs an outage once, and wakes when it is over; the retry by
		// time is for an outage that does not break the stream.
		result.RequeueAfter = p.r.pause(p.recipe.UID)
		if p.standing() {
			// What was provisioned stands whoever answers: no condition says
			// otherwise for as long as nothing else is asked for.
			return result, nil
		}
		err = &waiting{reason: radapp.ReasonServerUnavailable, message: core.AsError(err).Message, fault: true}
		p.conditions(err)
		return result, p.write(ctx)
	default:
		if apierrors.IsConflict(err) {
			return result, err // a write met another: look again
		}
		retry = err
		err = nil
		if !p.standing() {
			err = &waiting{reason: p.reason(), message: retry.Error(), fault: true}
		}
	}
	p.conditions(err)
	if werr := p.write(ctx); werr != nil {
		return reconcile.Result{}, errors.Join(retry, werr)
	}
	if retry != nil {
		return reconcile.Result{}, retry
	}
	return result, nil
}

func (p *pass) reason() string {
	if !p.recipe.DeletionTimestamp.IsZero() {
		return radapp.ReasonDeletionFailed
	}
	return radapp.ReasonProvisioningFailed
}

// standing reports whether the Recipe was Ready for this very spec.
func (p *pass) standing() bool {
	ready := condition(p.before, radapp.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue && p.before.Status.ObservedGeneration == p.before.Generation &&
		p.recipe.DeletionTimestamp.IsZero()
}

// write applies the status when it differs from what is stored, and tells a
// new cause by one event.
func (p *pass) write(ctx context.Context) error {
	if equality.Semantic.DeepEqual(p.before.Status, p.recipe.Status) {
		return nil
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&p.recipe.Status)
	if err != nil {
		return err
	}
	// Applied whole, by uid: what is not in it any more goes, whatever the
	// cache knew, and an object made anew under the name is not touched.
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": p.recipe.Name, "namespace": p.recipe.Namespace, "uid": string(p.recipe.UID)},
		"status":   status,
	}}
	u.SetGroupVersionKind(radapp.GroupVersion.WithKind(Kind))
	err = p.r.cache.SubResource("status").Apply(ctx, kube.ApplyConfigurationFromUnstructured(u), kube.ForceOwnership, kube.FieldOwner(FieldManager))
	if err != nil {
		return kube.IgnoreNotFound(err)
	}
	p.r.wrote(p.recipe.UID, u.GetResourceVersion())
	p.recipe.ResourceVersion = u.GetResourceVersion()
	was, is := condition(p.before, radapp.ConditionReady), condition(p.recipe, radapp.ConditionReady)
	p.before = p.recipe.DeepCopy()
	if is == nil || was != nil && was.Reason == is.Reason && was.Message == is.Message {
		return nil
	}
	switch is.Reason {
	case radapp.ReasonProvisioning, radapp.ReasonDeleting:
		// A condition says what is; nothing has happened yet that one could act on.
	case radapp.ReasonReady:
		p.r.events.Eventf(p.recipe, nil, corev1.EventTypeNormal, is.Reason, "Provision", "%s", is.Message)
	default:
		p.r.events.Eventf(p.recipe, nil, corev1.EventTypeWarning, is.Reason, "Provision", "%s", truncated(is.Message))
	}
	return nil
}

// truncated fits a message into an event's note (1 kB).
func truncated(s string) string {
	if len(s) <= 1000 {
		return s
	}
	return strings.ToValidUTF8(s[:1000], "") + "…"
}

// remember reads the pairing's memory from the status.
func remember(s *radapp.RecipeStatus) paired.Memory {
	m := paired.Memory{Resource: s.Resource}
	if o := s.Operation; o != nil {
		m.Operation = &paired.Operation{ResumeToken: o.ResumeToken, OperationKind: o.OperationKind, Hash: o.Hash, Target: o.Target, Started: o.Started.Time}
	}
	if p := s.Pairing; p != nil {
		m.Requested, m.APIVersion, m.AppliedHash, m.LiveHash = p.Requested, p.APIVersion, p.AppliedHash, p.LiveHash
		for _, f := range p.Previous {
			m.Previous = append(m.Previous, paired.Former(f))
		}
		if f := p.Failure; f != nil {
			m.Failure = &paired.Failure{Hash: f.Hash, RetryOn: f.RetryOn, Code: core.Code(f.Code), Message: f.Message, Count: f.Count, RetryAt: f.RetryAt.Time}
		}
	}
	return m
}

// forget writes the pairing's memory to the status. Times are cut to the
// seconds that the API stores, so that equal memories stay equal.
func (p *pass) forget() {
	s, m := &p.recipe.Status, p.memory
	s.Resource, s.Operation, s.Pairing = m.Resource, nil, nil
	if o := m.Operation; o != nil {
		s.Operation = &radapp.Operation{ResumeToken: o.ResumeToken, OperationKind: o.OperationKind, Hash: o.Hash, Target: o.Target, Started: stamp(o.Started)}
	}
	pairing := radapp.Pairing{Requested: m.Requested, APIVersion: m.APIVersion, AppliedHash: m.AppliedHash, LiveHash: m.LiveHash}
	for _, f := range m.Previous {
		pairing.Previous = append(pairing.Previous, radapp.Former(f))
	}
	if f := m.Failure; f != nil {
		pairing.Failure = &radapp.Failure{Hash: f.Hash, RetryOn: f.RetryOn, Code: string(f.Code), Message: f.Message, Count: f.Count, RetryAt: stamp(f.RetryAt)}
	}
	if !equality.Semantic.DeepEqual(pairing, radapp.Pairing{}) {
		s.Pairing = &pairing
	}
}

func stamp(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}
