package operation_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/store"
)

// TestPark_D45: operations that wait for their own, three deep, with one worker.
// Each level makes two children and parks; nobody waits for a slot that another
// one holds.
func TestPark_D45(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var running, most, ends atomic.Int64
	b.pool(operation.Options{Concurrency: 1}, operation.ControllerFunc(func(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		name := job.Operation.ResourceID.Name()
		done, err := b.s.Operations(ctx, store.OperationQuery{Parent: job.Operation.ID})
		if err != nil {
			return operation.Outcome{}, err
		}
		depth := strings.Count(name, "-")
		if depth == 3 || len(done.Operations) > 0 {
			for _, child := range done.Operations {
				if !child.State.Terminal() {
					return operation.Outcome{}, fmt.Errorf("woken while %s is %s", child.ResourceID, child.State)
				}
			}
			ends.Add(1)
			return operation.Outcome{}, nil
		}
		for i := range 2 {
			id := testGroup.Resource("Test.Things/t", fmt.Sprintf("%s-%d", name, i))
			now := time.Now()
			_, err := b.s.Accept(ctx, store.Write{
				Resource: core.Resource{ID: id, Properties: []byte("{}"), State: core.StateAccepted}, Now: now,
				Operation: &core.Operation{ID: uuid.NewString(), ResourceID: id, Verb: core.VerbPut, State: core.StateAccepted,
					Group: testGroup.Key(), Parent: job.Operation.ID, Created: now, Deadline: now.Add(time.Hour)},
			})
			if err != nil {
				return operation.Outcome{}, err
			}
		}
		return operation.Outcome{Park: true}, nil
	}))
	op := b.ended(b.put("Test.Things/t", "root", time.Hour))
	if op.State != core.StateSucceeded {
		t.Fatalf("D-45: the root ended as %s, %+v", op.State, op.Error)
	}
	if most.Load() != 1 || ends.Load() != 1+2+4+8 {
		t.Errorf("D-45: %d ran at a time, %d ended", most.Load(), ends.Load())
	}
}
