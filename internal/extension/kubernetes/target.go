package kubernetes

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// Target is a cluster with a default namespace.
type Target struct {
	c         *Cluster
	namespace string
}

// DefaultNamespace implements [extension.DefaultNamespace].
func (t *Target) DefaultNamespace() string { return t.namespace }

// addressed is an object with the way to it.
type addressed struct {
	gvk    schema.GroupVersionKind
	kind   kind
	client dynamic.ResourceInterface
	object *unstructured.Unstructured
	what   string
	// owner is whom the object is written for.
	owner core.ID
	// guest says that somebody else made the object.
	guest bool
}

func (a addressed) manager() string {
	if a.guest {
		return GuestManager
	}
	return FieldManager
}

// address builds the object that a resource asks for, without its stamp. find
// looks its kind up.
func (t *Target) address(ctx context.Context, r extension.Resource, find func(context.Context, schema.GroupVersionKind) (schema.GroupVersionKind, kind, error)) (addressed, error) {
	gvk, err := groupVersionKind(r.Type, r.APIVersion)
	if err == nil && gvk.Version == "" {
		err = core.Errorf(core.CodeInvalidTemplate, "the type %q has no version: write %s@v1, or set apiVersion", r.Type, r.Type)
	}
	if err != nil {
		return addressed{}, err
	}
	gvk, k, err := find(ctx, gvk)
	if err != nil {
		return addressed{}, err
	}
	o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(r.Properties)}
	if o.Object == nil {
		o.Object = map[string]any{}
	}
	o.SetGroupVersionKind(gvk)
	// The cluster's to write, not a template's.
	unstructured.RemoveNestedField(o.Object, "status")
	for _, field := range []string{"uid", "resourceVersion", "managedFields", "generation", "creationTimestamp"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	name := o.GetName()
	if name == "" {
		return addressed{}, core.Errorf(core.CodeInvalidTemplate, "a %s needs metadata.name", gvk.Kind)
	}
	for _, text := range []string{name, o.GetNamespace()} {
		if faults := rest.IsValidPathSegmentName(text); len(faults) > 0 {
			return addressed{}, core.Errorf(core.CodeInvalidTemplate, "%s cannot be named %q: a name %s", gvk.Kind, text, strings.Join(faults, ", "))
		}
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
	a := t.at(gvk, k, o)
	if _, err := t.c.identity(ctx); err != nil { // references carry it
		return addressed{}, fmt.Errorf("%s: %w", a.what, err)
	}
	return a, nil
}

func (t *Target) at(gvk schema.GroupVersionKind, k kind, o *unstructured.Unstructured) addressed {
	client := dynamic.ResourceInterface(t.c.dynamic.Resource(gvk.GroupVersion().WithResource(k.resource)))
	if k.namespaced {
		client = t.c.dynamic.Resource(gvk.GroupVersion().WithResource(k.resource)).Namespace(o.GetNamespace())
	}
	return addressed{gvk: gvk, kind: k, client: client, object: o, what: describe(gvk, o.GetNamespace(), o.GetName())}
}

// planned looks a kind up for a preview: one that the same run will bring is
// named by its definition.
func (t *Target) planned(ctx context.Context, gvk schema.GroupVersionKind) (schema.GroupVersionKind, kind, error) {
	found, k, err := t.c.lookup(ctx, gvk)
	if err == nil || !isNotServed(err) {
		return found, k, err
	}
	if e, ok := t.c.expectsKind(ctx, gvk); ok {
		gvk.Kind = e.name
		return gvk, kind{namespaced: e.namespaced}, nil
	}
	return gvk, kind{}, err
}

// live reads the object as it stands, nil if there is none.
func (t *Target) live(ctx context.Context, a addressed) (*unstructured.Unstructured, error) {
	live, err := a.client.Get(ctx, a.object.GetName(), metav1.GetOptions{})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, t.c.fault(ctx, err, "read", a.what)
	}
	return live, nil
}

