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

	"golang.org/x/sync/errgroup"
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

	"github.com/radial-project/radial/api/radapp"
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

// AwaitUse returns once the API server treats the first Recipe and the first workload after an installation as it
// treats every later one. Both are seen by dry runs, since nothing else tells.
func AwaitUse(ctx context.Context, cfg *rest.Config) error {
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, establishLimit)
	defer cancel()
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return awaitTaking(ctx, dyn) })
	both.Go(func() error { return awaitHolding(ctx, dyn) })
	return both.Wait()
}

// awaitTaking returns once the API server takes Recipes. For two seconds after a kind is established it holds up
// every request that would make the first of its objects, so that all API servers of a cluster get to know the
// kind. The wait is for the answer to one such request, which is held in the place of a user's.
func awaitTaking(ctx context.Context, dyn dynamic.Interface) error {
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": radapp.GroupVersion.String(), "kind": "Recipe",
		"metadata": map[string]any{"generateName": "radial-taking-probe-", "namespace": installation.Namespace},
		"spec":     map[string]any{"type": "Radial.Probe/none"},
	}}
	client := dyn.Resource(radapp.GroupVersion.WithResource("recipes")).Namespace(installation.Namespace)
	return until(ctx, func() (bool, error) {
		_, err := client.Create(ctx, probe.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsNotFound(err) {
			return false, nil // an API server that does not know the kind yet
		}
		return err == nil, err
	}, "take Recipes", "the kind was established: is one of its replicas stuck?")
}

// awaitHolding returns once the API server holds rollouts (K-25): a policy that was just installed is not in force
// at once, and a workload applied before would start without its variables.
func awaitHolding(ctx context.Context, dyn dynamic.Interface) error {
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
	return until(ctx, func() (bool, error) {
		seen, err := client.Create(ctx, probe.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return false, err
		}
		held, _, _ := unstructured.NestedBool(seen.Object, "spec", "paused")
		return held, nil
	}, "hold rollouts", "the policy was applied: is MutatingAdmissionPolicy switched off?")
}

// until asks, since nothing tells, until the API server does something. The context's end is the limit.
func until(ctx context.Context, ask func() (bool, error), what, since string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := ask()
		if ctx.Err() == nil && err != nil {
			return fmt.Errorf("cannot see the API server %s: %w", what, err)
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server does not %s %s after %s", what, establishLimit, since)
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
