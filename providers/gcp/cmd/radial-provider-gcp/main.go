// Command radial-provider-gcp is the cloud provider of Google Cloud: it answers
// the cloud requests of an installation whose cloud is gcp. docs/cloud/gcp.md
// tells how it is installed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/providers/gcp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, "gcp", os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the provider that answers to name; its exit code is
// provider.Command's, and 2 if it was given a key file.
func run(ctx context.Context, name string, args, environ []string, stdout, stderr io.Writer) int {
	home, _ := os.UserHomeDir()
	if err := gcp.RefuseKeyFiles(environ, home); err != nil {
		fmt.Fprintln(stderr, "radial-provider-gcp:", err)
		return 2
	}
	version := "radial-provider-gcp " + core.Version
	var o gcp.Options
	return provider.Command{
		Name: name, Version: version,
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&o.Endpoint, "endpoint", "", "address that serves all of Google's APIs in place of their own, such as a private endpoint")
			f.StringVar(&o.WorkloadPool, "workload-pool", "", "workload identity pool of the cluster; without it, that of the cluster's project, <project>.svc.id.goog")
			f.StringVar(&o.CreatorRole, "secret-creator-role", gcp.DefaultCreatorRole, "custom role by which a service makes secrets: an id in the account, or a full name")
			f.StringVar(&o.KeeperRole, "secret-keeper-role", gcp.DefaultKeeperRole, "custom role by which a service keeps its own secrets")
			f.DurationVar(&o.KeySettles, "key-settles", 0, "how old a key must be to be taken for one that works when a restart has made it impossible to try it (default 1m, what Google's documentation gives it)")
		},
		Connect: func(ctx context.Context, s provider.Settings) (provider.Cloud, error) {
			return gcp.Connect(ctx, s, version, o)
		},
	}.Run(ctx, args, os.LookupEnv, stdout, stderr)
}
