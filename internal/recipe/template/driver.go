// Package template is the driver of recipes that are ARM JSON templates: it
// fetches the template, evaluates it with the recipe's parameters and context,
// deploys it, and reads its answer. Kinds "template" and "bicep" are the same:
// a Bicep module is published as the ARM JSON that it compiles to.
package template

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/recipe"
	lang "github.com/radial-project/radial/internal/template"
)

// contextParameter is the parameter by which a template asks for the context.
const contextParameter = "context"

// resultOutput is the output that answers values, secrets and resources.
const resultOutput = "result"

// Fetcher fetches templates; *oci.Fetcher is one.
type Fetcher interface {
	Fetch(ctx context.Context, r oci.Reference) (oci.Content, error)
}

// Options make a Driver.
type Options struct {
	Fetcher  Fetcher
	Resolver extension.Resolver
	// Now is the clock of utcNow(), NewGUID the source of newGuid(): it must be
	// unguessable, since passwords are made of it.
	Now     func() time.Time
	NewGUID func() string
	// Parallel bounds the resources of one recipe in flight; 0 is 16.
	Parallel int
}

// Driver runs templates.
type Driver struct{ o Options }

var _ recipe.Driver = (*Driver)(nil)

// New makes the driver.
func New(o Options) *Driver { return &Driver{o} }

// engine deploys. What the recipe makes of the control plane's own lies in the
// group of the resource that it runs for.
func (d *Driver) engine(resources extension.ResourceAPI, group core.ID) *deploy.Engine {
	resolver := d.o.Resolver
	if resources != nil {
		resolver = extension.WithControlPlane(resolver, extension.ControlPlane{API: resources, Group: group})
	}
	return deploy.New(deploy.EngineOptions{Resolver: resolver, Parallel: d.o.Parallel, NewGUID: d.o.NewGUID})
}

func (d *Driver) load(ctx context.Context, def recipe.Definition) (*lang.Template, string, error) {
	c, err := d.o.Fetcher.Fetch(ctx, oci.Reference{Path: def.Path, Version: def.Version, PlainHTTP: def.PlainHTTP})
	if err != nil {
		return nil, "", err
	}
	t, err := lang.Parse(c.Data)
	return t, c.Digest, within(err, core.CodeRecipeInvalid, def)
}

// within says in whose template a fault is, and gives it the code of recipes.
func within(err error, code core.Code, def recipe.Definition) error {
	if err == nil {
		return nil
	}
	e := core.AsError(err)
	if !core.IsCode(err, core.CodeInvalidTemplate) && !core.IsCode(err, core.CodeRecipeInvalid) &&
		!core.IsCode(err, deploy.CodeFailed) && !core.IsCode(err, deploy.CodeDeleteFailed) {
		return err // a lost lease, an unreachable target: as it is
	}
	return core.Errorf(code, "recipe %q (%s): %w", def.Name, def.Path, err).WithTarget(e.Target).WithDetails(e.Details...)
}

// Execute implements recipe.Driver.
func (d *Driver) Execute(ctx context.Context, run recipe.Run) (recipe.Result, error) {
	def := run.Definition
	run.Progress("fetching " + def.Path)
	t, digest, err := d.load(ctx, def)
	if err != nil {
		return recipe.Result{}, err
	}
	params, err := parameters(t, run)
	if err != nil {
		return recipe.Result{}, within(err, core.CodeRecipeInvalid, def)
	}
	if run.Started.IsZero() {
		run.Started = d.o.Now()
	}
	deployed, err := d.engine(run.Resources, run.Owner.Scope()).Deploy(ctx, deploy.Request{
		// The same for every run of a resource, so that names made of it stay.
		Name: "recipe-" + run.Owner.Name(), Parsed: t, Parameters: params, Scope: run.Owner.Scope(), Base: run.Scope,
		Owner: run.Owner, Kind: def.Kind, Preview: true, Started: run.Started,
		Resources: run.Resources, Run: run.Attempt, Seed: run.Seed, Park: run.Resources != nil,
		Previous: run.Previous, Record: deploy.Record(run.Record), Progress: func(e deploy.Event) {
			if e.Text != "" {
				run.Progress(e.Text)
			}
		},
	})
	switch {
	case deploy.IsOutputs(err):
		return recipe.Result{}, within(err, core.CodeRecipeOutputs, def)
	case err != nil && deployed == nil: // it was not begun
		return recipe.Result{}, within(err, core.CodeRecipeInvalid, def)
	case err != nil:
		return recipe.Result{}, within(err, core.CodeRecipeDeployment, def)
	}
	if deployed.Waiting {
		return recipe.Result{Definition: def}, recipe.ErrWaiting
	}
	res, err := answer(deployed.Outputs, def)
	if err != nil {
		return recipe.Result{}, err
	}
	res.Outputs, res.Warnings = deployed.Journal, deployed.Warnings
	res.Definition = def
	res.Definition.Digest = digest
	return res, nil
}

// parameters adds the context where the template declares it. A parameter of
// that name cannot be supplied by anyone else. One that does not gets what
// expressions in its parameters name.
func parameters(t *lang.Template, run recipe.Run) (map[string]any, error) {
	params := make(map[string]any, len(run.Parameters)+1)
	maps.Copy(params, run.Parameters)
	for name := range run.Parameters {
		if strings.EqualFold(name, contextParameter) {
			return nil, core.Errorf(core.CodeRecipeInvalid, "the parameter %q is given by Radial: take it out of the recipe's parameters", name).WithTarget("parameters." + name)
		}
	}
	if t.Declares(contextParameter) {
		params[contextParameter] = run.Context
		return params, nil
	}
	return recipe.Fill(params, run.Context)
}

// Delete implements recipe.Driver. Each output knows its scope.
func (d *Driver) Delete(ctx context.Context, q recipe.Deletion) error {
	waiting, err := d.engine(nil, core.ID{}).Delete(ctx, deploy.DeleteRequest{Outputs: q.Outputs, Record: q.Record, Resources: q.Resources, Park: q.Resources != nil})
	if err == nil && waiting {
		return recipe.ErrWaiting
	}
	if core.IsCode(err, deploy.CodeDeleteFailed) {
		e := core.AsError(err)
		return core.Errorf(core.CodeRecipeDeletion, "%w", err).WithDetails(e.Details...)
	}
	return err
}

// Parameters implements recipe.Driver. The context is not among them.
func (d *Driver) Parameters(ctx context.Context, def recipe.Definition) (map[string]json.RawMessage, error) {
	t, _, err := d.load(ctx, def)
	if err != nil {
		return nil, err
	}
	params := map[string]json.RawMessage{}
	for _, p := range t.Parameters() {
		if !strings.EqualFold(p.Name, contextParameter) {
			params[p.Name] = p.Definition
		}
	}
	return params, nil
}
