package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/manifest"
)

func (s *session) resourceProviderCommand() *cobra.Command {
	c := &cobra.Command{Use: "resource-provider", Aliases: []string{"resource-providers"}, Short: "Resource providers: the namespaces of resource types"}
	c.AddCommand(s.providerList(), s.providerShow(), s.providerCreate(), s.providerDelete())
	return c
}

func typesIn(p client.Provider) []string { return sortedKeys(p.ResourceTypes) }

func (s *session) providerList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the resource providers", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := s.client()
			if err != nil {
				return err
			}
			all, err := api.Providers(c.Context())
			if err != nil {
				return err
			}
			t := table{columns: []string{"RESOURCE PROVIDER", "TYPES"}, empty: "There are no resource providers."}
			for _, p := range all {
				t.rows = append(t.rows, []string{p.Name, strings.Join(typesIn(p), ",")})
			}
			return s.show(view{data: orEmpty(all), table: t})
		},
	}
}

func (s *session) providerShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAMESPACE", Aliases: []string{"get"}, Short: "Show a resource provider and its types", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := s.client()
			if err != nil {
				return err
			}
			all, err := api.Providers(c.Context())
			if err != nil {
				return err
			}
			p, err := providerNamed(all, args[0])
			if err != nil {
				return err
			}
			t := table{columns: []string{"TYPE", "API VERSIONS", "CAPABILITIES"}, empty: "(no types)"}
			for _, name := range typesIn(p) {
				one := resourceType{Name: p.Name + "/" + name, ResourceType: p.ResourceTypes[name]}
				t.rows = append(t.rows, []string{one.Name, strings.Join(one.versions(), ","), strings.Join(one.Capabilities, ",")})
			}
			return s.show(view{data: p, table: t})
		},
	}
}

func providerNamed(all []client.Provider, name string) (client.Provider, error) {
	var known []string
	for _, p := range all {
		if strings.EqualFold(p.Name, name) {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return client.Provider{}, notFound("resource provider", name, known, "radial resource-provider list")
}

func (s *session) providerCreate() *cobra.Command {
	var file string
	var force bool
	c := &cobra.Command{
		Use: "create -f MANIFEST", Aliases: []string{"apply"}, Short: "Register a resource provider with all types of a manifest", Args: cobra.NoArgs,
		Long: `Registers the namespace of a manifest (YAML or JSON) with all of its types, like radial resource-type create.
The whole manifest is checked before anything is sent.`,
		RunE: func(c *cobra.Command, _ []string) error {
			raw, err := readFile(file, s.In)
			if err != nil {
				return err
			}
			m, err := manifest.Parse(raw)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			return s.register(c.Context(), m, nil, force)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "manifest file, - for standard input")
	forceFlag(c, &force)
	required(c, "file")
	return c
}

func (s *session) providerDelete() *cobra.Command {
	var yes, cascade bool
	c := &cobra.Command{
		Use: "delete NAMESPACE", Aliases: []string{"rm"}, Short: "Take a resource provider of your own out, with its types", Args: cobra.ExactArgs(1),
		Long: `Takes a resource provider out, with all of its types. One whose types have resources is refused, with the
list of them; --cascade deletes those first, with what their recipes made.`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			api, err := s.client()
			if err != nil {
				return err
			}
			all, err := api.Providers(ctx)
			if err != nil {
				return err
			}
			p, err := providerNamed(all, args[0])
			if err != nil {
				return err
			}
			var types []resourceType
			for _, name := range typesIn(p) {
				types = append(types, resourceType{Name: p.Name + "/" + name, ResourceType: p.ResourceTypes[name]})
			}
			return s.removeWith(ctx, removal{
				id: plane.Resource(providers, p.Name), version: setup.GroupVersion, what: fmt.Sprintf("resource provider %q", p.Name),
				cascade: cascade, yes: yes, users: s.ofTypes(types...),
			})
		},
	}
	confirmFlag(c, &yes)
	cascadeFlag(c, &cascade, "delete the resources of its types first")
	return c
}
