package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/auth/front"
	"github.com/radial-project/radial/internal/core"
	extensions "github.com/radial-project/radial/internal/extension/registry"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/observe"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/store/address"
	"github.com/radial-project/radial/internal/telemetry"
)

// run serves until ctx ends, and then until what is under way has ended.
func run(ctx context.Context, c options, log *slog.Logger) (err error) {
	installed, err := installation(c)
	if err != nil {
		return err
	}
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler())) // for what follows services
	// Then the address: a port that is taken is said before anything is made.
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return fmt.Errorf("cannot listen on %s (%w): choose another address with --listen", c.listen, err)
	}
	defer listener.Close()

	operator, err := newOperator(ctx, c, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, operator.close()) }()

	broker := feed.New()
	opened, err := c.keptAt.Open(ctx, address.Options{Listener: broker.Publish, Hint: broker.Hint, Committed: operator.metrics.Committed})
	if err != nil {
		return err
	}
	kept := observe.NewStore(opened, operator.metrics, uuid.NewString())
	defer func() { err = errors.Join(err, kept.Close()) }()
	operator.metrics.Register(observe.Collect(opened))
	operator.probes.Ready("store", kept.Writable)
	key, err := c.key.open(ctx, c.kubeconfig)
	if err != nil {
		return err
	}
	sealer, err := seal.Open(ctx, kept, key)
	if err != nil {
		return err
	}
	sealer.Count(operator.metrics.Sealed)
	types := manifest.NewRegistry(manifest.Builtin()...)
	clusters, err := places(c, kept)
	if err != nil {
		return err
	}
	known, err := c.extensions.Open(extensions.Options{Base: clusters, Log: log})
	if err != nil {
		return err
	}
	defer known.Close()
	resolver := observe.Resolver(known, operator.metrics)
	fetcher := oci.New(oci.Options{AllowFiles: c.developerMode})
	engine := recipes(c, kept, types, fetcher, resolver, operator.metrics)
	var decides atomic.Pointer[auth.Authorizer]
	s, err := server.New(ctx, server.Options{
		Store: kept, Feed: broker, Sealer: sealer, Recipes: engine, Types: types, Loopback: c.developerMode,
		Deployments: deployments(c, fetcher, resolver, decides.Load),
		HealthOnly:  !c.api, Workless: !c.workers, Metrics: operator.metrics, Probes: operator.probes,
		Log: log, Workers: c.maxOperations, Lease: c.lease, Deadline: c.deadline, Keys: c.key.keep(),
		Installation: installed, RecipeDeadline: c.recipe, KeepOperations: c.keptHistory, KeepAudit: c.keptAudit,
	})
	if err != nil {
		return err
	}

	door, err := openFront(ctx, c, front.Deps{Store: kept, Feed: broker, Canonical: types.Canonical, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, door.close(c.shutdown)) }()
	if door.Front != nil {
		operator.metrics.Register(door.Audit())
		decides.Store(door.Authorizer())
	}
	web := &http.Server{
		Handler: telemetry.Handler(operator.metrics, door.before(handler(c, s))),
		// A client that sends its headers slowly, or nothing more, is let go;
		// bodies and answers have deadlines of their own (package arm), since
		// long polls and streams may last.
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	url := door.scheme() + "://" + listener.Addr().String()
	var running sync.WaitGroup
	served := make(chan error, 1)
	running.Go(func() { served <- door.serve(web, listener) })
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	if c.workers {
		operator.probes.Alive("workers", func(context.Context) error { return s.Working() })
		running.Go(func() { s.Work(work) })
	}
	operator.serve(work, door, &running)
	if door.Front != nil {
		running.Go(func() { door.Run(work) })
	}
	if c.readyFile != "" {
		if err := announce(c.readyFile, url); err != nil {
			stopWork()
			_ = web.Close()
			running.Wait()
			return err
		}
		defer os.Remove(c.readyFile)
	}
	log.Info("radial-server answers", "url", url, "version", core.Version, "store", c.keptAt.String(), "api", c.api, "workers", c.workers, "cluster", c.cluster)

	select {
	case err := <-served:
		stopWork()
		running.Wait()
		return fmt.Errorf("the HTTP server ended: %w", err)
	case <-ctx.Done():
	}
	log.Info("shutting down", "timeout", c.shutdown)
	s.Stop() // held answers are given, so that their clients ask the next process
	stopping, cancel := context.WithTimeout(context.Background(), c.shutdown)
	defer cancel()
	if err := web.Shutdown(stopping); err != nil {
		_ = web.Close()
	}
	stopWork()
	running.Wait()
	return nil
}

// handler adds what only this program serves.
func handler(c options, s *server.Server) http.Handler {
	if !c.pprof {
		return s
	}
	mux := http.NewServeMux()
	mux.Handle("/", s)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	return mux
}

// announce writes the URL so that a reader sees all of it or no file.
func announce(path, url string) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(url+"\n"), 0o644); err != nil {
		return fmt.Errorf("cannot write --ready-file: %w", err)
	}
	if err := os.Rename(temporary, filepath.Clean(path)); err != nil {
		return fmt.Errorf("cannot write --ready-file: %w", err)
	}
	return nil
}
