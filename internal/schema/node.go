package schema

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// node is one subschema of a document, references resolved. A document of n
// subschemas has n nodes; a recursive document is a cyclic graph of them.
type node struct {
	at  string // JSON pointer in the document
	raw map[string]any
	typ string // "" where the schema does not say

	props    map[string]*node
	required []string
	// additional is the schema of undeclared properties, nil where there is
	// none; open says that any value is taken instead.
	additional *node
	open       bool
	closed     bool // additionalProperties: false, written out
	items      *node

	ref *node
	all []*node
	// choices are the anyOf and the oneOf of the schema.
	choices []choice

	nullable, readOnly, sensitive bool
	hasDefault                    bool
	def                           any

	// Set by later passes.
	defaultsBelow bool // a default stands at or below this node
	absent        any  // what a missing property of this schema becomes
	hasAbsent     bool //
	loc           [2]string
}

// choice is one anyOf or oneOf.
type choice struct {
	keyword  string
	branches []*node
}

// same are the nodes that describe the same value as n: what it refers to and
// the branches of its composition.
func (n *node) same() []*node {
	var out []*node
	if n.ref != nil {
		out = append(out, n.ref)
	}
	out = append(out, n.all...)
	for _, c := range n.choices {
		out = append(out, c.branches...)
	}
	return out
}

// maxFaults bounds how many faults one document is answered with.
const maxFaults = 100

// parser reads a document into nodes and notes every fault with its path.
type parser struct {
	doc    map[string]any
	nodes  map[string]*node
	order  []*node
	faults []core.Error

	references []reference
}

func (p *parser) fault(path, format string, args ...any) {
	if len(p.faults) < maxFaults {
		p.faults = append(p.faults, *core.Errorf(core.CodeInvalidContent, format, args...).WithTarget(path))
	}
}

// place says where in the document a schema stands.
type place int

const (
	placeRoot place = iota
	placeValue
	placeBranch          // of allOf, anyOf, oneOf
	placePlatformOptions // additionalProperties of a property platformOptions
)

// keywords are the schema language (D-16), each with the check of its value.
var keywords = map[string]func(any) string{
	"type": isString, "title": isString, "description": isString, "format": isString, "pattern": isPattern, "$ref": isString,
	"properties": isObject, "$defs": isObject, "definitions": isObject, "components": isObject, "externalDocs": isObject,
	"required": isNames, "enum": isList, "allOf": isList, "anyOf": isList, "oneOf": isList,
	"additionalProperties": anything, "items": isObject, "default": anything, "example": anything, "examples": anything,
	"nullable": isBool, "readOnly": isBool, "deprecated": isBool, "uniqueItems": isBool, sensitiveKeyword: isBool,
	"minLength": isCount, "maxLength": isCount, "minItems": isCount, "maxItems": isCount, "minProperties": isCount, "maxProperties": isCount,
	"minimum": isNumber, "maximum": isNumber, "multipleOf": isPositive,
	"exclusiveMinimum": isBoolOrNumber, "exclusiveMaximum": isBoolOrNumber,
}

// outside are keywords of JSON Schema that people reach for, with what to write
// instead.
var outside = map[string]string{
	"not":                   "say what is allowed instead",
	"discriminator":         "use oneOf whose branches each name their kind with a one-value enum",
	"patternProperties":     "use additionalProperties",
	"const":                 "use an enum of one value",
	"writeOnly":             "use " + sensitiveKeyword + ": true for a value that must not be read back",
	"if":                    "use oneOf",
	"unevaluatedProperties": "unknown properties are refused already",
	"$schema":               "the language is fixed; leave it out",
	"$id":                   "references stay inside the document",
}

const sensitiveKeyword = "x-radius-sensitive"

var types = []string{"string", "number", "integer", "boolean", "object", "array"}

