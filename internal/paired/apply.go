package paired

import (
	"context"
	"strings"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
)

// Intend prepares m for a goal before anything is sent: the goal's id becomes
// m.Resource, and what m was paired with before moves to m.Previous. It reports
// whether m changed in a way that must be stored before Apply, so that a
// process killed right after its PUT leaves an object that still knows the id.
func Intend(goal Goal, m *Memory) bool {
	want := goal.ID.String()
	if strings.EqualFold(m.Resource, want) || m.Resource != "" && strings.EqualFold(m.Requested, want) {
		return false
	}
	if m.Resource != "" {
		m.Previous = append(without(m.Previous, m.Resource), Former{m.Resource, m.APIVersion})
	}
	m.Previous = without(m.Previous, want)
	m.Requested, m.Resource, m.APIVersion = want, want, goal.APIVersion
	m.AppliedHash, m.LiveHash, m.Failure = "", "", nil
	return true
}

func without(all []Former, id string) []Former {
	var kept []Former
	for _, i := range all {
		if !strings.EqualFold(i.ID, id) {
			kept = append(kept, i)
		}
	}
	return kept
}

// action is what a snapshot asks for.
type action string

const (
	actPut      action = "put"
	actWait     action = "wait"     // another operation holds the resource
	actConflict action = "conflict" // another owner has it
	actHold     action = "hold"     // failed, and the next try is not due
	actDone     action = "done"
)

// snapshot is all that a decision looks at.
type snapshot struct {
	goal  Goal
	hash  string
	live  *arm.Resource // nil: there is none
	mem   Memory
	tries bool // a failed goal's pause is over
}

// decide is the flowchart's middle: from what is to what to do. It is called
// with no operation of ours in flight.
func decide(s snapshot) (action, string) {
	failed := s.mem.Failure != nil && s.mem.Failure.Hash == s.hash && s.mem.Failure.RetryOn == s.goal.RetryOn
	if s.live != nil {
		if owned := s.live.Owner != nil && s.live.Owner.UID != ""; owned && s.live.Owner.UID != ownerUID(s.goal) {
			return actConflict, "another object has the resource"
		}
		if !client.State(s.live).Terminal() {
			return actWait, "an operation on the resource is running"
		}
	}
	switch {
	case failed && !s.tries:
		return actHold, "the last attempt failed"
	case failed:
		return actPut, "another attempt after a failure"
	case s.live == nil:
		return actPut, "the resource is not there"
	case s.mem.AppliedHash != s.hash:
		return actPut, "the goal differs from what was last applied"
	case !succeeded(s.live):
		return actPut, "the resource did not succeed"
	case s.mem.LiveHash != "" && s.mem.LiveHash != liveHash(s.goal.Body.Properties, s.live.Properties):
		return actPut, "somebody else changed the resource"
	}
	return actDone, "up to date"
}

// succeeded is true of synchronous types without a state, too.
func succeeded(r *arm.Resource) bool {
	s := client.State(r)
	return s == core.StateSucceeded || s == ""
}

func ownerUID(g Goal) string {
	if g.Body.Owner == nil {
		return ""
	}
	return g.Body.Owner.UID
}

// Apply takes one step towards the goal. The caller has called Intend and
// stored the memory where it said so, and stores it again afterwards where it
// changed. An error says that the control plane gave no answer; the memory is
// then as true as before and the step is to be repeated.
func (r *Runner) Apply(ctx context.Context, goal Goal, m *Memory) (Outcome, error) {
	Intend(goal, m)
	hash := goal.Hash()
	running, err := r.poll(ctx, m, goal.RetryOn)
	if err != nil || running && m.Operation.OperationKind == PUT {
		return Outcome{State: InProgress}, err
	}
	live, _, err := r.API.Get(ctx, goal.ID, goal.APIVersion)
	if err != nil && !core.IsCode(err, core.CodeNotFound) {
		return Outcome{}, err
	}
	if err == nil && live.ID != "" {
		m.Resource = live.ID
	}
	for replaces := ""; ; {
		s := snapshot{goal: goal, hash: hash, live: live, mem: *m,
			tries: m.Failure == nil || !r.now().Before(m.Failure.RetryAt)}
		act, _ := decide(s)
		if act == actConflict && replaces == "" {
			if replaces, err = r.successor(ctx, *live.Owner); err != nil {
				return Outcome{}, err
			}
			if replaces == "" {
				return conflict(goal, *live.Owner), nil
			}
			act = actPut
		}
		if act == actPut && running {
			act = actWait // what it was paired with before is being deleted: one at a time
		}
		switch act {
		case actWait:
			return Outcome{State: InProgress, Resource: live}, nil
		case actHold:
			return r.held(m, live), nil
		case actDone:
			m.APIVersion = goal.APIVersion
			m.Previous = without(m.Previous, m.Resource)
			if len(m.Previous) == 0 || m.Failure != nil && m.Failure.Hash == hash {
				m.Failure = nil // a failed deletion of what was before keeps its pause
			}
			m.LiveHash = liveHash(goal.Body.Properties, live.Properties)
			return Outcome{State: Done, Resource: live, Cleaning: len(m.Previous) > 0}, nil
		}

		body := goal.Body
		body.Replaces = replaces
		a, err := r.API.Put(ctx, goal.ID, goal.APIVersion, body)
		switch core.CodeOf(err) {
		case "":
		case core.CodeUnavailable, core.CodeUnauthorized:
			return Outcome{}, err
		case core.CodeConflict:
			// Most likely an operation on the resource, whose end the change stream
			// tells; a group on its way out tells nothing, hence the time.
			return Outcome{State: InProgress, Resource: live, RetryAfter: conflictRetry}, nil
		case core.CodeNameConflict:
			owner, ok := client.Owner(err)
			if !ok {
				return r.fail(m, hash, goal.RetryOn, err), nil
			}
			next, gerr := r.successor(ctx, owner)
			if gerr != nil {
				return Outcome{}, gerr
			}
			if next == "" || next == replaces {
				return conflict(goal, owner), nil
			}
			replaces = next
			continue
		default:
			if ctx.Err() != nil {
				return Outcome{}, err
			}
			return r.fail(m, hash, goal.RetryOn, err), nil
		}
		if a.Resource != nil && a.Resource.ID != "" {
			m.Resource = a.Resource.ID
		}
		m.APIVersion = goal.APIVersion
		if a.Token != "" {
			m.Operation = &Operation{ResumeToken: a.Token, OperationKind: PUT, Hash: hash, Started: r.now()}
			return Outcome{State: InProgress, Resource: a.Resource}, nil
		}
		m.AppliedHash, m.LiveHash, m.Failure = hash, "", nil
		live, replaces = a.Resource, ""
		if live.Owner == nil {
			live.Owner = goal.Body.Owner
		}
		if !client.State(live).Terminal() {
			return Outcome{State: InProgress, Resource: live}, nil
		}
		if !succeeded(live) {
			return r.fail(m, hash, goal.RetryOn, core.Errorf(core.CodeInternal, "%s ended as %s", live.ID, client.State(live))), nil
		}
	}
}

