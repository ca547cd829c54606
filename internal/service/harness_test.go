package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/internal/cloud"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/provider/scripted"
)

// runProvider makes the test binary be the scripted provider, so that the
// operator meets one in a process of its own, which can be killed.
const runProvider = "RADIAL_TEST_RUN_PROVIDER"

func TestMain(m *testing.M) {
	if os.Getenv(runProvider) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := scripted.Main(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	clustertest.Parallel(6)
	clustertest.Main(m)
}

// stage is one project with an operator under its own minted token.
type stage struct {
	t       *testing.T
	w       *ankkatest.World
	admin   client.WithWatch
	project string
	ns      string
	// others are namespaces that the operator sees too.
	others   []string
	settings cloud.Settings
	audit    *audit
	stop     func()

	account *scripted.Account
}

var stages atomic.Int64

// newStage makes a project whose installation has a provider of a name that no
// other test has; change alters the settings.
func newStage(t *testing.T, change func(*cloud.Settings)) *stage {
	t.Helper()
	t.Parallel()
	w := ankkatest.Start(t)
	s := &stage{t: t, w: w, admin: w.Admin, project: w.Project(t, "shop"), audit: &audit{}}
	s.ns = v1alpha1.Namespace(s.project)
	s.settings = cloud.Settings{
		Provider: fmt.Sprintf("scripted-%d", stages.Add(1)), Account: "acme-test", Location: "Nowhere-1", KMSKey: "keys/wrap",
		AcknowledgementBound: time.Minute, RotationGrace: 2 * time.Second, ObjectStorage: true, NamePrefix: "acme",
	}
	if change != nil {
		change(&s.settings)
	}
	return s
}

// operate starts the operator, which sees the project alone so that tests with
// other settings can run beside; stop ends it gracefully.
func (s *stage) operate() {
	s.t.Helper()
	config := s.w.As(s.t, ankkatest.Operator)
	config.Wrap(s.audit.wrap)
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		s.t.Fatal(err)
	}
	c := CacheOptions()
	c.DefaultNamespaces = map[string]cache.Config{s.ns: {}}
	for _, o := range s.others {
		c.DefaultNamespaces[o] = cache.Config{}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Cache: c, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := Setup(mgr, Options{Settings: s.settings}); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	var once sync.Once
	s.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				s.t.Errorf("the operator ended: %v", err)
			}
		})
	}
	s.t.Cleanup(s.stop)
	s.t.Cleanup(func() {
		for _, c := range s.audit.all() {
			if strings.Contains(c, "/secrets") {
				s.t.Errorf("the operator touched a Secret: %s", c)
			}
		}
	})
}

// provide serves a scripted account, and answers how to start and stop a
// process that works on it, under the provider's own minted token.
func (s *stage) provide() (start func() (stop func())) {
	s.t.Helper()
	var err error
	if s.account, err = scripted.NewAccount(""); err != nil {
		s.t.Fatal(err)
	}
	srv := httptest.NewServer(s.account)
	s.t.Cleanup(srv.Close)
	kubeconfig := filepath.Join(s.t.TempDir(), "provider.kubeconfig")
	clustertest.WriteKubeconfig(s.t, kubeconfig, s.w.As(s.t, ankkatest.Provider))
	return func() func() {
		cmd := exec.Command(os.Args[0], "--kubeconfig", kubeconfig, "--account", srv.URL, "--health-listen", "0", "--metrics-listen", "0",
			"--recheck", "1s", "--sync-interval", "200ms", "--retry-min", "20ms", "--retry-max", "200ms")
		cmd.Env = append(os.Environ(), runProvider+"=1", "RADIAL_PROVIDER_INSTALLATION=under-test",
			cloud.EnvProvider+"="+s.settings.Provider, cloud.EnvAccount+"="+s.settings.Account, cloud.EnvLocation+"="+s.settings.Location,
			cloud.EnvKMSKey+"="+s.settings.KMSKey, cloud.EnvAcknowledgementBound+"="+s.settings.AcknowledgementBound.String(), cloud.EnvRotationGrace+"="+s.settings.RotationGrace.String())
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			s.t.Fatal(err)
		}
		var once sync.Once
		stop := func() {
			once.Do(func() {
				_ = cmd.Process.Signal(syscall.SIGTERM)
				if err := cmd.Wait(); err != nil {
					s.t.Errorf("the provider ended: %v\n%s", err, out.String())
				}
			})
		}
		s.t.Cleanup(stop)
		return stop
	}
}

