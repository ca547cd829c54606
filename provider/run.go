package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/apitime"
)

// Options are what [Run] runs with.
type Options struct {
	Cloud    Cloud
	Settings Settings
	// Config reaches the API server as the provider's ServiceAccount.
	Config *rest.Config
	// HealthListen and MetricsListen are addresses; empty or "0" is none.
	HealthListen, MetricsListen string
	// Log is silent unless set.
	Log *slog.Logger
	// Now is this machine's clock: time.Now unless set. Where the API server's
	// stands otherwise, that one counts.
	Now func() time.Time
	// Recheck is how often what is answered is looked at again (C-151); 10
	// minutes unless set. SyncInterval is the same for synced secrets: 30
	// seconds, since C-70 allows a minute. Each is spread by up to a tenth less.
	Recheck, SyncInterval time.Duration
	// RetryMin and RetryMax bound the back-off of what waits or failed: 1
	// second and 5 minutes unless set.
	RetryMin, RetryMax time.Duration
	// CallTimeout bounds each cloud call: 1 minute unless set.
	CallTimeout time.Duration
	// Concurrency is how many requests are worked on at once: 16 unless set.
	Concurrency int
}

// complete sets what was not, and refuses what cannot run.
func (o *Options) complete() error {
	for _, d := range []struct {
		at *time.Duration
		to time.Duration
	}{{&o.Recheck, 10 * time.Minute}, {&o.SyncInterval, 30 * time.Second}, {&o.RetryMin, time.Second}, {&o.RetryMax, 5 * time.Minute}, {&o.CallTimeout, time.Minute}} {
		if *d.at <= 0 {
			*d.at = d.to
		}
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 16
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.HealthListen == "" {
		o.HealthListen = "0"
	}
	if o.MetricsListen == "" {
		o.MetricsListen = "0"
	}
	s := o.Settings
	switch {
	case o.Cloud == nil || o.Config == nil:
		return errors.New("a provider needs a cloud and a way to the API server")
	case s.Provider == "" || s.Account == "" || s.Location == "" || s.RotationGrace <= 0:
		return errors.New("a provider needs a name, an account, a location and a rotation grace; LoadSettings reads them")
	case !installationID.MatchString(s.Installation):
		return fmt.Errorf("a provider needs the id of its installation (%s)", EnvInstallation)
	}
	_, identities := o.Cloud.(Identities)
	for _, kind := range []string{v1alpha1.KindSecretAccess, v1alpha1.KindBucketCredential, v1alpha1.KindWrappingKey} {
		if Implements(o.Cloud, kind) && !identities {
			return fmt.Errorf("%s implements %s without Identities, by which the identities of its requests are checked", o.Cloud.Version(), kind)
		}
	}
	if Implements(o.Cloud, v1alpha1.KindBucketCredential) && !Implements(o.Cloud, v1alpha1.KindBucket) {
		return fmt.Errorf("%s implements %s without Buckets, by which the buckets of its requests are checked", o.Cloud.Version(), v1alpha1.KindBucketCredential)
	}
	return nil
}

// server is a running provider. What it keeps in memory it can do without.
type server struct {
	Options
	// live reads from and writes to the API server, never a cache.
	live    client.Client
	writer  *secretWriter
	metrics *metrics
	// retry spaces out what waits or failed, stale what changed meanwhile.
	retry, stale workqueue.TypedRateLimiter[types.NamespacedName]
	// pending are credentials that were issued and not yet reported; synced is
	// when a Secret was last brought in step.
	pending table[*pending]
	synced  table[time.Time]
}

// Run serves until ctx ends; then it finishes the credential that it is at,
// leaves the rest to the next process, and answers nil.
func Run(ctx context.Context, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	log := logr.FromSlogHandler(o.Log.Handler())
	config := rest.CopyConfig(o.Config)
	if config.QPS == 0 {
		// Concurrency bounds what is asked of the API server, and its own
		// fairness shares it out.
		config.QPS = -1
	}
	// Graces are counted by the API server's clock: the next process may run on
	// a node whose own is another (C-124).
	clock := apitime.New(o.Now)
	config.Wrap(clock.Wrap)
	o.Now = clock.Now
	config.UserAgent = strings.ReplaceAll(o.Cloud.Version(), " ", "/")
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	// The API server is not asked what it serves: there is one kind.
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion})
	mapper.Add(v1alpha1.GroupVersion.WithKind(v1alpha1.CloudResourceKind), meta.RESTScopeNamespace)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Logger: log, HealthProbeBindAddress: o.HealthListen, Metrics: metricsserver.Options{BindAddress: o.MetricsListen},
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		GracefulShutdownTimeout: new(finish + 5*time.Second),
	})
	if err != nil {
		return err
	}
	s := &server{Options: o, metrics: processMetrics(),
		retry: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](o.RetryMin, o.RetryMax),
		stale: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](afterStale, o.RetryMax)}
	if s.live, err = client.New(config, client.Options{HTTPClient: h, Scheme: scheme, Mapper: mapper}); err != nil {
		return err
	}
	if s.writer, err = newSecretWriter(config, h); err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("cloudresources").
		For(&v1alpha1.CloudResource{}, builder.WithPredicates(s.wakes())).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.Concurrency, SkipNameValidation: new(true)}).
		Complete(s)
	if err != nil {
		return err
	}
	var ready atomic.Bool
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if _, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.CloudResource{}); err != nil {
			return fmt.Errorf("read the requests: %w", err)
		}
		if ready.Store(mgr.GetCache().WaitForCacheSync(ctx)); ready.Load() {
			o.Log.Info("serving", "provider", o.Settings.Provider, "version", o.Cloud.Version(), "account", o.Settings.Account, "location", o.Settings.Location)
		}
		return nil
	})); err != nil {
		return err
	}
	if err := errors.Join(
		mgr.AddHealthzCheck("running", func(*http.Request) error { return nil }),
		mgr.AddReadyzCheck("requests", func(*http.Request) error {
			if !ready.Load() {
				return errors.New("the requests are not read yet")
			}
			return nil
		})); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// wakes says which events are worth a look: all but those of the status, which
