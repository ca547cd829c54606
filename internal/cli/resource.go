package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/core"
)

func (s *session) resourceCommand() *cobra.Command {
	c := &cobra.Command{Use: "resource", Aliases: []string{"resources"}, Short: "Resources of any type"}
	c.AddCommand(s.resourceList(), s.resourceShow(), s.resourceCreate(), s.resourceDelete())
	return c
}

func (s *session) resourceList() *cobra.Command {
	var application string
	c := &cobra.Command{
		Use: "list [TYPE]", Aliases: []string{"ls"}, Short: "List resources, of one type or of all", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := s.listResources(c.Context(), args)
			if err != nil {
				return err
			}
			all = slices.DeleteFunc(all, func(r arm.Resource) bool {
				return application != "" && !strings.EqualFold(nameIn(text(r.Properties, "application")), application) ||
					s.environment != "" && !strings.EqualFold(nameIn(text(r.Properties, "environment")), s.environment)
			})
			t := table{columns: []string{"RESOURCE", "TYPE", "GROUP", "STATE"}, empty: "There are no such resources."}
			for _, r := range all {
				t.rows = append(t.rows, []string{r.Name, r.Type, groupIn(r.ID), state(r)})
			}
			return s.show(view{data: orEmpty(all), table: t})
		},
	}
	c.Flags().StringVarP(&s.group, "group", "g", "", "resource group (all groups unless set)")
	c.Flags().StringVarP(&application, "application", "a", "", "only what belongs to this application")
	c.Flags().StringVarP(&s.environment, "environment", "e", "", "only what belongs to this environment")
	return c
}

// listResources lists resources of one type, or of every type of which the scope has any.
func (s *session) listResources(ctx context.Context, types []string) ([]arm.Resource, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	if len(types) == 0 {
		if types, err = s.typesInUse(ctx); err != nil {
			return nil, err
		}
	}
	var all []arm.Resource
	for _, name := range types {
		t, err := s.typeNamed(ctx, name)
		if err != nil {
			return nil, err
		}
		list, err := c.List(ctx, s.scope().Resource(t.Name, "").String(), t.version())
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b arm.Resource) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// typesInUse are the types of the resources in the group of -g, or in any group.
func (s *session) typesInUse(ctx context.Context) ([]string, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	groups := []string{s.group}
	if s.group == "" {
		all, err := s.groups(ctx)
		if err != nil {
			return nil, err
		}
		groups = names(all)
	}
	used := map[string]bool{}
	for _, g := range groups {
		list, err := c.List(ctx, core.GroupID(g).String()+"/resources", setup.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			used[r.Type] = true
		}
	}
	return sortedKeys(used), nil
}

// target is the resource that TYPE NAME, or an id alone, means.
func (s *session) target(ctx context.Context, args []string) (core.ID, resourceType, error) {
	if len(args) == 1 {
		id, err := core.ParseID(args[0])
		if err != nil || !id.IsResource() {
			return core.ID{}, resourceType{}, usagef("%q alone is not the id of a resource: name it as TYPE NAME, or by its whole id", args[0])
		}
		t, err := s.typeNamed(ctx, id.Type())
		return id, t, err
	}
	t, err := s.typeNamed(ctx, args[0])
	if err != nil {
		return core.ID{}, resourceType{}, err
	}
	if s.group != "" {
		return core.GroupID(s.group).Resource(t.Name, args[1]), t, nil
	}
	// Without a group: the only resource of that name, wherever it is.
	c, err := s.client()
	if err != nil {
		return core.ID{}, t, err
	}
	all, err := c.List(ctx, plane.Resource(t.Name, "").String(), t.version())
	if err != nil {
		return core.ID{}, t, err
	}
	var found, names []string
	for _, r := range all {
		names = append(names, r.Name)
		if strings.EqualFold(r.Name, args[1]) {
			found = append(found, r.ID)
		}
	}
	switch len(found) {
	case 0:
		return core.ID{}, t, notFound(t.Name, args[1], names, "radial resource list "+t.Name)
	case 1:
		id, err := core.ParseID(found[0])
		return id, t, err
	}
	return core.ID{}, t, usagef("more than one %s is called %q: say which by --group, or by its id:\n  %s", t.Name, args[1], strings.Join(found, "\n  "))
}

func (s *session) resourceShow() *cobra.Command {
	c := &cobra.Command{
		Use: "show TYPE NAME | ID", Aliases: []string{"get"}, Short: "Show a resource", Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			id, t, err := s.target(c.Context(), args)
			if err != nil {
				return err
			}
			api, err := s.client()
			if err != nil {
				return err
			}
			r, _, err := api.Get(c.Context(), id, t.version())
			if err != nil {
				return err
			}
			return s.showResource(r)
		},
	}
	c.Flags().StringVarP(&s.group, "group", "g", "", "resource group (any unless set)")
	return c
}

