package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/radial-project/radial/internal/core"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Validate checks plaintext properties. The error is a core.Error with one
// detail for each fault. A fault names the declared top-level property, which
// is also its Target, and the rule; it never shows a submitted value or the
// name of anything below the top level, because either may be a secret (D-13).
func (s *Schema) Validate(props map[string]any) error {
	c := &collector{schema: s, seen: map[string]bool{}}
	// First, since rules on numbers calculate with every digit.
	if c.numbers(nil, props); len(c.faults) > 0 {
		return c.fault()
	}
	err := s.validator.Validate(props)
	if err == nil {
		return nil
	}
	verr, ok := err.(*jsonschema.ValidationError)
	if !ok {
		return core.Errorf(core.CodeInvalidContent, "Schema validation failed: the properties cannot be read as JSON")
	}
	c.collect(verr)
	if len(c.faults) == 0 {
		c.faults = c.shape
	}
	return c.fault()
}

// Bounds of a number, in bytes and as a power of ten: what any program that
// reads it as a 64-bit float can hold, and then some.
const (
	maxNumber   = 400
	maxExponent = 400
)

// numbers finds the numbers beyond those bounds.
func (c *collector) numbers(at []string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			c.numbers(append(at, name), e)
		}
	case []any:
		for i, e := range v {
			c.numbers(append(at, strconv.Itoa(i)), e)
		}
	case json.Number:
		if !bounded(v.String()) {
			c.add(at, "is a number with too many digits or too great an exponent (number)")
		}
	}
}

func bounded(n string) bool {
	if len(n) > maxNumber {
		return false
	}
	at := strings.IndexAny(n, "eE")
	if at < 0 {
		return true
	}
	e, err := strconv.Atoi(n[at+1:])
	return err == nil && -maxExponent <= e && e <= maxExponent
}

// fault is the error of all faults.
func (c *collector) fault() error {
	slices.SortStableFunc(c.faults, func(a, b core.Error) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Message, b.Message))
	})
	texts := make([]string, len(c.faults))
	for i, f := range c.faults {
		texts[i] = f.Message
	}
	return core.Errorf(core.CodeInvalidContent, "Schema validation failed: %s", strings.Join(texts, "; ")).WithDetails(c.faults...)
}

// collector turns the tree of a validation error into faults.
type collector struct {
	schema *Schema
	seen   map[string]bool
	faults []core.Error
	// shape are faults that usually only follow from others.
	shape []core.Error
}

func (c *collector) collect(e *jsonschema.ValidationError) {
	switch k := e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		for _, cause := range e.Causes {
			c.collect(cause)
		}
	case *kind.AnyOf:
		if inner := withoutNull(e.Causes); inner != nil {
			c.collect(inner)
			return
		}
		if branch := meant(e); branch != nil {
			c.collect(branch)
			return
		}
		c.add(e.InstanceLocation, "matches none of the shapes that anyOf allows")
	case *kind.OneOf:
		if len(k.Subschemas) > 1 {
			c.add(e.InstanceLocation, "matches more than one of the shapes of which oneOf allows one")
		} else if branch := meant(e); branch != nil {
			c.collect(branch)
		} else {
			c.add(e.InstanceLocation, "matches none of the shapes that oneOf allows")
		}
	case *kind.FalseSchema:
		c.unknown(e.InstanceLocation[:max(0, len(e.InstanceLocation)-1)], last(e.InstanceLocation))
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			c.unknown(e.InstanceLocation, name)
		}
	case *kind.Required:
		if len(e.InstanceLocation) > 0 {
			c.add(e.InstanceLocation, "a required property is missing in it (required)")
			return
		}
		for _, name := range k.Missing {
			c.addTo(name, fmt.Sprintf("%s: is required", name))
		}
	default:
		c.add(e.InstanceLocation, rule(e.ErrorKind))
	}
}

// withoutNull returns the cause of an anyOf that only stands for nullable: what
// is wrong with the value itself.
func withoutNull(causes []*jsonschema.ValidationError) *jsonschema.ValidationError {
	if len(causes) != 2 {
		return nil
	}
	if t, ok := causes[0].ErrorKind.(*kind.Type); ok && len(t.Want) == 1 && t.Want[0] == "null" {
		return causes[1]
	}
	return nil
}

// meant returns what is wrong with the one branch of a failed anyOf or oneOf
// that the value was meant for: the one whose type and whose kind (a property
// with an enum) fit. nil when none or several are left.
func meant(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	var found *jsonschema.ValidationError
	for _, branch := range e.Causes {
		if otherKind(branch, len(e.InstanceLocation)) {
			continue
		}
		if found != nil {
			return nil
		}
		found = branch
	}
	return found
}

