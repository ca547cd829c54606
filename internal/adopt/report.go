package adopt

import (
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/paired"
)

// pairing is how far the container resource came.
type pairing struct {
	state   paired.State
	parents paired.Parents
	reason  string
	message string
	// waiting: a failure that ends by itself when something appears.
	waiting bool
	wait    time.Duration
}

// report gathers what a reconcile found, and says what follows.
type report struct {
	pairing pairing
	// updating: an operation on the container is in flight.
	updating bool
	// blocked: the control plane has not taken the Deployment in; nothing is
	// injected or released.
	blocked bool
	// complete: the data of all connections is there.
	complete bool
	// reason is the first cause of not being Ready, "" for none.
	reason   string
	message  string
	waiting  bool
	warnings []metav1.Condition
	wait     time.Duration
}

func (rep *report) fail(reason, message string, waiting bool) {
	if rep.reason == "" {
		rep.reason, rep.message, rep.waiting = reason, message, waiting
	}
}

func (rep *report) warn(kind, message string) {
	for i, w := range rep.warnings {
		if w.Type == kind {
			rep.warnings[i].Message += "; " + message
			return
		}
	}
	rep.warnings = append(rep.warnings, metav1.Condition{Type: kind, Message: message})
}

// sooner keeps the earlier of two deadlines; 0 is none.
func (rep *report) sooner(d time.Duration) {
	if d > 0 && (rep.wait == 0 || d < rep.wait) {
		rep.wait = d
	}
}

func (rep *report) container(p pairing) {
	rep.pairing = p
	rep.sooner(p.wait)
	switch p.state {
	case paired.InProgress:
		rep.updating = true
	case paired.Failed:
		rep.fail(p.reason, p.message, p.waiting)
		// A container that fails where the control plane did not refuse the
		// Deployment does not keep a rollout whose data is complete.
		rep.blocked = p.reason != ReasonContainerFailed
	}
}

func (rep *report) data(c connectionData) {
	rep.complete = c.complete
	rep.sooner(c.wait)
	if !c.complete {
		rep.fail(c.reason, c.message, c.reason != ReasonInvalid)
	}
	for _, clash := range c.collisions {
		rep.warn(ConditionCollision, clash.String())
	}
}

func (rep *report) injection(inj Injection) {
	if len(inj.Unknown) > 0 {
		rep.warn(ConditionUnknownContainer, AnnotationContainers+" names "+strings.Join(inj.Unknown, ", ")+
			", which the pod template does not have")
	}
	if inj.Missed {
		rep.complete = false
		rep.fail(ReasonNoContainer, "no container that "+AnnotationContainers+" names is in the pod template, so nothing would get the connection data; name one of its containers", false)
		rep.blocked = true
	}
	if len(inj.Overridden) > 0 {
		rep.warn(ConditionOverridden, "set by the pod template itself, and left as it is: "+strings.Join(inj.Overridden, ", "))
	}
}

// cause identifies why it is not Ready.
func (rep *report) cause() string {
	if rep.reason == "" {
		return ReasonUpdating
	}
	return rep.reason + "\x00" + rep.message
}

func (rep *report) ready() bool { return rep.reason == "" && !rep.updating }

// updatingFirst reports whether a release should wait for the operation in
// flight: it ends in milliseconds, and then one patch says it all. One that
// takes long does not keep a rollout.
func (rep *report) updatingFirst(waited time.Duration) bool { return rep.updating && waited < patience }

// status is the report as the annotation says it.
func (rep *report) status(before Status, d *appsv1.Deployment, s *session, userPaused bool, at time.Time) Status {
	now := metav1.NewTime(at.UTC().Truncate(time.Second))
	st := Status{ObservedHash: ObservedHash(d), Container: s.mem.Resource}
	if p := rep.pairing.parents; !p.Group.IsZero() {
		st.Scope, st.Application, st.Environment = p.Group.String(), p.Application.String(), p.Environment.String()
	} else {
		st.Scope, st.Application, st.Environment = before.Scope, before.Application, before.Environment
	}
	if len(s.mem.Previous) > 0 {
		// Until what was before is gone, a restart must find it.
		st.Container = s.mem.Previous[0].ID
	}
	st.Operation = operation(&s.mem)
	switch {
	case rep.reason != "":
		st.Phrase = PhraseFailed
		if rep.waiting {
			st.Phrase = PhraseWaiting
		}
		st.set(before, ConditionReady, metav1.ConditionFalse, rep.reason, rep.message, now)
	case rep.updating:
		st.Phrase = PhraseUpdating
		st.set(before, ConditionReady, metav1.ConditionFalse, ReasonUpdating, "the control plane is working on the container resource", now)
	case userPaused:
		st.Phrase = PhraseReady
		st.set(before, ConditionReady, metav1.ConditionTrue, ReasonPaused, "the pod template is up to date; its user paused the Deployment, and `kubectl rollout resume` rolls it out", now)
	default:
		st.Phrase = PhraseReady
		st.set(before, ConditionReady, metav1.ConditionTrue, ReasonReady, "the container resource and the connection data are up to date", now)
	}
	for _, w := range rep.warnings {
		st.set(before, w.Type, metav1.ConditionTrue, w.Type, w.Message, now)
	}
	return st
}
