package schema

import (
	"slices"

	"github.com/radial-project/radial/internal/core"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// prepareDefaults checks that every default satisfies its own schema, and
// computes what each missing property becomes.
func (s *Schema) prepareDefaults(p *parser, c *jsonschema.Compiler) error {
	check := func(n *node) (*jsonschema.Schema, error) {
		for _, form := range []int{closed, open} {
			if n.loc[form] != "" {
				sch, err := c.Compile(documentURL + n.loc[form])
				if err != nil {
					return nil, core.Errorf(core.CodeInternal, "compile %s: %v", n.loc[form], err)
				}
				return sch, nil
			}
		}
		return nil, nil // a definition that nothing refers to
	}
	for _, n := range p.order {
		if !n.hasDefault {
			continue
		}
		sch, err := check(n)
		if err != nil {
			return err
		}
		if sch != nil && sch.Validate(n.def) != nil {
			p.fault(member(shownPointer(n.at), "default"), "the default does not satisfy its own schema")
		}
	}
	for changed := true; changed; {
		changed = false
		for _, n := range p.order {
			if n.defaultsBelow {
				continue
			}
			below := n.hasDefault
			for _, m := range n.below() {
				below = below || m.defaultsBelow
			}
			if below {
				n.defaultsBelow, changed = true, true
			}
		}
	}
	if !s.root.defaultsBelow {
		return nil
	}
	for _, n := range p.order {
		for _, ch := range n.choices {
			if !slices.ContainsFunc(ch.branches, func(b *node) bool { return b.defaultsBelow }) {
				continue
			}
			for _, b := range ch.branches {
				sch, err := check(b)
				if err != nil {
					return err
				}
				s.branches[b] = sch
			}
		}
	}
	done := map[*node]bool{}
	var prepare func(n *node) error
	prepare = func(n *node) error {
		if done[n] || !n.defaultsBelow {
			return nil
		}
		done[n] = true
		for _, m := range n.below() {
			if err := prepare(m); err != nil {
				return err
			}
		}
		if v, ok := n.ownDefault(); ok {
			n.absent, n.hasAbsent = s.fill(n, copyValue(v)), true
			return nil
		}
		if n.nullable || !n.isObject() || n.recursive() {
			return nil
		}
		made := s.fill(n, map[string]any{})
		if m, ok := made.(map[string]any); !ok || len(m) == 0 {
			return nil
		}
		// A parent that would be incomplete is not made: it would turn leaving
		// it out, which the schema allows, into a fault.
		sch, err := check(n)
		if err != nil || sch == nil || sch.Validate(made) != nil {
			return err
		}
		n.absent, n.hasAbsent = made, true
		return nil
	}
	for _, n := range p.order {
		if err := prepare(n); err != nil {
			return err
		}
	}
	return nil
}

// recursive reports whether n stands below itself. Such an object is not made
// of defaults: each would need the next.
func (n *node) recursive() bool {
	seen := map[*node]bool{}
	var reaches func(m *node) bool
	reaches = func(m *node) bool {
		if m == n {
			return true
		}
		if seen[m] || !m.defaultsBelow {
			return false
		}
		seen[m] = true
		return slices.ContainsFunc(m.below(), reaches)
	}
	return slices.ContainsFunc(n.below(), reaches)
}

// below are the nodes that a default of n may come from.
func (n *node) below() []*node {
	out := n.same()
	for _, name := range sortedKeys(n.props) {
		out = append(out, n.props[name])
	}
	if n.additional != nil {
		out = append(out, n.additional)
	}
	if n.items != nil {
		out = append(out, n.items)
	}
	return out
}

// ownDefault is the default of the value itself: the node's, or that of what
// it refers to.
func (n *node) ownDefault() (any, bool) {
	if n.hasDefault {
		return n.def, true
	}
	if n.ref != nil {
		if v, ok := n.ref.ownDefault(); ok {
			return v, true
		}
	}
	for _, m := range n.all {
		if v, ok := m.ownDefault(); ok {
			return v, true
		}
	}
	return nil, false
}

// isObject reports whether values of n are objects, by itself or by what it
// refers to.
func (n *node) isObject() bool {
	if n.typ != "" {
		return n.typ == "object"
	}
	if n.ref != nil && n.ref.isObject() {
		return true
	}
	for _, m := range n.all {
		if m.isObject() {
			return true
		}
	}
	return false
}

// ApplyDefaults fills in what is missing and has a default, in nested objects,
// items and map values too (D-15). An object that is missing itself is made
// when defaults alone make a valid one. Read-only properties get none; null is
// a value and is left. Of a oneOf or anyOf one branch gives its defaults: the one
// that the value fits.
func (s *Schema) ApplyDefaults(props map[string]any) {
	if s.root.defaultsBelow {
		s.fill(s.root, props)
	}
}

// fill returns v with the defaults of n; objects and arrays are changed in
// place.
func (s *Schema) fill(n *node, v any) any {
	if !n.defaultsBelow || v == nil {
		return v
	}
	if n.ref != nil {
		v = s.fill(n.ref, v)
	}
	for _, m := range n.all {
		v = s.fill(m, v)
	}
	switch c := v.(type) {
	case map[string]any:
		for name, child := range n.props {
			if e, ok := c[name]; ok {
				c[name] = s.fill(child, e)
			} else if child.hasAbsent && !child.isReadOnly() {
				c[name] = copyValue(child.absent)
			}
		}
		if n.additional != nil && n.additional.defaultsBelow {
			for name, e := range c {
				if n.props[name] == nil {
					c[name] = s.fill(n.additional, e)
				}
			}
		}
	case []any:
		if n.items != nil && n.items.defaultsBelow {
			for i, e := range c {
				c[i] = s.fill(n.items, e)
			}
		}
	}
	for _, ch := range n.choices {
		v = s.fillChoice(ch, v)
	}
	return v
}

// fillChoice fills v with the defaults of the branch that it is meant for: the
// first that it fits as it is, else the first that it fits once filled and that
// knows every member of v that any branch knows.
func (s *Schema) fillChoice(ch choice, v any) any {
	for _, b := range ch.branches {
		if sch := s.branches[b]; sch != nil && sch.Validate(v) == nil {
			return s.fill(b, v)
		}
	}
	for _, b := range ch.branches {
		sch := s.branches[b]
		if sch == nil || !b.defaultsBelow || !ch.meant(b, v) {
			continue
		}
		filled := s.fill(b, copyValue(v))
		if sch.Validate(filled) != nil {
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			return filled
		}
		for k, e := range filled.(map[string]any) { // in place, for whoever holds it
			m[k] = e
		}
		return m
	}
	return v
}

// meant reports whether branch b knows every member of v that another branch
// of the choice declares.
func (ch choice) meant(b *node, v any) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return true
	}
	declares := func(b *node, name string) bool {
		return slices.ContainsFunc(closure([]*node{b}), func(n *node) bool { return n.props[name] != nil })
	}
	for name := range m {
		if declares(b, name) {
			continue
		}
		for _, other := range ch.branches {
			if other != b && declares(other, name) {
				return false
			}
		}
	}
	return true
}

