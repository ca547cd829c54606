// Package provision is the controller of Recipes: a Recipe of a cluster
// becomes a resource of its type in the control plane, and what that resource
// answers becomes a Secret.
//
// A reconcile is a short list of steps in order (steps.go), each of which
// passes, or ends the pass with an error that says how it goes on: [stalled]
// until something changes, [waiting] for something that is under way, or any
// other error, retried with back-off. One deferred function writes the status,
// and only when it changed.
//
// # Guarantees
//
//   - The status is written before the first PUT of an id and after every
//     answer; with the status lost, ids are told from the spec (K-29).
//   - Nothing is written, to the cluster or to the control plane, when nothing
//     changed.
//   - Secrets are read singly, by name and past the cache; only keys that the
//     field manager owns are changed or removed (K-14). No value of one gets
//     into a status, an event or a log.
//   - Progress comes from the control plane's change stream (K-32).
package provision

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
)

// Kind is the kind of object under which this controller is woken.
const Kind = "Recipe"

// FieldManager owns what this controller writes.
const FieldManager = "radial-controller"

// Server is what the controller asks of the control plane; *client.Client is
// one.
type Server interface {
	paired.API
	ValuesAPI
	Type(ctx context.Context, resourceType string) (client.Type, error)
	URL() string
}

// Options of the controller.
type Options struct {
	// Cluster is the name of the controller's cluster (K-36).
	Cluster string
	Server  Server
	// Waker is the process's one change stream.
	Waker *paired.Waker
	// Working, if set, is told when the workers run.
	Working *paired.Working
	// Log is where a pass tells what it did, nil for nowhere.
	Log *slog.Logger
	// Now is the clock, nil for time.Now.
	Now func() time.Time
	// FirstRetry and MaxRetry bound the back-off of passes that got no answer;
	// 0 is 0.5 s and 1 min.
	FirstRetry, MaxRetry time.Duration
	// Name of the controller in metrics and logs, "" for "recipe".
	Name string
}

// Setup registers the controller with a manager.
func Setup(mgr manager.Manager, o Options) error {
	if o.Cluster == "" {
		o.Cluster = core.LocalCluster
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FirstRetry == 0 {
		o.FirstRetry = 500 * time.Millisecond
	}
	if o.MaxRetry == 0 {
		o.MaxRetry = time.Minute
	}
	if o.Name == "" {
		o.Name = "recipe"
	}
	if o.Working == nil {
		o.Working = paired.NewWorking()
	}
	r := &reconciler{
		Options: o,
		cache:   mgr.GetClient(),
		live:    mgr.GetAPIReader(),
		events:  mgr.GetEventRecorder(FieldManager),
	}
	r.runner = paired.Runner{API: o.Server, Gone: OwnerGone(r.live, o.Cluster), Now: o.Now}
	return ctrl.NewControllerManagedBy(mgr).
		Named(o.Name).
		For(&radapp.Recipe{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: r.notOurs})).
		Watches(&radapp.Recipe{}, r.siblings()).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			o.Waker.Handle(Kind, func(o paired.Object) {
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: o.Name}})
			})
			return nil
		})).
		WatchesRawSource(o.Working.Source()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 4,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](o.FirstRetry, o.MaxRetry),
		}).
		Complete(o.Working.Wrap(paired.Traced(Kind, r)))
}

type reconciler struct {
	Options
	cache  kube.Client
	live   kube.Reader
	events events.EventRecorder
	runner paired.Runner
	// written is the resourceVersion of the last write by uid: a cached object
	// older than that is read anew, so that a pass never decides on a status
	// from before its own last answer.
	written sync.Map
	// unanswered counts passes in a row, by uid, that the control plane did not
	// answer.
	unanswered sync.Map
}

// notOurs drops the events that are nothing but our own last write: what comes
// of it, the change stream tells.
func (r *reconciler) notOurs(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*radapp.Recipe)
	after, also := e.ObjectNew.(*radapp.Recipe)
	if !ok || !also || before.ResourceVersion == after.ResourceVersion {
		return true // a resync looks at everything
	}
	last, written := r.written.Load(after.UID)
	return !written || last != after.ResourceVersion || after.Status.ObservedGeneration != after.Generation ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
}

// pause is the time to wait after one more pass without an answer.
func (r *reconciler) pause(uid types.UID) time.Duration {
	n, _ := r.unanswered.LoadOrStore(uid, 0)
	count := n.(int)
	r.unanswered.Store(uid, count+1)
	d := r.MaxRetry
	if count < 16 {
		d = min(d, r.FirstRetry<<count)
	}
	return d
}

