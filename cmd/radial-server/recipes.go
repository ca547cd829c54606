package main

import (
	"context"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/store"
)

// recipes puts the engine together with the drivers of this release.
func recipes(c config, kept store.Reader, types *manifest.Registry) (*recipe.Engine, error) {
	return recipe.NewEngine(recipe.Options{
		Drivers:   map[string]recipe.Driver{},
		Canonical: types.Canonical,
		Cluster:   c.cluster,
		Load: func(ctx context.Context, id core.ID) (core.Resource, error) {
			r, _, err := kept.Get(ctx, id)
			return r, err
		},
	}), nil
}
