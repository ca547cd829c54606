package template

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
)

// Options are what a plan is made from.
type Options struct {
	// Parameters are the values of declared parameters, as encoding/json makes
	// them. Text is text: it is never evaluated.
	Parameters map[string]any
	// ExtensionConfigs are the deployment's configurations of extensions: by
	// alias and entry, {"value": …} or {"keyVaultReference": …}.
	ExtensionConfigs map[string]map[string]any
	// ExternalInputs are the values of externalInputs(), by name.
	ExternalInputs map[string]any
	// Deployment is the deployment's name, for deployment().name.
	Deployment string
	// Scope is the resource group that the deployment stands in, for ids.
	Scope core.ID
	// At is the scope as text where it is none of a plane: a resource group of
	// a subscription, a subscription, a management group, or "/" for the tenant.
	At string
	// Location is that of the resource group, or of the deployment; "" is
	// "global".
	Location string
	// Namespace is where objects of Kubernetes go when neither their body nor
	// their import names one; "" makes that an error.
	Namespace string
	// Surroundings replace what resourceGroup(), subscription(), tenant(),
	// managementGroup(), environment() and deployer() answer, by the name of
	// the function.
	Surroundings map[string]map[string]any
	// Now and NewGUID are the sources of utcNow() and newGuid(); without them
	// a template that uses these is refused.
	Now     time.Time
	NewGUID func() string
	// Nest, when not nil, may change the options of a nested deployment before it
	// is planned: they are the parent's where the deployment says nothing else.
	Nest func(r *Resource, o *Options)
	// Conceal, when not nil, is told the value of every secure parameter, given
	// or made by its default, before anything is made of it.
	Conceal func(v any)
	// Secret answers a reference to a key vault; nil refuses them.
	Secret func(SecretReference) (string, error)
	// Link loads a linked template, or the parameters of one; nil refuses them.
	Link func(Link) ([]byte, error)
	// URI is where this template came from, for relative links.
	URI string
	// Ask answers what is known before the deployment and of no template:
	// providers(), pickZones(), zones. nil leaves them to the [Asker] at run time.
	Ask func(Question) (any, error)
	// Partial plans what can be known: what needs a running deployment in a
	// condition, a count or a name makes an [Resource.Uncertain] resource instead
	// of an error. It is for previews.
	Partial bool
}

// Runtime answers what only a running deployment knows.
type Runtime interface {
	// Reference returns the live properties of a resource of the plan. It
	// answers from memory: the plan evaluates one thing at a time.
	//
	// An error reaches the caller of the evaluation unchanged, so that an engine
	// may answer "not at hand", read outside of the plan's lock, and ask again.
	// For a nested deployment it answers {"outputs": …}, see [OutputsValue].
	Reference(r *Resource) (map[string]any, error)
}

// Question is what a template asks beyond the properties of its own resources.
type Question struct {
	// Function is "reference" (of a resource outside the template, or of a whole
	// one), a name that starts with list, or providers, pickZones, toLogicalZone,
	// toLogicalZones, toPhysicalZone, toPhysicalZones, invokeResourceMethod.
	Function string
	// Resource is the resource of the plan that is meant, nil if it is another.
	Resource *Resource
	// ID and APIVersion name the resource.
	ID, APIVersion string
	// Full asks for the whole resource, not only its properties.
	Full bool
	// Args are further arguments.
	Args []any
}

// Asker is a [Runtime] that answers questions. One that is none refuses
// list… functions and resources outside of the template.
type Asker interface {
	Runtime
	Ask(Question) (any, error)
}

// Plan is a template with values: the resources it asks for and how they
// depend on each other. Its methods are safe for concurrent use.
type Plan struct {
	// Resources come in the order of the template, loops expanded, those with
	// a false condition left out.
	Resources []*Resource
	// Extensions are the imports in the order of the template.
	Extensions []*Extension
	// Deleted are what deletedResources names. They go after the resources are
	// made.
	Deleted []*Deletion

	t          *Template
	options    Options
	at         address
	extensions map[string]*Extension
	secrets    conceal.Values
	// secure are parameters that are secrets though they are not declared so:
	// the parent made them of its secure ones.
	secure map[string]bool

	mu     sync.Mutex // guards what follows, and evaluation
	params map[*parameter]*lazyValue
	vars   map[string]*lazyValue
	budget *budget

	all   []*Resource // skipped ones too
	index map[string][]*Resource
	ids   map[string]*Resource
	// loopNames are names of loops, empty ones too.
	loopNames map[string]bool
}

// budget is what one run may cost, its nested deployments included.
type budget struct{ steps, bytes atomic.Int64 }

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
	// ResourceID is the id as text, of any plane; At is the scope that it is in.
	ResourceID string
	At         string
	// Existing resources are read, not made.
	Existing bool
	// Skipped says that its condition is false.
	Skipped bool
	// Uncertain says that whether, how often or under which name it is made is
	// not known before the deployment (Options.Partial).
	Uncertain bool
	// Deployment says that it is a nested deployment: see [Plan.Nested].
	Deployment bool
	// Patch says that the body is merged into the live resource.
	Patch bool
	// DependsOn are the resources to be made before, in the plan's order, each
	// once; by dependsOn, by reference(), and by serial loops.
	DependsOn []*Resource
	// Line is where it stands in the template.
	Line int

	n     *node
	loops []loop
	order int
}

