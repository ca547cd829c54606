package adopt

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	kubeconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/go-logr/logr"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
	"github.com/radial-project/radial/internal/provision"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/servertest"
)

// system is a cluster with Radial installed, a whole control plane, and the
// real controllers, which act under their own ServiceAccount's grants. Each
// test has a control plane and a namespace of its own.
type system struct {
	*world
	ns      string
	server  *servertest.Plane
	api     *client.Client
	recipes *cloud
	// writes are the controller's to the API server, calls those to the
	// control plane.
	writes recorder
	calls  recorder
	// now is the controller's clock.
	now  func() time.Time
	stop func()
}

// cloud is what the recipes of a test reach: it answers values, and a gate
// makes a recipe take as long as the test says.
type cloud struct {
	mu       sync.Mutex
	password string
	gates    map[string]chan struct{}
}

// shut makes the next runs for the resource wait until open is called.
func (c *cloud) shut(name string) (open func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gate := make(chan struct{})
	c.gates[name] = gate
	return sync.OnceFunc(func() { close(gate) })
}

func (c *cloud) rotate(password string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.password = password
}

func (c *cloud) Execute(ctx context.Context, r recipe.Request) (recipe.Result, error) {
	name := r.Resource.ID.Name()
	c.mu.Lock()
	gate := c.gates[name]
	c.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return recipe.Result{}, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return recipe.Result{
		Values:  map[string]any{"host": name + ".example.com", "port": 6379, "tls": true},
		Secrets: map[string]any{"url": "redis://:" + c.password + "@" + name + ".example.com:6379", "password": c.password},
	}, nil
}

// recorder keeps what a transport sent, reads left out.
type recorder struct {
	mu   sync.Mutex
	all  int
	sent []string
}

func (r *recorder) through(next http.RoundTripper, counts func(*http.Request) bool) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if counts(req) {
			var body []byte
			if req.Body != nil {
				body, _ = io.ReadAll(req.Body)
				req.Body = io.NopCloser(bytes.NewReader(body))
			}
			r.mu.Lock()
			r.all++
			if req.Method != http.MethodGet {
				r.sent = append(r.sent, req.Method+" "+req.URL.Path+" "+string(body))
			}
			r.mu.Unlock()
		}
		return next.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// matching returns the writes whose text holds all of the parts.
func (r *recorder) matching(parts ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
next:
	for _, s := range r.sent {
		for _, p := range parts {
			if !strings.Contains(s, p) {
				continue next
			}
		}
		found = append(found, s)
	}
	return found
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent, r.all = nil, 0
}

func (r *recorder) total() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

func start(t *testing.T) *system {
	t.Helper()
	s := prepare(t)
	s.control(t)
	return s
}

// prepare is start without the controllers.
func prepare(t *testing.T) *system {
	t.Helper()
	w := cluster(t)
	s := &system{world: w, ns: w.Namespace(t, "adopt"), server: servertest.Start(t), recipes: &cloud{password: "first", gates: map[string]chan struct{}{}}}
	s.server.Recipes.OnExecute(s.recipes.Execute)
	s.api = client.New(s.server.URL, client.Options{})
	s.now = time.Now
	return s
}

// environment makes an environment in group default that some namespaces may
// use.
func (s *system) environment(t *testing.T, name string, namespaces ...string) {
	t.Helper()
	s.server.Put(servertest.EnvironmentID(name), servertest.APIVersion, fmt.Sprintf(
		`{"location":"global","properties":{"compute":{"kind":"kubernetes","namespace":"default"},"allowedNamespaces":%s}}`, marshal(namespaces)))
}

