package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/cli/dev"
	"github.com/radial-project/radial/internal/core"
)

// pending is an operation that this run waits for.
type pending struct{ name, what string }

// explain writes an error for a person.
func (s *session) explain(err error) {
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(s.Err, "Interrupted. %s\n", s.goesOn())
		return
	case errors.Is(err, context.DeadlineExceeded) && s.timeout > 0:
		fmt.Fprintf(s.Err, "Error: not done within %s (--timeout). %s\n", s.timeout, s.goesOn())
		return
	}
	var e *core.Error
	if !errors.As(err, &e) {
		fmt.Fprintf(s.Err, "Error: %s\n", err)
		return
	}
	fmt.Fprint(s.Err, "Error: "+errorText(err.Error(), e.Details))
	if e.Code == core.CodeUnavailable && s.server == "" {
		if dir, _, err := s.stateDir(); err == nil {
			if url, _ := dev.Dir(dir).URL(); url != "" && e.Target == url {
				fmt.Fprintf(s.Err, "The address is from %s: radial dev status --dir %s tells what runs there.\n", dev.Dir(dir).URLFile(), dir)
			}
		}
	}
}

// goesOn says how what the run waited for stands, and what becomes of it.
func (s *session) goesOn() string {
	if s.stands != "" {
		if strings.HasSuffix(s.stands, "?") {
			return capital(s.stands)
		}
		return capital(s.stands) + "."
	}
	if p := s.waitingFor; p.name != "" {
		return fmt.Sprintf("The server goes on %[1]s: radial operation show %[2]s tells how it stands, radial operation cancel %[2]s ends it.", p.what, p.name)
	}
	return "What the server had accepted goes on there: radial operation list --live shows it."
}

// errorText is an error with its details below it. A message that strings several of them together is cut where
// they begin, so that each has a line.
func errorText(said string, details []core.Error) string {
	first, last := len(said), 0
	for _, d := range details {
		i := strings.Index(said[last:], d.Message) // in their order: one's words may begin with another's
		if i < 0 || len(details) < 2 {
			return said + "\n" + detailTree(said, details, "  ")
		}
		i += last
		last = i + len(d.Message)
		if before := d.Target + ": "; strings.HasSuffix(said[:i], before) {
			i -= len(before)
		}
		first = min(first, i)
	}
	if len(details) < 2 || first == 0 {
		return said + "\n"
	}
	head := strings.TrimRight(said[:first], " :;,") + ":"
	if rest := strings.TrimLeft(said[last:], " :;,."); rest != "" {
		return head + "\n" + detailTree(head, details, "  ") + rest + "\n"
	}
	return head + "\n" + detailTree(head, details, "  ")
}

// detailTree writes the details of an error, a line for each: what it is about, and what to do. What has been
// said above is not said again.
func detailTree(said string, details []core.Error, indent string) string {
	var b strings.Builder
	for _, d := range details {
		below := indent
		if !strings.Contains(said, d.Message) {
			line := oneLine(d.Message)
			if d.Target != "" && !mentions(d.Message, d.Target) {
				line = oneLine(d.Target) + ": " + line
			}
			fmt.Fprintf(&b, "%s- %s\n", indent, line)
			below += "  "
		}
		b.WriteString(detailTree(said+"\n"+d.Message, d.Details, below))
	}
	return b.String()
}

// mentions says whether a text has a name as a word of its own.
func mentions(text, name string) bool {
	part := func(r rune) bool { return r == '_' || r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	for from := 0; ; {
		i := strings.Index(text[from:], name)
		if i < 0 {
			return false
		}
		i += from
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(name):])
		if !part(before) && !part(after) {
			return true
		}
		from = i + 1
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// wireError is an error that an operation keeps.
func wireError(e arm.Error) core.Error {
	out := core.Error{Code: core.Code(e.Code), Message: e.Message, Target: e.Target}
	for _, d := range e.Details {
		out.Details = append(out.Details, wireError(d))
	}
	for _, info := range e.AdditionalInfo {
		var v any
		if json.Unmarshal(info.Info, &v) == nil {
			out.Info = append(out.Info, core.ErrorInfo{Type: info.Type, Info: v})
		}
	}
	return out
}
