package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// checkTimeout bounds one check, so that a probe gets its answer in time.
const checkTimeout = 3 * time.Second

// Check answers nil, or what is wrong and what it is wrong with; it must hold
// no secret. It returns when its context ends.
type Check func(context.Context) error

// Probes are the checks of one process. Alive says that it should be restarted
// where one fails, Ready that it should be sent nothing meanwhile. The zero
// value is alive and ready.
type Probes struct {
	mu    sync.Mutex
	alive map[string]Check
	ready map[string]Check
}

// Alive adds a check of health.
func (p *Probes) Alive(name string, c Check) { p.add(&p.alive, name, c) }

// Ready adds a check of readiness. What is not alive is not ready either.
func (p *Probes) Ready(name string, c Check) { p.add(&p.ready, name, c) }

func (p *Probes) add(to *map[string]Check, name string, c Check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *to == nil {
		*to = map[string]Check{}
	}
	(*to)[name] = c
}

// Healthy runs the checks of health; the error names those that failed.
func (p *Probes) Healthy(ctx context.Context) error { return p.run(ctx, &p.alive) }

// IsReady runs all checks.
func (p *Probes) IsReady(ctx context.Context) error { return p.run(ctx, &p.alive, &p.ready) }

func (p *Probes) run(ctx context.Context, sets ...*map[string]Check) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	type named struct {
		name string
		err  error
	}
	p.mu.Lock()
	var running int
	results := make(chan named, 16)
	for _, set := range sets {
		for name, c := range *set {
			running++
			go func() {
				err := c(ctx)
				select {
				case results <- named{name, err}:
				case <-ctx.Done():
				}
			}()
		}
	}
	p.mu.Unlock()
	var failed []named
	for range running {
		select {
		case r := <-results:
			if r.err != nil {
				failed = append(failed, r)
			}
		case <-ctx.Done():
			return errors.New("a check did not answer in time")
		}
	}
	slices.SortFunc(failed, func(a, b named) int { return strings.Compare(a.name, b.name) })
	errs := make([]error, len(failed))
	for i, f := range failed {
		errs[i] = &failure{f.name, f.err}
	}
	return errors.Join(errs...)
}

// failure is a check that failed.
type failure struct {
	check string
	cause error
}

func (f *failure) Error() string { return f.check + ": " + f.cause.Error() }
func (f *failure) Unwrap() error { return f.cause }

// Operator serves what is for those who operate the process, and for nobody
// else: /metrics, /healthz and /readyz.
func Operator(m *Metrics, p *Probes) http.Handler {
	mux := http.NewServeMux()
	if m != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
			// One collector that fails (the store is away) hides no other.
			ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
		}))
	}
	probe := func(run func(context.Context) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			answer, code := map[string]string{"status": "ok"}, http.StatusOK
			if err := run(r.Context()); err != nil {
				answer, code = map[string]string{"status": "failed", "reason": err.Error()}, http.StatusServiceUnavailable
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(answer) // the probe went away
		}
	}
	mux.HandleFunc("GET /healthz", probe(p.Healthy))
	mux.HandleFunc("GET /readyz", probe(p.IsReady))
	return mux
}

// Serve serves the operator's listener until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
