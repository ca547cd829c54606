package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// CodeDeleteFailed is the code of a deletion of which an output failed.
const CodeDeleteFailed core.Code = "DeletionFailed"

// Delete deletes outputs, dependants first, and drops each from the inventory
// when it is gone. An output that cannot be deleted keeps what it depends on;
// the rest goes. A resource that is missing already counts as deleted.
func Delete(ctx context.Context, resolver extension.Resolver, outputs []core.Output, record Record) error {
	index := map[string]int{}
	for i, o := range outputs {
		index[o.ID.Key()] = i
	}
	needs := make([][]int, len(outputs)) // the dependants of each
	for i, o := range outputs {
		for _, dep := range o.DependsOn {
			if j, ok := index[dep.Key()]; ok && j != i {
				needs[j] = append(needs[j], i)
			}
		}
	}
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	rec := startRecorder(ctx, record, cancel)
	errs, notRun := runGraph(runCtx, needs, defaultParallel, func(ctx context.Context, i int) error {
		var h Handle
		if err := json.Unmarshal(outputs[i].Handle, &h); err != nil {
			return core.Errorf(core.CodeInternal, "the record of %s cannot be read: %w", outputs[i].ID, err)
		}
		target, err := resolver.Resolve(ctx, h.Scope, nil)
		if err != nil {
			return err
		}
		if err := target.Delete(ctx, h.Ref); err != nil {
			return err
		}
		rec.drop(outputs[i].ID)
		return nil
	})
	if err := rec.close(); err != nil {
		return err
	}
	var details []core.Error
	var causes []error
	for i, err := range errs {
		if err != nil {
			e := *core.AsError(err)
			e.Target = outputs[i].ID.String()
			details = append(details, e)
			causes = append(causes, err)
		}
	}
	switch {
	case len(details) == 0 && len(notRun) == 0:
		return nil
	case len(details) == 0 && ctx.Err() != nil:
		return context.Cause(ctx)
	case len(details) == 0:
		return core.Errorf(core.CodeInternal, "the recorded outputs depend on each other in a circle: %s is one of them", outputs[notRun[0]].ID)
	}
	message := fmt.Sprintf("output %s was not deleted: %s", details[0].Target, details[0].Message)
	if len(details) > 1 {
		message = fmt.Sprintf("%d of %d outputs were not deleted; the first: %s", len(details), len(outputs), message)
	}
	return core.Errorf(CodeDeleteFailed, "%w", &joined{message, errors.Join(causes...)}).WithDetails(details...)
}
