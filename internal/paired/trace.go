package paired

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/radial-project/radial/internal/telemetry"
)

// Traced makes every pass over an object of a kind a trace: what it asks of the
// control plane, and what the control plane's workers do because of that, are
// steps of it (K-43).
func Traced(kind string, r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		ctx, span := telemetry.Start(ctx, "reconcile "+kind, telemetry.Kind(kind), telemetry.Object(req.Namespace, req.Name))
		res, err := r.Reconcile(ctx, req)
		span.End(err)
		return res, err
	})
}
