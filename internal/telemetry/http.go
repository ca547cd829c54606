package telemetry

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// exchange is what a handler learns of a request for those outside it.
type exchange struct{ route string }

type exchangeKey struct{}

// Routed says which route a request takes, by its pattern: the inner handler
// knows that, the outer one counts by it.
func Routed(ctx context.Context, pattern string) {
	if e, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		e.route = pattern
	}
}

// Handler counts requests, and handles each as a step of its client's trace.
// Requests that no inner handler said a route of count under "none".
func Handler(m *Metrics, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		if m != nil {
			m.inFlight.Inc()
			defer m.inFlight.Dec()
		}
		method := Method(r.Method)
		e := &exchange{}
		ctx := context.WithValue(r.Context(), exchangeKey{}, e)
		ctx, span := start(Continue(ctx, r.Header.Get(traceparent)), trace.SpanKindServer, method, attribute.String("http.request.method", method))
		answer := &response{ResponseWriter: w}
		defer func() {
			if answer.code == 0 {
				answer.code = http.StatusOK
			}
			if v := recover(); v != nil { // the connection is broken off
				answer.code = http.StatusInternalServerError
				defer panic(v)
			}
			if e.route == "" {
				e.route = "none"
			}
			span.s.SetName(method + " " + e.route)
			span.s.SetAttributes(attribute.String("http.route", e.route), attribute.Int("http.response.status_code", answer.code))
			if answer.code >= 500 {
				span.s.SetStatus(codes.Error, http.StatusText(answer.code))
			}
			span.s.End()
			held := strings.HasPrefix(e.route, "watch/") || strings.Contains(r.Header.Get("Prefer"), "wait=")
			m.request(e.route, method, answer.code, time.Since(begun), held)
		}()
		next.ServeHTTP(answer, r.WithContext(ctx))
	})
}

// response remembers the status.
type response struct {
	http.ResponseWriter
	code int
}

func (r *response) WriteHeader(code int) {
	if r.code == 0 && code >= 200 {
		r.code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *response) Write(b []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap gives flushes and deadlines their way.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }
