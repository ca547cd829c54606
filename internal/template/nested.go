package template

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// Unknown as the value of a parameter says that it is not known yet: what
// depends on it is unknown too. It is for previews.
var Unknown any = unknownValue{}

type unknownValue struct{}

// Link is where a linked template, or the parameters of a deployment, are.
type Link struct {
	// URI is absolute; relative paths are resolved against the parent's.
	URI string
	// ID is that of a stored template, instead of a URI.
	ID string
	// QueryString is added to the URI.
	QueryString string
}

// Nested plans a nested deployment when all that it depends on has been made.
// Its template is evaluated with the parent's values (outer) or with its own
// parameters only (inner, and every linked one). Errors keep their places in
// the document that they stand in.
//
// With rt nil it plans what is known before: see Options.Partial.
func (p *Plan) Nested(r *Resource, rt Runtime) (*Plan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.nested(r, rt)
	if err != nil {
		return nil, p.fault(err)
	}
	return n, nil
}

func (p *Plan) nested(r *Resource, rt Runtime) (*Plan, error) {
	if !r.Deployment || r.Existing {
		return nil, r.Errorf("%s is no nested deployment", r.Symbol)
	}
	if p.t.depth >= p.t.limits.Nested {
		return nil, r.Errorf("deployments nest deeper than %d levels", p.t.limits.Nested)
	}
	e := &evaluator{p: p, loops: r.loops, rt: rt}
	props := r.n.get("properties")
	o := p.options
	o.Parameters, o.ExtensionConfigs, o.ExternalInputs = nil, nil, nil
	o.Deployment = r.Name
	o.Scope, o.At = core.ID{}, r.At
	if o.At == "" && p.options.At == "" && p.options.Scope.IsZero() {
		o.At = "" // a plan without a scope has nested ones without
	} else if o.At == "" {
		o.At = "/"
	}
	o.Partial = rt == nil
	if s := p.options.Surroundings; s != nil && address(r.At).group() != p.at.group() {
		moved := map[string]map[string]any{}
		for k, v := range s {
			if !strings.EqualFold(k, "resourceGroup") {
				moved[k] = v
			}
		}
		o.Surroundings = moved
	}
	if l := r.n.get("location"); l != nil {
		if v, err := e.startRaw(l); err == nil {
			if text, ok := v.(string); ok {
				o.Location = text
			}
		}
	}
	t := p.t.nested[r.n]
	var err error
	if t == nil {
		if t, o.URI, err = p.nestedTemplate(e, r, props); err != nil {
			return nil, err
		}
	}
	if t == nil {
		return nil, &runtimeAt{props, &runtimeError{"the template of " + r.Symbol}}
	}
	inner, err := p.isInnerPlan(r)
	if err != nil {
		return nil, err
	}
	secure := map[string]bool{}
	if inner {
		if o.Parameters, err = p.nestedParameters(e, t, r, props, secure); err != nil {
			return nil, err
		}
	} else if ps := props.get("parameters"); ps != nil && len(ps.members) > 0 {
		return nil, ps.errorf("a deployment whose expressions are the parent's has no parameters: set expressionEvaluationOptions.scope to inner")
	}
	if o.ExtensionConfigs, err = p.nestedConfigs(e, props.get("extensionConfigs")); err != nil {
		return nil, err
	}
	if o.Nest != nil {
		o.Nest(r, &o)
	}
	return t.plan(o, p.budget, secure)
}

// isInnerPlan: parameters are for inner deployments, linked ones and those of
// LocalNested.
func (p *Plan) isInnerPlan(r *Resource) (bool, error) {
	if p.t.nested[r.n] != nil || r.n.get("properties").get("templateLink") != nil {
		return true, nil
	}
	for _, name := range []string{"import", "extension"} {
		if r.n.get(name) != nil {
			return true, nil
		}
	}
	return false, nil
}

