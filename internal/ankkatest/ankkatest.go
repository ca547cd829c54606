// Package ankkatest gives a test package one real API server with the shipped
// kinds, grants and admission policy of services and cloud requests, and
// accounts with tokens that the cluster minted: what a process does in a test it
// may do in an installation.
//
// A package that uses it has clustertest.Main as its TestMain.
package ankkatest

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/installation/ankka"
	"github.com/radial-project/radial/internal/clustertest"
)

// Limit bounds the wait for something that happens in milliseconds on an idle
// machine.
const Limit = 60 * time.Second

// Account is a ServiceAccount.
type Account struct{ Namespace, Name string }

// The accounts of the three processes.
var (
	Provider     = Account{v1alpha1.ProviderNamespace, v1alpha1.ProviderAccount}
	Operator     = Account{v1alpha1.PlatformNamespace, v1alpha1.OperatorAccount}
	ControlPlane = Account{installation.Namespace, installation.ServerAccount}
)

// User is the name that the API server knows the account by, and Groups are
// the groups that it is in.
func (a Account) User() string { return "system:serviceaccount:" + a.Namespace + ":" + a.Name }

// Groups of the account.
func (a Account) Groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace, "system:authenticated"}
}

// World is a cluster with the installation in it.
type World struct {
	*clustertest.Cluster
	// Admin is an administrator, as a test's own hand.
	Admin client.WithWatch
}

var shared struct {
	sync.Once
	err error
}

// Start is [Installed] for a long test ([clustertest.Long]).
func Start(tb testing.TB) *World {
	tb.Helper()
	clustertest.Long(tb)
	return Installed(tb)
}

// Installed returns the package's cluster. The first call installs, and waits
// until kinds, grants and policy are in force.
func Installed(tb testing.TB) *World {
	tb.Helper()
	c := clustertest.Start(tb)
	w := &World{Cluster: c, Admin: Connect(tb, c.Config)}
	shared.Do(func() { shared.err = w.install(tb.Context()) })
	if shared.err != nil {
		tb.Fatalf("install: %v", shared.err)
	}
	return w
}

// Scheme has the kinds of Kubernetes and of this group.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}

// Connect makes a client that caches nothing.
func Connect(tb testing.TB, c *rest.Config) client.WithWatch {
	tb.Helper()
	k, err := client.NewWithWatch(c, client.Options{Scheme: Scheme()})
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// As is a configuration with a token that the cluster minted for an account:
// nothing of the administrator is left in it.
func (w *World) As(tb testing.TB, a Account) *rest.Config {
	tb.Helper()
	r := &authenticationv1.TokenRequest{}
	// A namespace's default account is made after the namespace.
	err := wait.PollUntilContextTimeout(tb.Context(), 20*time.Millisecond, Limit, true, func(ctx context.Context) (bool, error) {
		err := w.Admin.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.Name, Namespace: a.Namespace}}, r)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		tb.Fatalf("a token for %s: %v", a.User(), err)
	}
	c := clustertest.WithToken(w.Config, r.Status.Token)
	c.QPS = -1
	return c
}

var projects atomic.Int64

// Project makes the namespace of a project that no other test has, and answers
// the project's id.
func (w *World) Project(tb testing.TB, prefix string) string {
	tb.Helper()
	id := fmt.Sprintf("%s-%d", prefix, projects.Add(1))
	if err := w.Admin.Create(tb.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace(id)}}); err != nil {
		tb.Fatal(err)
	}
	return id
}

func (w *World) install(ctx context.Context) error {
	if err := Apply(ctx, w.Admin, installation.Files, "namespace.yaml", "crd.yaml", "server.yaml"); err != nil {
		return err
	}
	if err := Apply(ctx, w.Admin, ankka.Files, slices.Concat(ankka.CRDs, ankka.OperatorGrant, ankka.ControlPlaneGrant, ankka.ProviderGrant)...); err != nil {
		return err
	}
	// The API server takes kinds, grants and policies up through watches of its
	// own, whose state nothing shows: asking is the only way to know.
	const namespace = "ankka-in-force"
	if err := w.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	impersonate := func(a Account) (client.Client, error) {
		c := rest.CopyConfig(w.Config)
		c.Impersonate = rest.ImpersonationConfig{UserName: a.User(), Groups: a.Groups()}
		return client.New(c, client.Options{Scheme: Scheme()})
	}
	provider, err := impersonate(Provider)
	if err != nil {
		return err
	}
	operator, err := impersonate(Operator)
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, Limit, true, func(ctx context.Context) (bool, error) {
		for _, list := range []client.ObjectList{&v1alpha1.CloudResourceList{}, &v1alpha1.AnkkaServiceList{}, &v1alpha1.AnkkaProjectList{}} {
			if w.Admin.List(ctx, list) != nil {
				return false, nil
			}
		}
		for account, resource := range map[Account]string{Provider: "secrets", Operator: "serviceaccounts", ControlPlane: "namespaces"} {
			review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: account.User(), Groups: account.Groups(),
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Resource: resource, Namespace: namespace}}}
			if err := w.Admin.Create(ctx, &review); err != nil || !review.Status.Allowed {
				return false, err
			}
		}
		probe := metav1.ObjectMeta{Name: "probe", Namespace: namespace}
		elsewhere := metav1.ObjectMeta{Name: "probe", Namespace: metav1.NamespaceDefault}
		return apierrors.IsForbidden(provider.Create(ctx, &corev1.Secret{ObjectMeta: probe}, client.DryRunAll)) &&
			apierrors.IsForbidden(operator.Create(ctx, &corev1.ServiceAccount{ObjectMeta: elsewhere}, client.DryRunAll)), nil
	})
}

// Apply applies the documents of files as an installer does.
func Apply(ctx context.Context, c client.Client, files embed.FS, paths ...string) error {
	for _, path := range paths {
		raw, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
			var u unstructured.Unstructured
			if err := docs.Decode(&u.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if len(u.Object) == 0 {
				continue
			}
			if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(&u), client.FieldOwner("installer"), client.ForceOwnership); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return nil
}