// DropReadOnly makes a request keep what only the service may set: read-only
// properties of props are ignored, and those of stored stay (D-15). Objects
// are matched by name, items of arrays by position. Both are plaintext. A
// parent that the request leaves out goes with what stood in it, unless
// everything that it may hold is read-only. provisioningState and status, which
// no schema declares, are always the service's.
func (s *Schema) DropReadOnly(props, stored map[string]any) {
	delete(props, "provisioningState")
	delete(props, "status")
	if s.state.readOnlyBelow {
		s.state.keep(props, stored)
	}
}

func (st *state) keep(props, stored map[string]any) {
	for name, v := range props {
		c := st.child(name)
		if c == nil || !c.readOnlyBelow {
			continue
		}
		if c.readOnly {
			delete(props, name)
			continue
		}
		c.keepValue(v, stored[name])
	}
	for name, v := range stored {
		c := st.child(name)
		if c == nil || !c.readOnlyBelow || v == nil {
			continue
		}
		if _, given := props[name]; !given && (c.readOnly || c.allReadOnly()) {
			props[name] = copyValue(v)
		}
	}
}

func (st *state) keepValue(v, stored any) {
	switch c := v.(type) {
	case map[string]any:
		old, _ := stored.(map[string]any)
		st.keep(c, old)
	case []any:
		if st.items == nil || !st.items.readOnlyBelow {
			return
		}
		old, _ := stored.([]any)
		for i, e := range c {
			var o any
			if i < len(old) {
				o = old[i]
			}
			st.items.keepValue(e, o)
		}
	}
}

// allReadOnly reports whether st is an object all of whose members are
// read-only.
func (st *state) allReadOnly() bool {
	if len(st.props) == 0 || st.additional != nil || st.open {
		return false
	}
	for _, c := range st.props {
		if !c.readOnly {
			return false
		}
	}
	return true
}
