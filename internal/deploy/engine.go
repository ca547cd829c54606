package deploy

import (
	"context"
	"time"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// EngineOptions make an Engine.
type EngineOptions struct {
	// Resolver finds the targets of extensions' resources.
	Resolver extension.Resolver
	// Resources are the control plane's own, for requests that bring none of
	// their own; nil refuses them.
	Resources ResourceAPI
	// Link loads a linked template or the parameters of one; nil refuses them.
	Link func(ctx context.Context, l template.Link) ([]byte, error)
	// Parallel bounds the resources of one run in flight, 0 is 16.
	Parallel int
	// Now is the clock of events and durations; nil is the system's.
	Now func() time.Time
	// Pause waits between attempts (retryOn) and looks (waitUntil), until ctx
	// ends; nil waits by a timer.
	Pause func(ctx context.Context, d time.Duration) error
}

// Engine runs deployments. It keeps nothing between calls and is safe for
// concurrent use.
type Engine struct{ o EngineOptions }

// New makes an engine.
func New(o EngineOptions) *Engine {
	if o.Parallel == 0 {
		o.Parallel = defaultParallel
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Pause == nil {
		o.Pause = pause
	}
	return &Engine{o}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Deploy runs a deployment to its end, or until nothing but operations of the
// control plane is left to wait for ([Request].Park). Result is not nil with an
// error too, once the template has been planned: what was made so far.
func (e *Engine) Deploy(ctx context.Context, q Request) (*Result, error) {
	p, err := e.plan(ctx, q, false)
	if err != nil {
		return nil, err
	}
	record := q.Record
	if record == nil {
		record = func(context.Context, []core.Output, []core.ID) error { return nil }
	}
	d, err := Run(ctx, p, Options{Resolver: e.o.Resolver, Scope: q.Base, Owner: q.Owner, Kind: q.Kind, Previous: q.Previous, Record: record, Parallel: e.o.Parallel})
	if err != nil {
		return &Result{}, err
	}
	res := &Result{Journal: d.Outputs}
	res.Outputs, err = p.Outputs(d)
	return res, err
}

// Validate plans a deployment and asks every target that can be asked before,
// without making anything.
func (e *Engine) Validate(ctx context.Context, q Request) (*Validation, error) {
	p, err := e.plan(ctx, q, true)
	if err != nil {
		return nil, err
	}
	v := &Validation{}
	for _, r := range p.Resources {
		if r.Extension == nil || r.Existing {
			continue
		}
		id, known, err := p.ExtensionID(r, nil)
		if err != nil {
			return nil, err
		}
		if !known {
			v.Unknown = append(v.Unknown, r.Symbol)
			continue
		}
		v.Resources = append(v.Resources, Affected{ID: id.String(), Symbol: r.Symbol, Type: r.Type, APIVersion: r.APIVersion})
	}
	return v, nil
}

// plan makes the plan of a request's template.
func (e *Engine) plan(ctx context.Context, q Request, partial bool) (*template.Plan, error) {
	t, err := template.Parse(q.Template)
	if err != nil {
		return nil, err
	}
	o := template.Options{
		Parameters: q.Parameters, ExtensionConfigs: q.ExtensionConfigs, ExternalInputs: q.ExternalInputs,
		Deployment: q.Name, Scope: q.Scope, At: q.At, Location: q.Location, Namespace: q.Base.Namespace,
		Now: q.Started, Secret: q.Secret, Partial: partial,
		Conceal: func(v any) { conceal.Add(ctx, v) },
	}
	if e.o.Link != nil {
		o.Link = func(l template.Link) ([]byte, error) { return e.o.Link(ctx, l) }
	}
	return t.Plan(o)
}
