package deployment

import (
	"context"
	"encoding/json"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/template"
)

// Run implements [operation.Controller] for PUT: it runs a deployment to its end,
// or until it waits for operations of the control plane (D-45).
func (s *Service) Run(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
	ctx, secrets := conceal.With(ctx)
	out, err := s.run(ctx, job)
	if !out.Park && (err == nil || ctx.Err() == nil) {
		s.forget(job.Operation.ID)
	}
	if out.Failure != nil {
		out.Failure = core.AsError(secrets.Error(out.Failure))
	}
	return out, secrets.Error(err)
}

func (s *Service) run(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
	r := job.Resource
	f, err := readFacts(r)
	if err != nil {
		return operation.Outcome{}, err
	}
	text, err := s.template(r)
	if err != nil {
		return s.ended(ctx, job, f, nil, err)
	}
	in, held := s.holds(job.Operation.ID)
	if !held {
		found, err := s.open(r, store.InputsSecret, &in)
		switch {
		case err != nil:
			return s.ended(ctx, job, f, nil, err)
		case !found:
			return s.ended(ctx, job, f, nil, core.Errorf(core.CodeInternal, "the inputs of deployment %s are not there: send it again", r.ID))
		case f.Withheld:
			return s.ended(ctx, job, f, nil, s.lost(&job.Resource, f, in))
		}
	}
	if t, err := template.Parse(text); err == nil {
		ctx = concealInputs(ctx, t, in)
	}
	if job.Operation.State != core.StateUpdating {
		if err := job.Progress(ctx, core.StateUpdating); err != nil {
			return operation.Outcome{}, err
		}
	}
	as := As{Caller: f.Caller, Operation: job.Operation.ID, Group: r.ID.Scope(), Scope: f.scope(r.ID), SystemData: by(r.SystemData)}
	engine := deploy.New(deploy.EngineOptions{Resolver: s.Resolver(as), Resources: s.Resources(as), Link: s.o.Link, Parallel: s.o.Parallel, Now: s.o.Now})
	inventory := newInventory(job)
	req := s.request(r.ID, text, in, f)
	req.Previous, req.Record, req.Park = job.Outputs, inventory.record, true
	req.Begin = s.mayBegin(as)
	req.Progress = func(e deploy.Event) {
		job.Say(eventLine(ctx, e))
		s.begunNested(ctx, r, f, e)
	}
	result, err := engine.Deploy(ctx, req)
	if ctx.Err() != nil && !operation.Canceled(ctx) || core.IsCode(err, core.CodeFenced) {
		return operation.Outcome{}, errorOr(err, ctx)
	}
	if err == nil && result != nil && result.Waiting {
		return operation.Outcome{Park: true}, nil
	}
	if err == nil {
		if err := inventory.settle(ctx, result.Journal); err != nil {
			return operation.Outcome{}, err
		}
	}
	return s.ended(ctx, job, f, result, err)
}

func errorOr(err error, ctx context.Context) error {
	if err != nil {
		return err
	}
	return context.Cause(ctx)
}

// lost is the end of a deployment whose credentials went with the process that
// had them. What the next PUT needs to go on stays.
func (s *Service) lost(r *core.Resource, f facts, in inputs) error {
	if err := s.put(r, secretResume, resume{f.Run, f.Started, in.Seed, in.Mark}); err != nil {
		return err
	}
	return core.Errorf(extension.CodeCredentialsNeeded, "the process that took the deployment ended, or another one was free for it first, and the kubeConfig that came with it is stored nowhere: send the deployment again with it, and it goes on where it was")
}

// ended makes the outcome of a run: the row keeps what it came to.
func (s *Service) ended(ctx context.Context, job *operation.Job, f facts, result *deploy.Result, failure error) (operation.Outcome, error) {
	r := job.Resource
	o := outcome{Operation: job.Operation.ID, Ended: s.o.Now().UTC()}
	resumable := core.IsCode(failure, extension.CodeCredentialsNeeded) && r.Secrets[secretResume] != nil
	secrets := map[string]json.RawMessage{secretTemplate: r.Secrets[secretTemplate]}
	if resumable {
		secrets[secretResume] = r.Secrets[secretResume]
	}
	r.Secrets = secrets
	if result != nil {
		o.Resources, o.Deleted = result.Resources, result.Deleted
		for _, w := range result.Warnings {
			o.Warnings = append(o.Warnings, conceal.Text(ctx, w))
		}
		if failure == nil {
			hidden, err := s.keepOutputs(ctx, &o, result.Outputs)
			if err == nil && len(hidden) > 0 {
				err = s.put(&r, secretOutputs, hidden)
			}
			if err != nil {
				return operation.Outcome{}, err
			}
		}
		s.endedNested(ctx, job, f, result)
	}
	if failure != nil {
		o.Error = concealError(ctx, core.AsError(failure))
	}
	status, err := json.Marshal(o)
	if err != nil {
		return operation.Outcome{}, err
	}
	r.Status = status
	s.o.Sealer.Stamp(&r)
	return operation.Outcome{Resource: &r, Failure: o.Error}, nil
}

// keepOutputs puts outputs into the outcome, secure ones and those that pass a
// secure parameter on without value; it returns those to seal. An output that is a
// kubeConfig is not even that.
func (s *Service) keepOutputs(ctx context.Context, o *outcome, outputs []template.Output) (map[string]any, error) {
	o.Outputs = []shownOutput{}
	hidden := map[string]any{}
	for _, out := range outputs {
		v := shownOutput{Name: out.Name, Type: out.Type}
		secret := out.Secure || findKubeConfig("value", template.Export(out.Value)) != "" || holdsSecure(ctx, template.Export(out.Value))
		switch {
		case !secret:
			v.Value = template.Export(out.Value)
		case findKubeConfig("value", template.Export(out.Value)) == "":
			hidden[out.Name] = map[string]any{"type": out.Type, "value": template.Export(out.Value)}
		}
		o.Outputs = append(o.Outputs, v)
	}
	return hidden, nil
}

