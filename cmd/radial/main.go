// Command radial is Radial's command line, also usable as `kubectl radial`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/radial-project/radial/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := cli.Run(ctx, cli.Surroundings{
		Args:     os.Args,
		In:       os.Stdin,
		Out:      os.Stdout,
		Err:      os.Stderr,
		Getenv:   os.Getenv,
		Asks:     term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
		Terminal: term.IsTerminal(int(os.Stderr.Fd())),
	})
	stop()
	os.Exit(code)
}