// nestedTemplate loads a linked template, or makes the one that the parent's
// values give; nil when it is not known yet.
func (p *Plan) nestedTemplate(e *evaluator, r *Resource, props *node) (*Template, string, error) {
	if link := props.get("templateLink"); link != nil {
		l, err := p.link(e, link)
		if err != nil {
			return nil, "", err
		}
		if p.options.Link == nil {
			return nil, "", link.errorf("linked templates cannot be fetched here: put the template itself into properties.template")
		}
		text, err := p.options.Link(l)
		if err != nil {
			return nil, "", err
		}
		root, err := parseJSON(string(text), p.t.limits)
		if err != nil {
			return nil, "", core.Errorf(core.CodeInvalidTemplate, "the linked template %s: %w", l.name(), err)
		}
		t, err := load(root, p.t.limits, p.t.depth+1)
		if err != nil {
			return nil, "", core.Errorf(core.CodeInvalidTemplate, "the linked template %s: %w", l.name(), err)
		}
		want, err := e.text(link.get("contentVersion"), "contentVersion")
		if err == nil && want != "" && want != t.version {
			err = link.get("contentVersion").errorf("the linked template %s has another contentVersion than the link asks for", l.name())
		}
		return t, l.URI, err
	}
	body := props.get("template")
	made, err := e.instantiate(body, nil)
	if err != nil {
		return nil, "", err
	}
	if made.unknown {
		return nil, "", nil
	}
	made.parent, made.key, made.at = props, body.key, body.at
	t, err := load(made, p.t.limits, p.t.depth+1)
	return t, p.options.URI, err
}

func (l Link) name() string {
	if l.ID != "" {
		return l.ID
	}
	return l.URI
}

// link evaluates a templateLink or parametersLink.
func (p *Plan) link(e *evaluator, n *node) (Link, error) {
	var l Link
	var relative string
	for name, to := range map[string]*string{"uri": &l.URI, "id": &l.ID, "queryString": &l.QueryString, "relativePath": &relative} {
		m := n.get(name)
		if m == nil {
			continue
		}
		v, err := e.node(m, "")
		if err != nil {
			return l, err
		}
		text, ok := v.(string)
		if !ok {
			return l, m.errorf("%s of a link must be a string, it is of type %s", name, typeName(v))
		}
		*to = text
	}
	switch {
	case l.URI == "" && l.ID == "" && relative == "":
		return l, n.errorf("a link has uri, id or relativePath")
	case relative != "":
		base, err := url.Parse(p.options.URI)
		if err != nil || !base.IsAbs() {
			return l, n.errorf("relativePath needs a parent that was fetched from a URI itself")
		}
		ref, err := url.Parse(relative)
		if err != nil {
			return l, n.errorf("relativePath is not a path")
		}
		l.URI = base.ResolveReference(ref).String()
	}
	return l, nil
}

// nestedParameters evaluates the values that the parent passes.
func (p *Plan) nestedParameters(e *evaluator, t *Template, r *Resource, props *node, secure map[string]bool) (map[string]any, error) {
	values := map[string]any{}
	if link := props.get("parametersLink"); link != nil {
		l, err := p.link(e, link)
		if err != nil {
			return nil, err
		}
		if p.options.Link == nil {
			return nil, link.errorf("linked parameters cannot be fetched here: put them into properties.parameters")
		}
		text, err := p.options.Link(l)
		if err != nil {
			return nil, err
		}
		f, err := ParseParameters(text)
		if err != nil {
			return nil, err
		}
		if values, _, err = f.Values(ParameterSources{Secret: p.options.Secret}); err != nil {
			return nil, err
		}
	}
	ps := props.get("parameters")
	if ps == nil {
		return values, nil
	}
	if ps.kind == kindString && ps.expr != nil {
		return p.wholeParameters(e, t, ps, values, secure)
	}
	if err := ps.want("the parameters of a deployment", kindObject); err != nil {
		return nil, err
	}
	for _, m := range ps.members {
		if isCopyList(m) {
			return nil, m.errorf("the parameters of a deployment have no copy")
		}
		q := t.paramIndex[strings.ToLower(m.key)]
		if q == nil {
			var names []string
			for _, q := range t.parameters {
				names = append(names, q.name)
			}
			return nil, m.errorf("the template of %s has no parameter %q%s (it declares: %s)", r.Symbol, m.key, didYouMean(m.key, names), listOr(names, "none"))
		}
		v, err := p.passed(e, m)
		switch {
		case err != nil && e.rt == nil && errors.Is(err, errRuntime):
			v = Unknown
		case err != nil:
			return nil, err
		}
		values[m.key] = v
		if p.tainted(m) || m.get("reference") != nil {
			secure[strings.ToLower(m.key)] = true
		}
	}
	return values, nil
}

