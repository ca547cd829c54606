package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/operation"
)

// config is what the flags say.
type config struct {
	developerMode bool
	listen        string
	store         string
	keyFile       string
	kubeconfig    string
	cluster       string
	readyFile     string
	logLevel      string
	logFormat     string
	maxOperations int
	lease         time.Duration
	deadline      time.Duration
	shutdown      time.Duration
	pprof         bool
}

func command() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "radial-server",
		Short: "Run Radial's control plane: the API, its workers and its store",
		Long: `Radial-server is the control plane of Radial: the API, its workers and its store in one process.

It keeps everything in one SQLite file and runs recipes against the Kubernetes cluster that
--kubeconfig names. This release serves developer mode only: plain HTTP on loopback, without
authentication, for the programs of one machine.

Every flag may also come from the environment: RADIAL_ and the flag's name in upper case, with
"_" for "-", such as RADIAL_LISTEN for --listen. A flag wins over the environment.`,
		Example: `  radial-server --developer-mode --store radial.db --key-file key --kubeconfig ~/.kube/config

  The easier way to the same: radial dev start`,
		Args:          cobra.NoArgs,
		Version:       core.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			if err := c.check(); err != nil {
				return err
			}
			log, err := c.logger()
			if err != nil {
				return err
			}
			return run(cmd.Context(), c, log)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&c.developerMode, "developer-mode", false, "serve plain HTTP without authentication, on loopback only")
	f.StringVar(&c.listen, "listen", "127.0.0.1:8080", "`address` to listen on; port 0 takes a free one")
	f.StringVar(&c.store, "store", "radial.db", "`file` that keeps everything (SQLite; made where it is missing)")
	f.StringVar(&c.keyFile, "key-file", "", "`file` with the key that protects stored secrets (made where it is missing; default: beside the store, with .key)")
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "`file` that names the cluster recipes are run against; without it recipes that make Kubernetes objects fail")
	f.StringVar(&c.cluster, "cluster", core.LocalCluster, "`name` of that cluster in ids")
	f.StringVar(&c.readyFile, "ready-file", "", "`file` to write the API's URL to when it answers")
	f.IntVar(&c.maxOperations, "max-operations", operation.DefaultConcurrency, "how many operations run at a `time`")
	f.DurationVar(&c.lease, "lease", operation.DefaultLease, "how `long` a worker holds an operation without saying that it lives")
	f.DurationVar(&c.deadline, "operation-deadline", 24*time.Hour, "how `long` an operation may take")
	f.DurationVar(&c.shutdown, "shutdown-timeout", 10*time.Second, "how `long` a shutdown waits for requests under way")
	f.StringVar(&c.logLevel, "log-level", "info", "least `level` to log: debug, info, warn or error")
	f.StringVar(&c.logFormat, "log-format", "text", "`format` of the log on standard error: text or json")
	f.BoolVar(&c.pprof, "pprof", false, "serve profiles under /debug/pprof/")
	return cmd
}

// fromEnvironment sets the flags that were not given from RADIAL_….
func fromEnvironment(flags *pflag.FlagSet) error {
	var problem error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Name == "version" || f.Changed || problem != nil {
			return
		}
		name := "RADIAL_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		v, ok := os.LookupEnv(name)
		if !ok {
			return
		}
		if err := flags.Set(f.Name, v); err != nil {
			problem = fmt.Errorf("environment variable %s is %q: %w", name, v, err)
		}
	})
	return problem
}

// check refuses what cannot work, by the flag's name.
func (c *config) check() error {
	if !c.developerMode {
		return fmt.Errorf("this release has neither TLS nor authentication, so it serves developer mode only: add --developer-mode to serve plain HTTP on loopback")
	}
	host, _, err := net.SplitHostPort(c.listen)
	if err != nil {
		return fmt.Errorf("--listen is %q: it must be host:port, such as 127.0.0.1:8080", c.listen)
	}
	if ip := net.ParseIP(host); !strings.EqualFold(host, "localhost") && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--listen is %q: with --developer-mode the server answers without authentication, so it listens on loopback only, such as 127.0.0.1:8080", c.listen)
	}
	if c.store == "" {
		return fmt.Errorf("--store is empty: name the file that keeps everything")
	}
	if c.keyFile == "" {
		c.keyFile = c.store + ".key"
	}
	if c.cluster == "" {
		return fmt.Errorf("--cluster is empty: name the cluster of --kubeconfig, %q unless there are several", core.LocalCluster)
	}
	if c.maxOperations < 1 {
		return fmt.Errorf("--max-operations is %d: at least one operation must be able to run", c.maxOperations)
	}
	if c.lease < time.Second {
		return fmt.Errorf("--lease is %s: it must be at least 1s", c.lease)
	}
	if c.deadline <= 0 {
		return fmt.Errorf("--operation-deadline is %s: it must be more than nothing", c.deadline)
	}
	return nil
}

func (c *config) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level is %q: it must be debug, info, warn or error", c.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch c.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return nil, fmt.Errorf("--log-format is %q: it must be text or json", c.logFormat)
}
