// Package schema knows what the properties of a resource type may be (D-16). A
// schema is written as OpenAPI 3 objects; [Compile] checks that it keeps to
// the language, and what it returns validates, fills in, and finds the
// sensitive places of properties.
//
// The package is pure: no I/O, no clock. A [Schema] is immutable and safe for
// concurrent use. Properties are what encoding/json makes of them (with
// float64 or json.Number); a null is a value like any other and stands only
// where the schema says nullable.
//
// Order matters to its users (D-7): [Schema.DropReadOnly], then
// [Schema.ApplyDefaults], then [Schema.Validate] on the plaintext, then
// [Schema.WalkSensitive] to seal.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/radial-project/radial/internal/core"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a compiled schema.
type Schema struct {
	root      *node
	state     *state
	validator *jsonschema.Schema
	branches  map[*node]*jsonschema.Schema // of choices with defaults below
	names     []string                     // declared at the top level, sorted
}

// maxDepth bounds how deep a schema document nests.
const maxDepth = 64

// Compile checks and compiles a schema. The error is a core.Error with one
// detail for each fault; its Target is the path of the fault in the document.
func Compile(raw json.RawMessage) (*Schema, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, core.Errorf(core.CodeInvalidContent, "the schema is not JSON: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, core.Errorf(core.CodeInvalidContent, "the schema is not JSON: data follows its end")
	}
	return compile(v)
}

func compile(v any) (*Schema, error) {
	doc, ok := v.(map[string]any)
	if !ok {
		return nil, invalid([]core.Error{*core.Errorf(core.CodeInvalidContent, "a schema must be an object, not %s", typeName(v))})
	}
	if depth(doc) > maxDepth {
		return nil, invalid([]core.Error{*core.Errorf(core.CodeInvalidContent, "the schema nests deeper than %d levels: use $ref", maxDepth)})
	}
	p := &parser{doc: doc, nodes: map[string]*node{}}
	root := p.parse("", "", doc, placeRoot)
	p.follow()
	if len(p.faults) == 0 {
		p.checkCycles()
	}
	if len(p.faults) > 0 {
		return nil, invalid(p.faults)
	}
	translated := translate(root)
	c, err := newCompiler(translated)
	if err != nil {
		return nil, invalid([]core.Error{*core.Errorf(core.CodeInvalidContent, "%v", err)})
	}
	s := &Schema{root: root, branches: map[*node]*jsonschema.Schema{}}
	if s.validator, err = c.Compile(documentURL); err != nil {
		return nil, invalid([]core.Error{*core.Errorf(core.CodeInvalidContent, "the schema cannot be compiled: %v", err)})
	}
	if s.state, err = buildStates(root); err != nil {
		return nil, invalid([]core.Error{*core.AsError(err)})
	}
	p.checkRequired(s)
	if err := s.prepareDefaults(p, c); err != nil {
		return nil, err
	}
	if len(p.faults) > 0 {
		return nil, invalid(p.faults)
	}
	s.names = sortedKeys(s.state.props)
	for _, n := range p.order {
		n.raw = nil // read; the document need not be kept
	}
	return s, nil
}

func invalid(faults []core.Error) error {
	e := core.Errorf(core.CodeInvalidContent, "the schema has %s", count(len(faults), "fault"))
	if len(faults) == 1 {
		e.Message = "the schema is invalid: " + describe(faults[0])
	}
	return e.WithDetails(faults...)
}

func describe(f core.Error) string {
	if f.Target == "" {
		return f.Message
	}
	return f.Target + ": " + f.Message
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func depth(v any) int {
	d := 0
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			d = max(d, depth(e))
		}
		return d + 1
	case []any:
		for _, e := range v {
			d = max(d, depth(e))
		}
		return d + 1
	}
	return 0
}

// checkRequired refuses a required property that nothing declares: no value
// could satisfy it, as unknown properties are refused.
func (p *parser) checkRequired(s *Schema) {
	seen := map[*state]bool{}
	var visit func(st *state)
	visit = func(st *state) {
		if st == nil || seen[st] {
			return
		}
		seen[st] = true
		if st.additional == nil && !st.open {
			for _, n := range st.nodes {
				for _, r := range n.required {
					if st.props[r] == nil {
						p.fault(member(shownPointer(n.at), "required"), "%q is required but not declared", r)
					}
				}
			}
		}
		for _, name := range sortedKeys(st.props) {
			visit(st.props[name])
		}
		visit(st.additional)
		visit(st.items)
	}
	visit(s.state)
}

// Declares reports whether the schema declares a property of that name at the
// top level. Names that only additionalProperties lets in are not declared.
func (s *Schema) Declares(name string) bool { return s.state.props[name] != nil }

// Names returns the properties declared at the top level, sorted.
func (s *Schema) Names() []string { return slices.Clone(s.names) }

// Open reports whether the top level takes properties that it does not declare.
func (s *Schema) Open() bool { return s.state.additional != nil || s.state.open }

// ReadOnly reports whether the property of that name is read-only: the
// service's to set, ignored in a request.
func (s *Schema) ReadOnly(name string) bool {
	st := s.state.child(name)
	return st != nil && st.readOnly
}

// Sensitive reports whether the property of that name, declared or let in by
// additionalProperties, is sensitive or may hold a sensitive value below it.
func (s *Schema) Sensitive(name string) bool {
	st := s.state.child(name)
	return st != nil && st.sensitiveBelow
}
