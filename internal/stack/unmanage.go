package stack

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/extension"
)

// The first pause between passes, and the longest.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
)

// unmanage deletes resources, or lets them go, by the engine: dependants first, in
// passes as long as one gets further, and a few more with longer and longer pauses
// (S-53). What is left stays managed with its reason, which is the failure.
func (r *run) unmanage(ctx context.Context, gone []Managed, action Action) (waiting bool, failure *core.Error, err error) {
	verb, past := "deleting", "deleted"
	if action == Detach {
		verb, past = "letting go of", "let go of"
	}
	r.phase(StateUnmanage, fmt.Sprintf("%s %s", verb, count(len(gone))))
	left := gone
	// One that waited goes on in the pass in which it did.
	first := r.passes(action)
	for pass, idle := first, first-1; len(left) > 0; pass++ {
		done, still, waiting, err := r.pass(ctx, left, action, pass)
		if err != nil {
			return false, nil, err
		}
		if waiting {
			return true, nil, nil
		}
		if action == Detach {
			r.next.Detached = merge(r.next.Detached, done)
		} else {
			r.next.Deleted = merge(r.next.Deleted, done)
		}
		r.drop(done)
		left = still
		if len(done) > 0 && len(left) > 0 {
			if err := r.save(ctx, StateUnmanage); err != nil {
				return false, nil, err
			}
			if pass == 1 || pass > first { // else they were gone before it waited
				idle = 0
				continue
			}
		}
		if idle++; len(left) == 0 || idle >= r.o.Passes || !hopeful(left) {
			break
		}
		wait := min(firstPause<<(idle-1), lastPause)
		r.phase(StateUnmanage, fmt.Sprintf("%s cannot be %s yet: next try in %s", count(len(left)), past, wait))
		if err := r.o.Pause(ctx, wait); err != nil {
			return false, nil, err
		}
	}
	return false, r.remaining(left, past), nil
}

func count(n int) string {
	if n == 1 {
		return "1 resource"
	}
	return fmt.Sprintf("%d resources", n)
}

// pass asks the engine once.
func (r *run) pass(ctx context.Context, left []Managed, action Action, n int) (done []deploy.Affected, still []Managed, waiting bool, err error) {
	text, err := Reconstruct(r.next.ID, left, action)
	if err != nil {
		return nil, nil, false, err
	}
	q := r.request(fmt.Sprintf("%s-%s-%d", r.next.ID.Name(), action, n), text)
	q.Run = r.passRun(action, n)
	q.Previous, q.Record = r.s.Journal(), r.s.Note
	res, err := r.o.Engine.Deploy(ctx, q)
	if stopped(ctx, err) {
		return nil, nil, false, err
	}
	if err == nil && res.Waiting {
		return nil, nil, true, nil
	}
	if res == nil {
		res = &deploy.Result{}
	}
	answers := setOf(res.Deleted, itself)
	for _, m := range left {
		i, ok := answers.find(m.Affected)
		if !ok && m.Scope != nil { // where the scope could not even be read
			i, ok = answers.find(deploy.Affected{ID: m.ID})
		}
		switch {
		case ok && res.Deleted[i].Error == nil:
			a := m.Affected
			a.Note, a.Unverified, a.Error = res.Deleted[i].Note, res.Deleted[i].Unverified, nil
			done = append(done, a)
			continue
		case ok:
			m.Error = res.Deleted[i].Error
		case err != nil:
			m.Error = core.AsError(err)
		default:
			m.Error = core.Errorf(core.CodeInternal, "the engine did not say what became of it")
		}
		still = append(still, m)
	}
	return done, still, false, nil
}

// passRun names the run of one pass: what a pass has begun it does not begin again.
func (r *run) passRun(action Action, n int) string {
	return fmt.Sprintf("%s/%s/%d", r.q.Run, action, n)
}

// passes is the number of the pass to begin with: the last of which the journal
// tells, since an attempt before waited in it.
func (r *run) passes(action Action) int {
	last := 1
	prefix := strings.TrimSuffix(r.passRun(action, 0), "0")
	for _, o := range r.s.Journal() {
		var h deploy.Handle
		if !bytes.Contains(o.Handle, []byte(r.q.Run)) || json.Unmarshal(o.Handle, &h) != nil {
			continue
		}
		if text, ok := strings.CutPrefix(h.Run, prefix); ok {
			if n, err := strconv.Atoi(text); err == nil {
				last = max(last, n)
			}
		}
	}
	return last
}

