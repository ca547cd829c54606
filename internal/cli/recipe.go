package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/core"
)

func (s *session) recipeCommand() *cobra.Command {
	c := &cobra.Command{Use: "recipe", Aliases: []string{"recipes"}, Short: "Recipes: what provisions the resources of a type in an environment"}
	c.PersistentFlags().StringVarP(&s.environment, "environment", "e", "", "environment, by name or id (the one in use, see radial env switch; else default)")
	c.PersistentFlags().StringVarP(&s.group, "group", "g", "", "resource group of the environment (any unless set)")
	c.AddCommand(s.recipeList(), s.recipeShow(), s.recipeRegister(), s.recipeUnregister(), s.recipePublish())
	return c
}

// registered is one recipe of an environment.
type registered struct {
	Name         string `json:"name"`
	ResourceType string `json:"resourceType"`
	setup.Template
}

// registrations reads the recipes of an environment, in the order of type and name.
func registrations(env *arm.Resource) []registered {
	all := []registered{}
	types, _ := env.Properties["recipes"].(map[string]any)
	for resourceType, v := range types {
		byName, _ := v.(map[string]any)
		for name, v := range byName {
			entry, _ := v.(map[string]any)
			all = append(all, registered{Name: name, ResourceType: resourceType, Template: setup.TemplateOf(entry)})
		}
	}
	slices.SortFunc(all, func(a, b registered) int {
		return cmp.Or(cmp.Compare(a.ResourceType, b.ResourceType), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// environmentForRecipes finds the environment of -e, which must be of the kind that holds recipes itself.
func (s *session) environmentForRecipes(ctx context.Context) (*arm.Resource, core.ID, error) {
	name, err := s.environmentInUse(s.environment)
	if err != nil {
		return nil, core.ID{}, err
	}
	env, id, err := s.findKind(ctx, "environments", "environment", name)
	if err == nil && !strings.EqualFold(id.Type(), setup.EnvironmentType) {
		return nil, id, usagef("environment %q is a %s: its recipes are in the recipe packs that it names, not in itself (radial resource show %s)", env.Name, id.Type(), id)
	}
	return env, id, err
}

func (s *session) recipeList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the recipes of an environment", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			env, _, err := s.environmentForRecipes(c.Context())
			if err != nil {
				return err
			}
			all := registrations(env)
			t := table{
				columns: []string{"RECIPE", "TYPE", "KIND", "TEMPLATE"},
				empty:   fmt.Sprintf("No recipes are registered in environment %q: radial recipe register adds one.", env.Name),
			}
			for _, r := range all {
				t.rows = append(t.rows, []string{r.Name, r.ResourceType, r.Kind, r.Path})
			}
			return s.show(view{data: all, table: t})
		},
	}
}

func (s *session) recipeShow() *cobra.Command {
	var of string
	c := &cobra.Command{
		Use: "show NAME --resource-type TYPE", Short: "Show a recipe", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			env, _, err := s.environmentForRecipes(c.Context())
			if err != nil {
				return err
			}
			r, err := s.oneRecipe(c.Context(), env, of, args[0])
			if err != nil {
				return err
			}
			pairs := [][2]string{
				{"Name", r.Name}, {"Type", r.ResourceType}, {"Environment", env.Name},
				{"Kind", r.Kind}, {"Template", r.Path}, {"Version", r.Version},
			}
			if r.PlainHTTP {
				pairs = append(pairs, [2]string{"Plain HTTP", "yes"})
			}
			for _, name := range sortedKeys(r.Parameters) {
				pairs = append(pairs, [2]string{"Parameter " + name, fmt.Sprint(r.Parameters[name])})
			}
			return s.show(view{data: r, text: fields(pairs...)})
		},
	}
	typeFlag(c, &of)
	return c
}

