package provision

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/paired"
	"github.com/radial-project/radial/internal/servertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// limit bounds every wait; none is expected to come near it.
const limit = 30 * time.Second

var install struct {
	once  sync.Once
	err   error
	token string
}

func testScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	_ = scheme.AddToScheme(s)
	_ = radapp.AddToScheme(s)
	return s
}

// bundle is a namespace and a control plane of the test's own, and the
// controller between them under its own ServiceAccount with the shipped grants.
type bundle struct {
	t     *testing.T
	ns    string
	admin kube.WithWatch
	cfg   *rest.Config // the controller's
	plane *servertest.Plane
	// writes counts what the controller asks of the API server beyond reading.
	writes *atomic.Int64
	// dead, while true, keeps the controller's writes from the API server, as if
	// it had been killed before them.
	dead func(*http.Request) bool
}

func setupCluster(t *testing.T) *bundle {
	t.Helper()
	t.Parallel()
	c := clustertest.Start(t)
	install.once.Do(func() {
		if _, install.err = setup.Install(context.Background(), c.Config, installation.Files); install.err != nil {
			return
		}
		clients, err := kubernetes.NewForConfig(c.Config)
		if err != nil {
			install.err = err
			return
		}
		tr, err := clients.CoreV1().ServiceAccounts(installation.Namespace).CreateToken(context.Background(), installation.ControllerAccount,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(3600))}}, metav1.CreateOptions{})
		install.err = err
		if err == nil {
			install.token = tr.Status.Token
		}
	})
	if install.err != nil {
		t.Fatalf("install: %v", install.err)
	}
	admin, err := kube.NewWithWatch(c.Config, kube.Options{Scheme: testScheme()})
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{t: t, ns: c.Namespace(t, "provision"), admin: admin, plane: servertest.Start(t), writes: &atomic.Int64{}}
	cfg := rest.AnonymousClientConfig(c.Config)
	cfg.BearerToken = install.token
	cfg.QPS = -1
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return observed{rt, b} })
	b.cfg = cfg
	return b
}

// observed counts requests that change something, or cuts them off.
type observed struct {
	http.RoundTripper
	b *bundle
}

func (o observed) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		o.b.writes.Add(1)
		if o.b.dead != nil && o.b.dead(r) {
			return nil, errors.New("killed")
		}
	}
	return o.RoundTripper.RoundTrip(r)
}

// start runs the controller until the returned function or the test ends it.
func (b *bundle) start() (stop func()) {
	b.t.Helper()
	level := slog.LevelError + 1
	if testing.Verbose() && os.Getenv("RADIAL_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(b.t.Output(), &slog.HandlerOptions{Level: level}))
	mgr, err := ctrl.NewManager(b.cfg, manager.Options{
		Scheme:     testScheme(),
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{b.ns: {}}},
		Client:     kube.Options{Cache: &kube.CacheOptions{DisableFor: []kube.Object{&corev1.Secret{}}}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	server := client.New(b.plane.URL, client.Options{})
	waker := paired.NewWaker(server, log)
	if err := mgr.Add(waker); err != nil {
		b.t.Fatal(err)
	}
	if err := Setup(mgr, Options{Server: server, Waker: waker, Log: log, FirstRetry: 20 * time.Millisecond, MaxRetry: time.Second}); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("the manager ended with %v", err)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

// direct is the controller without a manager: each Reconcile is called by the
// test, and nothing is cached.
func (b *bundle) direct(change ...func(*Options)) *reconciler {
	b.t.Helper()
	c, err := kube.New(b.cfg, kube.Options{Scheme: testScheme()})
	if err != nil {
		b.t.Fatal(err)
	}
	server := client.New(b.plane.URL, client.Options{})
	o := Options{Cluster: "local", Server: server, Waker: paired.NewWaker(server, slog.New(slog.DiscardHandler)),
		Log: slog.New(slog.DiscardHandler), Now: time.Now, FirstRetry: time.Second, MaxRetry: time.Minute}
	for _, f := range change {
		f(&o)
	}
	r := &reconciler{Options: o, cache: c, live: c, events: events.NewFakeRecorder(100)}
	r.runner = paired.Runner{API: o.Server, Gone: OwnerGone(c, o.Cluster), Now: o.Now}
	return r
}

func (b *bundle) reconcile(r *reconciler, name string) (reconcile.Result, error) {
	return r.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: b.ns, Name: name}})
}

func (b *bundle) recipe(name string, spec radapp.RecipeSpec) *radapp.Recipe {
	b.t.Helper()
	if spec.Type == "" {
		spec.Type = "Applications.Datastores/redisCaches"
	}
	r := &radapp.Recipe{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.ns}, Spec: spec}
	if err := b.admin.Create(b.t.Context(), r); err != nil {
		b.t.Fatalf("create Recipe %s: %v", name, err)
	}
	return r
}

