package dynamic

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/connection"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/seal"
)

// Recipes runs recipes; [recipe.Engine] is the one.
type Recipes interface {
	Execute(ctx context.Context, r recipe.Request) (recipe.Result, error)
	Delete(ctx context.Context, r recipe.Request) error
}

// Controller is the default controller of every type and verb: inert resources
// are stored as they are, all others run their recipe, and a deletion takes the
// outputs first (D-29 to D-32).
type Controller struct {
	p       *Provider
	recipes Recipes
	log     *slog.Logger
}

// NewController returns the default controller.
func NewController(p *Provider, recipes Recipes, log *slog.Logger) *Controller {
	return &Controller{p: p, recipes: recipes, log: log}
}

// Run implements [operation.Controller]. What it says of a failure holds none of
// the secrets that were in use, whoever wrote the text.
func (c *Controller) Run(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
	ctx, secrets := conceal.With(ctx)
	outcome, err := c.run(ctx, job)
	if outcome.Failure != nil {
		outcome.Failure = core.AsError(secrets.Error(outcome.Failure))
	}
	return outcome, secrets.Error(err)
}

func (c *Controller) run(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
	// A type that was unregistered meanwhile still has to let its resources go.
	tv, err := c.p.o.Types.Lookup(job.Resource.ID.Type(), job.Resource.APIVersion)
	if job.Operation.Verb == core.VerbDelete {
		return c.remove(ctx, job, tv)
	}
	if err != nil {
		return operation.Outcome{}, err
	}
	props, err := c.p.plaintext(job.Resource, tv)
	if err != nil {
		return operation.Outcome{}, err
	}
	c.conceal(ctx, job.Resource, tv)
	// Stored data is checked again before anything is done with it (D-14).
	if tv.Schema != nil {
		if err := tv.Schema.Validate(props); err != nil {
			return operation.Outcome{}, err
		}
	}
	if !runsRecipe(tv, props) {
		return c.inert(ctx, job, tv, props)
	}
	return c.recipe(ctx, job, tv, props)
}

// conceal registers the secrets of a resource with the run: nothing that is said
// from now on shows them. What does not open is no secret any more.
func (c *Controller) conceal(ctx context.Context, r core.Resource, tv *manifest.TypeVersion) {
	if tv != nil && tv.Schema != nil {
		if props, err := c.p.plaintext(r, tv); err == nil {
			conceal.Add(ctx, tv.Schema.Secrets(props))
		}
	}
	for name, sealed := range r.Secrets {
		if v, err := c.p.openSecret(r.ID, name, sealed); err == nil {
			conceal.Add(ctx, v)
		}
	}
}

// inert has nothing to make. What a recipe made before the resource became
// manual goes, and the objects that the resource stands for are listed.
func (c *Controller) inert(ctx context.Context, job *operation.Job, tv *manifest.TypeVersion, props map[string]any) (operation.Outcome, error) {
	status, err := ReadStatus(job.Resource)
	if err != nil {
		return operation.Outcome{}, err
	}
	var managed []core.Output
	for _, o := range job.Outputs {
		if o.Managed {
			managed = append(managed, o)
		}
	}
	if len(managed) > 0 || status.Recipe != nil {
		if err := job.Progress(ctx, core.StateUpdating); err != nil {
			return operation.Outcome{}, err
		}
		err := c.deleteOutputs(ctx, job, tv, props, managed, status)
		if errors.Is(err, recipe.ErrWaiting) {
			return operation.Outcome{Park: true}, nil
		}
		if err != nil {
			return operation.Outcome{}, err
		}
	}
	stands, err := standsFor(props)
	if err != nil {
		return operation.Outcome{}, err
	}
	var want []core.Output
	for _, id := range stands {
		want = append(want, core.Output{ID: c.p.present(id), State: core.OutputMade})
	}
	put, drop := difference(job.Outputs, want)
	if err := job.SaveOutputs(ctx, put, drop); err != nil {
		return operation.Outcome{}, err
	}
	if job.Resource.Status == nil && job.Resource.Secrets == nil {
		return operation.Outcome{}, nil
	}
	r := job.Resource
	r.Status, r.Secrets = nil, nil
	c.p.o.Sealer.Stamp(&r)
	return operation.Outcome{Resource: &r}, nil
}

