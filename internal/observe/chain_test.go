package observe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/observe"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/paired"
	"github.com/radial-project/radial/internal/provision"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/recipe/template"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/store/sqlite"
	"github.com/radial-project/radial/internal/telemetry"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// needle is a secret that must come out nowhere.
const needle = "needle-in-no-trace-and-no-metric"

// module is a recipe: a Secret, and what it answers.
const module = `{
  "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", "languageVersion": "2.1-experimental", "contentVersion": "1.0.0.0",
  "imports": {"kubernetes": {"provider": "Kubernetes", "version": "1.0.0", "config": {"kubeConfig": "", "namespace": "default"}}},
  "parameters": {"context": {"type": "object"}},
  "resources": {"made": {"import": "kubernetes", "type": "core/Secret@v1", "properties": {
    "metadata": {"name": "made", "namespace": "[parameters('context').runtime.kubernetes.namespace]"}, "stringData": {"password": "` + needle + `"}}}},
  "outputs": {"result": {"type": "object", "value": {"values": {"host": "redis", "port": 6379}, "secrets": {"password": "` + needle + `"}}}}
}`

// recorder keeps the spans that ended.
type recorder struct {
	mu    sync.Mutex
	spans []sdk.ReadOnlySpan
	more  chan struct{}
}

func (r *recorder) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	r.mu.Lock()
	r.spans = append(r.spans, spans...)
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
	return nil
}

func (r *recorder) Shutdown(context.Context) error { return nil }

