package kubernetes

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// Target is a cluster with a default namespace.
type Target struct {
	c         *Cluster
	namespace string
}

// addressed is an object with the way to it.
type addressed struct {
	gvk    schema.GroupVersionKind
	client dynamic.ResourceInterface
	object *unstructured.Unstructured
	what   string
}

// address builds the object that a resource asks for, without its stamp.
func (t *Target) address(ctx context.Context, r extension.Resource) (addressed, error) {
	gvk, err := groupVersionKind(r.Type, r.APIVersion)
	if err != nil {
		return addressed{}, err
	}
	gvk, k, err := t.c.lookup(ctx, gvk)
	if err != nil {
		return addressed{}, err
	}
	o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(r.Properties)}
	if o.Object == nil {
		o.Object = map[string]any{}
	}
	o.SetGroupVersionKind(gvk)
	unstructured.RemoveNestedField(o.Object, "status") // the cluster's, not a template's
	name := o.GetName()
	if name == "" {
		return addressed{}, core.Errorf(core.CodeInvalidTemplate, "a %s needs metadata.name", gvk.Kind)
	}
	switch {
	case !k.namespaced && o.GetNamespace() != "":
		return addressed{}, core.Errorf(core.CodeInvalidTemplate, "%s %s belongs to the cluster and can have no namespace: take metadata.namespace out", gvk.Kind, name)
	case k.namespaced && o.GetNamespace() == "":
		if t.namespace == "" {
			return addressed{}, core.Errorf(core.CodeInvalidTemplate, "%s %s has no namespace, and neither has the scope it is made in: set metadata.namespace or the import's namespace", gvk.Kind, name)
		}
		o.SetNamespace(t.namespace)
	}
	return addressed{gvk, t.c.client(gvk, k, o.GetNamespace()), o, describe(gvk, o.GetNamespace(), name)}, nil
}

// live reads the object as it stands, nil if there is none, and refuses one
// that is not the owner's.
func (t *Target) live(ctx context.Context, a addressed, owner core.ID) (*unstructured.Unstructured, error) {
	live, err := a.client.Get(ctx, a.object.GetName(), metav1.GetOptions{})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, t.c.fault(ctx, err, a.what)
	}
	if owner.IsZero() || isOwner(live, owner) {
		return live, nil
	}
	id := t.c.ref(live, core.ID{}).ID
	if other := ownerOf(live); other != "" {
		return nil, core.Errorf(core.CodeConflict, "%s in cluster %q belongs to %s: give one of the two another name", a.what, t.c.name, other).WithTarget(id.String())
	}
	return nil, core.Errorf(core.CodeConflict, "%s in cluster %q exists and was not made by Radial: rename or delete it, it is not taken over", a.what, t.c.name).WithTarget(id.String())
}

// Preview implements extension.Target: a dry run on the server once all
// properties are known, else only the name.
func (t *Target) Preview(ctx context.Context, r extension.Resource) (extension.State, error) {
	a, err := t.address(ctx, r)
	if err != nil {
		return extension.State{}, err
	}
	if len(r.Unevaluated) > 0 {
		return extension.State{Ref: t.c.ref(a.object, r.Owner), Properties: a.object.Object}, nil
	}
	live, err := t.live(ctx, a, r.Owner)
	if err != nil {
		return extension.State{}, err
	}
	stamp(a.object, r.Owner)
	if err := prepareSecret(a.object, live); err != nil {
		return extension.State{}, core.Errorf(core.CodeInvalidTemplate, "%s: %w", a.what, err)
	}
	would, err := a.client.Apply(ctx, a.object.GetName(), a.object, metav1.ApplyOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}})
	if isNotFound(err) { // its namespace, which the same template may make
		return extension.State{Ref: t.c.ref(a.object, r.Owner), Properties: a.object.Object}, nil
	}
	if err != nil {
		return extension.State{}, t.c.fault(ctx, err, a.what)
	}
	if live == nil {
		would.SetUID("") // the server makes one up for a dry run
	}
	return extension.State{Ref: t.c.ref(would, r.Owner), Properties: content(would)}, nil
}

