package extension

import (
	"context"

	"github.com/radial-project/radial/internal/core"
)

// ResourceAPI is the control plane's own resources, as a deployment reads and
// writes them (S-49). Writes are made on behalf of the running operation and of
// who asked for the deployment.
type ResourceAPI interface {
	// Get returns a resource as the API answers it; NotFound if there is none.
	Get(ctx context.Context, id core.ID, apiVersion string) (map[string]any, error)
	// Preview validates a write and answers what it would make, without making
	// it: {id, name, type, properties, …}.
	Preview(ctx context.Context, id core.ID, apiVersion string, body map[string]any) (map[string]any, error)
	// Put creates or replaces (with patch: merges into) a resource. operation is
	// "" when the answer is final, else what to wait for. A write that is made
	// again for the same running operation, while the first is under way, answers
	// the first one's operation: the attempt that began it may have had no time to
	// record it.
	Put(ctx context.Context, id core.ID, apiVersion string, body map[string]any, patch bool) (resource map[string]any, operation string, err error)
	// Delete deletes; a resource that is gone is no error.
	Delete(ctx context.Context, id core.ID, apiVersion string) (operation string, err error)
	// Operation reads an operation that Put or Delete began.
	Operation(ctx context.Context, operation string) (core.Operation, error)
	// Await returns when the operation has ended, or ctx.
	Await(ctx context.Context, operation string) (core.Operation, error)
	// Ask answers list… functions and other actions (listSecrets).
	Ask(ctx context.Context, id core.ID, apiVersion, action string, args map[string]any) (any, error)
}
