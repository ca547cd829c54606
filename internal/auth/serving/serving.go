// Package serving gives the server its TLS certificates: from files that are
// read again when they change, or self-made by an authority of its own that
// renews itself while the process runs.
package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// Certificates are what a listener serves by.
type Certificates interface {
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Run keeps them fresh until ctx ends.
	Run(ctx context.Context) error
}

// Config is the TLS configuration of the server's listener. Client certificates
// are asked for and not demanded: package auth verifies them, since whom to
// trust may change while the listener lives.
func Config(c Certificates) *tls.Config {
	return &tls.Config{
		GetCertificate: c.GetCertificate,
		MinVersion:     tls.VersionTLS12,
		ClientAuth:     tls.RequestClientCert,
		NextProtos:     []string{"h2", "http/1.1"},
	}
}

type files struct{ *certwatcher.CertWatcher }

func (f files) Run(ctx context.Context) error { return f.Start(ctx) }

// Files serves a certificate (with its chain) and its key from files. A change
// of either is taken up within seconds; a pair that does not fit, as while the
// two are being replaced, leaves the last good one in use.
func Files(cert, key string) (Certificates, error) {
	w, err := certwatcher.New(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the certificate of %s and %s cannot be used: %w", cert, key, err)
	}
	return files{w}, nil
}

// CheckPlain refuses a listener without TLS: who may listen so is developer
// mode, on loopback, and nobody else. (Loopback of a machine that others share
// is theirs too: developer mode is for one person's machine.)
func CheckPlain(listen string, developerMode bool) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen is %q: it must be host:port, such as 127.0.0.1:8080", listen)
	}
	if !developerMode {
		return errors.New("a listener without TLS is for developer mode only: give --tls-cert-file and --tls-key-file, let the server make its own certificates with --tls-self-made, or add --developer-mode on loopback")
	}
	if !loopback(host) {
		return fmt.Errorf("--listen is %q: with --developer-mode the server answers without TLS and without authentication, so it listens on loopback only, such as 127.0.0.1:8080", listen)
	}
	return nil
}

// CheckOperator refuses a listener of metrics and probes that would be plain HTTP
// and reached from elsewhere: away from loopback it has TLS, which developer mode
// has not. listen is "" or "0" where there is none.
func CheckOperator(listen string, developerMode bool) error {
	if listen == "" || listen == "0" {
		return nil
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--metrics-listen is %q: it must be host:port, such as 127.0.0.1:9090, or 0 for none", listen)
	}
	if developerMode && !loopback(host) {
		return fmt.Errorf("--metrics-listen is %q: with --developer-mode metrics and probes are plain HTTP, so they are on loopback only, such as 127.0.0.1:9090", listen)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