// poll asks after the operation in flight. It reports whether one still runs;
// when it has ended, the memory says so.
func (r *Runner) poll(ctx context.Context, m *Memory, retryOn string) (running bool, err error) {
	op := m.Operation
	if op == nil {
		return false, nil
	}
	done, err := r.API.Poll(ctx, op.ResumeToken)
	switch {
	case !done && err == nil:
		return true, nil
	case !done && core.IsCode(err, core.CodeNotFound):
		// Vanished, so the resource is asked. Its PUT was accepted and operation
		// and resource end together: if it lives as Succeeded, this is why.
		if m.Operation = nil; op.OperationKind == PUT {
			m.AppliedHash, m.LiveHash = op.Hash, ""
		}
		return false, nil
	case !done && unusable(err):
		m.Operation = nil // the token is none, or nobody's to use: the resource is asked
		return false, nil
	case !done:
		return false, err
	}
	m.Operation = nil
	switch {
	case err != nil:
		// The resource now says Failed; what follows decides on a retry.
		r.fail(m, op.Hash, retryOn, err)
	case op.OperationKind == DELETE:
		m.Previous = without(m.Previous, op.Target)
		if strings.EqualFold(m.Resource, op.Target) {
			m.AppliedHash, m.LiveHash = "", ""
		}
		m.Failure = nil
	default:
		m.AppliedHash, m.LiveHash, m.Failure = op.Hash, "", nil
	}
	return false, nil
}

// unusable reports whether the server refuses to speak of an operation, today
// and at every later time.
func unusable(err error) bool {
	switch core.CodeOf(err) {
	case core.CodeBadRequest, core.CodeForbidden, core.CodeMethodNotAllowed, core.CodeInvalidAPIVersion, core.CodeInvalidResourceType:
		return true
	}
	return false
}

// successor returns the uid to replace when the owner is verified gone.
func (r *Runner) successor(ctx context.Context, o arm.Owner) (string, error) {
	if r.Gone == nil {
		return "", nil
	}
	gone, err := r.Gone(ctx, o)
	if err != nil || !gone {
		return "", err
	}
	return o.UID, nil
}

// conflict is the outcome for the second of two objects with one id. It is not
// retried by time: the change stream tells when the first goes.
func conflict(goal Goal, first arm.Owner) Outcome {
	err := core.Errorf(core.CodeNameConflict,
		"%s %s/%s of cluster %s has the resource %s already; rename this object, or give it another application or environment. It takes over when the first is deleted",
		first.Kind, first.Namespace, first.Name, first.Cluster, goal.ID)
	return Outcome{State: Failed, Err: err, Conflict: &first}
}

// fail records a failed attempt and answers it.
func (r *Runner) fail(m *Memory, hash, retryOn string, err error) Outcome {
	e := core.AsError(err)
	count := 1
	if m.Failure != nil && m.Failure.Hash == hash {
		count = m.Failure.Count + 1
	}
	pause := maxRetry
	if count <= 8 {
		pause = min(maxRetry, firstRetry<<(count-1))
	}
	m.Failure = &Failure{Hash: hash, RetryOn: retryOn, Code: e.Code, Message: describe(e), Count: count, RetryAt: r.now().Add(pause)}
	return r.held(m, nil)
}

// describe is an error with its details on one line, for a status.
func describe(e *core.Error) string {
	text := e.Message
	for _, d := range e.Details {
		text += "; " + describe(&d)
	}
	if len(text) > 2048 {
		text = strings.ToValidUTF8(text[:2048], "") + "…"
	}
	return text
}

// held answers a failure whose retry is not due.
func (r *Runner) held(m *Memory, live *arm.Resource) Outcome {
	f := m.Failure
	return Outcome{State: Failed, Resource: live, Err: &core.Error{Code: f.Code, Message: f.Message},
		RetryAfter: max(f.RetryAt.Sub(r.now()), 1)}
}
