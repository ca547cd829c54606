package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/schema"
)

// plain asks a route of organizations, projects or services.
func (s *session) plain(ctx context.Context, method, path string, query url.Values, body, out any) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	err = c.Plain(ctx, method, path, query, body, out)
	if core.IsCode(err, core.CodeNotFound) {
		return s.near(ctx, method, path, err)
	}
	return err
}

// near says of an organization, project or service that does not exist which are close to it, and what lists them.
func (s *session) near(ctx context.Context, method, path string, missing error) error {
	type place struct{ list, name, command string }
	var places []place
	switch parts := strings.Split(strings.Trim(path, "/"), "/"); {
	case parts[0] == "services" && len(parts) > 1:
		if len(parts) > 2 {
			places = append(places, place{"/services/" + parts[1], parts[2], "radial services list -p " + parts[1]})
		}
		places = append(places, place{"/projects", parts[1], "radial projects list"})
	case parts[0] == "projects" && len(parts) == 2 && method == http.MethodPost: // it is its organization that is missing
		places = append(places, place{"/organizations", "", "radial organizations list"})
	case (parts[0] == "projects" || parts[0] == "organizations") && len(parts) > 1:
		places = append(places, place{"/" + parts[0], parts[1], "radial " + parts[0] + " list"})
	}
	c, err := s.client()
	if err != nil {
		return missing
	}
	for _, p := range places {
		var all struct {
			Value []struct{ ID, Name string } `json:"value"`
		}
		if c.Plain(ctx, http.MethodGet, p.list, nil, nil, &all) != nil {
			continue
		}
		var names []string
		for _, v := range all.Value {
			names = append(names, cmp.Or(v.ID, v.Name))
		}
		if slices.Contains(names, p.name) {
			continue
		}
		if close := schema.Nearest(p.name, names); p.name != "" && len(close) > 0 {
			return fmt.Errorf("%w: did you mean %s? (%s shows what there is)", missing, strings.Join(close, " or "), p.command)
		}
		return fmt.Errorf("%w (%s shows what there is)", missing, p.command)
	}
	return missing
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
