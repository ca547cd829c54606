package deployment

import (
	"context"

	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/extension"
)

// mayBegin decides whether a nested deployment may begin: its history is written
// into a group, which takes the right to deploy there, and over none that runs.
func (s *Service) mayBegin(as As) func(ctx context.Context, id core.ID) error {
	return func(ctx context.Context, id core.ID) error {
		if !IsDeployment(id) {
			return nil
		}
		if err := checkName(id); err != nil {
			return err
		}
		if err := s.allow(ctx, as, auth.Act{Verb: auth.Write, ID: id, Operation: as.Operation}); err != nil {
			return err
		}
		if _, _, err := s.o.Store.Get(ctx, id.Scope()); err != nil {
			return err
		}
		stored, live, err := s.o.Store.Get(ctx, id)
		switch {
		case core.IsCode(err, core.CodeNotFound):
			return nil
		case err != nil:
			return err
		case live != nil:
			return active(id, live.ID)
		}
		f, err := readFacts(stored)
		if err != nil || f.Root == "" || f.Operation == as.Operation || stored.State.Terminal() {
			return err
		}
		state, err := s.rootState(ctx, stored, f) // a nested one of another that runs
		if err == nil && !state.Terminal() {
			return active(id, f.Operation)
		}
		return err
	}
}

// claimed are the control plane's resources, of which each is managed by one: what
// a recipe made for another resource is nobody else's to write, and what one stack
// manages no other takes over or deletes. A stack claims what it is about to make
// with the row of its journal ([inventory]), so that of two that come at the same
// moment one has the claim.
type claimed struct {
	extension.ResourceAPI
	s     *Service
	stack core.ID
}

// Put implements [extension.ResourceAPI]. A stack writes what it has the claim to.
func (c *claimed) Put(ctx context.Context, id core.ID, apiVersion string, body map[string]any, patch bool) (map[string]any, string, error) {
	if !c.stack.IsZero() {
		claimant, err := c.s.o.Store.Claimant(ctx, id)
		if err != nil {
			return nil, "", err
		}
		if claimant.IsZero() {
			return nil, "", core.Errorf(core.CodeConflict, "%s was another stack's when this one planned it, and is nobody's now: apply the stack again", id).WithTarget(id.String())
		}
	}
	return c.ResourceAPI.Put(ctx, id, apiVersion, body, patch) // which refuses what is another's
}

// Delete implements [extension.ResourceAPI]. What another stack manages by now
// counts as deleted: it is the other's.
func (c *claimed) Delete(ctx context.Context, id core.ID, apiVersion string) (string, error) {
	if !c.stack.IsZero() {
		claimant, err := c.s.o.Store.Claimant(ctx, id)
		if err != nil || !claimant.IsZero() && !claimant.Equal(c.stack) {
			return "", err
		}
	}
	return c.ResourceAPI.Delete(ctx, id, apiVersion)
}

// free refuses the write of what is another's.
func (c *claimed) free(ctx context.Context, id core.ID) error {
	stored, _, err := c.s.o.Store.Get(ctx, id)
	if err != nil && !core.IsCode(err, core.CodeNotFound) {
		return err
	}
	mark := stored.Tags[dynamic.OwnerTag]
	if mark == "" && !c.stack.IsZero() { // what a plain deployment changes stays the stack's
		claimant, err := c.s.o.Store.Claimant(ctx, id)
		switch {
		case err != nil:
			return err
		case !claimant.IsZero() && !claimant.Equal(c.stack):
			mark = claimant.String()
		}
	}
	if mark != "" {
		return core.Errorf(core.CodeConflict, "%s belongs to %s: give one of the two another name, or take it out of the other first", id, mark).WithTarget(id.String())
	}
	return nil
}
