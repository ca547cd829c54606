package ankka

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/internal/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m)
}

// limit bounds the wait for something that happens in milliseconds on an idle
// machine.
const limit = 60 * time.Second

const project = "shop"

var (
	providerUser = account{v1alpha1.ProviderNamespace, v1alpha1.ProviderAccount}
	operatorUser = account{v1alpha1.PlatformNamespace, v1alpha1.OperatorAccount}
	// nobody has no grant but those of every account.
	nobody = account{v1alpha1.Namespace(project), "default"}
)

type account struct{ namespace, name string }

func (a account) user() string { return "system:serviceaccount:" + a.namespace + ":" + a.name }

func (a account) groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + a.namespace, "system:authenticated"}
}

// world is the package's cluster with the shipped kinds, grants and policy.
type world struct {
	*clustertest.Cluster
	admin client.WithWatch
}

var shared struct {
	sync.Once
	err error
}

func cluster(t *testing.T) *world {
	t.Helper()
	c := clustertest.Start(t)
	w := &world{Cluster: c, admin: connect(t, c.Config)}
	shared.Do(func() { shared.err = w.install(t.Context()) })
	if shared.err != nil {
		t.Fatalf("install: %v", shared.err)
	}
	return w
}

func connect(t *testing.T, c *rest.Config) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	k, err := client.NewWithWatch(c, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (w *world) install(ctx context.Context) error {
	for _, f := range []struct {
		read  func(string) ([]byte, error)
		paths []string
	}{
		{installation.Files.ReadFile, []string{"namespace.yaml"}},
		{Files.ReadFile, CRDs}, {Files.ReadFile, OperatorGrant}, {Files.ReadFile, ControlPlaneGrant}, {Files.ReadFile, ProviderGrant},
	} {
		for _, path := range f.paths {
			raw, err := f.read(path)
			if err != nil {
				return err
			}
			if err := w.apply(ctx, raw); err != nil {
				return err
			}
		}
	}
	if err := w.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace(project)}}); err != nil {
		return err
	}
	// The API server takes kinds, grants and policies up through watches of its
	// own, whose state nothing shows: asking is the only way to know.
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		var list v1alpha1.CloudResourceList
		if err := w.admin.List(ctx, &list); err != nil {
			return false, nil //nolint:nilerr // not served yet
		}
		review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: providerUser.user(), Groups: providerUser.groups(),
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Resource: "secrets", Namespace: v1alpha1.Namespace(project)}}}
		if err := w.admin.Create(ctx, &review); err != nil || !review.Status.Allowed {
			return false, err
		}
		as := rest.CopyConfig(w.Config)
		as.Impersonate = rest.ImpersonationConfig{UserName: providerUser.user(), Groups: providerUser.groups()}
		k, err := client.New(as, client.Options{})
		if err != nil {
			return false, err
		}
		probe := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: v1alpha1.Namespace(project)}}
		return apierrors.IsForbidden(k.Create(ctx, probe, client.DryRunAll)), nil
	})
}

// apply applies the documents of a file as an administrator does.
func (w *world) apply(ctx context.Context, raw []byte) error {
	docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		var u unstructured.Unstructured
		if err := docs.Decode(&u.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(u.Object) == 0 {
			continue
		}
		if err := w.admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(&u), client.FieldOwner("installer"), client.ForceOwnership); err != nil {
			return err
		}
	}
}

// as is a configuration with a token that the cluster minted for an account:
// nothing of the administrator is left in it.
func (w *world) as(t *testing.T, a account) *rest.Config {
	t.Helper()
	r := &authenticationv1.TokenRequest{}
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		// The namespace's default account is made after the namespace.
		err := w.admin.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.name, Namespace: a.namespace}}, r)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatalf("a token for %s: %v", a.user(), err)
	}
	c := rest.AnonymousClientConfig(w.Config)
	c.BearerToken, c.QPS = r.Status.Token, -1
	return c
}

// request is a request in which nothing is hidden by a client library.
func request(t *testing.T, c *rest.Config, method, path, contentType, accept, body string) (int, string) {
	t.Helper()
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.Host, "/")+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if accept == "" {
		accept = "application/json"
	}
	r.Header.Set("Accept", accept)
	res, err := h.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, string(text)
}
