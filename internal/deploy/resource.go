package deploy

import (
	"context"
	"errors"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// put writes a resource of the control plane, and waits for the operation that
// this begins: by leaving the run (Park), or here, without a place among those
// that are worked on.
func (n *node) put(ctx context.Context, o template.ResourceOptions, leave func()) error {
	r := n.f.r
	if r.api == nil {
		return noResources(n.title())
	}
	id := n.res.ID
	r.mu.Lock()
	operation := n.row.handle.Operation
	r.mu.Unlock()
	if operation == "" {
		if o.OnlyIfNotExists {
			whole, err := r.api.Get(ctx, id, n.res.APIVersion)
			if err == nil {
				n.keep(whole, false)
				r.warn("%s exists and was left as it is", n.title())
				return nil
			}
			if !core.IsCode(err, core.CodeNotFound) {
				return err
			}
		}
		var body map[string]any
		err := n.f.eval(ctx, func(rt template.Runtime) (err error) {
			body, err = n.f.plan.Body(n.res, rt)
			return err
		})
		if err != nil {
			return err
		}
		if operation, err = n.write(ctx, id, body, n.reference()); err != nil || operation == "" {
			return err
		}
	}
	return n.written(ctx, operation, leave)
}

// write begins the write of a resource of the control plane, whose reference is
// ref once it is there. No operation: it has ended.
func (n *node) write(ctx context.Context, id core.ID, body map[string]any, ref extension.Ref) (operation string, err error) {
	r := n.f.r
	whole, operation, err := r.api.Put(ctx, id, n.res.APIVersion, body, n.res.Patch)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	n.row.handle.Operation = operation
	r.mu.Unlock()
	n.settle(ref)
	if operation == "" {
		n.keep(whole, false)
	}
	return operation, nil
}

// written waits for the operation of a write.
func (n *node) written(ctx context.Context, operation string, leave func()) error {
	r := n.f.r
	op, err := r.api.Operation(ctx, operation)
	if err == nil && !op.State.Terminal() {
		if r.q.Park {
			return errWaiting
		}
		n.record()
		leave()
		op, err = r.api.Await(ctx, operation)
	}
	r.mu.Lock()
	n.made = true
	r.mu.Unlock()
	switch {
	case err != nil && !core.IsCode(err, core.CodeNotFound):
		return err
	case err != nil: // its record is gone: the resource says how it ended
		return n.judge(ctx)
	}
	return op.Failure("its operation")
}

// putImported is put of a resource that the template names by the import Radius.
func (n *node) putImported(ctx context.Context, c extension.ControlPlane, res extension.Resource, leave func()) error {
	r := n.f.r
	if r.api == nil {
		return noResources(n.title())
	}
	r.mu.Lock()
	operation := n.row.handle.Operation
	r.mu.Unlock()
	if operation == "" {
		id, body, err := c.Address(res)
		if err != nil {
			return err
		}
		if operation, err = n.write(ctx, id, body, c.Made(res, id)); err != nil || operation == "" {
			return err
		}
	}
	return n.written(ctx, operation, leave)
}

// judge reads how a write ended from the resource itself.
func (n *node) judge(ctx context.Context) error {
	whole, err := n.live(ctx)
	if err != nil {
		return err
	}
	props, _ := whole["properties"].(map[string]any)
	if state, _ := props["provisioningState"].(string); state != "" && core.State(state) != core.StateSucceeded {
		return core.Errorf(core.CodeConflict, "it is in the state %s, and the operation that this deployment began is not on record any more: deploy again", state)
	}
	n.keep(whole, false)
	return nil
}

// deploy runs a nested deployment.
func (n *node) deploy(ctx context.Context) error {
	r := n.f.r
	started := r.e.o.Now()
	if err := r.enter(ctx); err != nil {
		return err
	}
	child, err := n.planNested(ctx)
	r.leave()
	if err != nil {
		return err
	}
	n.child = child
	err = child.prepare(ctx)
	if err == nil {
		err = child.run(ctx)
	}
	if err == errWaiting || ctx.Err() != nil {
		return err
	}
	var o *outputsError
	if errors.As(err, &o) {
		err = o.error // to the run as a whole, a resource that failed
	}
	done := Nested{ID: n.res.ID, Path: child.path, State: core.StateSucceeded, Outputs: child.outputs, Started: started, Ended: r.e.o.Now()}
	if err != nil {
		done.State, done.Outputs = core.StateFailed, nil
		done.Error = core.AsError(err)
		if errors.Is(err, errBelow) {
			done.Error = core.AsError(child.failure())
		}
	}
	r.mu.Lock()
	r.nested = append(r.nested, done)
	r.mu.Unlock()
	return err
}

func (n *node) planNested(ctx context.Context) (*frame, error) {
	r := n.f.r
	if id := n.res.ID; !id.IsZero() {
		r.mu.Lock()
		other := r.names[id.Key()]
		if other == "" {
			r.names[id.Key()] = n.name()
		}
		r.mu.Unlock()
		if other != "" && other != n.name() {
			return nil, n.res.Errorf("%s and %s are both the deployment %s: give one of them another name", other, n.name(), id)
		}
	}
	var p *template.Plan
	err := n.f.eval(ctx, func(rt template.Runtime) (err error) {
		p, err = n.f.plan.Nested(n.res, rt)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r.newFrame(n, p)
}