// nestedRow is the row of a nested deployment: it answers as one of its own.
func (s *Service) nestedRow(root core.Resource, f facts, id core.ID, path string) (core.Resource, facts) {
	own := facts{
		Mode: "Incremental", Correlation: f.Correlation, Operation: f.Operation, Run: f.Run, Started: s.o.Now().UTC(), ProviderConfig: f.ProviderConfig,
		Root: root.ID.String(), Path: path,
	}
	return core.Resource{ID: id, APIVersion: storedVersion, Location: root.Location, SystemData: by(root.SystemData)}, own
}

// begunNested makes the row of a nested deployment when it starts.
func (s *Service) begunNested(ctx context.Context, root core.Resource, f facts, e deploy.Event) {
	if e.State != "Running" || !strings.EqualFold(e.Type, Type) || e.Operation == "Read" {
		return
	}
	id, err := core.ParseID(e.ID)
	if err != nil || !IsDeployment(id) || id.Equal(root.ID) {
		return
	}
	if stored, _, err := s.o.Store.Get(ctx, id); err == nil {
		if have, err := readFacts(stored); err == nil && have.Operation == f.Operation {
			return // of this run, before it was resumed
		}
	}
	r, own := s.nestedRow(root, f, id, path.Join(e.Deployment, e.Symbol))
	r.State = core.StateUpdating
	s.writeNested(ctx, r, own, outcome{})
}

// endedNested writes what came of nested deployments.
func (s *Service) endedNested(ctx context.Context, job *operation.Job, f facts, result *deploy.Result) {
	for _, n := range result.Deployments {
		if n.ID.Equal(job.Resource.ID) || !IsDeployment(n.ID) {
			continue
		}
		r, own := s.nestedRow(job.Resource, f, n.ID, n.Path)
		r.State, own.Started = n.State, n.Started
		o := outcome{Operation: f.Operation, Ended: n.Ended, Error: concealError(ctx, n.Error)}
		if n.State == core.StateSucceeded {
			if _, err := s.keepOutputs(ctx, &o, n.Outputs); err != nil {
				continue
			}
		}
		for _, a := range result.Resources {
			if within(a, n.Path) {
				o.Resources = append(o.Resources, a)
			}
		}
		s.writeNested(ctx, r, own, o)
	}
}

// within reports whether a resource was made by the nested deployment of a path
// or by one below it: symbols carry the path.
func within(a deploy.Affected, path string) bool {
	return path != "" && strings.HasPrefix(a.Symbol, path+"/")
}

func (s *Service) writeNested(ctx context.Context, r core.Resource, f facts, o outcome) {
	var err error
	if r.Properties, err = json.Marshal(f); err == nil {
		r.Status, err = json.Marshal(o)
	}
	now := s.o.Now().UTC()
	r.SystemData.CreatedAt, r.SystemData.LastModifiedAt = now, now
	if err == nil {
		_, err = s.o.Store.Accept(context.WithoutCancel(ctx), store.Write{Resource: r, Expect: "*", Now: now})
	}
	if err != nil {
		s.o.Log.Warn("the history of a nested deployment could not be written", "deployment", r.ID.String(), "error", err.Error())
	}
}

// concealError is an error without what the run registered as secret.
func concealError(ctx context.Context, e *core.Error) *core.Error {
	if e == nil {
		return nil
	}
	c := *e
	c.Message, c.Target = conceal.Text(ctx, e.Message), conceal.Text(ctx, e.Target)
	c.Details = make([]core.Error, len(e.Details))
	for i := range e.Details {
		c.Details[i] = *concealError(ctx, &e.Details[i])
	}
	if len(c.Details) == 0 {
		c.Details = nil
	}
	return &c
}

// inventory follows what the store knows of a job's outputs.
type inventory struct {
	job  *operation.Job
	have map[string]core.Output
	// claims says that what is recorded of the control plane is claimed: no other
	// may manage it.
	claims bool
}

func newInventory(job *operation.Job) *inventory {
	i := &inventory{job: job, have: map[string]core.Output{}}
	for _, o := range job.Outputs {
		i.have[o.ID.Key()] = o
	}
	return i
}

func (i *inventory) record(ctx context.Context, put []core.Output, drop []core.ID) error {
	if i.claims {
		put = slices.Clone(put)
		for n := range put {
			put[n].Claimed = isOwn(put[n].ID)
		}
	}
	if err := i.job.SaveOutputs(ctx, put, drop); err != nil {
		return err
	}
	for _, o := range put {
		i.have[o.ID.Key()] = o
	}
	for _, id := range drop {
		delete(i.have, id.Key())
	}
	return nil
}

// isOwn reports whether an output is a resource of the control plane.
func isOwn(id core.ID) bool { return strings.EqualFold(id.Plane.Type, "radius") }

// settle makes the inventory what a run that succeeded says it is: what earlier
// runs made and the template does not name any more is no part of it.
func (i *inventory) settle(ctx context.Context, want []core.Output) error {
	var put []core.Output
	var drop []core.ID
	keep := map[string]bool{}
	for _, o := range want {
		keep[o.ID.Key()] = true
		if have, ok := i.have[o.ID.Key()]; !ok || !reflect.DeepEqual(have, o) {
			put = append(put, o)
		}
	}
	for key, o := range i.have {
		if !keep[key] {
			drop = append(drop, o.ID)
		}
	}
	return i.record(ctx, put, drop)
}
