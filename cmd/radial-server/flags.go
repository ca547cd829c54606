package main

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/radial-project/radial/internal/auth/front"
	"github.com/radial-project/radial/internal/auth/serving"
	"github.com/radial-project/radial/internal/config"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	extensions "github.com/radial-project/radial/internal/extension/registry"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/address"
)

// options are what flags, environment and configuration file say.
type options struct {
	configFile    string
	developerMode bool
	listen        string
	store         string
	keptAt        address.Address // what store names
	key           keyOptions
	kubeconfig    string
	cluster       string
	members       []string
	azureScopes   []string
	azureEndpoint string
	readyFile     string
	logLevel      string
	logFormat     string
	api           bool
	workers       bool
	maxOperations int
	lease         time.Duration
	deadline      time.Duration
	recipe        time.Duration
	templateHosts []string
	keptHistory   time.Duration
	keptAudit     time.Duration
	shutdown      time.Duration
	metricsListen string
	front         front.Flags
	extensions    extensions.Flags
	pprof         bool
}

func command() *cobra.Command {
	var c options
	cmd := &cobra.Command{
		Use:   "radial-server",
		Short: "Run Radial's control plane: the API, its workers and its store",
		Long: `Radial-server is the control plane of Radial: the API, its workers and its store in one process.

It keeps everything in one SQLite file and runs recipes against the Kubernetes cluster that
--kubeconfig names. It serves TLS and asks who calls (--tls-…, --oidc-…, --authenticate-by-cluster); only
developer mode is plain HTTP on loopback, without authentication, for the programs of one machine.

Every flag may also come from the environment (RADIAL_ and the flag's name in upper case, with "_"
for "-": RADIAL_LISTEN for --listen) or from the file that --config names (in camel case, some in
sections: listen, logLevel, workerServer.maxOperationConcurrency). A flag wins over the environment,
and that over the file. A name that is not known, or a value that does not fit, ends the start.

The API and the workers may run in processes of their own on one PostgreSQL store: --workers=false
answers the API only, --api=false works only and answers its health.`,
		Example: `  radial-server --developer-mode --store radial.db --key-file key --kubeconfig ~/.kube/config

  The easier way to the same: radial dev start`,
		Args:          cobra.NoArgs,
		Version:       core.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := settings(cmd.Flags()).Load(os.Environ(), "config"); err != nil {
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
	f.StringVar(&c.configFile, "config", "", "`file` with settings, in YAML")
	f.BoolVar(&c.developerMode, "developer-mode", false, "serve plain HTTP without authentication, on loopback only")
	f.StringVar(&c.listen, "listen", "127.0.0.1:8080", "`address` to listen on; port 0 takes a free one")
	f.StringVar(&c.store, "store", "radial.db", "`where` everything is kept: a file or sqlite:FILE (made where it is missing), or postgres://… for more than one machine")
	c.key.add(f)
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "`file` that names the cluster recipes are run against; without it, in a pod, the pod's own; elsewhere recipes that make Kubernetes objects fail")
	f.StringVar(&c.cluster, "cluster", core.LocalCluster, "`name` of that cluster in ids")
	f.StringSliceVar(&c.members, "member-cluster", nil, "`name=file`: another cluster that templates may name, by its kubeconfig; may be repeated")
	f.StringSliceVar(&c.azureScopes, "azure-scopes", nil, "`ids` of Azure subscriptions, groups or clusters that scopes of type AzureResourceManager may be in; * is all that the server's identity reaches, none turns the type off")
	f.StringVar(&c.azureEndpoint, "azure-endpoint", "", "`URL` of Azure Resource Manager, for a sovereign cloud (default https://management.azure.com)")
	f.StringVar(&c.readyFile, "ready-file", "", "`file` to write the API's URL to when it answers")
	f.BoolVar(&c.api, "api", true, "answer the API; health is answered in any case")
	f.BoolVar(&c.workers, "workers", true, "work on operations")
	f.IntVar(&c.maxOperations, "max-operation-concurrency", operation.DefaultConcurrency, "how many operations run at a time")
	f.DurationVar(&c.lease, "lease", operation.DefaultLease, "how long a worker holds an operation without saying that it lives")
	f.DurationVar(&c.deadline, "operation-deadline", 24*time.Hour, "how long an operation may take")
	f.DurationVar(&c.recipe, "recipe-deadline", dynamic.DefaultRecipeDeadline, "how long one run of a recipe may take")
	f.StringSliceVar(&c.templateHosts, "template-hosts", nil, "`hosts` of registries and web servers that linked templates of deployments may be fetched from; * is any (in developer mode all are, and files)")
	f.DurationVar(&c.keptHistory, "keep-operations", store.KeptOperations, "how long operations that ended can be looked at")
	f.DurationVar(&c.keptAudit, "keep-audit", store.KeptAudit, "how long the audit log is kept")
	f.DurationVar(&c.shutdown, "shutdown-timeout", 10*time.Second, "how long a shutdown waits for requests under way")
	f.StringVar(&c.logLevel, "log-level", "info", "least `level` to log: debug, info, warn or error")
	f.StringVar(&c.logFormat, "log-format", "text", "`format` of the log on standard error: text or json")
	f.StringVar(&c.metricsListen, "metrics-listen", "", "`address` of /metrics, /healthz and /readyz, for everybody who reaches it: plain HTTP on loopback, elsewhere by the API's certificate; 0 is none (default "+defaultOperator+", in developer mode a free port)")
	f.BoolVar(&c.pprof, "pprof", false, "serve profiles under /debug/pprof/")
	c.front.Add(f)
	c.extensions.Add(f)
	return cmd
}

// settings are the flags with their keys in the configuration file.
func settings(flags *pflag.FlagSet) *config.Settings {
	return config.New(flags, "RADIAL_").NotInFile("config").Ignore(foreign).Under(map[string]string{
		"max-operation-concurrency": "workerServer.maxOperationConcurrency",
		"lease":                     "workerServer.lease",
		"operation-deadline":        "workerServer.operationDeadline",
		"recipe-deadline":           "workerServer.recipeDeadline",
		"keep-operations":           "workerServer.keepOperations",
		"log-level":                 "log.level",
		"log-format":                "log.format",
	})
}

// foreign are variables that begin as ours do and belong to others: those that
// Kubernetes makes for every Service of a namespace, and those of Radial's other
// programs and of its tests.
func foreign(name string) bool {
	for _, mark := range []string{"_SERVICE_HOST", "_SERVICE_PORT", "_PORT_", "RADIAL_TEST_"} {
		if strings.Contains(name, mark) {
			return true
		}
	}
	if strings.HasSuffix(name, "_PORT") {
		return true
	}
	return strings.HasPrefix(name, "RADIAL_SERVER") || strings.HasPrefix(name, "RADIAL_PROVIDER_") || slices.Contains([]string{
		"RADIAL_BIN", "RADIAL_DIR", "RADIAL_NAMESPACE", "RADIAL_CONTEXT", "RADIAL_CONTEXTS", "RADIAL_LEADER_ELECT", "RADIAL_HEALTH_LISTEN",
		"RADIAL_FAULT", "RADIAL_SEED", "RADIAL_REAL_NODE", "RADIAL_REQUIRE_TOOLS", "RADIAL_TARGET_KUBECONFIG",
	}, name)
}

// check refuses what cannot work, by the flag's name.
func (c *options) check() error {
	if err := c.front.Check(c.listen, c.developerMode, c.hasCluster()); err != nil {
		return err
	}
	if err := serving.CheckOperator(c.metricsListen, c.developerMode); err != nil {
		return err
	}
	at, err := address.Parse(c.store)
	if err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	c.keptAt = at
	if err := c.key.check(at); err != nil {
		return err
	}
	if !c.api && !c.workers {
		return fmt.Errorf("--api=false and --workers=false leave nothing to do: switch one of them on")
	}
	if c.cluster == "" {
		return fmt.Errorf("--cluster is empty: name the cluster of --kubeconfig, %q unless there are several", core.LocalCluster)
	}
	if c.maxOperations < 1 {
		return fmt.Errorf("--max-operation-concurrency is %d: at least one operation must be able to run", c.maxOperations)
	}
	if c.lease < time.Second {
		return fmt.Errorf("--lease is %s: it must be at least 1s", c.lease)
	}
	if c.deadline <= 0 {
		return fmt.Errorf("--operation-deadline is %s: it must be more than nothing", c.deadline)
	}
	if c.recipe <= 0 {
		return fmt.Errorf("--recipe-deadline is %s: it must be more than nothing", c.recipe)
	}
	if c.keptHistory <= 0 {
		return fmt.Errorf("--keep-operations is %s: clients that wait for an operation must be able to see its end", c.keptHistory)
	}
	if err := c.extensions.Check(); err != nil {
		return err
	}
	if c.keptAudit <= 0 {
		return fmt.Errorf("--keep-audit is %s: it must be more than nothing", c.keptAudit)
	}
	return nil
}

// hasCluster reports whether there is a cluster to ask who calls: that of
// --kubeconfig, or in a pod its own.
func (c *options) hasCluster() bool {
	return c.kubeconfig != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

func (c *options) logger() (*slog.Logger, error) {
	return config.Logger(c.logLevel, c.logFormat, os.Stderr)
}