// control starts both controllers, as cmd/radial-controller does, restricted to
// the test's namespace. A second call restarts them.
func (s *system) control(t *testing.T) {
	t.Helper()
	if s.stop != nil {
		s.stop()
	}
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: controllerUser, Groups: []string{
		"system:serviceaccounts", "system:serviceaccounts:" + installation.Namespace, "system:authenticated"}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return s.writes.through(next, func(r *http.Request) bool {
			return r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events")
		})
	})
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme: testScheme(), Logger: logr.FromSlogHandler(log.Handler()),
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{s.ns: {}}, ByObject: map[kube.Object]cache.ByObject{&appsv1.Deployment{}: {Transform: Trim}}},
		Client: kube.Options{Cache: &kube.CacheOptions{DisableFor: []kube.Object{
			&corev1.Secret{}, &corev1.ConfigMap{}, &appsv1.ReplicaSet{}}}},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(5 * time.Second),
		Controller:              kubeconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	api := client.New(s.server.URL, client.Options{Transport: s.calls.through(http.DefaultTransport, func(r *http.Request) bool {
		return !strings.Contains(r.URL.Path, "/watch/changes")
	})})
	waker := paired.NewWaker(api, log)
	if err := mgr.Add(waker); err != nil {
		t.Fatal(err)
	}
	if err := provision.Setup(mgr, provision.Options{Cluster: core.LocalCluster, Server: api, Waker: waker, Log: log}); err != nil {
		t.Fatal(err)
	}
	deployments := &Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), API: api, Waker: waker,
		Runner: &paired.Runner{API: api, Gone: provision.OwnerGone(mgr.GetAPIReader(), core.LocalCluster)},
		Events: mgr.GetEventRecorder(FieldManager), Log: log, Cluster: core.LocalCluster, Namespace: installation.Namespace,
		Now: s.now,
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := deployments.Setup(ctx, mgr); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("the controllers ended: %v", err)
		}
	}()
	s.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(s.stop)
}

// deployment is one in the test's namespace.
func (s *system) deployment(changes ...change) *appsv1.Deployment {
	d := inNamespace(s.ns, deployment(changes...))
	d.Spec.Replicas = ptr.To[int32](1)
	return d
}

func (s *system) create(t *testing.T, objects ...kube.Object) {
	t.Helper()
	for _, o := range objects {
		if err := s.user.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// recipe is a Redis.
func (s *system) recipe(name string) *radapp.Recipe {
	return &radapp.Recipe{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}, Spec: radapp.RecipeSpec{Type: "Applications.Datastores/redisCaches"}}
}

// update changes an object as its user does, again where another write came
// between.
func (s *system) update(t *testing.T, d *appsv1.Deployment, changes ...change) *appsv1.Deployment {
	t.Helper()
	for {
		if err := s.user.Get(t.Context(), kube.ObjectKeyFromObject(d), d); err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			c(d)
		}
		err := s.user.Update(t.Context(), d)
		if err == nil {
			return d
		}
		if !strings.Contains(err.Error(), "please apply your changes") {
			t.Fatal(err)
		}
	}
}

// settled is a Deployment whose status speaks of it as it is.
func settled(d *appsv1.Deployment) bool { return ParseStatus(d).ObservedHash == ObservedHash(d) }

// awaitReady waits until the controller says Ready of the object as it is.
func (s *system) awaitReady(t *testing.T, d *appsv1.Deployment) *appsv1.Deployment {
	t.Helper()
	return s.awaitDeployment(t, d, "Ready", func(d *appsv1.Deployment) bool {
		return settled(d) && ParseStatus(d).ready().Status == metav1.ConditionTrue && PauseOf(d) != Held
	})
}

// awaitReason waits until Ready is false for a reason.
func (s *system) awaitReason(t *testing.T, d *appsv1.Deployment, reason string) *appsv1.Deployment {
	t.Helper()
	return s.awaitDeployment(t, d, "reason "+reason, func(d *appsv1.Deployment) bool {
		return settled(d) && ParseStatus(d).ready().Reason == reason
	})
}

// awaitRolledOut waits until the Deployment controller has seen the object and
// its pods are there.
func (s *system) awaitRolledOut(t *testing.T, d *appsv1.Deployment) *appsv1.Deployment {
	t.Helper()
	return s.awaitDeployment(t, d, "rolled out", func(d *appsv1.Deployment) bool {
		return !d.Spec.Paused && d.Status.ObservedGeneration == d.Generation &&
			d.Status.UpdatedReplicas == *d.Spec.Replicas && d.Status.AvailableReplicas == *d.Spec.Replicas && d.Status.Replicas == *d.Spec.Replicas
	})
}

// groupOf is the resource group of the test's namespace.
func (s *system) group() core.ID {
	return core.GroupID(core.ImplicitGroup(core.LocalCluster, "default", s.ns))
}

func (s *system) container(t *testing.T, name string) *arm.Resource {
	t.Helper()
	r, _, err := s.api.Get(t.Context(), containerID(s.group(), name), containerVersion)
	if err != nil {
		t.Fatalf("container %s: %v", name, err)
	}
	return r
}

