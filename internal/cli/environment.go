package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/core"
)

func (s *session) environmentCommand() *cobra.Command {
	c := &cobra.Command{Use: "env", Aliases: []string{"environment", "environments", "envs"}, Short: "Environments: where applications go, and who may use them"}
	c.PersistentFlags().StringVarP(&s.group, "group", "g", "", "resource group (any for what exists, default for what is created)")
	c.AddCommand(s.environmentList(), s.environmentShow(), s.environmentCreate(), s.environmentUpdate(), s.environmentDelete(), s.environmentSwitch())
	return c
}

func (s *session) environmentList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the environments", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := s.listKind(c.Context(), "environments")
			if err != nil {
				return err
			}
			t := table{columns: []string{"ENVIRONMENT", "GROUP", "NAMESPACE", "ALLOWED NAMESPACES", "STATE"}, empty: "There are no environments: radial env create NAME makes one."}
			for _, r := range all {
				t.rows = append(t.rows, []string{r.Name, groupIn(r.ID), computeNamespace(r), strings.Join(allowed(r), ","), state(r)})
			}
			return s.show(view{data: orEmpty(all), table: t})
		},
	}
}

func (s *session) environmentShow() *cobra.Command {
	return &cobra.Command{
		Use: "show [NAME]", Short: "Show an environment: the one that is named, or the one in use", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			name, err := s.environmentInUse(name)
			if err != nil {
				return err
			}
			r, _, err := s.findKind(c.Context(), "environments", "environment", name)
			if err != nil {
				return err
			}
			return s.showResource(r)
		},
	}
}

func (s *session) environmentCreate() *cobra.Command {
	var namespace string
	var allow []string
	c := &cobra.Command{
		Use: "create NAME", Short: "Create an environment", Args: cobra.ExactArgs(1),
		Long: `Creates an environment. What recipes make for resources without a namespace of their own goes into
--namespace. Objects of a cluster may use the environment only from the namespaces that --allow-namespace
gives: a name means that namespace of cluster local, CLUSTER/NAME one of another cluster, * every one.`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			id := core.GroupID(cmp.Or(s.group, setup.DefaultName)).Resource(setup.EnvironmentType, args[0])
			api, err := s.client()
			if err != nil {
				return err
			}
			if _, _, err := api.Get(ctx, id, setup.CoreVersion); err == nil {
				return fmt.Errorf("environment %q exists already in group %q: change it with radial env update", args[0], id.Group())
			} else if !core.IsCode(err, core.CodeNotFound) {
				return err
			}
			properties := map[string]any{"compute": map[string]any{"kind": "kubernetes", "namespace": cmp.Or(namespace, args[0])}}
			if len(allow) > 0 {
				properties["allowedNamespaces"] = allow
			}
			r, err := s.write(ctx, id, setup.CoreVersion, arm.Resource{Location: "global", Properties: properties}, "creating the environment")
			if err != nil {
				return err
			}
			return s.done(r, "Environment %q created in group %q. Register recipes with radial recipe register -e %s.", args[0], id.Group(), args[0])
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace for what recipes make (the environment's name unless set)")
	c.Flags().StringSliceVar(&allow, "allow-namespace", nil, "namespaces whose objects may use the environment (may be repeated)")
	return c
}

func (s *session) environmentUpdate() *cobra.Command {
	var namespace string
	var allow, disallow []string
	c := &cobra.Command{
		Use: "update NAME", Short: "Change an environment", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if namespace == "" && len(allow) == 0 && len(disallow) == 0 {
				return usagef("nothing to change: give --allow-namespace, --disallow-namespace or --namespace")
			}
			ctx := c.Context()
			_, id, err := s.findKind(ctx, "environments", "environment", args[0])
			if err != nil {
				return err
			}
			api, err := s.client()
			if err != nil {
				return err
			}
			version, err := s.typeNamed(ctx, id.Type())
			if err != nil {
				return err
			}
			var after *arm.Resource
			err = setup.Change(ctx, api, id, version.version(), func(env *arm.Resource) (bool, error) {
				after = env
				before := allowed(*env)
				now := slices.DeleteFunc(slices.Clone(before), func(n string) bool { return slices.Contains(disallow, n) })
				for _, n := range allow {
					if !slices.Contains(now, n) {
						now = append(now, n)
					}
				}
				write := !slices.Equal(before, now)
				env.Properties["allowedNamespaces"] = now
				if namespace != "" && namespace != computeNamespace(*env) {
					write = true
					setComputeNamespace(env, namespace)
				}
				return write, nil
			})
			if err != nil {
				return err
			}
			who := "no namespace"
			if names := allowed(*after); len(names) > 0 {
				who = strings.Join(names, ", ")
			}
			return s.done(after, "Environment %q: objects may use it from %s; recipes make theirs in namespace %s.", args[0], who, computeNamespace(*after))
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace for what recipes make")
	c.Flags().StringSliceVar(&allow, "allow-namespace", nil, "let objects of these namespaces use it: NAME, CLUSTER/NAME, CLUSTER/* or *")
	c.Flags().StringSliceVar(&disallow, "disallow-namespace", nil, "take namespaces off the list, as they stand there")
	return c
}

func (s *session) environmentDelete() *cobra.Command {
	var yes, cascade bool
	c := &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete an environment", Args: cobra.ExactArgs(1),
		Long: `Deletes an environment. One that applications or resources use is refused, with the list of them;
--cascade deletes those first, with everything in them.

What was adopted from a cluster comes back as long as its object there asks for it, and then waits for the
environment.`,
		RunE: func(c *cobra.Command, args []string) error {
			_, id, err := s.findKind(c.Context(), "environments", "environment", args[0])
			if err != nil {
				return err
			}
			t, err := s.typeNamed(c.Context(), id.Type())
			if err != nil {
				return err
			}
			return s.removeWith(c.Context(), removal{
				id: id, version: t.version(), what: fmt.Sprintf("environment %q", id.Name()), cascade: cascade, yes: yes, users: s.members(plane, core.ID{}, id),
			})
		},
	}
	confirmFlag(c, &yes)
	cascadeFlag(c, &cascade, "delete the applications and resources that use it first")
	return c
}

// allowed are the namespaces whose objects may use an environment.
func allowed(env arm.Resource) []string {
	var names []string
	switch list := env.Properties["allowedNamespaces"].(type) {
	case []any:
		for _, n := range list {
			names = append(names, fmt.Sprint(n))
		}
	case []string:
		names = list
	}
	return names
}

func computeNamespace(env arm.Resource) string {
	return cmp.Or(text(env.Properties, "compute", "namespace"), text(env.Properties, "providers", "kubernetes", "namespace"))
}

// setComputeNamespace writes the namespace to where the environment's type keeps it.
func setComputeNamespace(env *arm.Resource, namespace string) {
	path := []string{"compute"}
	if strings.HasPrefix(env.Type, "Radius.Core/") {
		path = []string{"providers", "kubernetes"}
	}
	at := env.Properties
	for _, p := range path {
		next, ok := at[p].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[p] = next
		}
		at = next
	}
	at["namespace"] = namespace
}
