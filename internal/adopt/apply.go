package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// entries are env entries of ours by container.
type entries map[string][]corev1.EnvVar

// wanted are the entries that an injection puts into a template.
func (inj Injection) wanted() entries {
	e := make(entries)
	for container, names := range inj.Variables {
		for _, name := range names {
			e[container] = append(e[container], corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: inj.Secret}, Key: name},
			}})
		}
	}
	return e
}

// present are the entries of ours that a template holds already.
func present(d *appsv1.Deployment) entries {
	e := make(entries)
	for _, c := range slices.Concat(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers) {
		for _, v := range c.Env {
			if isOurs(d.Name, v) {
				e[c.Name] = append(e[c.Name], v)
			}
		}
	}
	return e
}

// applySet is the whole of what the controller ever applies to a Deployment:
// the finalizer, the template's hash, and env entries. What is not in it and
// was before goes. The resourceVersion makes it a write to the object that was
// decided on, and to no later one.
func applySet(d *appsv1.Deployment, hash string, env entries) *unstructured.Unstructured {
	metadata := map[string]any{"name": d.Name, "namespace": d.Namespace, "uid": string(d.UID), "resourceVersion": d.ResourceVersion,
		"finalizers": []any{Finalizer}}
	template := map[string]any{}
	if hash != "" {
		template["metadata"] = map[string]any{"annotations": map[string]any{AnnotationHash: hash}}
	}
	pod := map[string]any{}
	for field, list := range map[string][]corev1.Container{"containers": d.Spec.Template.Spec.Containers, "initContainers": d.Spec.Template.Spec.InitContainers} {
		var applied []any
		for _, c := range list {
			if len(env[c.Name]) == 0 {
				continue
			}
			var vars []any
			for _, v := range env[c.Name] {
				ref := v.ValueFrom.SecretKeyRef
				vars = append(vars, map[string]any{"name": v.Name, "valueFrom": map[string]any{
					"secretKeyRef": map[string]any{"name": ref.Name, "key": ref.Key}}})
			}
			applied = append(applied, map[string]any{"name": c.Name, "env": vars})
		}
		if applied != nil {
			pod[field] = applied
		}
	}
	if len(pod) > 0 {
		template["spec"] = pod
	}
	object := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
	if len(template) > 0 {
		object["spec"] = map[string]any{"template": template}
	}
	return &unstructured.Unstructured{Object: object}
}

// apply writes an apply set and answers the object as it then is. Force, since
// an entry of ours that another tool copied is still ours by what it refers
// to; entries of users were left out of the set before.
func (r *Reconciler) apply(ctx context.Context, d *appsv1.Deployment, hash string, env entries) (*appsv1.Deployment, error) {
	d, err := r.relinquish(ctx, d)
	if err != nil {
		return nil, err
	}
	set := applySet(d, hash, env)
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(set), client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
		return nil, err
	}
	return fromUnstructured(set)
}

// relinquish gives up ownership of env entries that a user made their own in
// place: a write that replaced our valueFrom by a value left us the entry's
// key, and an apply without that entry would take the user's value away with
// it.
func (r *Reconciler) relinquish(ctx context.Context, d *appsv1.Deployment) (*appsv1.Deployment, error) {
	if len(takenOver(d)) == 0 {
		return d, nil
	}
	live := new(appsv1.Deployment) // the cache keeps no managedFields
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(d), live); err != nil {
		return nil, err
	}
	if live.UID != d.UID || live.DeletionTimestamp != nil || ObservedHash(live) != ObservedHash(d) {
		return nil, apierrors.NewConflict(appsv1.Resource("deployments"), d.Name, errors.New("it changed since it was read"))
	}
	ops := disown(live)
	if len(ops) == 0 {
		return live, nil
	}
	return r.patch(ctx, live, types.JSONPatchType, marshal(ops))
}

// takenOver are the env entries with names such as ours that are the user's.
func takenOver(d *appsv1.Deployment) map[string][]string {
	found := make(map[string][]string)
	for _, c := range slices.Concat(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers) {
		for _, v := range c.Env {
			if strings.HasPrefix(v.Name, "CONNECTION_") && !isOurs(d.Name, v) {
				found[c.Name] = append(found[c.Name], v.Name)
			}
		}
	}
	return found
}

// disown is the patch that takes entries of users out of what we are said to
// have applied; nil when none of them is.
func disown(d *appsv1.Deployment) []op {
	var ops []op
	for i, m := range d.ManagedFields {
		if m.Manager != FieldManager || m.Operation != metav1.ManagedFieldsOperationApply || m.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		owned := false
		for container, names := range takenOver(d) {
			for _, list := range []string{"f:containers", "f:initContainers"} {
				env, _, _ := unstructured.NestedMap(fields, "f:spec", "f:template", "f:spec", list, key(container), "f:env")
				for _, name := range names {
					if _, ok := env[key(name)]; ok {
						owned = true
						unstructured.RemoveNestedField(fields, "f:spec", "f:template", "f:spec", list, key(container), "f:env", key(name))
					}
				}
			}
		}
		if owned {
			ops = append(ops, op{Op: "replace", Path: fmt.Sprintf("/metadata/managedFields/%d/fieldsV1", i), Value: fields})
		}
	}
	if ops == nil {
		return nil
	}
	return append([]op{unchanged(d)}, ops...)
}

