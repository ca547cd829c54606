package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/core"
)

func (s *session) groupCommand() *cobra.Command {
	c := &cobra.Command{Use: "group", Aliases: []string{"groups"}, Short: "Resource groups"}
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the resource groups", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := s.groups(c.Context())
			if err != nil {
				return err
			}
			t := table{columns: []string{"GROUP"}, empty: "There are no resource groups."}
			for _, r := range all {
				t.rows = append(t.rows, []string{r.Name})
			}
			return s.show(view{data: orEmpty(all), table: t})
		},
	}
	show := &cobra.Command{
		Use: "show NAME", Short: "Show a resource group", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := s.findGroup(c.Context(), args[0])
			if err != nil {
				return err
			}
			return s.show(view{data: r, text: fields([2]string{"Name", r.Name}, [2]string{"Id", r.ID})})
		},
	}
	create := &cobra.Command{
		Use: "create NAME", Short: "Create a resource group", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := s.write(c.Context(), core.GroupID(args[0]), setup.GroupVersion, arm.Resource{Location: "global", Properties: map[string]any{}}, "creating the group")
			if err != nil {
				return err
			}
			return s.done(r, "Group %q is there.", args[0])
		},
	}
	var yes, cascade bool
	remove := &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete a resource group", Args: cobra.ExactArgs(1),
		Long: `Deletes a resource group. One that holds anything is refused, with what it holds; --cascade deletes that
first.`,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := s.findGroup(c.Context(), args[0])
			if err != nil {
				return err
			}
			id := core.GroupID(r.Name)
			return s.removeWith(c.Context(), removal{
				id: id, version: setup.GroupVersion, what: fmt.Sprintf("group %q", r.Name), cascade: cascade, yes: yes, users: s.members(id, core.ID{}, core.ID{}),
			})
		},
	}
	confirmFlag(remove, &yes)
	cascadeFlag(remove, &cascade, "delete what it holds first")
	c.AddCommand(list, show, create, remove)
	return c
}

func (s *session) groups(ctx context.Context) ([]arm.Resource, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	return c.List(ctx, plane.String()+"/resourceGroups", setup.GroupVersion)
}

func names(all []arm.Resource) []string {
	var names []string
	for _, r := range all {
		names = append(names, r.Name)
	}
	return names
}

// findGroup asks for one group; one that is missing is said with its close names.
func (s *session) findGroup(ctx context.Context, name string) (*arm.Resource, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	r, _, err := c.Get(ctx, core.GroupID(name), setup.GroupVersion)
	if !core.IsCode(err, core.CodeNotFound) {
		return r, err
	}
	all, err := s.groups(ctx)
	if err != nil {
		return nil, err
	}
	return nil, notFound("group", name, names(all), "radial group list")
}
