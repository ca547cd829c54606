package cli

import (
	"cmp"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/client/contexts"
	"github.com/radial-project/radial/internal/core"
)

// contextChosen finds the context to use: the one that --context or
// RADIAL_CONTEXT names, one of the server that --server or RADIAL_SERVER names,
// or the current one where nothing else says which control plane; nil for none.
func (s *session) contextChosen() (*contexts.File, *contexts.Context, error) {
	path, err := contexts.Path(s.Getenv)
	if err != nil {
		return nil, nil, nil // no home, so nothing was ever kept there
	}
	f, err := contexts.Load(path)
	if err != nil {
		return nil, nil, err
	}
	name := s.context
	if name == "" && s.server == "" && s.dir == "" && s.Getenv("RADIAL_SERVER") == "" {
		name = s.Getenv("RADIAL_CONTEXT")
	}
	if name != "" {
		c, ok := f.Find(name)
		if !ok {
			return nil, nil, core.Errorf(core.CodeNotFound, "there is no context %q in %s (radial context list shows what there is)", name, path)
		}
		return f, &c, nil
	}
	server := s.server
	if server == "" && s.dir == "" {
		server = s.Getenv("RADIAL_SERVER")
	}
	if server != "" {
		if c, ok := f.ForServer(server); ok {
			return f, &c, nil
		}
		return f, nil, nil
	}
	if s.dir != "" || s.Getenv("RADIAL_DIR") != "" {
		return f, nil, nil
	}
	if c, ok := f.Find(""); ok {
		return f, &c, nil
	}
	return f, nil, nil
}

// place is the control plane to speak to, and what sends the requests; nil for
// the client's own transport.
func (s *session) place() (string, http.RoundTripper, error) {
	f, c, err := s.contextChosen()
	if err != nil {
		return "", nil, err
	}
	if c == nil {
		url, err := s.serverURL()
		return url, nil, err
	}
	t, err := f.Transport(*c)
	return c.Server, t, err
}

// switchedTo is the id of the environment that was switched to on the control plane of this run, "" for none.
func (s *session) switchedTo() (string, error) {
	c, err := s.client()
	if err != nil {
		return "", err
	}
	path, err := contexts.Path(s.Getenv)
	if err != nil {
		return "", nil // no home, so nothing was ever kept there
	}
	f, err := contexts.Load(path)
	if err != nil {
		return "", err
	}
	return f.Environments[c.URL()], nil
}

// environmentInUse is what an environment that was not named means: the one that was switched to, else default.
func (s *session) environmentInUse(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	switched, err := s.switchedTo()
	return cmp.Or(switched, setup.DefaultName), err
}

func (s *session) environmentSwitch() *cobra.Command {
	var unset bool
	c := &cobra.Command{
		Use: "switch NAME | --unset", Short: "Choose the environment that commands use unless told otherwise", Args: cobra.MaximumNArgs(1),
		Long: `Chooses the environment of this control plane that recipe commands, env show and resource create use where
none is named. It is kept in the file of contexts (RADIAL_CONTEXTS, else ~/.radial/contexts.yaml).`,
		RunE: func(c *cobra.Command, args []string) error {
			if unset == (len(args) == 1) {
				return usagef("name the environment to use, or give --unset")
			}
			path, err := contexts.Path(s.Getenv)
			if err != nil {
				return err
			}
			f, err := contexts.Load(path)
			if err != nil {
				return err
			}
			api, err := s.client()
			if err != nil {
				return err
			}
			if unset {
				delete(f.Environments, api.URL())
				if err := f.Save(); err != nil {
					return err
				}
				return s.done(map[string]any{"server": api.URL()}, "No environment is chosen any more on %s.", api.URL())
			}
			r, id, err := s.findKind(c.Context(), "environments", "environment", args[0])
			if err != nil {
				return err
			}
			if f.Environments == nil {
				f.Environments = map[string]string{}
			}
			f.Environments[api.URL()] = id.String()
			if err := f.Save(); err != nil {
				return err
			}
			return s.done(map[string]any{"server": api.URL(), "environment": r.ID}, "Environment %q is in use on %s.", r.Name, api.URL())
		},
	}
	c.Flags().BoolVar(&unset, "unset", false, "choose none")
	return c
}
