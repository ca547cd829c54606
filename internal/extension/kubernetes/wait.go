package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// errNotReadyInTime is the cause of a wait's end.
var errNotReadyInTime = errors.New("the time to become ready ran out")

// ready waits until kstatus calls the object current, and returns it so. It
// fails at once when kstatus calls it failed.
func (t *Target) ready(ctx context.Context, a addressed, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.c.o.ReadyTimeout, errNotReadyInTime)
	defer cancel()
	uid := o.GetUID()
	message := ""
	err := t.follow(ctx, a, o, func(seen *unstructured.Unstructured) (bool, error) {
		if seen == nil || seen.GetUID() != uid {
			return false, core.Errorf(extension.CodeNotReady, "%s in cluster %q was deleted while it was waited for", a.what, t.c.name)
		}
		res, err := status.Compute(seen)
		if err != nil {
			return false, core.Errorf(extension.CodeNotReady, "%s in cluster %q: its status cannot be read: %w", a.what, t.c.name, err)
		}
		o, message = seen, res.Message
		switch res.Status {
		case status.CurrentStatus:
			return true, nil
		case status.FailedStatus:
			return false, core.Errorf(extension.CodeNotReady, "%s in cluster %q failed: %s; see: kubectl -n %s describe %s %s",
				a.what, t.c.name, res.Message, seen.GetNamespace(), a.gvk.Kind, seen.GetName())
		}
		return false, nil
	})
	if err != nil && context.Cause(ctx) == errNotReadyInTime {
		return nil, core.Errorf(extension.CodeNotReady, "%s in cluster %q did not become ready within %s: %s; see: kubectl -n %s describe %s %s",
			a.what, t.c.name, t.c.o.ReadyTimeout, message, o.GetNamespace(), a.gvk.Kind, o.GetName())
	}
	return o, err
}

// gone waits until the object with that uid does not exist.
func (t *Target) gone(ctx context.Context, a addressed, uid types.UID) error {
	live, err := a.client.Get(ctx, a.object.GetName(), metav1.GetOptions{})
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return t.c.fault(ctx, err, a.what)
	}
	err = t.follow(ctx, a, live, func(seen *unstructured.Unstructured) (bool, error) {
		if seen != nil && seen.GetUID() == uid {
			live = seen
			return false, nil
		}
		return true, nil
	})
	if err != nil && ctx.Err() != nil && len(live.GetFinalizers()) > 0 {
		return fmt.Errorf("%s in cluster %q is still held by its finalizers %v: %w", a.what, t.c.name, live.GetFinalizers(), context.Cause(ctx))
	}
	return err
}

// follow calls judge with the object, then with every later state of it, nil
// when it is gone, until judge is done or fails. It reads the states from a
// watch; one that breaks is opened again from a fresh read, the second and
// later times after a growing pause.
func (t *Target) follow(ctx context.Context, a addressed, o *unstructured.Unstructured, judge func(*unstructured.Unstructured) (bool, error)) error {
	for pause := time.Duration(0); ; pause = min(max(2*pause, 100*time.Millisecond), 5*time.Second) {
		if done, err := judge(o); done || err != nil {
			return err
		}
		if pause > 0 {
			if err := wait(ctx, pause); err != nil {
				return t.c.fault(ctx, err, a.what)
			}
		}
		done, err := t.watch(ctx, a, o, judge)
		if done || err != nil {
			return err
		}
		o, err = a.client.Get(ctx, a.object.GetName(), metav1.GetOptions{})
		if isNotFound(err) {
			o = nil
		} else if err != nil {
			return t.c.fault(ctx, err, a.what)
		}
	}
}

// watch judges the states after o's, until done or until the watch ends.
func (t *Target) watch(ctx context.Context, a addressed, o *unstructured.Unstructured, judge func(*unstructured.Unstructured) (bool, error)) (bool, error) {
	version := ""
	if o != nil {
		version = o.GetResourceVersion()
	}
	w, err := a.client.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("metadata.name", a.object.GetName()).String(),
		ResourceVersion: version,
	})
	if err != nil {
		return false, t.c.fault(ctx, err, a.what)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, t.c.fault(ctx, ctx.Err(), a.what)
		case event, ok := <-w.ResultChan():
			if !ok || event.Type == watch.Error {
				return false, nil // too old, or closed by the server: read anew
			}
			seen, _ := event.Object.(*unstructured.Unstructured)
			if event.Type == watch.Deleted {
				seen = nil
			}
			if event.Type == watch.Bookmark {
				continue
			}
			if done, err := judge(seen); done || err != nil {
				return done, err
			}
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
