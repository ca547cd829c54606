package local

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/radial-project/radial/internal/conceal"
)

const (
	// longestLine of an extension's output is what is logged of a line.
	longestLine = 8 << 10
	// tailLines are kept for the error that says why it ended.
	tailLines = 10
	// grace is how long after a call its secrets are still looked for: what a
	// program says comes late.
	grace = 5 * time.Minute
)

// logged is the log of an extension's output. A line is concealed when it is
// written, against the secrets of every call that is under way or was of late:
// the process is shared, and a line does not say whose it is.
type logged struct {
	log *slog.Logger

	mu    sync.Mutex
	calls map[*conceal.Values]*guarded
	last  []string
}

type guarded struct {
	calls int
	until time.Time // once calls is 0
}

func newLogged(log *slog.Logger) *logged {
	return &logged{log: log, calls: map[*conceal.Values]*guarded{}}
}

func (l *logged) guard(values []*conceal.Values) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for v, g := range l.calls {
		if g.calls == 0 && now.After(g.until) {
			delete(l.calls, v)
		}
	}
	for _, v := range values {
		if v == nil {
			continue
		}
		if l.calls[v] == nil {
			l.calls[v] = &guarded{}
		}
		l.calls[v].calls++
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, v := range values {
			if g := l.calls[v]; v != nil && g != nil {
				g.calls--
				g.until = time.Now().Add(grace)
			}
		}
	}
}

func (l *logged) line(text string) {
	text = strings.TrimRight(strings.ToValidUTF8(text, "\uFFFD"), "\r\n")
	if strings.TrimSpace(text) == "" {
		return
	}
	l.mu.Lock()
	for v := range l.calls {
		text = v.Text(text)
	}
	if len(text) > longestLine {
		text = strings.ToValidUTF8(text[:longestLine], "") + "…"
	}
	if l.last = append(l.last, text); len(l.last) > tailLines {
		l.last = l.last[1:]
	}
	l.mu.Unlock()
	l.log.Info("extension says", "line", text)
}

// forget begins the tail anew.
func (l *logged) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = nil
}

// tail is the end of the output, as the end of an error's sentence.
func (l *logged) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == 0 {
		return "; it said nothing"
	}
	return "; its last words: " + strings.Join(l.last, " | ")
}

// writer cuts output into lines.
func (l *logged) writer() io.Writer { return &lines{to: l} }

type lines struct {
	mu   sync.Mutex
	to   *logged
	rest []byte
}

// most of a line is held back until its end, up to what a secret may be long:
// only whole lines can be concealed.
const heldLine = 1 << 20

func (w *lines) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, b...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			break
		}
		w.to.line(string(w.rest[:i]))
		w.rest = w.rest[i+1:]
	}
	if len(w.rest) > heldLine {
		w.to.line("(a line of more than 1 MB is left out)")
		w.rest = nil
	}
	return len(b), nil
}
