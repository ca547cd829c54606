package adopt

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/internal/core"
)

// A connection Secret is immutable and named by its content, so that an old
// ReplicaSet, and a rollback to it, finds what it ran with (K-46). Who owns it
// decides how long it lives, and the garbage collector does the rest: the
// Deployment while its template refers to it, afterwards the ReplicaSets that
// still do. The controller therefore neither lists nor watches Secrets.

// owner is an entry of ownerReferences. blockOwnerDeletion is not set: nothing
// waits for a Secret.
func owner(kind, name string, uid types.UID) map[string]any {
	return map[string]any{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": string(uid)}
}

// ensureSecret makes the Secret that an injection refers to, or takes an equal
// one back into the Deployment's hands.
func (r *Reconciler) ensureSecret(ctx context.Context, d *appsv1.Deployment, name string, data map[string]string) error {
	have := new(corev1.Secret)
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: d.Namespace, Name: name}, have)
	switch {
	case apierrors.IsNotFound(err):
		have = nil
	case err != nil:
		return err
	case !holdsData(have, data):
		// Named by its content, this one was made by somebody else.
		return core.Errorf(core.CodeConflict,
			"Secret %s/%s has the name of connection data and other content; delete it, and the controller makes its own", d.Namespace, name)
	case have.DeletionTimestamp == nil && slices.ContainsFunc(have.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == d.UID }):
		return nil
	}
	return r.applySecret(ctx, d.Namespace, name, data, have, []any{owner("Deployment", d.Name, d.UID)})
}

func holdsData(s *corev1.Secret, data map[string]string) bool {
	return maps.EqualFunc(s.Data, data, func(a []byte, b string) bool { return string(a) == b })
}

// applySecret writes a connection Secret. Of one that exists only the owners
// are applied anew: its data is immutable and equal.
func (r *Reconciler) applySecret(ctx context.Context, namespace, name string, data map[string]string, have *corev1.Secret, owners []any) error {
	metadata := map[string]any{
		"name": name, "namespace": namespace, "ownerReferences": owners,
		"labels": map[string]any{"app.kubernetes.io/managed-by": FieldManager},
	}
	if have != nil {
		metadata["uid"], metadata["resourceVersion"] = string(have.UID), have.ResourceVersion
	}
	content := make(map[string]any, len(data))
	for k, v := range data {
		content[k] = base64.StdEncoding.EncodeToString([]byte(v))
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": string(corev1.SecretTypeOpaque),
		"immutable": true, "metadata": metadata, "data": content}}
	return r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldManager), client.ForceOwnership)
}

// retire lets go of the connection Secrets that the template does not refer to
// any more: with no ReplicaSet that does, they go at once, otherwise with the
// last of those. before are names that the template referred to until now.
//
// settled says that the Deployment controller has seen every earlier template
// or was kept from it by a pause, so that no ReplicaSet is still to come. When
// it is not, what nothing refers to is kept, and retire answers false: look
// again.
func (r *Reconciler) retire(ctx context.Context, d *appsv1.Deployment, settled bool, before []string) (bool, error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return true, nil // the API server would not have let it in
	}
	sets := new(appsv1.ReplicaSetList)
	if err := r.Reader.List(ctx, sets, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return false, err
	}
	users := make(map[string][]any)
	for _, name := range before {
		users[name] = nil
	}
	for i := range sets.Items {
		rs := &sets.Items[i]
		if ref := metav1.GetControllerOf(rs); ref == nil || ref.UID != d.UID {
			continue
		}
		for _, name := range secretsOf(d.Name, &rs.Spec.Template) {
			users[name] = append(users[name], owner("ReplicaSet", rs.Name, rs.UID))
		}
	}
	for _, name := range secretsOf(d.Name, &d.Spec.Template) {
		delete(users, name)
	}
	all := true
	for _, name := range sortedKeys(users) {
		have := new(corev1.Secret)
		err := r.Reader.Get(ctx, types.NamespacedName{Namespace: d.Namespace, Name: name}, have)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(have.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == d.UID }) {
			continue // retired before, or never ours
		}
		switch {
		case len(users[name]) > 0:
			data := make(map[string]string, len(have.Data))
			for k, v := range have.Data {
				data[k] = string(v)
			}
			err = r.applySecret(ctx, d.Namespace, name, data, have, users[name])
		case settled:
			err = r.Client.Delete(ctx, have, client.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion})
		default:
			all = false
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
	}
	return all, nil
}
