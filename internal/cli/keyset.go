package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/client"
)

func (s *session) keysetCommand() *cobra.Command {
	c := &cobra.Command{Use: "keyset", Aliases: []string{"keysets"}, Short: "Keysets: what the sensitive values are sealed with"}
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the versions of the data keyset, and how a rotation stands", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := s.client()
			if err != nil {
				return err
			}
			k, err := api.Keysets(c.Context())
			if err != nil {
				return err
			}
			return s.show(view{data: k, table: keysetTable(k)})
		},
	}
	rotate := &cobra.Command{
		Use: "rotate", Short: "Begin to seal with a new keyset", Args: cobra.NoArgs,
		Long: `Begins a rotation and returns: the control plane adds a keyset, seals with it when every replica has loaded
it, seals again in the background what older ones have sealed, and disables those. radial keyset list shows
how far it is.`,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := s.client()
			if err != nil {
				return err
			}
			k, err := api.RotateKeysets(c.Context())
			if err != nil {
				return err
			}
			t := keysetTable(k)
			t.footer += "The rotation goes on by itself: radial keyset list shows how it stands."
			return s.show(view{data: k, table: t})
		},
	}
	c.AddCommand(list, rotate, s.keysetKeyCommand())
	return c
}

func keysetTable(k client.Keysets) table {
	t := table{columns: []string{"VERSION", "STATE", "CREATED", "CHANGED"}, empty: "There are no keysets yet."}
	for _, v := range k.Versions {
		t.rows = append(t.rows, []string{strconv.FormatInt(v.Version, 10), v.State, clock(v.Created), clock(v.Changed)})
	}
	if len(k.Waiting) > 0 {
		t.footer = fmt.Sprintf("Not yet loaded by %s.\n", strings.Join(k.Waiting, ", "))
	}
	return t
}
