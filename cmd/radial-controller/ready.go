package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// readiness is what /readyz and --ready-file go by: the process has read the
// cluster and, being the leader, works on what it read and follows the control
// plane's changes. A standby is ready when it could lead.
type readiness struct {
	// synced is closed when the caches hold Recipes and Deployments.
	synced <-chan struct{}
	// elected is closed when the process leads; at once where none is elected.
	elected <-chan struct{}
	// standby says that the process may be ready without leading.
	standby bool
	// recipes and deployments are closed when the workers of the two run.
	recipes, deployments <-chan struct{}
	// followed is closed once the change stream was up, connected tells whether
	// it is, and if not why.
	followed  <-chan struct{}
	connected func() (bool, error)
}

// add registers the probes, and what writes the file unless path is "".
func (r readiness) add(mgr manager.Manager, path string) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	synced := make(chan struct{})
	r.synced = synced
	err := mgr.Add(everywhere(func(ctx context.Context) error {
		if mgr.GetCache().WaitForCacheSync(ctx) {
			close(synced)
		}
		return nil
	}))
	if err != nil {
		return err
	}
	if path != "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a run before
			return fmt.Errorf("cannot use --ready-file: %w", err)
		}
		if err := mgr.Add(everywhere(func(ctx context.Context) error { return r.announce(ctx, path) })); err != nil {
			return err
		}
	}
	return mgr.AddReadyzCheck("serving", func(*http.Request) error { return r.check() })
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// check is nil when the process is ready, and else says what is missing.
func (r readiness) check() error {
	switch {
	case !closed(r.synced):
		return errors.New("the cluster's Recipes and Deployments are not read yet")
	case !closed(r.elected) && r.standby:
		return nil
	case !closed(r.recipes):
		return errors.New("the workers for Recipes do not run yet")
	case !closed(r.deployments):
		return errors.New("the workers for Deployments do not run yet")
	}
	if up, why := r.connected(); !up {
		return fmt.Errorf("the control plane's changes are not followed: %v", why)
	}
	return nil
}

// announce writes the file when the process is ready for the first time.
func (r readiness) announce(ctx context.Context, path string) error {
	await := []<-chan struct{}{r.synced}
	if !r.standby {
		await = append(await, r.recipes, r.deployments, r.followed)
	}
	for _, c := range await {
		select {
		case <-c:
		case <-ctx.Done():
			return nil
		}
	}
	temporary := path + ".new" // whoever reads sees all of it or no file
	err := os.WriteFile(temporary, []byte("ready\n"), 0o644)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("cannot write --ready-file: %w", err)
	}
	return nil
}

// everywhere is a Runnable that needs no leadership.
type everywhere func(context.Context) error

func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

func (everywhere) NeedLeaderElection() bool { return false }