// hopeful reports whether another try may help at least one.
func hopeful(left []Managed) bool {
	for _, m := range left {
		switch m.Error.Code {
		case extension.CodeWrongTarget, extension.CodeCredentialsNeeded, core.CodeForbidden, core.CodeInvalidTemplate, core.CodeInvalidAPIVersion, core.CodeInvalidResourceType:
		default:
			return true
		}
	}
	return false
}

// remaining marks what could not be unmanaged, and sums up why.
func (r *run) remaining(left []Managed, past string) *core.Error {
	if len(left) == 0 {
		return nil
	}
	r.next.Failed = nil
	at := setOf(r.next.Resources, ofManaged)
	details := make([]core.Error, 0, len(left))
	for _, m := range left {
		if i, ok := at[keyOf(m.Affected)]; ok {
			r.next.Resources[i].Status, r.next.Resources[i].Error = StatusDeleteFailed, m.Error
		}
		r.next.Failed = append(r.next.Failed, m.Affected)
		e := *m.Error
		e.Target = m.ID
		details = append(details, e)
	}
	sortAffected(r.next.Failed)
	// First the causes, then what was only left because of them.
	slices.SortStableFunc(details, func(a, b core.Error) int {
		return cmp.Or(leftOver(a)-leftOver(b), cmp.Compare(a.Target, b.Target))
	})
	message := details[0].Message
	if !strings.HasPrefix(message, details[0].Target+" was not ") { // the engine's own words begin so
		message = fmt.Sprintf("%s was not %s: %s", details[0].Target, past, message)
	}
	if len(details) > 1 {
		message = fmt.Sprintf("%d resources were not %s; the first: %s", len(details), past, message)
	}
	return core.Errorf(CodeUnmanage, "%s. They stay managed, and the next update of the stack tries again", message).WithDetails(details...)
}

func leftOver(e core.Error) int {
	if e.Code == deploy.CodeDeleteFailed {
		return 1
	}
	return 0
}

// merge adds to a list of the same run what is not in it.
func merge(list, more []deploy.Affected) []deploy.Affected {
	have := setOf(list, itself)
	for _, a := range more {
		if _, ok := have[keyOf(a)]; !ok {
			list = append(list, a)
		}
	}
	sortAffected(list)
	return list
}

// Removal is the end of a stack.
type Removal struct {
	// Request has the surroundings: Scope, Base, Run, Started, Secrets, Progress
	// and Park.
	Request  deploy.Request
	Unmanage Action
	Phase    func(s State, text string)
}

// Remove deletes what a stack manages, or lets it go, and then the stack. When
// something could not be deleted, the stack stays with it.
//
// Deny settings end last when objects are deleted, so that nobody gets between;
// and first when they are let go: whoever has them then may change them at once.
func (m *Manager) Remove(ctx context.Context, s Session, u Removal) (Outcome, error) {
	r := m.begin(s, u.Request, u.Phase)
	if err := r.save(ctx, StateDeleting); err != nil {
		return Outcome{}, err
	}
	if u.Unmanage == Detach {
		if fault, err := r.undeny(ctx); err != nil || fault != nil {
			return r.cut(ctx, fault, err)
		}
	} else if err := r.renewPolicies(ctx); err != nil && stopped(ctx, err) {
		return Outcome{}, err
	} // what cannot be renewed may still let us in: the deletions say what it does not
	if len(r.next.Resources) > 0 {
		waiting, fault, err := r.unmanage(ctx, append([]Managed(nil), r.next.Resources...), u.Unmanage)
		switch {
		case err != nil || fault != nil:
			return r.cut(ctx, fault, err)
		case waiting:
			return Outcome{Record: r.next, Waiting: true}, nil
		}
	}
	if fault, err := r.undeny(ctx); err != nil || fault != nil {
		return r.cut(ctx, fault, err)
	}
	if err := s.Remove(ctx); err != nil {
		return Outcome{}, err
	}
	return Outcome{Record: r.next, Removed: true}, nil
}

func (r *run) cut(ctx context.Context, fault *core.Error, err error) (Outcome, error) {
	if err != nil {
		return Outcome{}, err
	}
	return r.end(ctx, fault)
}
