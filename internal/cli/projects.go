package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/core"
)

type projectShown struct {
	ID           string           `json:"id"`
	Organization string           `json:"organization"`
	DisplayName  string           `json:"displayName,omitempty"`
	Namespace    string           `json:"namespace"`
	Backups      bool             `json:"backups"`
	Keyring      bool             `json:"keyring"`
	Secrets      []projectSecret  `json:"secrets"`
	State        string           `json:"state"`
	Error        string           `json:"error,omitempty"`
	Status       *projectObserved `json:"status,omitempty"`
}

type projectSecret struct {
	Name            string   `json:"name"`
	Entries         []string `json:"entries,omitempty"`
	EntryGeneration int64    `json:"entryGeneration,omitempty"`
}

type projectObserved struct {
	Lifecycle string           `json:"lifecycle,omitempty"`
	Detail    string           `json:"detail,omitempty"`
	Backups   *storageObserved `json:"backups,omitempty"`
}

func (p projectShown) status() string {
	switch {
	case p.State == string(core.StateFailed) || p.State == string(core.StateCanceled):
		return p.State
	case p.Status != nil && p.Status.Lifecycle != "":
		return p.Status.Lifecycle
	}
	return p.State
}

func (s *session) projectsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "projects", Aliases: []string{"project"}, Short: "Projects: where services stand, with secrets of their own",
	}
	secrets := &cobra.Command{Use: "secrets", Aliases: []string{"secret"}, Short: "The secrets of a project"}
	secrets.AddCommand(s.secretsSet(), s.secretsList(), s.secretsDelete())
	c.AddCommand(s.projectsCreate(), s.projectsList(), s.projectsGet(), s.projectsDelete(), secrets)
	return c
}

// projectFlag names the project of a command.
func (s *session) projectFlag(c *cobra.Command, project *string) {
	c.Flags().StringVarP(project, "project", "p", "", "`project` of the service (RADIAL_PROJECT)")
}

func (s *session) projectOf(flag string) (string, error) {
	if flag == "" {
		flag = s.Getenv("RADIAL_PROJECT")
	}
	if flag == "" {
		return "", usagef("which project? say so with --project or RADIAL_PROJECT")
	}
	return flag, onlyName("project", flag)
}

// inProject is projectOf for what has a name in it: a service, a secret.
func (s *session) inProject(flag, what, name string) (string, error) {
	p, err := s.projectOf(flag)
	if err == nil {
		err = onlyName(what, name)
	}
	return p, err
}

func (s *session) projectsCreate() *cobra.Command {
	var in struct {
		Organization string `json:"organization"`
		DisplayName  string `json:"displayName,omitempty"`
		Backups      bool   `json:"backups,omitempty"`
		Keyring      bool   `json:"keyring,omitempty"`
	}
	c := &cobra.Command{
		Use: "create ID", Short: "Create a project", Args: cobra.ExactArgs(1),
		Long: `Creates a project in an organization, with namespace ankka-<id> in the cluster. Its id is not given out again, also
not after it was deleted: what it had in the cloud stays there. It names no account and no location; the
installation has one of each.`,
		Example: `  radial projects create shop -O acme --name "The shop"`,
		RunE: func(c *cobra.Command, args []string) error {
			if in.Organization == "" {
				return usagef("which organization? say so with --organization")
			}
			if err := onlyName("project", args[0]); err != nil {
				return err
			}
			var p projectShown
			if err := s.plain(c.Context(), http.MethodPost, "/projects/"+args[0], nil, in, &p); err != nil {
				return err
			}
			if p.State != string(core.StateSucceeded) {
				return s.done(p, "Project %q is kept; the cluster has not taken it yet.", p.ID)
			}
			return s.done(p, "Project %q is there, in namespace %s.", p.ID, p.Namespace)
		},
	}
	f := c.Flags()
	f.StringVarP(&in.Organization, "organization", "O", "", "`organization` that it belongs to")
	f.StringVar(&in.DisplayName, "name", "", "name for people")
	f.BoolVar(&in.Backups, "backups", false, "it has a database to back up")
	f.BoolVar(&in.Keyring, "keyring", false, "it has a keyring")
	return c
}

