package deployment

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/store"
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
// manages no other takes over or deletes.
type claimed struct {
	extension.ResourceAPI
	s     *Service
	stack core.ID

	mu   sync.Mutex
	read bool
	// by are the stacks that manage a resource, by its key.
	by map[string]core.ID
}

// Delete implements [extension.ResourceAPI]. What another stack manages by now
// counts as deleted: it is the other's.
func (c *claimed) Delete(ctx context.Context, id core.ID, apiVersion string) (string, error) {
	other, err := c.other(ctx, id)
	if err != nil || !other.IsZero() {
		return "", err
	}
	return c.ResourceAPI.Delete(ctx, id, apiVersion)
}

// free refuses the write of what is another's.
func (c *claimed) free(ctx context.Context, id core.ID) error {
	stored, _, err := c.s.o.Store.Get(ctx, id)
	if core.IsCode(err, core.CodeNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	mark := stored.Tags[dynamic.OwnerTag]
	if mark == "" {
		other, err := c.other(ctx, id)
		if err != nil {
			return err
		}
		if !other.IsZero() {
			mark = other.String()
		}
	}
	if mark != "" {
		return core.Errorf(core.CodeConflict, "%s belongs to %s: give one of the two another name, or take it out of the other first", id, mark).WithTarget(id.String())
	}
	return nil
}

// other is the other stack that manages a resource, zero for none. Stacks are read
// once for an attempt: what they plan and have not made counts for nothing.
func (c *claimed) other(ctx context.Context, id core.ID) (core.ID, error) {
	if c.stack.IsZero() {
		return core.ID{}, nil // what a plain deployment changes stays the stack's
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.read {
		by, err := c.s.claims(ctx, c.stack)
		if err != nil {
			return core.ID{}, err
		}
		c.by, c.read = by, true
	}
	return c.by[id.Key()], nil
}

// claims are the control-plane resources that stacks other than one manage.
func (s *Service) claims(ctx context.Context, than core.ID) (map[string]core.ID, error) {
	by := map[string]core.ID{}
	page, err := s.o.Store.List(ctx, store.Query{Scope: core.ID{Plane: than.Plane}, Type: stack.Type})
	if err != nil {
		return nil, err
	}
	var ids []core.ID
	for _, r := range page.Resources {
		if !r.ID.Equal(than) {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return by, nil
	}
	outputs, err := s.o.Store.OutputsOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		for _, o := range outputs[id.Key()] {
			var h deploy.Handle
			if o.State == core.OutputMade && json.Unmarshal(o.Handle, &h) == nil && h.Scope.Extension == "" {
				by[o.ID.Key()] = id
			}
		}
	}
	return by, nil
}
