package template

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
)

// Body evaluates all of a resource that goes to its provider, when all that it
// depends on has been made: location, tags, sku, properties and the like. Of a
// resource of an import it is properties alone. The map is the caller's.
func (p *Plan) Body(r *Resource, rt Runtime) (map[string]any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, err := p.body(&evaluator{p: p, loops: r.loops, rt: rt}, r)
	return body, p.fault(err)
}

// KnownBody is Body as far as it is known before the deployment. unknown are
// the JSON pointers of what is not.
func (p *Plan) KnownBody(r *Resource) (body map[string]any, unknown []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	unknown = []string{}
	body, err = p.body(&evaluator{p: p, loops: r.loops, unknown: &unknown}, r)
	return body, unknown, p.fault(err)
}

func (p *Plan) body(e *evaluator, r *Resource) (map[string]any, error) {
	body := map[string]any{}
	for _, m := range r.n.members {
		if resourceMembers[strings.ToLower(m.key)] {
			continue
		}
		v, err := e.node(m, e.join("", m.key))
		if err != nil {
			return nil, err
		}
		if _, gone := v.(missing); !gone {
			body[m.key] = Export(v)
		}
	}
	return body, nil
}

// fault makes an error presentable: errRuntime, where nobody waits for it, gets
// its place, and what secure parameters hold is taken out.
func (p *Plan) fault(err error) error {
	var at *runtimeAt
	if errors.As(err, &at) {
		e := core.AsError(at.n.errorf("%v", at.err))
		err = core.Errorf(e.Code, "%w", &needsRuntime{e.Message}).WithTarget(e.Target)
	}
	return p.secrets.Error(err)
}

// Output is the value of one output.
type Output struct {
	Name  string
	Type  string
	Value any
	// Secure outputs are secrets.
	Secure bool
}

// OutputsValue is what reference() of a nested deployment answers as its
// outputs: {name: {type, value}}, secure ones without value. secure gives them
// their values, for listOutputsWithSecureValues: {name: value}.
func OutputsValue(outs []Output) (public, secure map[string]any) {
	public, secure = map[string]any{}, map[string]any{}
	for _, o := range outs {
		entry := map[string]any{"type": o.Type}
		if o.Secure {
			secure[o.Name] = o.Value
		} else {
			entry["value"] = o.Value
		}
		public[o.Name] = entry
	}
	return public, secure
}

// Outputs evaluates the outputs, in the order of the template, those with a
// false condition left out.
func (p *Plan) Outputs(rt Runtime) ([]Output, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	outs, _, err := p.outputs(&evaluator{p: p, rt: rt})
	return outs, p.fault(err)
}

// KnownOutputs evaluates the outputs as far as they are known before the
// deployment; unknown are the names of the others.
func (p *Plan) KnownOutputs() (outs []Output, unknown []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	outs, unknown, err = p.outputs(&evaluator{p: p, unknown: &[]string{}})
	return outs, unknown, p.fault(err)
}

func (p *Plan) outputs(e *evaluator) (outs []Output, unknown []string, err error) {
	for _, n := range p.t.outputs {
		holds, err := p.holds(e, n.get("condition"))
		if err == nil && !holds {
			continue
		}
		var v any
		if err == nil {
			v, err = p.output(e, n)
		}
		if _, gone := v.(missing); gone || e.unknown != nil && (len(*e.unknown) > 0 || errors.Is(err, errRuntime)) {
			*e.unknown = nil
			unknown = append(unknown, n.key)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		q := &parameter{name: n.key, def: n}
		secure := q.secure() || p.t.secureType(n)
		if bad := p.t.fit(n, v, "output "+strconv.Quote(n.key), 0); bad != nil {
			return nil, nil, n.errorf("%s", bad.Message)
		}
		outs = append(outs, Output{Name: n.key, Type: q.typeName(), Value: Export(v), Secure: secure})
	}
	return outs, unknown, nil
}

// holds evaluates a condition; without one it is true.
func (p *Plan) holds(e *evaluator, c *node) (bool, error) {
	if c == nil {
		return true, nil
	}
	v, err := e.node(c, "")
	if err != nil {
		return false, err
	}
	if _, gone := v.(missing); gone {
		return true, nil
	}
	b, ok := v.(bool)
	if !ok {
		return false, c.errorf("a condition must be a bool, it is of type %s", typeName(v))
	}
	return b, nil
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
		if _, gone := v.(missing); gone {
			v = nil
		}
		list = append(list, v)
	}
	return list, nil
}

// Assertion is one assert of the template or of a resource.
type Assertion struct {
	// Name of the assert, and the symbol of the resource that it is of, "" for
	// the template.
	Name, Resource string
	Holds          bool
}

