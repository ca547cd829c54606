package armtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// account is the ServiceAccount whose tokens are handed out.
const account = "armtest"

// Cluster is a managed cluster of the fake: an id, and the credentials that it
// is answered with. The API server behind is real.
type Cluster struct {
	s      *Server
	id     string
	config *rest.Config
	// kubeconfig is what is handed out now; secret is the object in the cluster
	// that its token lives as long as.
	kubeconfig []byte
	secret     string
	// front is nil where the API server itself judges tokens.
	front *front
}

// ID is the cluster's id in ARM.
func (c *Cluster) ID() string { return c.id }

// Replace makes the id lead to another API server from now on: the cluster was
// deleted and made anew.
func (c *Cluster) Replace(tb testing.TB, config *rest.Config) {
	tb.Helper()
	secret, kubeconfig, token := mint(tb, config)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.config, c.secret, c.kubeconfig = config, secret, kubeconfig
	c.s.secrets = append(c.s.secrets, token, string(kubeconfig))
}

// Rotate hands out a new token from now on and revokes the old one: when it
// returns, the API server answers it with 401. An API server remembers for ten
// seconds that a token was good, so with one that was just used this takes as
// long.
func (c *Cluster) Rotate(tb testing.TB) {
	tb.Helper()
	if c.front != nil {
		c.rotateFront(tb)
		return
	}
	c.s.mu.Lock()
	config, secret, kubeconfig := c.config, c.secret, c.kubeconfig
	c.s.mu.Unlock()
	c.Replace(tb, config)
	client := clientOf(tb, config)
	if err := client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(tb.Context(), secret, metav1.DeleteOptions{}); err != nil {
		tb.Fatalf("revoke a token: %v", err)
	}
	old, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		tb.Fatal(err)
	}
	// What ends is a cache inside of the API server, which tells nobody.
	for former := clientOf(tb, old); ; {
		_, err := former.CoreV1().Namespaces().Get(tb.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		if apierrors.IsUnauthorized(err) {
			return
		}
		select {
		case <-tb.Context().Done():
			tb.Fatalf("the old token was not revoked: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// HandOut makes the credentials any text: a kubeconfig of the test's own.
func (c *Cluster) HandOut(kubeconfig []byte) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.kubeconfig = kubeconfig
}

// Kubeconfig is what is handed out now.
func (c *Cluster) Kubeconfig() []byte {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.kubeconfig
}

// Remove deletes the cluster in ARM; its API server goes on.
func (c *Cluster) Remove() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	delete(c.s.clusters, strings.ToLower(c.id))
}

// Kubeconfig makes a kubeconfig with a token of its own for the API server of
// config: for scopes of the type UserOwned.
func Kubeconfig(tb testing.TB, config *rest.Config) []byte {
	tb.Helper()
	_, kubeconfig, _ := mint(tb, config)
	return kubeconfig
}

// mint makes a token that ends with a Secret, and a kubeconfig around it.
func mint(tb testing.TB, config *rest.Config) (secret string, kubeconfig []byte, token string) {
	tb.Helper()
	ctx, client := tb.Context(), clientOf(tb, config)
	prepareAccount(ctx, tb, client)
	s, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-"}}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("make the Secret of a token: %v", err)
	}
	r, err := client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(ctx, account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: s.Name, UID: s.UID},
	}}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("make a token: %v", err)
	}
	return s.Name, kubeconfigOf(tb, config.Host, authority(tb, config), r.Status.Token), r.Status.Token
}

// kubeconfigOf is a kubeconfig as AKS hands it out.
func kubeconfigOf(tb testing.TB, server string, authority []byte, token string) []byte {
	tb.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["aks"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	k.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: token}
	k.Contexts["aks-admin"] = &clientcmdapi.Context{Cluster: "aks", AuthInfo: "admin"}
	k.CurrentContext = "aks-admin"
	raw, err := clientcmd.Write(*k)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

func prepareAccount(ctx context.Context, tb testing.TB, client kubernetes.Interface) {
	tb.Helper()
	_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: account},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: account}},
		}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		tb.Fatalf("make the ServiceAccount %s: %v", account, err)
	}
}

func authority(tb testing.TB, config *rest.Config) []byte {
	tb.Helper()
	c := rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(c); err != nil {
		tb.Fatal(err)
	}
	return c.CAData
}

func clientOf(tb testing.TB, config *rest.Config) kubernetes.Interface {
	tb.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

func randomText() string { return fmt.Sprintf("token-%s", rand.Text()) }

var _ http.Handler = (*Server)(nil)
