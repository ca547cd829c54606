package kubernetes

import (
	"context"
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// onlyIfAbsent is the resourceVersion of an object that is to be made, not
// changed: server-side apply compares the version of an apply with that of the
// object and refuses another one, and no object ever has this one (it is that of
// an empty store). Without an object there is nothing to compare with.
const onlyIfAbsent = "1"

// request addresses an object for the calls of which the answer matters more
// than the typed clients show: whether an apply made the object, and what a
// deletion left.
func (c *Cluster) request(r *rest.Request, a addressed) *rest.Request {
	return c.collection(r, a).Name(a.object.GetName())
}

// collection addresses all objects of the kind and namespace of one.
func (c *Cluster) collection(r *rest.Request, a addressed) *rest.Request {
	if a.gvk.Group == "" {
		r = r.AbsPath("/api", a.gvk.Version)
	} else {
		r = r.AbsPath("/apis", a.gvk.Group, a.gvk.Version)
	}
	if a.kind.namespaced {
		r = r.Namespace(a.object.GetNamespace())
	}
	return r.Resource(a.kind.resource)
}

// apply writes o under our field manager, never forced. created tells that it
// was not there before.
func (c *Cluster) apply(ctx context.Context, a addressed, o *unstructured.Unstructured, dryRun bool) (made *unstructured.Unstructured, created bool, err error) {
	body, err := json.Marshal(o.Object)
	if err != nil {
		return nil, false, err
	}
	r := c.request(c.rest.Patch(types.ApplyYAMLPatchType), a).Param("fieldManager", a.manager())
	if dryRun {
		r = r.Param("dryRun", metav1.DryRunAll)
	}
	var status int
	answer := r.Body(body).Do(ctx).StatusCode(&status)
	raw, err := answer.Raw()
	if err != nil {
		return nil, false, answerError(answer, err)
	}
	made, err = decode(raw)
	return made, status == http.StatusCreated, err
}

// remove deletes the object with that uid (any, if it is ""). left is the object
// as the deletion left it, nil when it is gone.
func (c *Cluster) remove(ctx context.Context, a addressed, uid types.UID) (left *unstructured.Unstructured, err error) {
	policy := propagation(a.gvk)
	o := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}, PropagationPolicy: &policy}
	if uid != "" {
		o.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	body, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	answer := c.request(c.rest.Delete(), a).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx)
	raw, err := answer.Raw()
	if err != nil {
		return nil, answerError(answer, err)
	}
	o2, err := decode(raw)
	if err != nil || o2.GetKind() == "Status" {
		return nil, err // it was deleted at once
	}
	return o2, nil
}

// answerError is the error of an answer, read from its body where it has one.
func answerError(answer rest.Result, err error) error {
	if of := answer.Error(); of != nil {
		return of
	}
	return err
}

func decode(raw []byte) (*unstructured.Unstructured, error) {
	o, _, err := unstructured.UnstructuredJSONScheme.Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u, nil
	}
	return &unstructured.Unstructured{Object: map[string]any{"kind": "Status"}}, nil
}
