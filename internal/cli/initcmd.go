package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/oci"
)

// initialised is what init did.
type initialised struct {
	Cluster string          `json:"cluster"`
	Server  string          `json:"server"`
	Objects []setup.Applied `json:"objects"`
	setup.Made
}

func (s *session) initCommand() *cobra.Command {
	var k kubernetesFlags
	var recipesDir, registry string
	var skipRecipes, plainHTTP bool
	c := &cobra.Command{
		Use: "init", Short: "Prepare a cluster and a control plane for each other", Args: cobra.NoArgs,
		Long: `Prepares a cluster (--kubeconfig and --kube-context): installs Radial's kinds, admission
policy, ServiceAccounts and grants by server-side apply. Prepares the control plane: makes the default
group and environment, and registers the local recipes there.

The recipes' templates are pushed to --recipe-registry, with the credentials that Docker keeps for you. A
control plane in developer mode can also read them from a folder on its own machine (--recipes-dir).

Running it again changes nothing that is as it should be, and no recipe that somebody registered.`,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context()
			if registry != "" && (skipRecipes || recipesDir != "") {
				return usagef("--recipe-registry says where the recipes go: leave out --recipes-dir and --skip-recipes")
			}
			api, err := s.client()
			if err != nil {
				return err
			}
			cfg, err := k.config("prepare")
			if err != nil {
				return err
			}
			done := initialised{Cluster: cfg.Host, Server: api.URL()}
			if done.Objects, err = setup.Install(ctx, cfg, installation.Files); err != nil {
				return err
			}
			if err := setup.AwaitUse(ctx, cfg); err != nil {
				return err
			}
			var local []setup.Registration
			switch {
			case skipRecipes:
			case registry != "":
				err := s.working(ctx, "publishing the local recipes", func(ctx context.Context) (err error) {
					local, err = setup.PublishRecipes(ctx, oci.NewPublisher(nil), registry, plainHTTP)
					return err
				})
				if err != nil {
					return err
				}
			default:
				if recipesDir, err = s.recipesDir(recipesDir); err != nil {
					return err
				}
				if local, err = setup.WriteRecipes(recipesDir); err != nil {
					return err
				}
			}
			if done.Made, err = setup.Defaults(ctx, api, local); err != nil {
				return err
			}
			return s.show(view{data: done, text: done.text()})
		},
	}
	k.add(c)
	c.Flags().StringVar(&recipesDir, "recipes-dir", "", "folder for the local recipes' templates (recipes/ in the state directory unless set)")
	c.Flags().StringVar(&registry, "recipe-registry", "", "push the local recipes' templates below this HOST/REPOSITORY and register them from there")
	c.Flags().BoolVar(&plainHTTP, "plain-http", false, "speak to that registry without TLS")
	c.Flags().BoolVar(&skipRecipes, "skip-recipes", false, "register no recipes")
	return c
}

// recipesDir is where init writes templates to.
func (s *session) recipesDir(asked string) (string, error) {
	if asked == "" {
		dir, _, err := s.stateDir()
		if err != nil {
			return "", err
		}
		asked = filepath.Join(dir, "recipes")
	}
	path, err := filepath.Abs(asked)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", fmt.Errorf("cannot write recipes: %w: choose another folder with --recipes-dir", err)
	}
	return path, nil
}

func (d initialised) text() string {
	var b strings.Builder
	counts := map[string]int{}
	fmt.Fprintf(&b, "Cluster %s:\n", d.Cluster)
	for _, o := range d.Objects {
		counts[o.Result]++
		if o.Result != "unchanged" {
			fmt.Fprintf(&b, "  %s %s %s\n", o.Kind, o.Name, o.Result)
		}
	}
	if n := counts["unchanged"]; n > 0 {
		fmt.Fprintf(&b, "  %s unchanged\n", count(n, "object"))
	}
	fmt.Fprintf(&b, "Control plane %s:\n  group %s %s\n  environment %s %s\n", d.Server, setup.DefaultName, was(d.Group), setup.DefaultName, was(d.Environment))
	for _, r := range d.Recipes {
		fmt.Fprintf(&b, "  recipe %s for %s registered\n", r.Name, r.ResourceType)
	}
	if len(d.Recipes) == 0 {
		b.WriteString("  recipes as before\n")
	}
	fmt.Fprintf(&b, "\nNext: run the controller against both, as ServiceAccount %s/%s (docs/getting-started.md):\n  radial-controller --kubeconfig FILE --server %s\n",
		installation.Namespace, installation.ControllerAccount, cmp.Or(d.Server, "URL"))
	return b.String()
}

func was(created bool) string {
	if created {
		return "created"
	}
	return "as before"
}
