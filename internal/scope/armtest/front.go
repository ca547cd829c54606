package armtest

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// front stands before a real API server and knows its own tokens: one that is
// revoked is refused at once, which the API server itself does after ten seconds
// only. It is for tests that rotate often.
type front struct {
	server *httptest.Server
	mu     sync.Mutex
	token  string // that is good now
}

// AddFront is [Server.AddCluster] with a front before the API server of config:
// [Cluster.Rotate] then takes no time. [Cluster.Replace] is not for it.
func (s *Server) AddFront(tb testing.TB, id string, config *rest.Config) *Cluster {
	tb.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		tb.Fatal(err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		tb.Fatal(err)
	}
	f := &front{}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Header.Del("Authorization")
	}}
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		good := r.Header.Get("Authorization") == "Bearer "+f.token
		f.mu.Unlock()
		if !good {
			status := apierrors.NewUnauthorized("Unauthorized").Status()
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(status.Code))
			_ = json.NewEncoder(w).Encode(status)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	f.server.EnableHTTP2 = true
	f.server.StartTLS()
	tb.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	c := &Cluster{s: s, id: id, config: config, front: f}
	c.rotateFront(tb)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clusters[strings.ToLower(id)] = c
	return c
}

// rotateFront makes another token the good one.
func (c *Cluster) rotateFront(tb testing.TB) {
	tb.Helper()
	token := randomText()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.front.server.Certificate().Raw})
	kubeconfig := kubeconfigOf(tb, c.front.server.URL, authority, token)
	c.front.mu.Lock()
	c.front.token = token
	c.front.mu.Unlock()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.kubeconfig = kubeconfig
	c.s.secrets = append(c.s.secrets, token, string(kubeconfig))
}
