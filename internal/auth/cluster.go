package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
)

// Where every Kubernetes cluster says whose certificates and headers it trusts.
const (
	trustNamespace = "kube-system"
	trustConfigMap = "extension-apiserver-authentication"
)

// ClusterTrust is whom the cluster trusts: its authority of client
// certificates, and the front proxy by which it forwards to aggregated APIs.
// Both follow the cluster when it rotates them, for as long as Run runs.
type ClusterTrust struct {
	Authorities []CertificateAuthority
	Proxies     []Proxy

	runs []func(context.Context)
}

// TrustOf reads whom the cluster trusts. A cluster that has no front proxy or
// no client authority gives none.
func TrustOf(ctx context.Context, cluster kubernetes.Interface, log *slog.Logger) (*ClusterTrust, error) {
	said, err := cluster.CoreV1().ConfigMaps(trustNamespace).Get(ctx, trustConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot read whom the cluster trusts: %w; bind the Role %s/extension-apiserver-authentication-reader to the server's account",
			err, trustNamespace)
	}
	t := &ClusterTrust{}
	if said.Data["client-ca-file"] != "" {
		ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", trustNamespace, trustConfigMap, "client-ca-file", cluster)
		if err != nil {
			return nil, err
		}
		verify, err := following(ca, said.Data["client-ca-file"])
		if err != nil {
			return nil, fmt.Errorf("the cluster's client authority cannot be used: %w", err)
		}
		t.Authorities = append(t.Authorities, CertificateAuthority{Verify: verify, Cluster: true})
		t.runs = append(t.runs, func(ctx context.Context) { ca.Run(ctx, 1) })
	}
	if said.Data["requestheader-client-ca-file"] == "" {
		log.Info("the cluster has no front proxy; requests through its aggregation layer are not believed")
		return t, nil
	}
	ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController("front-proxy", trustNamespace, trustConfigMap, "requestheader-client-ca-file", cluster)
	if err != nil {
		return nil, err
	}
	headers := headerrequest.NewRequestHeaderAuthRequestController(trustConfigMap, trustNamespace, cluster,
		"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers",
		"requestheader-extra-headers-prefix", "requestheader-allowed-names")
	verify, err := following(ca, said.Data["requestheader-client-ca-file"])
	if err := errors.Join(err, headers.RunOnce(ctx)); err != nil {
		return nil, fmt.Errorf("the cluster's front proxy cannot be used: %w", err)
	}
	t.Proxies = append(t.Proxies, Proxy{
		Verify: verify, AllowedNames: headers.AllowedClientNames, UsernameHeaders: headers.UsernameHeaders,
		UIDHeaders: headers.UIDHeaders, GroupHeaders: headers.GroupHeaders, ExtraPrefixes: headers.ExtraHeaderPrefixes,
	})
	t.runs = append(t.runs, func(ctx context.Context) { ca.Run(ctx, 1) }, func(ctx context.Context) { headers.Run(ctx, 1) })
	return t, nil
}

// following uses what was read at the start until the controller has read it
// itself, so that nobody is refused for having come early.
func following(ca dynamiccertificates.CAContentProvider, read string) (VerifyOptions, error) {
	first, err := StaticAuthorities([]byte(read))
	if err != nil {
		return nil, err
	}
	return func() (x509.VerifyOptions, bool) {
		if o, ok := ca.VerifyOptions(); ok {
			return o, true
		}
		return first()
	}, nil
}

// Run follows the cluster until ctx ends.
func (t *ClusterTrust) Run(ctx context.Context) {
	done := make(chan struct{})
	for _, run := range t.runs {
		go func() {
			run(ctx)
			done <- struct{}{}
		}()
	}
	for range t.runs {
		<-done
	}
}

// ProxyOfFile believes a front proxy whose certificate an authority in a file
// signed; names are the common names it may have, at least one, since an
// authority signs for others too. The headers are those of Kubernetes.
func ProxyOfFile(path string, names []string) (Proxy, error) {
	if len(names) == 0 {
		return Proxy{}, fmt.Errorf("no name of a front proxy is given: name the common names that its certificate may have")
	}
	verify, err := authoritiesOfFile(path)
	if err != nil {
		return Proxy{}, err
	}
	return Proxy{Verify: verify, AllowedNames: fixed(names...), UsernameHeaders: fixed("X-Remote-User"), UIDHeaders: fixed("X-Remote-Uid"),
		GroupHeaders: fixed("X-Remote-Group"), ExtraPrefixes: fixed("X-Remote-Extra-")}, nil
}

// AuthorityOfFile believes client certificates that an authority in a file
// signed: the common name is the user, the organisations are the groups.
func AuthorityOfFile(path string) (CertificateAuthority, error) {
	verify, err := authoritiesOfFile(path)
	return CertificateAuthority{Verify: verify}, err
}

func authoritiesOfFile(path string) (VerifyOptions, error) {
	bundle, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read authorities: %w", err)
	}
	verify, err := StaticAuthorities(bundle)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return verify, nil
}
