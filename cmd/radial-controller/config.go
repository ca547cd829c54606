package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/radial-project/radial/installation"
	settings "github.com/radial-project/radial/internal/config"
	"github.com/radial-project/radial/internal/core"
)

// config is what the program is told, by flags or by the environment.
type config struct {
	kubeconfig  string
	server      string
	serverCA    string
	serverToken string
	cluster     string
	namespace   string
	health      string
	readyFile   string
	metrics     string
	leaderElect bool
	logLevel    string
	logFormat   string
	version     bool
}

// parse reads flags; what none says, the variable RADIAL_<FLAG> says, with _
// for -.
func parse(args []string, lookup func(string) (string, bool)) (config, error) {
	var c config
	f := flag.NewFlagSet("radial-controller", flag.ContinueOnError)
	f.SetOutput(os.Stderr)
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "path of the cluster's kubeconfig; empty is the pod's own ServiceAccount")
	f.StringVar(&c.server, "server", "", "base URL of the Radial server (required)")
	f.StringVar(&c.serverCA, "server-ca-file", "", "file with authorities for the server's certificate, read again when it changes; empty are the system's")
	f.StringVar(&c.serverToken, "server-token-file", "", "file with the token to prove who this is, read again when it changes; empty is none, as in developer mode")
	f.StringVar(&c.cluster, "cluster", core.LocalCluster, "name of this cluster, as ids and environments have it")
	f.StringVar(&c.namespace, "namespace", installation.Namespace, "namespace of the controller's own objects")
	f.StringVar(&c.health, "health-listen", ":8081", "address of /healthz and /readyz; 0 is none")
	f.StringVar(&c.readyFile, "ready-file", "", "`file` to write once /readyz would first answer ok")
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
	if err := settings.Environment(f, "RADIAL_", lookup); err != nil || c.version {
		return c, err
	}
	return c, c.check()
}

func (c config) check() error {
	switch u, err := url.Parse(c.server); {
	case c.server == "":
		return fmt.Errorf("--server is missing; give the base URL of the Radial server, such as https://radial.example.com")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("--server %q is not a URL with http or https and a host", c.server)
	case c.serverToken != "" && u.Scheme != "https":
		return fmt.Errorf("--server-token-file is given and --server %q is plain HTTP, by which no token is sent: use https", c.server)
	}
	if faults := validation.IsDNS1123Label(c.cluster); len(faults) > 0 {
		return fmt.Errorf("--cluster %q cannot name a cluster: %s", c.cluster, strings.Join(faults, ", "))
	}
	if _, err := c.logger(io.Discard); err != nil {
		return err
	}
	return nil
}

func (c config) logger(w io.Writer) (*slog.Logger, error) {
	return settings.Logger(c.logLevel, c.logFormat, w)
}
