package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/cloud"
	"github.com/radial-project/radial/internal/identity"
)

// Options are what the controllers run with.
type Options struct {
	Settings cloud.Settings
	// Now is time.Now unless set.
	Now func() time.Time
	// Log is silent unless set.
	Log *slog.Logger
	// Workers is how many of each kind are worked on at once: 8 unless set.
	Workers int
}

// AddToScheme registers the kinds that the controllers read and write.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(v1alpha1.AddToScheme(s), appsv1.AddToScheme(s), corev1.AddToScheme(s), autoscalingv2.AddToScheme(s))
}

// CacheOptions are what of the cluster is kept in memory. No Secret is.
func CacheOptions() cache.Options { return cache.Options{DefaultTransform: Trim} }

// Setup registers the controllers with a manager whose scheme has what
// [AddToScheme] adds and whose cache is of [CacheOptions]. Without a provider
// no request is read or watched, let alone written.
func Setup(mgr manager.Manager, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Workers <= 0 {
		o.Workers = 8
	}
	k := &kit{
		Client: mgr.GetClient(), applier: &applier{client: mgr.GetClient()}, settings: o.Settings, now: o.Now, log: o.Log,
		events: mgr.GetEventRecorder(v1alpha1.FieldManagerOperator),
	}
	options := controller.Options{MaxConcurrentReconciles: o.Workers, SkipNameValidation: new(true)}
	s, p, w := &services{k}, &projects{k}, &workloads{k}

	serviceBuilder := builder.ControllerManagedBy(mgr).Named("services").
		For(&v1alpha1.AnkkaService{}).
		Watches(&v1alpha1.AnkkaProject{}, handler.EnqueueRequestsFromMapFunc(s.ofProject)).
		WithOptions(options)
	// What has a service's name wakes it, whoever made it.
	for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.ServiceAccount{}, &corev1.Service{}, &autoscalingv2.HorizontalPodAutoscaler{}} {
		serviceBuilder = serviceBuilder.Watches(o, handler.EnqueueRequestsFromMapFunc(s.named), builder.WithPredicates(matters()))
	}
	projectBuilder := builder.ControllerManagedBy(mgr).Named("projects").
		For(&v1alpha1.AnkkaProject{}).
		Watches(&corev1.ServiceAccount{}, handler.EnqueueRequestsFromMapFunc(ownedByProject), builder.WithPredicates(matters())).
		WithOptions(options)
	workloadBuilder := builder.ControllerManagedBy(mgr).Named("workloads").
		For(&appsv1.Deployment{}, builder.WithPredicates(addressed())).
		WithOptions(options)
	if o.Settings.HasProvider() {
		serviceBuilder = serviceBuilder.Watches(&v1alpha1.CloudResource{}, handler.EnqueueRequestsFromMapFunc(s.ofRequest))
		projectBuilder = projectBuilder.Watches(&v1alpha1.CloudResource{}, handler.EnqueueRequestsFromMapFunc(ownedByProject))
		workloadBuilder = workloadBuilder.
			Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(w.neighbours), builder.WithPredicates(addressed())).
			Watches(&v1alpha1.CloudResource{}, handler.EnqueueRequestsFromMapFunc(w.neighbours), builder.WithPredicates(predicate.NewPredicateFuncs(ofWorkload))).
			Watches(&corev1.ServiceAccount{}, handler.EnqueueRequestsFromMapFunc(w.neighbours), builder.WithPredicates(matters())).
			Watches(&v1alpha1.AnkkaService{}, handler.EnqueueRequestsFromMapFunc(w.neighbours), builder.WithPredicates(comesOrGoes()))
	}
	for _, c := range []struct {
		b    *builder.Builder
		r    reconcile.Reconciler
		name string
	}{{serviceBuilder, s, "services"}, {projectBuilder, p, "projects"}, {workloadBuilder, w, "workloads"}} {
		if err := c.b.Complete(c.r); err != nil {
			return fmt.Errorf("set up the controller of %s: %w", c.name, err)
		}
	}
	return observe(mgr, k)
}

