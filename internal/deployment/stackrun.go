package deployment

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/template"
)

// Stacks is the controller of stacks, for PUT and DELETE.
func (s *Service) Stacks() operation.Controller { return operation.ControllerFunc(s.runStack) }

// held is a stack under the lease of its operation: that is its lock, and its
// fence guards every write (S-55). The record is written with the operation's end;
// until then the journal says what was made.
type held struct {
	ctx       context.Context
	inventory *inventory
	record    stack.Record
	latest    stack.Record
}

// newHeld takes a stack up. What its journal has and it has no claim to, it claims:
// another may have had the claim then, and have let go since.
func newHeld(ctx context.Context, job *operation.Job, record stack.Record) (*held, error) {
	h := &held{ctx: ctx, inventory: newInventory(job), record: record, latest: record}
	h.inventory.claims = true
	var lacking []core.Output
	for _, o := range h.inventory.have {
		if isOwn(o.ID) && !o.Claimed {
			lacking = append(lacking, o)
		}
	}
	if len(lacking) == 0 {
		return h, nil
	}
	return h, h.inventory.record(ctx, lacking, nil)
}

func (h *held) Context() context.Context { return h.ctx }
func (h *held) Record() stack.Record     { return h.record }
func (h *held) Close() error             { return nil }

func (h *held) Journal() []core.Output {
	out := make([]core.Output, 0, len(h.inventory.have))
	for _, o := range h.inventory.have {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b core.Output) int { return cmp.Compare(a.ID.Key(), b.ID.Key()) })
	return out
}

func (h *held) Note(ctx context.Context, put []core.Output, drop []core.ID) error {
	return h.inventory.record(ctx, put, drop)
}

func (h *held) Save(_ context.Context, r stack.Record) error {
	h.latest = r
	return nil
}

func (h *held) Remove(context.Context) error { return nil }

// watched is an engine whose deployments answer as deployments of their own.
type watched struct {
	*deploy.Engine
	ended func(ctx context.Context, q deploy.Request, result *deploy.Result, err error)
}

func (e watched) Deploy(ctx context.Context, q deploy.Request) (*deploy.Result, error) {
	result, err := e.Engine.Deploy(ctx, q)
	if !q.ID.IsZero() && ctx.Err() == nil {
		e.ended(context.WithoutCancel(ctx), q, result, err)
	}
	return result, err
}

func (s *Service) runStack(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
	ctx, secrets := conceal.With(ctx)
	ctx = extension.WithSession(ctx)
	key := job.Operation.ID
	out, err := s.stackRun(ctx, job)
	if !out.Park && (err == nil || ctx.Err() == nil) {
		s.forget(key)
	}
	if out.Failure != nil {
		out.Failure = core.AsError(secrets.Error(out.Failure))
	}
	return out, secrets.Error(err)
}

func (s *Service) stackRun(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
	f, record, err := readStack(job.Resource)
	if err != nil {
		return operation.Outcome{}, err
	}
	h, err := newHeld(ctx, job, record)
	if err != nil {
		return operation.Outcome{}, err
	}
	if job.Operation.Verb == core.VerbDelete {
		return s.removeStack(ctx, job, f, h)
	}
	text, in, err := s.stackInputs(job, f)
	if err != nil {
		return s.endedStack(ctx, job, f, h, stack.Outcome{Record: failedRecord(record, err, s.o.Now), Failure: core.AsError(err)})
	}
	if t, err := template.Parse(text); err == nil {
		ctx = concealInputs(ctx, t, in)
	}
	if job.Operation.State != core.StateUpdating {
		if err := job.Progress(ctx, core.StateUpdating); err != nil {
			return operation.Outcome{}, err
		}
	}
	req := s.request(job.Resource.ID, text, in, f.facts)
	req.ID = deploymentOf(job.Resource.ID, f.Started)
	req.Name, req.Secrets, req.Park = req.ID.Name(), in.Credentials, true
	root := core.Resource{ID: req.ID, APIVersion: job.Resource.APIVersion, Location: job.Resource.Location, SystemData: job.Resource.SystemData}
	s.begunStack(ctx, job, f, root)
	req.Progress = func(e deploy.Event) {
		job.Say(eventLine(ctx, e))
		s.begunNested(ctx, root, f.facts, e)
	}
	as := As{Caller: f.Caller, Stack: job.Resource.ID, Operation: job.Operation.ID, Group: job.Resource.ID.Scope(), SystemData: by(job.Resource.SystemData)}
	req.Begin = s.mayBegin(as)
	outcome, err := s.stacks(as, job, f, root).Update(ctx, h, stack.Update{
		Request: req, Unmanage: f.Unmanage, Deny: f.Deny, Description: f.Description, Phase: s.phase(ctx, job),
	})
	if err != nil {
		return s.cutStack(ctx, job, f, h, err)
	}
	return s.endedStack(ctx, job, f, h, outcome)
}

