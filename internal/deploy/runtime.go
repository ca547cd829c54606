package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// keptBytes bounds the live states that a run holds in memory, as estimated;
// what is beyond is read again when it is asked for.
const keptBytes = 64 << 20

// errNotAtHand stops an evaluation that asked for what must be fetched first.
var errNotAtHand = errors.New("not at hand")

// runtime answers one evaluation. A plan evaluates under its lock, so what is
// not in memory is fetched between two evaluations, and asked again.
type runtime struct {
	f       *frame
	answers map[string]any
	// missing is what the last evaluation asked for and did not get.
	missing func(ctx context.Context) error
}

var _ template.Asker = (*runtime)(nil)

// eval evaluates until nothing more has to be fetched. do must be repeatable.
func (f *frame) eval(ctx context.Context, do func(rt template.Runtime) error) error {
	rt := &runtime{f: f, answers: map[string]any{}}
	for {
		rt.missing = nil
		err := do(rt)
		if rt.missing == nil {
			return err
		}
		if err := rt.missing(ctx); err != nil {
			return err
		}
	}
}

func (rt *runtime) fetch(fetch func(ctx context.Context) error) error {
	if rt.missing == nil {
		rt.missing = fetch
	}
	return errNotAtHand
}

// Reference implements template.Runtime.
func (rt *runtime) Reference(res *template.Resource) (map[string]any, error) {
	whole, err := rt.state(res)
	if err != nil || res.Extension != nil {
		return whole, err
	}
	props, _ := whole["properties"].(map[string]any)
	return props, nil
}

// state is the live resource: the whole of one of the control plane or of a
// nested deployment.
func (rt *runtime) state(res *template.Resource) (map[string]any, error) {
	n := rt.f.byResource[res]
	if n == nil {
		return nil, res.Errorf("the resource %q is of another deployment", res.Symbol)
	}
	r := rt.f.r
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case n.absent != nil:
		return nil, n.absent
	case n.state != nil:
		return n.state, nil
	case n.child != nil && n.done:
		public, _ := template.OutputsValue(n.child.outputs)
		return map[string]any{"id": res.ResourceID, "name": res.Name, "type": res.Type,
			"properties": map[string]any{"provisioningState": string(core.StateSucceeded), "outputs": public}}, nil
	case !n.done && !res.Existing:
		return nil, res.Errorf("the resource %q is read before it is made: name it in dependsOn of the resource that reads it", res.Symbol)
	}
	return nil, rt.fetch(n.read)
}

// Ask implements template.Asker.
func (rt *runtime) Ask(q template.Question) (any, error) {
	lower := strings.ToLower(q.Function)
	imported := q.Resource != nil && q.Resource.Extension != nil
	switch {
	case lower == "reference" && q.Resource != nil:
		return rt.state(q.Resource)
	case lower == "listoutputswithsecurevalues" && q.Resource != nil && q.Resource.Deployment && !q.Resource.Existing:
		n := rt.f.byResource[q.Resource]
		if n == nil || n.child == nil || !n.done {
			return nil, q.Resource.Errorf("the outputs of %s are read before it has run: name it in dependsOn", q.Resource.Symbol)
		}
		all := map[string]any{}
		for _, o := range n.child.outputs {
			all[o.Name] = o.Value
		}
		return all, nil
	case lower != "reference" && !strings.HasPrefix(lower, "list"):
		return nil, core.Errorf(core.CodeInvalidTemplate, "%s() asks for what only Azure knows; it has no answer here", q.Function)
	case imported && !extension.ImportsControlPlane(q.Resource.Extension.Provider):
		return nil, q.Resource.Errorf("%s is of the import %q, whose resources answer no %s(): read their properties by reference()", q.Resource.Symbol, q.Resource.Extension.Alias, q.Function)
	}
	symbol := ""
	if imported { // its id is known once it is bound
		symbol = q.Resource.Symbol
	}
	key, err := json.Marshal([]any{lower, strings.ToLower(q.ID), symbol, q.APIVersion, q.Full, q.Args})
	if err != nil {
		return nil, core.Errorf(core.CodeInvalidTemplate, "the arguments of %s() cannot be passed on", q.Function)
	}
	if v, ok := rt.answers[string(key)]; ok {
		if err, failed := v.(error); failed {
			return nil, err
		}
		return v, nil
	}
	if q.Resource != nil && !q.Resource.Existing {
		n := rt.f.byResource[q.Resource]
		if n == nil {
			return nil, q.Resource.Errorf("the resource %q is of another deployment", q.Resource.Symbol)
		}
		rt.f.r.mu.Lock()
		done := n.done
		rt.f.r.mu.Unlock()
		if !done {
			return nil, q.Resource.Errorf("the resource %q is asked before it is made: name it in dependsOn of the resource that asks", q.Resource.Symbol)
		}
	}
	return nil, rt.fetch(func(ctx context.Context) error {
		if imported {
			n := rt.f.byResource[q.Resource]
			if err := n.bind(ctx); err != nil {
				return err
			}
			q.ID = n.reference().ID.String()
		}
		v, err := rt.f.r.ask(ctx, lower, q)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			rt.answers[string(key)] = err // where the template asks, the error gets its place
			return nil
		}
		rt.answers[string(key)] = v
		return nil
	})
}

