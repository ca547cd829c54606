package chart

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/radial-project/radial/internal/clustertest"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// warned keeps what the API server warns of.
type warned struct {
	mu   sync.Mutex
	text []string
}

// HandleWarningHeader implements [rest.WarningHandler].
func (w *warned) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (w *warned) said() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text
}

// monitored makes the kinds of the Prometheus operator. The API server only needs
// to know them; the expressions are checked elsewhere.
func monitored(t *testing.T, dyn dynamic.Interface, mapper *restmapper.DeferredDiscoveryRESTMapper) {
	t.Helper()
	for plural, kind := range map[string]string{"servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule"} {
		crd := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": plural + ".monitoring.coreos.com"},
			"spec": map[string]any{
				"group": "monitoring.coreos.com", "scope": "Namespaced",
				"names": map[string]any{"plural": plural, "kind": kind},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
			},
		}}
		crds := dyn.Resource(definitions)
		if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := watchtools.UntilWithSync(ctx, &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = fields.OneTermEqualSelector("metadata.name", crd.GetName()).String()
				return crds.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = fields.OneTermEqualSelector("metadata.name", crd.GetName()).String()
				return crds.Watch(ctx, o)
			},
		}, &unstructured.Unstructured{}, nil, func(e watch.Event) (bool, error) {
			o, _ := e.Object.(*unstructured.Unstructured)
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			for _, c := range conditions {
				if c := c.(map[string]any); c["type"] == "Established" && c["status"] == "True" {
					return true, nil
				}
			}
			return false, nil
		})
		if err != nil {
			t.Fatalf("%s: %v", crd.GetName(), err)
		}
	}
	mapper.Reset()
}

// The API server itself reads every object of every way to install the chart,
// and warns of nothing.
func TestServerSideDryRun(t *testing.T) {
	c := clustertest.Start(t)
	var warnings warned
	config := *c.Config
	config.WarningHandler = &warnings
	dyn, err := dynamic.NewForConfig(&config)
	if err != nil {
		t.Fatal(err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	clients, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	const namespace = "chart-dry-run"
	// The last two the chart makes itself where it installs services; a dry run makes nothing.
	platform := []string{"ankka-platform", "ankka-cloud-provider"}
	for _, name := range append([]string{namespace}, platform...) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted",
		}}}
		if _, err := clients.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	monitored(t, dyn, mapper)
	for name, text := range sets {
		t.Run(name, func(t *testing.T) {
			for _, o := range render(t, namespace, text) {
				gvk := o.GroupVersionKind()
				mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
				if err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
					continue
				}
				var client dynamic.ResourceInterface = dyn.Resource(mapping.Resource)
				if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
					// Whom the cluster trusts is to be read in one place only.
					if o.GetNamespace() != namespace && !(o.GetKind() == "RoleBinding" && o.GetNamespace() == "kube-system") && !slices.Contains(platform, o.GetNamespace()) {
						t.Errorf("%s %s goes to namespace %q", o.GetKind(), o.GetName(), o.GetNamespace())
					}
					client = dyn.Resource(mapping.Resource).Namespace(o.GetNamespace())
				}
				if o.GetKind() == "Namespace" && slices.Contains(platform, o.GetName()) {
					o.SetName(o.GetName() + "-dry-run") // this one is there
				}
				_, err = client.Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
				if err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
		})
	}
	for _, w := range warnings.said() {
		t.Errorf("the API server warns: %s", w)
	}
}

// The chart is installed, upgraded and taken away again on a cluster whose node
// says that every container runs.
func TestInstall(t *testing.T) {
	c := clustertest.Start(t)
	clients, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	const namespace = "chart-install"
	run := func(args ...string) {
		t.Helper()
		args = append(args, "--kubeconfig", c.Kubeconfig, "--namespace", namespace)
		if out, problems, err := helm(ctx, t, args...); err != nil {
			t.Fatalf("helm %s: %v\n%s\n%s", strings.Join(args, " "), err, out, problems)
		}
	}
	database := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "database"}, StringData: map[string]string{"url": "postgres://radial@db/radial", "key": "k"}}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if _, err := clients.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().Secrets(namespace).Create(ctx, database, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	available := func(want map[string]int32) {
		t.Helper()
		for name, replicas := range want {
			lw := cache.NewListWatchFromClient(clients.AppsV1().RESTClient(), "deployments", namespace, fields.OneTermEqualSelector("metadata.name", name))
			_, err := watchtools.UntilWithSync(ctx, lw, &appsv1.Deployment{}, nil, func(e watch.Event) (bool, error) {
				d, ok := e.Object.(*appsv1.Deployment)
				return ok && d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas == replicas && d.Status.UpdatedReplicas == replicas, nil
			})
			if err != nil {
				t.Fatalf("Deployment %s does not become available: %v\n%s", name, err, explain(clients, namespace))
			}
		}
	}
	postgres := values(t, `
store: {kind: postgres, postgres: {existingSecret: database}}
keys: {existingSecret: database}
server: {replicas: 2}
workers: {separate: true, replicas: 3}
`)
	run("install", "radial", chartDir, "--take-ownership", "--values", postgres)
	available(map[string]int32{"radial-server": 2, "radial-workers": 3, "radial-controller": 2})
	run("upgrade", "radial", chartDir, "--values", postgres, "--set", "workers.replicas=1,workerServer.maxOperationConcurrency=8")
	available(map[string]int32{"radial-server": 2, "radial-workers": 1, "radial-controller": 2})
	run("uninstall", "radial", "--wait")
	left, err := clients.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=radial"})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("uninstalling leaves %d ClusterRoles (%v)", len(left.Items), err)
	}
	// What people made of the kind stays with the kind.
	dyn, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dyn.Resource(definitions).Get(ctx, "recipes.radapp.io", metav1.GetOptions{}); err != nil {
		t.Errorf("uninstalling took the kind Recipe away: %v", err)
	}
}

// explain says what a namespace's pods wait for.
func explain(clients kubernetes.Interface, namespace string) string {
	events, err := clients.CoreV1().Events(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, e := range events.Items {
		fmt.Fprintf(&b, "%s %s: %s: %s\n", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
	return b.String()
}