func (b *bundle) edit(name string, change func(*radapp.Recipe)) {
	b.t.Helper()
	for {
		r := b.get(name)
		change(r)
		err := b.admin.Update(b.t.Context(), r)
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			b.t.Fatal(err)
		}
		return
	}
}

func (b *bundle) get(name string) *radapp.Recipe {
	b.t.Helper()
	r := &radapp.Recipe{}
	if err := b.admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.ns, Name: name}, r); err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bundle) delete(name string) {
	b.t.Helper()
	if err := b.admin.Delete(b.t.Context(), &radapp.Recipe{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.ns}}); err != nil {
		b.t.Fatal(err)
	}
}

// await watches a Recipe until it is as asked.
func (b *bundle) await(name, what string, as func(*radapp.Recipe) bool) *radapp.Recipe {
	b.t.Helper()
	var last *radapp.Recipe
	ok := b.watch(&radapp.RecipeList{}, name, func(e watch.Event) bool {
		r, isRecipe := e.Object.(*radapp.Recipe)
		if !isRecipe || e.Type == watch.Deleted {
			return false
		}
		last = r
		return as(r)
	})
	if !ok {
		b.t.Fatalf("Recipe %s did not become %s; its status: %+v", name, what, last.Status)
	}
	return last
}

// watch follows one object of a list's kind until f is true or limit is over.
func (b *bundle) watch(list kube.ObjectList, name string, f func(watch.Event) bool) bool {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	w, err := b.admin.Watch(ctx, list, kube.InNamespace(b.ns), kube.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)})
	if err != nil {
		b.t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if f(e) {
			return true
		}
	}
	return false
}

func (b *bundle) awaitReady(name string) *radapp.Recipe {
	b.t.Helper()
	return b.await(name, "Ready", isReady)
}

func isReady(r *radapp.Recipe) bool {
	c := condition(r, radapp.ConditionReady)
	return c != nil && c.Status == metav1.ConditionTrue && r.Status.ObservedGeneration == r.Generation
}

func (b *bundle) awaitReason(name, reason string) *radapp.Recipe {
	b.t.Helper()
	return b.await(name, reason, func(r *radapp.Recipe) bool {
		c := condition(r, radapp.ConditionReady)
		return c != nil && c.Reason == reason && r.Status.ObservedGeneration == r.Generation
	})
}

func (b *bundle) awaitGone(name string) {
	b.t.Helper()
	r := &radapp.Recipe{}
	gone := func() bool {
		err := b.admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.ns, Name: name}, r)
		return apierrors.IsNotFound(err)
	}
	// A watch that starts after the end would see nothing.
	done := make(chan bool, 1)
	go func() {
		done <- b.watch(&radapp.RecipeList{}, name, func(e watch.Event) bool { return e.Type == watch.Deleted })
	}()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case ok := <-done:
			if !ok && !gone() {
				b.t.Fatalf("Recipe %s is not gone; its status: %+v, finalizers %v", name, r.Status, r.Finalizers)
			}
			return
		case <-tick.C:
			if gone() {
				return
			}
		}
	}
}

func (b *bundle) secret(name string) *corev1.Secret {
	b.t.Helper()
	s := &corev1.Secret{}
	err := b.admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.ns, Name: name}, s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// events returns the notes about a Recipe by reason, waiting until one with the
// reason has come.
func (b *bundle) events(name, reason string) []eventsv1.Event {
	b.t.Helper()
	about := func(e *eventsv1.Event) bool {
		return e.Regarding.Name == name && e.Regarding.Kind == Kind && e.Reason == reason
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	w, err := b.admin.Watch(ctx, &eventsv1.EventList{}, kube.InNamespace(b.ns))
	if err != nil {
		b.t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if ev, ok := e.Object.(*eventsv1.Event); ok && about(ev) {
			break
		}
	}
	var list eventsv1.EventList
	if err := b.admin.List(b.t.Context(), &list, kube.InNamespace(b.ns)); err != nil {
		b.t.Fatal(err)
	}
	var found []eventsv1.Event
	for _, e := range list.Items {
		if about(&e) {
			found = append(found, e)
		}
	}
	return found
}

// resources lists what the control plane holds in the implicit group of the
// test's namespace.
func (b *bundle) resources() []string {
	b.t.Helper()
	all, err := client.New(b.plane.URL, client.Options{}).List(b.t.Context(), "/planes/radius/local/resources", servertest.APIVersion)
	if err != nil {
		b.t.Fatal(err)
	}
	var ids []string
	for _, r := range all {
		if !strings.Contains(strings.ToLower(r.ID), "/resourcegroups/default/") {
			ids = append(ids, r.ID)
		}
	}
	return ids
}