func (s *session) projectsList() *cobra.Command {
	var organization string
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the projects of your organizations", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			query := url.Values{}
			if organization != "" {
				query.Set("organization", organization)
			}
			var list struct {
				Value []projectShown `json:"value"`
			}
			if err := s.plain(c.Context(), http.MethodGet, "/projects", query, nil, &list); err != nil {
				return err
			}
			t := table{columns: []string{"PROJECT", "NAME", "ORGANIZATION", "STATUS"}, empty: "There are no projects: radial projects create makes one."}
			for _, p := range list.Value {
				t.rows = append(t.rows, []string{p.ID, p.DisplayName, p.Organization, p.status()})
			}
			return s.show(view{data: orEmpty(list.Value), table: t})
		},
	}
	c.Flags().StringVarP(&organization, "organization", "O", "", "only those of an `organization`")
	return c
}

func (s *session) projectsGet() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Aliases: []string{"show"}, Short: "Show a project", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := onlyName("project", args[0]); err != nil {
				return err
			}
			var p projectShown
			if err := s.plain(c.Context(), http.MethodGet, "/projects/"+args[0], nil, nil, &p); err != nil {
				return err
			}
			var names []string
			for _, sec := range p.Secrets {
				names = append(names, sec.Name)
			}
			detail, backups := p.Error, ""
			if st := p.Status; st != nil {
				if detail == "" {
					detail = st.Detail
				}
				backups = st.Backups.phrase("backups")
			}
			return s.show(view{data: p, text: fields([2]string{"Project", p.ID}, [2]string{"Name", p.DisplayName}, [2]string{"Organization", p.Organization},
				[2]string{"Namespace", p.Namespace}, [2]string{"Status", p.status()}, [2]string{"Detail", detail}, [2]string{"Secrets", strings.Join(names, ", ")}, [2]string{"Backups", backups})})
		},
	}
}

func (s *session) projectsDelete() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete ID", Aliases: []string{"rm"}, Short: "Delete a project that has no services", Args: cobra.ExactArgs(1),
		Long: `Deletes a project, which takes an owner of its organization. Its namespace stays with the Secrets in it, and so does
all that it had in the cloud: nothing of the platform may delete them.`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := onlyName("project", args[0]); err != nil {
				return err
			}
			if err := s.confirm(yes, "Delete project "+args[0]+"?"); err != nil {
				return err
			}
			var going struct {
				Operation string `json:"operation"`
			}
			if err := s.plain(c.Context(), http.MethodDelete, "/projects/"+args[0], nil, nil, &going); err != nil {
				return err
			}
			if going.Operation != "" {
				return s.done(going, "Project %q is being deleted.", args[0])
			}
			return s.done(map[string]string{"deleted": args[0]}, "Project %q is deleted; its id is not given out again.", args[0])
		},
	}
	confirmFlag(c, &yes)
	return c
}

