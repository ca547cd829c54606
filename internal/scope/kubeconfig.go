package scope

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"sort"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// maxKubeconfig bounds a kubeconfig; those of large clusters have a few KiB.
const maxKubeconfig = 1 << 20

// errNotKubeconfig has no cause: a parser's error quotes what it cannot read.
var errNotKubeconfig = errors.New("the text is not a kubeconfig")

// ReadKubeconfig reads a kubeconfig that came from somebody else: it may be plain
// or in base64, as functions that load files make it. context chooses one of its
// contexts, "" is the current one.
//
// What would make the server run a program or read a file of its own is refused
// by name: exec and auth-provider plug-ins, and every path. So are plain HTTP
// and a proxy. No error quotes the text.
func ReadKubeconfig(text []byte, context string) (*rest.Config, error) {
	if len(text) > maxKubeconfig {
		return nil, fmt.Errorf("the kubeconfig has %d bytes, at most %d are read", len(text), maxKubeconfig)
	}
	if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text))); err == nil && len(plain) > 0 {
		text = plain
	}
	k, err := clientcmd.Load(text)
	if err != nil || k == nil {
		return nil, errNotKubeconfig
	}
	if context == "" {
		context = k.CurrentContext
	}
	at := k.Contexts[context]
	if at == nil {
		names := make([]string, 0, len(k.Contexts))
		for n := range k.Contexts {
			names = append(names, n)
		}
		sort.Strings(names)
		switch {
		case len(names) == 0:
			return nil, errNotKubeconfig
		case context == "":
			return nil, fmt.Errorf("the kubeconfig has no current-context: set it, or name one of %s", strings.Join(names, ", "))
		}
		return nil, fmt.Errorf("the kubeconfig has no context %q: it has %s", context, strings.Join(names, ", "))
	}
	cluster, user := k.Clusters[at.Cluster], k.AuthInfos[at.AuthInfo]
	if cluster == nil || user == nil {
		return nil, fmt.Errorf("the context %q of the kubeconfig names a cluster or a user that it does not have", context)
	}
	if err := checkCluster(at.Cluster, cluster); err != nil {
		return nil, err
	}
	if err := checkUser(at.AuthInfo, user); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*k, context, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("the context %q of the kubeconfig is not complete", context)
	}
	return config, nil
}

func checkCluster(name string, c *clientcmdapi.Cluster) error {
	u, err := url.Parse(c.Server)
	switch {
	case err != nil || u.Host == "":
		return fmt.Errorf("the cluster %q of the kubeconfig has no server that is a URL", name)
	case u.Scheme != "https":
		return fmt.Errorf("the server of the cluster %q of the kubeconfig is not reached by https: credentials are not sent in the clear", name)
	case c.CertificateAuthority != "":
		return fileRefused("cluster", name, "certificate-authority")
	case c.ProxyURL != "":
		return fmt.Errorf("the cluster %q of the kubeconfig has a proxy-url: which proxies are used is the server's to say; take it out", name)
	}
	return nil
}

func checkUser(name string, u *clientcmdapi.AuthInfo) error {
	switch {
	case u.Exec != nil:
		return fmt.Errorf("the user %q of the kubeconfig signs in by the exec plug-in %q, which is not run here: use a token or a client certificate of a ServiceAccount instead", name, u.Exec.Command)
	case u.AuthProvider != nil:
		return fmt.Errorf("the user %q of the kubeconfig signs in by the auth-provider plug-in %q, which is not run here: use a token or a client certificate of a ServiceAccount instead", name, u.AuthProvider.Name)
	case u.TokenFile != "":
		return fileRefused("user", name, "tokenFile")
	case u.ClientCertificate != "":
		return fileRefused("user", name, "client-certificate")
	case u.ClientKey != "":
		return fileRefused("user", name, "client-key")
	case u.Token == "" && len(u.ClientCertificateData) == 0 && u.Username == "":
		return fmt.Errorf("the user %q of the kubeconfig has no credentials: it needs a token or a client certificate", name)
	}
	return nil
}

func fileRefused(what, name, field string) error {
	inline := map[string]string{"tokenFile": "token"}[field]
	if inline == "" {
		inline = field + "-data"
	}
	return fmt.Errorf("the %s %q of the kubeconfig has %s, a path: files are not read for it; put the contents in %s (kubectl config view --raw --flatten does)", what, name, field, inline)
}

// credentialsOf are the texts of a configuration that must show nowhere.
func credentialsOf(c *rest.Config) []any {
	return []any{c.BearerToken, c.Password, string(c.KeyData)}
}
