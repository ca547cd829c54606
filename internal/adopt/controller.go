// Package adopt answers one question about each Deployment that people annotate:
// is it part of the catalogue, and does its pod template hold the data of its
// connections? It pairs the Deployment with an Applications.Core/containers
// resource, injects connection data, and releases rollouts that admission
// holds.
//
// The decisions are pure (policy.go); this controller only gathers what they
// look at and writes what they say. What it may write is listed in applySet
// and annotate, and nowhere else.
package adopt

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
)

// Kind under which Deployments are known to the Waker and to owners.
const Kind = "Deployment"

// API is what the controller asks of the control plane; *client.Client is one.
type API interface {
	paired.API
	// Action calls POST {id}/{action}.
	Action(ctx context.Context, id core.ID, action, apiVersion string, body, out any) error
}

// Waker tells when something in the control plane changes that concerns an
// object; *paired.Waker is one.
type Waker interface {
	Handle(kind string, f func(paired.Object))
	Track(o paired.Object, flying bool, ids ...core.ID)
	Forget(o paired.Object)
}

// Reconciler adopts Deployments. Its exported fields are set before Setup.
type Reconciler struct {
	// Client writes to the cluster and reads Deployments and Recipes from the
	// manager's cache.
	Client client.Client
	// Reader reads from the API server itself: Secrets and ReplicaSets, which
	// are never cached, and Deployments right before a release.
	Reader client.Reader
	API    API
	Runner *paired.Runner
	Waker  Waker
	// Working, if set, is told when the workers run.
	Working *paired.Working
	Events  events.EventRecorder
	Log     *slog.Logger
	// Cluster is the name of this controller's cluster.
	Cluster string
	// Namespace is the controller's own, where tombstones lie.
	Namespace string
	// Workers is how many Deployments are reconciled at a time; 0 is 4.
	Workers int
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	mu       sync.Mutex
	sessions map[types.NamespacedName]*session
	key      []byte
	queue    workqueue.TypedRateLimitingInterface[reconcile.Request]
	graves   workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// session is what the controller remembers of a Deployment between reconciles.
// All of it can be lost: a new one is made from the object and the control
// plane.
type session struct {
	uid types.UID
	mem paired.Memory
	// asked says that the live container was compared once after a start.
	asked bool
	// swept says that old connection Secrets were looked after.
	swept bool
	// unready is since when it has not been Ready for cause, zero while it is.
	unready time.Time
	cause   string
	// down is when the control plane stopped answering, zero while it does.
	down     time.Time
	attempts int
	// written is the status annotation as last written here.
	written string
	// told are the causes in the status, all of which an event told about;
	// troubled says that Ready was false among them.
	told     map[string]bool
	troubled bool
}

func (r *Reconciler) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

// session returns the memory of a Deployment, made anew when it is not known
// or another object has taken its name.
func (r *Reconciler) session(d *appsv1.Deployment) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(d)
	if s := r.sessions[key]; s != nil && s.uid == d.UID {
		return s
	}
	status := ParseStatus(d)
	s := &session{uid: d.UID, written: d.Annotations[AnnotationStatus], told: map[string]bool{}}
	s.mem = paired.Memory{Resource: status.Container, APIVersion: containerVersion}
	if op := status.Operation; op != nil {
		s.mem.Operation = &paired.Operation{ResumeToken: op.ResumeToken, OperationKind: op.OperationKind, Target: status.Container}
	}
	for _, c := range status.Conditions {
		s.told[c.Reason+"\x00"+c.Message] = true // told before a restart
		s.troubled = s.troubled || c.Type == ConditionReady && c.Status == metav1.ConditionFalse
	}
	if r.sessions == nil {
		r.sessions = map[types.NamespacedName]*session{}
	}
	r.sessions[key] = s
	return s
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	delete(r.sessions, key)
	r.mu.Unlock()
	r.Waker.Forget(object(key))
}

func object(key types.NamespacedName) paired.Object {
	return paired.Object{Kind: Kind, Namespace: key.Namespace, Name: key.Name}
}

// indexRecipes finds the Deployments of a namespace that connect to a Recipe.
const indexRecipes = "radapp.io/recipes"

