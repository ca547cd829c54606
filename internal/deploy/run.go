package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/template"
)

// errWaiting is what a node answers that waits for an operation of the control
// plane, errBelow a deployment of which a resource failed: both stop what needs
// it, and are said elsewhere.
var (
	errWaiting = errors.New("it waits for an operation of the control plane")
	errBelow   = errors.New("a resource of it failed")
)

// run is one call of Deploy: the root deployment and all nested ones.
type run struct {
	e        *Engine
	q        Request
	api      ResourceAPI
	targets  *targets
	previous map[string]core.Output // by id
	rec      *recorder
	// slots has a place for each resource that is worked on, over all
	// deployments of the run.
	slots chan struct{}
	root  *frame

	mu sync.Mutex // guards what follows, and states and rows of all frames
	// claimed are the resources of the run by the key of their output.
	claimed map[string]string
	// names are the nested deployments by id.
	names    map[string]string
	count    int
	kept     int // bytes of live states
	warnings []string
	nested   []Nested
	deleted  []Affected
	// byID are the resources of the control plane by id in lower case.
	byID map[string]*node
	// recorded are those of the request's Previous that an extension made, by their
	// key there: made when one is not found by its id.
	recorded map[string]core.Output
	// resumed says that an attempt of this run has recorded its plan.
	resumed bool

	telling sync.Mutex
}

// frame is one deployment of a run: a plan on its way.
type frame struct {
	r *run
	// in is the node of the deployment that this one is nested in, nil at the
	// root; path is "" there, else names joined by slashes.
	in   *node
	path string
	plan *template.Plan

	nodes      []*node
	byResource map[*template.Resource]*node
	places     map[*template.Extension]*placing
	outputs    []template.Output
}

// placing is the place of an import, once it is known.
type placing struct {
	mu sync.Mutex
	p  *place
}

// mostResources bounds one run: what ten of the largest templates make. The
// language bounds each template.
const mostResources = 8000

func (e *Engine) newRun(q Request) *run {
	parallel := q.Parallel
	if parallel == 0 {
		parallel = e.o.Parallel
	}
	r := &run{e: e, q: q, api: q.Resources, targets: newTargets(e.o.Resolver), previous: map[string]core.Output{},
		slots: make(chan struct{}, parallel), claimed: map[string]string{}, names: map[string]string{}, byID: map[string]*node{}}
	if r.api == nil {
		r.api = e.o.Resources
	}
	for _, o := range q.Previous {
		r.previous[o.ID.Key()] = o
		if !r.resumed && q.Run != "" && bytes.Contains(o.Handle, []byte(q.Run)) {
			h, err := readHandle(o)
			r.resumed = err == nil && h.Run == q.Run
		}
	}
	if !q.ID.IsZero() {
		r.names[q.ID.Key()] = "the deployment itself"
	}
	return r
}

