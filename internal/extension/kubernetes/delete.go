package kubernetes

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

var _ extension.Releaser = (*Target)(nil)

// Delete implements extension.Target. With a uid it is one call; without one,
// the object is read to see whose it is.
func (t *Target) Delete(ctx context.Context, ref extension.Ref) error {
	a, err := t.find(ctx, ref)
	if isNotServed(err) {
		// The definition went, and all objects with it; in this cluster, that is.
		return t.c.sameCluster(ctx, ref, "delete", ref.ID.String())
	}
	if err != nil {
		return err
	}
	if err := t.c.sameCluster(ctx, ref, "delete", a.what); err != nil {
		return err
	}
	if isCloudResource(a.gvk.GroupKind()) {
		return nil // it goes with its owner, and no account may delete one
	}
	uid := types.UID(ref.UID)
	if uid == "" {
		live, err := t.live(ctx, a)
		if err != nil || live == nil {
			return err
		}
		if !ref.Unverified && !isOwner(live, ref.Owner) {
			return nil // planned, never made, and somebody else has the name
		}
		uid = live.GetUID()
	}
	var left *unstructured.Unstructured
	err = pastOwnPolicy(ctx, ref.Owner, func() (err error) {
		left, err = t.c.remove(ctx, a, uid)
		return err
	})
	switch {
	case isNotFound(err), apierrors.IsConflict(err) && isOtherUID(err):
		return nil // gone, or another object of that name: not ours
	case err != nil:
		return t.c.fault(ctx, err, "delete", a.what)
	case left == nil:
		return nil
	}
	return t.gone(ctx, a, left, uid)
}

// Release implements [extension.Releaser].
func (t *Target) Release(ctx context.Context, ref extension.Ref) error {
	a, err := t.find(ctx, ref)
	if isNotServed(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := t.c.sameCluster(ctx, ref, "release", a.what); err != nil {
		return err
	}
	live, err := t.live(ctx, a)
	if err != nil || live == nil || !isOwner(live, ref.Owner) || ref.UID != "" && string(live.GetUID()) != ref.UID {
		return err
	}
	patch := []byte(`{"metadata":{"uid":"` + string(live.GetUID()) + `","annotations":{"` + OwnerKey + `":null},"labels":{"` + OwnerKey + `":null}}}`)
	err = pastOwnPolicy(ctx, ref.Owner, func() error {
		_, err := a.client.Patch(ctx, a.object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
		return err
	})
	if err != nil && !isNotFound(err) && !isOtherUID(err) {
		return t.c.fault(ctx, err, "release", a.what)
	}
	return nil
}

// propagation is foreground for what starts other objects, so that its pods
// are gone when it is; plain objects need not wait for the garbage collector.
func propagation(gvk schema.GroupVersionKind) metav1.DeletionPropagation {
	switch gvk.Group {
	case "", "rbac.authorization.k8s.io", "networking.k8s.io", "policy", "storage.k8s.io":
		if gvk.Kind != "ReplicationController" {
			return metav1.DeletePropagationBackground
		}
	}
	return metav1.DeletePropagationForeground
}

// stackType is the type of owners that may take over what a plain deployment
// made.
const stackType = "Microsoft.Resources/deploymentStacks"

func isStack(owner core.ID) bool { return !owner.IsZero() && equalFold(owner.Type(), stackType) }

var errNotGoneInTime = errors.New("the time to be gone ran out")
