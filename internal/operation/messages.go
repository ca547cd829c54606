package operation

import (
	"context"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// Bounds of an operation's log: a controller that says the same for ever must
// not fill the store.
const (
	maxMessages = 10000   // of one lease; a deployment says two of each resource
	maxMessage  = 2 << 10 // bytes
	gather      = 100 * time.Millisecond
)

// messages gathers what a controller says, so that many lines are one write.
type messages struct {
	job  *Job
	mu   sync.Mutex
	said int
	held []store.Message
	next *time.Timer
	// writing serialises writes, so that lines keep their order.
	writing sync.Mutex
}

// Say adds a line to the operation's log, for people: what is being done. It must
// hold no secret. It returns at once; the line is stored moments later, and
// before the operation ends.
func (j *Job) Say(text string) {
	l := &j.log
	text = strings.ToValidUTF8(text, "�")
	if len(text) > maxMessage {
		cut := maxMessage
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said++
	switch {
	case l.said > maxMessages:
		return
	case l.said == maxMessages:
		text = "(the log ends here: it is too long)"
	}
	l.held = append(l.held, store.Message{Time: j.pool.o.Now(), Text: text})
	if l.next == nil {
		l.next = time.AfterFunc(gather, func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			l.flush(ctx)
		})
	}
}

// flush stores what was said. Lines that the store does not take now are kept
// for the next time; those of a worker that lost its lease are of no interest.
func (l *messages) flush(ctx context.Context) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	held := l.held
	l.held = nil
	if l.next != nil {
		l.next.Stop()
		l.next = nil
	}
	l.mu.Unlock()
	if len(held) == 0 {
		return
	}
	op := l.job.Operation
	err := l.job.pool.o.Queue.Append(context.WithoutCancel(ctx), op.ID, op.Fence, held)
	if err == nil || core.IsCode(err, core.CodeFenced) {
		return
	}
	l.job.pool.o.Log.Warn("the log of an operation could not be stored", "operation", op.ID, "error", err.Error())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(held, l.held...)
}
