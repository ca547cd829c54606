package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
)

func TestExporter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		environment map[string]string
		want        string
		problem     string
	}{
		"none by default":            {nil, "", ""},
		"an endpoint is enough":      {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "http/protobuf", ""},
		"an endpoint for traces":     {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, "http/protobuf", ""},
		"asked for":                  {map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, "http/protobuf", ""},
		"switched off":               {map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "", ""},
		"the SDK switched off":       {map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "", ""},
		"grpc":                       {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc", ""},
		"the protocol of traces":     {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, "http/protobuf", ""},
		"an exporter we have not":    {map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, "", `OTEL_TRACES_EXPORTER is "zipkin"`},
		"a protocol we have not":     {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "", `OTEL_EXPORTER_OTLP_PROTOCOL is "http/json"`},
		"metrics alone ask for none": {map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := exporter(func(k string) string { return c.environment[k] })
			if got != c.want || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("exporter = %q, %v; want %q, %q", got, err, c.want, c.problem)
			}
		})
	}
}

// What is set up by the environment reaches a collector, as one trace from the
// client's side to the server's, and holds no text of an error.
func TestExporting(t *testing.T) {
	got := make(chan *collector.ExportTraceServiceRequest, 16)
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		m := &collector.ExportTraceServiceRequest{}
		if err := proto.Unmarshal(raw, m); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		got <- m
	}))
	defer sink.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.URL)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	end, err := Exporting(t.Context(), "radial-test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m := NewMetrics()
	web := httptest.NewServer(Handler(m, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Routed(r.Context(), "things/{thing}")
		_, step := Start(r.Context(), "inner")
		step.End(core.Errorf(core.CodeRecipeInvalid, "the password is needle"))
		w.WriteHeader(http.StatusTeapot)
	})))
	defer web.Close()
	ctx, outer := Start(t.Context(), "outer", Resource(core.MustParseID("/planes/radius/local/resourceGroups/"+strings.Repeat("g", 90)+"/providers/A.B/c/"+strings.Repeat("n", 600))))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, web.URL+"/things/1", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: Transport(nil)}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if r.Header.Get("traceparent") != "" {
		t.Error("the caller's own request was changed")
	}
	outer.End(nil)
	if err := end(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(got)
	var way []string
	traces := map[string]bool{}
	for m := range got {
		if text := m.String(); strings.Contains(text, "needle") {
			t.Errorf("a trace holds the text of an error: %s", text)
		}
		for _, rs := range m.ResourceSpans {
			if text := rs.Resource.String(); !strings.Contains(text, "radial-test") || !strings.Contains(text, "deployment.environment.name") {
				t.Errorf("the service is %s", text)
			}
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					way = append(way, s.Name)
					traces[string(s.TraceId)] = true
					for _, a := range s.Attributes {
						if n := len(a.Value.GetStringValue()); n > maxAttribute {
							t.Errorf("%s of %s has %d bytes", a.Key, s.Name, n)
						}
					}
				}
			}
		}
	}
	slices.Sort(way)
	if want := []string{"GET", "GET things/{thing}", "inner", "outer"}; !slices.Equal(way, want) || len(traces) != 1 {
		t.Errorf("%d traces with the steps %q, want one of %q", len(traces), way, want)
	}
}

