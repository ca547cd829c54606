package service

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/cloud"
)

// kit is what the three controllers share.
type kit struct {
	// Client reads from the manager's cache, and writes.
	client.Client
	applier  *applier
	settings cloud.Settings
	now      func() time.Time
	log      *slog.Logger
	events   events.EventRecorder
}

// find reads an object from the cache.
func find[T client.Object](ctx context.Context, k *kit, namespace, name string, into T) (found bool, err error) {
	err = k.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// ask writes a request and judges it as it is then. build's error is what is
// wrong with what is asked, and is the verdict.
func (k *kit) ask(ctx context.Context, by types.NamespacedName, owner Owner, build func() (Ask, error)) (*Verdict, error) {
	a, err := build()
	if err != nil {
		return &Verdict{Phase: v1alpha1.PhaseFailed, Detail: v1alpha1.Clean(err.Error())}, nil
	}
	set, err := Request(a, k.settings.Provider, owner)
	if err != nil {
		return &Verdict{Phase: v1alpha1.PhaseFailed, Detail: v1alpha1.Clean(err.Error())}, nil
	}
	current := &v1alpha1.CloudResource{}
	exists, err := find(ctx, k, set.GetNamespace(), set.GetName(), current)
	if err != nil {
		return nil, err
	}
	if exists {
		switch whose(current, owner) {
		case foreign:
			return &Verdict{Phase: v1alpha1.PhaseFailed, Detail: "what it needs of the cloud is asked for by something else under its name"}, nil
		case leaving:
			return &Verdict{Phase: v1alpha1.PhaseWaiting, Detail: textLeaving}, nil
		case ours:
		}
	}
	r, err := apply(ctx, k.applier, by, set, current, exists, true)
	if text := refused(err); text != "" {
		return &Verdict{Phase: v1alpha1.PhaseFailed, Detail: text}, nil
	} else if err != nil {
		return nil, err
	}
	v := Decide(r, k.settings.AcknowledgementBound, k.now())
	return &v, nil
}

const textLeaving = "waiting for what had this name before to be gone"

// after is how long until a moment, for a reconcile to come back at; zero is
// not at all. A moment that has passed is now.
func (k *kit) after(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	// Moments are of the API server's whole seconds and this clock's: never a
	// hair too early, or the same would be decided again.
	return max(t.Sub(k.now()), 0) + time.Millisecond
}

// overtaken takes out of an error of a status write that the object has changed
// or gone since it was read: what changed it is still to come through the watch,
// and wakes.
func overtaken(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// conditions of a whole: Ready always, Progressing and Stalled while true.
func conditions(before []metav1.Condition, generation int64, lifecycle v1alpha1.Lifecycle, detail string, now time.Time) []metav1.Condition {
	out := append([]metav1.Condition(nil), before...)
	set := func(kind string, is bool) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		if !is && kind != v1alpha1.ConditionReady {
			meta.RemoveStatusCondition(&out, kind)
			return
		}
		meta.SetStatusCondition(&out, metav1.Condition{Type: kind, Status: status, ObservedGeneration: generation,
			LastTransitionTime: metav1.NewTime(now), Reason: string(lifecycle), Message: detail})
	}
	set(v1alpha1.ConditionReady, lifecycle == v1alpha1.LifecycleReady)
	set(v1alpha1.ConditionProgressing, lifecycle == v1alpha1.LifecycleUpdateInProgress)
	set(v1alpha1.ConditionStalled, lifecycle == v1alpha1.LifecycleFailed)
	return out
}

// tell makes an event of a change that a user can act on.
func (k *kit) tell(o client.Object, before, now v1alpha1.Lifecycle, detail string) {
	if k.events == nil || before == now {
		return
	}
	kind := corev1.EventTypeNormal
	switch now {
	case v1alpha1.LifecycleFailed, v1alpha1.LifecycleUnavailable, v1alpha1.LifecyclePartiallyReady:
		kind = corev1.EventTypeWarning
	case v1alpha1.LifecycleReady:
		if before == "" {
			return
		}
	default:
		return
	}
	if detail == "" {
		detail = fmt.Sprintf("was %s", before)
	}
	// The API server takes no event whose note is longer than a detail of ours;
	// this one has the part's name before the provider's words.
	k.events.Eventf(o, nil, kind, string(now), "Serve", "%s", v1alpha1.Clean(detail))
}
