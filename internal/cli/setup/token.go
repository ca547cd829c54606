package setup

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/radial-project/radial/installation"
)

// Token asks the API server for a token of one of Radial's ServiceAccounts. The lifetime is a wish: the server
// may grant less, and says until when.
func Token(ctx context.Context, cfg *rest.Config, serviceAccount string, lifetime time.Duration) (token string, expires time.Time, err error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return "", time.Time{}, err
	}
	seconds := int64(lifetime.Seconds())
	t, err := client.CoreV1().ServiceAccounts(installation.Namespace).CreateToken(ctx, serviceAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("no token for ServiceAccount %s/%s: %w", installation.Namespace, serviceAccount, err)
	}
	return t.Status.Token, t.Status.ExpirationTimestamp.Time, nil
}

// WriteKubeconfig writes a kubeconfig for the cluster of cfg that takes its token from a file, which clients
// read again as it changes.
func WriteKubeconfig(path string, cfg *rest.Config, user, tokenFile string) error {
	const name = "radial"
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: cfg.Host, CertificateAuthorityData: cfg.CAData, CertificateAuthority: cfg.CAFile,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {TokenFile: tokenFile}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	}, path)
}
