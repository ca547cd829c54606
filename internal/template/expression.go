package template

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// expression is a node of a parsed expression.
//
//	expr    := primary postfix*
//	primary := name '(' args ')' | namespace '.' name '(' args ')' | string | integer
//	postfix := '.' name | '[' expr ']'
//
// There are no operators and no literals but strings and integers: true,
// false and null are functions.
type expression interface {
	// offset is the place of the expression in its text, in bytes.
	offset() int
}

type (
	stringLiteral struct {
		off   int
		value string
	}
	intLiteral struct {
		off   int
		value int64
	}
	// call is a call of a built-in function, or of a user's when namespace is
	// not "".
	call struct {
		off       int
		namespace string
		name      string // as written
		args      []expression
		fn        *function     // bound when the template is checked
		user      *userFunction // likewise
	}
	property struct {
		off  int
		base expression
		name string
	}
	element struct {
		off   int
		base  expression
		index expression
	}
)

func (e *stringLiteral) offset() int { return e.off }
func (e *intLiteral) offset() int    { return e.off }
func (e *call) offset() int          { return e.off }
func (e *property) offset() int      { return e.off }
func (e *element) offset() int       { return e.off }

// isExpression reports whether a text is one expression, and returns its
// literal value when it is not: a text that starts with [[ and ends with ] is
// a literal with one bracket taken off.
func isExpression(text string) (literal string, is bool) {
	if len(text) < 2 || text[0] != '[' || text[len(text)-1] != ']' {
		return text, false
	}
	if text[1] == '[' {
		return text[1:], false
	}
	return "", true
}

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenName
	tokenString
	tokenInt
	tokenPunct // one of ( ) [ ] . ,
)

type token struct {
	kind tokenKind
	off  int
	text string
	num  int64
}

func (t token) String() string {
	switch t.kind {
	case tokenEnd:
		return "the end of the expression"
	case tokenString:
		return "a string"
	default:
		return strconv.Quote(t.text)
	}
}

type exprParser struct {
	text   string // without the closing bracket
	pos    int
	tok    token
	depth  int
	limits Limits
}

// parseExpression parses a text that isExpression.
func parseExpression(text string, limits Limits) (expression, error) {
	if n := utf8.RuneCountInString(text); n > limits.ExpressionLength {
		return nil, exprErrorf(0, "the expression has %d characters; the limit is %d", n, limits.ExpressionLength)
	}
	p := &exprParser{text: text[:len(text)-1], pos: 1, limits: limits}
	if err := p.advance(); err != nil {
		return nil, err
	}
	e, err := p.expr()
	if err != nil {
		return nil, err
	}
	if p.tok.kind != tokenEnd {
		return nil, exprErrorf(p.tok.off, "%s where the expression should end", p.tok)
	}
	return e, nil
}

func (p *exprParser) advance() error {
	for p.pos < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
	p.tok = token{off: p.pos}
	if p.pos >= len(p.text) {
		return nil
	}
	c := p.text[p.pos]
	switch {
	case c == '\'':
		return p.str()
	case isNameStart(c):
		start := p.pos
		for p.pos < len(p.text) && (isNameStart(p.text[p.pos]) || isDigit(p.text[p.pos])) {
			p.pos++
		}
		p.tok.kind, p.tok.text = tokenName, p.text[start:p.pos]
		return nil
	case isDigit(c), c == '-' && p.pos+1 < len(p.text) && isDigit(p.text[p.pos+1]):
		start := p.pos
		p.pos++
		for p.pos < len(p.text) && isDigit(p.text[p.pos]) {
			p.pos++
		}
		v, err := strconv.ParseInt(p.text[start:p.pos], 10, 64)
		if err != nil {
			return exprErrorf(start, "the integer is out of the range of 64 bits")
		}
		p.tok.kind, p.tok.text, p.tok.num = tokenInt, p.text[start:p.pos], v
		return nil
	case strings.IndexByte("()[].,", c) >= 0:
		p.tok.kind, p.tok.text = tokenPunct, p.text[p.pos:p.pos+1]
		p.pos++
		return nil
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.pos:])
	return exprErrorf(p.pos, "%q has no place in an expression", r)
}