func one(namespace, name string) []reconcile.Request {
	if projectOf(namespace) == "" || name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// named wakes the service that has an object's name.
func (r *services) named(_ context.Context, o client.Object) []reconcile.Request {
	return one(o.GetNamespace(), o.GetName())
}

// ofRequest wakes whom an answer is for: the service that it serves, or the
// services that take entries of a synced secret.
func (r *services) ofRequest(ctx context.Context, o client.Object) []reconcile.Request {
	c, ok := o.(*v1alpha1.CloudResource)
	switch {
	case !ok:
		return nil
	case c.Spec.Subject.Service != "":
		return one(c.Namespace, c.Spec.Subject.Service)
	case c.Spec.Kind == v1alpha1.KindSecretSync:
		secret, _ := v1alpha1.SyncedSecret(c.Spec.Subject.Project, c.Name)
		return r.taking(ctx, c.Namespace, func(name string) bool { return name == secret })
	}
	return nil
}

// ofProject wakes the services that take entries of the project's secrets.
func (r *services) ofProject(ctx context.Context, o client.Object) []reconcile.Request {
	if !r.settings.ProjectSecrets {
		return nil
	}
	return r.taking(ctx, o.GetNamespace(), func(string) bool { return true })
}

func (r *services) taking(ctx context.Context, namespace string, is func(secret string) bool) (out []reconcile.Request) {
	var list v1alpha1.AnkkaServiceList
	if err := r.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		r.log.Error("list the services of a project", "namespace", namespace, "error", err)
		return nil
	}
	for i := range list.Items {
		for _, e := range list.Items[i].Spec.Env {
			if e.SecretName != "" && is(e.SecretName) {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
				break
			}
		}
	}
	return out
}

// ownedByProject wakes the project that controls an object.
func ownedByProject(_ context.Context, o client.Object) []reconcile.Request {
	c := metav1.GetControllerOf(o)
	if c == nil || c.Kind != v1alpha1.AnkkaProjectKind {
		return nil
	}
	return one(o.GetNamespace(), c.Name)
}

// ofWorkload says that a request is controlled by a Deployment.
func ofWorkload(o client.Object) bool {
	c := metav1.GetControllerOf(o)
	return c != nil && c.Kind == "Deployment" && sameGroup(c.APIVersion, appsv1.SchemeGroupVersion.String())
}

// neighbours wakes the Deployments of a namespace that ask: each decision
// depends on what the others run as.
func (r *workloads) neighbours(ctx context.Context, o client.Object) (out []reconcile.Request) {
	if projectOf(o.GetNamespace()) == "" {
		return nil
	}
	asking, err := r.asking(ctx, o.GetNamespace())
	if err != nil {
		r.log.Error("list the Deployments that ask for an identity", "namespace", o.GetNamespace(), "error", err)
		return nil
	}
	for i := range asking {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&asking[i])})
	}
	return out
}

// matters lets through what a decision can depend on: of a Deployment also its
// status, of the others what an apply set of ours can change.
func matters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		if _, ok := e.ObjectNew.(*appsv1.Deployment); ok {
			return true
		}
		return fingerprint(e.ObjectOld) != fingerprint(e.ObjectNew) || (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	}}
}

// comesOrGoes lets through that an object is made and that it is gone.
func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// addressed lets through Deployments that ask for an identity, have asked or
// are told about one, without what only their status tells.
func addressed() predicate.Predicate {
	speaks := func(o client.Object) bool {
		a := o.GetAnnotations()
		return a[identity.Annotation] != "" || a[identity.AnnotationStatus] != ""
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return speaks(e.Object) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return speaks(e.Object) },
		GenericFunc: func(e event.GenericEvent) bool { return speaks(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return (speaks(e.ObjectOld) || speaks(e.ObjectNew)) &&
				(fingerprint(e.ObjectOld) != fingerprint(e.ObjectNew) || (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil))
		},
	}
}
