package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/radial-project/radial/internal/core"
)

// maxAttribute bounds the length in bytes of an attribute's value.
const maxAttribute = 512

// Exporting sets the process's tracer up as the standard OTEL_… variables say,
// and returns what sends the rest and ends it. Unless they name an endpoint or
// an exporter there is none, and nothing is recorded.
//
//   - OTEL_TRACES_EXPORTER: "otlp" or "none"; unset is otlp where an endpoint
//     is set, else none.
//   - OTEL_EXPORTER_OTLP_PROTOCOL (or …_TRACES_PROTOCOL): "http/protobuf",
//     which is the default, or "grpc".
//   - All others (endpoint, headers, certificates, timeout, sampler, batches,
//     OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_SDK_DISABLED) as the
//     OpenTelemetry specification has them.
func Exporting(ctx context.Context, service string, log *slog.Logger) (end func(context.Context) error, err error) {
	none := func(context.Context) error { return nil }
	protocol, err := exporter(os.Getenv)
	if err != nil || protocol == "" {
		return none, err
	}
	// The SDK tells what goes wrong while it runs (a collector that is away) by
	// this; it is no reason to stop.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("traces could not be sent", "error", err.Error())
	}))
	var sender sdk.SpanExporter
	if protocol == "grpc" {
		sender, err = otlptracegrpc.New(ctx)
	} else {
		sender, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return none, fmt.Errorf("traces cannot be sent as OTEL_EXPORTER_OTLP_… says: %w", err)
	}
	p, err := NewProvider(ctx, service, sdk.WithBatcher(sender))
	if err != nil {
		return none, errors.Join(err, sender.Shutdown(ctx))
	}
	otel.SetTracerProvider(p)
	log.Info("traces are sent", "protocol", protocol)
	return p.Shutdown, nil
}

// exporter is the protocol to send by, "" for no sending.
func exporter(getenv func(string) string) (protocol string, err error) {
	first := func(names ...string) (name, value string) {
		for _, n := range names {
			if v := strings.TrimSpace(getenv(n)); v != "" {
				return n, v
			}
		}
		return "", ""
	}
	if _, v := first("OTEL_SDK_DISABLED"); strings.EqualFold(v, "true") {
		return "", nil
	}
	name, kind := first("OTEL_TRACES_EXPORTER")
	switch strings.ToLower(kind) {
	case "otlp":
	case "none":
		return "", nil
	case "":
		if _, endpoint := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"); endpoint == "" {
			return "", nil
		}
	default:
		return "", fmt.Errorf("%s is %q: it must be otlp or none", name, kind)
	}
	name, protocol = first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	switch protocol {
	case "":
		return "http/protobuf", nil
	case "grpc", "http/protobuf":
		return protocol, nil
	}
	return "", fmt.Errorf("%s is %q: it must be http/protobuf or grpc", name, protocol)
}

// NewProvider returns a tracer provider of a service, for Exporting and for
// tests.
func NewProvider(ctx context.Context, service string, options ...sdk.TracerProviderOption) (*sdk.TracerProvider, error) {
	r, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(service), semconv.ServiceVersion(core.Version)),
		resource.WithFromEnv(), // wins over what stands before it
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	limits := sdk.NewSpanLimits()
	if limits.AttributeValueLengthLimit < 0 || limits.AttributeValueLengthLimit > maxAttribute {
		limits.AttributeValueLengthLimit = maxAttribute
	}
	return sdk.NewTracerProvider(append([]sdk.TracerProviderOption{sdk.WithResource(r), sdk.WithRawSpanLimits(limits)}, options...)...), nil
}
