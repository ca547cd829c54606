package template

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// Limits bound what a template may cost. The counts of the document are those
// of the ARM service; the rest keeps one evaluation within a few tens of MiB.
type Limits struct {
	TextBytes        int // of the template, and of a parameters file
	ResourceBytes    int // of one resource's definition
	Nodes            int // JSON values in it
	Depth            int // nesting of JSON, of expressions and of calls
	ExpressionLength int // characters
	Parameters       int
	Variables        int
	Resources        int // loops expanded
	Outputs          int
	CopyCount        int
	Nested           int // deployments inside each other
	DeploymentName   int // characters
	Steps            int // calls and values of one plan, its properties, outputs and nested deployments
	Bytes            int // text and elements made by functions, likewise
}

// DefaultLimits are the limits of [Parse].
func DefaultLimits() Limits {
	return Limits{
		TextBytes: 4 << 20, ResourceBytes: 1 << 20, Nodes: 300_000, Depth: 120, ExpressionLength: 24_576,
		Parameters: 256, Variables: 512, Resources: 800, Outputs: 64, CopyCount: 800,
		Nested: 16, DeploymentName: 64, Steps: 3_000_000, Bytes: 32 << 20,
	}
}

// Level is what a template is deployed to, by its $schema.
type Level string

// The levels; a group is a resource group of any plane.
const (
	LevelGroup           Level = "resourceGroup"
	LevelSubscription    Level = "subscription"
	LevelManagementGroup Level = "managementGroup"
	LevelTenant          Level = "tenant"
)

// Template is a parsed template. It is immutable and safe for concurrent use.
type Template struct {
	limits      Limits
	level       Level
	version     string // contentVersion
	symbolic    bool   // resources are an object keyed by symbolic names
	root        *node
	parameters  []*parameter
	paramIndex  map[string]*parameter
	variables   map[string]*node
	functions   map[string]*userFunction
	definitions *node
	imports     []*importDecl
	importIndex map[string]*importDecl
	resources   []*node
	deleted     []*node
	outputs     []*node
	asserts     []*node
	// nested are the templates of inner deployments, by their resource.
	nested map[*node]*Template
	depth  int // of nesting
}

// Level returns what the template is deployed to.
func (t *Template) Level() Level { return t.level }

// ContentVersion returns the template's own version.
func (t *Template) ContentVersion() string { return t.version }

// userFunction is one entry of functions[].members.
type userFunction struct {
	name       string // namespace.name
	parameters []*parameter
	output     *node
	outputType *node
}

// Versions of the language, and which form of resources they have.
var languageVersions = map[string]bool{
	"": false, "1.0": false, "2.0": true,
	"1.9-experimental": true, "1.10-experimental": true,
	"2.1-experimental": true, "2.2-experimental": true,
}

// schemas leads from the end of a schema's address to the level.
var schemas = map[string]Level{
	"deploymenttemplate.json":                LevelGroup,
	"subscriptiondeploymenttemplate.json":    LevelSubscription,
	"managementgroupdeploymenttemplate.json": LevelManagementGroup,
	"tenantdeploymenttemplate.json":          LevelTenant,
}

var topMembers = []string{
	"$schema", "contentVersion", "languageVersion", "apiProfile", "metadata", "definitions", "parameters",
	"functions", "variables", "imports", "extensions", "resources", "deletedResources", "outputs", "asserts",
}

// Parse reads a template and checks all that can be checked without values:
// JSON, the shape of the document, the syntax of every expression, the names
// and the number of arguments of functions, the names of parameters and
// variables.
func Parse(text []byte) (*Template, error) { return ParseWith(text, DefaultLimits()) }

// ParseWith is Parse with other limits.
func ParseWith(text []byte, limits Limits) (*Template, error) {
	if len(text) > limits.TextBytes {
		return nil, core.Errorf(core.CodeInvalidTemplate, "the template has %d bytes; the limit is %d", len(text), limits.TextBytes)
	}
	root, err := parseJSON(string(text), limits)
	if err != nil {
		return nil, err
	}
	return load(root, limits, 0)
}