func (s *session) secretsSet() *cobra.Command {
	var project string
	var files, remove, declare []string
	c := &cobra.Command{
		Use: "set NAME [ENTRY=VALUE ...]", Short: "Set entries of a project secret", Args: cobra.MinimumNArgs(1),
		Long: `Sets entries of a project secret; others stay as they are. Services take them by secretKeyRef. A value can be written
and replaced, and nobody can read it back here. A value on the command line is seen by others of this machine and
kept by shells: --from-file reads it from a file, or with - from standard input.

Where the installation keeps project secrets in its cloud account, entries are only declared here (--declare), and
their values are set there.`,
		Example: `  radial projects secrets set stripe -p shop --from-file API_KEY=key.txt
  radial projects secrets set stripe -p shop --remove OLD_KEY`,
		RunE: func(c *cobra.Command, args []string) error {
			p, err := s.inProject(project, "secret", args[0])
			if err != nil {
				return err
			}
			entries := map[string]any{}
			put := func(name string, v any) error {
				if _, twice := entries[name]; twice {
					return usagef("entry %s stands twice", name)
				}
				entries[name] = v
				return nil
			}
			for _, arg := range args[1:] {
				name, value, ok := strings.Cut(arg, "=")
				if !ok || name == "" {
					return usagef("an entry is written as ENTRY=VALUE") // it may be a value: not repeated
				}
				if err := put(name, value); err != nil {
					return err
				}
			}
			for _, f := range files {
				name, path, ok := strings.Cut(f, "=")
				if !ok || name == "" || path == "" {
					return usagef("--from-file %q is not ENTRY=FILE", f)
				}
				raw, err := s.contents(path)
				if err != nil {
					return err
				}
				if err := put(name, string(raw)); err != nil {
					return err
				}
			}
			for _, name := range declare {
				if err := put(name, true); err != nil {
					return err
				}
			}
			for _, name := range remove {
				if err := put(name, nil); err != nil {
					return err
				}
			}
			if len(entries) == 0 {
				return usagef("nothing to set: write ENTRY=VALUE, --from-file ENTRY=FILE, --declare ENTRY or --remove ENTRY")
			}
			var shown projectShown
			if err := s.plain(c.Context(), http.MethodPut, "/projects/"+p+"/secrets/"+args[0], nil, map[string]any{"entries": entries}, &shown); err != nil {
				return err
			}
			for _, sec := range shown.Secrets {
				if sec.Name == args[0] && len(sec.Entries) > 0 {
					return s.done(sec, "Secret %q of project %q has the entries %s.", sec.Name, p, strings.Join(sec.Entries, ", "))
				}
			}
			return s.done(map[string]any{"name": args[0]}, "Secret %q of project %q has no entries.", args[0], p)
		},
	}
	s.projectFlag(c, &project)
	c.Flags().StringArrayVar(&files, "from-file", nil, "`ENTRY=FILE`: take a value from a file, - is standard input; may be repeated")
	c.Flags().StringArrayVar(&remove, "remove", nil, "`ENTRY` to remove; may be repeated")
	c.Flags().StringArrayVar(&declare, "declare", nil, "`ENTRY` whose value is kept in the cloud account; may be repeated")
	return c
}

// contents reads a file, or standard input for "-", up to a bound.
func (s *session) contents(path string) ([]byte, error) {
	const most = 16 << 20
	in := s.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, most+1))
	if err == nil && len(raw) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return raw, err
}

func (s *session) secretsList() *cobra.Command {
	var project string
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the secrets of a project, without values", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := s.projectOf(project)
			if err != nil {
				return err
			}
			var shown projectShown
			if err := s.plain(c.Context(), http.MethodGet, "/projects/"+p, nil, nil, &shown); err != nil {
				return err
			}
			t := table{columns: []string{"SECRET", "ENTRIES"}, empty: "The project has no secrets."}
			for _, sec := range shown.Secrets {
				t.rows = append(t.rows, []string{sec.Name, strings.Join(sec.Entries, ", ")})
			}
			return s.show(view{data: orEmpty(shown.Secrets), table: t})
		},
	}
	s.projectFlag(c, &project)
	return c
}

func (s *session) secretsDelete() *cobra.Command {
	var project string
	var yes bool
	c := &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Take a secret and its entries from a project", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := s.inProject(project, "secret", args[0])
			if err != nil {
				return err
			}
			if err := s.confirm(yes, "Delete secret "+args[0]+" of project "+p+"?"); err != nil {
				return err
			}
			if err := s.plain(c.Context(), http.MethodDelete, "/projects/"+p+"/secrets/"+args[0], nil, nil, nil); err != nil {
				return err
			}
			return s.done(map[string]string{"deleted": args[0]}, "Secret %q of project %q is deleted.", args[0], p)
		},
	}
	s.projectFlag(c, &project)
	confirmFlag(c, &yes)
	return c
}
