package provider

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"
)

// Options are what [Run] runs with.
type Options struct {
	Cloud    Cloud
	Settings Settings
	// Config reaches the API server as the provider's ServiceAccount.
	Config *rest.Config
	// HealthListen and MetricsListen are addresses; empty or "0" is none.
	HealthListen, MetricsListen string
	// Log is silent unless set.
	Log *slog.Logger
	// Now is time.Now unless set.
	Now func() time.Time
	// Recheck is how often what is answered is looked at again (C-151); 10
	// minutes unless set. SyncInterval is the same for synced secrets: 30
	// seconds, since C-70 allows a minute. Each is spread by up to a tenth less.
	Recheck, SyncInterval time.Duration
	// RetryMin and RetryMax bound the back-off of what waits or failed: 1
	// second and 5 minutes unless set.
	RetryMin, RetryMax time.Duration
	// CallTimeout bounds each cloud call: 1 minute unless set.
	CallTimeout time.Duration
	// Concurrency is how many requests are worked on at once: 16 unless set.
	Concurrency int
}

// Run serves until ctx ends; then it finishes or abandons what it is at (every
// point is one from which the next process goes on) and answers nil.
func Run(ctx context.Context, o Options) error {
	_ = ctx
	return errors.New("not yet")
}
