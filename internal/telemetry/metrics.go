package telemetry

import (
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/radial-project/radial/internal/core"
)

// Metrics are the metrics of one process. A nil one counts nothing.
type Metrics struct {
	registry *prometheus.Registry

	requests  *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	inFlight  prometheus.Gauge
	streams   prometheus.Gauge
	accepted  *prometheus.CounterVec
	ended     *prometheus.CounterVec
	waited    *prometheus.HistogramVec
	took      *prometheus.HistogramVec
	running   prometheus.Gauge
	limit     prometheus.Gauge
	lost      prometheus.Counter
	recipes   *prometheus.HistogramVec
	targets   *prometheus.HistogramVec
	store     *prometheus.HistogramVec
	commits   prometheus.Histogram
	coalesced prometheus.Histogram
	sealed    *prometheus.CounterVec
	resealed  *prometheus.CounterVec
	swept     prometheus.Counter
}

// Buckets of durations in seconds: fast is for what takes milliseconds, slow
// for recipes and operations, which may take an hour.
var (
	fast = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	slow = []float64{.005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 180, 600, 1800, 3600}
)

// NewMetrics returns the metrics of a server process, all of them at zero.
func NewMetrics() *Metrics {
	r := prometheus.NewRegistry()
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "radial", Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "radial", Name: name, Help: help})
		r.MustRegister(g)
		return g
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "radial", Name: name, Help: help, Buckets: buckets}, labels)
		r.MustRegister(h)
		return h
	}
	single := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "radial", Name: name, Help: help, Buckets: buckets})
		r.MustRegister(h)
		return h
	}
	plain := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "radial", Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	m := &Metrics{
		registry:  r,
		requests:  counter("http_requests_total", "Requests answered, by route, method and status code.", "route", "method", "code"),
		latency:   histogram("http_request_duration_seconds", "Time to answer a request, without held polls and streams.", fast, "route", "method"),
		inFlight:  gauge("http_requests_in_flight", "Requests being answered, held polls and streams included."),
		streams:   gauge("change_stream_clients", "Clients that follow the change stream."),
		accepted:  counter("operations_accepted_total", "Operations accepted, by the namespace of their type (Custom for registered ones) and verb.", "class", "verb"),
		ended:     counter("operations_ended_total", "Operations ended by this process, by the namespace of their type, verb and outcome.", "class", "verb", "outcome"),
		waited:    histogram("operation_wait_seconds", "Time from the acceptance of an operation to its first worker.", slow, "class"),
		took:      histogram("operation_duration_seconds", "Time from the acceptance of an operation to its end.", slow, "class", "verb"),
		running:   gauge("operations_running", "Operations that this process's workers run."),
		limit:     gauge("operations_running_limit", "How many operations this process's workers run at most; 0 where they are switched off."),
		lost:      plain("lease_losses_total", "Leases that were lost to another worker or ran out while this process worked."),
		recipes:   histogram("recipe_duration_seconds", "Time that recipes ran, by kind, action (execute, delete) and outcome.", slow, "kind", "action", "outcome"),
		targets:   histogram("target_call_duration_seconds", "Time of calls on the targets of recipes, by extension, call and outcome.", slow, "extension", "call", "outcome"),
		store:     histogram("store_call_duration_seconds", "Time of the store's transactions as their callers see it, by call and outcome.", fast, "call", "outcome"),
		commits:   single("store_commit_duration_seconds", "Time of the commits that writes share, the disk included (SQLite).", fast),
		coalesced: single("store_commit_writes", "Writes that shared a commit (SQLite).", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}),
		sealed:    counter("sealed_values_total", "Values sealed and opened, by action and outcome.", "action", "outcome"),
		resealed:  counter("resealed_rows_total", "Rows sealed again with a newer version of the data keyset, by outcome.", "outcome"),
		swept:     plain("store_swept_rows_total", "Rows removed because their time was over: ended operations, audit records."),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "radial", Name: "build_info", Help: "1, with the version of Radial and of Go."}, []string{"version", "goversion"})
	build.WithLabelValues(core.Version, runtime.Version()).Set(1)
	r.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Register adds a collector of what is read when it is asked for.
