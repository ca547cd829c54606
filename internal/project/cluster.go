package project

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/core"
)

// cluster is the one that services run in, as the control plane may use it. It
// reads no Secret: the answers to its patches are metadata only.
type cluster struct {
	config   *rest.Config
	dynamic  dynamic.Interface
	metadata metadata.Interface
}

var (
	namespaces    = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	secrets       = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	ankkaProjects = v1alpha1.GroupVersion.WithResource("ankkaprojects")
	ankkaServices = v1alpha1.GroupVersion.WithResource("ankkaservices")
)

func connect(config *rest.Config) (*cluster, error) {
	if config == nil {
		return nil, errors.New("services need a cluster to run in, and the server has none: name it by --kubeconfig")
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	m, err := metadata.NewForConfig(config)
	return &cluster{config: config, dynamic: d, metadata: m}, err
}

// fieldManager is the control plane's in server-side applies.
const fieldManager = v1alpha1.FieldManagerControlPlane

func (c *cluster) apply(ctx context.Context, r schema.GroupVersionResource, u *unstructured.Unstructured) error {
	_, err := c.dynamic.Resource(r).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// ensureNamespace makes the namespace of a project. One that stands there for
// somebody else is not taken over.
func (c *cluster) ensureNamespace(ctx context.Context, project string) error {
	name := v1alpha1.Namespace(project)
	have, err := c.dynamic.Resource(namespaces).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case have.GetLabels()[v1alpha1.LabelProject] != project:
		return core.Errorf(core.CodeConflict, "namespace %s exists in the cluster and is not the project's: choose another id, or have whoever is responsible for the namespace label it %s=%s", name, v1alpha1.LabelProject, project).WithTarget(name)
	}
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("Namespace")
	u.SetName(name)
	u.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelProject: project})
	return c.apply(ctx, namespaces, u)
}

// object is what is applied of a typed object: what its author says, and nothing
// that others own.
func object(o runtime.Object, drop ...[]string) (*unstructured.Unstructured, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	for _, path := range append(drop, []string{"status"}, []string{"metadata", "creationTimestamp"}) {
		unstructured.RemoveNestedField(m, path...)
	}
	return &unstructured.Unstructured{Object: m}, nil
}

// remove deletes an object of a project's namespace and waits until it is gone,
// with all that it owned: who makes one of its name afterwards meets nothing of it.
func (c *cluster) remove(ctx context.Context, r schema.GroupVersionResource, namespace, name string) error {
	at := c.dynamic.Resource(r).Namespace(namespace)
	foreground := metav1.DeletePropagationForeground
	err := at.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &foreground})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for {
		have, err := at.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if have.GetDeletionTimestamp() == nil {
			return nil // another one of its name
		}
		w, err := at.Watch(ctx, metav1.ListOptions{ResourceVersion: have.GetResourceVersion(), FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
		if err != nil {
			return err
		}
		for e := range w.ResultChan() {
			if e.Type == "DELETED" {
				w.Stop()
				return nil
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// errForeignSecret is that a Secret of the name stands there and is not the
// project's: of a chart, say, that is deployed beside its services.
func errForeignSecret(project, name string) error {
	return core.Errorf(core.CodeConflict, "a Secret named %s exists in namespace %s and is not the project's: choose another name", name, v1alpha1.Namespace(project)).WithTarget(name)
}

// setSecret merges entries into a project secret; nil removes one. One that is
// not the project's is left alone. What comes back holds no value.
func (c *cluster) setSecret(ctx context.Context, project, name string, entries map[string]*string) error {
	at := c.metadata.Resource(secrets).Namespace(v1alpha1.Namespace(project))
	labels := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelProject: project}
	data := map[string]any{}
	text := map[string]string{}
	for k, v := range entries {
		if v == nil {
			data[k] = nil
			continue
		}
		data[k] = []byte(*v)
		text[k] = *v
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}, "data": data})
	if err != nil {
		return err
	}
	// No Secret can be read. A patch that tests and changes nothing tells whose
	// this one is.
	mine, err := json.Marshal([]map[string]any{{"op": "test", "path": "/metadata/labels/" + strings.ReplaceAll(v1alpha1.LabelProject, "/", "~1"), "value": project}})
	if err != nil {
		return err
	}
	for range 3 {
		_, err = at.Patch(ctx, name, types.JSONPatchType, mine, metav1.PatchOptions{FieldManager: fieldManager})
		switch {
		case apierrors.IsInvalid(err):
			return errForeignSecret(project, name)
		case err == nil:
			_, err = at.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		}
		if !apierrors.IsNotFound(err) {
			return withoutValues(err)
		}
		// The metadata client cannot create; the answer to a create repeats what was
		// sent and nothing else.
		made := &unstructured.Unstructured{}
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.Namespace(project), Labels: labels},
			StringData: text, Type: corev1.SecretTypeOpaque,
		})
		if err != nil {
			return err
		}
		made.Object = raw
		unstructured.RemoveNestedField(made.Object, "metadata", "creationTimestamp")
		_, err = c.dynamic.Resource(secrets).Namespace(v1alpha1.Namespace(project)).Create(ctx, made, metav1.CreateOptions{FieldManager: fieldManager})
		if !apierrors.IsAlreadyExists(err) {
			return withoutValues(err)
		}
	}
	return core.Errorf(core.CodeUnavailable, "secret %s is made and removed by others at this moment: try again", name)
}

// withoutValues is an error of a write of a Secret, whose text could repeat what
// was sent.
func withoutValues(err error) error {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) {
		return err
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: status.Status().Code, Reason: status.Status().Reason, Details: nil,
		Message: fmt.Sprintf("the cluster refused the write of the Secret (%s)", status.Status().Reason),
	}}
}

// passing reports whether an error may be gone the next time.
func passing(err error) bool {
	if err == nil {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		var own *core.Error
		return !errors.As(err, &own) // no answer at all
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsConflict(err) || apierrors.IsUnauthorized(err)
}

// pauses between attempts while the cluster does not answer.
const (
	firstPause = 200 * time.Millisecond
	longPause  = 15 * time.Second
)

// persist does something in the cluster until it is done, or refused for good:
// a cluster that is away for an hour is waited for. say is told of the first
// failure, and of each that is another.
func persist(ctx context.Context, say func(string), do func(context.Context) error) error {
	last := ""
	for pause := firstPause; ; pause = min(pause*2, longPause) {
		err := do(ctx)
		if !passing(err) {
			return refusal(err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if text := v1alpha1.Clean(err.Error()); text != last {
			last = text
			say("the cluster does not answer and is asked again: " + text)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// refusal is what the cluster refused, as an error of ours.
func refusal(err error) error {
	var own *core.Error
	var status apierrors.APIStatus
	switch {
	case err == nil, errors.As(err, &own):
		return err
	case errors.As(err, &status) && apierrors.IsForbidden(err):
		return core.Errorf(core.CodeForbidden, "the cluster does not let the control plane do this: %s", v1alpha1.Clean(err.Error()))
	case errors.As(err, &status):
		return core.Errorf(core.CodeInvalidContent, "the cluster refused it: %s", v1alpha1.Clean(err.Error()))
	}
	return err
}