// oneRecipe finds a recipe by name, and by type where the name is not the only one.
func (s *session) oneRecipe(ctx context.Context, env *arm.Resource, of, name string) (registered, error) {
	if of != "" {
		t, err := s.typeNamed(ctx, of)
		if err != nil {
			return registered{}, err
		}
		of = t.Name
	}
	var found []registered
	var names []string
	for _, r := range registrations(env) {
		names = append(names, r.Name)
		if strings.EqualFold(r.Name, name) && (of == "" || strings.EqualFold(r.ResourceType, of)) {
			found = append(found, r)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && of != "":
		return registered{}, core.Errorf(core.CodeNotFound, "environment %q has no recipe %q for %s (radial recipe list -e %s shows what there is)", env.Name, name, of, env.Name)
	case len(found) == 0:
		return registered{}, notFound("recipe", name, names, "radial recipe list -e "+env.Name)
	}
	var types []string
	for _, r := range found {
		types = append(types, r.ResourceType)
	}
	return registered{}, usagef("recipe %q is registered for more than one type: say which with --resource-type, of %s", name, strings.Join(types, ", "))
}

func (s *session) recipeRegister() *cobra.Command {
	var of string
	var t setup.Template
	var parameters []string
	c := &cobra.Command{
		Use:   "register NAME --resource-type TYPE --template-path PATH",
		Short: "Register a recipe, or change the one that has the name",
		Long: `Registers a recipe in an environment. Resources of the type use the recipe named default unless they name
another. The path is an OCI reference, host/repository:tag or host/repository@sha256:..., or in developer
mode a file:// URL.`,
		Example: `  radial recipe register default --resource-type Applications.Datastores/redisCaches \
    --template-path registry.example.com/recipes/redis:1.0 -p memory=256Mi`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			known, err := s.typeNamed(ctx, of)
			if err != nil {
				return err
			}
			t.Parameters = map[string]any{}
			if err := assign("parameters", t.Parameters, parameters); err != nil {
				return err
			}
			_, id, err := s.environmentForRecipes(ctx)
			if err != nil {
				return err
			}
			api, err := s.client()
			if err != nil {
				return err
			}
			r := setup.Registration{ResourceType: known.Name, Name: args[0], Template: t}
			err = setup.Change(ctx, api, id, setup.CoreVersion, func(env *arm.Resource) (bool, error) {
				return setup.Register(env, r, true), nil
			})
			if err != nil {
				return err
			}
			return s.done(r, "Recipe %q registered for %s in environment %q.", args[0], known.Name, id.Name())
		},
	}
	typeFlag(c, &of)
	c.Flags().StringVar(&t.Kind, "template-kind", "template", "kind of template: template (ARM JSON) or bicep, which is compiled to it")
	c.Flags().StringVar(&t.Path, "template-path", "", "where the template lies")
	c.Flags().StringVar(&t.Version, "template-version", "", "version of the template, for kinds that have one")
	c.Flags().BoolVar(&t.PlainHTTP, "plain-http", false, "speak to the registry without TLS")
	c.Flags().StringArrayVarP(&parameters, "parameter", "p", nil, "one parameter, as name=value; the value may be JSON (may be repeated)")
	required(c, "resource-type", "template-path")
	return c
}

func (s *session) recipeUnregister() *cobra.Command {
	var of string
	c := &cobra.Command{
		Use: "unregister NAME --resource-type TYPE", Short: "Take a recipe out of an environment", Args: cobra.ExactArgs(1),
		Long: `Takes a recipe out of an environment. What it has provisioned stays, and is still deleted with its resource.`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			env, id, err := s.environmentForRecipes(ctx)
			if err != nil {
				return err
			}
			r, err := s.oneRecipe(ctx, env, of, args[0])
			if err != nil {
				return err
			}
			api, err := s.client()
			if err != nil {
				return err
			}
			err = setup.Change(ctx, api, id, setup.CoreVersion, func(env *arm.Resource) (bool, error) {
				return setup.Unregister(env, r.ResourceType, r.Name), nil
			})
			if err != nil {
				return err
			}
			return s.done(r, "Recipe %q for %s is no longer registered in environment %q.", r.Name, r.ResourceType, env.Name)
		},
	}
	typeFlag(c, &of)
	return c
}

func typeFlag(c *cobra.Command, of *string) {
	c.Flags().StringVar(of, "resource-type", "", "type of the resources that the recipe provisions")
}

// required refuses a command line without flags that the command cannot do without.
func required(c *cobra.Command, flags ...string) {
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		for _, f := range flags {
			if !c.Flags().Changed(f) {
				return usagef("%s needs --%s", c.CommandPath(), strings.Join(flags, " and --"))
			}
		}
		return nil
	}
}
