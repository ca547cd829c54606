package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// state is everything that a schema says about the values at one place: the
// union over compositions and references. A place is sensitive or read-only
// when any branch says so, because which branch applies may depend on values,
// and a secret must never hang on a guess.
type state struct {
	nodes      []*node
	props      map[string]*state
	additional *state
	items      *state
	open       bool // free-form: any property, nothing known about it

	sensitive, readOnly           bool
	sensitiveBelow, readOnlyBelow bool // here or below
}

// maxStates bounds the states of one schema; only a composition made to
// explode comes near it.
const maxStates = 20000

// buildStates makes the states reachable from root. There are finitely many,
// as a state is a set of nodes.
func buildStates(root *node) (*state, error) {
	number := map[*node]int{}
	known := map[string]*state{}
	var queue []*state
	of := func(seeds ...*node) *state {
		nodes := closure(seeds)
		ids := make([]int, len(nodes))
		for i, n := range nodes {
			if _, ok := number[n]; !ok {
				number[n] = len(number)
			}
			ids[i] = number[n]
		}
		slices.Sort(ids)
		key := strings.Trim(fmt.Sprint(ids), "[]")
		if st := known[key]; st != nil {
			return st
		}
		st := &state{nodes: nodes}
		known[key] = st
		queue = append(queue, st)
		return st
	}
	first := of(root)
	for i := 0; i < len(queue); i++ {
		if i > maxStates {
			return nil, core.Errorf(core.CodeInvalidContent, "the schema is too complex: its compositions multiply to more than %d shapes", maxStates)
		}
		st := queue[i]
		var additional, items []*node
		for _, n := range st.nodes {
			st.sensitive = st.sensitive || n.sensitive
			st.readOnly = st.readOnly || n.readOnly
			st.open = st.open || n.at != "" && n.freeForm(len(st.nodes) == 1)
			if n.additional != nil {
				additional = append(additional, n.additional)
			}
			if n.items != nil {
				items = append(items, n.items)
			}
		}
		for _, n := range st.nodes {
			for name := range n.props {
				if st.props[name] != nil {
					continue
				}
				var child []*node
				for _, m := range st.nodes {
					if c := m.props[name]; c != nil {
						child = append(child, c)
					} else if m.additional != nil {
						child = append(child, m.additional)
					}
				}
				if st.props == nil {
					st.props = map[string]*state{}
				}
				st.props[name] = of(child...)
			}
		}
		if additional != nil {
			st.additional = of(additional...)
		}
		if items != nil {
			st.items = of(items...)
		}
	}
	for _, st := range queue {
		st.sensitiveBelow, st.readOnlyBelow = st.sensitive, st.readOnly
	}
	for changed := true; changed; { // upwards until nothing moves: states form a graph, not a tree
		changed = false
		for _, st := range queue {
			for c := range st.children() {
				if c.sensitiveBelow && !st.sensitiveBelow || c.readOnlyBelow && !st.readOnlyBelow {
					st.sensitiveBelow = st.sensitiveBelow || c.sensitiveBelow
					st.readOnlyBelow = st.readOnlyBelow || c.readOnlyBelow
					changed = true
				}
			}
		}
	}
	return first, nil
}

// closure is the nodes and all that describe the same value as they do.
func closure(seeds []*node) []*node {
	var out []*node
	seen := map[*node]bool{}
	var add func(n *node)
	add = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		out = append(out, n)
		for _, m := range n.same() {
			add(m)
		}
	}
	for _, n := range seeds {
		add(n)
	}
	return out
}

func (st *state) children() func(func(*state) bool) {
	return func(yield func(*state) bool) {
		for _, c := range st.props {
			if !yield(c) {
				return
			}
		}
		if st.additional != nil && !yield(st.additional) {
			return
		}
		if st.items != nil {
			yield(st.items)
		}
	}
}

// child is the state of the property name, nil where nothing is known of it.
func (st *state) child(name string) *state {
	if c := st.props[name]; c != nil {
		return c
	}
	return st.additional
}

// WalkSensitive calls f for every sensitive value in props, at any depth and
// shape, and puts what f returns in its place; the first error ends the walk.
// Its path is the schema's: property names, and [Items] for items of arrays
// and values of maps, so that a value may move within its list. A sensitive
// object or array is handed over whole. Nulls are skipped: they hold nothing.
//
// What is sensitive depends on the schema alone, so the same walk seals, opens
// and redacts.
func (s *Schema) WalkSensitive(props map[string]any, f func(path string, v any) (any, error)) error {
	if !s.state.sensitiveBelow {
		return nil
	}
	_, err := s.state.walk("", props, f)
	return err
}

func (st *state) walk(path string, v any, f func(string, any) (any, error)) (any, error) {
	if v == nil || !st.sensitiveBelow {
		return v, nil
	}
	if st.sensitive {
		return f(path, v)
	}
	switch c := v.(type) {
	case map[string]any:
		for name, e := range c {
			child, at := st.props[name], ""
			if child == nil {
				child = st.additional
				at = path + Items
			}
			if child == nil || !child.sensitiveBelow {
				continue
			}
			if at == "" {
				at = member(path, name)
			}
			r, err := child.walk(at, e, f)
			if err != nil {
				return nil, err
			}
			c[name] = r
		}
	case []any:
		if st.items == nil {
			break
		}
		for i, e := range c {
			r, err := st.items.walk(path+Items, e, f)
			if err != nil {
				return nil, err
			}
			c[i] = r
		}
	}
	return v, nil
}

// Redact puts null in the place of every sensitive value (D-25).
func (s *Schema) Redact(props map[string]any) {
	_ = s.WalkSensitive(props, func(string, any) (any, error) { return nil, nil })
}

// secretsProperty is the property whose members answer listSecrets under their
// own names, as the clients of the typed resources expect them.
const secretsProperty = "secrets"

// Secrets returns the sensitive values of opened properties as listSecrets
// answers them (D-26): by the name of the top-level property; below one that
// is not sensitive itself, the object or array with only its sensitive parts;
// the members of an object named secrets each under their own name, where no
// other property has it. Nulls are left out. The result shares no memory with props.
func (s *Schema) Secrets(props map[string]any) map[string]any {
	out := map[string]any{}
	for name, v := range props {
		if st := s.state.child(name); st != nil {
			if secret, ok := st.prune(v); ok {
				out[name] = secret
			}
		}
	}
	members, ok := out[secretsProperty].(map[string]any)
	if !ok {
		return out
	}
	rest := map[string]any{}
	delete(out, secretsProperty)
	for name, v := range members {
		if _, taken := out[name]; taken || name == secretsProperty {
			rest[name] = v
		} else if v != nil {
			out[name] = v
		}
	}
	if len(rest) > 0 {
		out[secretsProperty] = rest
	}
	return out
}

// prune returns the sensitive parts of v, false when it has none.
func (st *state) prune(v any) (any, bool) {
	if v == nil || !st.sensitiveBelow {
		return nil, false
	}
	if st.sensitive {
		return copyValue(v), true
	}
	switch c := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, e := range c {
			if child := st.child(name); child != nil {
				if p, ok := child.prune(e); ok {
					out[name] = p
				}
			}
		}
		return out, len(out) > 0
	case []any:
		if st.items == nil {
			return nil, false
		}
		var out []any
		for _, e := range c {
			if p, ok := st.items.prune(e); ok {
				out = append(out, p)
			}
		}
		return out, len(out) > 0
	}
	return nil, false
}
