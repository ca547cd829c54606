package extensionsdk

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Main is the main function of an extension: it reads the program's flags,
// serves until it is told to end, and returns the program's exit status.
//
//	--socket PATH    gRPC on a Unix socket, as hosts start it
//	--http ADDRESS   HTTP; [HOST:]PORT, HOST is 127.0.0.1 where it is not said
//	--tls-cert FILE --tls-key FILE   serve HTTP by TLS
//	--token-file FILE                the bearer token that callers must show
func Main(x Extension) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := Run(ctx, x, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Run is [Main] with everything given to it. It writes where it listens to log.
func Run(ctx context.Context, x Extension, args []string, log io.Writer) error {
	flags := flag.NewFlagSet("extension", flag.ContinueOnError)
	flags.SetOutput(log)
	socket := flags.String("socket", "", "serve gRPC on this Unix socket")
	address := flags.String("http", "", "serve HTTP on this address")
	cert := flags.String("tls-cert", "", "file with the certificate")
	key := flags.String("tls-key", "", "file with its key")
	token := flags.String("token-file", "", "file with the bearer token of callers")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case (*socket == "") == (*address == ""):
		return errors.New("pass either --socket PATH or --http ADDRESS")
	case (*cert == "") != (*key == ""):
		return errors.New("--tls-cert and --tls-key go together")
	case *socket != "":
		return serveSocket(ctx, x, *socket)
	}
	if !strings.Contains(*address, ":") {
		*address = "127.0.0.1:" + *address
	}
	var o HTTPOptions
	if *token != "" {
		o.Token = func() (string, error) {
			raw, err := os.ReadFile(*token)
			return strings.TrimSpace(string(raw)), err
		}
	}
	return serveHTTP(ctx, HTTP(x, o), *address, *cert, *key, log)
}

func serveSocket(ctx context.Context, x Extension, path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	s := GRPC(x)
	stop := context.AfterFunc(ctx, s.GracefulStop)
	defer stop()
	return s.Serve(l)
}

func serveHTTP(ctx context.Context, h http.Handler, address, cert, key string, log io.Writer) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	scheme := "http"
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = s.Shutdown(end)
	})
	defer stop()
	if cert != "" {
		scheme = "https"
	}
	fmt.Fprintf(log, "listening on %s://%s\n", scheme, l.Addr())
	if cert != "" {
		err = s.ServeTLS(l, cert, key)
	} else {
		err = s.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