// Apply implements extension.Target.
func (t *Target) Apply(ctx context.Context, r extension.Resource) (extension.State, error) {
	a, err := t.address(ctx, r)
	if err != nil {
		return extension.State{}, err
	}
	live, err := t.live(ctx, a, r.Owner)
	if err != nil {
		return extension.State{}, err
	}
	if live != nil && live.GetDeletionTimestamp() != nil {
		// It is being deleted, by an earlier run or by someone else: what is
		// applied to it now would go with it.
		if err := t.gone(ctx, a, live.GetUID()); err != nil {
			return extension.State{}, err
		}
		live = nil
	}
	stamp(a.object, r.Owner)
	if err := prepareSecret(a.object, live); err != nil {
		return extension.State{}, core.Errorf(core.CodeInvalidTemplate, "%s: %w", a.what, err)
	}
	if live != nil {
		a.object.SetUID(live.GetUID()) // the very object whose owner was judged
	}
	made, err := a.client.Apply(ctx, a.object.GetName(), a.object, metav1.ApplyOptions{FieldManager: FieldManager})
	if isNotFound(err) {
		t.c.forget(a.gvk.GroupVersion())
	}
	if err != nil {
		return extension.State{}, t.c.fault(ctx, err, a.what)
	}
	ready, err := t.ready(ctx, a, made)
	if err == nil {
		err = t.served(ctx, a, ready)
	}
	if err != nil {
		// Made, though not ready: the caller records its uid.
		return extension.State{Ref: t.c.ref(made, r.Owner)}, err
	}
	return extension.State{Ref: t.c.ref(ready, r.Owner), Properties: content(ready)}, nil
}

// Get implements extension.Target.
func (t *Target) Get(ctx context.Context, ref extension.Ref) (extension.State, error) {
	a, err := t.find(ctx, ref)
	if err != nil {
		return extension.State{}, err
	}
	live, err := a.client.Get(ctx, a.object.GetName(), metav1.GetOptions{})
	if err != nil {
		return extension.State{}, t.c.fault(ctx, err, a.what)
	}
	return extension.State{Ref: t.c.ref(live, ref.Owner), Properties: content(live)}, nil
}

// find addresses the object of a reference.
func (t *Target) find(ctx context.Context, ref extension.Ref) (addressed, error) {
	namespace, name, err := identifiers(ref)
	if err != nil {
		return addressed{}, err
	}
	gvk, err := groupVersionKind(ref.Type, ref.APIVersion)
	if err != nil {
		return addressed{}, err
	}
	gvk, k, err := t.c.lookup(ctx, gvk)
	if err != nil {
		return addressed{}, err
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(gvk)
	o.SetName(name)
	o.SetNamespace(namespace)
	return addressed{gvk, t.c.client(gvk, k, namespace), o, describe(gvk, namespace, name)}, nil
}

// Delete implements extension.Target.
func (t *Target) Delete(ctx context.Context, ref extension.Ref) error {
	a, err := t.find(ctx, ref)
	if err != nil {
		if t.kindIsGone(ctx, ref) {
			return nil // the definition went, and all objects with it
		}
		return err
	}
	live, err := a.client.Get(ctx, a.object.GetName(), metav1.GetOptions{})
	switch {
	case isNotFound(err):
		return nil
	case err != nil:
		return t.c.fault(ctx, err, a.what)
	case ref.UID != "" && string(live.GetUID()) != ref.UID:
		return nil // another object of that name: not ours
	case ref.UID == "" && !isOwner(live, ref.Owner):
		return nil // planned, never made, and somebody else has the name
	}
	uid := live.GetUID()
	policy := propagation(a.gvk)
	err = a.client.Delete(ctx, a.object.GetName(), metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid},
		PropagationPolicy: &policy,
	})
	if err != nil && !isNotFound(err) && !uidConflict(err) {
		return t.c.fault(ctx, err, a.what)
	}
	return t.gone(ctx, a, uid)
}

// kindIsGone reports whether the cluster no longer serves a reference's kind.
func (t *Target) kindIsGone(ctx context.Context, ref extension.Ref) bool {
	gvk, err := groupVersionKind(ref.Type, ref.APIVersion)
	if err != nil {
		return false
	}
	known, err := t.c.discover(ctx, gvk.GroupVersion())
	if err != nil {
		return false
	}
	_, _, ok := find(known, gvk)
	return !ok
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

func uidConflict(err error) bool {
	s, ok := err.(interface{ Status() metav1.Status })
	return ok && s.Status().Reason == metav1.StatusReasonConflict && strings.Contains(strings.ToLower(s.Status().Message), "uid")
}
