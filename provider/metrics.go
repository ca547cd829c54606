package provider

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// metrics are the process'. Labels are from closed sets: nothing that a request
// says becomes one.
type metrics struct {
	answers, calls, credentials *prometheus.CounterVec
	seconds                     *prometheus.HistogramVec
}

var processMetrics = sync.OnceValue(func() *metrics {
	m := &metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "radial_provider_answers_total", Help: "Answers written to requests, by kind and phase.",
		}, []string{"kind", "phase"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "radial_provider_cloud_calls_total", Help: "Calls to the cloud, by call and outcome: ok, waiting, refused, error.",
		}, []string{"call", "outcome"}),
		credentials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "radial_provider_credentials_total", Help: "Credentials issued, ended, and offered to a Secret that was there (conflict).",
		}, []string{"event"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "radial_provider_cloud_call_seconds", Help: "Time of calls to the cloud.", Buckets: prometheus.ExponentialBuckets(0.005, 3, 9),
		}, []string{"call"}),
	}
	ctrlmetrics.Registry.MustRegister(m.answers, m.calls, m.credentials, m.seconds)
	return m
})

// kindLabel is the kind if it is one of the six.
func kindLabel(kind string) string {
	if v1alpha1.KnownKind(kind) {
		return kind
	}
	return "unknown"
}

// call2 calls the cloud, bounded in time and counted.
func call2[A, B any](ctx context.Context, n *session, name string, f func(context.Context) (A, B, error)) (A, B, error) {
	ctx, cancel := context.WithTimeout(ctx, n.CallTimeout)
	defer cancel()
	start := time.Now()
	a, b, err := guarded(n, name, func() (A, B, error) { return f(ctx) })
	n.metrics.seconds.WithLabelValues(name).Observe(time.Since(start).Seconds())
	result := "ok"
	var o *outcome
	switch {
	case errors.As(err, &o) && o.phase == v1alpha1.PhaseWaiting:
		result = "waiting"
	case errors.As(err, &o), errors.Is(err, ErrMoved):
		result = "refused"
	case err != nil:
		result = "error"
	}
	n.metrics.calls.WithLabelValues(name, result).Inc()
	return a, b, err
}

// guarded takes a panic of the cloud's side for a fault of the cloud: the request
// says that it waits, and is tried again. Where it was is logged, and what it
// said is not: that may be anything that the cloud has answered.
func guarded[A, B any](n *session, name string, f func() (A, B, error)) (a A, b B, err error) {
	defer func() {
		if p := recover(); p != nil {
			n.log.Error("the cloud's side has panicked", "call", name, "type", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = errors.New("the provider itself is at fault; its log tells where")
		}
	}()
	return f()
}

func (n *session) call(ctx context.Context, name string, f func(context.Context) error) error {
	_, _, err := call2(ctx, n, name, func(ctx context.Context) (struct{}, struct{}, error) { return struct{}{}, struct{}{}, f(ctx) })
	return err
}
