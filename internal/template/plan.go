package template

import (
	"errors"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/radial-project/radial/internal/core"
)

// Options are what a plan is made from.
type Options struct {
	// Parameters are the values of declared parameters, as encoding/json makes
	// them. Text is text: it is never evaluated.
	Parameters map[string]any
	// Deployment is the deployment's name, for deployment().name.
	Deployment string
	// Scope is the resource group that the deployment stands in, for ids.
	Scope core.ID
	// Now and NewGUID are the sources of utcNow() and newGuid(); without them
	// a template that uses these is refused.
	Now     time.Time
	NewGUID func() string
	// Conceal, when not nil, is told the value of every secure parameter, given
	// or made by its default, before anything is made of it.
	Conceal func(v any)
}

// Runtime answers what only a running deployment knows.
type Runtime interface {
	// Reference returns the live properties of a resource of the plan. It
	// answers from memory: the plan evaluates one thing at a time.
	Reference(r *Resource) (map[string]any, error)
}

// Plan is a template with values: the resources it asks for and how they
// depend on each other. Its methods are safe for concurrent use.
type Plan struct {
	// Resources come in the order of the template, loops expanded, those with
	// a false condition left out.
	Resources []*Resource

	t       *Template
	options Options

	mu     sync.Mutex // guards what follows, and evaluation
	params map[*parameter]*lazyValue
	vars   map[string]*lazyValue
	steps  int
	bytes  int

	all   []*Resource // skipped ones too
	index map[string][]*Resource
}

// Resource is one resource of a plan.
type Resource struct {
	// Symbol names it in errors and as the local id of its output: its
	// symbolic name, redis or workers[2], or Type/name in the classic form.
	Symbol string
	// Extension is the import that it belongs to, nil for a resource of the
	// control plane itself.
	Extension *Extension
	// Type and APIVersion, such as apps/Deployment and v1.
	Type       string
	APIVersion string
	// Name and ID of a resource of the control plane; "" and zero under an
	// import.
	Name string
	ID   core.ID
	// Existing resources are read, not made.
	Existing bool
	// Skipped says that its condition is false.
	Skipped bool
	// DependsOn are the resources to be made before, in the plan's order, each
	// once; by dependsOn, by reference(), and by serial loops.
	DependsOn []*Resource
	// Line is where it stands in the template.
	Line int

	n     *node
	loops []loop
	order int
}

// Path is the JSON path of the resource in the template.
func (r *Resource) Path() string { return r.n.path() }

// Errorf makes an error at the resource's place in the template.
func (r *Resource) Errorf(format string, args ...any) *core.Error {
	return invalid(r.n.path(), r.n.line, r.n.col, format, args...)
}

// Extension is an import of the template with its configuration.
type Extension struct {
	// Alias in the template, Provider such as Kubernetes, Version as written.
	Alias    string
	Provider string
	Version  string
	// Config is evaluated at the start.
	Config map[string]any
}

// Plan evaluates all that is known before anything is made.
func (t *Template) Plan(o Options) (*Plan, error) {
	p := &Plan{t: t, options: o, params: map[*parameter]*lazyValue{}, vars: map[string]*lazyValue{},
		steps: t.limits.Steps, bytes: t.limits.Bytes, index: map[string][]*Resource{}}
	if err := p.readParameters(o.Parameters); err != nil {
		return nil, err
	}
	e := &evaluator{p: p}
	extensions, err := p.readExtensions(e)
	if err != nil {
		return nil, err
	}
	for _, n := range t.resources {
		if err := p.expand(e, n, extensions); err != nil {
			return nil, err
		}
	}
	for _, r := range p.all {
		if !r.Skipped {
			p.Resources = append(p.Resources, r)
		}
	}
	for _, r := range p.Resources {
		if err := p.connect(r); err != nil {
			return nil, err
		}
	}
	return p, p.checkCycles()
}

