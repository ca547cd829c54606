// Package telemetry is how Radial's processes are seen from outside: traces by
// OpenTelemetry, metrics for Prometheus, health and readiness.
//
// # Guarantees
//
//   - No label of a metric and no name of a span comes from a request, a
//     resource or a tenant: each has a set of values that the code bounds
//     ([Class], [Method], [Outcome], routes by their pattern). The attributes of
//     spans that name a resource or an operation are cut at [maxAttribute].
//   - Nothing here is given a property, a parameter, a header or the text of an
//     error; errors show as their [core.Code]. So no secret can come out.
//   - Without an exporter nothing is recorded or sent. A client's traceparent is
//     passed on all the same, so that its trace does not break here.
//   - A nil *[Metrics] counts nothing: rooms need not ask whether there is one.
package telemetry
