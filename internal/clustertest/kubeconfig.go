package clustertest

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig is a configuration as a file for a program of its own: the server,
// its authority and the credentials, by token or by certificate.
func Kubeconfig(c *rest.Config) ([]byte, error) {
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData, CertificateAuthority: c.CAFile}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, ClientCertificate: c.CertFile, ClientKey: c.KeyFile, Token: c.BearerToken,
	}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	return clientcmd.Write(*k)
}

// WriteKubeconfig writes it to a path.
func WriteKubeconfig(tb testing.TB, path string, c *rest.Config) {
	tb.Helper()
	raw, err := Kubeconfig(c)
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// WithToken is a configuration of the same server with a token and nothing else
// to prove who asks.
func WithToken(c *rest.Config, token string) *rest.Config {
	c = rest.AnonymousClientConfig(c)
	c.BearerToken = token
	return c
}
