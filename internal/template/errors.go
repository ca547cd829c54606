package template

import (
	"errors"
	"fmt"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// invalid makes the error of a fault at a place of the template.
func invalid(path string, line, col int, format string, args ...any) *core.Error {
	return core.Errorf(core.CodeInvalidTemplate, "%s (line %d, column %d): %s",
		path, line, col, fmt.Sprintf(format, args...)).WithTarget(path)
}

// exprError is a fault inside an expression, before the node that holds the
// expression gives it a place.
type exprError struct {
	off int // byte offset in the text of the expression
	msg string
	// safe is msg without the values that it quotes; "" when it quotes none.
	safe string
}

func (e *exprError) Error() string { return e.msg }

func exprErrorf(off int, format string, args ...any) error {
	return &exprError{off, fmt.Sprintf(format, args...), withheld(format, args)}
}

// locate gives a fault of an expression the place of the node that holds it.
// A fault that has a place already keeps it.
func (n *node) locate(err error) error {
	var e *exprError
	if !errors.As(err, &e) {
		return err
	}
	// Column of the quote, the quote itself, and the offset in characters. In
	// a string with escapes this is a few characters early.
	col := n.col + 1 + len([]rune(n.text[:min(e.off, len(n.text))]))
	return invalid(n.path(), n.line, col, "%s", e.msg)
}

// errRuntime says that a value is known only while the deployment runs.
var errRuntime = errors.New("needs the state of a resource that is not made yet")

// runtimeError is errRuntime with the function that asked.
type runtimeError struct{ function string }

func (e *runtimeError) Error() string        { return e.function + "() " + errRuntime.Error() }
func (e *runtimeError) Is(target error) bool { return target == errRuntime }

// nearest returns the candidate closest to name, or "" when none is close.
func nearest(name string, candidates []string) string {
	best, distance := "", max(2, len(name)/3)+1
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(name), strings.ToLower(c), distance); d < distance {
			best, distance = c, d
		}
	}
	return best
}

// didYouMean is the end of a message about an unknown name.
func didYouMean(name string, candidates []string) string {
	if c := nearest(name, candidates); c != "" {
		return fmt.Sprintf("; did you mean %q?", c)
	}
	return ""
}

// editDistance counts insertions, deletions, replacements and swaps of
// neighbours; it stops at limit.
func editDistance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	var before []int
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur := make([]int, len(b)+1)
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev = prev, cur
	}
	return prev[len(b)]
}

// needsRuntime is errRuntime with its place.
type needsRuntime struct{ text string }

func (e *needsRuntime) Error() string        { return e.text }
func (e *needsRuntime) Is(target error) bool { return target == errRuntime }

// NeedsRuntime reports whether an evaluation before the deployment (with a nil
// [Runtime]) failed only for what a running deployment will know.
func NeedsRuntime(err error) bool { return errors.Is(err, errRuntime) }
