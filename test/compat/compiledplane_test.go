package compat

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/container"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/ocitest"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/recipe/template"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/servertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// peerRegistry is where the peer publishes its recipes, and what its own tests
// deploy with.
const peerRegistry = "ghcr.io/radius-project"

// real is a control plane whose recipes come from a registry, and whose
// templates and recipes make their objects in a cluster.
type real struct {
	*plane
	objects  dynamic.Interface
	registry string
}

// mirrored fetches from the test's registry what the peer's templates name.
type mirrored struct {
	*oci.Fetcher
	registry string
}

func (m mirrored) Fetch(ctx context.Context, r oci.Reference) (oci.Content, error) {
	if rest, ok := strings.CutPrefix(r.Path, peerRegistry); ok {
		r.Path, r.PlainHTTP = m.registry+rest, true
	}
	return m.Fetcher.Fetch(ctx, r)
}

// startReal starts the plane, and gives it the types that the checkouts declare
// and the cluster the kinds of what the peer's environment installs.
func startReal(t *testing.T, root string) *real {
	t.Helper()
	cluster := clustertest.Start(t)
	config := *cluster.Config
	config.QPS = -1
	objects, err := dynamic.NewForConfig(&config)
	if err != nil {
		t.Fatal(err)
	}
	r := &real{objects: objects, registry: ocitest.Registry(t, "")}
	fetcher := mirrored{oci.New(oci.Options{}), r.registry}
	resolver := scope.NewResolver(map[string]scope.Connect{core.LocalCluster: func(context.Context) (*kubernetes.Cluster, error) {
		return kubernetes.New(core.LocalCluster, &config, kubernetes.Options{})
	}})
	r.plane = &plane{t: t, Plane: servertest.StartWith(t, func(o *server.Options) {
		o.Types = manifest.NewRegistry(manifest.Builtin()...)
		driver := template.New(template.Options{Fetcher: fetcher, Resolver: resolver, Now: time.Now, NewGUID: uuid.NewString})
		o.Recipes = recipe.NewEngine(recipe.Options{
			Drivers:  map[string]recipe.Driver{"bicep": driver, "template": driver},
			Rendered: container.Drivers(container.NewRenderer(container.RendererOptions{Resolver: resolver})), Canonical: o.Types.Canonical,
			Load: func(ctx context.Context, id core.ID) (core.Resource, error) {
				res, _, err := o.Store.Get(ctx, id)
				return res, err
			},
		})
		o.Deployments = server.DeploymentOptions{Resolver: resolver, Base: extension.Scope{Cluster: core.LocalCluster}}
	})}
	r.kinds()
	r.storage()
	r.types(root)
	return r
}

// kinds has the cluster know what Dapr and the Gateway API bring.
func (r *real) kinds() {
	r.t.Helper()
	crds := r.objects.Resource(schema.GroupVersionResource{Group: apiextensions.GroupName, Version: "v1", Resource: "customresourcedefinitions"})
	for _, k := range []struct{ group, version, kind, plural string }{
		{"dapr.io", "v1alpha1", "Component", "components"},
		{"gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes"},
		{"gateway.networking.k8s.io", "v1alpha2", "TLSRoute", "tlsroutes"},
		{"gateway.networking.k8s.io", "v1alpha2", "TCPRoute", "tcproutes"},
		{"gateway.networking.k8s.io", "v1alpha2", "UDPRoute", "udproutes"},
	} {
		name := k.plural + "." + k.group
		crd := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": name, "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, a test"}},
			"spec": map[string]any{
				"group": k.group, "scope": "Namespaced", "names": map[string]any{"kind": k.kind, "plural": k.plural},
				"versions": []any{map[string]any{"name": k.version, "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
			},
		}}
		if _, err := crds.Create(r.t.Context(), crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			r.t.Fatal(err)
		}
		w, err := crds.Watch(r.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			r.t.Fatal(err)
		}
		for event := range w.ResultChan() {
			o, _ := event.Object.(*unstructured.Unstructured)
			if strings.Contains(fmt.Sprint(o.Object["status"]), "type:Established") {
				break
			}
		}
		w.Stop()
	}
}

// storage makes the default class of claims, bound when a pod uses them, which
// clusters for development have, and a few volumes for it.
func (r *real) storage() {
	r.t.Helper()
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "example.com/none", "volumeBindingMode": "WaitForFirstConsumer",
		"metadata": map[string]any{"name": "standard", "annotations": map[string]any{"storageclass.kubernetes.io/is-default-class": "true"}}}}
	if _, err := r.objects.Resource(schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}).Create(r.t.Context(), class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		r.t.Fatal(err)
	}
	for i := range 4 {
		volume := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "PersistentVolume", "metadata": map[string]any{"name": fmt.Sprintf("standard-%d", i)},
			"spec": map[string]any{"storageClassName": "standard", "capacity": map[string]any{"storage": "20Gi"}, "accessModes": []any{"ReadWriteOnce"},
				"hostPath": map[string]any{"path": "/var/lib/standard"}}}}
		if _, err := r.objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}).Create(r.t.Context(), volume, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			r.t.Fatal(err)
		}
	}
}

// types registers every manifest that stands beside the templates.
func (r *real) types(root string) {
	r.t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "resource-types-contrib", "[A-Z]*", "*", "*.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(root, "radius", "test", "functional-portable", "dynamicrp", "noncloud", "resources", "testdata", "*.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, file := range slices.Concat(files, more) {
		if exit, out := createTypes(r.t, r.URL, file); exit != 0 {
			r.t.Errorf("%s is not registered: %s", file, out)
		}
	}
}

// publish pushes a compiled template as the peer's release would.
func (r *real) publish(name string, content []byte) {
	r.t.Helper()
	if _, err := oci.NewPublisher(nil).Publish(r.t.Context(), oci.Reference{Path: r.registry + "/" + name + ":latest", PlainHTTP: true}, content, true); err != nil {
		r.t.Fatalf("publish %s: %v", name, err)
	}
}

// namespace makes a namespace that is not there yet, as the peer and its tests
// do for environments and applications.
func (r *real) namespace(name string) {
	r.t.Helper()
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	_, err := r.objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(r.t.Context(), ns, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		r.t.Fatal(err)
	}
}

// owned are the objects of the cluster that deployments and recipes made, by
// kind, namespace and name, with their uids.
func (r *real) owned() map[string]string {
	r.t.Helper()
	found := map[string]string{}
	for _, kind := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "services"}, {Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "configmaps"},
		{Version: "v1", Resource: "persistentvolumeclaims"}, {Version: "v1", Resource: "serviceaccounts"},
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "statefulsets"},
		{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
		{Group: "dapr.io", Version: "v1alpha1", Resource: "components"},
		{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"},
	} {
		list, err := r.objects.Resource(kind).List(r.t.Context(), metav1.ListOptions{LabelSelector: kubernetes.OwnerKey})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, o := range list.Items {
			found[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = string(o.GetUID())
		}
	}
	return found
}

// apply puts an object of a kind of the core group, which a template expects.
func (r *real) apply(object map[string]any) {
	r.t.Helper()
	o := &unstructured.Unstructured{Object: object}
	r.namespace(o.GetNamespace())
	kind := schema.GroupVersionResource{Version: "v1", Resource: strings.ToLower(o.GetKind()) + "s"}
	if _, err := r.objects.Resource(kind).Namespace(o.GetNamespace()).Create(r.t.Context(), o, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		r.t.Fatal(err)
	}
}
