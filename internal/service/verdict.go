package service

import (
	"fmt"
	"time"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// Verdict is what one request comes to at a moment.
type Verdict struct {
	// Phase is Waiting, Ready, Recovered or Failed.
	Phase v1alpha1.Phase
	// Detail is the provider's words, or ours where it has none; empty for a
	// request that nothing is to be said about yet.
	Detail string
	// Answer is the request's status when Phase is done, and nil otherwise: an
	// answer that is not one to the present spec is never handed on (C-92).
	Answer *v1alpha1.CloudResourceStatus
	// Next is when Detail reads differently though nothing has happened; zero
	// is never.
	Next time.Time
}

// coarse is how much later than it says a write can have been: the API server
// cuts times to whole seconds, and nothing is said before the bound (C-113).
const coarse = time.Second

// Decide judges a request: pure, of the object, the acknowledgement bound and
// the time.
//
//	no object                                   → Waiting
//	not acknowledged at its generation, < bound → Waiting, for the generation
//	the same, >= bound                          → Waiting, no provider has answered
//	Waiting, said < bound ago                   → Waiting, the provider's words
//	the same, >= bound                          → the words with their age
//	Ready, Recovered                            → done
//	Failed                                      → Failed, the provider's words
//	another phase                               → Waiting, as one without a phase
//
// The bound counts from when the present spec was written, so that it holds for
// every generation (C-146).
func Decide(r *v1alpha1.CloudResource, bound time.Duration, now time.Time) Verdict {
	if r == nil {
		return Verdict{Phase: v1alpha1.PhaseWaiting}
	}
	s := &r.Status
	if s.ObservedGeneration != r.Generation {
		v := Verdict{Phase: v1alpha1.PhaseWaiting}
		if late := v1alpha1.AskedAt(r).Add(coarse + bound); now.Before(late) {
			v.Next = late
			if s.ObservedGeneration > 0 {
				v.Detail = v1alpha1.DetailBehind(r.Generation)
			}
			return v
		}
		v.Detail = v1alpha1.DetailUnanswered(r.Spec.Provider)
		return v
	}
	switch s.Phase {
	case v1alpha1.PhaseReady, v1alpha1.PhaseRecovered:
		return Verdict{Phase: s.Phase, Answer: s}
	case v1alpha1.PhaseFailed:
		v := Verdict{Phase: v1alpha1.PhaseFailed, Detail: v1alpha1.Clean(s.Detail)}
		if v.Detail == "" {
			v.Detail = v1alpha1.DetailNoReason
		}
		return v
	}
	v := Verdict{Phase: v1alpha1.PhaseWaiting, Detail: v1alpha1.Clean(s.Detail)}
	said := v1alpha1.SaidAt(r)
	if late := said.Add(bound); now.Before(late) {
		v.Next = late
		return v
	}
	if v.Detail == "" {
		v.Detail = "the provider has read the request"
	}
	age, rest := ageOf(now.Sub(said))
	v.Detail += " (said " + age + " ago)"
	v.Next = now.Add(rest)
	return v
}

// ageOf writes an age in one unit, coarser as it grows, and says in how long it
// reads differently.
func ageOf(d time.Duration) (text string, rest time.Duration) {
	unit, suffix := 24*time.Hour, "d"
	switch {
	case d < time.Minute:
		// Below a minute in steps of ten seconds: a status is no clock.
		step := 10 * time.Second
		return fmt.Sprintf("%ds", int(d.Truncate(step).Seconds())), step - d%step
	case d < time.Hour:
		unit, suffix = time.Minute, "m"
	case d < 48*time.Hour:
		unit, suffix = time.Hour, "h"
	}
	return fmt.Sprintf("%d%s", d/unit, suffix), unit - d%unit
}

// earliest is the first of two moments, where zero is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