func (s *Service) stackInputs(job *operation.Job, f stackFacts) ([]byte, inputs, error) {
	text, err := s.template(job.Resource)
	if err != nil {
		return nil, inputs{}, err
	}
	in, ok := s.holds(job.Operation.ID)
	if ok {
		return text, in, nil
	}
	found, err := s.open(job.Resource, store.InputsSecret, &in)
	switch {
	case err != nil:
		return nil, in, err
	case !found:
		return nil, in, core.Errorf(core.CodeInternal, "the inputs of stack %s are not there: send it again", job.Resource.ID)
	case f.Withheld:
		return nil, in, s.lost(&job.Resource, f.facts, in)
	}
	return text, in, nil
}

// stacks is the logic of stacks as somebody, for one operation.
func (s *Service) stacks(as As, job *operation.Job, f stackFacts, root core.Resource) *stack.Manager {
	engine := deploy.New(deploy.EngineOptions{Resolver: s.Resolver(as), Resources: s.Resources(as), Link: s.o.Link, Parallel: s.o.Parallel, Now: s.o.Now})
	return stack.New(stack.Options{Now: s.o.Now, Engine: watched{engine, func(ctx context.Context, q deploy.Request, result *deploy.Result, err error) {
		s.endedRoot(ctx, root, f, result, err)
		if result != nil && !result.Waiting {
			s.endedNested(ctx, &operation.Job{Leased: store.Leased{Resource: root, Operation: job.Operation}}, f.facts, result)
		}
	}}})
}

func (s *Service) phase(ctx context.Context, job *operation.Job) func(stack.State, string) {
	return func(state stack.State, text string) {
		job.Say(eventLine(ctx, deploy.Event{Time: s.o.Now(), Operation: "Stack", Symbol: string(state), State: "Running", Text: text}))
	}
}

// begunStack makes the row of the deployment that an update runs as.
func (s *Service) begunStack(ctx context.Context, job *operation.Job, f stackFacts, root core.Resource) {
	if _, _, err := s.o.Store.Get(ctx, root.ID); err == nil {
		return // of an attempt before
	}
	r, own := s.rootRow(root, f)
	own.Root = job.Resource.ID.String()
	r.State = core.StateUpdating
	s.writeNested(ctx, r, own, outcome{})
}

func (s *Service) rootRow(root core.Resource, f stackFacts) (core.Resource, facts) {
	r, own := s.nestedRow(root, f.facts, root.ID, "")
	own.Started, own.TemplateHash, own.TemplateLink, own.Parameters = f.Started, f.TemplateHash, f.TemplateLink, f.Parameters
	own.Providers, own.Dependencies, own.Extensions = f.Providers, f.Dependencies, f.Extensions
	return r, own
}

// endedRoot writes what came of the deployment that an update ran as.
func (s *Service) endedRoot(ctx context.Context, root core.Resource, f stackFacts, result *deploy.Result, err error) {
	if err == nil && (result == nil || result.Waiting) {
		return
	}
	r, own := s.rootRow(root, f)
	r.State = core.StateSucceeded
	o := outcome{Operation: f.Operation, Ended: s.o.Now().UTC()}
	if result != nil {
		o.Resources = result.Resources
		if err == nil {
			_, _ = s.keepOutputs(ctx, &o, result.Outputs)
		}
	}
	if err != nil {
		r.State, o.Error = core.StateFailed, core.Errorf(core.CodeOf(err), "see the stack, which has the reason")
	}
	s.writeNested(ctx, r, own, o)
}

