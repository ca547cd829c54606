package kubernetes

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// OwnerKey is the annotation with the id of the resource that an object is
// made for, and the label with a hash of it (an id is too long for a label):
// kubectl get all -l radapp.io/resource-id=<hash>.
const OwnerKey = radapp.AnnotationOwner

// KeepKey is an annotation of Secrets: the keys of its data, separated by
// commas, that keep the value they have in the cluster. A template gives them
// a generated value, which counts only when the Secret has none yet. It is how
// a password made with newGuid() stays the same through every later run.
const KeepKey = "radapp.io/keep"

// OwnerHash is the label's value for an id.
func OwnerHash(id core.ID) string {
	sum := sha256.Sum256([]byte(id.Key()))
	return hex.EncodeToString(sum[:16])
}

// ReadyTimeoutKey is an annotation that bounds the wait until an object is
// ready: a duration such as 90s or 30m, at most [maxReadyTimeout].
const ReadyTimeoutKey = radapp.AnnotationReadyTimeout

// keepsValues reports whether a Secret gives values that count only when it has
// none: what it has must be read first.
func keepsValues(o *unstructured.Unstructured) bool { return o.GetAnnotations()[KeepKey] != "" }

// isGuest reports whether a plain deployment changes what somebody else made.
func isGuest(live *unstructured.Unstructured, owner core.ID) bool {
	return owner.IsZero() && !isOurs(live)
}

// isOurs reports whether a template of ours made the object. What it only changes,
// it changes under another name ([GuestManager]).
func isOurs(o *unstructured.Unstructured) bool {
	for _, f := range o.GetManagedFields() {
		if f.Manager == FieldManager && f.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	return false
}

func equalFold(a, b string) bool { return strings.EqualFold(a, b) }

// ownerOf reads the stamp; "" if there is none.
func ownerOf(o *unstructured.Unstructured) string { return o.GetAnnotations()[OwnerKey] }

func isOwner(o *unstructured.Unstructured, id core.ID) bool {
	return !id.IsZero() && strings.EqualFold(ownerOf(o), id.String())
}

// stamp marks an object for its owner.
func stamp(o *unstructured.Unstructured, id core.ID) {
	if id.IsZero() {
		return
	}
	annotations, labels := o.GetAnnotations(), o.GetLabels()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if labels == nil {
		labels = map[string]string{}
	}
	annotations[OwnerKey] = id.String()
	labels[OwnerKey] = OwnerHash(id)
	o.SetAnnotations(annotations)
	o.SetLabels(labels)
}

func isSecret(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Secret"}
}

// prepareSecret writes a Secret's stringData as data, as the server would: then
// the same field is ours in every run. Keys that KeepKey names get the value
// that live, the Secret as it stands, has for them.
func prepareSecret(o, live *unstructured.Unstructured) error {
	if !isSecret(o) {
		return nil
	}
	given, _, err := unstructured.NestedStringMap(o.Object, "stringData")
	if err != nil {
		return errors.New("stringData must be an object of strings")
	}
	unstructured.RemoveNestedField(o.Object, "stringData")
	for key, text := range given {
		if err := unstructured.SetNestedField(o.Object, base64.StdEncoding.EncodeToString([]byte(text)), "data", key); err != nil {
			return errors.New("data must be an object")
		}
	}
	names, ok := o.GetAnnotations()[KeepKey]
	if !ok || live == nil {
		return nil
	}
	for key := range strings.SplitSeq(names, ",") {
		key = strings.TrimSpace(key)
		value, found, err := unstructured.NestedString(live.Object, "data", key)
		if err != nil || !found {
			continue // made for the first time
		}
		if err := unstructured.SetNestedField(o.Object, value, "data", key); err != nil {
			return errors.New("data must be an object")
		}
	}
	return nil
}

// ref makes the reference of an object.
func (c *Cluster) ref(o *unstructured.Unstructured, owner core.ID) extension.Ref {
	gvk := o.GroupVersionKind()
	group := gvk.Group
	if group == "" {
		group = "core"
	}
	meta := map[string]string{"name": o.GetName()}
	if ns := o.GetNamespace(); ns != "" {
		meta["namespace"] = ns
	}
	ids, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		panic(err) // two strings
	}
	ref := extension.Ref{
		ID:          core.KubernetesID(c.name, o.GetNamespace(), gvk.Group, gvk.Kind, o.GetName()),
		Type:        group + "/" + gvk.Kind,
		APIVersion:  gvk.Version,
		Identifiers: ids,
		UID:         string(o.GetUID()),
		Owner:       owner,
	}
	if id := c.knownIdentity(); id != nil {
		ref.ConfigID = id.uid
	}
	return ref
}

// identifiers reads what ref wrote.
func identifiers(ref extension.Ref) (namespace, name string, err error) {
	var ids struct {
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(ref.Identifiers, &ids); err != nil || ids.Metadata.Name == "" {
		return "", "", core.Errorf(core.CodeInternal, "the record of %s does not name its object", ref.ID).WithTarget(ref.ID.String())
	}
	return ids.Metadata.Namespace, ids.Metadata.Name, nil
}

// content is an object as it is answered: without the bookkeeping of managers,
// which is often the larger part of it.
func content(o *unstructured.Unstructured) map[string]any {
	unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
	return o.Object
}
