package template

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

func stringFunctions() []function {
	return []function{
		{name: "string", min: 1, max: 1, eval: func(e *evaluator, args []any) (any, error) {
			s := toText(args[0])
			return s, e.charge(len(s))
		}},
		{name: "concat", min: 1, max: -1, eval: concat},
		{name: "format", min: 1, max: -1, eval: format},
		{name: "toLower", min: 1, max: 1, eval: onString(strings.ToLower)},
		{name: "toUpper", min: 1, max: 1, eval: onString(strings.ToUpper)},
		{name: "trim", min: 1, max: 1, eval: onString(strings.TrimSpace)},
		{name: "substring", min: 2, max: 3, eval: substring},
		{name: "replace", min: 3, max: 3, eval: replace},
		{name: "split", min: 2, max: 2, eval: split},
		{name: "join", min: 2, max: 2, eval: join},
		{name: "startsWith", min: 2, max: 2, eval: affix(func(s, a string) bool { return foldPrefix(s, a) })},
		{name: "endsWith", min: 2, max: 2, eval: affix(func(s, a string) bool { return foldSuffix(s, a) })},
		{name: "like", min: 2, max: 2, eval: affix(like)},
		{name: "padLeft", min: 2, max: 3, eval: padLeft},
		{name: "fail", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			s, err := argString(args, 0)
			if err != nil {
				return nil, err
			}
			return nil, failf("%s", s)
		}},
	}
}

func onString(op func(string) string) func(*evaluator, []any) (any, error) {
	return func(e *evaluator, args []any) (any, error) {
		s, err := argString(args, 0)
		if err != nil {
			return nil, err
		}
		out := op(s)
		return out, e.charge(len(out))
	}
}

// concat joins texts, or arrays when the first argument is one.
func concat(e *evaluator, args []any) (any, error) {
	if _, ok := args[0].([]any); ok {
		var all []any
		for i := range args {
			a, err := argArray(args, i)
			if err != nil {
				return nil, err
			}
			if err := e.charge(16 * len(a)); err != nil {
				return nil, err
			}
			all = append(all, a...)
		}
		return all, nil
	}
	var b strings.Builder
	for i, a := range args {
		switch a.(type) {
		case []any, *Object:
			return nil, wrongType(args, i, "a string")
		}
		b.WriteString(toText(a))
	}
	return b.String(), e.charge(b.Len())
}

// format replaces {n}, {n,width} and {n:form}; {{ and }} stand for braces.
func format(e *evaluator, args []any) (any, error) {
	f, err := argString(args, 0)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for i := 0; i < len(f); i++ {
		c := f[i]
		if c != '{' && c != '}' {
			b.WriteByte(c)
			continue
		}
		if i+1 < len(f) && f[i+1] == c {
			b.WriteByte(c)
			i++
			continue
		}
		if c == '}' {
			return nil, failf("the format has a } without {; write }} for a brace")
		}
		end := strings.IndexByte(f[i:], '}')
		if end < 0 {
			return nil, failf("the format has a { without }; write {{ for a brace")
		}
		if err := formatItem(e, &b, f[i+1:i+end], args); err != nil {
			return nil, err
		}
		i += end
	}
	return b.String(), e.charge(b.Len())
}

func formatItem(e *evaluator, b *strings.Builder, item string, args []any) error {
	item, form, _ := strings.Cut(item, ":")
	item, align, aligned := strings.Cut(item, ",")
	n, err := strconv.Atoi(strings.TrimSpace(item))
	if err != nil || n < 0 {
		return failf("the format has {%s} where {0}, {1} … are expected", item)
	}
	if n+1 >= len(args) {
		return failf("the format names {%d}, but %d values are given", n, len(args)-1)
	}
	text, err := formatValue(args[n+1], form)
	if err != nil {
		return err
	}
	if aligned {
		w, err := strconv.Atoi(strings.TrimSpace(align))
		if err != nil || w > 10_000 || w < -10_000 {
			return failf("the format has a width that is not a number up to 10000")
		}
		pad := strings.Repeat(" ", max(0, max(w, -w)-utf8.RuneCountInString(text)))
		if w < 0 {
			text += pad
		} else {
			text = pad + text
		}
	}
	if err := e.charge(len(text)); err != nil {
		return err
	}
	b.WriteString(text)
	return nil
}

func formatValue(v any, form string) (string, error) {
	switch v := v.(type) {
	case *Object, []any:
		return quoted(v), nil
	case int64:
		if form == "" {
			return strconv.FormatInt(v, 10), nil
		}
		width := 0
		if len(form) > 1 {
			w, err := strconv.Atoi(form[1:])
			if err != nil || w < 0 || w > 99 {
				return "", failf("the number format %q is not known", form)
			}
			width = w
		}
		switch form[0] {
		case 'd', 'D':
			if v < 0 {
				return fmt.Sprintf("-%0*d", width, -v), nil
			}
			return fmt.Sprintf("%0*d", width, v), nil
		case 'x':
			return fmt.Sprintf("%0*x", width, uint64(v)), nil
		case 'X':
			return fmt.Sprintf("%0*X", width, uint64(v)), nil
		case 'f', 'F':
			if len(form) == 1 {
				width = 2
			}
			return strconv.FormatFloat(float64(v), 'f', width, 64), nil
		}
		return "", failf("the number format %q is not supported (D, X and F are)", form)
	}
	return toText(v), nil
}

