package cli

import (
	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/core"
)

func (s *session) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of this program", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return s.show(view{data: map[string]string{"version": core.Version}, text: "radial " + core.Version})
		},
	}
}
