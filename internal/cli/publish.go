package cli

import (
	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/oci"
)

// published is what recipe publish answers.
type published struct {
	Target string `json:"target"`
	Digest string `json:"digest"`
}

func (s *session) recipePublish() *cobra.Command {
	var file string
	var ref oci.Reference
	var force bool
	c := &cobra.Command{
		Use: "publish --file FILE --target HOST/REPOSITORY:TAG", Short: "Push a template to a registry, for recipes to use", Args: cobra.NoArgs,
		Long: `Pushes a template (ARM JSON, or what bicep build makes of a Bicep module) to an OCI registry, in the form of a
Bicep module. Credentials are those that Docker keeps for you (docker login, or the file that DOCKER_CONFIG
names). The control plane is not asked: it reads the template when a recipe runs.`,
		Example: "  radial recipe publish --file redis.json --target registry.example.com/recipes/redis:1.0",
		RunE: func(c *cobra.Command, _ []string) error {
			template, err := readFile(file, s.In)
			if err != nil {
				return err
			}
			digest, err := oci.NewPublisher(nil).Publish(c.Context(), ref, template, force)
			if err != nil {
				return err
			}
			return s.done(published{ref.Path, digest}, "Published to %s, digest %s.", ref.Path, digest)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "the template, - for standard input")
	c.Flags().StringVar(&ref.Path, "target", "", "where to push it: HOST/REPOSITORY:TAG")
	c.Flags().BoolVar(&ref.PlainHTTP, "plain-http", false, "speak to the registry without TLS")
	c.Flags().BoolVar(&force, "force", false, "move a tag that stands for another template")
	required(c, "file", "target")
	return c
}