func (r *run) newFrame(in *node, p *template.Plan) (*frame, error) {
	f := &frame{r: r, in: in, plan: p, byResource: map[*template.Resource]*node{}, places: map[*template.Extension]*placing{}}
	if in != nil {
		f.path = in.name()
	}
	for i, res := range p.Resources {
		n := &node{f: f, res: res, at: i}
		f.nodes = append(f.nodes, n)
		f.byResource[res] = n
	}
	for _, x := range p.Extensions {
		f.places[x] = &placing{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count += len(f.nodes)
	if r.count > r.e.most {
		return nil, core.Errorf(core.CodeInvalidTemplate, "the deployment and its nested ones have more than %d resources: split it into several", r.e.most)
	}
	return f, nil
}

// enter waits for a free place among the resources that are worked on.
func (r *run) enter(ctx context.Context) error {
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *run) leave() { <-r.slots }

// tell reports a step.
func (r *run) tell(e Event) {
	if r.q.Progress == nil {
		return
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	e.Time = r.e.o.Now()
	r.q.Progress(e)
}

func (r *run) warn(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.warnings, text) {
		r.warnings = append(r.warnings, text)
	}
}

// claim refuses a second resource of the same identity in one run. The run's
// lock is held.
func (r *run) claim(id core.ID, n *node) error {
	if id.IsZero() { // not known before it is made
		return nil
	}
	if other := r.claimed[id.Key()]; other != "" && other != n.name() {
		return n.res.Errorf("%s and %s are the same object, %s: give one of them another name", other, n.name(), id)
	}
	r.claimed[id.Key()] = n.name()
	return nil
}

// run makes the resources of a prepared frame, then its outputs.
func (f *frame) run(ctx context.Context) error {
	needs := make([][]int, len(f.nodes))
	for i, n := range f.nodes {
		needs[i] = n.needs
	}
	errs, notRun := runGraph(ctx, needs, len(f.nodes), func(ctx context.Context, i int) error {
		n := f.nodes[i]
		err := n.do(ctx)
		n.err = err
		return err
	})
	for _, i := range notRun {
		f.nodes[i].notRun = true
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	failed, waiting := false, false
	for _, err := range errs {
		waiting = waiting || errors.Is(err, errWaiting)
		failed = failed || err != nil
	}
	switch {
	case waiting:
		return errWaiting // what failed is on record, and said with the end
	case failed:
		for _, i := range notRun {
			f.r.tell(f.nodes[i].event("Create", "NotRun", "not made, since what it needs failed"))
		}
		return errBelow
	}
	return f.finish(ctx)
}

// finish evaluates what is left when all is made: outputs and asserts.
func (f *frame) finish(ctx context.Context) error {
	if err := f.r.enter(ctx); err != nil {
		return err
	}
	defer f.r.leave()
	begun := f.r.e.o.Now()
	err := f.eval(ctx, func(rt template.Runtime) (err error) {
		f.outputs, err = f.plan.Outputs(rt)
		return err
	})
	if err == nil {
		err = f.assert(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	end := Event{Deployment: f.path, Operation: "EvaluateDeploymentOutput", State: "Succeeded", Duration: f.r.e.o.Now().Sub(begun)}
	if err != nil {
		end.State, end.Error = "Failed", core.AsError(err)
		err = &outputsError{err}
	}
	f.r.tell(end)
	for _, o := range f.outputs {
		if o.Secure {
			conceal.Add(ctx, o.Value)
		}
	}
	return err
}

// assert evaluates the asserts of the template and its resources.
func (f *frame) assert(ctx context.Context) error {
	var all []template.Assertion
	err := f.eval(ctx, func(rt template.Runtime) (err error) {
		all, err = f.plan.Asserts(rt)
		return err
	})
	if err != nil {
		return err
	}
	var broken []string
	for _, a := range all {
		if !a.Holds {
			name := a.Name
			if a.Resource != "" {
				name = a.Resource + "." + name
			}
			broken = append(broken, name)
		}
	}
	if len(broken) > 0 {
		return core.Errorf(CodeAssertion, "what the template asserts does not hold: %s", strings.Join(broken, ", "))
	}
	return nil
}

// needed are the resources of the run that deletion takes after the node's:
// those that it depends on, through existing resources and nested deployments,
// as far as they are planned by now. The first resources of a nested deployment
// need what the deployment itself needs.
func (n *node) needed() []*node {
	var found []*node
	seen := map[*node]bool{}
	var add, needs func(m *node)
	add = func(m *node) {
		if seen[m] {
			return
		}
		seen[m] = true
		switch before := len(found); {
		case m.makes():
			found = append(found, m)
		case m.child != nil:
			for _, last := range m.child.last() {
				add(last)
			}
			if len(found) == before {
				needs(m)
			}
		default:
			needs(m)
		}
	}
	needs = func(m *node) {
		for _, i := range m.needs {
			add(m.f.nodes[i])
		}
	}
	for at := n; at != nil && len(found) == 0; at = at.f.in {
		needs(at)
	}
	return found
}

// last are the nodes of a frame that no other of it needs.
func (f *frame) last() []*node {
	needed := make([]bool, len(f.nodes))
	for _, n := range f.nodes {
		for _, i := range n.needs {
			needed[i] = true
		}
	}
	var last []*node
	for i, n := range f.nodes {
		if !needed[i] {
			last = append(last, n)
		}
	}
	return last
}

// walk calls do for every node that makes a resource, in the order of the
// templates, nested ones in the place of their deployment.
func (f *frame) walk(do func(n *node)) {
	if f == nil {
		return
	}
	for _, n := range f.nodes {
		if n.child != nil {
			n.child.walk(do)
		}
		do(n)
	}
}

// pauseAfter is the pause after an attempt: from a second, doubled each time, up
// to a minute.
func pauseAfter(attempt int) time.Duration {
	return min(time.Second<<min(attempt, 6), time.Minute)
}
