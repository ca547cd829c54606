// Package cli is Radial's command line. A command reads its arguments, speaks to the control plane through
// package client, and hands what it has to show to one place (see view): no command formats by itself.
//
// # Exit codes
//
//	0  done
//	1  it failed; standard error says what happened, to what, and what to do next
//	2  the command line cannot be meant
//	3  the server cannot be reached
//	4  what was named does not exist
//	130  interrupted
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	neturl "net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/cli/dev"
	"github.com/radial-project/radial/internal/cli/login"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitNotFound    = 4
	exitInterrupted = 130
)

// Surroundings are what a run of the command line has around it.
type Surroundings struct {
	// Args are the process's, the program's name included: as kubectl-radial it speaks of `kubectl radial`.
	Args     []string
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	// Asks says that a person can answer questions; Terminal, that Err may show progress.
	Asks, Terminal bool
}

// Run runs one command line and returns its exit code.
func Run(ctx context.Context, around Surroundings) int {
	s := &session{Surroundings: around, cancel: func() {}}
	root := s.root()
	root.SetArgs(around.Args[1:])
	root.SetIn(around.In)
	root.SetOut(around.Out)
	root.SetErr(around.Err)
	defer func() { s.cancel() }()
	defer func() {
		for _, end := range s.ends {
			end()
		}
	}()
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	s.explain(err)
	return exitCode(err)
}

// session is one run: its flags and what they lead to.
type session struct {
	Surroundings
	output      string
	server      string
	context     string
	dir         string
	group       string
	environment string
	timeout     time.Duration
	cancel      context.CancelFunc // of --timeout
	ends        []func()           // are called at the run's end

	// waitingFor is said when the run ends before it.
	waitingFor pending
	// stands is how far what is waited for has come.
	stands string

	connected *client.Client
	known     []resourceType // cached by types
}

// usageError is a command line that cannot be meant.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func (s *session) root() *cobra.Command {
	name := "radial"
	if filepath.Base(s.Args[0]) == "kubectl-radial" {
		name = "kubectl radial"
	}
	root := &cobra.Command{
		Use:   "radial",
		Short: "Adopt, provision and connect applications",
		Long: `Radial keeps the catalogue of your applications: what runs, what it depends on, and how the two are
connected. It provisions dependencies by recipes and connects workloads that stay in your Helm charts
and manifests.

Commands speak to the control plane that --context, --server or --dir names, else to that of RADIAL_SERVER,
RADIAL_CONTEXT or RADIAL_DIR, else to the current context (see radial login), else to the one that runs on
~/.radial (see radial dev).`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: name},
		PersistentPreRunE: s.begin,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	flags := root.PersistentFlags()
	flags.StringVarP(&s.output, "output", "o", "table", "how to show results: table, json or yaml")
	flags.StringVar(&s.context, "context", "", "control plane to use, as radial login named it (RADIAL_CONTEXT, else the current one)")
	flags.StringVar(&s.server, "server", "", "base URL of the control plane (RADIAL_SERVER)")
	flags.StringVar(&s.dir, "dir", "", "state directory of developer mode (RADIAL_DIR, else ~/.radial)")
	flags.DurationVar(&s.timeout, "timeout", 0, "give up waiting after this time, such as 5m (0: never)")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w (%s --help lists the flags)", err, c.CommandPath())
	})
	root.AddCommand(s.devCommand(), s.initCommand(), s.deployCommand(), s.stackCommand(), s.environmentCommand(), s.groupCommand(), s.applicationCommand(),
		s.resourceCommand(), s.resourceTypeCommand(), s.recipeCommand(), s.resourceProviderCommand(), s.recipePackCommand(), s.operationCommand(),
		s.waitCommand(), s.installationCommand(), s.organizationsCommand(), s.projectsCommand(), s.servicesCommand(), s.roleCommand(), s.keysetCommand(), s.auditCommand(), s.serverCommand(), s.versionCommand())
	root.AddCommand(login.Commands(s.Getenv, func(data any, text string, columns []string, rows [][]string) error {
		return s.show(view{data: data, text: text, table: table{columns: columns, rows: rows}})
	})...)
	strict(root)
	return root
}

