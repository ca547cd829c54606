package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
)

func (s *session) resourceTypeCommand() *cobra.Command {
	c := &cobra.Command{Use: "resource-type", Aliases: []string{"resource-types"}, Short: "Resource types: those built in, and your own"}
	c.AddCommand(s.typeList(), s.typeShow(), s.typeCreate(), s.typeDelete())
	return c
}

func (s *session) typeList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the resource types", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := s.types(c.Context())
			if err != nil {
				return err
			}
			t := table{columns: []string{"TYPE", "API VERSIONS", "CAPABILITIES"}, empty: "There are no resource types."}
			for _, one := range all {
				t.rows = append(t.rows, []string{one.Name, strings.Join(one.versions(), ","), strings.Join(one.Capabilities, ",")})
			}
			return s.show(view{data: orEmpty(all), table: t})
		},
	}
}

func (s *session) typeShow() *cobra.Command {
	return &cobra.Command{
		Use: "show TYPE", Short: "Show a resource type and its properties", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := s.typeNamed(c.Context(), args[0])
			if err != nil {
				return err
			}
			return s.show(view{data: t, text: typeText(t)})
		},
	}
}

// property is what of a schema a person reads.
type property struct {
	Type        string `json:"type"`
	Format      string `json:"format"`
	Description string `json:"description"`
	ReadOnly    bool   `json:"readOnly"`
	Sensitive   bool   `json:"x-radius-sensitive"`
	Enum        []any  `json:"enum"`
	Default     any    `json:"default"`
}

func typeText(t resourceType) string {
	out := fields([2]string{"Type", t.Name}, [2]string{"Description", t.Description}, [2]string{"Capabilities", strings.Join(t.Capabilities, ", ")}, [2]string{"Default version", t.DefaultAPIVersion})
	for _, v := range t.versions() {
		out += "\nAPI version " + v + "\n"
		var schema struct {
			Properties map[string]property `json:"properties"`
			Required   []string            `json:"required"`
		}
		if json.Unmarshal(t.APIVersions[v].Schema, &schema) != nil || len(schema.Properties) == 0 {
			out += "  (no schema: any properties)\n"
			continue
		}
		rows := table{columns: []string{"PROPERTY", "TYPE", "", "DESCRIPTION"}}
		for _, name := range sortedKeys(schema.Properties) {
			p := schema.Properties[name]
			rows.rows = append(rows.rows, []string{name, cmp.Or(p.Type, "any"), p.marks(slices.Contains(schema.Required, name)), firstLine(p.Description)})
		}
		out += "  " + strings.ReplaceAll(strings.TrimRight(rows.String(), "\n"), "\n", "\n  ") + "\n"
	}
	return out
}