// key is how managedFields spell an item of a list by its name.
func key(name string) string { return fmt.Sprintf(`k:{"name":%s}`, marshal(name)) }

// op is one operation of a JSON patch.
type op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// unchanged makes a patch one of the very object that was looked at.
func unchanged(d *appsv1.Deployment) op {
	return op{"test", "/metadata/resourceVersion", d.ResourceVersion}
}

func fromUnstructured(u *unstructured.Unstructured) (*appsv1.Deployment, error) {
	d := new(appsv1.Deployment)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
		return nil, fmt.Errorf("read the answer to an apply: %w", err)
	}
	return d, nil
}

// leftovers are the operations that take away entries of ours that are not
// wanted, and the hash where none is. An apply reaches those that only we own;
// these reach all, also those that another tool copied with a template (kubectl
// rollout undo) and owns since.
func leftovers(d *appsv1.Deployment, hash string, want entries) []op {
	var ops []op
	for _, list := range []struct {
		field      string
		containers []corev1.Container
	}{{"containers", d.Spec.Template.Spec.Containers}, {"initContainers", d.Spec.Template.Spec.InitContainers}} {
		for i, c := range list.containers {
			wanted := func(v corev1.EnvVar) bool {
				return slices.ContainsFunc(want[c.Name], func(w corev1.EnvVar) bool {
					return w.Name == v.Name && w.ValueFrom.SecretKeyRef.Name == v.ValueFrom.SecretKeyRef.Name
				})
			}
			for j := len(c.Env) - 1; j >= 0; j-- { // from the end, so that indexes stay true
				if v := c.Env[j]; isOurs(d.Name, v) && !wanted(v) {
					ops = append(ops, op{Op: "remove", Path: fmt.Sprintf("/spec/template/spec/%s/%d/env/%d", list.field, i, j)})
				}
			}
		}
	}
	if d.Spec.Template.Annotations[AnnotationHash] != "" && hash == "" {
		ops = append(ops, op{Op: "remove", Path: "/spec/template/metadata/annotations/" + escape(AnnotationHash)})
	}
	return ops
}

// farewell is the patch that takes everything of ours off a Deployment, and
// the memory of it out of managedFields: nothing but that, whoever owns the
// fields by now. nil when there is nothing. status is what the annotation says
// afterwards, "" for no annotation.
func farewell(d *appsv1.Deployment, status string) []op {
	ops := leftovers(d, "", nil)
	if i := slices.Index(d.Finalizers, Finalizer); i >= 0 {
		ops = append(ops, op{Op: "remove", Path: fmt.Sprintf("/metadata/finalizers/%d", i)})
	}
	if have, ok := d.Annotations[AnnotationStatus]; ok && status == "" {
		ops = append(ops, op{Op: "remove", Path: "/metadata/annotations/" + escape(AnnotationStatus)})
	} else if status != "" && have != status {
		ops = append(ops, op{"add", "/metadata/annotations/" + escape(AnnotationStatus), status})
	}
	if _, marked := d.Annotations[AnnotationHeld]; marked {
		ops = append(ops, op{Op: "remove", Path: "/metadata/annotations/" + escape(AnnotationHeld)})
		if d.Spec.Paused {
			ops = append(ops, op{Op: "remove", Path: "/spec/paused"})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	for i := len(d.ManagedFields) - 1; i >= 0; i-- {
		if m := d.ManagedFields[i]; m.Manager == FieldManager && m.Subresource == "" {
			ops = append(ops, op{Op: "remove", Path: fmt.Sprintf("/metadata/managedFields/%d", i)})
		}
	}
	return append([]op{unchanged(d)}, ops...)
}

// escape writes a key as a segment of a JSON pointer.
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

func marshal(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("adopt: a patch that is no JSON: " + err.Error()) // strings and numbers
	}
	return raw
}

// patch sends a patch and answers the object as it then is.
func (r *Reconciler) patch(ctx context.Context, d *appsv1.Deployment, kind types.PatchType, data []byte) (*appsv1.Deployment, error) {
	out := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}
	if err := r.Client.Patch(ctx, out, client.RawPatch(kind, data), client.FieldOwner(FieldManager)); err != nil {
		return nil, err
	}
	return out, nil
}

// bring makes a Deployment hold exactly these entries of ours.
func (r *Reconciler) bring(ctx context.Context, d *appsv1.Deployment, hash string, env entries) (*appsv1.Deployment, error) {
	d, err := r.apply(ctx, d, hash, env)
	if err != nil {
		return nil, err
	}
	if rest := leftovers(d, hash, env); rest != nil {
		return r.patch(ctx, d, types.JSONPatchType, marshal(append([]op{unchanged(d)}, rest...)))
	}
	return d, nil
}

// annotate is the merge patch that writes annotations of ours: nil removes
// one. release takes the pause away in the same write, for the very object
// that was checked.
func annotate(d *appsv1.Deployment, annotations map[string]any, release bool) []byte {
	p := map[string]any{"metadata": map[string]any{"uid": string(d.UID), "annotations": annotations}}
	if release {
		p["metadata"].(map[string]any)["resourceVersion"] = d.ResourceVersion
		p["spec"] = map[string]any{"paused": nil}
	}
	return marshal(p)
}
