package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
)

func (s *session) applicationCommand() *cobra.Command {
	c := &cobra.Command{Use: "app", Aliases: []string{"application", "apps", "applications"}, Short: "Applications and their graphs"}
	c.PersistentFlags().StringVarP(&s.group, "group", "g", "", "resource group (all groups unless set)")
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the applications of all groups", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := s.listKind(c.Context(), "applications")
			if err != nil {
				return err
			}
			t := table{columns: []string{"APPLICATION", "ENVIRONMENT", "GROUP", "STATE"}, empty: "There are no applications yet."}
			for _, r := range all {
				t.rows = append(t.rows, []string{r.Name, nameIn(text(r.Properties, "environment")), groupIn(r.ID), state(r)})
			}
			return s.show(view{data: orEmpty(all), table: t})
		},
	}
	show := &cobra.Command{
		Use: "show NAME", Short: "Show an application", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, _, err := s.findKind(c.Context(), "applications", "application", args[0])
			if err != nil {
				return err
			}
			return s.showResource(r)
		},
	}
	graph := &cobra.Command{
		Use: "graph NAME", Short: "Show what an application consists of, and how it is connected", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, id, err := s.findKind(c.Context(), "applications", "application", args[0])
			if err != nil {
				return err
			}
			g, err := s.graph(c.Context(), id)
			if err != nil {
				return err
			}
			return s.show(view{data: g, text: graphText(r.Name, g)})
		},
	}
	var yes bool
	remove := &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete an application and everything in it", Args: cobra.ExactArgs(1),
		Long: `Deletes an application with every resource that belongs to it, and what their recipes made.

What was adopted from a cluster comes back as long as its object there asks for it: take the annotations
or the objects away instead.`,
		RunE: func(c *cobra.Command, args []string) error {
			r, id, err := s.findKind(c.Context(), "applications", "application", args[0])
			if err != nil {
				return err
			}
			return s.removeApplication(c.Context(), r, id, yes)
		},
	}
	confirmFlag(remove, &yes)
	c.AddCommand(list, show, graph, remove)
	return c
}

func (s *session) graph(ctx context.Context, id core.ID) (arm.Graph, error) {
	g := arm.Graph{}
	c, err := s.client()
	if err != nil {
		return g, err
	}
	t, err := s.typeNamed(ctx, id.Type())
	if err != nil {
		return g, err
	}
	err = c.Action(ctx, id, "getGraph", t.version(), nil, &g)
	if g.Resources == nil {
		g.Resources = []arm.GraphResource{}
	}
	return g, err
}

// removeApplication deletes what belongs to an application, what uses others first, and then itself.
func (s *session) removeApplication(ctx context.Context, app *arm.Resource, id core.ID, yes bool) error {
	members, err := s.members(ctx, id)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("application %q", app.Name)
	question := what
	if n := len(members); n > 0 {
		question += fmt.Sprintf(" with %s", count(n, "resource"))
	}
	if err := s.confirm(yes, "Delete "+question+"?"); err != nil {
		return err
	}
	c, err := s.client()
	if err != nil {
		return err
	}
	for _, m := range members {
		t, err := s.typeNamed(ctx, m.Type())
		if err != nil {
			return err
		}
		a, err := c.Delete(ctx, m, t.version(), "")
		if err == nil {
			err = s.wait(ctx, fmt.Sprintf("deleting %s (%s)", m.Name(), m.Type()), a.Token)
		}
		if err != nil && !core.IsCode(err, core.CodeNotFound) {
			return fmt.Errorf("%s was not deleted, because %s (%s) could not be: %w", what, m.Name(), m.Type(), err)
		}
	}
	t, err := s.typeNamed(ctx, id.Type())
	if err != nil {
		return err
	}
	// An application that was made implicitly is gone with its last member: no answer to ask about.
	a, err := c.Delete(ctx, id, t.version(), "")
	if err == nil {
		err = s.wait(ctx, "deleting "+what, a.Token)
	}
	if err != nil && !core.IsCode(err, core.CodeNotFound) {
		return err
	}
	return s.done(deleted{ID: id.String(), Deleted: true}, "%s deleted.", capital(question))
}

// members are the resources that belong to an application, every one before what it uses.
func (s *session) members(ctx context.Context, app core.ID) ([]core.ID, error) {
	g, err := s.graph(ctx, app)
	if err != nil {
		return nil, err
	}
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	own := map[string]core.ID{}
	uses := map[string][]string{}
	var order []core.ID
	for _, r := range g.Resources {
		id, err := core.ParseID(r.ID)
		if err != nil || !id.IsResource() || id.Equal(app) {
			continue
		}
		t, err := s.typeNamed(ctx, id.Type())
		if err != nil {
			return nil, err
		}
		live, _, err := c.Get(ctx, id, t.version())
		if core.IsCode(err, core.CodeNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// The graph also shows what its members reach, which belongs to others.
		if of, err := core.ParseID(text(live.Properties, "application")); err != nil || !of.Equal(app) {
			continue
		}
		own[id.Key()] = id
		for _, c := range r.Connections {
			if to, err := core.ParseID(c.ID); err == nil && c.Direction != "Inbound" {
				uses[id.Key()] = append(uses[id.Key()], to.Key())
			}
		}
	}
	visited := map[string]bool{}
	var visit func(key string)
	visit = func(key string) {
		id, ok := own[key]
		if !ok || visited[key] {
			return
		}
		visited[key] = true
		for _, to := range uses[key] {
			visit(to)
		}
		order = append(order, id) // what it uses stands before it
	}
	for _, r := range g.Resources {
		if id, err := core.ParseID(r.ID); err == nil {
			visit(id.Key())
		}
	}
	slices.Reverse(order)
	return order, nil
}

func confirmFlag(c *cobra.Command, yes *bool) {
	c.Flags().BoolVarP(yes, "yes", "y", false, "delete without asking")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// orEmpty makes an empty list show as [], not as null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