// this process writes. Whether there is anything to do is never decided here,
// but from the object that the API server holds (C-93, C-94).
func (s *server) wakes() predicate.Predicate {
	ours := func(o client.Object) bool {
		r, ok := o.(*v1alpha1.CloudResource)
		return ok && r.Spec.Provider == s.Settings.Provider
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return ours(e.Object) },
		GenericFunc: func(e event.GenericEvent) bool { return ours(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool {
			s.forget(client.ObjectKeyFromObject(e.Object), e.Object.GetUID())
			return false
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*v1alpha1.CloudResource)
			after, ok2 := e.ObjectNew.(*v1alpha1.CloudResource)
			if !ok || !ok2 || !ours(after) {
				return false
			}
			statusOnly := before.Generation == after.Generation && before.ResourceVersion != after.ResourceVersion &&
				after.Status.ObservedGeneration == after.Generation &&
				after.DeletionTimestamp.Equal(before.DeletionTimestamp) &&
				maps.Equal(before.Labels, after.Labels) && maps.Equal(before.Annotations, after.Annotations) &&
				reflect.DeepEqual(before.OwnerReferences, after.OwnerReferences)
			return !statusOnly
		},
	}
}

// forget drops what is remembered of a request that is not served any more.
func (s *server) forget(key types.NamespacedName, uid types.UID) {
	s.retry.Forget(key)
	s.stale.Forget(key)
	s.synced.drop(uid)
	s.pending.dropIf(func(id types.UID, p *pending) bool { return id == uid || p.request == key })
}

// table is a map for many goroutines.
type table[V any] struct {
	mu sync.Mutex
	m  map[types.UID]V
}

func (t *table[V]) get(id types.UID) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.m[id]
}

func (t *table[V]) set(id types.UID, v V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m == nil {
		t.m = map[types.UID]V{}
	}
	t.m[id] = v
}

func (t *table[V]) drop(id types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.m, id)
}

func (t *table[V]) dropIf(f func(types.UID, V) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.m, f)
}
