package main

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/container"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deployment"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/observe"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/recipe/template"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/telemetry"
)

// recipes puts the engine together with the drivers of this release: ARM
// templates, which are also what Bicep compiles to, and the renderer of
// containers.
func recipes(c options, kept store.Reader, types *manifest.Registry, fetcher *oci.Fetcher, resolver extension.Resolver, m *telemetry.Metrics) *recipe.Engine {
	driver := template.New(template.Options{
		Fetcher:  fetcher,
		Resolver: resolver,
		Now:      time.Now,
		NewGUID:  uuid.NewString,
	})
	return recipe.NewEngine(recipe.Options{
		Drivers:   map[string]recipe.Driver{"bicep": observe.Driver("bicep", driver, m), "template": observe.Driver("template", driver, m)},
		Rendered:  container.Drivers(observe.Driver(recipe.KindRendered, container.NewRenderer(container.RendererOptions{Resolver: resolver}), m)),
		Canonical: types.Canonical,
		Cluster:   c.cluster,
		Load: func(ctx context.Context, id core.ID) (core.Resource, error) {
			r, _, err := kept.Get(ctx, id)
			return r, err
		},
	})
}

// deployments say what templates that are deployed by themselves are run with.
// authorize is asked once the door stands.
func deployments(c options, fetcher *oci.Fetcher, resolver extension.Resolver, authorize func() *auth.Authorizer) server.DeploymentOptions {
	o := server.DeploymentOptions{
		Resolver: resolver,
		Base:     extension.Scope{Cluster: c.cluster},
		Link:     deployment.Links(deployment.LinkOptions{Hosts: c.templateHosts, Developer: c.developerMode, Fetcher: fetcher}),
	}
	if !c.developerMode {
		o.Authorize = func(ctx context.Context, who auth.Identity, act auth.Act) error {
			a := authorize()
			if a == nil {
				return core.Errorf(core.CodeUnavailable, "the server is still starting: try again")
			}
			return a.Allow(ctx, who, act)
		}
	}
	return o
}