func (p *Plan) readParameters(values map[string]any) error {
	if err := p.t.checkSupplied(values); err != nil {
		return err
	}
	supplied := make(map[string]any, len(values))
	for name, v := range values {
		supplied[strings.ToLower(name)] = v
	}
	for _, q := range p.t.parameters {
		cell := &lazyValue{}
		p.params[q] = cell
		raw, given := supplied[strings.ToLower(q.name)]
		switch {
		case given:
			v, err := Import(raw)
			if err != nil {
				return core.Errorf(core.CodeRecipeInvalid, "parameter %q: %w", q.name, err)
			}
			cell.state, cell.value = cellDone, v
		case q.def.get("defaultValue") != nil:
		case isTrue(q.def.get("nullable")):
			cell.state = cellDone
		default:
			return core.Errorf(core.CodeRecipeInvalid, "parameter %q (%s) has no value and the template has no default for it", q.name, q.typeName()).
				WithTarget("parameters." + q.name)
		}
	}
	e := &evaluator{p: p, in: inDefault}
	for _, q := range p.t.parameters {
		v, err := e.parameter(q.name)
		if err != nil {
			return q.def.locate(err)
		}
		if p.options.Conceal != nil && q.secure() {
			p.options.Conceal(Export(v))
		}
		if bad := p.t.fit(q.def, v, "parameter "+strconv.Quote(q.name), 0); bad != nil {
			return bad.WithTarget("parameters." + q.name)
		}
	}
	return nil
}

func (p *Plan) readExtensions(e *evaluator) (map[string]*Extension, error) {
	out := map[string]*Extension{}
	for key, d := range p.t.imports {
		x := &Extension{Alias: d.alias, Provider: d.provider, Version: d.version, Config: map[string]any{}}
		if d.config != nil {
			v, err := e.start(d.config, "the configuration of an import")
			if err != nil {
				return nil, err
			}
			o, ok := v.(*Object)
			if !ok {
				return nil, d.config.errorf("the configuration of an import must be an object")
			}
			for _, k := range o.Keys() {
				value := o.values[k]
				// The newer form declares each entry: {"defaultValue": …} or {"value": …}.
				if decl, ok := value.(*Object); ok {
					for _, m := range []string{"value", "defaultValue"} {
						if inner, ok := decl.Get(m); ok {
							value = inner
							break
						}
					}
				}
				x.Config[k] = Export(value)
			}
		}
		out[key] = x
	}
	return out, nil
}

// expand adds the resource of a node, once or as often as its loop says.
func (p *Plan) expand(e *evaluator, n *node, extensions map[string]*Extension) error {
	loopNode := n.get("copy")
	if loopNode == nil {
		return p.add(e, n, "", extensions)
	}
	name := loopNode.get("name")
	if name == nil || name.kind != kindString || loopNode.get("count") == nil {
		return loopNode.errorf("a loop has a name (a string) and a count")
	}
	count, err := e.count(loopNode.get("count"))
	if err != nil {
		return err
	}
	first := len(p.all)
	for i := range count {
		l := loop{name: name.text, index: i, resource: true}
		if err := p.add(e.with(l), n, "["+strconv.Itoa(i)+"]", extensions); err != nil {
			return err
		}
	}
	members := p.all[first:]
	p.register(name.text, members...)
	if p.t.symbolic && !strings.EqualFold(name.text, n.key) {
		p.register(n.key, members...)
	}
	return p.serialize(e, loopNode, members)
}

// serialize makes each batch of a serial loop depend on the one before.
func (p *Plan) serialize(e *evaluator, loopNode *node, members []*Resource) error {
	mode, err := e.text(loopNode.get("mode"), "the mode of a loop")
	if err != nil {
		return err
	}
	switch {
	case mode == "" || strings.EqualFold(mode, "parallel"):
		return nil
	case !strings.EqualFold(mode, "serial"):
		return loopNode.get("mode").errorf("the mode of a loop is parallel or serial")
	}
	batch := 1
	if b := loopNode.get("batchSize"); b != nil {
		v, err := e.start(b, "the batch size of a loop")
		if err != nil {
			return err
		}
		i, ok := v.(int64)
		if !ok || i < 1 {
			return b.errorf("the batch size of a loop must be an integer of 1 or more")
		}
		batch = int(min(i, int64(p.t.limits.CopyCount)))
	}
	for i, r := range members {
		if start := i - i%batch; start > 0 {
			r.DependsOn = append(r.DependsOn, members[start-batch:start]...)
		}
	}
	return nil
}