// judge refuses an object that is not the owner's to write: what has another's
// stamp is nobody else's; what has none is a plain deployment's to change (field
// by field, as managers conflict), and a stack's only if a plain deployment of
// ours made it.
func (t *Target) judge(a addressed, live *unstructured.Unstructured, owner core.ID) error {
	other := ownerOf(live)
	switch {
	case isOwner(live, owner), other == "" && owner.IsZero(), other == "" && isStack(owner) && isOurs(live):
		return nil
	case other != "":
		return core.Errorf(core.CodeConflict, "%s in cluster %q belongs to %s: give one of the two another name, or take it out of the other first", a.what, t.c.name, other).
			WithTarget(t.c.ref(live, core.ID{}).ID.String())
	}
	return core.Errorf(core.CodeConflict, "%s in cluster %q exists and was not made by Radial: rename or delete it, it is not taken over", a.what, t.c.name).
		WithTarget(t.c.ref(live, core.ID{}).ID.String())
}

// Preview implements extension.Target: a dry run on the server once all
// properties are known, else only the name.
func (t *Target) Preview(ctx context.Context, r extension.Resource) (extension.State, error) {
	a, err := t.address(ctx, r, t.planned)
	if err != nil {
		return extension.State{}, err
	}
	if !r.Existing {
		t.c.expect(ctx, a.object)
		t.c.announce(ctx, a, r.Owner)
	}
	named := extension.State{Ref: t.c.ref(a.object, r.Owner), Properties: a.object.Object}
	if r.Existing || len(r.Unevaluated) > 0 || a.kind.resource == "" { // or of a kind that is still to come
		return named, nil
	}
	live, err := t.live(ctx, a)
	if err != nil {
		return extension.State{}, err
	}
	o := a.object.DeepCopy()
	if live != nil {
		if err := t.judge(a, live, r.Owner); err != nil {
			return extension.State{}, err
		}
		a.guest = isGuest(live, r.Owner)
	}
	stamp(o, r.Owner)
	if err := prepareSecret(o, live); err != nil {
		return extension.State{}, core.Errorf(core.CodeInvalidTemplate, "%s: %w", a.what, err)
	}
	var would *unstructured.Unstructured
	err = pastOwnPolicy(ctx, r.Owner, func() (err error) {
		would, _, err = t.c.apply(ctx, a, o, true)
		return err
	})
	if isNotFound(err) { // its namespace, which the same template may make
		return named, nil
	}
	if err != nil {
		return extension.State{}, t.c.fault(ctx, err, "preview", a.what)
	}
	if live == nil {
		would.SetUID("") // the server makes one up for a dry run
	}
	return extension.State{Ref: t.c.ref(would, r.Owner), Properties: content(would)}, nil
}

// Get implements extension.Target.
func (t *Target) Get(ctx context.Context, ref extension.Ref) (extension.State, error) {
	a, err := t.find(ctx, ref)
	if err != nil {
		return extension.State{}, err
	}
	if err := t.c.sameCluster(ctx, ref, "read", a.what); err != nil {
		return extension.State{}, err
	}
	read := a.client.Get
	if isReview(a.gvk.GroupKind()) {
		read = a.review
	}
	live, err := read(ctx, a.object.GetName(), metav1.GetOptions{})
	if err != nil {
		return extension.State{}, t.c.fault(ctx, err, "read", a.what)
	}
	return extension.State{Ref: t.c.ref(live, ref.Owner), Properties: content(live)}, nil
}

// find addresses the object of a reference. Its kind and group are read without
// case, and its version is the cluster's choice when the reference's is not
// served.
func (t *Target) find(ctx context.Context, ref extension.Ref) (addressed, error) {
	namespace, name, err := identifiers(ref)
	if err != nil {
		return addressed{}, err
	}
	gvk, err := groupVersionKind(ref.Type, ref.APIVersion)
	if err != nil {
		return addressed{}, err
	}
	gvk, k, err := t.c.lookupAny(ctx, gvk)
	if err != nil {
		return addressed{}, err
	}
	if !k.namespaced {
		namespace = "" // ids of custom kinds may carry the import's
	} else if namespace == "" {
		if namespace = t.namespace; namespace == "" {
			return addressed{}, core.Errorf(core.CodeInvalidTemplate, "the id of %s %s names no namespace, and neither does its import", gvk.Kind, name)
		}
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(gvk)
	o.SetName(name)
	o.SetNamespace(namespace)
	return t.at(gvk, k, o), nil
}