// parse reads the schema at pointer at, shown as path.
func (p *parser) parse(at, path string, v any, where place) *node {
	if n, ok := p.nodes[at]; ok {
		return n
	}
	n := &node{at: at}
	p.nodes[at] = n
	p.order = append(p.order, n)
	m, ok := v.(map[string]any)
	if !ok {
		p.fault(path, "a schema must be an object, not %s", typeName(v))
		return n
	}
	n.raw = m
	if !p.checkKeywords(path, m, where) {
		return n
	}
	n.typ, _ = m["type"].(string)
	n.nullable = m["nullable"] == true
	n.readOnly = m["readOnly"] == true
	n.sensitive = m[sensitiveKeyword] == true
	n.def, n.hasDefault = m["default"]
	for _, r := range asList(m["required"]) {
		n.required = append(n.required, r.(string))
	}
	p.parseType(path, n, where)
	p.parseObject(at, path, n)
	if items, ok := m["items"]; ok {
		n.items = p.parse(at+"/items", member(path, "items"), items, placeValue)
	}
	p.parseComposition(at, path, n)
	if where == placeRoot {
		for _, k := range []string{"$defs", "definitions"} {
			p.parseDefinitions(at+"/"+k, member(path, k), m[k])
		}
		if c, ok := m["components"].(map[string]any); ok {
			for _, k := range sortedKeys(c) {
				if k != "schemas" {
					p.fault(member(member(path, "components"), k), "components may hold schemas only")
				}
			}
			p.parseDefinitions(at+"/components/schemas", member(member(path, "components"), "schemas"), c["schemas"])
		}
	}
	return n
}

func (p *parser) parseDefinitions(at, path string, v any) {
	if v == nil {
		return
	}
	defs, ok := v.(map[string]any)
	if !ok {
		p.fault(path, "must be an object of schemas, not %s", typeName(v))
		return
	}
	for _, name := range sortedKeys(defs) {
		p.parse(at+"/"+escape(name), member(path, name), defs[name], placeValue)
	}
}

// checkKeywords reports keywords outside the language and values of the wrong
// kind; false when the schema cannot be read further.
func (p *parser) checkKeywords(path string, m map[string]any, where place) bool {
	fine := true
	for _, k := range sortedKeys(m) {
		at := member(path, k)
		check, known := keywords[k]
		if root := k == "$defs" || k == "definitions" || k == "components"; known && root && where != placeRoot {
			p.fault(at, "%s may stand at the root of the schema only", k)
			continue
		}
		if known {
			if msg := check(m[k]); msg != "" {
				p.fault(at, "%s", msg)
				fine = false
			}
			continue
		}
		if instead, ok := outside[k]; ok {
			p.fault(at, "keyword %q is not part of the schema language: %s", k, instead)
			continue
		}
		if strings.HasPrefix(k, "x-") && !strings.HasPrefix(k, "x-radius-") {
			continue // an annotation of somebody else's tool
		}
		if near := Nearest(k, sortedKeys(keywords)); len(near) > 0 {
			p.fault(at, "unknown keyword %q: did you mean %q?", k, near[0])
		} else {
			p.fault(at, "unknown keyword %q", k)
		}
	}
	return fine
}

func (p *parser) parseType(path string, n *node, where place) {
	at := member(path, "type")
	_, ref := n.raw["$ref"]
	composed := n.raw["allOf"] != nil || n.raw["anyOf"] != nil || n.raw["oneOf"] != nil
	switch {
	case where == placeRoot && n.typ != "object":
		p.fault(at, "the root of a schema must be of type object")
	case n.typ == "any" && where == placePlatformOptions:
		n.typ, n.open = "", true
	case n.typ == "any":
		p.fault(at, "type any is allowed under additionalProperties of a property platformOptions only")
	case n.typ != "" && !slices.Contains(types, n.typ):
		p.fault(at, "unknown type %q: use one of %s", n.typ, strings.Join(types, ", "))
	case n.typ == "" && n.raw["properties"] != nil:
		n.typ = "object"
	case n.typ == "" && n.raw["items"] != nil:
		n.typ = "array"
	case n.typ == "" && where != placeBranch && !ref && !composed && n.raw["enum"] == nil:
		p.fault(path, "a schema must say its type: one of %s", strings.Join(types, ", "))
	}
	if where == placeRoot && n.sensitive {
		p.fault(member(path, sensitiveKeyword), "the root cannot be sensitive: mark its properties")
	}
	if where == placeRoot && n.nullable {
		p.fault(member(path, "nullable"), "the root cannot be nullable")
	}
	if n.typ == "array" && n.raw["items"] == nil && where != placeBranch {
		p.fault(path, "an array must say the schema of its items")
	}
}

