package cli

import (
	"crypto/rand"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/seal"
)

func (s *session) keysetKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "new-key", Short: "Print a new key to wrap the keysets with", Args: cobra.NoArgs,
		Long: `Prints a line for a key file or for the Secret that the server's --key names. Alone it is the key of a new
control plane. Above the lines that are there it takes their place, while the server runs: it wraps the
keysets anew within a minute, and then the old lines may go. Nothing is stored or sent anywhere.`,
		RunE: func(c *cobra.Command, _ []string) error {
			key, err := seal.NewKey(rand.Reader)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(s.Out, key)
			return err
		},
	}
}
