package provider

import (
	"errors"
	"fmt"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// ErrMoved is that the thing was made in another account or location than the
// installation names now: Failed, in the contract's words (C-102, C-103).
var ErrMoved = errors.New(v1alpha1.DetailMoved)

// An outcome is an error whose words are written for a member.
type outcome struct {
	phase v1alpha1.Phase
	text  string
	// final is that nothing but a change of the request or of the installation
	// makes it another: it is not retried.
	final bool
}

func (o *outcome) Error() string { return o.text }

// Waiting is that the cloud needs time or cannot answer now: phase Waiting with
// these words, tried again with back-off. They hold no secret.
func Waiting(format string, args ...any) error {
	return &outcome{phase: v1alpha1.PhaseWaiting, text: fmt.Sprintf(format, args...)}
}

// Refused is that the cloud says no: phase Failed with these words, which say
// what a member or an operator of the installation can do; tried again with
// back-off, since the cause may go (C-151). They hold no secret.
func Refused(format string, args ...any) error {
	return &outcome{phase: v1alpha1.PhaseFailed, text: fmt.Sprintf(format, args...)}
}

// Taken is that a bucket's name is held by someone else: another customer of
// the cloud, or another use of the same account (C-87, C-148).
func Taken(bucket string) error {
	return Refused("bucket %s is held by someone else; a provider never adopts it", bucket)
}

// invalid is a request that will not be served as it stands.
func invalid(format string, args ...any) error {
	return &outcome{phase: v1alpha1.PhaseFailed, text: fmt.Sprintf(format, args...), final: true}
}

// PhaseOf is the phase that an error asks for: Waiting or Failed, and empty for
// one that is neither of [Waiting], [Refused] nor [ErrMoved].
func PhaseOf(err error) v1alpha1.Phase {
	var o *outcome
	switch {
	case errors.Is(err, ErrMoved):
		return v1alpha1.PhaseFailed
	case errors.As(err, &o):
		return o.phase
	}
	return ""
}
