package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/cloud"
	settings "github.com/radial-project/radial/internal/config"
)

// config is what the program is told: by flags how it runs, by the ANKKA_
// variables what the installation is.
type config struct {
	kubeconfig  string
	namespace   string
	health      string
	metrics     string
	leaderElect bool
	logLevel    string
	logFormat   string
	version     bool

	settings cloud.Settings
}

// parse reads flags, the variable RADIAL_<FLAG> for one that is not given, and
// the installation's settings. The error names everything of the settings that
// is wrong.
func parse(args []string, lookup cloud.Lookup) (config, error) {
	var c config
	f := flag.NewFlagSet("radial-operator", flag.ContinueOnError)
	f.SetOutput(os.Stderr)
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "path of the cluster's kubeconfig; empty is the pod's own ServiceAccount")
	f.StringVar(&c.namespace, "namespace", v1alpha1.PlatformNamespace, "namespace of the operator's own lease")
	f.StringVar(&c.health, "health-listen", ":8081", "address of /healthz and /readyz; 0 is none")
	f.StringVar(&c.metrics, "metrics-listen", ":9090", "address of /metrics; 0 is none")
	f.BoolVar(&c.leaderElect, "leader-elect", false, "elect one leader among replicas")
	f.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&c.logFormat, "log-format", "json", "json or text")
	f.BoolVar(&c.version, "version", false, "print the version")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if f.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q; everything is a flag, see --help", f.Arg(0))
	}
	fault := settings.Environment(f, "RADIAL_", lookup)
	if c.version && fault == nil {
		return c, nil
	}
	_, unclear := c.logger(io.Discard)
	var unsettled error
	c.settings, unsettled = cloud.Load(lookup)
	return c, errors.Join(fault, unclear, unsettled)
}

func (c config) logger(w io.Writer) (*slog.Logger, error) {
	return settings.Logger(c.logLevel, c.logFormat, w)
}
