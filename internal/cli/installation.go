package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// plain asks a route of organizations, projects or services.
func (s *session) plain(ctx context.Context, method, path string, query url.Values, body, out any) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	return c.Plain(ctx, method, path, query, body, out)
}

// onlyName refuses what would be another path.
func onlyName(what, name string) error {
	if name == "" || strings.ContainsAny(name, "/?#\\") || name == "." || name == ".." {
		return usagef("%q is no name of a %s", name, what)
	}
	return nil
}

type installed struct {
	PlatformVersion string `json:"platformVersion"`
	Cloud           *struct {
		Provider string  `json:"provider"`
		Account  string  `json:"account"`
		Location string  `json:"location"`
		KMSKey   *string `json:"kmsKey,omitempty"`
	} `json:"cloud,omitempty"`
}

func (s *session) installationCommand() *cobra.Command {
	return &cobra.Command{
		Use: "installation", Short: "What the installation names: its version and its cloud", Args: cobra.NoArgs,
		Long: `Shows the platform's version and the cloud that the installation names: provider, account and location. Any
member of an organization may see it; the name of the key is shown to owners of one.`,
		RunE: func(c *cobra.Command, _ []string) error {
			var i installed
			if err := s.plain(c.Context(), http.MethodGet, "/installation", nil, nil, &i); err != nil {
				return err
			}
			rows := [][2]string{{"platform", i.PlatformVersion}}
			if i.Cloud == nil {
				rows = append(rows, [2]string{"provider", "none"})
			} else {
				rows = append(rows, [2]string{"provider", i.Cloud.Provider}, [2]string{"account", i.Cloud.Account}, [2]string{"location", i.Cloud.Location})
				if key := i.Cloud.KMSKey; key != nil {
					name := *key
					if name == "" {
						name = "none"
					}
					rows = append(rows, [2]string{"kms key", name})
				}
			}
			var b strings.Builder
			for _, r := range rows {
				fmt.Fprintf(&b, "%-8s   %s\n", r[0], r[1])
			}
			return s.show(view{data: i, text: b.String()})
		},
	}
}
