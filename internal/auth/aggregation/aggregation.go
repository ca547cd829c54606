// Package aggregation lets the control plane stand behind the Kubernetes
// aggregation layer, for clients that know no other way in (the Radius CLI).
//
// It is an option. An aggregated API that is down holds up the deletion of
// every namespace in the cluster, has its streams cut at 60 seconds, and spends
// request seats that all share; so a held poll is capped there and streams are
// refused (package auth).
package aggregation

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/core"
)

// The group and version under which the API is aggregated.
const (
	Group   = "api.ucp.dev"
	Version = "v1alpha3"
)

// Handler answers what the Kubernetes API server asks of an aggregated API, and
// hands everything else to next. There are no Kubernetes resources in the
// group, so that discovery, garbage collection and the deletion of namespaces
// find nothing to walk through.
func Handler(next http.Handler) http.Handler {
	version := metav1.GroupVersionForDiscovery{GroupVersion: Group + "/" + Version, Version: Version}
	group := metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: Group,
		Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
	answers := map[string]any{
		"/apis":          metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group}},
		"/apis/" + Group: group,
		arm.Prefix: metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: version.GroupVersion, APIResources: []metav1.APIResource{}},
		"/openapi/v2": map[string]any{"swagger": "2.0", "info": map[string]string{"title": "Radial", "version": core.Version}, "paths": map[string]any{}},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[strings.TrimRight(r.URL.Path, "/")]
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET")
			arm.WriteError(w, core.Errorf(core.CodeMethodNotAllowed, "The request method '%s' is invalid. It may be one of GET.", r.Method))
			return
		}
		_ = arm.WriteJSON(w, http.StatusOK, answer)
	})
}

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// Name of the APIService.
const Name = Version + "." + Group

// Service is where the API server finds the control plane.
type Service struct {
	Namespace, Name string
	Port            int64
}

// Register makes or updates the APIService, with the bundle of authorities that
// signs the server's certificate. It takes over nobody's: an APIService that
// leads to another Service is left alone, which the error says.
func Register(ctx context.Context, client dynamic.Interface, s Service, bundle []byte) error {
	services := client.Resource(apiServices)
	there, err := services.Get(ctx, Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	default:
		namespace, _, _ := unstructured.NestedString(there.Object, "spec", "service", "namespace")
		name, _, _ := unstructured.NestedString(there.Object, "spec", "service", "name")
		if namespace != s.Namespace || name != s.Name {
			return core.Errorf(core.CodeConflict, "APIService %s leads to the Service %s/%s, not to %s/%s: delete it to let Radial answer there (an installation of Radius may use it)",
				Name, namespace, name, s.Namespace, s.Name)
		}
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": Name, "labels": map[string]any{"app.kubernetes.io/part-of": "radial"}},
		"spec": map[string]any{
			"group": Group, "version": Version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(15),
			"service":  map[string]any{"namespace": s.Namespace, "name": s.Name, "port": s.Port},
			"caBundle": bundle64(bundle),
		},
	}}
	_, err = services.Apply(ctx, Name, o, metav1.ApplyOptions{FieldManager: "radial-server", Force: true})
	return err
}

func bundle64(bundle []byte) string { return base64.StdEncoding.EncodeToString(bundle) }
