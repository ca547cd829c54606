package adopt

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
func applySet(d *appsv1.Deployment, finalizer bool, hash string, env entries) *unstructured.Unstructured {
	metadata := map[string]any{"name": d.Name, "namespace": d.Namespace, "uid": string(d.UID), "resourceVersion": d.ResourceVersion}
	if finalizer {
		metadata["finalizers"] = []any{Finalizer}
	}
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
func (r *Reconciler) apply(ctx context.Context, set *unstructured.Unstructured) (*appsv1.Deployment, error) {
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(set), client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
		return nil, err
	}
	return fromUnstructured(set)
}

func fromUnstructured(u *unstructured.Unstructured) (*appsv1.Deployment, error) {
	d := new(appsv1.Deployment)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
		return nil, fmt.Errorf("read the answer to an apply: %w", err)
	}
	return d, nil
}

// leftovers is a JSON patch that takes away entries of ours that should not be
// there and that an apply does not reach, because another tool that copied a
// template (kubectl rollout undo) owns them too. nil when there are none. Every
// removal tests what it removes.
func leftovers(d *appsv1.Deployment, finalizer bool, hash string, want entries) []byte {
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	var ops []op
	for field, list := range map[string][]corev1.Container{"containers": d.Spec.Template.Spec.Containers, "initContainers": d.Spec.Template.Spec.InitContainers} {
		for i, c := range list {
			wanted := func(v corev1.EnvVar) bool {
				return slices.ContainsFunc(want[c.Name], func(w corev1.EnvVar) bool {
					return w.Name == v.Name && w.ValueFrom.SecretKeyRef.Name == v.ValueFrom.SecretKeyRef.Name
				})
			}
			for j := len(c.Env) - 1; j >= 0; j-- { // from the end, so that indexes stay true
				if v := c.Env[j]; isOurs(d.Name, v) && !wanted(v) {
					path := fmt.Sprintf("/spec/template/spec/%s/%d/env/%d", field, i, j)
					ops = append(ops, op{"test", path + "/name", v.Name}, op{Op: "remove", Path: path})
				}
			}
		}
	}
	if have := d.Spec.Template.Annotations[AnnotationHash]; have != "" && hash == "" {
		ops = append(ops, op{Op: "remove", Path: "/spec/template/metadata/annotations/" + escape(AnnotationHash)})
	}
	if i := slices.Index(d.Finalizers, Finalizer); i >= 0 && !finalizer {
		path := fmt.Sprintf("/metadata/finalizers/%d", i)
		ops = append(ops, op{"test", path, Finalizer}, op{Op: "remove", Path: path})
	}
	if len(ops) == 0 {
		return nil
	}
	ops = append([]op{{"test", "/metadata/resourceVersion", d.ResourceVersion}}, ops...)
	return marshal(ops)
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

// bring makes a Deployment hold exactly an apply set and nothing else of ours.
func (r *Reconciler) bring(ctx context.Context, d *appsv1.Deployment, finalizer bool, hash string, env entries) (*appsv1.Deployment, error) {
	d, err := r.apply(ctx, applySet(d, finalizer, hash, env))
	if err != nil {
		return nil, err
	}
	if rest := leftovers(d, finalizer, hash, env); rest != nil {
		return r.patch(ctx, d, types.JSONPatchType, rest)
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

// pausedBySomeone reports whether a field manager declares the pause without
// declaring our mark beside it: a user's apply of paused: true over a held
// object leaves no other trace. One that applied both copied a held object.
func pausedBySomeone(d *appsv1.Deployment) bool {
	for _, m := range d.ManagedFields {
		if m.Operation != metav1.ManagedFieldsOperationApply || m.FieldsV1 == nil || m.Manager == FieldManager {
			continue
		}
		var f struct {
			Spec struct {
				Paused *struct{} `json:"f:paused"`
			} `json:"f:spec"`
			Metadata struct {
				Annotations map[string]json.RawMessage `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &f) != nil || f.Spec.Paused == nil {
			continue
		}
		if _, marked := f.Metadata.Annotations["f:"+AnnotationHeld]; !marked {
			return true
		}
	}
	return false
}