// strict makes a command that only groups others refuse a word it does not know, with the closest ones.
func strict(c *cobra.Command) {
	if !c.HasSubCommands() {
		if args := c.Args; args != nil {
			c.Args = func(c *cobra.Command, words []string) error {
				if err := args(c, words); err != nil {
					return usagef("%s: %w; it is used as: %s", c.CommandPath(), err, c.UseLine())
				}
				return nil
			}
		}
		return
	}
	c.Args = cobra.ArbitraryArgs
	c.SuggestionsMinimumDistance = 2
	c.RunE = func(c *cobra.Command, words []string) error {
		if len(words) == 0 {
			return c.Help()
		}
		hint := ""
		if close := c.SuggestionsFor(words[0]); len(close) > 0 {
			hint = "; did you mean " + strings.Join(close, " or ") + "?"
		}
		return usagef("%s has no command %q%s (%s --help lists them)", c.CommandPath(), words[0], hint, c.CommandPath())
	}
	for _, sub := range c.Commands() {
		strict(sub)
	}
}

// begin settles what the flags of every command mean.
func (s *session) begin(c *cobra.Command, _ []string) error {
	if !slices.Contains([]string{"table", "json", "yaml"}, s.output) {
		return usagef("--output %q is not one of table, json, yaml", s.output)
	}
	if s.timeout < 0 {
		return usagef("--timeout %s is negative", s.timeout)
	}
	if s.timeout > 0 {
		ctx, cancel := context.WithTimeoutCause(c.Context(), s.timeout, errGaveUp)
		c.SetContext(ctx)
		s.cancel = cancel
	}
	return nil
}

var errGaveUp = errors.New("the time of --timeout is over")

// stateDir is the state directory, and whether it was named at all.
func (s *session) stateDir() (dir string, named bool, err error) {
	for _, v := range []string{s.dir, s.Getenv("RADIAL_DIR")} {
		if v != "" {
			dir, err = filepath.Abs(v)
			return dir, true, err
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", false, fmt.Errorf("no state directory: set RADIAL_DIR or --dir: %w", err)
	}
	return filepath.Join(home, ".radial"), false, nil
}

// client returns the client of the control plane that this run speaks to.
func (s *session) client() (*client.Client, error) {
	if s.connected != nil {
		return s.connected, nil
	}
	url, transport, err := s.place()
	if err != nil {
		return nil, err
	}
	if u, err := neturl.Parse(url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usagef("%q is not the URL of a control plane, such as http://127.0.0.1:8080 (--server, RADIAL_SERVER)", url)
	}
	s.connected = client.New(url, client.Options{Transport: transport, UserAgent: "radial-cli/" + core.Version})
	return s.connected, nil
}

// serverURL finds the control plane: what is said here wins over what the environment says, a server over a
// directory.
func (s *session) serverURL() (string, error) {
	switch {
	case s.server != "":
		return s.server, nil
	case s.dir == "" && s.Getenv("RADIAL_SERVER") != "":
		return s.Getenv("RADIAL_SERVER"), nil
	}
	dir, named, err := s.stateDir()
	if err != nil {
		return "", err
	}
	url, err := dev.Dir(dir).URL()
	if err != nil {
		return "", fmt.Errorf("cannot tell which server to use: %w", err)
	}
	if url != "" {
		return url, nil
	}
	if named {
		return "", core.Errorf(core.CodeUnavailable, "Radial is not running on %[1]s: start it with radial dev start --dir %[1]s --detach", dir)
	}
	return "", core.Errorf(core.CodeUnavailable,
		"no server: set RADIAL_DIR or RADIAL_SERVER to one that runs, or start one here with radial dev start --detach")
}

func exitCode(err error) int {
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case core.IsCode(err, core.CodeUnavailable):
		return exitUnreachable
	case core.IsCode(err, core.CodeNotFound):
		return exitNotFound
	default:
		return exitFailed
	}
}
