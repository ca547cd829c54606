package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
)

// D-6: what is in use is not deleted; the control plane refuses it and lists what uses it. A cascade is one
// operation there that deletes the users first: it can be followed and canceled like any other.

func cascadeFlag(c *cobra.Command, cascade *bool, what string) {
	c.Flags().BoolVar(cascade, "cascade", false, what)
}

// removal is a deletion that may take with it what uses its target.
type removal struct {
	id      core.ID
	version string
	// what names the target in a sentence.
	what    string
	cascade bool
	yes     bool
	// users counts what uses the target, for the question; it is asked only where the cascade is.
	users func(context.Context) (int, error)
}

// members counts what stands in a scope and belongs to an application or an environment.
func (s *session) members(scope, application, environment core.ID) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		c, err := s.client()
		if err != nil {
			return 0, err
		}
		all, err := c.Members(ctx, scope, application, environment)
		n := 0
		for _, m := range all {
			id, err := core.ParseID(m.ID)
			if err == nil && !id.Equal(application) && !id.Equal(environment) {
				n++
			}
		}
		return n, err
	}
}

// ofTypes counts the resources of types.
func (s *session) ofTypes(types ...resourceType) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		c, err := s.client()
		if err != nil {
			return 0, err
		}
		n := 0
		for _, t := range types {
			all, err := c.List(ctx, plane.Resource(t.Name, "").String(), t.version())
			if err != nil {
				return n, err
			}
			n += len(all)
		}
		return n, nil
	}
}

// removeWith asks, deletes, waits for the end, and says so.
func (s *session) removeWith(ctx context.Context, r removal) error {
	whole, n := r.what, 0
	if r.cascade {
		var err error
		if n, err = r.users(ctx); err != nil {
			return err
		}
		if n > 0 {
			whole += " with " + count(n, "resource")
		}
	}
	c, err := s.client()
	if err != nil {
		return err
	}
	if err := s.confirm(r.yes, "Delete "+whole+"?"); err != nil {
		return err
	}
	a, err := c.Remove(ctx, r.id, r.version, client.Removal{Cascade: r.cascade})
	if err == nil {
		err = s.wait(ctx, "deleting "+whole, a.Token)
	}
	switch {
	case core.IsCode(err, core.CodeConflict) && !r.cascade && !strings.Contains(err.Error(), "in progress state"):
		return fmt.Errorf("%w (--cascade does it)", err)
	case core.IsCode(err, core.CodeNotFound) && a != nil: // the operation took its own record along
	case err != nil:
		return err
	case a.Missing:
		return s.done(deleted{ID: r.id.String()}, "%s was not there.", capital(r.what))
	}
	return s.done(deleted{ID: r.id.String(), Deleted: true, With: n}, "%s deleted.", capital(whole))
}
