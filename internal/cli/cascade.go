package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
)

// D-6: what is in use is not deleted; the control plane refuses it and lists what uses it. A cascade deletes
// that first, each by an operation of its own: one that breaks off has deleted what it has said, and can be
// run again.

func cascadeFlag(c *cobra.Command, cascade *bool, what string) {
	c.Flags().BoolVar(cascade, "cascade", false, what)
}

// belonging are the resources below a scope that belong to an application or an environment, or all of them
// where neither is said.
func (s *session) belonging(ctx context.Context, scope, application, environment core.ID) ([]arm.Resource, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	tracked, err := c.Members(ctx, scope, application, environment)
	if err != nil {
		return nil, err
	}
	var all []arm.Resource
	for _, m := range tracked {
		id, err := core.ParseID(m.ID)
		if err != nil || id.Equal(application) || id.Equal(environment) {
			continue
		}
		t, err := s.typeNamed(ctx, id.Type())
		if err != nil {
			return nil, err
		}
		r, _, err := c.Get(ctx, id, t.version())
		if core.IsCode(err, core.CodeNotFound) {
			continue // gone meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, *r)
	}
	return all, nil
}

// removeAll deletes resources, each before what it refers to: members before their application, what connects
// before what it connects to, environments before their recipe packs. why is what cannot be done when one
// cannot be deleted.
func (s *session) removeAll(ctx context.Context, all []arm.Resource, why string) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	for _, r := range usersFirst(all) {
		id, err := core.ParseID(r.ID)
		if err != nil {
			return err
		}
		t, err := s.typeNamed(ctx, id.Type())
		if err != nil {
			return err
		}
		a, err := c.Delete(ctx, id, t.version(), "")
		if err == nil {
			err = s.wait(ctx, "deleting "+nameAndType(r.ID), a.Token)
		}
		if err != nil && !core.IsCode(err, core.CodeNotFound) {
			return fmt.Errorf("%s was not deleted, because %s could not be: %w", why, nameAndType(r.ID), err)
		}
	}
	return nil
}

// usersFirst orders resources so that each stands before those of them that its properties name.
func usersFirst(all []arm.Resource) []arm.Resource {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b arm.Resource) int { return cmp.Compare(b.ID, a.ID) }) // reversed below
	byKey := make(map[string]int, len(all))
	for i, r := range all {
		byKey[strings.ToLower(r.ID)] = i
	}
	visited := make([]bool, len(all))
	var order []arm.Resource
	var visit func(i int)
	visit = func(i int) {
		if visited[i] {
			return
		}
		visited[i] = true
		named(all[i].Properties, func(id string) {
			if to, ok := byKey[strings.ToLower(id)]; ok {
				visit(to)
			}
		})
		order = append(order, all[i])
	}
	for i := range all {
		visit(i)
	}
	slices.Reverse(order)
	return order
}

// named calls f for the ids that a value holds, maps in the order of their keys.
func named(v any, f func(id string)) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range sortedKeys(v) {
			if k != "status" { // its output resources are no resources of ours
				named(v[k], f)
			}
		}
	case []any:
		for _, e := range v {
			named(e, f)
		}
	case string:
		if strings.HasPrefix(v, "/") {
			f(v)
		}
	}
}

// removeWith deletes what uses something, and then the thing itself, after asking once for all of it.
func (s *session) removeWith(ctx context.Context, users []arm.Resource, id core.ID, version, what string, yes bool) error {
	whole := what
	if len(users) > 0 {
		whole += " with " + count(len(users), "resource")
	}
	if err := s.confirm(yes, "Delete "+whole+"?"); err != nil {
		return err
	}
	if err := s.removeAll(ctx, users, what); err != nil {
		return err
	}
	c, err := s.client()
	if err != nil {
		return err
	}
	// What was made implicitly is gone with its last member: no answer to ask about.
	a, err := c.Delete(ctx, id, version, "")
	if err == nil {
		err = s.wait(ctx, "deleting "+what, a.Token)
	}
	if err != nil && !core.IsCode(err, core.CodeNotFound) {
		return s.cascades(err)
	}
	if len(users) == 0 && err == nil && a.Missing {
		return s.done(deleted{ID: id.String()}, "%s was not there.", capital(what))
	}
	return s.done(deleted{ID: id.String(), Deleted: true, With: idsOf(users)}, "%s deleted.", capital(whole))
}

// cascades adds to a refusal of what is in use what would do it all the same.
func (s *session) cascades(err error) error {
	if core.IsCode(err, core.CodeConflict) && !strings.Contains(err.Error(), "in progress state") {
		return fmt.Errorf("%w (--cascade does it)", err)
	}
	return err
}

func idsOf(all []arm.Resource) []string {
	var ids []string
	for _, r := range all {
		ids = append(ids, r.ID)
	}
	return ids
}
