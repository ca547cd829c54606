// Package outgoing makes the HTTP clients by which our processes ask others'
// services, as the network of a company wants it (D-48).
package outgoing

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// Client honours the proxy settings of the environment as they are now, and a
// bundle of authorities in PEM beside the system's; nil is none. A request takes
// at most ten seconds.
func Client(ca []byte) (*http.Client, error) {
	proxy := httpproxy.FromEnvironment().ProxyFunc()
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = func(r *http.Request) (*url.URL, error) { return proxy(r.URL) }
	if len(ca) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(ca) {
			return nil, errors.New("the bundle of authorities holds no certificate in PEM")
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: t, Timeout: 10 * time.Second}, nil
}