// quoted writes arrays and objects as format does: JSON with single quotes.
func quoted(v any) string {
	switch v := v.(type) {
	case *Object:
		parts := make([]string, 0, v.Len())
		for _, k := range v.Keys() {
			parts = append(parts, quoted(k)+":"+quoted(v.values[k]))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = quoted(e)
		}
		return "[" + strings.Join(parts, ",") + "]"
	case string:
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(v) + "'"
	}
	return toJSON(v)
}

func substring(_ *evaluator, args []any) (any, error) {
	s, err := argString(args, 0)
	if err != nil {
		return nil, err
	}
	r := []rune(s)
	start, err := argInt(args, 1)
	if err != nil {
		return nil, err
	}
	if start < 0 || start > int64(len(r)) {
		return nil, failf("the start %d is outside the text of %d characters", start, len(r))
	}
	length := int64(len(r)) - start
	if len(args) == 3 {
		if length, err = argInt(args, 2); err != nil {
			return nil, err
		}
	}
	if length < 0 || start+length > int64(len(r)) {
		return nil, failf("start %d and length %d reach beyond the text of %d characters", start, length, len(r))
	}
	return string(r[start : start+length]), nil
}

func replace(e *evaluator, args []any) (any, error) {
	var s [3]string
	for i := range s {
		var err error
		if s[i], err = argString(args, i); err != nil {
			return nil, err
		}
	}
	if s[1] == "" {
		return nil, failf("the text to replace is empty")
	}
	if err := e.charge(len(s[0]) + strings.Count(s[0], s[1])*len(s[2])); err != nil {
		return nil, err
	}
	return strings.ReplaceAll(s[0], s[1], s[2]), nil
}

// split cuts at a delimiter, or at any of an array of delimiters.
func split(e *evaluator, args []any) (any, error) {
	s, err := argString(args, 0)
	if err != nil {
		return nil, err
	}
	var delims []string
	if a, ok := args[1].([]any); ok {
		for i := range a {
			d, err := argString(a, i)
			if err != nil {
				return nil, err
			}
			delims = append(delims, d)
		}
	} else {
		d, err := argString(args, 1)
		if err != nil {
			return nil, err
		}
		delims = []string{d}
	}
	var parts []any
	for start, i := 0, 0; ; {
		cut := ""
		if i < len(s) {
			for _, d := range delims {
				if d != "" && strings.HasPrefix(s[i:], d) && len(d) > len(cut) {
					cut = d
				}
			}
		}
		switch {
		case i >= len(s):
			parts = append(parts, s[start:])
			return parts, e.charge(16 * len(parts))
		case cut != "":
			parts = append(parts, s[start:i])
			i += len(cut)
			start = i
		default:
			i++
		}
	}
}

func join(e *evaluator, args []any) (any, error) {
	a, err := argArray(args, 0)
	if err != nil {
		return nil, err
	}
	sep, err := argString(args, 1)
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(a))
	size := 0
	for i, v := range a {
		parts[i] = toText(v)
		size += len(parts[i]) + len(sep)
	}
	if err := e.charge(size); err != nil {
		return nil, err
	}
	return strings.Join(parts, sep), nil
}

func affix(op func(s, a string) bool) func(*evaluator, []any) (any, error) {
	return func(_ *evaluator, args []any) (any, error) {
		s, err := argString(args, 0)
		if err != nil {
			return nil, err
		}
		a, err := argString(args, 1)
		return op(s, a), err
	}
}

// foldPrefix and foldSuffix compare without case, as the language does.
func foldPrefix(s, p string) bool { return strings.HasPrefix(strings.ToLower(s), strings.ToLower(p)) }
func foldSuffix(s, p string) bool { return strings.HasSuffix(strings.ToLower(s), strings.ToLower(p)) }

// like matches without case; * stands for any text, ? for one character.
func like(s, pattern string) bool {
	text, pat := []rune(strings.ToLower(s)), []rune(strings.ToLower(pattern))
	i, j, star, mark := 0, 0, -1, 0
	for i < len(text) {
		switch {
		case j < len(pat) && pat[j] == '*':
			star, mark = j, i
			j++
		case j < len(pat) && (pat[j] == '?' || pat[j] == text[i]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = mark, star+1
		default:
			return false
		}
	}
	for j < len(pat) && pat[j] == '*' {
		j++
	}
	return j == len(pat)
}

func padLeft(e *evaluator, args []any) (any, error) {
	switch args[0].(type) {
	case string, int64:
	default:
		return nil, wrongType(args, 0, "a string or an int")
	}
	s := toText(args[0])
	width, err := argInt(args, 1)
	if err != nil {
		return nil, err
	}
	pad := " "
	if len(args) == 3 {
		if pad, err = argString(args, 2); err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(pad) != 1 {
			return nil, failf("the padding must be one character")
		}
	}
	if width > 1<<20 {
		return nil, failf("the total length %d is more than a text may have (%d)", width, 1<<20)
	}
	n := int(width) - utf8.RuneCountInString(s)
	if n <= 0 {
		return s, nil
	}
	if err := e.charge(n * len(pad)); err != nil {
		return nil, err
	}
	return strings.Repeat(pad, n) + s, nil
}