// Setup registers the controller, and the one that replays tombstones, with a
// manager whose scheme knows apps/v1 and radapp.io.
func (r *Reconciler) Setup(ctx context.Context, mgr manager.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1.Deployment{}, indexRecipes, func(o client.Object) []string {
		var names []string
		for _, c := range ParseIntent(o.GetAnnotations()).Connections {
			names = append(names, c.Recipe)
		}
		return names
	})
	if err != nil {
		return err
	}
	workers := r.Workers
	if workers == 0 {
		workers = 4
	}
	working := r.Working
	if working == nil {
		working = paired.NewWorking()
	}
	woken := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		r.mu.Lock()
		r.queue = q
		r.mu.Unlock()
		r.Waker.Handle(Kind, r.wake)
		return nil
	})
	err = builder.ControllerManagedBy(mgr).Named("deployment").
		For(&appsv1.Deployment{}, builder.WithPredicates(r.concerns())).
		Watches(&radapp.Recipe{}, handler.EnqueueRequestsFromMapFunc(r.connectedTo), builder.WithPredicates(recipeMoves())).
		WatchesRawSource(woken).
		WatchesRawSource(working.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, SkipNameValidation: ptr.To(true)}).
		Complete(working.Wrap(paired.Traced(Kind, r)))
	if err != nil {
		return err
	}
	return r.setupTombstones(mgr)
}

// wake is told by the change stream.
func (r *Reconciler) wake(o paired.Object) {
	r.mu.Lock()
	q := r.queue
	r.mu.Unlock()
	if q != nil {
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: o.Name}})
	}
}

func (r *Reconciler) connectedTo(ctx context.Context, recipe client.Object) []reconcile.Request {
	var list appsv1.DeploymentList
	err := r.Client.List(ctx, &list, client.InNamespace(recipe.GetNamespace()), client.MatchingFields{indexRecipes: recipe.GetName()})
	if err != nil {
		r.Log.Error("list the Deployments of a Recipe", "namespace", recipe.GetNamespace(), "recipe", recipe.GetName(), "error", err)
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// ours reports whether a Deployment concerns the controller at all.
func ours(d *appsv1.Deployment) bool {
	if radapp.Rendered(d.Annotations) {
		return false // the control plane's, with hash and connection data of its own
	}
	if Addressed(d.Annotations) || d.Spec.Template.Annotations[AnnotationHash] != "" {
		return true
	}
	for _, f := range d.Finalizers {
		if f == Finalizer {
			return true
		}
	}
	return false
}

// Trim is the transform of the cache of Deployments: of those that nobody
// annotated only the name is kept, since nothing else of them is ever read, and
// of the others everything but managedFields. A cluster may have thousands.
func Trim(o any) (any, error) {
	d, ok := o.(*appsv1.Deployment)
	if !ok {
		return o, nil // a tombstone of the cache
	}
	d.ManagedFields = nil
	if !ours(d) {
		d.Labels, d.Annotations, d.OwnerReferences = nil, nil, nil
		d.Spec, d.Status = appsv1.DeploymentSpec{}, appsv1.DeploymentStatus{}
	}
	return d, nil
}

// concerns lets through what can change a decision: objects that are ours, and
// of their updates not those of status, scale or our own writes.
func (r *Reconciler) concerns() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return ours(e.Object.(*appsv1.Deployment)) },
		DeleteFunc: func(e event.DeleteEvent) bool { return ours(e.Object.(*appsv1.Deployment)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, now := e.ObjectOld.(*appsv1.Deployment), e.ObjectNew.(*appsv1.Deployment)
			if !ours(before) && !ours(now) {
				return false
			}
			if before.ResourceVersion == now.ResourceVersion {
				return false // the cache's own resync
			}
			return before.UID != now.UID || PauseOf(before) != PauseOf(now) ||
				(before.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) ||
				strings.Join(before.Finalizers, ",") != strings.Join(now.Finalizers, ",") ||
				before.Annotations[AnnotationHeld] != now.Annotations[AnnotationHeld] ||
				before.Annotations[AnnotationStatus] != now.Annotations[AnnotationStatus] && !r.wrote(now) ||
				ObservedHash(before) != ObservedHash(now)
		},
		GenericFunc: func(event.GenericEvent) bool { return true },
	}
}

// wrote reports whether the status on an object is the one that was written
// here: then there is nothing to look at.
func (r *Reconciler) wrote(d *appsv1.Deployment) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sessions[client.ObjectKeyFromObject(d)]
	return s != nil && s.written == d.Annotations[AnnotationStatus]
}

// recipeMoves lets through what a connected Deployment looks at.
func recipeMoves() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := e.ObjectOld.(*radapp.Recipe), e.ObjectNew.(*radapp.Recipe)
		return before.UID != now.UID || before.Generation != now.Generation || before.Status.Resource != now.Status.Resource ||
			recipeReady(before) != recipeReady(now) || recipeCause(before) != recipeCause(now) ||
			before.Status.ObservedGeneration != now.Status.ObservedGeneration
	}}
}