// passed evaluates one parameter: {"value"}, {"reference"}, or an expression
// that answers one of them.
func (p *Plan) passed(e *evaluator, m *node) (any, error) {
	if m.kind == kindObject {
		if v := m.get("value"); v != nil {
			return e.node(v, "")
		}
	}
	v, err := e.node(m, "")
	if err != nil {
		return nil, err
	}
	o, ok := v.(*Object)
	if ok {
		if inner, has := o.Get("value"); has {
			return inner, nil
		}
		if ref, has := o.Get("reference"); has {
			if e.rt == nil && p.options.Secret == nil {
				return Unknown, nil
			}
			return p.secret(ref, m.path())
		}
	}
	return nil, m.errorf("a parameter of a deployment is an object with value or reference")
}

func (p *Plan) wholeParameters(e *evaluator, t *Template, ps *node, values map[string]any, secure map[string]bool) (map[string]any, error) {
	v, err := e.node(ps, "")
	if err != nil && e.rt == nil && errors.Is(err, errRuntime) {
		for _, q := range t.parameters {
			values[q.name] = Unknown
		}
		return values, nil
	}
	if err != nil {
		return nil, err
	}
	o, ok := v.(*Object)
	if !ok {
		return nil, ps.errorf("the parameters of a deployment must be an object, they are of type %s", typeName(v))
	}
	for _, k := range o.Keys() {
		entry, _ := o.values[k].(*Object)
		if entry == nil {
			return nil, ps.errorf("a parameter of a deployment is an object with value or reference")
		}
		inner, has := entry.Get("value")
		if ref, is := entry.Get("reference"); is && !has {
			if inner, err = p.secret(ref, ps.path()+"."+k); err != nil {
				return nil, err
			}
			secure[strings.ToLower(k)] = true
		}
		values[k] = inner
		secure[strings.ToLower(k)] = secure[strings.ToLower(k)] || p.tainted(ps)
	}
	return values, nil
}

// nestedConfigs evaluates extensionConfigs: an object by alias, each an
// object of entries or an expression that answers one, such as
// extensions('k8s').config.
func (p *Plan) nestedConfigs(e *evaluator, n *node) (map[string]map[string]any, error) {
	if n == nil {
		return nil, nil
	}
	if err := n.want("extensionConfigs", kindObject); err != nil {
		return nil, err
	}
	out := map[string]map[string]any{}
	for _, m := range n.members {
		v, err := e.node(m, "")
		if e.rt == nil && errors.Is(err, errRuntime) {
			continue // not known yet
		}
		if err != nil {
			return nil, err
		}
		o, ok := v.(*Object)
		if !ok {
			return nil, m.errorf("the configuration of an extension must be an object, it is of type %s", typeName(v))
		}
		config := Export(o).(map[string]any)
		for k, entry := range config {
			given, ok := entry.(map[string]any)
			if !ok {
				return nil, m.errorf("the entry %q must be an object with value or keyVaultReference", k)
			}
			if c := m.get(k); c != nil && p.tainted(c) || m.kind == kindString && p.tainted(m) {
				given["secure"] = true
			}
		}
		out[m.key] = config
	}
	return out, nil
}

