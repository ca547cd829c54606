package deploy

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/google/uuid"

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
	// NewGUID is the source of newGuid() for requests without a seed: it must be
	// unguessable, since passwords are made of it. nil is a seed made for each.
	NewGUID func() string
	// Now is the clock of events and durations; nil is the system's.
	Now func() time.Time
	// Pause waits between attempts (retryOn) and looks (waitUntil), until ctx
	// ends; nil waits by a timer.
	Pause func(ctx context.Context, d time.Duration) error
}

// Engine runs deployments. It keeps nothing between calls and is safe for
// concurrent use.
type Engine struct {
	o EngineOptions
	// keep bounds the live states that one run holds, in bytes; most its
	// resources.
	keep, most int
}

// New makes an engine.
func New(o EngineOptions) *Engine {
	if o.Parallel == 0 {
		o.Parallel = defaultParallel
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Pause == nil {
		o.Pause = core.Pause
	}
	return &Engine{o, keptBytes, mostResources}
}

// Deploy runs a deployment to its end, or until nothing but operations of the
// control plane is left to wait for ([Request].Park). Result is not nil with an
// error too, once the template has been planned: what was made so far.
func (e *Engine) Deploy(ctx context.Context, q Request) (*Result, error) {
	ctx = begin(ctx)
	p, err := e.plan(ctx, q, false)
	if err != nil {
		return nil, err
	}
	r := e.newRun(q)
	if r.root, err = r.newFrame(nil, p); err != nil {
		return nil, err
	}
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.rec = startRecorder(ctx, q.Record, cancel)
	if err = r.root.prepare(runCtx); err == nil {
		err = r.root.run(runCtx)
	}
	if err == nil {
		err = r.remove(runCtx)
	}
	if err == nil {
		r.forget()
	}
	lost := r.rec.close()
	res, err := r.result(runCtx, err)
	if lost != nil {
		return res, lost
	}
	return res, err
}

// begin makes the context of a run: scopes are resolved once in it, and what is
// said of it is searched for the secrets that it handles.
func begin(ctx context.Context) context.Context {
	if conceal.From(ctx) == nil {
		ctx, _ = conceal.With(ctx)
	}
	return extension.WithSession(ctx)
}

// forget drops from the journal of a deployment that owns nothing what it does
// not make any more. What an owner's deployment no longer makes is the owner's
// to delete.
func (r *run) forget() {
	if !r.q.Owner.IsZero() {
		return
	}
	for _, o := range r.q.Previous {
		if r.claimed[o.ID.Key()] == "" {
			r.rec.drop(o.ID)
		}
	}
}

// plan makes the plan of a request's template.
func (e *Engine) plan(ctx context.Context, q Request, partial bool) (*template.Plan, error) {
	t := q.Parsed
	if t == nil {
		var err error
		if t, err = template.Parse(q.Template); err != nil {
			return nil, err
		}
	}
	o := template.Options{
		Parameters: q.Parameters, ExtensionConfigs: q.ExtensionConfigs, ExternalInputs: q.ExternalInputs,
		Deployment: q.Name, Scope: q.Scope, At: q.At, Location: q.Location, Namespace: q.Base.Namespace,
		Now: q.Started, Secret: q.Secret, Partial: partial,
		Conceal: func(v any) { conceal.Add(ctx, v) },
	}
	seed := q.Seed
	if len(seed) == 0 && e.o.NewGUID != nil {
		o.NewGUID = e.o.NewGUID
		return t.Plan(e.linked(ctx, o))
	}
	if len(seed) == 0 {
		seed = make([]byte, 32)
		if _, err := rand.Read(seed); err != nil {
			return nil, err
		}
	}
	o.NewGUID = guids(seed, "")
	o.Nest = nest(seed, "")
	return t.Plan(e.linked(ctx, o))
}

func (e *Engine) linked(ctx context.Context, o template.Options) template.Options {
	if e.o.Link != nil {
		o.Link = func(l template.Link) ([]byte, error) { return e.o.Link(ctx, l) }
	}
	return o
}

// nest gives each nested deployment GUIDs of its own.
func nest(seed []byte, path string) func(*template.Resource, *template.Options) {
	return func(res *template.Resource, o *template.Options) {
		path := path + "/" + res.Symbol
		o.NewGUID, o.Nest = guids(seed, path), nest(seed, path)
	}
}

// guids are the GUIDs of one deployment of a run, by its path: the same in every
// attempt, whatever else runs at the time, and not to be guessed without the
// seed.
func guids(seed []byte, path string) func() string {
	n := 0
	return func() string {
		n++
		h := hmac.New(sha256.New, seed)
		fmt.Fprintf(h, "newGuid/%d/%s", n, path)
		var id uuid.UUID
		copy(id[:], h.Sum(nil))
		id[6] = id[6]&0x0f | 0x40 // version 4
		id[8] = id[8]&0x3f | 0x80
		return id.String()
	}
}
