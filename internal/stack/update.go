package stack

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
)

// Codes of a stack's errors.
const (
	// CodeUnmanage: some of what is no longer managed was not deleted or let go.
	CodeUnmanage core.Code = "DeploymentStackDeleteResourcesFailed"
	// CodeOutOfSync: the record was written by a later release.
	CodeOutOfSync core.Code = "DeploymentStackOutOfSync"
)

// Options make a Manager. Engine is required.
type Options struct {
	Engine Engine
	Now    func() time.Time
	// Pause waits between passes, until ctx ends.
	Pause func(ctx context.Context, d time.Duration) error
	// Passes is how many passes without any progress end a deletion; 0 is 5.
	Passes int
}

// Manager is what stacks do. It is safe for concurrent use.
type Manager struct{ o Options }

// New makes a manager.
func New(o Options) *Manager {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Pause == nil {
		o.Pause = core.Pause
	}
	if o.Passes == 0 {
		o.Passes = 5
	}
	return &Manager{o}
}

// Update is one update of a stack.
type Update struct {
	// Request is the deployment to run. Owner, Previous and Record are the
	// stack's to set.
	Request     deploy.Request
	Unmanage    Action
	Deny        DenySettings
	Description string
	// Phase is told what is being done; it may be nil.
	Phase func(s State, text string)
}

// Outcome is how an update or a deletion stands.
type Outcome struct {
	Record Record
	// Waiting says that operations of the control plane are to be waited for;
	// then the same call is to be made again.
	Waiting bool
	// Removed says that the stack is gone.
	Removed bool
	// Failure is why it failed, nil if it did not. Record has what came of it.
	Failure *core.Error
}

// run is one call of Update or Remove.
type run struct {
	*Manager
	s     Session
	q     deploy.Request
	next  Record
	phase func(State, string)
}

func (m *Manager) begin(s Session, q deploy.Request, phase func(State, string)) *run {
	r := &run{Manager: m, s: s, q: q, next: s.Record(), phase: phase}
	if phase == nil {
		r.phase = func(State, string) {}
	}
	if r.next.Run != q.Run || r.next.State.Terminal() {
		r.next.Detached, r.next.Deleted, r.next.Failed, r.next.Started = nil, nil, nil, q.Started
	}
	r.next.Error, r.next.Run, r.next.Ended = nil, q.Run, time.Time{}
	r.next.Resources = known(s.Record(), s.Journal())
	r.q.Owner = r.next.ID
	return r
}

// request is a deployment of a template of ours in the same surroundings.
func (r *run) request(name string, text []byte) deploy.Request {
	q := r.q
	q.Name, q.Template, q.Parameters, q.ExtensionConfigs, q.ExternalInputs = name, text, nil, nil, nil
	q.ID = core.ID{}
	return q
}

// known are all resources that may exist because of a stack: those of the record,
// and what the engine's journal has beyond it. Where both know one, the journal is
// newer: an object that was made anew has another uid there (S-55).
func known(record Record, journal []core.Output) []Managed {
	list := append([]Managed(nil), record.Resources...)
	have := setOf(list, ofManaged)
	policies := setOf(record.Policies, ofManaged)
	for n, a := range deploy.JournalAffected(journal) {
		if a.ID == "" || !mayExist(journal[n], a) {
			continue
		}
		if _, ok := policies.find(a); ok {
			continue
		}
		i, ok := have.find(a)
		switch {
		case !ok:
			have.add(a, len(list))
			list = append(list, Managed{Affected: a, Status: StatusManaged})
		case a.Identity != nil && a.Identity.UID != "":
			list[i].Identity = a.Identity
		}
	}
	sortManaged(list)
	return list
}

// mayExist reports whether what an entry is about may be there because of the
// stack. An object that was planned and perhaps made carries the stack's mark when
// it was, and is deleted by that alone. A resource of the control plane has no
// mark: one that no write is known of may be anybody's.
func mayExist(o core.Output, a deploy.Affected) bool {
	if o.State == core.OutputMade || a.Scope != nil {
		return true
	}
	var h deploy.Handle
	return json.Unmarshal(o.Handle, &h) == nil && h.Operation != ""
}

// made are the entries of a journal whose resources are known to be made.
func made(journal []core.Output) []core.Output {
	var out []core.Output
	for _, o := range journal {
		if o.State == core.OutputMade {
			out = append(out, o)
		}
	}
	return out
}