// A client's trace goes on to the operation even where nobody here records.
func TestTraceparentPassesThrough(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	ctx := Continue(context.Background(), parent)
	if got := Traceparent(ctx); got != parent {
		t.Errorf("Traceparent = %q, want %q", got, parent)
	}
	for _, odd := range []string{"", "no trace", "00-zz-zz-01", strings.Repeat("0", 1<<12)} {
		if got := Traceparent(Continue(context.Background(), odd)); got != "" {
			t.Errorf("%.40q is taken for a trace: %q", odd, got)
		}
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	m := NewMetrics()
	stream := make(chan struct{})
	h := Handler(m, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			Routed(r.Context(), "ok")
			fmt.Fprint(w, "fine")
		case "/stream":
			Routed(r.Context(), "watch/changes")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("a stream cannot be flushed: %v", err)
			}
			<-stream
		case "/broken":
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	web := httptest.NewServer(h)
	defer web.Close()
	for _, path := range []string{"/ok", "/unknown/12345", "/unknown/67890"} {
		resp, err := http.Get(web.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if _, err := http.Post(web.URL+"/broken", "", nil); err == nil {
		t.Error("a broken connection was answered")
	}
	r, _ := http.NewRequest("FROBNICATE", web.URL+"/ok", nil)
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
	}
	held, err := http.Get(web.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	if n := gauge(t, m, "radial_http_requests_in_flight"); n != 1 {
		t.Errorf("%v requests in flight, want the stream", n)
	}
	close(stream)
	_, _ = io.ReadAll(held.Body)
	held.Body.Close()
	web.Close()
	var got []string
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			var labels []string
			for _, l := range x.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			switch f.GetName() {
			case "radial_http_requests_total":
				got = append(got, fmt.Sprint(labels, x.GetCounter().GetValue()))
			case "radial_http_request_duration_seconds":
				if slices.Contains(labels, "watch/changes") {
					t.Error("a stream counts as a slow answer")
				}
			}
		}
	}
	slices.Sort(got)
	want := []string{"[200 GET ok] 1", "[200 GET watch/changes] 1", "[200 OTHER ok] 1", "[404 GET none] 2", "[500 POST none] 1"}
	if !slices.Equal(got, want) {
		t.Errorf("counted %q, want %q", got, want)
	}
}

func gauge(t *testing.T, m *Metrics, name string) float64 {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// Every namespace of types that comes with Radial is a class of its own.
func TestClass(t *testing.T) {
	t.Parallel()
	for _, m := range manifest.Builtin() {
		id := core.GroupID("g").Resource(strings.ToUpper(m.Namespace)+"/things", "x")
		if got := Class(id); got != m.Namespace {
			t.Errorf("the class of %s is %q", m.Namespace, got)
		}
	}
	if got := Class(core.GroupID("g").Resource("Contoso.Shops/carts", "x")); got != "Custom" {
		t.Errorf("a registered type is of class %q", got)
	}
}

// Whatever comes in, the values of labels stay few.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	m := NewMetrics()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[A-Za-z.]{1,12}`)
		op := core.Operation{ResourceID: core.GroupID(word.Draw(t, "group")).Resource(word.Draw(t, "ns")+".x/"+word.Draw(t, "type"), word.Draw(t, "name")),
			Verb: core.Verb(word.Draw(t, "verb")), State: core.State(word.Draw(t, "state"))}
		m.Accepted(op)
		m.Begun(op, time.Now())()
		m.Ended(op, op.State, time.Now())
		err := core.Errorf(core.Code(word.Draw(t, "code")), "x")
		m.Recipe(word.Draw(t, "kind"), "execute", err, time.Second)
		m.Store("Accept", err, time.Second)
		m.request("route", Method(word.Draw(t, "method")), 200, time.Second, false)
		m.Sealed("seal", err)
	})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "radial_") && len(f.GetMetric()) > 6 {
			t.Errorf("%s has %d series after random words", f.GetName(), len(f.GetMetric()))
		}
	}
}

func TestNilMetrics(t *testing.T) {
	t.Parallel()
	var m *Metrics
	m.Accepted(core.Operation{})
	m.Begun(core.Operation{}, time.Now())()
	m.Ended(core.Operation{}, core.StateFailed, time.Now())
	m.LeaseLost()
	m.Streaming()()
	m.Committed(1, 1)
	m.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"}))
}

func TestProbes(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is full")
	var store, workers error
	p := &Probes{}
	p.Alive("workers", func(context.Context) error { return workers })
	p.Ready("store", func(context.Context) error { return store })
	web := httptest.NewServer(Operator(NewMetrics(), p))
	defer web.Close()
	probe := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get(web.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(raw)
	}
	expect := func(when string, healthy, ready int, says string) {
		t.Helper()
		h, _ := probe("/healthz")
		r, text := probe("/readyz")
		if h != healthy || r != ready || !strings.Contains(text, says) {
			t.Errorf("%s: healthz %d, readyz %d %s; want %d, %d, %q", when, h, r, text, healthy, ready, says)
		}
	}
	expect("all is well", 200, 200, "ok")
	store = broken
	expect("the store cannot be written", 200, 503, "store: the disk is full")
	store, workers = nil, errors.New("the workers do not run")
	expect("the workers are gone", 503, 503, "workers: the workers do not run")
	if code, text := probe("/metrics"); code != 200 || !strings.Contains(text, "radial_build_info") {
		t.Errorf("metrics answer %d: %.200s", code, text)
	}
}

// A check that hangs does not hold up a probe for ever.
func TestProbeHangs(t *testing.T) {
	t.Parallel()
	p := &Probes{}
	p.Ready("store", func(ctx context.Context) error { <-ctx.Done(); select {} })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.IsReady(ctx); err == nil {
		t.Error("it is ready though nothing answered")
	}
}