// recipe runs the recipe and keeps what it answered.
func (c *Controller) recipe(ctx context.Context, job *operation.Job, tv *manifest.TypeVersion, props map[string]any) (operation.Outcome, error) {
	if err := job.Progress(ctx, core.StateUpdating); err != nil {
		return operation.Outcome{}, err
	}
	status, err := ReadStatus(job.Resource)
	if err != nil {
		return operation.Outcome{}, err
	}
	inventory := newInventory(job)
	req, err := c.request(ctx, job, tv, props, status)
	if err != nil {
		return c.failed(job, tv, status, recipe.Result{}, err)
	}
	req.Record = inventory.record
	result, err := within(ctx, c.p.o.RecipeDeadline, core.CodeRecipeDeployment, func(ctx context.Context) (recipe.Result, error) { return c.recipes.Execute(ctx, req) })
	if errors.Is(err, recipe.ErrWaiting) {
		return operation.Outcome{Park: true}, nil
	}
	if err != nil {
		if ctx.Err() != nil || core.IsCode(err, core.CodeFenced) {
			return operation.Outcome{}, err
		}
		return c.failed(job, tv, status, result, err)
	}
	for _, warning := range result.Warnings {
		c.log.Warn("the run warns", "resource", job.Resource.ID.String(), "warning", conceal.Text(ctx, warning))
		job.Say("warning: " + conceal.Text(ctx, warning))
	}
	if err := inventory.settle(ctx, c.p, result); err != nil {
		return operation.Outcome{}, err
	}
	r := job.Resource
	if err := c.keep(&r, tv, &status, result); err != nil {
		return operation.Outcome{}, err
	}
	return operation.Outcome{Resource: &r}, nil
}

// request is what the engine needs to know about the resource.
func (c *Controller) request(ctx context.Context, job *operation.Job, tv *manifest.TypeVersion, props map[string]any, status Status) (recipe.Request, error) {
	req := recipe.Request{
		Resource: job.Resource, Properties: plain(props).(map[string]any), Previous: job.Outputs, Recorded: status.Recipe, Record: job.SaveOutputs,
		Progress: func(message string) { job.Say(conceal.Text(ctx, message)) },
	}
	var err error
	req.Started = job.Operation.Created
	if req.Resources, req.Attempt, req.Seed, err = c.resources(job); err != nil {
		return req, err
	}
	environment, err := c.load(ctx, job.Resource.Environment)
	if err != nil {
		return req, err
	}
	if environment != nil {
		req.Environment = *environment
	}
	if req.Application, err = c.load(ctx, job.Resource.Application); err != nil {
		return req, err
	}
	kind := c.p.kind(tv)
	if kind.Renders {
		if err := c.rendering(ctx, job, kind, props, &req); err != nil {
			return req, err
		}
	}
	connections, _ := props[propConnections].(map[string]any)
	for name, v := range connections {
		source, _ := member(v, "source")
		id, err := parseSource(source)
		if err != nil || id.IsZero() {
			continue // a URL: the recipe reads it from the properties
		}
		r, err := c.connected(ctx, job.Resource, c.p.present(id))
		if err != nil {
			return req, core.Errorf(core.CodeOf(err), "connection %s: %w", name, err)
		}
		if req.Connections == nil {
			req.Connections = map[string]core.Resource{}
		}
		req.Connections[name] = r.Resource
		if !kind.Renders || !r.near {
			continue
		}
		if !r.settled {
			return req, core.Errorf(core.CodeConflict, "connection %s: %s is %s, so what it carries is not known: repeat the request when it is Succeeded", name, id, r.State).WithTarget("properties.connections." + name)
		}
		if req.Carried == nil {
			req.Carried = map[string]map[string]any{}
		}
		req.Carried[name] = r.carried
	}
	return req, nil
}

