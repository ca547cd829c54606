// Package setup makes a cluster and a control plane ready for use. Developer mode and `radial init` share it:
// what they install and register is the same.
package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/radial-project/radial/installation"
)

// FieldManager owns what an installation applies.
const FieldManager = "radial-installation"

// establishLimit bounds the wait for the API server to serve a new kind.
const establishLimit = 30 * time.Second

// Applied is one object of an installation and what applying it did.
type Applied struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Result is "created", "configured" or "unchanged".
	Result string `json:"result"`
}

// Install applies every manifest below root by server-side apply, kinds before the objects that need them, and
// returns once the kinds are served. Applying again changes nothing.
func Install(ctx context.Context, cfg *rest.Config, root fs.FS) ([]Applied, error) {
	objects, err := readManifests(root)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	in := installer{dynamic: dyn, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))}
	var all []Applied
	for _, o := range objects {
		done, err := in.apply(ctx, o)
		if err != nil {
			return all, fmt.Errorf("cannot apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		all = append(all, done)
		if o.GetKind() == "CustomResourceDefinition" {
			if err := in.established(ctx, o.GetName()); err != nil {
				return all, err
			}
			in.mapper.Reset()
		}
	}
	return all, nil
}

type installer struct {
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func (in installer) apply(ctx context.Context, o *unstructured.Unstructured) (Applied, error) {
	done := Applied{Kind: o.GetKind(), Name: o.GetName()}
	gvk := o.GroupVersionKind()
	mapping, err := in.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		if meta.IsNoMatchError(err) {
			return done, fmt.Errorf("the API server does not serve %s: Radial needs Kubernetes 1.36 or newer: %w", gvk, err)
		}
		return done, err
	}
	var client dynamic.ResourceInterface = in.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		client = in.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace())
	}
	before, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return done, err
	}
	existed := err == nil
	after, err := client.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	switch {
	case err != nil:
		return done, err
	case !existed:
		done.Result = "created"
	case before.GetResourceVersion() == after.GetResourceVersion():
		done.Result = "unchanged"
	default:
		done.Result = "configured"
	}
	return done, nil
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// established waits until the API server serves the kind.
func (in installer) established(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, establishLimit)
	defer cancel()
	only := fields.OneTermEqualSelector("metadata.name", name).String()
	client := in.dynamic.Resource(crds)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return client.Watch(ctx, o)
		},
	}
	_, err := watchtools.UntilWithSync(ctx, lw, &unstructured.Unstructured{}, nil, func(e watch.Event) (bool, error) {
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			return false, nil
		}
		// A kind that was just made has null for its conditions, which is no slice: not yet.
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			c, _ := c.(map[string]any)
			if c["type"] == "Established" && c["status"] == "True" {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("the API server did not start to serve %s within %s: %w", name, establishLimit, err)
	}
	return nil
}

// AwaitHolding returns once the API server holds rollouts (K-25): a policy that was just installed is not in force
// at once, and a workload applied before would start without its variables. It is seen by a dry run, since
// nothing else tells.
func AwaitHolding(ctx context.Context, cfg *rest.Config) error {
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, establishLimit)
	defer cancel()
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{
			"name": "radial-holding-probe", "namespace": installation.Namespace,
			"annotations": map[string]any{"radapp.io/connection-probe": "probe"},
		},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "probe"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "probe"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "probe", "image": "none"}}},
			},
		},
	}}
	client := dyn.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace(installation.Namespace)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		seen, err := client.Create(ctx, probe.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("cannot see whether the API server holds rollouts: %w", err)
		}
		if err == nil {
			if held, _, _ := unstructured.NestedBool(seen.Object, "spec", "paused"); held {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server does not hold rollouts %s after the policy was applied: is MutatingAdmissionPolicy switched off?", establishLimit)
		case <-tick.C:
		}
	}
}

// order of kinds in an installation; any other comes last.
var order = []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"}

func rank(o *unstructured.Unstructured) int {
	if i := slices.Index(order, o.GetKind()); i >= 0 {
		return i
	}
	return len(order)
}

// readManifests reads every YAML file below root, except Kustomize's own, in the order to apply.
func readManifests(root fs.FS) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	err := fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path.Base(name) == "kustomization.yaml" || !strings.HasSuffix(name, ".yaml") {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		for docs := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
			var o unstructured.Unstructured
			switch err := docs.Decode(&o.Object); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return fmt.Errorf("%s: %w", name, err)
			case len(o.Object) > 0:
				objects = append(objects, &o)
			}
		}
	})
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return objects, err
}
