package paired_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/radial-project/radial/internal/paired"
)

// gated is a source with one request more than its inner one, synced when its gate opens, as the watch of a kind
// is when its cache is filled.
type gated struct {
	inner         source.Source
	started, gate chan struct{}
}

func (g gated) Start(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	if err := g.inner.Start(ctx, q); err != nil {
		return err
	}
	q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "n", Name: "a"}})
	close(g.started)
	return nil
}

func (g gated) WaitForSync(ctx context.Context) error {
	select {
	case <-g.gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A controller works when its workers run, not when its sources have started.
func TestWorking(t *testing.T) {
	t.Parallel()
	w, asked := paired.NewWorking(), make(chan reconcile.Request, 10)
	c, err := controller.NewUnmanaged("working", controller.Options{
		SkipNameValidation: ptr.To(true),
		Reconciler: w.Wrap(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			asked <- req
			return reconcile.Result{}, nil
		})),
	})
	if err != nil {
		t.Fatal(err)
	}
	g := gated{w.Source(), make(chan struct{}), make(chan struct{})}
	if err := c.Watch(g); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	<-g.started
	select {
	case <-w.Begun():
		t.Error("it works before its sources are synced")
	case req := <-asked:
		t.Errorf("%v is reconciled before the sources are synced", req)
	default:
	}
	close(g.gate)
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	select {
	case <-w.Begun():
	case <-limit.C:
		t.Fatal("it does not work once its sources are synced")
	}
	select {
	case req := <-asked:
		if req.Name != "a" {
			t.Errorf("the reconciler was asked for %q", req)
		}
	case <-limit.C:
		t.Fatal("the queued object was not reconciled")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(asked) > 0 {
		t.Errorf("the reconciler saw %v, too", <-asked)
	}
}
