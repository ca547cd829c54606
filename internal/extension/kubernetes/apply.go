package kubernetes

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// maxTries bounds how often an object that is made and deleted by others while
// it is written is tried again.
const maxTries = 5

// Apply implements extension.Target. An object that is not there is made by one
// call, which fails when it is there after all; one that an earlier run of the same
// owner recorded is changed by one call, or by none when it was read together with
// others and stands as it is asked for. Anything else is read and judged first.
func (t *Target) Apply(ctx context.Context, r extension.Resource) (extension.State, error) {
	a, err := t.address(ctx, r, t.c.await)
	if err != nil {
		return extension.State{}, err
	}
	t.c.expect(ctx, a.object)
	state, err := t.write(ctx, a, r)
	if err != nil {
		t.c.doNotExpect(ctx, a.object)
	}
	return state, err
}

func (t *Target) write(ctx context.Context, a addressed, r extension.Resource) (extension.State, error) {
	timeout, err := t.readyTimeout(a)
	if err != nil {
		return extension.State{}, err
	}
	stamp(a.object, r.Owner)
	a.owner = r.Owner
	made, err := t.put(ctx, a, r)
	if err != nil {
		return extension.State{}, err
	}
	ready, err := t.ready(ctx, a, made, timeout)
	if err == nil {
		err = t.served(ctx, a, ready)
	}
	if err != nil {
		// Made, though not ready: the caller records its uid.
		return extension.State{Ref: t.c.ref(made, r.Owner)}, err
	}
	return extension.State{Ref: t.c.ref(ready, r.Owner), Properties: content(ready)}, nil
}

// errMoved says that the object was made, deleted or replaced by somebody
// between two calls.
var errMoved = errors.New("it was changed in between")

// put writes the object: makes it, or changes the one that is the owner's.
func (t *Target) put(ctx context.Context, a addressed, r extension.Resource) (*unstructured.Unstructured, error) {
	known := types.UID(r.UID)
	live := t.standing(ctx, a, r.Owner, known)
	for range maxTries {
		var made *unstructured.Unstructured
		var err error
		switch {
		case live != nil:
			made, err = t.change(ctx, a, live, r.Owner)
		case known == "":
			made, err = t.create(ctx, a, r.Owner)
		case !r.Owner.IsZero() && !keepsValues(a.object):
			made, err = t.update(ctx, a, nil, known) // its stamp says whose it is, and ours is on it
		default:
			err = errMoved // the live object has to be seen
		}
		if errors.Is(err, errMoved) {
			if live, err = t.live(ctx, a); err == nil {
				made, err = t.change(ctx, a, live, r.Owner)
			}
		}
		if known, live = "", nil; errors.Is(err, errMoved) {
			continue
		}
		return made, err
	}
	return nil, core.Errorf(core.CodeConflict, "cannot apply %s in cluster %q: it is made and deleted over and over by somebody else: see who that is, then deploy again", a.what, t.c.name)
}

// create makes the object, errMoved if there is one already.
func (t *Target) create(ctx context.Context, a addressed, owner core.ID) (*unstructured.Unstructured, error) {
	o := a.object.DeepCopy()
	if err := prepareSecret(o, nil); err != nil {
		return nil, core.Errorf(core.CodeInvalidTemplate, "%s: %w", a.what, err)
	}
	o.SetResourceVersion(onlyIfAbsent)
	made, created, err := t.apply(ctx, a, o)
	switch {
	case apierrors.IsConflict(err):
		return nil, errMoved
	case err != nil:
		return nil, t.c.fault(ctx, err, "apply", a.what)
	case created:
		return made, nil
	}
	return t.merged(ctx, a, made, owner)
}

// merged judges an apply that was to make an object, and changed one that was
// there: an API server that does not compare versions did that. What was not the
// owner's to write is given back.
func (t *Target) merged(ctx context.Context, a addressed, made *unstructured.Unstructured, owner core.ID) (*unstructured.Unstructured, error) {
	if owner.IsZero() {
		return made, nil // a plain deployment may change what exists
	}
	back := &unstructured.Unstructured{Object: map[string]any{}}
	back.SetGroupVersionKind(a.gvk)
	back.SetName(made.GetName())
	back.SetNamespace(made.GetNamespace())
	back.SetUID(made.GetUID())
	if _, _, err := t.c.apply(ctx, a, back, false); err != nil {
		return nil, t.c.fault(ctx, err, "undo the change to", a.what)
	}
	return nil, core.Errorf(core.CodeConflict, "%s in cluster %q was made by somebody else at the same time, it is not taken over: rename or delete it", a.what, t.c.name)
}

// change judges the object as it was read and changes it, unless it stands as it
// is asked for; errMoved if it is not there any more.
func (t *Target) change(ctx context.Context, a addressed, live *unstructured.Unstructured, owner core.ID) (*unstructured.Unstructured, error) {
	switch {
	case live == nil:
		return nil, errMoved
	case live.GetDeletionTimestamp() != nil:
		return nil, t.outlive(ctx, a, live.GetUID())
	}
	if err := t.judge(a, live, owner); err != nil {
		return nil, err
	}
	a.guest = isGuest(live, owner)
	if stands(a.object, live, a.manager()) {
		return live, nil
	}
	return t.update(ctx, a, live, live.GetUID())
}

// update changes the object with that uid; live is it, as far as it was read.
func (t *Target) update(ctx context.Context, a addressed, live *unstructured.Unstructured, uid types.UID) (*unstructured.Unstructured, error) {
	o := a.object.DeepCopy()
	if err := prepareSecret(o, live); err != nil {
		return nil, core.Errorf(core.CodeInvalidTemplate, "%s: %w", a.what, err)
	}
	o.SetUID(uid) // the very object whose owner was judged
	made, _, err := t.apply(ctx, a, o)
	switch {
	case err != nil && isOtherUID(err):
		return nil, errMoved
	case apierrors.IsConflict(err) && !isFieldConflict(err):
		return nil, errMoved
	case err != nil:
		return nil, t.c.fault(ctx, err, "apply", a.what)
	case made.GetDeletionTimestamp() != nil:
		return nil, t.outlive(ctx, a, uid)
	}
	return made, nil
}

// outlive waits for the end of an object that is being deleted, by an earlier
// run or by someone else: what is applied to it would go with it.
func (t *Target) outlive(ctx context.Context, a addressed, uid types.UID) error {
	if err := t.gone(ctx, a, nil, uid); err != nil {
		return err
	}
	return errMoved
}

// apply is the cluster's, and waits for a namespace that the same run makes.
func (t *Target) apply(ctx context.Context, a addressed, o *unstructured.Unstructured) (*unstructured.Unstructured, bool, error) {
	for try := 1; ; try++ {
		var made *unstructured.Unstructured
		var created bool
		err := pastOwnPolicy(ctx, a.owner, func() (err error) {
			made, created, err = t.c.apply(ctx, a, o, false)
			return err
		})
		if err == nil || try == maxTries {
			return made, created, err
		}
		ns := a.object.GetNamespace()
		waits := missingNamespace(err) != "" || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
		var comes *coming
		if waits && a.kind.namespaced {
			comes = t.c.expectsNamespace(ctx, ns)
		}
		if comes == nil {
			if isNotFound(err) {
				t.c.forget(a.gvk.GroupVersion())
			}
			return nil, false, err
		}
		if ok, fault := t.awaitNamespace(ctx, ns, comes); fault != nil {
			return nil, false, fault
		} else if !ok {
			return nil, false, err
		}
	}
}