// drop forgets a Recipe that is gone.
func (r *reconciler) drop(o paired.Object, uid types.UID) {
	r.Waker.Forget(o)
	r.written.Delete(uid)
	r.unanswered.Delete(uid)
}

// siblings wakes the Recipes that wait for a Secret's name when the one that
// has it gives it up.
func (r *reconciler) siblings() handler.EventHandler {
	wake := func(ctx context.Context, gone kube.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		var list radapp.RecipeList
		if err := r.cache.List(ctx, &list, kube.InNamespace(gone.GetNamespace())); err != nil {
			return
		}
		for _, s := range list.Items {
			if ready := condition(&s, radapp.ConditionReady); ready != nil && ready.Reason == radapp.ReasonSecretConflict {
				q.Add(reconcile.Request{NamespacedName: kube.ObjectKeyFromObject(&s)})
			}
		}
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			before, ok := e.ObjectOld.(*radapp.Recipe)
			after, also := e.ObjectNew.(*radapp.Recipe)
			if ok && also && (before.Spec.SecretName != after.Spec.SecretName || secretName(before) != secretName(after)) {
				wake(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			wake(ctx, e.Object, q)
		},
	}
}

// fetch reads a Recipe, from the cache unless that is behind our own writes.
func (r *reconciler) fetch(ctx context.Context, key types.NamespacedName) (*radapp.Recipe, error) {
	var recipe radapp.Recipe
	if err := r.cache.Get(ctx, key, &recipe); err != nil {
		return nil, err
	}
	if last, ok := r.written.Load(recipe.UID); ok {
		if c, err := resourceversion.CompareResourceVersion(recipe.ResourceVersion, last.(string)); err != nil || c < 0 {
			var fresh radapp.Recipe
			if err := r.live.Get(ctx, key, &fresh); err != nil {
				return nil, err
			}
			return &fresh, nil
		}
	}
	return recipe.DeepCopy(), nil
}

func (r *reconciler) wrote(uid types.UID, version string) { r.written.Store(uid, version) }

// Reconcile takes one Recipe as far as it goes without waiting.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	object := paired.Object{Kind: Kind, Namespace: req.Namespace, Name: req.Name}
	recipe, err := r.fetch(ctx, req.NamespacedName)
	if apierrors.IsNotFound(err) {
		r.Waker.Forget(object)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	p := newPass(r, recipe)
	steps := provisioning
	if !recipe.DeletionTimestamp.IsZero() {
		if !hasFinalizer(recipe) {
			r.drop(object, recipe.UID)
			return reconcile.Result{}, nil
		}
		steps = removal
	}
	r.Waker.Track(object, true, p.concerns()...)
	for _, s := range steps {
		if err = s.do(p, ctx); err != nil {
			p.log.Debug("step ended the pass", "step", s.name, "error", err)
			break
		}
	}
	if p.gone {
		r.drop(object, recipe.UID)
		return reconcile.Result{}, err
	}
	result, err := p.finish(ctx, err)
	r.Waker.Track(object, !p.settled, p.concerns()...)
	return result, err
}

// OwnerGone returns the judge of owners: whether the object behind one is
// verified gone. Owners of another cluster, and of kinds that this controller
// cannot read, are never.
func OwnerGone(live kube.Reader, cluster string) func(context.Context, arm.Owner) (bool, error) {
	return func(ctx context.Context, o arm.Owner) (bool, error) {
		if o.Cluster != cluster {
			return false, nil
		}
		m := &metav1.PartialObjectMetadata{}
		switch o.Kind {
		case Kind:
			m.SetGroupVersionKind(radapp.GroupVersion.WithKind(Kind))
		case "Deployment":
			m.APIVersion, m.Kind = "apps/v1", "Deployment"
		default:
			return false, nil
		}
		err := live.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, m)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("cannot tell whether %s %s/%s is gone: %w", o.Kind, o.Namespace, o.Name, err)
		}
		return string(m.UID) != o.UID, nil
	}
}

func condition(r *radapp.Recipe, kind string) *metav1.Condition {
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == kind {
			return &r.Status.Conditions[i]
		}
	}
	return nil
}

func secretName(r *radapp.Recipe) string {
	if r.Status.Secret == nil {
		return ""
	}
	return r.Status.Secret.Name
}
