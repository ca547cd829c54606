package deploy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// CodeFailed is the code of a deployment of which a resource failed; Details
// has one error for each.
const CodeFailed core.Code = "DeploymentFailed"

// defaultParallel bounds how many resources are made or deleted at a time.
const defaultParallel = 16

// Options say where a plan is deployed to.
type Options struct {
	Resolver extension.Resolver
	// Scope is where resources go whose import does not say otherwise.
	Scope extension.Scope
	// Owner is the resource that all is made for.
	Owner core.ID
	// Kind names the caller's kind of recipe; it is kept in every handle.
	Kind string
	// Previous is the inventory before the run.
	Previous []core.Output
	Record   Record
	// Progress tells what is being done, for people. It may be nil, and is
	// called from several goroutines.
	Progress func(string)
	// Parallel bounds the resources in flight; 0 is 16.
	Parallel int
}

// Handle is what the inventory keeps of an output to delete it.
type Handle struct {
	Kind  string          `json:"kind"`
	Scope extension.Scope `json:"scope"`
	Ref   extension.Ref   `json:"ref"`
}

// Deployment is a plan that was run.
type Deployment struct {
	// Outputs are the resources that were made, in the order of the template.
	Outputs []core.Output

	mu     sync.Mutex
	states map[*template.Resource]map[string]any
	absent map[*template.Resource]error
}

// Reference implements template.Runtime.
func (d *Deployment) Reference(r *template.Resource) (map[string]any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.absent[r]; err != nil {
		return nil, err
	}
	if props, ok := d.states[r]; ok {
		return props, nil
	}
	return nil, r.Errorf("the resource %q is read before it is made: name it in dependsOn of the resource that reads it", r.Symbol)
}

// step is one resource of the plan on its way.
type step struct {
	r      *template.Resource
	scope  extension.Scope
	target extension.Target
	ref    extension.Ref
	needs  []int
}

func (s *step) name() string { return fmt.Sprintf("%s (%s)", s.r.Symbol, s.r.Type) }

// Run deploys a plan. On failure the recorded outputs stay recorded.
func Run(ctx context.Context, p *template.Plan, o Options) (*Deployment, error) {
	if o.Parallel == 0 {
		o.Parallel = defaultParallel
	}
	steps, err := prepare(ctx, p, o)
	if err != nil {
		return nil, err
	}
	planned, index, err := plannedOutputs(steps, o)
	if err != nil {
		return nil, err
	}
	if len(planned) > 0 {
		if err := o.Record(ctx, planned, nil); err != nil {
			return nil, err
		}
	}
	d := &Deployment{states: map[*template.Resource]map[string]any{}, absent: map[*template.Resource]error{}}
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	rec := startRecorder(ctx, o.Record, cancel)
	var mu sync.Mutex // guards planned
	errs, notRun := runGraph(runCtx, needsOf(steps), o.Parallel, func(ctx context.Context, i int) error {
		s := steps[i]
		made, err := d.make(ctx, p, s, o)
		if j, ok := index[i]; ok && made.UID != "" {
			mu.Lock()
			defer mu.Unlock()
			planned[j].State = core.OutputMade
			planned[j].Handle = handle(o.Kind, s.scope, made)
			rec.put(planned[j])
		}
		return err
	})
	if err := rec.close(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the deployment was stopped: %w", context.Cause(ctx))
	}
	if err := failure(ctx, steps, errs, notRun); err != nil {
		return nil, err
	}
	d.Outputs = planned
	return d, nil
}

// prepare resolves the targets and names every resource, in parallel.
func prepare(ctx context.Context, p *template.Plan, o Options) ([]*step, error) {
	steps := make([]*step, len(p.Resources))
	order := map[*template.Resource]int{}
	targets := map[extension.Scope]extension.Target{}
	for i, r := range p.Resources {
		order[r] = i
		scope, err := scopeOf(r, o.Scope)
		if err != nil {
			return nil, err
		}
		target := targets[scope]
		if target == nil {
			if target, err = o.Resolver.Resolve(ctx, scope, nil); err != nil {
				return nil, err
			}
			targets[scope] = target
		}
		steps[i] = &step{r: r, scope: scope, target: target}
	}
	for _, s := range steps {
		for _, dep := range s.r.DependsOn {
			s.needs = append(s.needs, order[dep])
		}
	}
	errs, notRun := runGraph(ctx, make([][]int, len(steps)), o.Parallel, func(ctx context.Context, i int) error {
		s := steps[i]
		props, unknown, err := p.Known(s.r)
		if err != nil {
			return err
		}
		for _, pointer := range []string{"", "/metadata", "/metadata/name", "/metadata/namespace"} {
			if slices.Contains(unknown, pointer) {
				return s.r.Errorf("the name and namespace of %s must be known before the deployment starts; they may not use reference()", s.r.Symbol)
			}
		}
		if s.r.Existing && len(unknown) == 0 {
			unknown = []string{"/"} // read, never written: only its name counts
		}
		state, err := s.target.Preview(ctx, extension.Resource{
			Type: s.r.Type, APIVersion: s.r.APIVersion, Properties: props, Unevaluated: unknown, Owner: o.Owner,
		})
		s.ref = state.Ref
		return err
	})
	return steps, failure(ctx, steps, errs, notRun)
}