func (p property) marks(required bool) string {
	var marks []string
	if required {
		marks = append(marks, "required")
	}
	if p.ReadOnly {
		marks = append(marks, "read-only")
	}
	if p.Sensitive {
		marks = append(marks, "sensitive")
	}
	if p.Default != nil {
		marks = append(marks, fmt.Sprintf("default %v", p.Default))
	}
	if len(p.Enum) > 0 {
		marks = append(marks, fmt.Sprintf("one of %v", p.Enum))
	}
	return strings.Join(marks, ", ")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// providers is the collection under which types are registered.
const providers = "System.Resources/resourceProviders"

func (s *session) typeCreate() *cobra.Command {
	var file string
	var force bool
	c := &cobra.Command{
		Use: "create -f MANIFEST [TYPE]", Aliases: []string{"apply"}, Short: "Register resource types from a manifest", Args: cobra.MaximumNArgs(1),
		Long: `Registers the types of a manifest (YAML or JSON): all of them, or the one that is named. A type that is
registered already is replaced. The whole manifest is checked before anything is sent.

A schema that resources which are stored do not fit is refused, with the list of them; --force replaces it
all the same, and they have to fit when they are next written.`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			raw, err := readFile(file, s.In)
			if err != nil {
				return err
			}
			m, err := manifest.Parse(raw)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			return s.register(ctx, m, args, force)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "manifest file, - for standard input")
	forceFlag(c, &force)
	required(c, "file")
	return c
}

func forceFlag(c *cobra.Command, force *bool) {
	c.Flags().BoolVar(force, "force", false, "replace schemas that stored resources do not fit")
}

func (s *session) typeDelete() *cobra.Command {
	var yes, cascade bool
	c := &cobra.Command{
		Use: "delete TYPE", Aliases: []string{"rm"}, Short: "Take a resource type of your own out", Args: cobra.ExactArgs(1),
		Long: `Takes a resource type out. One that has resources is refused, with the list of them; --cascade deletes
those first, with what their recipes made.`,
		RunE: func(c *cobra.Command, args []string) error {
			t, err := s.typeNamed(c.Context(), args[0])
			if err != nil {
				return err
			}
			namespace, short, _ := strings.Cut(t.Name, "/")
			id := below(plane.Resource(providers, namespace), "resourceTypes", short)
			return s.removeWith(c.Context(), removal{
				id: id, version: setup.GroupVersion, what: fmt.Sprintf("resource type %q", t.Name), cascade: cascade, yes: yes, users: s.ofTypes(t),
			})
		},
	}
	confirmFlag(c, &yes)
	cascadeFlag(c, &cascade, "delete the resources of the type first")
	return c
}

// register sends the types of a manifest to the control plane: as one manifest where that is all that the
// namespace has, so that either all of it counts or nothing; beside other types one after the other.
func (s *session) register(ctx context.Context, m *manifest.Manifest, only []string, force bool) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	types := sortedKeys(m.Types)
	if len(only) == 1 {
		_, short, ok := strings.Cut(only[0], "/")
		if !ok {
			short = only[0]
		}
		if m.Types[short] == nil {
			return notFound("resource type", only[0], types, "the manifest")
		}
		types = []string{short}
	}
	known, err := s.types(ctx)
	if err != nil {
		return err
	}
	whole := len(types) == len(m.Types)
	for _, t := range known {
		ns, short, _ := strings.Cut(t.Name, "/")
		whole = whole && (!strings.EqualFold(ns, m.Namespace) || m.Types[short] != nil)
	}
	if whole {
		raw, err := json.Marshal(m)
		if err == nil {
			err = c.PutManifest(ctx, m.Namespace, raw, force)
		}
		if err != nil {
			return forcible(err)
		}
	} else if err := s.registerEach(ctx, c, m, types, force); err != nil {
		return forcible(err)
	}
	var names []string
	for _, name := range types {
		names = append(names, m.Namespace+"/"+name)
	}
	return s.done(map[string]any{"registered": names}, "Registered: %s.", strings.Join(names, ", "))
}

// forcible adds to a refusal of a schema that does not fit what is stored what would do it all the same.
func forcible(err error) error {
	if core.IsCode(err, core.CodeConflict) && strings.Contains(err.Error(), "force=true") {
		return fmt.Errorf("%w (that is --force here)", err)
	}
	return err
}

// registerEach sends types in the order in which each finds what it needs: namespace, types, versions, and the
// location last, since it lists the others.
func (s *session) registerEach(ctx context.Context, c *client.Client, m *manifest.Manifest, types []string, force bool) error {
	send := func(id core.ID, properties map[string]any) error {
		a, err := c.Put(ctx, id, setup.GroupVersion, arm.Resource{Location: "global", Properties: properties}, client.Precondition{Force: force})
		if err != nil {
			return err
		}
		return s.wait(ctx, "registering "+id.Name(), a.Token)
	}
	namespace := plane.Resource(providers, m.Namespace)
	if err := send(namespace, map[string]any{"description": m.Description}); err != nil {
		return err
	}
	location := map[string]any{}
	for _, name := range types {
		t := m.Types[name]
		id := below(namespace, "resourceTypes", name)
		if err := send(id, map[string]any{"capabilities": orEmpty(t.Capabilities), "defaultApiVersion": t.Default(), "description": t.Description}); err != nil {
			return err
		}
		versions := map[string]any{}
		for _, v := range sortedKeys(t.APIVersions) {
			properties := map[string]any{}
			if raw := t.APIVersions[v].Schema; len(raw) > 0 {
				properties["schema"] = raw
			}
			if own := t.APIVersions[v].Capabilities; len(own) > 0 {
				properties["capabilities"] = own
			}
			if err := send(below(id, "apiVersions", v), properties); err != nil {
				return err
			}
			versions[v] = map[string]any{}
		}
		location[name] = map[string]any{"apiVersions": versions}
	}
	return send(below(namespace, "locations", "global"), map[string]any{"resourceTypes": location})
}

// below is the id of a resource under another.
func below(id core.ID, kind, name string) core.ID {
	id.Types = append(slices.Clone(id.Types), core.Segment{Type: kind, Name: name})
	return id
}