func otherKind(e *jsonschema.ValidationError, depth int) bool {
	switch e.ErrorKind.(type) {
	case *kind.Enum:
		return len(e.InstanceLocation) <= depth+1
	case *kind.Type:
		return len(e.InstanceLocation) == depth
	case *kind.Group, *kind.AllOf, *kind.Reference:
		return slices.ContainsFunc(e.Causes, func(c *jsonschema.ValidationError) bool { return otherKind(c, depth) })
	}
	return false
}

// add notes a fault of the value at loc.
func (c *collector) add(loc []string, what string) {
	if len(loc) == 0 {
		c.addTo("", "the properties: "+what)
		return
	}
	top := loc[0]
	if !c.schema.Declares(top) {
		// Let in by additionalProperties; its name is the client's.
		c.addTo("", "a property that the schema does not declare by name: "+what+below(loc))
		return
	}
	c.addTo(top, top+": "+what+below(loc))
}

func below(loc []string) string {
	if len(loc) > 1 {
		return " (in a value inside it)"
	}
	return ""
}

func (c *collector) addTo(target, message string) {
	if key := target + "\x00" + message; !c.seen[key] {
		c.seen[key] = true
		c.faults = append(c.faults, *core.Errorf(core.CodeInvalidContent, "%s", message).WithTarget(target))
	}
}

// unknown notes that the object at parent has a property it may not have. At
// the top level the fault names it and what was probably meant; below, a name
// may itself be a secret.
func (c *collector) unknown(parent []string, name string) {
	declared := c.schema.state.at(append(slices.Clone(parent), name))
	if declared != nil {
		// Declared by a branch that does not hold: that branch's fault says why.
		what := "holds a property that does not go with the shape it has"
		saved := c.faults
		c.faults = nil
		c.add(parent, what)
		c.shape = append(c.shape, c.faults...)
		c.faults = saved
		return
	}
	if len(parent) > 0 {
		c.add(parent, "holds a property that the schema does not declare")
		return
	}
	message := fmt.Sprintf("%s: is not a property of this type", shown(name))
	if near := Nearest(name, c.schema.names); len(near) > 0 {
		message += fmt.Sprintf("; did you mean %s?", near[0])
	}
	c.addTo("", message)
}

// shown is a client's name as a message holds it.
func shown(name string) string {
	const most = 80
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// at is the state of the value at loc, nil where nothing declares it.
func (st *state) at(loc []string) *state {
	for _, seg := range loc {
		if st == nil {
			return nil
		}
		child := st.child(seg)
		if child == nil {
			child = st.items
		}
		st = child
	}
	return st
}

func last(loc []string) string {
	if len(loc) == 0 {
		return ""
	}
	return loc[len(loc)-1]
}

// rule words a broken rule. It uses what the schema says, never the value.
func rule(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		got := k.Got
		if got == "null" {
			return fmt.Sprintf("must be %s and may not be null (type)", strings.Join(k.Want, " or "))
		}
		return fmt.Sprintf("must be %s, not %s (type)", strings.Join(k.Want, " or "), got)
	case *kind.Enum:
		return "must be one of " + list(k.Want) + " (enum)"
	case *kind.Pattern:
		return "must match the pattern " + k.Want
	case *kind.Format:
		return "must be of the format " + k.Want
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %s (minLength)", count(k.Want, "character"))
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %s (maxLength)", count(k.Want, "character"))
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString() + " (minimum)"
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString() + " (maximum)"
	case *kind.ExclusiveMinimum:
		return "must be above " + k.Want.RatString() + " (exclusiveMinimum)"
	case *kind.ExclusiveMaximum:
		return "must be below " + k.Want.RatString() + " (exclusiveMaximum)"
	case *kind.MultipleOf:
		return "must be a multiple of " + k.Want.RatString() + " (multipleOf)"
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %s (minItems)", count(k.Want, "item"))
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %s (maxItems)", count(k.Want, "item"))
	case *kind.UniqueItems:
		return "must not hold the same item twice (uniqueItems)"
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d properties (minProperties)", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d properties (maxProperties)", k.Want)
	case *kind.InvalidJsonValue:
		return "is not a JSON value"
	case *kind.RefCycle:
		return "nests deeper than the schema can follow"
	default:
		path := k.KeywordPath()
		if len(path) == 0 {
			return "does not satisfy the schema"
		}
		return "does not satisfy the schema (" + path[len(path)-1] + ")"
	}
}

func list(values []any) string {
	out := make([]string, len(values))
	for i, v := range values {
		if s, ok := v.(string); ok {
			out[i] = s
			continue
		}
		b, _ := json.Marshal(v)
		out[i] = string(b)
	}
	return strings.Join(out, ", ")
}
