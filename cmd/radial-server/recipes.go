package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/observe"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/recipe/template"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/telemetry"
)

// recipes puts the engine together with the drivers of this release: ARM
// templates, which are also what Bicep compiles to, against the cluster of
// --kubeconfig.
func recipes(c options, kept store.Reader, types *manifest.Registry, m *telemetry.Metrics) (*recipe.Engine, error) {
	clusters := map[string]scope.Connect{}
	if c.kubeconfig != "" {
		// Read once now, so that a file that cannot be used is said at the start;
		// and again for the connection, which comes with the first recipe.
		if _, err := os.Stat(c.kubeconfig); err != nil {
			return nil, fmt.Errorf("--kubeconfig cannot be read: %w", err)
		}
		if _, err := clientcmd.LoadFromFile(c.kubeconfig); err != nil {
			return nil, fmt.Errorf("--kubeconfig %s cannot be used: %w", c.kubeconfig, err)
		}
	}
	if c.hasCluster() {
		// Without a kubeconfig, the cluster that the pod runs in.
		clusters[c.cluster] = func(context.Context) (*kubernetes.Cluster, error) {
			config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
			if err != nil {
				return nil, fmt.Errorf("the cluster of recipes cannot be used: %w", err)
			}
			config.Wrap(telemetry.Transport)
			config.UserAgent = "radial-server/" + core.Version
			return kubernetes.New(c.cluster, config, kubernetes.Options{})
		}
	}
	driver := template.New(template.Options{
		Fetcher:  oci.New(oci.Options{AllowFiles: c.developerMode}),
		Resolver: observe.Resolver(scope.NewResolver(clusters), m),
		Now:      time.Now,
		NewGUID:  uuid.NewString,
	})
	return recipe.NewEngine(recipe.Options{
		Drivers:   map[string]recipe.Driver{"bicep": observe.Driver("bicep", driver, m), "template": observe.Driver("template", driver, m)},
		Canonical: types.Canonical,
		Cluster:   c.cluster,
		Load: func(ctx context.Context, id core.ID) (core.Resource, error) {
			r, _, err := kept.Get(ctx, id)
			return r, err
		},
	}), nil
}