// load reads a resource that a recipe's resource belongs to, nil for none.
func (c *Controller) load(ctx context.Context, id core.ID) (*core.Resource, error) {
	if id.IsZero() {
		return nil, nil
	}
	r, _, err := c.p.o.Store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// connected is a resource that another one connects to.
type connected struct {
	// Resource has its values as properties; its secrets are among them only when
	// it is near: a reference opens nothing beyond.
	core.Resource
	// near says that the two share an application or an environment.
	near bool
	// carried is what the connection brings to a workload (K-17), when it is near.
	carried map[string]any
	// settled says that its recipe, if it has one, has run.
	settled bool
	// opened are its own properties, with their secrets when it is near.
	opened json.RawMessage
}

// connected reads a resource that another one connects to.
func (c *Controller) connected(ctx context.Context, from core.Resource, id core.ID) (connected, error) {
	r, _, err := c.p.o.Store.Get(ctx, id)
	if err != nil {
		return connected{}, err
	}
	out := connected{near: near(from, r)}
	tv := c.p.versionOf(r, nil)
	status, err := ReadStatus(r)
	if err != nil {
		return out, err
	}
	var props map[string]any
	if out.near {
		if props, err = c.p.plaintext(r, tv); err != nil {
			return out, err
		}
		for name, v := range props { // what a type that is gone called sensitive
			props[name] = withoutSealed(v)
		}
		if out.opened, err = encode(props); err != nil {
			return out, err
		}
		secrets, err := c.p.secrets(r, tv)
		if err != nil {
			return out, err
		}
		conceal.Add(ctx, secrets)
		out.carried = connection.Values(props, status.ComputedValues, secrets)
		maps.Copy(props, status.ComputedValues)
		maps.Copy(props, secrets)
		waits := tv != nil && !c.p.kind(tv).Renders && runsRecipe(tv, props)
		out.settled = !waits || r.State == core.StateSucceeded
	} else {
		if props, err = decode(r.Properties); err != nil {
			return out, err
		}
		redact(props, tv)
		if out.opened, err = encode(props); err != nil {
			return out, err
		}
		open, _ := split(status.ComputedValues, tv)
		maps.Copy(props, open)
	}
	for name, v := range props { // what a type that is gone called sensitive
		props[name] = withoutSealed(v)
	}
	r.Properties, err = encode(props)
	r.Secrets = nil
	out.Resource = r
	return out, err
}

// near reports whether two resources share an application or an environment.
func near(a, b core.Resource) bool {
	return !a.Application.IsZero() && a.Application.Equal(b.Application) ||
		!a.Environment.IsZero() && a.Environment.Equal(b.Environment)
}

// failed is the outcome of a run that failed: what is known to be made stays
// known, and so does what ran before.
func (c *Controller) failed(job *operation.Job, tv *manifest.TypeVersion, status Status, result recipe.Result, err error) (operation.Outcome, error) {
	e := core.AsError(err)
	if c.p.kind(tv).Renders { // no recipe of anyone's
		return operation.Outcome{Failure: e}, nil
	}
	status.RecipeStatus = RecipeExecution
	switch e.Code {
	case core.CodeRecipeNotFound, core.CodeRecipeDownload, core.CodeRecipeInvalid, core.CodeInvalidTemplate, core.CodeNotFound, core.CodeBadRequest, core.CodeInvalidContent:
		status.RecipeStatus = RecipeSetup
	}
	if status.Recipe == nil && result.Definition.Path != "" {
		status.Recipe = &result.Definition // DELETE goes by what ran last with success, or else at all (D-32)
	}
	r := job.Resource
	raw, encodeErr := status.encode()
	if encodeErr != nil {
		return operation.Outcome{}, encodeErr
	}
	r.Status = raw
	return operation.Outcome{Resource: &r, Failure: e}, nil
}

// keep puts what a recipe answered into the row: values into the status, and
// sealed what is secret by the recipe's word or by the schema's.
func (c *Controller) keep(r *core.Resource, tv *manifest.TypeVersion, status *Status, result recipe.Result) error {
	values, secrets := maps.Clone(result.Values), maps.Clone(result.Secrets)
	for name, v := range values {
		if tv.Schema != nil && tv.Schema.Sensitive(name) {
			if secrets == nil {
				secrets = map[string]any{}
			}
			secrets[name] = v
			delete(values, name)
		}
	}
	for name := range secrets {
		delete(values, name) // one that is both is a secret
	}
	before := r.Secrets
	r.Secrets = nil
	keepHashKey(r, before)
	for name, v := range secrets {
		if v == nil {
			continue
		}
		sealed, err := c.p.o.Sealer.Seal(r.ID, seal.SecretPath(name), v)
		if err != nil {
			return err
		}
		if r.Secrets == nil {
			r.Secrets = map[string]json.RawMessage{}
		}
		r.Secrets[name] = sealed
	}
	c.p.o.Sealer.Stamp(r)
	*status = Status{ComputedValues: values}
	if !c.p.kind(tv).Renders {
		definition := result.Definition
		status.RecipeStatus, status.Recipe = RecipeSuccess, &definition
	}
	raw, err := status.encode()
	r.Status = raw
	return err
}

// remove deletes what the resource has and then the resource.
func (c *Controller) remove(ctx context.Context, job *operation.Job, tv *manifest.TypeVersion) (operation.Outcome, error) {
	status, err := ReadStatus(job.Resource)
	if err != nil {
		return operation.Outcome{}, err
	}
	var managed []core.Output
	for _, o := range job.Outputs {
		if o.Managed {
			managed = append(managed, o)
		}
	}
	if len(managed) > 0 || status.Recipe != nil {
		props, err := c.p.plaintext(job.Resource, tv)
		if err != nil {
			return operation.Outcome{}, err
		}
		c.conceal(ctx, job.Resource, tv)
		err = c.deleteOutputs(ctx, job, tv, props, managed, status)
		if errors.Is(err, recipe.ErrWaiting) {
			return operation.Outcome{Park: true}, nil
		}
		if err != nil {
			if ctx.Err() != nil || core.IsCode(err, core.CodeFenced) {
				return operation.Outcome{}, err
			}
			return operation.Outcome{Failure: core.AsError(err)}, nil
		}
	}
	return operation.Outcome{Removed: true}, nil
}

// deleteOutputs deletes outputs, dependants first, by the recipe that made
// them. It needs neither environment nor connections to be there still.
func (c *Controller) deleteOutputs(ctx context.Context, job *operation.Job, tv *manifest.TypeVersion, props map[string]any, managed []core.Output, status Status) error {
	req := recipe.Request{
		Resource: job.Resource, Properties: plain(props).(map[string]any), Previous: managed, Recorded: status.Recipe, Record: job.SaveOutputs,
		Progress: func(message string) { job.Say(conceal.Text(ctx, message)) },
	}
	var err error
	if req.Resources, _, _, err = c.resources(job); err != nil {
		return err
	}
	environment, err := c.load(ctx, job.Resource.Environment)
	if err != nil && !core.IsCode(err, core.CodeNotFound) {
		return err
	}
	if environment != nil {
		req.Environment = *environment
	}
	if req.Application, err = c.load(ctx, job.Resource.Application); err != nil && !core.IsCode(err, core.CodeNotFound) {
		return err
	}
	_, err = within(ctx, c.p.o.RecipeDeadline, core.CodeRecipeDeletion, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.recipes.Delete(ctx, req) })
	return err
}

