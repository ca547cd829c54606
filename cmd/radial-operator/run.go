package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/radial-project/radial/internal/apitime"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/service"
)

// lease is the name that the operator's grant is for.
const lease = "radial-operator"

// run wires the controllers and runs them until ctx ends.
func run(ctx context.Context, c config, log *slog.Logger) error {
	logger := logr.FromSlogHandler(log.Handler())
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	cfg, err := restConfig(c)
	if err != nil {
		return err
	}
	// Bounds count from when the API server wrote something, by its clock (C-113).
	clock := apitime.New(nil)
	cfg.Wrap(clock.Wrap)
	scheme := runtime.NewScheme()
	if err := service.AddToScheme(scheme); err != nil {
		return err
	}
	lock, err := leaseLock(cfg, c)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, manager.Options{
		Scheme: scheme, Logger: logger, Cache: service.CacheOptions(),
		Metrics: metricsserver.Options{BindAddress: c.metrics}, HealthProbeBindAddress: c.health,
		LeaderElection: c.leaderElect, LeaderElectionResourceLockInterface: lock, LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout: new(10 * time.Second),
	})
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	if err := service.Setup(mgr, service.Options{Settings: c.settings, Log: log, Now: clock.Now}); err != nil {
		return err
	}
	if err := probes(mgr); err != nil {
		return err
	}
	log.Info("starting", "version", core.Version, "provider", c.settings.Provider, "account", c.settings.Account, "location", c.settings.Location)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("stopped: %w", err)
	}
	return nil
}

// leaseLock is the lease, without the events that client-go would make of it:
// they are of another API group than the operator may write to, and tell no
// user of anything.
func leaseLock(cfg *rest.Config, c config) (resourcelock.Interface, error) {
	if !c.leaderElect {
		return nil, nil //nolint:nilnil // there is none
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("the lease's holder needs a name: %w", err)
	}
	coordination, err := coordinationv1.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: lease, Namespace: c.namespace},
		Client:     coordination,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}, nil
}

// probes answer healthz while the process runs, and readyz once it has read
// what it watches: a replica that waits for the lease is ready to take over.
func probes(mgr manager.Manager) error {
	var ready atomic.Bool
	return errors.Join(
		mgr.Add(standby(func(ctx context.Context) error {
			ready.Store(mgr.GetCache().WaitForCacheSync(ctx))
			return nil
		})),
		mgr.AddHealthzCheck("running", func(*http.Request) error { return nil }),
		mgr.AddReadyzCheck("cluster", func(*http.Request) error {
			if !ready.Load() {
				return errors.New("the cluster is not read yet")
			}
			return nil
		}),
	)
}

// standby runs whether or not this replica leads.
type standby func(context.Context) error

func (s standby) Start(ctx context.Context) error { return s(ctx) }

func (standby) NeedLeaderElection() bool { return false }

func restConfig(c config) (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	if c.kubeconfig == "" {
		cfg, err = rest.InClusterConfig()
	} else {
		cfg, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find the cluster; give --kubeconfig outside a pod: %w", err)
	}
	// The API server's own fairness limits what an operator may ask.
	cfg.QPS = -1
	cfg.UserAgent = "radial-operator/" + core.Version
	return cfg, nil
}
