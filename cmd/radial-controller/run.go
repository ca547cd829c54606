package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	kubeconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/adopt"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/client/contexts"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
	"github.com/radial-project/radial/internal/provision"
	"github.com/radial-project/radial/internal/telemetry"
)

// run wires the controllers and runs them until ctx ends.
func run(ctx context.Context, c config, log *slog.Logger) error {
	logger := logr.FromSlogHandler(log.Handler())
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	traced, err := telemetry.Exporting(ctx, "radial-controller", log)
	if err != nil {
		return err
	}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := traced(last); err != nil {
			log.Warn("the last traces could not be sent", "error", err.Error())
		}
	}()
	cfg, err := restConfig(c)
	if err != nil {
		return err
	}
	mgr, err := newManager(cfg, c, logger)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	server := client.New(c.server, client.Options{
		UserAgent: "radial-controller/" + core.Version, Transport: contexts.FileTransport(c.serverCA, c.serverToken),
	})
	waker, recipesWork, deploymentsWork := paired.NewWaker(server, log), paired.NewWorking(), paired.NewWorking()
	if err := mgr.Add(waker); err != nil {
		return err
	}
	if err := provision.Setup(mgr, provision.Options{Cluster: c.cluster, Server: server, Waker: waker, Working: recipesWork, Log: log}); err != nil {
		return fmt.Errorf("cannot set up the controller of Recipes: %w", err)
	}
	deployments := &adopt.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), API: server, Waker: waker, Working: deploymentsWork,
		Runner: &paired.Runner{API: server, Gone: provision.OwnerGone(mgr.GetAPIReader(), c.cluster)},
		Events: mgr.GetEventRecorder(adopt.FieldManager), Log: log, Cluster: c.cluster, Namespace: c.namespace,
	}
	if err := deployments.Setup(ctx, mgr); err != nil {
		return fmt.Errorf("cannot set up the controller of Deployments: %w", err)
	}
	ready := readiness{elected: mgr.Elected(), standby: c.leaderElect, recipes: recipesWork.Begun(), deployments: deploymentsWork.Begun(),
		followed: waker.Followed(), connected: waker.Connected}
	if err := ready.add(mgr, c.readyFile); err != nil {
		return err
	}
	log.Info("starting", "version", core.Version, "cluster", c.cluster, "server", c.server)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("stopped: %w", err)
	}
	return nil
}

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
	// The API server's own fairness limits what a controller may ask.
	cfg.QPS = -1
	cfg.UserAgent = "radial-controller/" + core.Version
	return cfg, nil
}

func newManager(cfg *rest.Config, c config, logger logr.Logger) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, radapp.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return ctrl.NewManager(cfg, manager.Options{
		Scheme: scheme,
		Logger: logger,
		// Two kinds are cached; anything else that is read is read singly from
		// the API server, and a kind that would be cached by accident fails.
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[kube.Object]cache.ByObject{&radapp.Recipe{}: {}, &appsv1.Deployment{}: {Transform: adopt.Trim}},
		},
		Client: kube.Options{Cache: &kube.CacheOptions{DisableFor: []kube.Object{
			&corev1.Secret{}, &corev1.ConfigMap{}, &corev1.Pod{}, &corev1.Namespace{}, &appsv1.ReplicaSet{},
		}}},
		Metrics:                       metricsserver.Options{BindAddress: c.metrics},
		HealthProbeBindAddress:        c.health,
		LeaderElection:                c.leaderElect,
		LeaderElectionID:              "radial-controller",
		LeaderElectionNamespace:       c.namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       ptr.To(10 * time.Second),
		// Tests run several in one process.
		Controller: kubeconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
}
