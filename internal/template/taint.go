package template

import "strings"

// isSecure reports whether a parameter's value is a secret: by its type, or
// because the parent made it of one.
func (p *Plan) isSecure(q *parameter) bool {
	return q.secure() || p.t.secureType(q.def) || p.secure[strings.ToLower(q.name)]
}

// secureType reports whether a declaration is, or holds, a secure type.
func (t *Template) secureType(def *node) bool { return t.secureIn(def, 0) }

func (t *Template) secureIn(def *node, depth int) bool {
	if def == nil || def.kind != kindObject || depth > 16 {
		return false
	}
	if typ := def.get("type"); typ != nil && strings.HasPrefix(strings.ToLower(typ.text), "secure") {
		return true
	}
	if full := t.resolveType(def); full != nil && full != def && t.secureIn(full, depth+1) {
		return true
	}
	for _, list := range []*node{def.get("properties"), def.get("prefixItems")} {
		if list == nil {
			continue
		}
		for _, m := range append(list.members[:len(list.members):len(list.members)], list.items...) {
			if t.secureIn(m, depth+1) {
				return true
			}
		}
	}
	return t.secureIn(def.get("items"), depth+1) || t.secureIn(def.get("additionalProperties"), depth+1)
}

// tainted reports whether a node's expressions use secure parameters, directly
// or by variables and defaults, or what list… functions answer.
func (p *Plan) tainted(n *node) bool { return p.taintedIn(n, map[any]bool{}) }

func (p *Plan) taintedIn(n *node, seen map[any]bool) bool {
	if n == nil || seen[n] {
		return false
	}
	seen[n] = true
	for _, list := range [][]*node{n.members, n.items} {
		for _, m := range list {
			if p.taintedIn(m, seen) {
				return true
			}
		}
	}
	for _, x := range []expression{n.expr, n.keyExpr} {
		if x != nil && p.taintedExpr(x, seen) {
			return true
		}
	}
	return false
}

func (p *Plan) taintedExpr(x expression, seen map[any]bool) bool {
	found := false
	_ = walk(x, func(x expression) error {
		c, ok := x.(*call)
		found = found || ok && p.taintedCall(c, seen)
		return nil
	})
	return found
}

func (p *Plan) taintedCall(c *call, seen map[any]bool) bool {
	if c.fn == nil {
		return false // a user's function: its arguments are walked
	}
	name, constantName := constant(c, 0)
	switch c.fn.name {
	case "list":
		return true
	case "newGuid":
		return true // passwords are made of it
	case "parameters":
		for _, q := range p.t.parameters {
			if constantName && !strings.EqualFold(q.name, name) {
				continue
			}
			if p.isSecure(q) || p.taintedIn(q.def.get("defaultValue"), seen) && p.params[q] != nil && !p.params[q].given {
				return true
			}
		}
	case "variables":
		if constantName {
			return p.taintedIn(p.t.variables[strings.ToLower(name)], seen)
		}
		for _, v := range p.t.variables {
			if p.taintedIn(v, seen) {
				return true
			}
		}
	case "extensions":
		for _, x := range p.Extensions {
			if len(x.Secure) > 0 && (!constantName || strings.EqualFold(x.Alias, name)) {
				return true
			}
		}
	}
	return false
}
