package front

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/audit"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/auth/aggregation"
	"github.com/radial-project/radial/internal/auth/serving"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/store"
)

// Store is what stands behind decisions.
type Store interface {
	auth.Store
	auth.Lister
	store.Audit
}

// Deps are what a Front stands on. Cluster may be nil; the rest is required.
type Deps struct {
	Store Store
	// Feed is the store's listener.
	Feed      *feed.Broker
	Canonical func(resourceType string) (string, bool)
	Cluster   *rest.Config
	Log       *slog.Logger
}

// Front stands before the control plane.
type Front struct {
	flags  *Flags
	deps   Deps
	certs  serving.Certificates
	trust  *auth.ClusterTrust
	log    *audit.Log
	file   *audit.File
	assign *auth.Assignments
	authn  *auth.Authenticator
	root   auth.Review
}

// Open puts it together; call Run, and Close at the end. Flags must have been
// checked and not be those of developer mode.
func (f *Flags) Open(ctx context.Context, d Deps) (_ *Front, err error) {
	out := &Front{flags: f, deps: d}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.Close(ctx))
		}
	}()
	var cluster kubernetes.Interface
	if d.Cluster != nil {
		if cluster, err = kubernetes.NewForConfig(d.Cluster); err != nil {
			return nil, err
		}
	}
	if err := out.openCertificates(ctx, cluster); err != nil {
		return nil, err
	}
	if err := out.openAuthentication(ctx, cluster); err != nil {
		return nil, err
	}
	sink := audit.Sink(audit.StoreSink{Store: d.Store})
	if f.AuditFile != "" {
		if out.file, err = audit.OpenFile(f.AuditFile); err != nil {
			return nil, err
		}
		sink = audit.Sinks(sink, out.file)
	}
	out.log = audit.New(audit.Options{Sink: sink, Log: d.Log})
	controllers, err := f.controllers()
	if err != nil {
		return nil, err
	}
	out.assign = auth.NewAssignments(d.Store, d.Feed, oddOnce(d.Log), controllers...)
	return out, nil
}

func (f *Front) openCertificates(ctx context.Context, cluster kubernetes.Interface) (err error) {
	if f.flags.SelfMade == "" {
		f.certs, err = serving.Files(f.flags.CertFile, f.flags.KeyFile)
		return err
	}
	o := serving.OwnOptions{Keep: serving.DirKeep{Dir: f.flags.SelfMade}, Names: f.flags.Names, Log: f.deps.Log}
	var publish []func(context.Context, []byte) error
	if place, ok := strings.CutPrefix(f.flags.SelfMade, "secret:"); ok {
		namespace, name, err := objectName(place)
		if err != nil {
			return err
		}
		o.Keep = serving.SecretKeep{Client: cluster, Namespace: namespace, Name: name}
		publish = append(publish, func(ctx context.Context, bundle []byte) error {
			return publishConfigMap(ctx, cluster, namespace, name+"-ca", bundle)
		})
	}
	if f.flags.Aggregate != "" {
		s, err := service(f.flags.Aggregate)
		if err != nil {
			return err
		}
		client, err := dynamic.NewForConfig(f.deps.Cluster)
		if err != nil {
			return err
		}
		o.Names = append(append([]string(nil), o.Names...), s.Name+"."+s.Namespace+".svc")
		publish = append(publish, func(ctx context.Context, bundle []byte) error { return aggregation.Register(ctx, client, s, bundle) })
	}
	o.Publish = func(ctx context.Context, bundle []byte) error {
		var failed []error
		for _, p := range publish {
			failed = append(failed, p(ctx, bundle))
		}
		return errors.Join(failed...)
	}
	f.certs, err = serving.OpenOwn(ctx, o)
	return err
}

// publishConfigMap lays the bundle where clients in the cluster can mount it.
func publishConfigMap(ctx context.Context, client kubernetes.Interface, namespace, name string, bundle []byte) error {
	maps := client.CoreV1().ConfigMaps(namespace)
	there, err := maps.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "radial"}},
			Data:       map[string]string{"ca.crt": string(bundle)},
		}, metav1.CreateOptions{})
	case err != nil:
	case there.Data["ca.crt"] != string(bundle):
		there.Data = map[string]string{"ca.crt": string(bundle)}
		_, err = maps.Update(ctx, there, metav1.UpdateOptions{})
	}
	return err
}