func (p *Plan) add(e *evaluator, n *node, suffix string, extensions map[string]*Extension) error {
	if len(p.all) >= p.t.limits.Resources {
		return n.errorf("the template has more than %d resources, its loops expanded", p.t.limits.Resources)
	}
	r := &Resource{n: n, Line: n.line, loops: e.loops, order: len(p.all)}
	if c := n.get("condition"); c != nil {
		v, err := e.start(c, "a condition")
		if err != nil {
			return err
		}
		b, ok := v.(bool)
		if !ok {
			return c.errorf("a condition must be a bool, it is of type %s", typeName(v))
		}
		r.Skipped = !b
	}
	if x := n.get("existing"); x != nil {
		v, err := e.start(x, "existing")
		if err != nil {
			return err
		}
		r.Existing = v == true
	}
	var err error
	if r.Type, err = e.text(n.get("type"), "the type"); err != nil {
		return err
	}
	if r.APIVersion, err = e.text(n.get("apiVersion"), "apiVersion"); err != nil {
		return err
	}
	if t, v, ok := strings.Cut(r.Type, "@"); ok {
		r.Type, r.APIVersion = t, v
	}
	alias := n.get("import")
	if alias == nil {
		alias = n.get("extension")
	}
	if alias != nil {
		r.Extension = extensions[strings.ToLower(alias.text)]
	} else if !r.Skipped {
		if err := p.identify(e, r); err != nil {
			return err
		}
	}
	if p.t.symbolic {
		r.Symbol = n.key + suffix
		p.register(r.Symbol, r)
	} else {
		r.Symbol = r.Type + "/" + r.Name
		if !r.Skipped {
			p.register(r.Name, r)
			p.register(r.Symbol, r)
			if !r.ID.IsZero() {
				p.register(r.ID.String(), r)
			}
		}
	}
	p.all = append(p.all, r)
	return nil
}

// identify reads the name of a resource of the control plane.
func (p *Plan) identify(e *evaluator, r *Resource) error {
	n := r.n.get("name")
	var err error
	if r.Name, err = e.text(n, "the name"); err != nil {
		return err
	}
	types, names := strings.Split(r.Type, "/"), strings.Split(r.Name, "/")
	if len(types) < 2 || len(names) != len(types)-1 {
		return n.errorf("the type %s needs a name of %d segments, this one has %d", r.Type, len(types)-1, len(names))
	}
	if p.options.Scope.IsZero() {
		return nil
	}
	text := p.options.Scope.String() + "/providers/" + types[0]
	for i, name := range names {
		text += "/" + types[i+1] + "/" + name
	}
	if r.ID, err = core.ParseID(text); err != nil {
		return n.errorf("the name does not make a resource id")
	}
	for _, other := range p.all {
		if !other.Skipped && !other.ID.IsZero() && other.ID.Equal(r.ID) {
			return n.errorf("the resource %s stands twice in the template", r.ID)
		}
	}
	return nil
}

func (p *Plan) register(name string, rs ...*Resource) {
	key := strings.ToLower(name)
	p.index[key] = append(p.index[key], rs...)
}

