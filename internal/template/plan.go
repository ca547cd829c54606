package template

import (
	"errors"
	"slices"
	"sort"
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
type budget struct{ steps, bytes, resources atomic.Int64 }

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

	n      *node
	loops  []loop
	order  int
	serial []*Resource
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
	}
	return nil
}

// expand adds the resource of a node, once or as often as its loop says.
func (p *Plan) expand(e *evaluator, n *node) error {
	loopNode := n.get("copy")
	if loopNode == nil {
		return p.add(e, n, "", nil)
	}
	if err := loopNode.want("the copy of a resource", kindObject); err != nil {
		return err
	}
	name := loopNode.get("name")
	if name == nil || name.kind != kindString || loopNode.get("count") == nil {
		return loopNode.errorf("a loop has a name (a string) and a count")
	}
	first := len(p.all)
	count, err := e.count(loopNode.get("count"))
	if p.options.Partial && errors.Is(err, errRuntime) {
		l := loop{name: name.text, resource: true, unknown: true}
		if err := p.add(e.with(l), n, "[?]", nil); err != nil {
			return err
		}
		p.all[first].Uncertain = true
	} else if err != nil {
		return e.settled(err)
	}
	for i := range count {
		l := loop{name: name.text, index: i, resource: true}
		if err := p.add(e.with(l), n, "["+strconv.Itoa(i)+"]", nil); err != nil {
			return err
		}
	}
	var members []*Resource
	for _, r := range p.all[first:] {
		if r.n == n {
			members = append(members, r)
		}
	}
	p.loopNames[strings.ToLower(name.text)] = true
	p.register(name.text, members...)
	if p.t.symbolic {
		p.loopNames[strings.ToLower(n.key)] = true
		if !strings.EqualFold(name.text, n.key) {
			p.register(n.key, members...)
		}
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

// add adds one resource, and those inside it.
func (p *Plan) add(e *evaluator, n *node, suffix string, outer *Resource) error {
	if len(p.all) >= p.t.limits.Resources {
		return n.errorf("the template has more than %d resources, its loops expanded", p.t.limits.Resources)
	}
	r := &Resource{n: n, Line: n.line, loops: e.loops, order: len(p.all)}
	p.all = append(p.all, r)
	if outer != nil {
		r.Uncertain = outer.Uncertain && outer.Name == ""
	}
	if c := n.get("condition"); c != nil {
		v, err := e.startOr(c, "a condition")
		if err != nil {
			return err
		}
		switch b := v.(type) {
		case bool:
			r.Skipped = !b
		case missing:
			r.Uncertain = true
		default:
			return c.errorf("a condition must be a bool, it is of type %s", typeName(v))
		}
	}
	if x := n.get("existing"); x != nil {
		v, err := e.start(x, "existing")
		if err != nil {
			return err
		}
		r.Existing = v == true
	}
	if m := n.get("method"); m != nil {
		r.Patch = strings.EqualFold(m.text, "PATCH")
	}
	if err := p.name(e, r, outer); err != nil && !r.Skipped {
		return err // of a skipped resource only what can be known counts
	}
	if p.t.symbolic {
		r.Symbol = n.key + suffix
		p.register(r.Symbol, r)
		if outer != nil {
			p.register(outer.Symbol+"::"+r.Symbol, r)
		}
		if r.ResourceID != "" {
			p.register(r.ResourceID, r)
		}
	} else {
		r.Symbol = r.Type + "/" + r.Name
		if r.Name != "" {
			p.register(r.Name, r)
			p.register(r.Symbol, r)
			if r.ResourceID != "" {
				p.register(r.ResourceID, r)
			}
		}
	}
	for _, l := range n.loopNames {
		p.loopNames[strings.ToLower(l)] = true
		p.register(l, r)
	}
	for _, c := range children(n) {
		if err := p.add(e, c, suffix, r); err != nil {
			return err
		}
	}
	return nil
}

// name reads what a resource is: its type, its name, its id.
func (p *Plan) name(e *evaluator, r *Resource, outer *Resource) error {
	n := r.n
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
	if r.Type == "" && (n.get("type") != nil || n.get("id") == nil) {
		return n.errorf("the type is empty")
	}
	r.Deployment = r.nestedType()
	alias := n.get("import")
	if alias == nil {
		alias = n.get("extension")
	}
	if alias != nil && !p.t.importIndex[strings.ToLower(alias.text)].native() {
		r.Extension = p.extensions[strings.ToLower(alias.text)]
		return p.typeOfID(e, r)
	}
	return p.identify(e, r, outer)
}

// typeOfID takes the type from the id where the template writes only that.
func (p *Plan) typeOfID(e *evaluator, r *Resource) error {
	if r.n.get("type") != nil {
		return nil
	}
	n := r.n.get("id")
	text, err := e.text(n, "the id")
	if err != nil {
		return err
	}
	id, err := ParseExtensionID(text)
	if err != nil {
		return n.errorf("%v", err)
	}
	if !strings.EqualFold(id.Provider, r.Extension.Provider) {
		return n.errorf("the id is of the provider %s, the import %q of %s", id.Provider, r.Extension.Alias, r.Extension.Provider)
	}
	r.Type = id.Get(KeyType)
	if t, v, ok := strings.Cut(r.Type, "@"); ok {
		r.Type, r.APIVersion = t, v
	}
	return nil
}

// identify reads the name of a resource of the control plane, or of ARM.
func (p *Plan) identify(e *evaluator, r *Resource, outer *Resource) error {
	n := r.n.get("name")
	if n == nil && r.Deployment { // LocalNested has it in properties
		if n = r.n.get("properties").get("name"); n == nil {
			r.Name = r.n.key
		}
	}
	if n != nil {
		v, err := e.startOr(n, "the name")
		if err != nil {
			return err
		}
		switch v := v.(type) {
		case string:
			r.Name = v
		case missing:
			r.Uncertain = true
		default:
			return n.errorf("the name must be a string, it is of type %s", typeName(v))
		}
	} else {
		n = r.n
	}
	if outer != nil && outer.Extension == nil {
		// Short type and name; a full type is accepted as it stands.
		if !strings.HasPrefix(strings.ToLower(r.Type), strings.ToLower(outer.Type)+"/") {
			r.Type = outer.Type + "/" + r.Type
		}
		if r.Name != "" && strings.Count(r.Name, "/") < strings.Count(r.Type, "/")-1 {
			r.Name = outer.Name + "/" + r.Name
		}
		if r.APIVersion == "" {
			r.APIVersion = outer.APIVersion
		}
		r.Deployment = false
	}
	at, err := p.resourceAt(e, r)
	if err != nil {
		return err
	}
	r.At = string(at)
	if r.Uncertain && r.Name == "" {
		return nil
	}
	types, names := strings.Split(r.Type, "/"), strings.Split(r.Name, "/")
	if len(types) < 2 || len(names) != len(types)-1 {
		return n.errorf("the type %s needs a name of %d segments, this one has %d", r.Type, len(types)-1, len(names))
	}
	if r.Deployment {
		if c := utf8.RuneCountInString(r.Name); c > p.t.limits.DeploymentName {
			return n.errorf("the name of a deployment has %d characters; the limit is %d", c, p.t.limits.DeploymentName)
		}
	}
	if slices.Contains(names, "") {
		return n.errorf("the name has an empty segment")
	}
	if p.at == "" && p.options.At == "" {
		return nil // no scope: names are all that is known
	}
	r.ResourceID = r.At + "/providers/" + types[0]
	for i, name := range names {
		r.ResourceID += "/" + types[i+1] + "/" + name
	}
	if strings.HasPrefix(strings.ToLower(r.ResourceID), "/planes/") {
		if r.ID, err = core.ParseID(r.ResourceID); err != nil {
			return n.errorf("the name does not make a resource id")
		}
	}
	if r.Skipped || r.Existing {
		return nil
	}
	key := strings.ToLower(r.ResourceID)
	if p.ids[key] != nil {
		return n.errorf("the resource %s stands twice in the template", r.ResourceID)
	}
	p.ids[key] = r
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
			if p.options.Partial && errors.Is(err, errRuntime) {
				continue
			}
			if err != nil {
				return err
			}
			targets := p.find(name)
			if len(targets) == 0 && name != "" && !p.loopNames[strings.ToLower(name)] {
				if p.tainted(n) {
					return n.errorf("dependsOn names what is no resource of this template")
				}
				return n.errorf("dependsOn names %q, which is no resource of this template%s", name, didYouMean(name, p.names()))
			}
			r.DependsOn = append(r.DependsOn, targets...)
		}
	}
	for _, m := range r.n.members {
		switch strings.ToLower(m.key) {
		case "dependson", "copy", "resources", "metadata":
		default:
			r.DependsOn = append(r.DependsOn, p.readBy(e, m)...)
		}
	}
	if r.Extension != nil {
		r.DependsOn = append(r.DependsOn, r.Extension.deps...)
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

// readBy returns the resources that reference(), references() and list… inside
// n name by symbol or by name. A resource named by its id is none of them, as
// long as the call says of which version: it is read as it is at the time.
func (p *Plan) readBy(e *evaluator, n *node) []*Resource {
	if n == nil || n.own {
		return nil
	}
	var found []*Resource
	for _, list := range [][]*node{n.members, n.items} {
		for _, m := range list {
			found = append(found, p.readBy(e, m)...)
		}
	}
	for _, x := range []expression{n.expr, n.keyExpr} {
		if x == nil {
			continue
		}
		_ = walk(x, func(x expression) error {
			c, ok := x.(*call)
			if !ok || c.fn == nil || len(c.args) == 0 {
				return nil
			}
			switch c.fn.name {
			case "reference", "references", "list", "resourceInfo":
			default:
				return nil
			}
			v, err := e.expr(c.args[0])
			if err != nil {
				// The name itself needs a running deployment, a lambda or a
				// property loop: dependsOn has to say it.
				return nil
			}
			name, _ := v.(string)
			if c.fn.name == "resourceInfo" || strings.HasPrefix(name, "/") && len(c.args) > 1 {
				return nil
			}
			found = append(found, p.find(name)...)
			return nil
		})
	}
	return found
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
