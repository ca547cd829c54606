package setup

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/internal/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// hold is the time for which an API server holds up the first objects of a new kind. It sleeps for that long, so
// a request that took less was not held.
const hold = 2 * time.Second

// The first Recipe after an installation takes no longer than the next. The policies are from an installation
// before, as after an upgrade, so that the wait for them covers nothing.
func TestAwaitUse_TakesTheFirstRecipe(t *testing.T) {
	cluster := clustertest.Start(t)
	dyn, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	install := func() {
		t.Helper()
		if _, err := Install(t.Context(), cluster.Config, installation.Files); err != nil {
			t.Fatal(err)
		}
		if err := AwaitUse(t.Context(), cluster.Config); err != nil {
			t.Fatal(err)
		}
	}
	install()
	removeKind(t, dyn, "recipes.radapp.io")
	install()

	ns := cluster.Namespace(t, "first")
	create := func(name string) time.Duration {
		t.Helper()
		recipe := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": radapp.GroupVersion.String(), "kind": "Recipe", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"type": "Applications.Datastores/redisCaches"},
		}}
		begun := time.Now()
		if _, err := dyn.Resource(radapp.GroupVersion.WithResource("recipes")).Namespace(ns).Create(t.Context(), recipe, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		return time.Since(begun)
	}
	first, second := create("first"), create("second")
	switch {
	case second >= hold:
		t.Skipf("this machine is too busy to tell: the first Recipe took %s, the second %s", first, second)
	case first >= hold:
		t.Errorf("the API server held up the first Recipe: it took %s, the second %s", first, second)
	}
}

// Whoever applies the same files by other means, as kubectl or Helm do, has no conflict with radial init: nothing
// in them is left for the API server to fill in.
func TestInstall_AgreesWithOtherAppliers(t *testing.T) {
	cluster := clustertest.Start(t)
	if _, err := Install(t.Context(), cluster.Config, installation.Files); err != nil {
		t.Fatal(err)
	}
	objects, err := readManifests(installation.Files)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			t.Fatal(err)
		}
		var client dynamic.ResourceInterface = dyn.Resource(mapping.Resource)
		if o.GetNamespace() != "" {
			client = dyn.Resource(mapping.Resource).Namespace(o.GetNamespace())
		}
		if _, err := client.Apply(t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "kubectl", DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// removeKind deletes a kind and waits until it is gone.
func removeKind(t *testing.T, dyn dynamic.Interface, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), establishLimit)
	defer cancel()
	client := dyn.Resource(crds)
	w, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	for e := range w.ResultChan() {
		if e.Type == watch.Deleted {
			return
		}
	}
	t.Fatalf("%s was not removed", name)
}
