package contract

import (
	"context"
	"errors"
	"time"

	sdk "github.com/radial-project/radial/extensionsdk"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

const (
	// firstLook and longestLook are how long after one look at a resource on its
	// way the next one is, growing by half, where the extension does not say.
	firstLook   = time.Second
	longestLook = 15 * time.Second
	// operationLook is the contract's, for operations.
	operationLook = 60 * time.Second
	// longestWait is what an extension's own wish is cut to.
	longestWait = 10 * time.Minute
	// lostLooks is how many looks in a row may fail: that one cannot be made
	// says nothing about the resource.
	lostLooks = 5
)

// call is what is being asked, for texts.
type call struct {
	does, typ   string
	identifiers []byte
}

// looks are the pauses between looks at something.
type looks struct {
	next time.Duration
	lost int
}

func (l *looks) pause(said *int, otherwise time.Duration) time.Duration {
	if said != nil {
		return min(max(time.Duration(*said)*time.Second, 0), longestWait)
	}
	if otherwise > 0 {
		return otherwise
	}
	if l.next == 0 {
		l.next = firstLook
	}
	d := l.next
	l.next = min(l.next*3/2, longestLook)
	return d
}

// failed reports whether one more failed look is to be borne. Refusals by the
// extension are borne as faults of the way to it are.
func (l *looks) failed(ctx context.Context) bool {
	l.lost++
	return ctx.Err() == nil && l.lost < lostLooks
}

// terminal reports whether a status is one after which nothing happens.
func terminal(status string) bool {
	return status == "" || status == sdk.Succeeded || status == sdk.Failed || status == sdk.Canceled
}

// settled waits until a resource that is on its way has arrived.
func (t *Target) settled(ctx context.Context, r sdk.Resource, ref extension.Ref, about call) (sdk.Resource, error) {
	var l looks
	for !terminal(r.Status) {
		if err := t.o.Sleep(ctx, l.pause(r.RetryAfterSeconds, 0)); err != nil {
			return r, t.fault(ctx, err, about)
		}
		next, err := t.look(ctx, ref)
		switch {
		case notFound(err):
			return r, core.Errorf(extension.CodeNotReady, "%s is gone again, it was %q when it was last seen", t.name(about), r.Status).WithTarget(ref.ID.String())
		case err != nil && l.failed(ctx):
			continue
		case err != nil:
			return r, unready(t.fault(ctx, err, about))
		}
		l.lost, r = 0, next
	}
	if r.Status == sdk.Failed || r.Status == sdk.Canceled {
		return r, t.ended(ctx, r.Status, r.Error, ref, about)
	}
	return r, nil
}

func (t *Target) look(ctx context.Context, ref extension.Ref) (sdk.Resource, error) {
	r, err := t.reference(ref)
	if err != nil {
		return sdk.Resource{}, err
	}
	r.ConfigID = ref.ConfigID
	return t.carrier.Get(ctx, r)
}

// ended is the error of a resource or an operation that ended badly.
func (t *Target) ended(ctx context.Context, status string, why *sdk.Error, ref extension.Ref, about call) error {
	if why == nil {
		why = sdk.Errorf(status, "the extension gave no reason")
	}
	e := core.AsError(unready(t.fault(ctx, why, about)))
	if !ref.ID.IsZero() {
		return e.WithTarget(ref.ID.String())
	}
	return e
}

// unready is a refusal of what was made: it is not ready. Over gRPC, where a
// resource has no member for why it failed, the extension says so by refusing.
func unready(err error) error {
	e := core.AsError(err)
	if e.Code != extension.CodeRefused {
		return err
	}
	c := *e
	c.Code = extension.CodeNotReady
	return &c
}

// operation follows an operation to its end, and returns its last state.
func (t *Target) operation(ctx context.Context, o sdk.Operation, about call) (sdk.Operation, error) {
	var l looks
	for !terminal(o.Status) {
		if o.Handle == nil {
			return o, t.broken("answered an operation in state %q without a handle to follow it by", o.Status)
		}
		if err := t.o.Sleep(ctx, l.pause(o.RetryAfterSeconds, operationLook)); err != nil {
			return o, t.fault(ctx, err, about)
		}
		next, err := t.carrier.Follow(ctx, o.Handle)
		switch {
		case err != nil && l.failed(ctx):
			continue
		case err != nil:
			return o, t.fault(ctx, err, about)
		}
		l.lost = 0
		if next.Handle == nil {
			next.Handle = o.Handle
		}
		if next.Identifiers == nil {
			next.Identifiers = o.Identifiers
		}
		o = next
	}
	if o.Status == sdk.Failed || o.Status == sdk.Canceled {
		return o, t.ended(ctx, o.Status, o.Error, extension.Ref{}, about)
	}
	return o, nil
}

// followed waits for an operation that makes a resource, and reads what it
// made.
func (t *Target) followed(ctx context.Context, s sdk.Specification, o sdk.Operation, about call) (*sdk.Resource, error) {
	o, err := t.operation(ctx, o, about)
	if err != nil {
		return nil, err
	}
	identifiers := o.Identifiers
	if identifiers == nil {
		// The contract does not say how what was made is found: a preview of the
		// same names it.
		preview, err := t.carrier.Preview(ctx, s)
		var refused *sdk.Error
		switch {
		case errors.As(err, &refused):
			return nil, t.concealed(ctx, core.Errorf(core.CodeTarget, "%s was made, and cannot be found: neither its operation nor a preview told its identifiers (%s)",
				t.name(about), refused.Message))
		case err != nil:
			return nil, t.fault(ctx, err, about)
		}
		identifiers = preview.Identifiers
	}
	r, err := t.carrier.Get(ctx, sdk.Reference{Type: s.Type, APIVersion: s.APIVersion, Identifiers: identifiers, Config: s.Config})
	if err != nil {
		return nil, t.fault(ctx, err, about)
	}
	return &r, nil
}