// Loops returns the names and indices of the loops that the resource is made
// by, outermost first.
func (r *Resource) Loops() (names []string, indices []int) {
	for _, l := range r.loops {
		names, indices = append(names, l.name), append(indices, l.index)
	}
	return names, indices
}

// Path is the JSON path of the resource in the template.
func (r *Resource) Path() string { return r.n.path() }

// Errorf makes an error at the resource's place in the template.
func (r *Resource) Errorf(format string, args ...any) *core.Error {
	return invalid(r.n.path(), r.n.line, r.n.col, format, args...)
}

// Plan evaluates all that is known before anything is made.
func (t *Template) Plan(o Options) (*Plan, error) {
	b := &budget{}
	b.steps.Store(int64(t.limits.Steps))
	b.bytes.Store(int64(t.limits.Bytes))
	return t.plan(o, b, nil)
}

func (t *Template) plan(o Options, b *budget, secure map[string]bool) (*Plan, error) {
	p := &Plan{t: t, options: o, params: map[*parameter]*lazyValue{}, vars: map[string]*lazyValue{}, budget: b, secure: secure,
		index: map[string][]*Resource{}, ids: map[string]*Resource{}, loopNames: map[string]bool{}, extensions: map[string]*Extension{}}
	switch {
	case o.At != "":
		p.at = address(strings.TrimRight(o.At, "/"))
	case !o.Scope.IsZero():
		p.at = address(o.Scope.String())
	}
	return p, p.secrets.Error(p.build())
}

func (p *Plan) build() error {
	if n := utf8.RuneCountInString(p.options.Deployment); n > p.t.limits.DeploymentName {
		return core.Errorf(core.CodeInvalidTemplate, "the name of a deployment has %d characters; the limit is %d", n, p.t.limits.DeploymentName)
	}
	if err := p.readParameters(p.options.Parameters); err != nil {
		return err
	}
	if err := p.readExtensions(); err != nil {
		return err
	}
	e := &evaluator{p: p}
	for _, n := range p.t.resources {
		if err := p.expand(e, n); err != nil {
			return err
		}
	}
	for _, x := range p.Extensions {
		if err := p.readConfig(x); err != nil {
			return err
		}
	}
	for _, r := range p.all {
		if !r.Skipped {
			p.Resources = append(p.Resources, r)
		}
	}
	if err := p.readDeleted(e); err != nil {
		return err
	}
	for _, x := range p.Extensions {
		if len(x.Unknown) > 0 {
			x.deps = p.readBy(e, x.d.config)
		}
	}
	for _, r := range p.Resources {
		if err := p.connect(r); err != nil {
			return err
		}
	}
	if err := p.checkCycles(); err != nil {
		return err
	}
	return p.checkDeleted()
}

// checkDeleted refuses a resource that is deployed and deleted, as far as the
// ids are known; the rest is found when they are.
func (p *Plan) checkDeleted() error {
	if len(p.Deleted) == 0 {
		return nil
	}
	for _, r := range p.Resources {
		if r.Extension == nil || r.Existing {
			continue
		}
		if s, err := r.Extension.Scope(r.Extension.Config); err == nil && s != nil && lookup(r.Extension.Config, "namespace") == nil {
			continue // the scope's target may have the namespace
		}
		if _, _, err := p.ExtensionID(r, nil); err != nil {
			return err
		}
	}
	return nil
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
		case given && raw == Unknown:
			cell.state = cellUnknown
		case given:
			v, err := Import(raw)
			if err != nil {
				return core.Errorf(core.CodeRecipeInvalid, "parameter %q: %w", q.name, err)
			}
			if v == nil && q.def.get("defaultValue") != nil && !q.nullable {
				break // null asks for the default
			}
			cell.state, cell.value, cell.given = cellDone, v, true
		case q.def.get("defaultValue") != nil:
		case q.nullable:
			cell.state = cellDone
		default:
			return core.Errorf(core.CodeRecipeInvalid, "parameter %q (%s) has no value and the template has no default for it", q.name, q.typeName()).
				WithTarget("parameters." + q.name)
		}
	}
	e := &evaluator{p: p, in: inDefault}
	for _, q := range p.t.parameters {
		if p.isSecure(q) {
			p.secrets.Add(Export(p.params[q].value))
		}
		v, err := e.parameter(q.name)
		if p.options.Partial && errors.Is(err, errRuntime) {
			p.params[q].state = cellUnknown // its default needs an unknown one
			continue
		}
		if err != nil {
			return e.locate(q.def, err)
		}
		if p.isSecure(q) {
			p.secrets.Add(Export(v))
		}
		if p.options.Conceal != nil && p.isSecure(q) {
			p.options.Conceal(Export(v))
		}
		if bad := p.t.fit(q.def, v, "parameter "+strconv.Quote(q.name), 0); bad != nil {
			return bad.WithTarget("parameters." + q.name)
		}
		if bad := fitsResource(q, v); bad != nil {
			return bad.WithTarget("parameters." + q.name)
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
	props, err := p.object(e, r.n.get("properties"))
	return props, p.fault(err)
}

func (p *Plan) object(e *evaluator, n *node) (map[string]any, error) {
	if n == nil {
		return map[string]any{}, nil
	}
	v, err := e.node(n, "")
	if err != nil {
		return nil, err
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