// find returns the resources of a symbolic name, a name, a Type/name, an id or
// a loop.
func (p *Plan) find(name string) []*Resource {
	seen := map[*Resource]bool{}
	var out []*Resource
	for _, r := range p.index[strings.ToLower(name)] {
		if !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	return out
}

func (p *Plan) loopMembers(name string) []*Resource {
	var out []*Resource
	for _, r := range p.find(name) {
		if len(r.loops) > 0 {
			out = append(out, r)
		}
	}
	return out
}

func (p *Plan) names() []string {
	var names []string
	for _, r := range p.all {
		names = append(names, r.Symbol)
	}
	return names
}

// connect finds what a resource depends on.
func (p *Plan) connect(r *Resource) error {
	e := &evaluator{p: p, loops: r.loops}
	if list := r.n.get("dependsOn"); list != nil {
		if err := list.want("dependsOn", kindArray); err != nil {
			return err
		}
		for _, n := range list.items {
			name, err := e.text(n, "an entry of dependsOn")
			if err != nil {
				return err
			}
			targets := p.find(name)
			if len(targets) == 0 {
				return n.errorf("dependsOn names %q, which is no resource of this template%s", name, didYouMean(name, p.names()))
			}
			r.DependsOn = append(r.DependsOn, targets...)
		}
	}
	if err := p.implicit(e, r, r.n); err != nil {
		return err
	}
	seen := map[*Resource]bool{}
	var deps []*Resource
	for _, d := range r.DependsOn {
		if !seen[d] && !d.Skipped {
			seen[d] = true
			deps = append(deps, d)
		}
	}
	sort.Slice(deps, func(i, j int) bool { return deps[i].order < deps[j].order })
	r.DependsOn = deps
	return nil
}

// implicit adds the resources that reference() and its like name inside n.
func (p *Plan) implicit(e *evaluator, r *Resource, n *node) error {
	for _, list := range [][]*node{n.members, n.items} {
		for _, m := range list {
			if m.parent == r.n && (strings.EqualFold(m.key, "dependsOn") || strings.EqualFold(m.key, "copy")) {
				continue
			}
			if err := p.implicit(e, r, m); err != nil {
				return err
			}
		}
	}
	if n.expr == nil {
		return nil
	}
	return walk(n.expr, func(x expression) error {
		c, ok := x.(*call)
		if !ok || c.fn == nil || c.fn.name != "reference" && c.fn.name != "references" {
			return nil
		}
		v, err := e.expr(c.args[0])
		if err != nil {
			// The name itself needs a running deployment, a lambda or a
			// property loop: dependsOn has to say it.
			return nil
		}
		if name, ok := v.(string); ok {
			r.DependsOn = append(r.DependsOn, p.find(name)...)
		}
		return nil
	})
}

// checkCycles refuses resources that wait for each other, naming the chain.
func (p *Plan) checkCycles() error {
	state := map[*Resource]cellState{}
	var chain []*Resource
	var visit func(r *Resource) error
	visit = func(r *Resource) error {
		switch state[r] {
		case cellDone:
			return nil
		case cellBusy:
			var names []string
			for i, c := range chain {
				if c == r {
					for _, c := range chain[i:] {
						names = append(names, c.Symbol)
					}
				}
			}
			return r.Errorf("resources depend on each other: %s → %s", strings.Join(names, " → "), r.Symbol)
		}
		state[r] = cellBusy
		chain = append(chain, r)
		for _, d := range r.DependsOn {
			if err := visit(d); err != nil {
				return err
			}
		}
		chain = chain[:len(chain)-1]
		state[r] = cellDone
		return nil
	}
	for _, r := range p.Resources {
		if err := visit(r); err != nil {
			return err
		}
	}
	return nil
}

// Known evaluates the properties of a resource as far as they are known before
// the deployment. unknown are the JSON pointers of what is not.
func (p *Plan) Known(r *Resource) (props map[string]any, unknown []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	unknown = []string{}
	props, err = p.properties(&evaluator{p: p, loops: r.loops, unknown: &unknown}, r)
	return props, unknown, err
}

// Properties evaluates the properties of a resource when all that it depends
// on has been made. The map is the caller's.
func (p *Plan) Properties(r *Resource, rt Runtime) (map[string]any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.properties(&evaluator{p: p, loops: r.loops, rt: rt}, r)
}

func (p *Plan) properties(e *evaluator, r *Resource) (map[string]any, error) {
	n := r.n.get("properties")
	if n == nil {
		return map[string]any{}, nil
	}
	v, err := e.node(n, "")
	if err != nil {
		return nil, p.runtimeFault(err)
	}
	if _, gone := v.(missing); gone {
		return map[string]any{}, nil
	}
	o, ok := v.(*Object)
	if !ok {
		return nil, n.errorf("properties must be an object, they are of type %s", typeName(v))
	}
	return Export(o).(map[string]any), nil
}

// runtimeFault gives errRuntime, where nobody waits for it, its place.
func (p *Plan) runtimeFault(err error) error {
	var at *runtimeAt
	if errors.As(err, &at) {
		return at.n.errorf("%v", at.err)
	}
	return err
}

// Output is the value of one output.
type Output struct {
	Name  string
	Value any
	// Secure outputs are secrets.
	Secure bool
}

// Outputs evaluates the outputs, in the order of the template, those with a
// false condition left out.
func (p *Plan) Outputs(rt Runtime) ([]Output, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &evaluator{p: p, rt: rt}
	var outs []Output
	for _, n := range p.t.outputs {
		if c := n.get("condition"); c != nil {
			v, err := e.node(c, "")
			if err != nil {
				return nil, p.runtimeFault(err)
			}
			if b, ok := v.(bool); !ok {
				return nil, c.errorf("a condition must be a bool, it is of type %s", typeName(v))
			} else if !b {
				continue
			}
		}
		v, err := p.output(e, n)
		if err != nil {
			return nil, p.runtimeFault(err)
		}
		q := &parameter{name: n.key, def: n}
		if bad := p.t.fit(n, v, "output "+strconv.Quote(n.key), 0); bad != nil {
			return nil, n.errorf("%s", bad.Message)
		}
		outs = append(outs, Output{Name: n.key, Value: Export(v), Secure: q.secure()})
	}
	return outs, nil
}

func (p *Plan) output(e *evaluator, n *node) (any, error) {
	c := n.get("copy")
	if c == nil {
		return e.node(n.get("value"), "")
	}
	input := c.get("input")
	if input == nil || c.get("count") == nil {
		return nil, c.errorf("the copy of an output has count and input")
	}
	count, err := e.count(c.get("count"))
	if err != nil {
		return nil, err
	}
	list := make([]any, 0, count)
	for i := range count {
		v, err := e.with(loop{index: i, resource: true}).node(input, "")
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}
