package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubefields "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/core"
)

// kubernetesFlags name a cluster as kubectl does.
type kubernetesFlags struct {
	kubeconfig, context, namespace string
}

func (k *kubernetesFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&k.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (KUBECONFIG, else ~/.kube/config)")
	c.Flags().StringVar(&k.context, "kube-context", "", "context in the kubeconfig (the current one unless set)")
}

func (k *kubernetesFlags) loaded() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: k.context})
}

// config is how to reach the cluster; doing says what for, when there is none.
func (k *kubernetesFlags) config(doing string) (*rest.Config, error) {
	cfg, err := k.loaded().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster to %s: name one with --kubeconfig and --kube-context: %w", doing, err)
	}
	cfg.QPS = -1
	return cfg, nil
}

var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	recipeKinds = radapp.GroupVersion.WithResource("recipes")
)

// observe follows one object of a cluster until see says that it is settled, or returns an error.
func observe[T any](ctx context.Context, k *kubernetesFlags, gvr schema.GroupVersionResource, kind, name string, see func(*T, metav1.Object) (bool, error)) error {
	cfg, err := k.config("wait in")
	if err != nil {
		return err
	}
	namespace := k.namespace
	if namespace == "" {
		if namespace, _, err = k.loaded().Namespace(); err != nil {
			return err
		}
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	objects := dyn.Resource(gvr).Namespace(namespace)
	if _, err := objects.Get(ctx, name, metav1.GetOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return core.Errorf(core.CodeNotFound, "%s %s/%s does not exist in cluster %s (-n names another namespace)", kind, namespace, name, cfg.Host)
		}
		return fmt.Errorf("cannot read %s %s/%s: %w", kind, namespace, name, err)
	}
	only := kubefields.OneTermEqualSelector("metadata.name", name).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return objects.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return objects.Watch(ctx, o)
		},
	}
	_, err = watchtools.UntilWithSync(ctx, lw, &unstructured.Unstructured{}, nil, func(e watch.Event) (bool, error) {
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			return false, nil
		}
		if e.Type == watch.Deleted {
			return false, core.Errorf(core.CodeNotFound, "%s %s/%s was deleted", kind, namespace, name)
		}
		object := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object); err != nil {
			return false, fmt.Errorf("%s %s/%s cannot be read: %w", kind, namespace, name, err)
		}
		return see(object, u)
	})
	if ctx.Err() != nil && !errors.As(err, new(*core.Error)) {
		return ctx.Err() // watchtools has an error of its own for it
	}
	return err
}

func (s *session) waitRecipe(ctx context.Context, k *kubernetesFlags, name string) (waited, error) {
	w := waited{State: "Ready"}
	err := observe(ctx, k, recipeKinds, "Recipe", name, func(r *radapp.Recipe, _ metav1.Object) (bool, error) {
		w.Name = fmt.Sprintf("Recipe %s/%s", r.Namespace, r.Name)
		done, stands, err := recipeStands(r)
		s.stands = w.Name + ": " + stands
		if err != nil {
			return false, fmt.Errorf("%s: %w", w.Name, err)
		}
		w.Message = stands
		return done, nil
	})
	return w, err
}

// recipeStands says how far a Recipe is. The error is of one that does not get there by itself.
func recipeStands(r *radapp.Recipe) (done bool, stands string, err error) {
	ready := meta.FindStatusCondition(r.Status.Conditions, radapp.ConditionReady)
	switch {
	case r.DeletionTimestamp != nil:
		return false, "", core.Errorf(core.CodeConflict, "it is being deleted")
	case ready == nil || r.Status.ObservedGeneration != r.Generation:
		return false, "the controller has not seen it yet; is a radial-controller running for this cluster?", nil
	case ready.Status == metav1.ConditionTrue:
		return true, ready.Message, nil
	}
	if c := meta.FindStatusCondition(r.Status.Conditions, radapp.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
		return false, "", core.Errorf(core.CodeConflict, "%s: %s", c.Reason, c.Message)
	}
	return false, ready.Reason + ": " + ready.Message, nil
}

func (s *session) waitDeployment(ctx context.Context, k *kubernetesFlags, name string) (waited, error) {
	w := waited{State: "Ready"}
	err := observe(ctx, k, deployments, "Deployment", name, func(d *appsv1.Deployment, _ metav1.Object) (bool, error) {
		w.Name = fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name)
		done, stands, err := deploymentStands(d)
		s.stands = w.Name + ": " + stands
		if err != nil {
			return false, fmt.Errorf("%s: %w", w.Name, err)
		}
		w.Message = stands
		return done, nil
	})
	return w, err
}

// deploymentStands says how far an adopted Deployment is: first what the controller does for it, of which the
// status speaks as long as its hash is that of the object, then its rollout.
func deploymentStands(d *appsv1.Deployment) (done bool, stands string, err error) {
	fail := func(format string, args ...any) (bool, string, error) {
		return false, "", core.Errorf(core.CodeConflict, format, args...)
	}
	status := radapp.ParseDeploymentStatus(d.Annotations)
	_, held := d.Annotations[radapp.AnnotationHeld]
	ready := meta.FindStatusCondition(status.Conditions, radapp.ConditionReady)
	switch {
	case d.DeletionTimestamp != nil:
		return fail("it is being deleted")
	case !adopted(d.Annotations) && ready != nil && ready.Status == metav1.ConditionFalse: // a misspelt annotation
		return fail("%s: %s", ready.Reason, ready.Message)
	case !adopted(d.Annotations):
		return fail("it is not adopted: annotate it with %s: 'true' or with a connection, or use kubectl rollout status", radapp.AnnotationEnabled)
	case ready == nil || status.ObservedHash != radapp.ObservedHash(d.Annotations, d.Spec.Template):
		return false, "the controller has not seen it as it is now; is a radial-controller running for this cluster?", nil
	case ready.Status != metav1.ConditionTrue && status.Phrase == radapp.PhraseFailed:
		return fail("%s: %s", ready.Reason, ready.Message)
	case ready.Status != metav1.ConditionTrue:
		return false, ready.Reason + ": " + ready.Message, nil
	case d.Spec.Paused && !held:
		return fail("%s: %s", ready.Reason, ready.Message) // its user's pause: no rollout will end
	case d.Spec.Paused:
		return false, "the hold is about to end", nil
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && c.Reason == "ProgressDeadlineExceeded" {
			return fail("its data is there, and its rollout does not get on: %s: kubectl -n %s describe pods says why", c.Message, d.Namespace)
		}
	}
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	at := d.Status
	if at.ObservedGeneration < d.Generation || at.UpdatedReplicas < wanted || at.Replicas > at.UpdatedReplicas || at.AvailableReplicas < at.UpdatedReplicas {
		return false, fmt.Sprintf("rolling out: %d of %d pods are new, %d available", at.UpdatedReplicas, wanted, at.AvailableReplicas), nil
	}
	return true, ready.Message, nil
}

// adopted reports whether annotations ask for adoption: a connection is enough, and 'false' wins.
func adopted(annotations map[string]string) bool {
	switch strings.ToLower(annotations[radapp.AnnotationEnabled]) {
	case "true":
		return true
	case "false":
		return false
	}
	for k := range annotations {
		if strings.HasPrefix(k, radapp.AnnotationConnection) && k != radapp.AnnotationConnection {
			return true
		}
	}
	return false
}
