// Command radial-controller serves one cluster: it adopts annotated
// Deployments, provisions Recipes and releases held rollouts. It connects
// outwards to the control plane; nothing connects to it but probes and
// scrapers. docs/controller.md describes it.
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
		fmt.Fprintln(os.Stderr, "radial-controller:", err)
		os.Exit(2)
	case c.version:
		fmt.Println("radial-controller", core.Version)
		return
	}
	log, err := c.logger(os.Stdout)
	if err == nil {
		err = run(ctx, c, log)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "radial-controller:", err)
		os.Exit(1)
	}
}
