package pki

import (
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/radial-project/radial/devcluster/internal/state"
)

// WriteKubeconfig issues a client certificate for the subject and writes a kubeconfig that holds it. The file
// stands alone: it may be copied anywhere.
func (a *Authority) WriteKubeconfig(path, server string, s Subject) error {
	pair, err := a.Issue(s)
	if err != nil {
		return err
	}
	const name = "devcluster"
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: a.pem}
	c.AuthInfos[s.Name] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: s.Name}
	c.CurrentContext = name
	content, err := clientcmd.Write(*c)
	if err != nil {
		return err
	}
	return state.WriteFile(path, content, 0o600)
}