func (r *recorder) all() []sdk.ReadOnlySpan {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// plane is a whole control plane on the real cluster, in this process.
func plane(t *testing.T, cluster *rest.Config, m *telemetry.Metrics) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	broker := feed.New()
	db, err := sqlite.Open(ctx, filepath.Join(dir, "radial.db"), sqlite.Options{Listener: broker.Publish, Committed: m.Committed})
	if err != nil {
		t.Fatal(err)
	}
	kept := observe.NewStore(db, m, "test")
	m.Register(observe.Collect(db))
	kek, err := seal.LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := seal.Open(ctx, kept, kek)
	if err != nil {
		t.Fatal(err)
	}
	sealer.Count(m.Sealed)
	traced := rest.CopyConfig(cluster)
	traced.Wrap(telemetry.Transport)
	driver := template.New(template.Options{
		Fetcher: oci.New(oci.Options{AllowFiles: true}),
		Resolver: observe.Resolver(scope.NewResolver(map[string]scope.Connect{core.LocalCluster: func(context.Context) (*kubernetes.Cluster, error) {
			return kubernetes.New(core.LocalCluster, traced, kubernetes.Options{})
		}}), m),
		Now: time.Now, NewGUID: uuid.NewString,
	})
	types := manifest.NewRegistry(manifest.Builtin()...)
	engine := recipe.NewEngine(recipe.Options{
		Drivers: map[string]recipe.Driver{"bicep": observe.Driver("bicep", driver, m)}, Canonical: types.Canonical,
		Load: func(ctx context.Context, id core.ID) (core.Resource, error) {
			r, _, err := kept.Get(ctx, id)
			return r, err
		},
	})
	s, err := server.New(ctx, server.Options{Store: kept, Feed: broker, Sealer: sealer, Recipes: engine, Types: types, Metrics: m, Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(telemetry.Handler(m, s))
	var work sync.WaitGroup
	work.Go(func() { s.Work(ctx) })
	t.Cleanup(func() {
		s.Stop()
		web.CloseClientConnections()
		web.Close()
		cancel()
		work.Wait()
		_ = db.Close()
	})
	return web.URL
}

// One trace leads from a pass of the controller over a Recipe through the
// request, the store, the queue and the worker to the recipe and the object
// that it makes in the cluster. Nothing of it, and no metric, holds the secret
// that travels the same way.
func TestTrace_K43(t *testing.T) {
	c := clustertest.Start(t)
	if _, err := setup.Install(t.Context(), c.Config, installation.Files); err != nil {
		t.Fatal(err)
	}
	spans := &recorder{more: make(chan struct{}, 1)}
	provider, err := telemetry.NewProvider(t.Context(), "test", sdk.WithSyncer(spans))
	if err != nil {
		t.Fatal(err)
	}
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(provider)
	t.Cleanup(func() { otel.SetTracerProvider(before) })

	metrics := telemetry.NewMetrics()
	url := plane(t, c.Config, metrics)
	api := client.New(url, client.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ns := c.Namespace(t, "trace")
	file := filepath.Join(t.TempDir(), "recipe.json")
	if err := os.WriteFile(file, []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}
	const version = "2023-10-01-preview"
	group := core.GroupID("default")
	environment := group.Resource("Applications.Core/environments", "default")
	if _, err := api.Put(ctx, group, version, rawJSON(`{}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Put(ctx, environment, version, rawJSON(fmt.Sprintf(`{"properties":{"compute":{"kind":"kubernetes","namespace":%q},"allowedNamespaces":["*"],
		"recipes":{"Applications.Datastores/redisCaches":{"default":{"templateKind":"bicep","templatePath":%q}}}}}`, ns, "file://"+file))); err != nil {
		t.Fatal(err)
	}

	s := runtime.NewScheme()
	_ = scheme.AddToScheme(s)
	_ = radapp.AddToScheme(s)
	mgr, err := ctrl.NewManager(c.Config, manager.Options{
		Scheme: s, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}},
		Client:  kube.Options{Cache: &kube.CacheOptions{DisableFor: []kube.Object{&corev1.Secret{}}}},
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	waker := paired.NewWaker(api, slog.New(slog.DiscardHandler))
	if err := mgr.Add(waker); err != nil {
		t.Fatal(err)
	}
	if err := provision.Setup(mgr, provision.Options{Server: api, Waker: waker}); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	}()

	admin, err := kube.NewWithWatch(c.Config, kube.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Create(ctx, &radapp.Recipe{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cache"},
		Spec:       radapp.RecipeSpec{Type: "Applications.Datastores/redisCaches", SecretName: "cache"},
	}); err != nil {
		t.Fatal(err)
	}
	ready(ctx, t, admin, ns)

	// All of one trace: from the controller's pass to the Kubernetes API.
	var operation sdk.ReadOnlySpan
	for operation == nil {
		for _, s := range spans.all() {
			if s.Name() == "operation PUT" {
				operation = s
			}
		}
		if operation == nil {
			select {
			case <-spans.more:
			case <-ctx.Done():
				t.Fatal("K-43: the worker's step was not traced")
			}
		}
	}
	trace := operation.SpanContext().TraceID()
	byID := map[string]sdk.ReadOnlySpan{}
	named := map[string]sdk.ReadOnlySpan{}
	for _, s := range spans.all() {
		byID[s.SpanContext().SpanID().String()] = s
		if s.SpanContext().TraceID() == trace {
			named[s.Name()] = s
		}
	}
	// path is the way from a step up to the first, by name.
	path := func(s sdk.ReadOnlySpan) (out []string) {
		for s != nil {
			out = append(out, s.Name())
			s = byID[s.Parent().SpanID().String()]
		}
		slices.Reverse(out)
		return out
	}
	apply := named["target apply"]
	if apply == nil {
		t.Fatalf("K-43: no step on the target is in the operation's trace, only %v", names(named))
	}
	way := strings.Join(path(apply), " → ")
	want := "reconcile Recipe → PUT → PUT planes/{planeType}/{plane}/resourcegroups/{group}/providers/{rest...} → operation PUT → recipe execute → target apply"
	if way != want {
		t.Errorf("K-43: the way is\n%s\nwant\n%s", way, want)
	}
	for _, name := range []string{"store Accept", "store SaveOutputs", "store End", "target preview", "PATCH"} {
		if named[name] == nil {
			t.Errorf("K-43: the trace has no step %q, only %v", name, names(named))
		}
	}

	for _, s := range spans.all() {
		text := fmt.Sprint(s.Name(), s.Attributes(), s.Events(), s.Status())
		if strings.Contains(text, needle) {
			t.Errorf("D-24: a step of a trace holds a secret: %s", text)
		}
		for _, a := range s.Attributes() {
			if len(a.Value.String()) > 512 {
				t.Errorf("%s: the attribute %s has no bound", s.Name(), a.Key)
			}
		}
	}
	families, err := metrics.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range families {
		seen[f.GetName()] = true
		if text := f.String(); strings.Contains(text, needle) || strings.Contains(text, ns) {
			t.Errorf("D-24: a metric holds what only a resource may: %s", text)
		}
	}
	for _, name := range []string{
		"radial_http_requests_total", "radial_operations_accepted_total", "radial_operations_ended_total", "radial_operation_wait_seconds",
		"radial_recipe_duration_seconds", "radial_target_call_duration_seconds", "radial_store_call_duration_seconds",
		"radial_store_commit_writes", "radial_sealed_values_total", "radial_operations_live",
	} {
		if !seen[name] {
			t.Errorf("%s was not counted", name)
		}
	}
	if n := value(t, metrics.Gatherer(), "radial_change_stream_clients"); n != 1 {
		t.Errorf("%v clients follow the change stream, want the one controller", n)
	}
	if n := value(t, metrics.Gatherer(), "radial_operations_ended_total"); n != 1 {
		t.Errorf("%v operations ended, want 1", n)
	}
}

func names(spans map[string]sdk.ReadOnlySpan) (out []string) {
	for n := range spans {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// value is the sum of a family's counters or gauges.
func value(t *testing.T, g prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func ready(ctx context.Context, t *testing.T, admin kube.WithWatch, ns string) {
	t.Helper()
	w, err := admin.Watch(ctx, &radapp.RecipeList{}, kube.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var last []metav1.Condition
	for e := range w.ResultChan() {
		r, ok := e.Object.(*radapp.Recipe)
		if !ok || e.Type == watch.Deleted {
			continue
		}
		last = r.Status.Conditions
		for _, c := range last {
			if c.Type == radapp.ConditionReady && c.Status == metav1.ConditionTrue {
				return
			}
		}
	}
	t.Fatalf("the Recipe is not Ready: %+v", last)
}

func rawJSON(s string) json.RawMessage { return json.RawMessage(s) }
