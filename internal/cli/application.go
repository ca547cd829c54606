package cli

import (
	"context"
	"fmt"

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
	var yes, cascade bool
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
			what := fmt.Sprintf("application %q", r.Name)
			t, err := s.typeNamed(c.Context(), id.Type())
			if err != nil {
				return err
			}
			return s.removeWith(c.Context(), removal{
				id: id, version: t.version(), what: what, cascade: cascade, yes: yes, users: s.members(plane, id, core.ID{}),
			})
		},
	}
	confirmFlag(remove, &yes)
	remove.Flags().BoolVar(&cascade, "cascade", true, "delete what belongs to it first; with =false an application that holds anything stays")
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
