package template

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

func (k kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// node is one value of the document with the place where it stands.
type node struct {
	kind      kind
	line, col int // of the first character, 1-based; col counts characters

	parent *node
	key    string // the member's name, in an object
	at     int    // the index, in an array

	value   any    // bool, int64, float64 for the scalar kinds
	text    string // of a string, unescaped
	members []*node
	index   map[string]*node // members by lower-case name
	items   []*node

	// expr is the compiled text of a string that is an expression; literal is
	// the value of one that is not.
	expr    expression
	literal string
	// keyExpr is the compiled key of a member whose name is an expression.
	keyExpr expression

	// size is the length of the text that it was read from, in bytes.
	size int
	// own marks the template of a nested deployment with a scope of its own:
	// its expressions are not the parent's.
	own bool
	// resource marks a resource; outer is the one it stands in, if any.
	resource bool
	outer    *node
	// loopNames are the loops that a resource came from whose loop the parent
	// of its template has expanded.
	loopNames []string
	// unknown marks what the parent of a nested template does not know yet.
	unknown bool
}

// path is the JSON path of the node: resources.redis.properties.spec.ports[0].
func (n *node) path() string {
	if n == nil || n.parent == nil {
		return "$"
	}
	if n.parent.kind == kindArray {
		return n.parent.path() + "[" + strconv.Itoa(n.at) + "]"
	}
	key := n.key
	if strings.ContainsAny(key, ".[]'\" ") {
		key = "['" + key + "']"
	} else if n.parent.parent != nil {
		key = "." + key
	}
	if n.parent.parent == nil {
		return key
	}
	return n.parent.path() + key
}

// get returns the member of that name, without case; nil if there is none or
// n is no object.
func (n *node) get(name string) *node {
	if n == nil || n.kind != kindObject {
		return nil
	}
	return n.index[strings.ToLower(name)]
}

// exact returns the member of exactly that name.
func (n *node) exact(name string) *node {
	for _, m := range n.members {
		if m.key == name {
			return m
		}
	}
	return nil
}

// jsonReader parses JSON as templates have it: with // and /* */ comments and
// strings that span lines.
type jsonReader struct {
	text      string
	pos       int
	line      int
	lineStart int
	depth     int
	nodes     int
	limits    Limits
	// counted is the place up to which column has counted, to keep a text of
	// one line linear.
	counted, columns int
}

func parseJSON(text string, limits Limits) (*node, error) {
	r := &jsonReader{text: strings.TrimPrefix(text, "\ufeff"), line: 1, limits: limits}
	if err := r.space(); err != nil {
		return nil, err
	}
	n, err := r.value()
	if err != nil {
		return nil, err
	}
	if err := r.space(); err != nil {
		return nil, err
	}
	if r.pos < len(r.text) {
		return nil, r.errorf("text after the end of the template")
	}
	return n, nil
}

func (r *jsonReader) errorf(format string, args ...any) error {
	return invalid("$", r.line, r.column(), format, args...)
}

func (r *jsonReader) column() int {
	pos := min(r.pos, len(r.text))
	if r.counted < r.lineStart || r.counted > pos {
		r.counted, r.columns = r.lineStart, 0
	}
	r.columns += utf8.RuneCountInString(r.text[r.counted:pos])
	r.counted = pos
	return r.columns + 1
}

func (r *jsonReader) newline() { r.line++; r.lineStart = r.pos }

func (r *jsonReader) space() error {
	for r.pos < len(r.text) {
		switch c := r.text[r.pos]; {
		case c == '\n':
			r.pos++
			r.newline()
		case c == ' ' || c == '\t' || c == '\r':
			r.pos++
		case strings.HasPrefix(r.text[r.pos:], "//"):
			end := strings.IndexByte(r.text[r.pos:], '\n')
			if end < 0 {
				r.pos = len(r.text)
			} else {
				r.pos += end
			}
		case strings.HasPrefix(r.text[r.pos:], "/*"):
			end := strings.Index(r.text[r.pos+2:], "*/")
			if end < 0 {
				return r.errorf("a comment that starts here has no end")
			}
			for stop := r.pos + 2 + end + 2; r.pos < stop; {
				r.pos++
				if r.text[r.pos-1] == '\n' {
					r.newline()
				}
			}
		default:
			return nil
		}
	}
	return nil
}

func (r *jsonReader) value() (*node, error) {
	if r.pos >= len(r.text) {
		return nil, r.errorf("the template ends where a value is expected")
	}
	if r.nodes++; r.nodes > r.limits.Nodes {
		return nil, r.errorf("the template has more than %d values", r.limits.Nodes)
	}
	n := &node{line: r.line, col: r.column()}
	start := r.pos
	defer func() { n.size = r.pos - start }()
	switch c := r.text[r.pos]; {
	case c == '{' || c == '[':
		if r.depth++; r.depth > r.limits.Depth {
			return nil, r.errorf("the template nests deeper than %d levels", r.limits.Depth)
		}
		var err error
		if c == '{' {
			err = r.object(n)
		} else {
			err = r.array(n)
		}
		r.depth--
		return n, err
	case c == '"':
		n.kind = kindString
		s, err := r.str()
		n.text = s
		return n, err
	case c == '-' || c >= '0' && c <= '9':
		return n, r.number(n)
	}
	for word, v := range map[string]any{"true": true, "false": false, "null": nil} {
		if strings.HasPrefix(r.text[r.pos:], word) {
			r.pos += len(word)
			if v != nil {
				n.kind, n.value = kindBool, v
			}
			return n, nil
		}
	}
	c, _ := utf8.DecodeRuneInString(r.text[r.pos:])
	return nil, r.errorf("%q where a value is expected", c)
}

func (r *jsonReader) object(n *node) error {
	n.kind, n.index = kindObject, map[string]*node{}
	r.pos++
	for first := true; ; first = false {
		if err := r.space(); err != nil {
			return err
		}
		if r.pos < len(r.text) && r.text[r.pos] == '}' && first {
			r.pos++
			return nil
		}
		if r.pos >= len(r.text) || r.text[r.pos] != '"' {
			return r.errorf("the name of a member, in double quotes, is expected")
		}
		line, col := r.line, r.column()
		key, err := r.str()
		if err != nil {
			return err
		}
		if err := r.space(); err != nil {
			return err
		}
		if r.pos >= len(r.text) || r.text[r.pos] != ':' {
			return r.errorf("a colon is expected after %q", key)
		}
		r.pos++
		if err := r.space(); err != nil {
			return err
		}
		m, err := r.value()
		if err != nil {
			return err
		}
		m.parent, m.key = n, key
		lower := strings.ToLower(key)
		if n.index[lower] == nil {
			n.index[lower] = m
		} else if n.exact(key) != nil {
			return invalid(m.path(), line, col, "the member %q stands twice", key)
		}
		n.members = append(n.members, m)
		if done, err := r.next('}'); done || err != nil {
			return err
		}
	}
}

func (r *jsonReader) array(n *node) error {
	n.kind = kindArray
	r.pos++
	for first := true; ; first = false {
		if err := r.space(); err != nil {
			return err
		}
		if r.pos < len(r.text) && r.text[r.pos] == ']' && first {
			r.pos++
			return nil
		}
		m, err := r.value()
		if err != nil {
			return err
		}
		m.parent, m.at = n, len(n.items)
		n.items = append(n.items, m)
		if done, err := r.next(']'); done || err != nil {
			return err
		}
	}
}

// next reads a comma, or the closing character and then answers true.
func (r *jsonReader) next(closing byte) (bool, error) {
	if err := r.space(); err != nil {
		return false, err
	}
	switch {
	case r.pos < len(r.text) && r.text[r.pos] == ',':
		r.pos++
		return false, nil
	case r.pos < len(r.text) && r.text[r.pos] == closing:
		r.pos++
		return true, nil
	}
	return false, r.errorf("a comma or %q is expected", rune(closing))
}

func (r *jsonReader) number(n *node) error {
	start := r.pos
	for r.pos < len(r.text) && strings.IndexByte("+-.eE0123456789", r.text[r.pos]) >= 0 {
		r.pos++
	}
	v, err := parseNumber(r.text[start:r.pos])
	if err != nil {
		return r.errorf("%q is not a number of JSON", r.text[start:r.pos])
	}
	n.kind, n.value = kindNumber, v
	return nil
}

// parseNumber returns an int64 where the text is a whole number that fits,
// else a float64.
func parseNumber(s string) (any, error) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	if strings.HasPrefix(s, "+") || strings.HasSuffix(s, ".") {
		return nil, strconv.ErrSyntax
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (r *jsonReader) str() (string, error) {
	line, col := r.line, r.column() // for a string without end
	r.pos++
	from := r.pos
	for r.pos < len(r.text) && r.text[r.pos] != '"' && r.text[r.pos] != '\\' && r.text[r.pos] != '\n' {
		r.pos++
	}
	if r.pos < len(r.text) && r.text[r.pos] == '"' {
		r.pos++
		return r.text[from : r.pos-1], nil
	}
	var b strings.Builder
	b.WriteString(r.text[from:r.pos])
	for r.pos < len(r.text) {
		switch c := r.text[r.pos]; c {
		case '"':
			r.pos++
			return b.String(), nil
		case '\\':
			if err := r.escape(&b); err != nil {
				return "", err
			}
		default:
			b.WriteByte(c)
			r.pos++
			if c == '\n' {
				r.newline()
			}
		}
	}
	return "", invalid("$", line, col, "a string that starts here has no end")
}

func (r *jsonReader) escape(b *strings.Builder) error {
	if r.pos+1 >= len(r.text) {
		return r.errorf("the template ends inside a string")
	}
	c := r.text[r.pos+1]
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		b.WriteByte("\"\\/\b\f\n\r\t"[i])
		r.pos += 2
		return nil
	}
	if c != 'u' {
		return r.errorf("%q is not an escape of JSON", `\`+string(c))
	}
	u, ok := r.hex(r.pos + 2)
	if !ok {
		return r.errorf(`\u must be followed by four hexadecimal digits`)
	}
	r.pos += 6
	if utf16.IsSurrogate(u) && strings.HasPrefix(r.text[min(r.pos, len(r.text)):], `\u`) {
		if low, ok := r.hex(r.pos + 2); ok && utf16.DecodeRune(u, low) != utf8.RuneError {
			u = utf16.DecodeRune(u, low)
			r.pos += 6
		}
	}
	b.WriteRune(u)
	return nil
}

func (r *jsonReader) hex(at int) (rune, bool) {
	if at+4 > len(r.text) {
		return 0, false
	}
	u, err := strconv.ParseUint(r.text[at:at+4], 16, 16)
	return rune(u), err == nil
}

func (n *node) errorf(format string, args ...any) error {
	return invalid(n.path(), n.line, n.col, format, args...)
}

// want returns an error unless the node is of one of the kinds.
func (n *node) want(what string, kinds ...kind) error {
	var names []string
	for _, k := range kinds {
		if n.kind == k {
			return nil
		}
		names = append(names, k.String())
	}
	return n.errorf("%s must be %s, it is %s", what, strings.Join(names, " or "), n.kind)
}

// raw writes the node as JSON, expressions as they stand.
func (n *node) raw() any {
	switch n.kind {
	case kindObject:
		o := NewObject()
		for _, m := range n.members {
			o.Set(m.key, m.raw())
		}
		return o
	case kindArray:
		a := make([]any, len(n.items))
		for i, m := range n.items {
			a[i] = m.raw()
		}
		return a
	case kindString:
		return n.text
	}
	return n.value
}
