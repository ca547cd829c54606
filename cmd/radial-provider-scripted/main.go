// Command radial-provider-scripted is a cloud provider that reaches no cloud:
// it answers every kind with made-up values, for tests and for trying an
// installation without an account. docs/cloud/write-a-provider.md tells more.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/radial-project/radial/provider/scripted"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := scripted.Main(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