func (p *parser) parseObject(at, path string, n *node) {
	if props, ok := n.raw["properties"].(map[string]any); ok {
		if n.typ != "object" {
			p.fault(member(path, "properties"), "properties need type object, not %s", n.typ)
		}
		n.props = make(map[string]*node, len(props))
		for _, name := range sortedKeys(props) {
			n.props[name] = p.parse(at+"/properties/"+escape(name), member(member(path, "properties"), name), props[name], placeValue)
		}
	}
	extra, ok := n.raw["additionalProperties"]
	if !ok {
		return
	}
	platform := strings.HasSuffix(at, "/properties/platformOptions")
	path = member(path, "additionalProperties")
	switch v := extra.(type) {
	case bool:
		switch {
		case !v:
			n.closed = true
		case platform:
			n.open = true
		default:
			p.fault(path, "additionalProperties must be a schema: true would take any value")
		}
	case map[string]any:
		where := placeValue
		if platform {
			where = placePlatformOptions
		}
		n.additional = p.parse(at+"/additionalProperties", path, v, where)
	default:
		p.fault(path, "additionalProperties must be a schema or false, not %s", typeName(extra))
	}
}

func (p *parser) parseComposition(at, path string, n *node) {
	for _, k := range []string{"allOf", "anyOf", "oneOf"} {
		list, ok := n.raw[k].([]any)
		if !ok {
			continue
		}
		if len(list) == 0 {
			p.fault(member(path, k), "%s must not be empty", k)
		}
		var branches []*node
		for i, b := range list {
			branches = append(branches, p.parse(fmt.Sprintf("%s/%s/%d", at, k, i), fmt.Sprintf("%s[%d]", member(path, k), i), b, placeBranch))
		}
		if k == "allOf" {
			n.all = branches
		} else {
			n.choices = append(n.choices, choice{k, branches})
		}
	}
	if ref, ok := n.raw["$ref"].(string); ok {
		p.references = append(p.references, reference{n, member(path, "$ref"), ref})
	}
}

// reference is a $ref that is followed once the document is read: what it leads
// to is then known by the place where it stands.
type reference struct {
	from *node
	path string
	to   string
}

// follow resolves the references of the document, and those of schemas that
// only references lead to.
func (p *parser) follow() {
	for len(p.references) > 0 {
		r := p.references[0]
		p.references = p.references[1:]
		pointer, inside := strings.CutPrefix(r.to, "#")
		if !inside {
			p.fault(r.path, "reference %q leads out of the document: only #/… is followed", r.to)
			continue
		}
		if u, err := url.PathUnescape(pointer); err == nil {
			pointer = u
		}
		if pointer == "" {
			r.from.ref = p.nodes[""]
			continue
		}
		target, shown, ok := p.resolve(pointer)
		if !ok {
			p.fault(r.path, "reference %q leads nowhere in this document", r.to)
			continue
		}
		r.from.ref = p.parse(pointer, shown, target, placeValue)
	}
}