func (s *session) resourceCreate() *cobra.Command {
	var file string
	var set []string
	var application string
	c := &cobra.Command{
		Use: "create TYPE NAME", Aliases: []string{"put", "apply"}, Short: "Create or update a resource", Args: cobra.ExactArgs(2),
		Long: `Creates a resource, or updates the one that has the name, and waits until it is provisioned.

The properties come from a file in JSON or YAML (- is standard input), either bare or as the "properties"
of a whole resource, and from --set, which wins. --environment and --application name what it belongs to.`,
		Example: `  radial resource create Applications.Datastores/redisCaches cache --environment default
  radial resource create Radius.Data/postgreSqlDatabases db -e default --set size=S`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			t, err := s.typeNamed(ctx, args[0])
			if err != nil {
				return err
			}
			body, err := readBody(file, s.In)
			if err != nil {
				return err
			}
			if err := assign("set", body.Properties, set); err != nil {
				return err
			}
			if s.environment == "" && application == "" && body.Properties["environment"] == nil && body.Properties["application"] == nil {
				// Only what was switched to; default is nobody's choice.
				if s.environment, err = s.switchedTo(); err != nil {
					return err
				}
			}
			if s.environment != "" {
				_, id, err := s.elsewhere().findKind(ctx, "environments", "environment", s.environment)
				if err != nil {
					return err
				}
				body.Properties["environment"] = id.String()
			}
			if application != "" {
				_, id, err := s.elsewhere().findKind(ctx, "applications", "application", application)
				if err != nil {
					return err
				}
				body.Properties["application"] = id.String()
			}
			id := core.GroupID(cmp.Or(s.group, setup.DefaultName)).Resource(t.Name, args[1])
			r, err := s.write(ctx, id, t.version(), body, fmt.Sprintf("provisioning %s (%s)", args[1], t.Name))
			if core.IsCode(err, core.CodeInvalidContent) && body.Properties["environment"] == nil && strings.Contains(err.Error(), "environment: is required") {
				return fmt.Errorf("%w (say which by --environment NAME, or by radial env switch NAME once for all commands)", err)
			}
			if err != nil {
				return err
			}
			return s.showResource(r)
		},
	}
	c.Flags().StringVarP(&s.group, "group", "g", "", "resource group (default unless set)")
	c.Flags().StringVarP(&file, "file", "f", "", "file with the properties, - for standard input")
	c.Flags().StringArrayVar(&set, "set", nil, "one property, as path=value; the value may be JSON (may be repeated)")
	c.Flags().StringVarP(&s.environment, "environment", "e", "", "environment to belong to, by name or id (the one that radial env switch chose, where no application is named)")
	c.Flags().StringVarP(&application, "application", "a", "", "application to belong to, by name or id")
	return c
}

// elsewhere is the session without its group: what a resource belongs to may live in another one.
func (s *session) elsewhere() *session {
	o := *s
	o.group = ""
	return &o
}

func (s *session) resourceDelete() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete TYPE NAME | ID", Aliases: []string{"rm"}, Short: "Delete a resource and what its recipe made", Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			id, t, err := s.target(c.Context(), args)
			if err != nil {
				return err
			}
			return s.remove(c.Context(), id, t.version(), fmt.Sprintf("%s %q", t.Name, id.Name()), yes)
		},
	}
	c.Flags().StringVarP(&s.group, "group", "g", "", "resource group (any unless set)")
	confirmFlag(c, &yes)
	return c
}

// showResource shows one resource: what it is and belongs to, then its properties.
func (s *session) showResource(r *arm.Resource) error {
	rest := maps.Clone(r.Properties)
	for _, k := range []string{"application", "environment", "provisioningState"} {
		delete(rest, k)
	}
	owner := ""
	if o := r.Owner; o != nil {
		owner = fmt.Sprintf("%s %s/%s in cluster %s", o.Kind, o.Namespace, o.Name, o.Cluster)
	}
	out := fields(
		[2]string{"Name", r.Name},
		[2]string{"Type", r.Type},
		[2]string{"Group", groupIn(r.ID)},
		[2]string{"State", state(*r)},
		[2]string{"Application", nameIn(text(r.Properties, "application"))},
		[2]string{"Environment", nameIn(text(r.Properties, "environment"))},
		[2]string{"Stands for", owner},
	)
	if len(rest) > 0 {
		b, err := yaml.Marshal(rest)
		if err != nil {
			return err
		}
		out += "Properties:\n  " + strings.ReplaceAll(strings.TrimRight(string(b), "\n"), "\n", "\n  ")
	}
	return s.show(view{data: r, text: out})
}

// readBody reads a resource from a file: bare properties, or a resource that has them.
func readBody(file string, in io.Reader) (*arm.Resource, error) {
	body := &arm.Resource{Location: "global", Properties: map[string]any{}}
	if file == "" {
		return body, nil
	}
	raw, err := readFile(file, in)
	if err != nil {
		return nil, err
	}
	var whole map[string]any
	if err := yaml.Unmarshal(raw, &whole); err != nil {
		return nil, usagef("%s is neither JSON nor YAML: %w", file, err)
	}
	properties, ok := whole["properties"].(map[string]any)
	if !ok {
		if whole != nil {
			body.Properties = whole
		}
		return body, nil
	}
	body.Properties = properties
	if location, ok := whole["location"].(string); ok {
		body.Location = location
	}
	if tags, ok := whole["tags"].(map[string]any); ok {
		body.Tags = map[string]string{}
		for k, v := range tags {
			body.Tags[k] = fmt.Sprint(v)
		}
	}
	return body, nil
}

func readFile(file string, in io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(in)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, usagef("cannot read the file: %w", err)
	}
	return raw, nil
}

// assign sets properties from path=value, where a path is names joined by dots and a value that reads as JSON
// is JSON. The flag is the one that they came by.
func assign(flag string, properties map[string]any, set []string) error {
	for _, one := range set {
		path, value, ok := strings.Cut(one, "=")
		if !ok || path == "" {
			return usagef("--%s %q is not of the form path=value", flag, one)
		}
		names := strings.Split(path, ".")
		at := properties
		for _, n := range names[:len(names)-1] {
			next, ok := at[n].(map[string]any)
			if !ok {
				if at[n] != nil {
					return usagef("--set %q: %q is not an object", one, n)
				}
				next = map[string]any{}
				at[n] = next
			}
			at = next
		}
		var v any
		if json.Unmarshal([]byte(value), &v) != nil {
			v = value
		}
		at[names[len(names)-1]] = v
	}
	return nil
}