// Update makes a stack what a template says.
func (m *Manager) Update(ctx context.Context, s Session, u Update) (Outcome, error) {
	r := m.begin(s, u.Request, u.Phase)
	r.next.Unmanage, r.next.Description = u.Unmanage, u.Description
	if err := u.Deny.Check(); err != nil {
		return r.fail(ctx, core.AsError(err))
	}
	if err := r.renewPolicies(ctx); err != nil && (u.Deny.denies() || stopped(ctx, err)) {
		return r.fail(ctx, err)
	}
	r.phase(StateDeploying, "deploying the template")
	q := r.q
	q.Previous, q.Record = s.Journal(), s.Note
	res, err := m.o.Engine.Deploy(ctx, q)
	if stopped(ctx, err) {
		return Outcome{}, err
	}
	r.supply(res)
	if err == nil && res.Waiting {
		return Outcome{Record: r.next, Waiting: true}, nil
	}
	r.next.Deployment = q.ID.String()
	if err != nil {
		// S-54: what it made joins, and nothing is deleted.
		if res != nil {
			r.join(res.Resources)
		}
		r.next.Resources = known(r.next, made(s.Journal()))
		return r.fail(ctx, core.AsError(err))
	}
	r.next.Outputs = nil
	for _, o := range res.Outputs {
		if o.Secure {
			o.Value = nil
		}
		r.next.Outputs = append(r.next.Outputs, o)
	}
	gone := r.adopt(res.Resources)
	if err := r.save(ctx, StateUnmanage); err != nil {
		return Outcome{}, err
	}
	var failure *core.Error
	if len(gone) > 0 {
		waiting, fault, err := r.unmanage(ctx, gone, u.Unmanage)
		if err != nil {
			return Outcome{}, err
		}
		if waiting {
			return Outcome{Record: r.next, Waiting: true}, nil
		}
		failure = fault
	}
	if fault, err := r.deny(ctx, u.Deny); err != nil {
		return Outcome{}, err
	} else if failure == nil {
		failure = fault
	}
	return r.end(ctx, failure)
}

// supply takes over the credentials that came with the template's parameters: what
// the same update deletes is reached by them too.
func (r *run) supply(res *deploy.Result) {
	if res == nil || len(res.Secrets) == 0 {
		return
	}
	all := maps.Clone(res.Secrets)
	maps.Copy(all, r.q.Secrets) // what was given for this very purpose wins
	r.q.Secrets = all
}

// stopped reports whether a run was cut off: by its context's end, or by the loss
// of its lock. Then nothing more may be written.
func stopped(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || core.IsCode(err, core.CodeFenced))
}

// join adds what was made to the managed resources.
func (r *run) join(made []deploy.Affected) {
	have := setOf(r.next.Resources, ofManaged)
	for _, a := range made {
		if i, ok := have.find(a); ok {
			r.next.Resources[i] = Managed{Affected: a, Status: StatusManaged, DenyStatus: r.next.Resources[i].DenyStatus}
			continue
		}
		have.add(a, len(r.next.Resources))
		r.next.Resources = append(r.next.Resources, Managed{Affected: a, Status: StatusManaged})
	}
	sortManaged(r.next.Resources)
}

// adopt joins what a whole deployment made, and returns what was managed and is
// not among it (S-29).
func (r *run) adopt(made []deploy.Affected) []Managed {
	now := setOf(made, itself)
	var gone []Managed
	kept := r.next.Resources[:0:0]
	for _, m := range r.next.Resources {
		if _, ok := now.find(m.Affected); !ok {
			gone = append(gone, m)
			kept = append(kept, m)
		}
	}
	r.next.Resources = kept // the rest comes anew, with what is known of it now
	r.join(made)
	return gone
}

// drop takes a resource out of the managed ones.
func (r *run) drop(gone []deploy.Affected) {
	out := setOf(gone, itself)
	kept := r.next.Resources[:0:0]
	for _, m := range r.next.Resources {
		if _, ok := out[keyOf(m.Affected)]; !ok {
			kept = append(kept, m)
		}
	}
	r.next.Resources = kept
}

// save keeps what is known so far, for who reads it and for whoever goes on.
func (r *run) save(ctx context.Context, s State) error {
	r.next.State = s
	return r.s.Save(ctx, r.next)
}

// end writes the last word of a run: first the journal keeps only what is
// managed, then the record.
func (r *run) end(ctx context.Context, failure *core.Error) (Outcome, error) {
	managed := setOf(r.next.Resources, ofManaged)
	var drop []core.ID
	journal := r.s.Journal()
	for i, a := range deploy.JournalAffected(journal) {
		if _, ok := managed.find(a); !ok {
			drop = append(drop, journal[i].ID)
		}
	}
	if len(drop) > 0 {
		if err := r.s.Note(ctx, nil, drop); err != nil {
			return Outcome{}, err
		}
	}
	return r.fail(ctx, failure)
}

// fail writes the record with the failure, or without one.
func (r *run) fail(ctx context.Context, failure *core.Error) (Outcome, error) {
	if failure != nil && stopped(ctx, failure) {
		return Outcome{}, failure
	}
	r.next.Ended, r.next.Error = r.o.Now().UTC(), failure
	state := StateSucceeded
	if failure != nil {
		state = StateFailed
	}
	if err := r.save(ctx, state); err != nil {
		return Outcome{}, err
	}
	return Outcome{Record: r.next, Failure: failure}, nil
}