func (m *Metrics) Register(c prometheus.Collector) {
	if m != nil {
		m.registry.MustRegister(c)
	}
}

// Gatherer is what a test or a listener reads.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// request counts one answered request. Held ones do not count as slow.
func (m *Metrics) request(route, method string, code int, took time.Duration, held bool) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(code)).Inc()
	if !held {
		m.latency.WithLabelValues(route, method).Observe(took.Seconds())
	}
}

// Streaming counts a client of the change stream until the returned function is
// called.
func (m *Metrics) Streaming() func() {
	if m == nil {
		return func() {}
	}
	m.streams.Inc()
	return m.streams.Dec
}

// Accepted counts an operation that was committed.
func (m *Metrics) Accepted(op core.Operation) {
	if m != nil {
		m.accepted.WithLabelValues(Class(op.ResourceID), Verb(op.Verb)).Inc()
	}
}

// Begun counts an operation that a worker took at now, until the returned
// function is called.
func (m *Metrics) Begun(op core.Operation, now time.Time) func() {
	if m == nil {
		return func() {}
	}
	if op.Fence <= 1 { // what parked comes back with a higher one
		m.waited.WithLabelValues(Class(op.ResourceID)).Observe(positive(now.Sub(op.Created)))
	}
	m.running.Inc()
	return m.running.Dec
}

// Ended counts an operation whose end was committed at now.
func (m *Metrics) Ended(op core.Operation, s core.State, now time.Time) {
	if m == nil {
		return
	}
	class := Class(op.ResourceID)
	m.ended.WithLabelValues(class, Verb(op.Verb), state(s)).Inc()
	m.took.WithLabelValues(class, Verb(op.Verb)).Observe(positive(now.Sub(op.Created)))
}

// LeaseLost counts a lease that did not hold to the operation's end.
func (m *Metrics) LeaseLost() {
	if m != nil {
		m.lost.Inc()
	}
}

// Workers says how many operations run at most.
func (m *Metrics) Workers(n int) {
	if m != nil {
		m.limit.Set(float64(n))
	}
}

// Recipe counts a run of a recipe.
func (m *Metrics) Recipe(kind, action string, err error, took time.Duration) {
	if m != nil {
		m.recipes.WithLabelValues(RecipeKind(kind), action, Outcome(err)).Observe(took.Seconds())
	}
}

// Target counts a call on a target. extension and call are names that the code
// knows.
func (m *Metrics) Target(extension, call string, err error, took time.Duration) {
	if m != nil {
		m.targets.WithLabelValues(extension, call, Outcome(err)).Observe(took.Seconds())
	}
}

// Store counts a transaction. call is a method's name.
func (m *Metrics) Store(call string, err error, took time.Duration) {
	if m != nil {
		m.store.WithLabelValues(call, Outcome(err)).Observe(took.Seconds())
	}
}

// Committed counts a commit and the writes that shared it.
func (m *Metrics) Committed(writes int, took time.Duration) {
	if m != nil {
		m.commits.Observe(took.Seconds())
		m.coalesced.Observe(float64(writes))
	}
}

// Sealed counts a value sealed ("seal") or opened ("open").
func (m *Metrics) Sealed(action string, err error) {
	if m != nil {
		m.sealed.WithLabelValues(action, Outcome(err)).Inc()
	}
}

// Resealed counts a row that was to be sealed again.
func (m *Metrics) Resealed(err error) {
	if m != nil {
		m.resealed.WithLabelValues(Outcome(err)).Inc()
	}
}

// Swept counts rows whose time was over.
func (m *Metrics) Swept(rows int) {
	if m != nil {
		m.swept.Add(float64(rows))
	}
}

// positive guards a histogram from clocks that disagree.
func positive(d time.Duration) float64 { return max(d, 0).Seconds() }