func (f *Front) openAuthentication(ctx context.Context, cluster kubernetes.Interface) error {
	o := auth.AuthenticatorOptions{Audiences: f.flags.Audiences, TokenTTL: f.flags.TokenTTL, Log: f.deps.Log}
	reviews := []auth.Review{auth.NamedRoots(f.flags.roots())}
	if cluster != nil && f.flags.ReviewTokens {
		o.Cluster = cluster
		trust, err := auth.TrustOf(ctx, cluster, f.deps.Log)
		if err != nil {
			return err
		}
		f.trust = trust
		o.Authorities, o.Proxies = trust.Authorities, trust.Proxies
		review, err := auth.ClusterReview(cluster, f.flags.TokenTTL)
		if err != nil {
			return err
		}
		reviews = append(reviews, review)
	}
	issuers, err := f.flags.issuers()
	if err != nil {
		return err
	}
	for _, one := range issuers {
		one.Log = f.deps.Log
		issuer, err := auth.NewIssuer(one)
		if err != nil {
			return err
		}
		o.Issuers = append(o.Issuers, issuer)
	}
	if f.flags.ClientCA != "" {
		a, err := auth.AuthorityOfFile(f.flags.ClientCA)
		if err != nil {
			return fmt.Errorf("--client-ca-file: %w", err)
		}
		o.Authorities = append(o.Authorities, a)
	}
	if f.flags.ProxyCA != "" {
		p, err := auth.ProxyOfFile(f.flags.ProxyCA, f.flags.ProxyNames)
		if err != nil {
			return fmt.Errorf("--front-proxy-ca-file: %w", err)
		}
		o.Proxies = append(o.Proxies, p)
	}
	f.root = auth.AnyReview(reviews...)
	f.authn, err = auth.NewAuthenticator(o)
	return err
}

// Handler puts the front before the control plane.
func (f *Front) Handler(next http.Handler) http.Handler {
	if f.flags.Aggregate != "" {
		next = aggregation.Handler(next)
	}
	return auth.Handler(next, f.options())
}

// Authorizer decides for work that goes on after its request.
func (f *Front) Authorizer() *auth.Authorizer { return auth.NewAuthorizer(f.options()) }

func (f *Front) options() auth.Options {
	return auth.Options{
		Authenticator: f.authn, Assignments: f.assign, Root: f.root, Store: f.deps.Store,
		Audit: f.log.Record, Canonical: f.deps.Canonical, Log: f.deps.Log,
	}
}

// TLS is the configuration of the listener.
func (f *Front) TLS() *tls.Config { return serving.Config(f.certs) }

// Audit is the log of decisions, which is also a collector of its metrics.
func (f *Front) Audit() *audit.Log { return f.log }

// Run keeps certificates and trust fresh until ctx ends.
func (f *Front) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.certs.Run(ctx); err != nil {
			f.deps.Log.Error("certificates are no longer looked after", "error", err.Error())
		}
	})
	if f.trust != nil {
		running.Go(func() { f.trust.Run(ctx) })
	}
	running.Wait()
}

// Close writes what waits in the audit log, until ctx ends. Call it when no
// more requests come and before the store closes.
func (f *Front) Close(ctx context.Context) error {
	var failed []error
	if f.log != nil {
		failed = append(failed, f.log.Close(ctx))
	}
	if f.file != nil {
		failed = append(failed, f.file.Close())
	}
	return errors.Join(failed...)
}

// oddOnce logs an assignment that cannot be read, once.
func oddOnce(log *slog.Logger) func(core.ID, error) {
	var seen sync.Map
	return func(id core.ID, err error) {
		if _, known := seen.LoadOrStore(id.Key(), true); !known {
			log.Error("a role assignment cannot be read and gives nothing", "id", id.String(), "error", err.Error())
		}
	}
}
