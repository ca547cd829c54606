package observe

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/telemetry"
)

// Driver measures the recipes that a driver of a kind runs.
func Driver(kind string, d recipe.Driver, m *telemetry.Metrics) recipe.Driver {
	return &driver{kind, d, m}
}

type driver struct {
	kind string
	d    recipe.Driver
	m    *telemetry.Metrics
}

func (d *driver) step(ctx context.Context, action string, of core.ID) (context.Context, func(error)) {
	begun := time.Now()
	ctx, span := telemetry.Start(ctx, "recipe "+action, telemetry.Kind(telemetry.RecipeKind(d.kind)), telemetry.Resource(of))
	return ctx, func(err error) {
		span.End(err)
		d.m.Recipe(d.kind, action, err, time.Since(begun))
	}
}

// Execute implements [recipe.Driver].
func (d *driver) Execute(ctx context.Context, run recipe.Run) (recipe.Result, error) {
	ctx, done := d.step(ctx, "execute", run.Owner)
	r, err := d.d.Execute(ctx, run)
	done(failed(err))
	return r, err
}

// Delete implements [recipe.Driver].
func (d *driver) Delete(ctx context.Context, q recipe.Deletion) error {
	ctx, done := d.step(ctx, "delete", core.ID{})
	err := d.d.Delete(ctx, q)
	done(failed(err))
	return err
}

// failed is the error of a run that failed: one that waits did not.
func failed(err error) error {
	if errors.Is(err, recipe.ErrWaiting) {
		return nil
	}
	return err
}

// Parameters implements [recipe.Driver].
func (d *driver) Parameters(ctx context.Context, def recipe.Definition) (map[string]json.RawMessage, error) {
	ctx, span := telemetry.Start(ctx, "recipe parameters", telemetry.Kind(telemetry.RecipeKind(d.kind)))
	p, err := d.d.Parameters(ctx, def)
	span.End(err)
	return p, err
}

// Resolver measures the calls on the targets that a resolver answers.
func Resolver(r extension.Resolver, m *telemetry.Metrics) extension.Resolver {
	return &resolver{r, m}
}

type resolver struct {
	r extension.Resolver
	m *telemetry.Metrics
}

// Resolve implements [extension.Resolver].
func (r *resolver) Resolve(ctx context.Context, s extension.Scope, secrets extension.Secrets) (extension.Target, error) {
	t, err := r.r.Resolve(ctx, s, secrets)
	if err != nil {
		return nil, err
	}
	return &target{t, extensionName(s.Extension), r.m}, nil
}

// extensionName is the name of an extension as a label: a template may name
// any.
func extensionName(name string) string {
	switch name {
	case "Kubernetes", "kubernetes", "":
		return "kubernetes"
	}
	return "other"
}

type target struct {
	t         extension.Target
	extension string
	m         *telemetry.Metrics
}

func (t *target) step(ctx context.Context, call, kind string) (context.Context, func(error)) {
	begun := time.Now()
	ctx, span := telemetry.Start(ctx, "target "+call, telemetry.Kind(kind))
	return ctx, func(err error) {
		if core.IsCode(err, core.CodeNotFound) {
			span.End(nil)
		} else {
			span.End(err)
		}
		t.m.Target(t.extension, call, err, time.Since(begun))
	}
}

// Preview implements [extension.Target].
func (t *target) Preview(ctx context.Context, r extension.Resource) (extension.State, error) {
	ctx, done := t.step(ctx, "preview", r.Type)
	s, err := t.t.Preview(ctx, r)
	done(err)
	return s, err
}

// Apply implements [extension.Target].
func (t *target) Apply(ctx context.Context, r extension.Resource) (extension.State, error) {
	ctx, done := t.step(ctx, "apply", r.Type)
	s, err := t.t.Apply(ctx, r)
	done(err)
	return s, err
}

// Get implements [extension.Target].
func (t *target) Get(ctx context.Context, ref extension.Ref) (extension.State, error) {
	ctx, done := t.step(ctx, "get", ref.Type)
	s, err := t.t.Get(ctx, ref)
	done(err)
	return s, err
}

// Delete implements [extension.Target].
func (t *target) Delete(ctx context.Context, ref extension.Ref) error {
	ctx, done := t.step(ctx, "delete", ref.Type)
	err := t.t.Delete(ctx, ref)
	done(err)
	return err
}

var (
	_ extension.Releaser         = (*target)(nil)
	_ extension.DefaultNamespace = (*target)(nil)
)

// Release implements [extension.Releaser]; a target that stamps nothing has
// nothing to take off.
func (t *target) Release(ctx context.Context, ref extension.Ref) error {
	r, ok := t.t.(extension.Releaser)
	if !ok {
		return nil
	}
	ctx, done := t.step(ctx, "release", ref.Type)
	err := r.Release(ctx, ref)
	done(err)
	return err
}

// DefaultNamespace implements [extension.DefaultNamespace].
func (t *target) DefaultNamespace() string {
	if d, ok := t.t.(extension.DefaultNamespace); ok {
		return d.DefaultNamespace()
	}
	return ""
}

// ConfigID implements [extension.Target].
func (t *target) ConfigID(ctx context.Context) (string, error) {
	ctx, done := t.step(ctx, "configId", "")
	id, err := t.t.ConfigID(ctx)
	done(err)
	return id, err
}