// within runs a recipe under a deadline of its own.
func within[T any](ctx context.Context, d time.Duration, code core.Code, run func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	result, err := run(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		err = core.Errorf(code, "the recipe did not end within %s, its deadline (workerServer.recipeDeadline). What it made so far is recorded: repeat the request to go on, or delete the resource", d)
	}
	return result, err
}

// difference is what turns one inventory into another.
func difference(have, want []core.Output) (put []core.Output, drop []core.ID) {
	had := make(map[string]core.Output, len(have))
	for _, o := range have {
		had[o.ID.Key()] = o
	}
	for _, o := range want {
		if h, ok := had[o.ID.Key()]; !ok || !reflect.DeepEqual(h, o) {
			put = append(put, o)
		}
		delete(had, o.ID.Key())
	}
	for _, o := range have {
		if _, ok := had[o.ID.Key()]; ok {
			drop = append(drop, o.ID)
		}
	}
	return put, drop
}

// inventory follows what the store knows of a job's outputs, so that the last
// correction writes only what differs.
type inventory struct {
	job  *operation.Job
	have []core.Output
}

func newInventory(job *operation.Job) *inventory {
	return &inventory{job: job, have: append([]core.Output(nil), job.Outputs...)}
}

func (i *inventory) record(ctx context.Context, put []core.Output, drop []core.ID) error {
	if err := i.job.SaveOutputs(ctx, put, drop); err != nil {
		return err
	}
	gone := map[string]bool{}
	for _, id := range drop {
		gone[id.Key()] = true
	}
	at := map[string]int{}
	kept := i.have[:0]
	for _, o := range i.have {
		if !gone[o.ID.Key()] {
			at[o.ID.Key()] = len(kept)
			kept = append(kept, o)
		}
	}
	i.have = kept
	for _, o := range put {
		if n, ok := at[o.ID.Key()]; ok {
			i.have[n] = o
			continue
		}
		at[o.ID.Key()] = len(i.have)
		i.have = append(i.have, o)
	}
	return nil
}

// settle makes the inventory what the recipe answered: its outputs, and as
// outputs of others the further resources that it named.
func (i *inventory) settle(ctx context.Context, p *Provider, result recipe.Result) error {
	want := append([]core.Output(nil), result.Outputs...)
	seen := map[string]bool{}
	for _, o := range want {
		seen[o.ID.Key()] = true
	}
	for _, s := range result.Resources {
		id, err := core.ParseID(s)
		if err != nil || !id.IsResource() {
			return core.Errorf(core.CodeRecipeOutputs, "the recipe's result.resources names %q, which is not the id of a resource", s)
		}
		if id = p.present(id); !seen[id.Key()] {
			seen[id.Key()] = true
			want = append(want, core.Output{ID: id, State: core.OutputMade})
		}
	}
	// What is managed leaves the inventory only when its deletion said so: the
	// engine has done that already, and what it kept must not be forgotten.
	kept := map[string]bool{}
	for _, o := range i.have {
		kept[o.ID.Key()] = o.Managed
	}
	put, drop := difference(i.have, want)
	drop = slices.DeleteFunc(drop, func(id core.ID) bool { return kept[id.Key()] })
	return i.record(ctx, put, drop)
}

// plain turns the numbers of decoded JSON into what templates calculate with:
// int64 where they are whole, float64 otherwise.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = plain(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	default:
		return v
	}
}