// resolve follows a JSON pointer through the document.
func (p *parser) resolve(pointer string) (v any, path string, ok bool) {
	rest, ok := strings.CutPrefix(pointer, "/")
	if !ok {
		return nil, "", false
	}
	v = p.doc
	for seg := range strings.SplitSeq(rest, "/") {
		seg = strings.NewReplacer("~1", "/", "~0", "~").Replace(seg)
		switch c := v.(type) {
		case map[string]any:
			if v, ok = c[seg]; !ok {
				return nil, "", false
			}
			path = member(path, seg)
		case []any:
			i, err := strconv.Atoi(seg)
			if err != nil || i < 0 || i >= len(c) || strconv.Itoa(i) != seg {
				return nil, "", false
			}
			v = c[i]
			path = fmt.Sprintf("%s[%d]", path, i)
		default:
			return nil, "", false
		}
	}
	return v, path, true
}

// checkCycles refuses a schema that refers to itself without stepping into a
// property or an item: no value could ever be checked against it.
func (p *parser) checkCycles() {
	const (
		onPath = 1
		done   = 2
	)
	seen := map[*node]int{}
	var visit func(n *node) bool
	visit = func(n *node) bool {
		switch seen[n] {
		case onPath:
			return false
		case done:
			return true
		}
		seen[n] = onPath
		fine := true
		for _, s := range n.same() {
			fine = visit(s) && fine
		}
		seen[n] = done
		return fine
	}
	for _, n := range p.order {
		if !visit(n) {
			p.fault(shownPointer(n.at), "the schema refers to itself without stepping into a property or an item")
			return
		}
	}
}

func shownPointer(at string) string {
	path := ""
	if at == "" {
		return path
	}
	for seg := range strings.SplitSeq(at[1:], "/") {
		path = member(path, strings.NewReplacer("~1", "/", "~0", "~").Replace(seg))
	}
	return path
}

func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

func anything(any) string { return "" }

func isString(v any) string {
	if _, ok := v.(string); !ok {
		return "must be a string, not " + typeName(v)
	}
	return ""
}

func isPattern(v any) string {
	s, ok := v.(string)
	if !ok {
		return isString(v)
	}
	if _, err := regexp.Compile(s); err != nil {
		return "is not a regular expression (RE2): " + err.Error()
	}
	return ""
}

func isObject(v any) string {
	if _, ok := v.(map[string]any); !ok {
		return "must be an object, not " + typeName(v)
	}
	return ""
}

func isList(v any) string {
	if l, ok := v.([]any); !ok {
		return "must be a list, not " + typeName(v)
	} else if len(l) == 0 {
		return "must not be empty"
	}
	return ""
}

func isNames(v any) string {
	l, ok := v.([]any)
	if !ok {
		return "must be a list of names, not " + typeName(v)
	}
	seen := map[string]bool{}
	for _, e := range l {
		s, ok := e.(string)
		if !ok {
			return "must be a list of names, not of " + typeName(e)
		}
		if seen[s] {
			return fmt.Sprintf("names %q twice", s)
		}
		seen[s] = true
	}
	return ""
}

func isBool(v any) string {
	if _, ok := v.(bool); !ok {
		return "must be true or false, not " + typeName(v)
	}
	return ""
}

func isNumber(v any) string {
	if n, ok := v.(json.Number); ok {
		if _, err := n.Float64(); err == nil {
			return ""
		}
		return "is out of range"
	}
	return "must be a number, not " + typeName(v)
}

func isPositive(v any) string {
	if msg := isNumber(v); msg != "" {
		return msg
	}
	if f, _ := v.(json.Number).Float64(); f <= 0 {
		return "must be above 0"
	}
	return ""
}

func isBoolOrNumber(v any) string {
	if isBool(v) == "" || isNumber(v) == "" {
		return ""
	}
	return "must be true, false or a number, not " + typeName(v)
}

func isCount(v any) string {
	if msg := isNumber(v); msg != "" {
		return msg
	}
	if f, _ := v.(json.Number).Float64(); f < 0 || f != math.Trunc(f) || f > math.MaxInt32 {
		return "must be a whole number from 0"
	}
	return ""
}

// typeName names the JSON type of a value, as faults say it.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case bool:
		return "boolean"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case json.Number, float64, int, int64:
		return "number"
	default:
		return fmt.Sprintf("%T", v)
	}
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
