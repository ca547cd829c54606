package provider

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/radial-project/radial/internal/conceal"
)

// Connect makes the cloud's side, once the settings are known to be whole. ctx
// ends with the process.
type Connect func(ctx context.Context, s Settings) (Cloud, error)

// Main is the main function of a provider that answers to name: flags,
// settings from the environment, logs, signals, [Run]. It exits: 0 after
// SIGTERM or SIGINT, 2 for flags or settings that are wrong, 1 for anything
// else.
func Main(name, version string, connect Connect) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := Command{Name: name, Version: version, Connect: connect}.Run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Command is a provider's command line, for a main that has more to say.
type Command struct {
	// Name is what the provider answers to, and Version its name and version.
	Name, Version string
	Connect       Connect
	// Flags adds flags of the provider's own.
	Flags func(*flag.FlagSet)
	// Change has the last word on what runs.
	Change func(*Options) error
}

// Run is the command with everything from outside handed in; it answers the
// exit code. Every flag can be given as a variable too: RADIAL_PROVIDER_<FLAG>.
func (c Command) Run(ctx context.Context, args []string, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	program, _, _ := strings.Cut(c.Version, " ")
	fail := func(code int, err error) int {
		fmt.Fprintf(stderr, "%s: %v\n", program, err)
		return code
	}
	o := Options{}
	var kubeconfig, level string
	var version bool
	f := flag.NewFlagSet(program, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&kubeconfig, "kubeconfig", "", "file that says how to reach the API server; without it, the Pod's ServiceAccount")
	f.StringVar(&o.HealthListen, "health-listen", ":8081", "address of /healthz and /readyz; 0 for none")
	f.StringVar(&o.MetricsListen, "metrics-listen", ":8080", "address of /metrics; 0 for none")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	f.DurationVar(&o.Recheck, "recheck", 10*time.Minute, "how often what is answered is looked at again")
	f.DurationVar(&o.SyncInterval, "sync-interval", 30*time.Second, "how often synced secrets are brought in step")
	f.DurationVar(&o.RetryMin, "retry-min", time.Second, "first wait before what waits or failed is tried again")
	f.DurationVar(&o.RetryMax, "retry-max", 5*time.Minute, "longest such wait")
	f.DurationVar(&o.CallTimeout, "call-timeout", time.Minute, "limit of each call to the cloud")
	f.IntVar(&o.Concurrency, "concurrency", 16, "how many requests are worked on at once")
	f.BoolVar(&version, "version", false, "say the version and end")
	if c.Flags != nil {
		c.Flags(f)
	}
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if version {
		fmt.Fprintln(stdout, c.Version)
		return 0
	}
	if f.NArg() > 0 {
		return fail(2, fmt.Errorf("%q: everything is a flag", f.Arg(0)))
	}
	given := map[string]bool{}
	f.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	var errs []error
	f.VisitAll(func(fl *flag.Flag) {
		v := "RADIAL_PROVIDER_" + strings.ToUpper(strings.ReplaceAll(fl.Name, "-", "_"))
		if text, ok := lookup(v); ok && text != "" && !given[fl.Name] {
			if err := fl.Value.Set(text); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", v, err))
			}
		}
	})
	l, err := conceal.LogLevel(level)
	errs = append(errs, err)
	s, err := LoadSettings(c.Name, lookup)
	if err := errors.Join(append(errs, err)...); err != nil {
		return fail(2, err)
	}
	o.Settings = s
	o.Log = slog.New(slog.NewJSONHandler(stdout, &slog.HandlerOptions{Level: l}))
	// The libraries' own words go where the provider's do.
	logger := logr.FromSlogHandler(o.Log.Handler())
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	if kubeconfig != "" {
		o.Config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	} else {
		o.Config, err = rest.InClusterConfig()
	}
	if err != nil {
		return fail(2, fmt.Errorf("how to reach the API server: %w", err))
	}
	if o.Cloud, err = c.Connect(ctx, s); err != nil {
		return fail(1, err)
	}
	if c.Change != nil {
		if err := c.Change(&o); err != nil {
			return fail(1, err)
		}
	}
	if err := Run(ctx, o); err != nil {
		return fail(1, err)
	}
	return 0
}