// load checks a document; depth counts the deployments around it.
func load(root *node, limits Limits, depth int) (*Template, error) {
	if depth > limits.Nested {
		return nil, root.errorf("deployments nest deeper than %d levels", limits.Nested)
	}
	t := &Template{limits: limits, root: root, depth: depth, paramIndex: map[string]*parameter{}, variables: map[string]*node{},
		functions: map[string]*userFunction{}, importIndex: map[string]*importDecl{}, nested: map[*node]*Template{}}
	for _, step := range []func(*node) error{
		t.readTop, t.readParameters, t.readVariables, t.readFunctions, t.readImports, t.readResources, t.readDeleted,
		t.readOutputs, t.readAsserts, t.bindAll,
	} {
		if err := step(root); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *Template) readTop(root *node) error {
	if err := root.want("a template", kindObject); err != nil {
		return err
	}
	for _, m := range root.members {
		known := false
		for _, name := range topMembers {
			known = known || strings.EqualFold(name, m.key)
		}
		if !known {
			return m.errorf("a template has no member %q%s", m.key, didYouMean(m.key, topMembers))
		}
	}
	for _, name := range []string{"contentVersion", "resources"} {
		if root.get(name) == nil {
			return root.errorf("the member %q is missing", name)
		}
	}
	if err := root.get("contentVersion").want("contentVersion", kindString); err != nil {
		return err
	}
	t.version = root.get("contentVersion").text
	t.level = LevelGroup
	if s := root.get("$schema"); s != nil {
		if err := s.want("$schema", kindString); err != nil {
			return err
		}
		name := strings.ToLower(strings.TrimSuffix(s.text, "#"))
		level, ok := schemas[name[strings.LastIndex(name, "/")+1:]]
		if !ok {
			return s.errorf("the schema %q is not that of a template (…/deploymentTemplate.json#, or that of a subscription, management group or tenant)", s.text)
		}
		t.level = level
	}
	version := ""
	if v := root.get("languageVersion"); v != nil {
		if err := v.want("languageVersion", kindString); err != nil {
			return err
		}
		version = v.text
	}
	symbolic, ok := languageVersions[version]
	if !ok {
		return root.get("languageVersion").errorf("the language version %q is not supported (1.0, 2.0, 2.1-experimental and 2.2-experimental are)", version)
	}
	t.symbolic = symbolic
	if d := root.get("definitions"); d != nil {
		t.definitions = d
		if err := d.want("definitions", kindObject); err != nil {
			return err
		}
		for _, m := range d.members {
			if err := t.checkType(m, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Template) readVariables(root *node) error {
	vars := root.get("variables")
	if vars == nil {
		return nil
	}
	if err := vars.want("variables", kindObject); err != nil {
		return err
	}
	add := func(name string, n *node) error {
		key := strings.ToLower(name)
		if t.variables[key] != nil {
			return n.errorf("the variable %q stands twice: names of variables do not differ by case", name)
		}
		t.variables[key] = n
		return nil
	}
	for _, m := range vars.members {
		if isCopyList(m) {
			for _, c := range m.items {
				if err := add(c.get("name").text, c); err != nil {
					return err
				}
			}
			continue
		}
		if err := add(m.key, m); err != nil {
			return err
		}
	}
	if n := len(t.variables); n > t.limits.Variables {
		return vars.errorf("%d variables; the limit is %d", n, t.limits.Variables)
	}
	return nil
}

// isCopyList reports whether a member is the copy of properties or variables:
// "copy": [{"name", "count", "input"}, …].
func isCopyList(m *node) bool {
	if !strings.EqualFold(m.key, "copy") || m.kind != kindArray || len(m.items) == 0 {
		return false
	}
	for _, c := range m.items {
		if name := c.get("name"); name == nil || name.kind != kindString || c.get("count") == nil || c.get("input") == nil {
			return false
		}
	}
	return true
}

func (t *Template) readFunctions(root *node) error {
	fns := root.get("functions")
	if fns == nil {
		return nil
	}
	if err := fns.want("functions", kindArray); err != nil {
		return err
	}
	for _, ns := range fns.items {
		name, members := ns.get("namespace"), ns.get("members")
		if name == nil || name.kind != kindString || members == nil || members.kind != kindObject {
			return ns.errorf("an entry of functions has a namespace (a string) and members (an object)")
		}
		for _, m := range members.members {
			f := &userFunction{name: name.text + "." + m.key}
			if ps := m.get("parameters"); ps != nil {
				if err := ps.want("the parameters of a function", kindArray); err != nil {
					return err
				}
				for _, p := range ps.items {
					pn := p.get("name")
					if pn == nil || pn.kind != kindString {
						return p.errorf("a parameter of a function has a name")
					}
					f.parameters = append(f.parameters, &parameter{name: pn.text, def: p})
				}
			}
			f.outputType = m.get("output")
			if f.output = f.outputType.get("value"); f.output == nil {
				return m.errorf("the function %q has no output.value", f.name)
			}
			key := strings.ToLower(f.name)
			if t.functions[key] != nil {
				return m.errorf("the function %q is defined twice", f.name)
			}
			t.functions[key] = f
		}
	}
	return nil
}

// listOr joins names, or answers none.
func listOr(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}

func (t *Template) readOutputs(root *node) error {
	outs := root.get("outputs")
	if outs == nil {
		return nil
	}
	if err := outs.want("outputs", kindObject); err != nil {
		return err
	}
	if len(outs.members) > t.limits.Outputs {
		return outs.errorf("%d outputs; the limit is %d", len(outs.members), t.limits.Outputs)
	}
	for _, o := range outs.members {
		if err := o.want("an output", kindObject); err != nil {
			return err
		}
		if o.get("value") == nil && o.get("copy") == nil {
			return o.errorf("the output has neither value nor copy")
		}
		if typ := o.get("type"); o.get("$ref") == nil && (typ == nil || typ.kind != kindString) {
			return o.errorf("the output has no type")
		}
	}
	t.outputs = outs.members
	return nil
}

// readAsserts reads the experimental asserts: names and conditions.
func (t *Template) readAsserts(root *node) error {
	list := root.get("asserts")
	if list == nil {
		return nil
	}
	t.asserts = list.members
	return list.want("asserts", kindObject)
}

// bindAll compiles every text that may be an expression.
func (t *Template) bindAll(root *node) error {
	for _, p := range t.parameters {
		if err := t.bind(p.def.get("defaultValue")); err != nil {
			return err
		}
	}
	for _, name := range []string{"variables", "imports", "extensions", "resources", "deletedResources", "outputs", "asserts"} {
		if err := t.bind(root.get(name)); err != nil {
			return err
		}
	}
	for _, f := range t.functions {
		if err := t.bind(f.output); err != nil {
			return err
		}
	}
	return nil
}

func (t *Template) bind(n *node) error {
	if n == nil || n.own {
		return nil
	}
	for _, m := range n.items {
		if err := t.bind(m); err != nil {
			return err
		}
	}
	for _, m := range n.members {
		if _, is := isExpression(m.key); is {
			e, err := t.compile(m.key)
			if err != nil {
				return m.locate(err)
			}
			m.keyExpr = e
		}
		if strings.EqualFold(m.key, "metadata") && m.parent.parent != nil && (m.parent.parent.key == "outputs" || m.parent.resource) {
			continue // for people: nothing evaluates it
		}
		if err := t.bind(m); err != nil {
			return err
		}
	}
	if n.kind != kindString {
		return nil
	}
	literal, is := isExpression(n.text)
	if !is {
		n.literal = literal
		return nil
	}
	e, err := t.compile(n.text)
	if err != nil {
		return n.locate(err)
	}
	n.expr = e
	return nil
}

// compile parses a text and binds the functions, parameters and variables that
// it names.
func (t *Template) compile(text string) (expression, error) {
	e, err := parseExpression(text, t.limits)
	if err != nil {
		return nil, err
	}
	return e, walk(e, func(e expression) error {
		c, ok := e.(*call)
		if !ok {
			return nil
		}
		if c.namespace != "" && !strings.EqualFold(c.namespace, "sys") && !strings.EqualFold(c.namespace, "az") {
			return t.bindUser(c)
		}
		if err := bindBuiltin(c); err != nil {
			return err
		}
		if arg, ok := constant(c, 0); ok && c.fn.name == "variables" && t.variables[strings.ToLower(arg)] == nil {
			var names []string
			for _, v := range t.variables {
				names = append(names, v.key)
			}
			return exprErrorf(c.off, "there is no variable %q%s", arg, didYouMean(arg, names))
		}
		return nil
	})
}

func (t *Template) bindUser(c *call) error {
	name := c.namespace + "." + c.name
	f := t.functions[strings.ToLower(name)]
	if f == nil {
		var names []string
		for _, f := range t.functions {
			names = append(names, f.name)
		}
		return exprErrorf(c.off, "there is no function %s%s", name, didYouMean(name, names))
	}
	if len(c.args) != len(f.parameters) {
		return exprErrorf(c.off, "%s takes %d arguments, here are %d", name, len(f.parameters), len(c.args))
	}
	c.user = f
	return nil
}

func bindBuiltin(c *call) error {
	f := builtin(c.name)
	if f == nil {
		return exprErrorf(c.off, "there is no function %s%s", c.name, didYouMean(c.name, builtinNames()))
	}
	if n := len(c.args); n < f.min || f.max >= 0 && n > f.max {
		want := fmt.Sprintf("%d", f.min)
		switch {
		case f.max < 0:
			want = fmt.Sprintf("at least %d", f.min)
		case f.max != f.min:
			want = fmt.Sprintf("%d to %d", f.min, f.max)
		}
		return exprErrorf(c.off, "%s takes %s arguments, here are %d", f.name, want, n)
	}
	c.fn = f
	return nil
}

// constant returns an argument that is a string literal.
func constant(c *call, i int) (string, bool) {
	if i >= len(c.args) {
		return "", false
	}
	s, ok := c.args[i].(*stringLiteral)
	if !ok {
		return "", false
	}
	return s.value, true
}

// Parameters describes the declared parameters in their order.
func (t *Template) Parameters() []Parameter {
	ps := make([]Parameter, len(t.parameters))
	for i, p := range t.parameters {
		raw, _ := json.Marshal(p.def.raw()) // made of parsed JSON: it has one
		ps[i] = Parameter{Name: p.name, Type: p.typeName(), Required: !p.optional(), Secure: p.secure() || t.secureType(p.def), Definition: raw}
	}
	return ps
}

// Declares reports whether the template has a parameter of that name.
func (t *Template) Declares(name string) bool { return t.paramIndex[strings.ToLower(name)] != nil }
