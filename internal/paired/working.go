package paired

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Working tells when the workers of a controller take up what is queued.
// Synced caches do not say that: between the two lies the start of the
// controller itself, and nothing else tells when that is over.
//
// Its source queues one request that names no object, and its wrapper takes
// that one out again: whichever worker gets to it has begun.
type Working struct {
	once  sync.Once
	begun chan struct{}
}

// NewWorking returns a Working for one controller.
func NewWorking() *Working { return &Working{begun: make(chan struct{})} }

// Begun is closed once a worker runs. It stays closed: workers end with the
// process.
func (w *Working) Begun() <-chan struct{} { return w.begun }

// Source is to be watched by the controller.
func (w *Working) Source() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.Add(reconcile.Request{})
		return nil
	})
}

// Wrap is what the controller runs in the place of r, which sees all requests
// but that of the source.
func (w *Working) Wrap(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		if req == (reconcile.Request{}) {
			w.once.Do(func() { close(w.begun) })
			return reconcile.Result{}, nil
		}
		return r.Reconcile(ctx, req)
	})
}
