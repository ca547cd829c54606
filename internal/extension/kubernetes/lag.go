package kubernetes

import (
	"context"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
)

// An API server takes up a changed admission policy a moment after it answered the
// change, each replica of it by itself. Deny settings of a stack let in who Radial
// is, and are renewed before anything else when that is another user than last
// time; until they are in force the stack's own writes are denied by it.

// policyLag bounds the wait for that.
const policyLag = 15 * time.Second

// pastOwnPolicy repeats a call while the owner's own deny settings refuse it.
func pastOwnPolicy(ctx context.Context, owner core.ID, call func() error) error {
	err := call()
	for begun := time.Now(); deniedByOwn(err, owner) && time.Since(begun) < policyLag; err = call() {
		if fault := wait(ctx, 250*time.Millisecond); fault != nil {
			return err
		}
	}
	return err
}

func deniedByOwn(err error, owner core.ID) bool {
	return err != nil && !owner.IsZero() && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'radial-stack-"+OwnerHash(owner))
}
