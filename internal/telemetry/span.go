package telemetry

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/radial-project/radial/internal/core"
)

// scope names our instrumentation in traces.
const scope = "github.com/radial-project/radial"

// traceparent is the header, and the form in which a trace is stored.
const traceparent = "traceparent"

// Only the trace goes from process to process. Baggage would carry whatever a
// client puts in it, and tracestate what vendors put in it.
var propagator = propagation.TraceContext{}

// Keys of the attributes that our spans have beside the standard ones.
const (
	keyCode      = attribute.Key("radial.error.code")
	keyOperation = attribute.Key("radial.operation.id")
	keyVerb      = attribute.Key("radial.operation.verb")
	keyAttempt   = attribute.Key("radial.operation.attempt")
	keyResource  = attribute.Key("radial.resource.id")
	keyType      = attribute.Key("radial.resource.type")
	keyObject    = attribute.Key("radial.kubernetes.object")
	keyKind      = attribute.Key("radial.kind")
)

// Span is one step of a trace. End it once.
type Span struct{ s trace.Span }

// Start begins a step named for what is done, never for what it is done to.
func Start(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, Span) {
	ctx, s := otel.Tracer(scope, trace.WithInstrumentationVersion(core.Version)).Start(ctx, name, trace.WithAttributes(attributes...))
	return ctx, Span{s}
}

func start(ctx context.Context, kind trace.SpanKind, name string, attributes ...attribute.KeyValue) (context.Context, Span) {
	ctx, s := otel.Tracer(scope, trace.WithInstrumentationVersion(core.Version)).Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
	return ctx, Span{s}
}

// Step begins a step like Start, but only as part of one that is recorded: for
// what is of no interest alone, and so often done that the rest must cost
// nothing.
func Step(ctx context.Context, name string) (context.Context, Span) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, Span{}
	}
	return Start(ctx, name)
}

// End ends the step. Of an error only its code is kept: its text may name what
// a trace must not.
func (s Span) End(err error) {
	if s.s == nil {
		return
	}
	if err != nil {
		s.fail(string(core.CodeOf(err)))
	}
	s.s.End()
}

// fail marks the step as failed.
func (s Span) fail(code string) {
	s.s.SetAttributes(keyCode.String(code))
	s.s.SetStatus(codes.Error, code)
}

// Resource says which resource a step is about.
func Resource(id core.ID) attribute.KeyValue { return keyResource.String(id.String()) }

// Kind says what a step is about: a kind of Kubernetes object, of recipe.
func Kind(kind string) attribute.KeyValue { return keyKind.String(kind) }

// Object says which object of a cluster a step is about.
func Object(namespace, name string) attribute.KeyValue {
	return keyObject.String(namespace + "/" + name)
}

// Traceparent is the present step in the form in which it is stored or sent, ""
// when nobody traces.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagator.Inject(ctx, carrier)
	return carrier[traceparent]
}

// Continue returns a context in the trace that Traceparent named; "", and what
// is none, change nothing.
func Continue(ctx context.Context, parent string) context.Context {
	if parent == "" {
		return ctx
	}
	return propagator.Extract(ctx, propagation.MapCarrier{traceparent: parent})
}

// Operation begins the step of a worker on an operation, in the trace of the
// request that asked for it.
func Operation(ctx context.Context, op core.Operation) (context.Context, Span) {
	return start(Continue(ctx, op.Trace), trace.SpanKindConsumer, "operation "+Verb(op.Verb),
		keyOperation.String(op.ID), keyVerb.String(string(op.Verb)), keyAttempt.Int(op.Attempts),
		Resource(op.ResourceID), keyType.String(op.ResourceID.Type()))
}

// Transport sends requests as steps of their context's trace and tells the
// other side.
func Transport(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return transport{next}
}

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := start(r.Context(), trace.SpanKindClient, Method(r.Method),
		attribute.String("http.request.method", Method(r.Method)), attribute.String("server.address", r.URL.Hostname()))
	if parent := Traceparent(ctx); parent != "" {
		r = r.Clone(ctx) // a RoundTripper changes no request of its caller
		r.Header.Set(traceparent, parent)
	}
	resp, err := t.next.RoundTrip(r)
	switch {
	case err != nil:
		span.fail(string(core.CodeUnavailable))
	default:
		span.s.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
		if resp.StatusCode >= 400 {
			span.s.SetStatus(codes.Error, http.StatusText(resp.StatusCode))
		}
	}
	span.s.End()
	return resp, err
}

// WrappedRoundTripper lets client-go look through.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
