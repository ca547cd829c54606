package project_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/internal/service"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/provider/scripted"
)

// others runs the real operator and a real provider on a made-up account, each
// under the token of its own account.
func (h *house) others() *scripted.Account {
	h.t.Helper()
	set := settings()
	account, err := scripted.NewAccount("")
	if err != nil {
		h.t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := service.AddToScheme(scheme); err != nil {
		h.t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(h.As(h.t, ankkatest.Operator), ctrl.Options{Scheme: scheme, Logger: logr.Discard(), Cache: service.CacheOptions(),
		Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := service.Setup(mgr, service.Options{Settings: set}); err != nil {
		h.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			h.t.Errorf("the operator: %v", err)
		}
	})
	running.Go(func() {
		err := provider.Run(ctx, provider.Options{Cloud: scripted.Cloud{Account: account}, Config: h.As(h.t, ankkatest.Provider),
			Settings: provider.Settings{Provider: set.Provider, Account: set.Account, Location: set.Location, KMSKey: set.KMSKey, RotationGrace: time.Hour, Installation: "test"}})
		if err != nil && ctx.Err() == nil {
			h.t.Errorf("the provider: %v", err)
		}
	})
	h.t.Cleanup(func() { stop(); running.Wait() })
	return account
}

// The whole way: a descriptor goes in, and a bucket with a credential comes out,
// which the control plane shows without ever having seen it; a generation that is
// raised in the cluster stays raised while the control plane goes on writing.
func TestWhole_C109_C130_C154(t *testing.T) {
	h := start(t, settings())
	account := h.others()
	_, name := h.organization()
	at := "/services/" + name + "/reports"
	h.want(201, "bob", "PUT", at, `{"name":"reports","service":{"image":"registry.example/reports:1","provisionObjectStorage":true,"env":[{"name":"LOG","value":"info"}]}}`)
	got := h.await(name, "reports", func(b map[string]any) bool { return text(b, "status", "objectStorage", "phase") == "Provisioned" })
	bucket, err := v1alpha1.BucketName("acme", name, "reports")
	if err != nil {
		t.Fatal(err)
	}
	if text(got, "status", "objectStorage", "bucket") != bucket || text(got, "status", "storageCredential", "secretName") != "reports-cloud-storage" {
		t.Errorf("%v", got)
	}
	graph := h.want(200, "bob", "GET", "/projects/"+name+"/graph", "", "/buckets/reports", "/credentials/reports", "CloudResource/reports-storage-credential")

	if err := h.Admin.Patch(t.Context(), h.service(name, "reports"), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"storageCredentialGeneration":2}}`))); err != nil {
		t.Fatal(err)
	}
	generation := func(b map[string]any) float64 {
		st, _ := b["status"].(map[string]any)
		c, _ := st["storageCredential"].(map[string]any)
		n, _ := c["generation"].(float64)
		return n
	}
	h.await(name, "reports", func(b map[string]any) bool { return generation(b) == 2 })
	h.want(200, "bob", "PUT", at, `{"name":"reports","service":{"image":"registry.example/reports:2","provisionObjectStorage":true}}`)
	got = h.await(name, "reports", func(b map[string]any) bool {
		st, _ := b["status"].(map[string]any)
		return st["generation"] == float64(2)
	})
	if generation(got) != 2 || h.service(name, "reports").Spec.CredentialGeneration() != 2 {
		t.Errorf("C-130: %v", got)
	}

	// What is in the Secret is nowhere else.
	var secret corev1.Secret
	if err := h.Admin.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(name), Name: "reports-cloud-storage"}, &secret); err != nil {
		t.Fatal(err)
	}
	key := string(secret.Data[v1alpha1.EntrySecretKey])
	if key == "" || !account.Reaches(string(secret.Data[v1alpha1.EntryAccessKey]), key, bucket) {
		t.Fatal("the Secret has no credential that reaches the bucket")
	}
	for _, a := range []answer{graph, h.want(200, "ann", "GET", at, ""), h.want(200, "ann", "GET", at+"/history", ""), h.want(200, "root", "GET", armService(name, "reports"), "")} {
		if strings.Contains(a.raw, key) {
			t.Errorf("the credential is answered: %s", a.raw)
		}
	}

	// The bucket stays when the service goes, and one of its name finds it again.
	h.remove(name, "reports")
	if !account.Holds(bucket) {
		t.Error("the bucket went with the service")
	}
	h.want(201, "bob", "PUT", at, `{"name":"reports","service":{"image":"registry.example/reports:1","provisionObjectStorage":true}}`)
	got = h.await(name, "reports", func(b map[string]any) bool { return text(b, "status", "objectStorage", "phase") == "Recovered" })
	if text(got, "status", "objectStorage", "bucket") != bucket {
		t.Errorf("%v", got)
	}
}

// A cluster that is away is waited for, and what was reported meanwhile is read
// when it is back.
func TestClusterAway(t *testing.T) {
	away := &outage{}
	h := startBehind(t, settings(), away)
	_, name := h.organization()
	at := "/services/" + name + "/reports"
	h.want(201, "bob", "PUT", at, `{"name":"reports","service":{"image":"x:1"}}`)
	h.await(name, "reports", func(b map[string]any) bool { return b["state"] == "Succeeded" })

	away.set(true)
	h.report(h.service(name, "reports"), v1alpha1.AnkkaServiceStatus{Lifecycle: v1alpha1.LifecycleReady, ReadyInstances: 1, DesiredInstances: 1})
	done := make(chan answer, 1)
	go func() { done <- h.send("bob", "PUT", at, `{"name":"reports","service":{"image":"x:2"}}`) }()
	away.refused(t)
	away.set(false)
	if a := <-done; a.status != 200 || a.body["state"] != "Succeeded" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if h.service(name, "reports").Spec.Image != "x:2" {
		t.Error("the change did not reach the cluster")
	}
	h.await(name, "reports", func(b map[string]any) bool { return text(b, "status", "lifecycle") == "Ready" })
}

// outage stands between the control plane and its API server.
type outage struct {
	away atomic.Bool
	hits atomic.Int64
}

func (o *outage) set(away bool) { o.away.Store(away) }

// refused waits until a request met the outage.
func (o *outage) refused(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(ankkatest.Limit); o.hits.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing asked the cluster")
		}
	}
}

// through is a configuration that goes by way of the outage.
func (o *outage) through(t *testing.T, c *rest.Config) *rest.Config {
	t.Helper()
	transport, err := rest.TransportFor(c)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(c.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.away.Load() {
			o.hits.Add(1)
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return &rest.Config{Host: server.URL, QPS: -1}
}
