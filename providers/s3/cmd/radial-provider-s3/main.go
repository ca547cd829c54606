// Command radial-provider-s3 is the cloud provider for an object store on the
// installation's own premises: docs/cloud/s3.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/radial-project/radial/providers/s3"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := s3.Main(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
