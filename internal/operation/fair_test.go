package operation_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/store"
)

// TestFair_D47: a group with a thousand operations that wait does not hold back
// the one of another group, with one worker.
func TestFair_D47(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	other := core.GroupID("other")
	if _, err := b.s.Accept(t.Context(), store.Write{Resource: core.Resource{ID: other, Properties: []byte("{}")}, Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	const many = 1000
	for i := range many {
		b.put("Test.Things/t", fmt.Sprint(i), time.Hour)
	}
	id := other.Resource("Test.Things/t", "one")
	op := &core.Operation{ID: uuid.NewString(), ResourceID: id, Verb: core.VerbPut, State: core.StateAccepted, Group: other.Key(),
		Created: time.Now(), Deadline: time.Now().Add(time.Hour)}
	if _, err := b.s.Accept(t.Context(), store.Write{Resource: core.Resource{ID: id, Properties: []byte("{}"), State: core.StateAccepted}, Operation: op, Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	var before, begun atomic.Int64
	b.pool(operation.Options{Concurrency: 1}, operation.ControllerFunc(func(_ context.Context, job *operation.Job) (operation.Outcome, error) {
		n := begun.Add(1)
		if job.Operation.ID == op.ID {
			before.Store(n - 1)
		}
		return operation.Outcome{}, nil
	}))
	b.ended(op.ID)
	if n := before.Load(); n > 2 {
		t.Errorf("D-47: %d operations of the other group went first", n)
	}
}