// Asserts evaluates the asserts of the template and its resources.
func (p *Plan) Asserts(rt Runtime) ([]Assertion, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Assertion
	each := func(e *evaluator, list []*node, of string) error {
		for _, n := range list {
			v, err := e.node(n, "")
			if err != nil {
				return p.fault(err)
			}
			b, ok := v.(bool)
			if !ok {
				return n.errorf("an assert must be a bool, it is of type %s", typeName(v))
			}
			out = append(out, Assertion{n.key, of, b})
		}
		return nil
	}
	if err := each(&evaluator{p: p, rt: rt}, p.t.asserts, ""); err != nil {
		return nil, err
	}
	for _, r := range p.Resources {
		if a := r.n.get("asserts"); a != nil {
			if err := each(&evaluator{p: p, rt: rt, loops: r.loops}, a.members, r.Symbol); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// ResourceOptions are a resource's @options.
type ResourceOptions struct {
	// OnlyIfNotExists leaves a resource that exists as it is.
	OnlyIfNotExists bool
	// RetryOn are the codes of errors after which the resource is tried again,
	// RetryCount times at most.
	RetryOn    []string
	RetryCount int
	// WaitUntil says that the resource is done when [Plan.Ready] answers true,
	// within MaxWait (0: the engine's own bound).
	WaitUntil bool
	MaxWait   time.Duration

	until expression
	n     *node
}

// Options reads a resource's @options. Each is a list of arguments, as
// compilers write them, or an object.
func (p *Plan) Options(r *Resource) (ResourceOptions, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var o ResourceOptions
	list := r.n.get("@options")
	if list == nil {
		return o, nil
	}
	if err := list.want("@options", kindObject); err != nil {
		return o, err
	}
	e := &evaluator{p: p, loops: r.loops}
	for _, m := range list.members {
		args := m.items
		if m.kind == kindObject {
			args = m.members
		}
		var err error
		switch strings.ToLower(m.key) {
		case "onlyifnotexists":
			o.OnlyIfNotExists = m.kind != kindBool || m.value == true
		case "retryon":
			err = e.retryOption(&o, m, args)
		case "waituntil":
			err = e.waitOption(&o, m, args)
		default:
			err = m.errorf("a resource has no option %q (onlyIfNotExists, retryOn, waitUntil)", m.key)
		}
		if err != nil {
			return o, p.fault(err)
		}
	}
	return o, nil
}

func (e *evaluator) retryOption(o *ResourceOptions, m *node, args []*node) error {
	if len(args) == 0 {
		return m.errorf("retryOn has a list of codes")
	}
	o.RetryCount = 1
	for _, a := range args {
		v, err := e.start(a, "retryOn")
		if err != nil {
			return err
		}
		switch v := v.(type) {
		case int64:
			if v < 0 || v > 100 {
				return a.errorf("the count of retryOn is from 0 to 100")
			}
			o.RetryCount = int(v)
		case []any:
			for _, c := range v {
				code, ok := c.(string)
				if !ok {
					return a.errorf("the codes of retryOn are strings")
				}
				o.RetryOn = append(o.RetryOn, code)
			}
		default:
			return a.errorf("retryOn has a list of codes and a count")
		}
	}
	return nil
}

func (e *evaluator) waitOption(o *ResourceOptions, m *node, args []*node) error {
	for _, a := range args {
		if c, ok := a.expr.(*call); ok && c.fn != nil && c.fn.name == "lambda" {
			o.WaitUntil, o.until, o.n = true, c, a
			continue
		}
		v, err := e.start(a, "waitUntil")
		if err != nil {
			return err
		}
		text, _ := v.(string)
		d, ok := parseDuration(text)
		if !ok {
			return a.errorf("waitUntil has a lambda and a duration such as PT10M")
		}
		start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		o.MaxWait = d.after(start).Sub(start)
	}
	if !o.WaitUntil {
		return m.errorf("waitUntil has a lambda")
	}
	return nil
}

// Ready evaluates the lambda of waitUntil for the live resource.
func (p *Plan) Ready(r *Resource, o ResourceOptions, live map[string]any, rt Runtime) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &evaluator{p: p, loops: r.loops, rt: rt}
	v, err := Import(live)
	if err != nil {
		return false, err
	}
	f, err := e.lambda(&call{args: []expression{o.until}}, 0, 1, 1)
	if err == nil {
		v, err = f(v)
	}
	if err != nil {
		return false, p.fault(e.locate(o.n, placed(err, &call{off: o.until.offset(), name: "waitUntil"})))
	}
	b, ok := v.(bool)
	if !ok {
		return false, o.n.errorf("the lambda of waitUntil must answer a bool, it answered a value of type %s", typeName(v))
	}
	return b, nil
}
