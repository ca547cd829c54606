package contexts

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/radial-project/radial/internal/core"
)

// tokenFunc gives a bearer token that is good now; "" for none.
type tokenFunc func(ctx context.Context) (string, error)

// reread is how long what a file said is believed: rotated tokens and
// authorities are taken up within it.
const reread = 10 * time.Second

// Transport sends requests as the context says. It is for one process's life:
// files are read again, tokens renewed.
func (f *File) Transport(c Context) (http.RoundTripper, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	t := &transport{caFile: c.CAFile}
	switch {
	case c.TokenFile != "":
		t.token = fileToken(c.TokenFile)
	case c.Account != nil:
		token, err := accountToken(*c.Account)
		if err != nil {
			return nil, err
		}
		t.token = token
	case c.OIDC != nil:
		t.token = f.signIn(c).token
	case c.Kubeconfig != nil:
		config, err := c.Kubeconfig.load()
		if err != nil {
			return nil, err
		}
		return kubeconfigTransport(t, config)
	}
	return t, nil
}

// FileTransport is for processes: a token in a file that something else keeps
// fresh, such as a projected one, and authorities in another; "" for none.
func FileTransport(caFile, tokenFile string) http.RoundTripper {
	t := &transport{caFile: caFile}
	if tokenFile != "" {
		t.token = fileToken(tokenFile)
	}
	return t
}

// transport adds the token and follows the file of authorities.
type transport struct {
	caFile string
	certs  []tls.Certificate
	token  tokenFunc

	mu   sync.Mutex
	base *http.Transport
	sum  [sha256.Size]byte
	seen time.Time
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base, err := t.current()
	if err != nil {
		return nil, err
	}
	if t.token != nil {
		if r.URL.Scheme != "https" {
			return nil, fmt.Errorf("a token is not sent to %s over plain HTTP", r.URL.Host)
		}
		token, err := t.token(r.Context())
		if err != nil {
			// Not that the server could not be reached: nobody asked it.
			return nil, core.Errorf(core.CodeUnauthorized, "%w", err)
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return base.RoundTrip(r)
}

func (t *transport) current() (*http.Transport, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.base != nil && (t.caFile == "" || time.Since(t.seen) < reread) {
		return t.base, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: t.certs}
	var sum [sha256.Size]byte
	if t.caFile != "" {
		bundle, err := os.ReadFile(t.caFile)
		if err != nil && t.base != nil {
			return t.base, nil // while it is being replaced, as before
		}
		if err != nil {
			return nil, fmt.Errorf("the authorities of the server cannot be read: %w", err)
		}
		if sum = sha256.Sum256(bundle); t.base != nil && sum == t.sum {
			t.seen = time.Now()
			return t.base, nil
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", t.caFile)
		}
	}
	if t.base != nil {
		t.base.CloseIdleConnections()
	}
	t.sum, t.seen = sum, time.Now()
	t.base = &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:       config,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	return t.base, nil
}

func fileToken(path string) tokenFunc {
	var mu sync.Mutex
	var last string
	var seen time.Time
	return func(context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if last != "" && time.Since(seen) < reread {
			return last, nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("the token cannot be read: %w", err)
		}
		token := strings.TrimSpace(string(raw))
		if token == "" {
			return "", fmt.Errorf("the token file %s is empty", path)
		}
		last, seen = token, time.Now()
		return token, nil
	}
}

func (k Kubeconfig) load() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if k.Path != "" {
		rules.ExplicitPath = k.Path
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: k.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	return config, nil
}

// tokenLife is what is asked for; the API server gives no less than ten minutes.
const tokenLife = 15 * time.Minute

func accountToken(a Account) (tokenFunc, error) {
	config, err := a.load()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if a.Audience == "" {
		a.Audience = "radial"
	}
	var mu sync.Mutex
	var last string
	var renew time.Time
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if last != "" && time.Now().Before(renew) {
			return last, nil
		}
		r, err := client.CoreV1().ServiceAccounts(a.Namespace).CreateToken(ctx, a.Name, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: []string{a.Audience}, ExpirationSeconds: ptr.To(int64(tokenLife / time.Second))},
		}, metav1.CreateOptions{})
		if err != nil {
			return "", fmt.Errorf("no token for ServiceAccount %s/%s: %w", a.Namespace, a.Name, err)
		}
		now := time.Now()
		last, renew = r.Status.Token, now.Add(r.Status.ExpirationTimestamp.Sub(now)*4/5)
		return last, nil
	}, nil
}

// kubeconfigTransport proves the user of a kubeconfig to Radial: a client
// certificate by the handshake, anything else by its header.
func kubeconfigTransport(t *transport, config *rest.Config) (http.RoundTripper, error) {
	if config.ExecProvider == nil && config.AuthProvider == nil {
		if err := rest.LoadTLSFiles(config); err != nil {
			return nil, err
		}
		if len(config.CertData) > 0 {
			pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
			if err != nil {
				return nil, fmt.Errorf("the client certificate of the kubeconfig cannot be used: %w", err)
			}
			t.certs = []tls.Certificate{pair}
			return t, nil
		}
	}
	if config.ExecProvider == nil && config.BearerToken == "" && config.BearerTokenFile == "" {
		return nil, errors.New("the user of the kubeconfig has neither a client certificate nor a token: use --account or --oidc-issuer")
	}
	// The exec plugin is run by client-go, which hands the token to the request.
	return rest.HTTPWrappersForConfig(config, t)
}