// audit is what the operator sends to the API server.
type audit struct {
	mu    sync.Mutex
	calls []string
	// faulty makes every third write fail and every third lose its answer;
	// faults are how many did. Set before the operator starts.
	faulty bool
	writes int
	faults int
}

// fault says what is to become of a call.
func (a *audit) fault(method string) (refuse, lose bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.faulty || method == http.MethodGet {
		return false, false
	}
	a.writes++
	refuse, lose = a.writes%3 == 1, a.writes%3 == 2
	if refuse || lose {
		a.faults++
	}
	return refuse, lose
}

func (a *audit) wrap(next http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		a.mu.Lock()
		a.calls = append(a.calls, r.Method+" "+r.URL.Path)
		a.mu.Unlock()
		refuse, lose := a.fault(r.Method)
		if refuse {
			return nil, errors.New("connection refused")
		}
		res, err := next.RoundTrip(r)
		if lose && err == nil {
			_ = res.Body.Close()
			return nil, errors.New("connection reset by peer")
		}
		return res, err
	})
}

func (a *audit) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// describe applies a service as the control plane does.
func (s *stage) describe(name string, change func(*v1alpha1.AnkkaServiceSpec)) *v1alpha1.AnkkaService {
	s.t.Helper()
	spec := v1alpha1.AnkkaServiceSpec{ProjectID: s.project, ServiceName: name, Generation: 1, Image: "registry.example.com/reports:1"}
	if change != nil {
		change(&spec)
	}
	return s.apply(v1alpha1.AnkkaServiceKind, name, spec, &v1alpha1.AnkkaService{}).(*v1alpha1.AnkkaService)
}

func (s *stage) describeProject(change func(*v1alpha1.AnkkaProjectSpec)) *v1alpha1.AnkkaProject {
	s.t.Helper()
	spec := v1alpha1.AnkkaProjectSpec{ProjectID: s.project}
	if change != nil {
		change(&spec)
	}
	return s.apply(v1alpha1.AnkkaProjectKind, s.project, spec, &v1alpha1.AnkkaProject{}).(*v1alpha1.AnkkaProject)
}

func (s *stage) apply(kind, name string, spec any, into client.Object) client.Object {
	s.t.Helper()
	raw, err := json.Marshal(spec)
	if err != nil {
		s.t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": name, "namespace": s.ns}}}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		s.t.Fatal(err)
	}
	u.Object["spec"] = m
	if err := s.admin.Apply(s.t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.FieldManagerControlPlane), client.ForceOwnership); err != nil {
		s.t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		s.t.Fatal(err)
	}
	return into
}

func (s *stage) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.ns, Name: name}
}

// event finds the name of an event of a reason, once there is one.
func (s *stage) event(reason string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), ankkatest.Limit)
	defer cancel()
	w, err := s.admin.Watch(ctx, &eventsv1.EventList{}, client.InNamespace(s.ns))
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if got, ok := e.Object.(*eventsv1.Event); ok && got.Reason == reason {
			return got.Name
		}
	}
	s.t.Fatalf("no event %s", reason)
	return ""
}

// issued is how many credentials there ever were.
func (s *stage) issued() (n int) {
	for _, r := range s.account.Records() {
		if r.Event == "issued" {
			n++
		}
	}
	return n
}

// absent fails if there is such an object.
func (s *stage) absent(o client.Object, name string) {
	s.t.Helper()
	if err := s.admin.Get(s.t.Context(), s.key(name), o); !apierrors.IsNotFound(err) {
		s.t.Errorf("%T %s is there (%v)", o, name, err)
	}
}

func get[T client.Object](s *stage, name string, into T) T {
	s.t.Helper()
	if err := s.admin.Get(s.t.Context(), s.key(name), into); err != nil {
		s.t.Fatal(err)
	}
	return into
}

