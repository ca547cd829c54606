package adopt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
)

// A tombstone is a ConfigMap in the controller's namespace that stands for a
// deletion which the control plane has not accepted yet, so that neither a
// namespace nor a `helm uninstall` waits for a server that is away (K-29).
const (
	// TombstoneLabel marks the ConfigMaps.
	TombstoneLabel = "radapp.io/tombstone"
	// tombstoneKind is what the Waker knows them as.
	tombstoneKind = "Tombstone"

	keyID      = "id"
	keyVersion = "apiVersion"
	keyOwner   = "ownerUid"
	keyObject  = "object" // for people: <namespace>/<name>
)

// bury writes tombstones for deletions that a Deployment leaves behind, and
// sees to them from now on. A second one for the same deletion is the same
// object.
func (r *Reconciler) bury(ctx context.Context, d *appsv1.Deployment, ids []core.ID) error {
	for _, id := range ids {
		sum := sha256.Sum256([]byte(id.Key() + "\x00" + string(d.UID)))
		stone := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: "tombstone-" + hex.EncodeToString(sum[:8]), Labels: map[string]string{TombstoneLabel: "true"}},
			Data:       map[string]string{keyID: id.String(), keyVersion: containerVersion, keyOwner: string(d.UID), keyObject: d.Namespace + "/" + d.Name},
		}
		if err := r.Client.Create(ctx, stone); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		r.mu.Lock()
		q := r.graves
		r.mu.Unlock()
		if q != nil {
			q.AddRateLimited(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(stone)})
		}
	}
	return nil
}

// tombstones replays what was buried: one question, one controller. It watches
// nothing: the one who buries tells it, and at its start it lists what an
// earlier process left.
type tombstones struct{ r *Reconciler }

func (r *Reconciler) setupTombstones(mgr manager.Manager) error {
	told := source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		r.mu.Lock()
		r.graves = q
		r.mu.Unlock()
		r.Waker.Handle(tombstoneKind, func(o paired.Object) {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: o.Name}})
		})
		go func() {
			_ = wait.ExponentialBackoffWithContext(ctx, wait.Backoff{Duration: time.Second, Factor: 2, Steps: 1 << 20, Cap: time.Minute}, func(ctx context.Context) (bool, error) {
				var list corev1.ConfigMapList
				if err := r.Reader.List(ctx, &list, client.InNamespace(r.Namespace), client.HasLabels{TombstoneLabel}); err != nil {
					r.Log.Warn("list the deletions that wait for the control plane", "namespace", r.Namespace, "error", err)
					return false, nil
				}
				for i := range list.Items {
					q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
				}
				return true, nil
			})
		}()
		return nil
	})
	return builder.ControllerManagedBy(mgr).Named("tombstone").
		WatchesRawSource(told).
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true),
			// The change stream's reconnect wakes them; this is for a server that
			// answers and refuses.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](500*time.Millisecond, time.Minute),
		}).
		Complete(paired.Traced("tombstone", &tombstones{r}))
}

// Reconcile asks for one buried deletion, and drops the tombstone once the
// control plane has accepted it or has nothing of it.
func (t *tombstones) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o := paired.Object{Kind: tombstoneKind, Namespace: req.Namespace, Name: req.Name}
	stone := new(corev1.ConfigMap)
	if err := t.r.Reader.Get(ctx, req.NamespacedName, stone); err != nil {
		t.r.Waker.Forget(o)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	id, err := core.ParseID(stone.Data[keyID])
	if err == nil && id.IsResource() {
		t.r.Waker.Track(o, true, id)
		_, err = t.r.API.Delete(ctx, id, stone.Data[keyVersion], stone.Data[keyOwner])
		switch core.CodeOf(err) {
		case "", core.CodeNotFound, core.CodeNameConflict, core.CodeInvalidResourceType:
			// Accepted, gone, or another's by now.
		default:
			return reconcile.Result{}, errors.Join(errors.New("a deletion that waits for the control plane"), err)
		}
	}
	t.r.Waker.Forget(o)
	return reconcile.Result{}, client.IgnoreNotFound(t.r.Client.Delete(ctx, stone, client.Preconditions{UID: &stone.UID}))
}

func itoa(i int) string { return strconv.Itoa(i) }
