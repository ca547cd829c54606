package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/cloud"
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
	given := map[string]bool{}
	f.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	var faults []error
	f.VisitAll(func(fl *flag.Flag) {
		name := "RADIAL_" + strings.ToUpper(strings.ReplaceAll(fl.Name, "-", "_"))
		if v, _ := lookup(name); v != "" && !given[fl.Name] {
			if err := fl.Value.Set(v); err != nil {
				faults = append(faults, fmt.Errorf("environment variable %s: %w", name, err))
			}
		}
	})
	if c.version && len(faults) == 0 {
		return c, nil
	}
	if _, err := c.logger(io.Discard); err != nil {
		faults = append(faults, err)
	}
	var err error
	if c.settings, err = cloud.Load(lookup); err != nil {
		faults = append(faults, err)
	}
	return c, errors.Join(faults...)
}

// logger writes to w, one line an entry.
func (c config) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q is none of debug, info, warn, error", c.logLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	switch c.logFormat {
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format %q is neither json nor text", c.logFormat)
}