// until waits for an object to be as wanted, by a watch.
func until[T client.Object](s *stage, list client.ObjectList, name, what string, ok func(T) bool) T {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), ankkatest.Limit)
	defer cancel()
	var last client.Object
	for ctx.Err() == nil {
		if err := s.admin.List(ctx, list, client.InNamespace(s.ns)); err != nil {
			s.t.Fatal(err)
		}
		var found T
		done := false
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			if c := o.(client.Object); c.GetName() == name {
				last = c.DeepCopyObject().(client.Object)
				if ok(last.(T)) {
					found, done = last.(T), true
				}
			}
			return nil
		})
		if done {
			return found
		}
		w, err := s.admin.Watch(ctx, list.DeepCopyObject().(client.ObjectList), client.InNamespace(s.ns), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			c, is := e.Object.(T)
			if !is || c.GetName() != name || e.Type == watch.Deleted {
				continue
			}
			last = c
			if ok(c) {
				w.Stop()
				return c
			}
		}
		w.Stop()
	}
	raw, _ := json.MarshalIndent(last, "", " ")
	s.t.Fatalf("%s %s never: %s; it is\n%s", s.ns, name, what, raw)
	panic("unreachable")
}

// gone waits until there is no such object.
func (s *stage) gone(list client.ObjectList, name string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), ankkatest.Limit)
	defer cancel()
	if err := s.admin.List(ctx, list, client.InNamespace(s.ns)); err != nil {
		s.t.Fatal(err)
	}
	there := false
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		there = there || o.(client.Object).GetName() == name
		return nil
	})
	if !there {
		return
	}
	w, err := s.admin.Watch(ctx, list, client.InNamespace(s.ns), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if o, ok := e.Object.(client.Object); ok && o.GetName() == name && e.Type == watch.Deleted {
			return
		}
	}
	s.t.Errorf("%T: %s stays", list, name)
}

func (s *stage) service(name, what string, ok func(v1alpha1.AnkkaServiceStatus) bool) *v1alpha1.AnkkaService {
	s.t.Helper()
	return until(s, &v1alpha1.AnkkaServiceList{}, name, what, func(a *v1alpha1.AnkkaService) bool {
		return a.Status.ObservedGeneration == a.Generation && ok(a.Status)
	})
}

func (s *stage) ready(name string) *v1alpha1.AnkkaService {
	s.t.Helper()
	return s.service(name, "Ready", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Lifecycle == v1alpha1.LifecycleReady })
}

func (s *stage) asked(name string) *v1alpha1.CloudResource {
	s.t.Helper()
	return until(s, &v1alpha1.CloudResourceList{}, name, "asked", func(*v1alpha1.CloudResource) bool { return true })
}

func (s *stage) deployment(name, what string, ok func(*appsv1.Deployment) bool) *appsv1.Deployment {
	s.t.Helper()
	return until(s, &appsv1.DeploymentList{}, name, what, ok)
}

// answer plays the provider by hand, under its token.
func (s *stage) answer(name string, change func(*v1alpha1.CloudResourceStatus)) *v1alpha1.CloudResource {
	s.t.Helper()
	c := ankkatest.Connect(s.t, s.w.As(s.t, ankkatest.Provider))
	for {
		r := &v1alpha1.CloudResource{}
		if err := c.Get(s.t.Context(), s.key(name), r); err != nil {
			s.t.Fatal(err)
		}
		r.Status.ObservedGeneration, r.Status.Phase, r.Status.Account, r.Status.Location = r.Generation, v1alpha1.PhaseReady, s.settings.Account, s.settings.Location
		change(&r.Status)
		err := c.Status().Update(s.t.Context(), r)
		if err == nil {
			return r
		}
		if !apierrors.IsConflict(err) {
			s.t.Fatal(err)
		}
	}
}

// answerAll answers what a service with object storage asks, at once.
func (s *stage) answerAll(service string, generation int64) {
	s.t.Helper()
	s.asked(service + "-identity")
	s.answer(service+"-identity", func(st *v1alpha1.CloudResourceStatus) {
		st.Outputs = map[string]string{"identity": service + "@cloud", "serviceAccountAnnotations": "bind.example/to=" + service + "=yes"}
	})
	s.asked(service + "-bucket")
	s.answer(service+"-bucket", func(st *v1alpha1.CloudResourceStatus) {
		st.Outputs = map[string]string{"bucket": "acme-" + service, "endpoint": "https://s3.example", "region": "r1"}
	})
	s.asked(service + "-storage-credential")
	s.answer(service+"-storage-credential", func(st *v1alpha1.CloudResourceStatus) {
		st.CredentialGeneration = generation
		st.Outputs = map[string]string{"secretName": service + "-cloud-storage"}
	})
}

func storage(s *v1alpha1.AnkkaServiceSpec) { s.ProvisionObjectStorage = true }

func envOf(d *appsv1.Deployment) map[string]corev1.EnvVar {
	m := map[string]corev1.EnvVar{}
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		m[e.Name] = e
	}
	return m
}
