package template

import (
	"errors"
	"sort"
	"strings"
)

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
