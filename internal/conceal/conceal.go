// Package conceal keeps secrets out of texts that are made while they are in
// use: errors, messages and logs of a recipe's run (D-24).
//
// Whoever hands a secret on registers it with the run's context; what the run
// says goes through [Values.Text] before it is kept or shown. A template, an API
// server or a tool may quote any value that it was given, and each in its own
// spelling, so every value is looked for in the usual ones: plain, quoted,
// JSON, base64, percent-encoded, and cut off.
package conceal

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/radial-project/radial/internal/core"
)

// Mark stands where a secret stood.
const Mark = "[secret]"

const (
	// short values are looked for in quotes only: anywhere else they would
	// take words apart.
	short = 4
	// cut is how many characters of either end of a value give it away.
	cut = 12
)

// Values are the secrets of one run. The zero value is ready; methods may be
// called at the same time.
type Values struct {
	mu sync.Mutex
	// forms are spellings, the longest first.
	forms []string
	known map[string]bool
}

type contextKey struct{}

// With returns a context that carries values to conceal.
func With(ctx context.Context) (context.Context, *Values) {
	v := new(Values)
	return context.WithValue(ctx, contextKey{}, v), v
}

// Add registers every string and number in a value with the run of ctx; it does
// nothing outside of one.
func Add(ctx context.Context, v any) {
	if values, ok := ctx.Value(contextKey{}).(*Values); ok {
		values.Add(v)
	}
}

// From returns the values of the run of ctx, nil outside of one.
func From(ctx context.Context) *Values {
	values, _ := ctx.Value(contextKey{}).(*Values)
	return values
}

// Text is [Values.Text] of the run of ctx.
func Text(ctx context.Context, text string) string {
	if values, ok := ctx.Value(contextKey{}).(*Values); ok {
		return values.Text(text)
	}
	return text
}

// Add registers every string and number in a JSON value.
func (s *Values) Add(v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.walk(v)
	slices.SortFunc(s.forms, func(a, b string) int { return len(b) - len(a) })
}

func (s *Values) walk(v any) {
	switch v := v.(type) {
	case string:
		s.value(v)
	case json.Number, int, int32, int64, uint64, float64:
		if text := fmt.Sprint(v); len(text) >= short {
			s.form(text)
		}
	case []byte:
		s.value(string(v))
	case json.RawMessage:
		var decoded any
		if json.Unmarshal(v, &decoded) == nil {
			s.walk(decoded)
		}
	case map[string]any:
		for _, e := range v {
			s.walk(e)
		}
	case map[string]string:
		for _, e := range v {
			s.value(e)
		}
	case []any:
		for _, e := range v {
			s.walk(e)
		}
	}
}

// value registers a string, and what in it is a secret by itself: the lines of
// a key or certificate, the password in a URL.
func (s *Values) value(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	s.spell(text)
	if strings.Contains(text, "\n") {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); len(line) >= cut {
				s.spell(line)
			}
		}
	}
	if u, err := url.Parse(text); err == nil && u.User != nil {
		if password, ok := u.User.Password(); ok && len(password) >= short {
			s.spell(password)
		}
	}
}

func (s *Values) spell(text string) {
	s.form(text)
	if len(text) < short {
		return
	}
	s.form(strings.Trim(strconv.Quote(text), `"`))
	if raw, err := json.Marshal(text); err == nil {
		s.form(strings.Trim(string(raw), `"`))
	}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		s.form(encoding.EncodeToString([]byte(text)))
	}
	s.form(url.QueryEscape(text))
	s.form(url.PathEscape(text))
}

func (s *Values) form(text string) {
	if text == "" || s.known[text] {
		return
	}
	if s.known == nil {
		s.known = map[string]bool{}
	}
	s.known[text] = true
	s.forms = append(s.forms, text)
}

// Text returns text with [Mark] in the place of every registered value.
func (s *Values) Text(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.forms {
		if len(f) < short {
			for _, quote := range []string{`"`, "'", "`"} {
				text = strings.ReplaceAll(text, quote+f+quote, quote+Mark+quote)
			}
			continue
		}
		text = strings.ReplaceAll(text, f, Mark)
	}
	for _, f := range s.forms {
		if len(f) > cut {
			text = withoutEnds(text, f)
		}
	}
	return text
}

// withoutEnds conceals values that a message has cut off at either end.
func withoutEnds(text, form string) string {
	for {
		i := strings.Index(text, form[:cut])
		if i < 0 {
			break
		}
		n := cut
		for n < len(form) && i+n < len(text) && text[i+n] == form[n] {
			n++
		}
		text = text[:i] + Mark + text[i+n:]
	}
	tail := form[len(form)-cut:]
	for {
		i := strings.Index(text, tail)
		if i < 0 {
			return text
		}
		end, n := i+cut, cut
		for n < len(form) && end-n > 0 && text[end-n-1] == form[len(form)-n-1] {
			n++
		}
		text = text[:end-n] + Mark + text[end:]
	}
}

// Error returns err with no registered value in its texts; err itself when
// there was none. The code stays; a cause that held one does not.
func (s *Values) Error(err error) error {
	if err == nil {
		return nil
	}
	e := core.AsError(err)
	clean := s.clean(*e)
	if same(*e, clean) {
		return err
	}
	return &clean
}

func (s *Values) clean(e core.Error) core.Error {
	out := core.Error{Code: e.Code, Message: s.Text(e.Message), Target: s.Text(e.Target)}
	for _, d := range e.Details {
		out.Details = append(out.Details, s.clean(d))
	}
	for _, i := range e.Info {
		raw, err := json.Marshal(i.Info)
		if err != nil {
			continue // what cannot be looked at is not shown
		}
		if text := s.Text(string(raw)); text != string(raw) {
			i.Info = nil
			if json.Unmarshal([]byte(text), &i.Info) != nil {
				i.Info = Mark
			}
		}
		out.Info = append(out.Info, i)
	}
	return out
}

func same(a, b core.Error) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
