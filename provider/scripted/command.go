package scripted

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/radial-project/radial/provider"
)

// Main is the command of the scripted provider, with everything from outside
// handed in; it answers the exit code. It answers to the name that
// ANKKA_CLOUD_PROVIDER gives it (C-17).
func Main(ctx context.Context, args []string, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	name, _ := lookup("ANKKA_CLOUD_PROVIDER")
	var file, remote, listen, lie string
	return provider.Command{
		Name: name, Version: Version,
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&file, "account-file", "", "file that the made-up account is kept in; without it, memory")
			f.StringVar(&remote, "account", "", "URL, on loopback, of a process that serves the account")
			f.StringVar(&listen, "account-listen", "", "loopback address to serve the account and its records (GET /records) on")
			f.StringVar(&lie, "lie", "", "be dishonest, to try a suite against")
		},
		Connect: func(ctx context.Context, _ provider.Settings) (provider.Cloud, error) {
			if remote != "" {
				if file != "" || listen != "" {
					return nil, errors.New("--account is another process' account; it is neither kept in a file nor served here")
				}
				r, err := NewRemote(remote)
				return Cloud{r}, err
			}
			a, err := NewAccount(file)
			if err == nil && listen != "" {
				err = serve(ctx, a, listen)
			}
			return Cloud{a}, err
		},
		Change: func(o *provider.Options) error {
			if lie == "" {
				return nil
			}
			return Lie(o, lie)
		},
	}.Run(ctx, args, lookup, stdout, stderr)
}

func serve(ctx context.Context, a *Account, address string) error {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--account-listen %q is not a loopback address with a port", address)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() { _ = s.Serve(l) }()
	return nil
}
