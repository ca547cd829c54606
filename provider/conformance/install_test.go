package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/installation/ankka"
	"github.com/radial-project/radial/internal/clustertest"
)

// installed is the package's cluster with the shipped kinds, grant and policy.
type installed struct {
	*clustertest.Cluster
	admin client.WithWatch
}

var shared struct {
	sync.Once
	err error
}

func install(t *testing.T) *installed {
	t.Helper()
	clustertest.Long(t)
	c := clustertest.Start(t)
	admin, err := newClient(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	in := &installed{c, admin}
	shared.Do(func() { shared.err = in.apply(context.Background()) })
	if shared.err != nil {
		t.Fatalf("install: %v", shared.err)
	}
	return in
}

func (in *installed) apply(ctx context.Context) error {
	for _, path := range append(append([]string{}, ankka.CRDs...), ankka.ProviderGrant...) {
		raw, err := ankka.Files.ReadFile(path)
		if err != nil {
			return err
		}
		docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
		for {
			var u unstructured.Unstructured
			if err := docs.Decode(&u.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			if len(u.Object) == 0 {
				continue
			}
			if err := in.admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(&u), client.FieldOwner("installer"), client.ForceOwnership); err != nil {
				return err
			}
		}
	}
	const probe = "ankka-probe"
	if err := in.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: probe}}); err != nil {
		return err
	}
	user := "system:serviceaccount:" + v1alpha1.ProviderNamespace + ":" + v1alpha1.ProviderAccount
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + v1alpha1.ProviderNamespace, "system:authenticated"}
	// Kinds, grant and policy come into force through watches whose state
	// nothing shows.
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, l := range []client.ObjectList{&v1alpha1.CloudResourceList{}, &v1alpha1.AnkkaServiceList{}, &v1alpha1.AnkkaProjectList{}} {
			if err := in.admin.List(ctx, l); err != nil {
				return false, nil //nolint:nilerr // not served yet
			}
		}
		review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "watch", Resource: "cloudresources", Group: v1alpha1.Group}}}
		if err := in.admin.Create(ctx, &review); err != nil || !review.Status.Allowed {
			return false, err
		}
		as := rest.CopyConfig(in.Config)
		as.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
		k, err := client.New(as, client.Options{})
		if err != nil {
			return false, err
		}
		return apierrors.IsForbidden(k.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: probe}}, client.DryRunAll)), nil
	})
}

// token is a configuration with a token that the cluster minted for the
// provider's account: nothing of the administrator is left in it.
func (in *installed) token(t *testing.T) *rest.Config {
	t.Helper()
	r := &authenticationv1.TokenRequest{}
	if err := in.admin.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderAccount, Namespace: v1alpha1.ProviderNamespace}}, r); err != nil {
		t.Fatal(err)
	}
	c := rest.AnonymousClientConfig(in.Config)
	c.BearerToken = r.Status.Token
	return c
}
