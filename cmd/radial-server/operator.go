package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/radial-project/radial/internal/telemetry"
)

// defaultOperator is where /metrics is served unless --metrics-listen says
// otherwise. In developer mode, where several servers share a machine, it is a
// free port, which the log names.
const (
	defaultOperator          = "127.0.0.1:9090"
	defaultOperatorDeveloper = "127.0.0.1:0"
)

// operator is how those who operate the process see it: metrics, probes,
// traces.
type operator struct {
	metrics *telemetry.Metrics
	probes  *telemetry.Probes
	traced  func(context.Context) error
	// listener is nil where there is none.
	listener net.Listener
	log      *slog.Logger
}

// newOperator listens, so that an address that is taken is said at the start.
func newOperator(ctx context.Context, c options, log *slog.Logger) (*operator, error) {
	o := &operator{metrics: telemetry.NewMetrics(), probes: &telemetry.Probes{}, log: log}
	address := c.metricsListen
	switch {
	case address == "" && c.developerMode:
		address = defaultOperatorDeveloper
	case address == "":
		address = defaultOperator
	}
	var err error
	if address != "0" {
		if o.listener, err = net.Listen("tcp", address); err != nil {
			return nil, fmt.Errorf("cannot listen on %s for metrics (%w): choose another address with --metrics-listen, or 0 for none", address, err)
		}
	}
	if o.traced, err = telemetry.Exporting(ctx, "radial-server", log); err != nil {
		_ = o.close()
		return nil, err
	}
	return o, nil
}

// serve serves until ctx ends: on loopback in plain HTTP, elsewhere as d does.
func (o *operator) serve(ctx context.Context, d door, running *sync.WaitGroup) {
	if o.listener == nil {
		return
	}
	listener, scheme := o.listener, "http"
	if at, ok := listener.Addr().(*net.TCPAddr); d.Front != nil && !(ok && at.IP.IsLoopback()) {
		listener, scheme = tls.NewListener(listener, d.TLS()), d.scheme()
	}
	o.log.Info("metrics and probes are served", "url", scheme+"://"+listener.Addr().String())
	running.Go(func() {
		if err := telemetry.Serve(ctx, listener, telemetry.Operator(o.metrics, o.probes), o.log); err != nil {
			o.log.Error("metrics and probes are no longer served", "error", err.Error())
		}
	})
}

// close sends what is left of traces.
func (o *operator) close() error {
	if o.listener != nil {
		_ = o.listener.Close()
	}
	if o.traced == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := o.traced(ctx); err != nil {
		o.log.Warn("the last traces could not be sent", "error", err.Error())
	}
	return nil
}