// scopeOf is where a resource goes: its import's namespace, else the default.
func scopeOf(r *template.Resource, base extension.Scope) (extension.Scope, error) {
	if r.Extension == nil {
		return base, r.Errorf("%s is of type %s: resources of the control plane cannot be made by a recipe's template yet; use an import (such as Kubernetes)", r.Symbol, r.Type)
	}
	s := base
	s.Extension = r.Extension.Provider
	if len(r.Extension.Unknown) > 0 {
		return s, r.Extension.Errorf("the configuration of the import %q must be known before the deployment starts; it may not use reference()", r.Extension.Alias)
	}
	for key, v := range r.Extension.Config {
		text, ok := v.(string)
		if v == nil || ok && text == "" {
			continue
		}
		switch strings.ToLower(key) {
		case "namespace":
			if !ok {
				return s, r.Errorf("the namespace of the import %q must be a string", r.Extension.Alias)
			}
			s.Namespace = text
		case "kubeconfig", "context":
			return s, r.Errorf("the import %q carries a %s: where a recipe's resources go is the environment's to say; leave it empty", r.Extension.Alias, key)
		}
	}
	return s, nil
}

// plannedOutputs are the outputs of all resources that will be made; index
// leads from a step to its output. What the inventory knows already keeps its
// state and its uid.
func plannedOutputs(steps []*step, o Options) ([]core.Output, map[int]int, error) {
	known := map[string]core.Output{}
	for _, p := range o.Previous {
		known[p.ID.Key()] = p
	}
	var planned []core.Output
	index := map[int]int{}
	symbols := map[string]string{}
	for i, s := range steps {
		if s.r.Existing {
			continue
		}
		key := s.ref.ID.Key()
		if other := symbols[key]; other != "" {
			return nil, nil, s.r.Errorf("%s and %s are the same object, %s: give one of them another name", other, s.r.Symbol, s.ref.ID)
		}
		symbols[key] = s.r.Symbol
		out := core.Output{ID: s.ref.ID, LocalID: s.r.Symbol, State: core.OutputPlanned, Managed: true}
		for _, j := range s.needs {
			if !steps[j].r.Existing {
				out.DependsOn = append(out.DependsOn, steps[j].ref.ID)
			}
		}
		ref := s.ref
		if before, ok := known[key]; ok {
			var h Handle
			if json.Unmarshal(before.Handle, &h) == nil && ref.UID == "" {
				ref.UID = h.Ref.UID
			}
			out.State = before.State
		}
		out.Handle = handle(o.Kind, s.scope, ref)
		index[i] = len(planned)
		planned = append(planned, out)
	}
	return planned, index, nil
}

func handle(kind string, scope extension.Scope, ref extension.Ref) json.RawMessage {
	b, err := json.Marshal(Handle{kind, scope, ref})
	if err != nil {
		panic(err) // strings and valid JSON
	}
	return b
}

func needsOf(steps []*step) [][]int {
	needs := make([][]int, len(steps))
	for i, s := range steps {
		needs[i] = s.needs
	}
	return needs
}

// make applies one resource, or reads it when it exists already.
func (d *Deployment) make(ctx context.Context, p *template.Plan, s *step, o Options) (extension.Ref, error) {
	if s.r.Existing {
		state, err := s.target.Get(ctx, s.ref)
		if core.IsCode(err, core.CodeNotFound) {
			d.mu.Lock()
			d.absent[s.r] = err // an error only for who reads it
			d.mu.Unlock()
			return extension.Ref{}, nil
		}
		if err == nil {
			d.set(s.r, state.Properties)
		}
		return extension.Ref{}, err
	}
	props, err := p.Properties(s.r, d)
	if err != nil {
		return extension.Ref{}, err
	}
	concealSecret(ctx, s.r.Type, props)
	if o.Progress != nil {
		o.Progress("making " + s.name())
	}
	state, err := s.target.Apply(ctx, extension.Resource{Type: s.r.Type, APIVersion: s.r.APIVersion, Properties: props, Owner: o.Owner})
	if err != nil {
		return state.Ref, err
	}
	d.set(s.r, state.Properties)
	return state.Ref, nil
}

// concealSecret registers what a Kubernetes Secret is about to hold: a template
// may have made it up, so that nobody else knows that it is one.
func concealSecret(ctx context.Context, kind string, props map[string]any) {
	if !strings.EqualFold(kind, "core/Secret") {
		return
	}
	conceal.Add(ctx, props["stringData"])
	data, _ := props["data"].(map[string]any)
	for _, v := range data {
		conceal.Add(ctx, v)
		if text, ok := v.(string); ok {
			if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
				conceal.Add(ctx, string(plain))
			}
		}
	}
}

func (d *Deployment) set(r *template.Resource, props map[string]any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.states[r] = props
}

// failure sums up what went wrong, once for each resource, nil if nothing did.
func failure(ctx context.Context, steps []*step, errs []error, notRun []int) error {
	var details []core.Error
	var causes []error
	for i, err := range errs {
		if err == nil {
			continue
		}
		e := *core.AsError(err)
		e.Target = steps[i].r.Symbol
		e.Message = fmt.Sprintf("resource %s: %s", steps[i].name(), e.Message)
		details = append(details, e)
		causes = append(causes, err)
	}
	if len(details) == 0 && len(notRun) == 0 {
		return nil
	}
	if len(details) == 0 { // nothing failed, but the run was stopped
		return context.Cause(ctx)
	}
	message := details[0].Message
	if len(details) > 1 {
		message = fmt.Sprintf("%d of %d resources failed; the first: %s", len(details), len(steps), message)
	}
	if len(notRun) > 0 {
		var names []string
		for _, i := range notRun {
			names = append(names, steps[i].r.Symbol)
		}
		message += "; not made because of it: " + strings.Join(names, ", ")
	}
	return core.Errorf(CodeFailed, "%w", &joined{message, errors.Join(causes...)}).WithDetails(details...)
}

// joined has its own text and keeps the causes reachable.
type joined struct {
	text  string
	cause error
}

func (j *joined) Error() string { return j.text }
func (j *joined) Unwrap() error { return j.cause }
