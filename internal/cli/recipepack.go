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

// packType is the type of recipe packs.
const packType = "Radius.Core/recipePacks"

func (s *session) recipePackCommand() *cobra.Command {
	c := &cobra.Command{Use: "recipe-pack", Aliases: []string{"recipe-packs"}, Short: "Recipe packs: recipes that environments of Radius.Core share"}
	c.PersistentFlags().StringVarP(&s.group, "group", "g", "", "resource group (any for what exists, default for what is created)")
	c.AddCommand(s.packList(), s.packShow(), s.packCreate(), s.packDelete())
	return c
}

// packed is one recipe of a pack.
type packed struct {
	ResourceType string
	Kind, Source string
}

func packedIn(r arm.Resource) []packed {
	recipes, _ := r.Properties["recipes"].(map[string]any)
	var all []packed
	for _, t := range sortedKeys(recipes) {
		entry, _ := recipes[t].(map[string]any)
		all = append(all, packed{t, text(entry, "kind"), text(entry, "source")})
	}
	return all
}

func (s *session) packs(ctx context.Context) ([]arm.Resource, resourceType, error) {
	t, err := s.typeNamed(ctx, packType)
	if err != nil {
		return nil, t, err
	}
	c, err := s.client()
	if err != nil {
		return nil, t, err
	}
	all, err := c.List(ctx, s.scope().Resource(packType, "").String(), t.version())
	slices.SortFunc(all, func(a, b arm.Resource) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return all, t, err
}

func (s *session) packList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the recipe packs", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, _, err := s.packs(c.Context())
			if err != nil {
				return err
			}
			t := table{columns: []string{"RECIPE PACK", "GROUP", "TYPES", "STATE"}, empty: "There are no recipe packs: radial recipe-pack create NAME makes one."}
			for _, r := range all {
				var types []string
				for _, p := range packedIn(r) {
					types = append(types, p.ResourceType)
				}
				t.rows = append(t.rows, []string{r.Name, groupIn(r.ID), strings.Join(types, ","), state(r)})
			}
			return s.show(view{data: orEmpty(all), table: t})
		},
	}
}

func (s *session) packShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Aliases: []string{"get"}, Short: "Show a recipe pack", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, _, _, err := s.findPack(c.Context(), args[0])
			if err != nil {
				return err
			}
			rows := table{columns: []string{"TYPE", "KIND", "TEMPLATE"}, empty: "(no recipes)"}
			for _, p := range packedIn(*r) {
				rows.rows = append(rows.rows, []string{p.ResourceType, p.Kind, p.Source})
			}
			out := fields([2]string{"Name", r.Name}, [2]string{"Group", groupIn(r.ID)}, [2]string{"State", state(*r)}, [2]string{"Id", r.ID})
			return s.show(view{data: r, text: out + "\n" + rows.String()})
		},
	}
}

func (s *session) findPack(ctx context.Context, name string) (*arm.Resource, core.ID, resourceType, error) {
	all, t, err := s.packs(ctx)
	if err != nil {
		return nil, core.ID{}, t, err
	}
	var found, known []string
	var r *arm.Resource
	for i := range all {
		known = append(known, all[i].Name)
		if strings.EqualFold(all[i].Name, name) || strings.EqualFold(all[i].ID, name) {
			found = append(found, all[i].ID)
			r = &all[i]
		}
	}
	switch len(found) {
	case 0:
		return nil, core.ID{}, t, notFound("recipe pack", name, known, "radial recipe-pack list")
	case 1:
		id, err := core.ParseID(r.ID)
		return r, id, t, err
	}
	return nil, core.ID{}, t, usagef("more than one recipe pack is called %q: say which by --group, or by its id:\n  %s", name, strings.Join(found, "\n  "))
}