// instantiate evaluates the template of an outer deployment with the parent's
// values. What it makes stands at the places of what it was made of, so errors
// keep their lines. A loop inside is expanded here, since its index and the
// parent's values meet in the same expressions.
func (e *evaluator) instantiate(n *node, outer *node) (*node, error) {
	if err := e.step(1); err != nil {
		return nil, err
	}
	if n.own {
		return n.clone(), nil
	}
	c := &node{kind: n.kind, line: n.line, col: n.col, key: n.key, at: n.at, value: n.value, text: n.text, size: n.size}
	if strings.HasPrefix(c.key, "[[") {
		c.key, _ = isExpression(c.key)
	}
	switch n.kind {
	case kindString:
		if n.expr == nil {
			c.text = n.literal // [[x] becomes [x]: an expression of the nested template
			return c, nil
		}
		v, err := e.node(n, "")
		if err != nil {
			if e.rt == nil && errors.Is(err, errRuntime) {
				c.unknown = true
				return c, nil
			}
			return nil, err
		}
		return c, c.become(v, true)
	case kindArray:
		for _, m := range n.items {
			if err := e.instance(c, m, n); err != nil {
				return nil, err
			}
		}
	case kindObject:
		c.index = map[string]*node{}
		for _, m := range n.members {
			if err := e.instance(c, m, n); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// instance adds what m becomes to c.
func (e *evaluator) instance(c, m, from *node) error {
	if isCopyList(m) && !isResourceLoop(m) {
		for _, l := range m.items {
			v, err := e.copyList(l, "")
			if err != nil {
				return err
			}
			made := &node{line: l.line, col: l.col, key: l.get("name").text}
			if err := made.become(v, true); err != nil {
				return err
			}
			c.adopt(made)
		}
		return nil
	}
	loopNode := m.get("copy")
	if m.kind != kindObject || loopNode == nil || loopNode.kind != kindObject || m.get("type") == nil || loopNode.get("name") == nil || loopNode.get("count") == nil {
		made, err := e.instantiate(m, nil)
		if err != nil {
			return err
		}
		if m.keyExpr != nil {
			v, err := e.expr(m.keyExpr)
			if err != nil {
				return e.locate(m, err)
			}
			key, ok := v.(string)
			if !ok {
				return m.errorf("the name of a member must be a string, it is of type %s", typeName(v))
			}
			made.key = key
		}
		c.adopt(made)
		return nil
	}
	count, err := e.count(loopNode.get("count"))
	if err != nil {
		return err
	}
	for i := range count {
		inner := e.with(loop{name: loopNode.get("name").text, index: i, resource: true})
		made := &node{kind: kindObject, line: m.line, col: m.col, key: m.key, size: m.size, index: map[string]*node{}, loopNames: []string{loopNode.get("name").text}}
		for _, mm := range m.members {
			if mm == loopNode {
				continue
			}
			if err := inner.instance(made, mm, m); err != nil {
				return err
			}
		}
		if from.kind == kindObject {
			made.loopNames = append(made.loopNames, m.key)
			made.key = m.key + "[" + strconv.Itoa(i) + "]"
		}
		c.adopt(made)
	}
	return nil
}

// isResourceLoop: a list named copy that is none of properties or variables.
func isResourceLoop(m *node) bool { return m.parent != nil && m.parent.resource }

func (n *node) adopt(m *node) {
	m.parent = n
	if n.kind == kindArray {
		m.at = len(n.items)
		n.items = append(n.items, m)
		return
	}
	if lower := strings.ToLower(m.key); n.index[lower] == nil {
		n.index[lower] = m
	}
	n.members = append(n.members, m)
}

// become gives a node an evaluated value; text in it is literal. top says that
// a string of an expression may be an expression of the nested template again,
// which it is not: ARM escapes what was computed.
func (n *node) become(v any, top bool) error {
	switch v := v.(type) {
	case *Object:
		n.kind, n.index = kindObject, map[string]*node{}
		for _, k := range v.Keys() {
			m := &node{line: n.line, col: n.col, key: k}
			if err := m.become(v.values[k], false); err != nil {
				return err
			}
			n.adopt(m)
		}
	case []any:
		n.kind = kindArray
		for _, x := range v {
			m := &node{line: n.line, col: n.col}
			if err := m.become(x, false); err != nil {
				return err
			}
			n.adopt(m)
		}
	case string:
		n.kind, n.text = kindString, v
		if _, is := isExpression(v); is || strings.HasPrefix(v, "[[") && strings.HasSuffix(v, "]") {
			n.text = "[" + v
		}
	case nil:
		n.kind, n.value, n.text = kindNull, nil, ""
	case bool:
		n.kind, n.value, n.text = kindBool, v, ""
	default:
		n.kind, n.value, n.text = kindNumber, v, ""
	}
	return nil
}

// clone copies a node as it stands, not evaluated.
func (n *node) clone() *node {
	c := &node{kind: n.kind, line: n.line, col: n.col, key: n.key, at: n.at, value: n.value, text: n.text, size: n.size}
	if n.kind == kindObject {
		c.index = map[string]*node{}
	}
	for _, list := range [][]*node{n.members, n.items} {
		for _, m := range list {
			c.adopt(m.clone())
		}
	}
	return c
}

// markOwn marks, inside the template of an outer deployment, those of inner
// ones: the parent's values do not reach them.
func markOwn(body *node) {
	list := body.get("resources")
	if list == nil {
		return
	}
	for _, r := range append(list.items[:len(list.items):len(list.items)], list.members...) {
		if !isDeployment(r.get("type")) {
			continue
		}
		props := r.get("properties")
		inner := props.get("template")
		scope := props.get("expressionEvaluationOptions").get("scope")
		if inner == nil {
			continue
		}
		if scope != nil && strings.EqualFold(scope.text, "inner") {
			inner.own = true
		} else {
			markOwn(inner)
		}
	}
}