// awaitNoResource waits, along the change stream, until there is no such
// resource.
func (s *system) awaitNoResource(t *testing.T, id core.ID, apiVersion string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	gone := false
	_ = s.api.Watch(ctx, func(ch arm.Change) {
		if _, _, err := s.api.Get(ctx, id, apiVersion); core.IsCode(err, core.CodeNotFound) {
			gone = true
			cancel()
		}
	}, client.WatchOptions{})
	if !gone {
		t.Fatalf("%s is still there after %s", id, limit)
	}
}

// countReplicaSets counts every ReplicaSet of the namespace that ever was, from
// now until the returned function is called.
func (s *system) countReplicaSets(t *testing.T) (count func() int) {
	t.Helper()
	var list appsv1.ReplicaSetList
	w, err := s.user.Watch(t.Context(), &list, kube.InNamespace(s.ns))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	go func() {
		for e := range w.ResultChan() {
			if rs, ok := e.Object.(*appsv1.ReplicaSet); ok && e.Type != watch.Error {
				mu.Lock()
				seen[string(rs.UID)] = true
				mu.Unlock()
			}
		}
	}()
	t.Cleanup(w.Stop)
	return func() int {
		// What a list shows, the watch has shown or is about to.
		var now appsv1.ReplicaSetList
		if err := s.user.List(t.Context(), &now, kube.InNamespace(s.ns)); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range now.Items {
			seen[string(rs.UID)] = true
		}
		return len(seen)
	}
}

// env reads the variables of a container as a kubelet would: from the Secrets
// that it refers to.
func (s *system) env(t *testing.T, c corev1.Container) map[string]string {
	t.Helper()
	return s.envIn(t, s.ns, c)
}

func (s *system) envIn(t *testing.T, ns string, c corev1.Container) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			out[v.Name] = v.Value
			continue
		}
		ref := v.ValueFrom.SecretKeyRef
		var secret corev1.Secret
		if err := s.user.Get(t.Context(), kube.ObjectKey{Namespace: ns, Name: ref.Name}, &secret); err != nil {
			t.Fatalf("variable %s: %v", v.Name, err)
		}
		value, ok := secret.Data[ref.Key]
		if !ok {
			t.Fatalf("variable %s: Secret %s has no key %s", v.Name, ref.Name, ref.Key)
		}
		out[v.Name] = string(value)
	}
	return out
}

// wantEnv is what connection redis to Recipe db carries.
func wantEnv(password string) map[string]string {
	return map[string]string{
		"CONNECTION_REDIS_HOST": "db.example.com", "CONNECTION_REDIS_PORT": "6379", "CONNECTION_REDIS_TLS": "true",
		"CONNECTION_REDIS_URL": "redis://:" + password + "@db.example.com:6379", "CONNECTION_REDIS_PASSWORD": password,
	}
}

// events about a Deployment, as "reason: note".
func (s *system) events(t *testing.T, name string) []string {
	t.Helper()
	var list eventsv1.EventList
	c, err := kube.New(s.Config, kube.Options{Scheme: eventScheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.List(t.Context(), &list, kube.InNamespace(s.ns)); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		if e.Regarding.Kind == Kind && e.Regarding.Name == name && e.ReportingController == FieldManager {
			out = append(out, fmt.Sprintf("%s: %s", e.Reason, e.Note))
		}
	}
	return out
}

func withReason(events []string, reason string) int {
	n := 0
	for _, e := range events {
		if strings.HasPrefix(e, reason+": ") {
			n++
		}
	}
	return n
}

// rotate makes the Recipe's next run answer another password, and runs it.
func (s *system) rotate(t *testing.T, r *radapp.Recipe, password string) {
	t.Helper()
	s.recipes.rotate(password)
	raw := fmt.Appendf(nil, `{"spec":{"parameters":{"size":%q}}}`, password)
	if err := s.user.Patch(t.Context(), r, kube.RawPatch(types.MergePatchType, raw)); err != nil {
		t.Fatal(err)
	}
}

type condition = metav1.Condition

// awaitRecipe waits until a Recipe is Ready as it stands.
func (s *system) awaitRecipe(t *testing.T, r *radapp.Recipe) {
	t.Helper()
	generation := r.Generation
	await(t, s.user, &radapp.RecipeList{}, kube.ObjectKeyFromObject(r), "Recipe Ready", func(r *radapp.Recipe) bool {
		return r.Generation >= generation && recipeReady(r)
	})
}