func (s *session) packCreate() *cobra.Command {
	var file string
	var recipes []string
	var plain bool
	c := &cobra.Command{
		Use: "create NAME", Aliases: []string{"apply"}, Short: "Create a recipe pack, or replace the one that has the name", Args: cobra.ExactArgs(1),
		Long: `Creates a recipe pack from --recipe TYPE=TEMPLATE, or from the properties in a file (JSON or YAML), which can
say more of each recipe: parameters, and the names of outputs. Both together add up.

An environment of Radius.Core uses a pack when its recipePacks name it.`,
		Example: `  radial recipe-pack create base --recipe Applications.Datastores/redisCaches=registry.example.com/recipes/redis:1.0`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			if file == "" && len(recipes) == 0 {
				return usagef("a recipe pack has recipes: give --recipe TYPE=TEMPLATE or --file")
			}
			t, err := s.typeNamed(ctx, packType)
			if err != nil {
				return err
			}
			body, err := readBody(file, s.In)
			if err != nil {
				return err
			}
			all, _ := body.Properties["recipes"].(map[string]any)
			if all == nil {
				all = map[string]any{}
			}
			for _, one := range recipes {
				of, template, ok := strings.Cut(one, "=")
				if !ok || of == "" || template == "" {
					return usagef("--recipe %q is not of the form TYPE=TEMPLATE", one)
				}
				known, err := s.typeNamed(ctx, of)
				if err != nil {
					return err
				}
				entry := map[string]any{"kind": "template", "source": template}
				if plain {
					entry["plainHttp"] = true
				}
				all[known.Name] = entry
			}
			body.Properties["recipes"] = all
			id := core.GroupID(cmp.Or(s.group, setup.DefaultName)).Resource(packType, args[0])
			r, err := s.write(ctx, id, t.version(), *body, "writing the recipe pack")
			if err != nil {
				return err
			}
			return s.done(r, "Recipe pack %q is there, with %s. An environment uses it when its recipePacks name %s.", args[0], count(len(all), "recipe"), r.ID)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "file with the properties, - for standard input")
	c.Flags().StringArrayVar(&recipes, "recipe", nil, "one recipe, as TYPE=TEMPLATE (may be repeated)")
	c.Flags().BoolVar(&plain, "plain-http", false, "speak to the registries of --recipe without TLS")
	return c
}

func (s *session) packDelete() *cobra.Command {
	var yes, cascade bool
	c := &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete a recipe pack", Args: cobra.ExactArgs(1),
		Long: `Deletes a recipe pack. One that environments name is refused, with the list of them; --cascade takes it out
of those first. What its recipes have made stays, and is still deleted with its resources.`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			r, id, t, err := s.findPack(ctx, args[0])
			if err != nil {
				return err
			}
			what := fmt.Sprintf("recipe pack %q", r.Name)
			if err := s.confirm(yes, "Delete "+what+"?"); err != nil {
				return err
			}
			if cascade {
				if err := s.releasePack(ctx, id); err != nil {
					return err
				}
			}
			return s.removeWith(ctx, removal{id: id, version: t.version(), what: what, yes: true})
		},
	}
	confirmFlag(c, &yes)
	cascadeFlag(c, &cascade, "take it out of the environments that name it first")
	return c
}

// releasePack takes a recipe pack out of every environment that names it.
func (s *session) releasePack(ctx context.Context, pack core.ID) error {
	environments, err := s.elsewhere().listKind(ctx, "environments")
	if err != nil {
		return err
	}
	c, err := s.client()
	if err != nil {
		return err
	}
	names := func(env arm.Resource, ref any) bool {
		id, err := core.ParseID(fmt.Sprint(ref))
		if err != nil { // a bare name is one of the environment's own group
			own, _ := core.ParseID(env.ID)
			id = own.Scope().Resource(packType, fmt.Sprint(ref))
		}
		return id.Equal(pack)
	}
	for _, env := range environments {
		list, _ := env.Properties["recipePacks"].([]any)
		if !slices.ContainsFunc(list, func(ref any) bool { return names(env, ref) }) {
			continue
		}
		id, err := core.ParseID(env.ID)
		if err != nil {
			return err
		}
		t, err := s.typeNamed(ctx, id.Type())
		if err != nil {
			return err
		}
		err = setup.Change(ctx, c, id, t.version(), func(env *arm.Resource) (bool, error) {
			list, _ := env.Properties["recipePacks"].([]any)
			left := slices.DeleteFunc(slices.Clone(list), func(ref any) bool { return names(*env, ref) })
			env.Properties["recipePacks"] = left
			return len(left) < len(list), nil
		})
		if err != nil {
			return fmt.Errorf("environment %q still names the recipe pack: %w", env.Name, err)
		}
	}
	return nil
}
