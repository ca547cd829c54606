package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// errNotReadyInTime is the cause of a wait's end.
var errNotReadyInTime = errors.New("the time to become ready ran out")

// maxReadyTimeout is the longest wait that an annotation can ask for.
const maxReadyTimeout = 6 * time.Hour

// readyTimeout is how long the object may take to become ready.
func (t *Target) readyTimeout(a addressed) (time.Duration, error) {
	text := a.object.GetAnnotations()[ReadyTimeoutKey]
	if text == "" {
		return t.c.o.ReadyTimeout, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxReadyTimeout {
		return 0, core.Errorf(core.CodeInvalidTemplate, "%s: its annotation %s is a time such as 90s or 30m, at most %s", a.what, ReadyTimeoutKey, maxReadyTimeout)
	}
	return d, nil
}

// ready waits until kstatus calls the object current, or a request to the cloud
// provider is answered, and returns it so. It fails at once when it is called
// failed.
func (t *Target) ready(ctx context.Context, a addressed, o *unstructured.Unstructured, timeout time.Duration) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errNotReadyInTime)
	defer cancel()
	uid := o.GetUID()
	message := ""
	look := "see: kubectl describe " + a.gvk.Kind + " " + o.GetName()
	if ns := o.GetNamespace(); ns != "" {
		look = fmt.Sprintf("see: kubectl -n %s describe %s %s", ns, a.gvk.Kind, o.GetName())
	}
	err := t.follow(ctx, a, o, func(seen *unstructured.Unstructured) (bool, error) {
		if seen == nil || seen.GetUID() != uid {
			return false, core.Errorf(extension.CodeNotReady, "%s in cluster %q was deleted while it was waited for", a.what, t.c.name)
		}
		res, err := compute(seen)
		if err != nil {
			return false, core.Errorf(extension.CodeNotReady, "%s in cluster %q: its status cannot be read: %w", a.what, t.c.name, err)
		}
		o, message = seen, res.Message
		switch res.Status {
		case status.CurrentStatus:
			return true, nil
		case status.FailedStatus:
			return false, core.Errorf(extension.CodeNotReady, "%s in cluster %q failed: %s; %s", a.what, t.c.name, res.Message, look)
		}
		return t.waitsForConsumer(ctx, a, seen), nil
	})
	if err != nil && context.Cause(ctx) == errNotReadyInTime {
		return nil, core.Errorf(extension.CodeNotReady, "%s in cluster %q did not become ready within %s: %s; %s", a.what, t.c.name, timeout, message, look)
	}
	return o, err
}

var storageClasses = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}

// waitsForConsumer reports whether a claim is bound only when a pod uses it:
// waiting for that would keep the pod from being made.
func (t *Target) waitsForConsumer(ctx context.Context, a addressed, o *unstructured.Unstructured) bool {
	if a.gvk.Group != "" || a.gvk.Kind != "PersistentVolumeClaim" {
		return false
	}
	name, _, _ := unstructured.NestedString(o.Object, "spec", "storageClassName")
	if name == "" {
		return false
	}
	class, err := t.c.dynamic.Resource(storageClasses).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false // its phase tells, later
	}
	mode, _, _ := unstructured.NestedString(class.Object, "volumeBindingMode")
	return mode == "WaitForFirstConsumer"
}

// gone waits until the object with that uid does not exist; o is it as it was
// last seen, nil to read it. What holds it is named when the time is up.
func (t *Target) gone(ctx context.Context, a addressed, o *unstructured.Unstructured, uid types.UID) error {
	ctx, cancel := context.WithTimeoutCause(ctx, t.c.o.DeleteTimeout, errNotGoneInTime)
	defer cancel()
	if o == nil || o.GetDeletionTimestamp() == nil {
		// Nothing to follow from: some kinds are answered as they were.
		var err error
		if o, err = t.live(ctx, a); err != nil || o == nil {
			return err
		}
	}
	last := o
	err := t.follow(ctx, a, o, func(seen *unstructured.Unstructured) (bool, error) {
		if seen != nil && seen.GetUID() == uid {
			last = seen
			return false, nil
		}
		return true, nil
	})
	if err == nil || ctx.Err() == nil {
		return err
	}
	why := "nothing that its object tells"
	if held := holders(last); held != "" {
		why = held
	}
	if context.Cause(ctx) == errNotGoneInTime {
		return core.Errorf(extension.CodeNotReady, "%s in cluster %q is being deleted, but not gone after %s; it is held by %s: let that end, or take it away by hand", a.what, t.c.name, t.c.o.DeleteTimeout, why)
	}
	return fmt.Errorf("%s in cluster %q is being deleted and still held by %s: %w", a.what, t.c.name, why, context.Cause(ctx))
}

// holders says what keeps an object that is being deleted.
func holders(o *unstructured.Unstructured) string {
	var parts []string
	if names := o.GetFinalizers(); len(names) > 0 {
		parts = append(parts, "its finalizers "+strings.Join(names, ", "))
	}
	if names, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "finalizers"); len(names) > 0 {
		parts = append(parts, "its finalizers "+strings.Join(names, ", "))
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions { // a namespace's say what is left in it
		if m, ok := c.(map[string]any); ok && m["status"] == "True" && isNamespace(o.GroupVersionKind()) {
			if text, ok := m["message"].(string); ok && text != "" {
				parts = append(parts, text)
			}
		}
	}
	return strings.Join(parts, "; ")
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
				return t.c.fault(ctx, err, "watch", a.what)
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
			return t.c.fault(ctx, err, "watch", a.what)
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
		return false, t.c.fault(ctx, err, "watch", a.what)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, t.c.fault(ctx, ctx.Err(), "watch", a.what)
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
