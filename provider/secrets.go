package provider

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// metadataOnly has the API server answer a write without what is in the object.
const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// secretWriter is all that a provider does to Secrets. It has no way to read
// one (C-115): not even answers are looked at but for whether they are errors.
type secretWriter struct{ rest rest.Interface }

func newSecretWriter(c *rest.Config, h *http.Client) (*secretWriter, error) {
	c = rest.CopyConfig(c)
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	c.GroupVersion, c.APIPath = &corev1.SchemeGroupVersion, "/api"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = "", ""
	r, err := rest.RESTClientForConfigAndClient(c, h)
	if err != nil {
		return nil, err
	}
	return &secretWriter{r}, nil
}

// secretRef names a Secret and says whose it is.
type secretRef struct {
	namespace, name string
	subject         v1alpha1.Subject
}

// create makes the Secret, which must not be there: AlreadyExists otherwise,
// and nothing is changed (C-118).
func (w *secretWriter) create(ctx context.Context, at secretRef, annotations map[string]string, data map[string][]byte) error {
	labels := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelProject: at.subject.Project}
	if at.subject.Service != "" {
		labels[v1alpha1.LabelService] = at.subject.Service
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
		"metadata": map[string]any{"name": at.name, "namespace": at.namespace, "annotations": annotations, "labels": labels},
	})
	if err != nil {
		return err
	}
	return w.rest.Post().Namespace(at.namespace).Resource("secrets").
		SetHeader("Accept", metadataOnly).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}

// patchOp is one operation of a JSON patch.
type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func (w *secretWriter) patch(ctx context.Context, at secretRef, ops ...patchOp) error {
	body, err := json.Marshal(ops)
	if err != nil {
		return err
	}
	return w.rest.Patch(types.JSONPatchType).Namespace(at.namespace).Resource("secrets").Name(at.name).
		SetHeader("Accept", metadataOnly).Body(body).Do(ctx).Error()
}

var credentialIDPath = "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationCredentialID, "/", "~1")

func holdsCredential(id string) patchOp { return patchOp{"test", credentialIDPath, id} }

// fate is what a test of a Secret's annotation told.
type fate int

const (
	absent fate = iota // there is no Secret
	other              // it holds something else
	held               // it holds the credential
)

// holds tells whether the Secret holds the credential of this id, by a patch
// that tests the annotation and changes nothing.
func (w *secretWriter) holds(ctx context.Context, at secretRef, id string) (fate, error) {
	return told(w.patch(ctx, at, holdsCredential(id)))
}

// told is what the answer to a patch says whose first operation is such a test.
func told(err error) (fate, error) {
	switch {
	case err == nil:
		return held, nil
	case apierrors.IsNotFound(err):
		return absent, nil
	case apierrors.IsInvalid(err):
		return other, nil
	}
	return 0, err
}

// replaceCredential puts a credential into the Secret that holds the one of id
// before: absent or other otherwise, and nothing is changed.
func (w *secretWriter) replaceCredential(ctx context.Context, at secretRef, before string, c Credential) (fate, error) {
	return told(w.patch(ctx, at, holdsCredential(before),
		patchOp{"replace", credentialIDPath, c.ID},
		patchOp{"add", "/data/" + v1alpha1.EntryAccessKey, []byte(c.AccessKey)},
		patchOp{"add", "/data/" + v1alpha1.EntrySecretKey, []byte(c.SecretKey)}))
}

// overwriteCredential puts a credential into a Secret of which nothing is known
// but that it is there: one that somebody else had made.
func (w *secretWriter) overwriteCredential(ctx context.Context, at secretRef, c Credential) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{v1alpha1.AnnotationCredentialID: c.ID}},
		"data":     credentialData(c),
	})
	if err != nil {
		return err
	}
	return w.rest.Patch(types.MergePatchType).Namespace(at.namespace).Resource("secrets").Name(at.name).
		SetHeader("Accept", metadataOnly).Body(body).Do(ctx).Error()
}

// replaceData makes data all that the Secret holds.
func (w *secretWriter) replaceData(ctx context.Context, at secretRef, data map[string][]byte) error {
	return w.patch(ctx, at, patchOp{"add", "/data", data})
}

func credentialData(c Credential) map[string][]byte {
	return map[string][]byte{v1alpha1.EntryAccessKey: []byte(c.AccessKey), v1alpha1.EntrySecretKey: []byte(c.SecretKey)}
}