func (s *Service) removeStack(ctx context.Context, job *operation.Job, f stackFacts, h *held) (operation.Outcome, error) {
	gone := removal{Unmanage: f.Unmanage, Caller: f.Caller}
	if f.Removal != nil {
		gone = *f.Removal
	}
	if gone.Unmanage == "" {
		gone.Unmanage = stack.Delete
	}
	var in inputs
	if gone.Withheld {
		var ok bool
		if in, ok = s.holds(gone.Held); !ok && gone.Held == job.Operation.ID {
			err := core.Errorf(extension.CodeCredentialsNeeded, "the deletion was interrupted, and the credentials that came with it are stored nowhere: send it again with them, and it goes on where it was")
			return s.endedStack(ctx, job, f, h, stack.Outcome{Record: failedRecord(h.record, err, s.o.Now), Failure: err})
		}
		for _, secrets := range in.Credentials {
			conceal.Add(ctx, map[string]any(secrets))
		}
	}
	as := As{Caller: gone.Caller, Stack: job.Resource.ID, Operation: job.Operation.ID, Group: job.Resource.ID.Scope(), SystemData: by(job.Resource.SystemData)}
	outcome, err := s.stacks(as, job, f, core.Resource{}).Remove(ctx, h, stack.Removal{
		Unmanage: gone.Unmanage, Phase: s.phase(ctx, job),
		Request: deploy.Request{
			Scope: f.scope(job.Resource.ID), Location: "global", Base: s.o.Base, Run: job.Operation.ID, Started: job.Operation.Created.UTC(),
			Secrets: in.Credentials, Park: true, Parallel: s.o.Parallel, Progress: func(e deploy.Event) { job.Say(eventLine(ctx, e)) },
		},
	})
	if err != nil {
		return s.cutStack(ctx, job, f, h, err)
	}
	return s.endedStack(ctx, job, f, h, outcome)
}

func failedRecord(r stack.Record, err error, now clock) stack.Record {
	r.State, r.Error, r.Ended = stack.StateFailed, core.AsError(err), now().UTC()
	return r
}

// cutStack is the end of a run that did not come to its end. One that was
// canceled keeps what it knew by then; any other is taken up again.
func (s *Service) cutStack(ctx context.Context, job *operation.Job, f stackFacts, h *held, err error) (operation.Outcome, error) {
	if !operation.Canceled(ctx) || core.IsCode(err, core.CodeFenced) {
		return operation.Outcome{}, err
	}
	failure := core.Errorf(core.CodeCanceled, "the stack's update was canceled on request: what it made stays managed, and the next update goes on")
	r := failedRecord(h.latest, failure, s.o.Now)
	r.State = stack.StateCanceled
	return s.endedStack(ctx, job, f, h, stack.Outcome{Record: r, Failure: failure})
}

// endedStack makes the outcome of a run: the row keeps the record.
func (s *Service) endedStack(ctx context.Context, job *operation.Job, f stackFacts, h *held, o stack.Outcome) (operation.Outcome, error) {
	if o.Waiting {
		return operation.Outcome{Park: true}, nil
	}
	if o.Removed {
		return operation.Outcome{Removed: true}, nil
	}
	r := job.Resource
	secrets := map[string]json.RawMessage{}
	if t, ok := r.Secrets[secretTemplate]; ok {
		secrets[secretTemplate] = t
	}
	if kept := r.Secrets[secretResume]; kept != nil && core.IsCode(o.Failure, extension.CodeCredentialsNeeded) {
		secrets[secretResume] = kept
	}
	r.Secrets = secrets
	record := concealRecord(ctx, o.Record)
	record.Run = job.Operation.ID
	f.Removal = nil
	var err error
	if r.Properties, err = json.Marshal(f); err == nil {
		r.Status, err = json.Marshal(record)
	}
	if err != nil {
		return operation.Outcome{}, err
	}
	s.o.Sealer.Stamp(&r)
	return operation.Outcome{Resource: &r, Failure: record.Error}, nil
}

// concealRecord is a record without what the run registered as secret: reasons
// come from targets, which may quote what they were given.
func concealRecord(ctx context.Context, r stack.Record) stack.Record {
	r.Error = concealError(ctx, r.Error)
	r.Resources = slices.Clone(r.Resources)
	for i := range r.Resources {
		r.Resources[i].Error = concealError(ctx, r.Resources[i].Error)
	}
	for _, list := range []*[]deploy.Affected{&r.Deleted, &r.Detached, &r.Failed} {
		*list = slices.Clone(*list)
		for i := range *list {
			(*list)[i].Error = concealError(ctx, (*list)[i].Error)
		}
	}
	r.Outputs = slices.Clone(r.Outputs)
	for i, o := range r.Outputs {
		v := template.Export(o.Value)
		if o.Secure || findKubeConfig("value", v) != "" || holdsSecure(ctx, v) {
			v = nil
		}
		r.Outputs[i].Value = v
	}
	return r
}