// ask puts a question to the control plane.
func (r *run) ask(ctx context.Context, function string, q template.Question) (any, error) {
	id, err := core.ParseID(q.ID)
	if err != nil || !id.IsResource() {
		return nil, core.Errorf(core.CodeInvalidTemplate, "%s(): %q is not the id of a resource of this control plane", q.Function, q.ID)
	}
	if r.api == nil {
		return nil, noResources(q.Function + "() of " + q.ID)
	}
	if function == "reference" {
		whole, err := r.api.Get(ctx, id, q.APIVersion)
		if err != nil || q.Full {
			return whole, err
		}
		props, _ := whole["properties"].(map[string]any)
		return props, nil
	}
	args := map[string]any(nil)
	if len(q.Args) > 0 {
		args, _ = q.Args[0].(map[string]any)
	}
	v, err := r.api.Ask(ctx, id, q.APIVersion, q.Function, args)
	if err == nil {
		conceal.Add(ctx, v) // list… answers what GET does not: secrets
	}
	return v, err
}

func noResources(what string) error {
	return core.Errorf(core.CodeInvalidTemplate, "%s: no control plane is at hand here, so templates can use resources of imports (such as Kubernetes) only", what)
}

// read fetches the live state of a resource that was made or exists.
func (n *node) read(ctx context.Context) error {
	n.reading.Lock() // who asks meanwhile gets the same answer
	defer n.reading.Unlock()
	r := n.f.r
	r.mu.Lock()
	known := n.state != nil || n.absent != nil
	r.mu.Unlock()
	if known {
		return nil
	}
	begun := r.e.o.Now()
	state, err := n.live(ctx)
	if n.res.Existing && ctx.Err() == nil {
		e := n.event("Read", "Succeeded", "")
		e.Duration = r.e.o.Now().Sub(begun)
		if err != nil {
			e.State, e.Error = "Failed", core.AsError(conceal.From(ctx).Error(err))
		}
		r.tell(e)
	}
	if n.res.Existing && core.IsCode(err, core.CodeNotFound) {
		r.mu.Lock()
		n.absent = err // an error only for who reads it
		r.mu.Unlock()
		return nil
	}
	if err != nil {
		return err
	}
	n.keep(state, true)
	return nil
}

// live reads the resource as it stands.
func (n *node) live(ctx context.Context) (map[string]any, error) {
	if n.res.Extension == nil {
		if n.f.r.api == nil {
			return nil, noResources(n.name())
		}
		if n.res.ID.IsZero() {
			return nil, n.foreign()
		}
		return n.f.r.api.Get(ctx, n.res.ID, n.res.APIVersion)
	}
	if err := n.bind(ctx); err != nil {
		return nil, err
	}
	s, err := n.place.target.Get(ctx, n.reference())
	return s.Properties, err
}

func (n *node) reference() extension.Ref {
	if n.row != nil {
		n.f.r.mu.Lock()
		defer n.f.r.mu.Unlock()
		return n.row.handle.Ref
	}
	return n.ref
}

// keep holds a live state for reference(), as long as there is room. must says
// that it is asked for right now.
func (n *node) keep(state map[string]any, must bool) {
	if state == nil {
		state = map[string]any{}
	}
	if x := n.res.Extension; x != nil && extension.ImportsControlPlane(x.Provider) {
		state = extension.Flat(state)
	}
	size := sizeOf(state)
	r := n.f.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if must || r.kept+size <= r.e.keep {
		n.state = state
		r.kept += size
	}
}

// sizeOf estimates the memory of a JSON value.
func sizeOf(v any) int {
	size := 16
	switch v := v.(type) {
	case string:
		size += len(v)
	case map[string]any:
		for k, x := range v {
			size += 32 + len(k) + sizeOf(x)
		}
	case []any:
		for _, x := range v {
			size += sizeOf(x)
		}
	}
	return size
}
