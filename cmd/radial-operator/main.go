// Command radial-operator makes the services of projects run and asks the
// installation's cloud provider for what they need. It holds no power over a
// cloud and reads no Secret. What the installation's cloud is it is told by the
// ANKKA_ variables, which have no defaults; docs/cloud/services.md tells more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/radial-project/radial/internal/core"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c, err := parse(os.Args[1:], os.LookupEnv)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintln(os.Stderr, "radial-operator:", err)
		os.Exit(2)
	case c.version:
		fmt.Println("radial-operator", core.Version)
		return
	}
	log, err := c.logger(os.Stdout)
	if err == nil {
		err = run(ctx, c, log)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "radial-operator:", err)
		os.Exit(1)
	}
}