// str reads a string: everything up to a single quote; two of them stand for
// one. There are no other escapes.
func (p *exprParser) str() error {
	start := p.pos
	var b strings.Builder
	for p.pos++; p.pos < len(p.text); {
		quote := strings.IndexByte(p.text[p.pos:], '\'')
		if quote < 0 {
			break
		}
		piece := p.text[p.pos : p.pos+quote]
		p.pos += quote + 1
		if p.pos >= len(p.text) || p.text[p.pos] != '\'' {
			if b.Len() > 0 {
				b.WriteString(piece)
				piece = b.String()
			}
			p.tok.kind, p.tok.text = tokenString, piece
			return nil
		}
		b.WriteString(piece)
		b.WriteByte('\'')
		p.pos++
	}
	return exprErrorf(start, "a string that starts here has no closing quote")
}

func isNameStart(c byte) bool {
	return c == '_' || c == '$' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func (p *exprParser) punct(c string) bool { return p.tok.kind == tokenPunct && p.tok.text == c }

func (p *exprParser) expect(c, where string) error {
	if !p.punct(c) {
		return exprErrorf(p.tok.off, "%q is expected %s, here is %s", c, where, p.tok)
	}
	return p.advance()
}

func (p *exprParser) expr() (expression, error) {
	if p.depth++; p.depth > p.limits.Depth {
		return nil, exprErrorf(p.tok.off, "the expression nests deeper than %d levels", p.limits.Depth)
	}
	defer func() { p.depth-- }()
	e, err := p.primary()
	if err != nil {
		return nil, err
	}
	for n := 0; ; n++ {
		off := p.tok.off
		switch {
		case n > p.limits.Depth:
			return nil, exprErrorf(off, "more than %d accesses follow each other", p.limits.Depth)
		case p.punct("."):
			if err := p.advance(); err != nil {
				return nil, err
			}
			if p.tok.kind != tokenName {
				return nil, exprErrorf(p.tok.off, "the name of a property is expected after the dot, here is %s", p.tok)
			}
			e = &property{off, e, p.tok.text}
			if err := p.advance(); err != nil {
				return nil, err
			}
		case p.punct("["):
			if err := p.advance(); err != nil {
				return nil, err
			}
			index, err := p.expr()
			if err != nil {
				return nil, err
			}
			if err := p.expect("]", "after the index"); err != nil {
				return nil, err
			}
			e = &element{off, e, index}
		default:
			return e, nil
		}
	}
}

func (p *exprParser) primary() (expression, error) {
	t := p.tok
	switch t.kind {
	case tokenString:
		return &stringLiteral{t.off, t.text}, p.advance()
	case tokenInt:
		return &intLiteral{t.off, t.num}, p.advance()
	case tokenName:
		c := &call{off: t.off, name: t.text}
		if err := p.advance(); err != nil {
			return nil, err
		}
		if p.punct(".") {
			if err := p.advance(); err != nil {
				return nil, err
			}
			if p.tok.kind != tokenName {
				return nil, exprErrorf(p.tok.off, "the name of a function is expected after %q", t.text+".")
			}
			c.namespace, c.name = t.text, p.tok.text
			if err := p.advance(); err != nil {
				return nil, err
			}
		}
		if !p.punct("(") {
			return nil, exprErrorf(t.off, "%q must be followed by parentheses: a value is a call (parameters('x'), true()), or a string in single quotes", t.text)
		}
		return c, p.args(c)
	}
	return nil, exprErrorf(t.off, "a call, a string or an integer is expected, here is %s", t)
}

func (p *exprParser) args(c *call) error {
	if err := p.advance(); err != nil {
		return err
	}
	if p.punct(")") {
		return p.advance()
	}
	for {
		a, err := p.expr()
		if err != nil {
			return err
		}
		c.args = append(c.args, a)
		if p.punct(",") {
			if err := p.advance(); err != nil {
				return err
			}
			continue
		}
		if !p.punct(")") {
			return p.expect(")", "after the arguments of "+c.name)
		}
		return p.advance()
	}
}

// walk visits an expression and all inside it.
func walk(e expression, visit func(expression) error) error {
	if err := visit(e); err != nil {
		return err
	}
	switch e := e.(type) {
	case *call:
		for _, a := range e.args {
			if err := walk(a, visit); err != nil {
				return err
			}
		}
	case *property:
		return walk(e.base, visit)
	case *element:
		if err := walk(e.base, visit); err != nil {
			return err
		}
		return walk(e.index, visit)
	}
	return nil
}
