package cluster

import (
	"fmt"
	"net"

	"github.com/radial-project/radial/devcluster/internal/pki"
	"github.com/radial-project/radial/devcluster/internal/realnode"
	"github.com/radial-project/radial/devcluster/internal/state"
)

// fakeNodeUser is the fake node's own identity; bootstrap grants it exactly what its code calls.
const fakeNodeUser = "devcluster:fake-node"

// firstServiceIP is the address of the Service `kubernetes`: the first of DefaultServiceClusterIPs.
var firstServiceIP = net.IPv4(10, 96, 0, 1)

// makeIdentities writes every certificate, key and kubeconfig. Authorities and the token key are kept from
// earlier starts, so what was handed out then is still valid.
func makeIdentities(dir *state.Dir, server string) (*pki.Authority, error) {
	ca, err := pki.LoadAuthority(dir.PKI(""), "ca")
	if err != nil {
		return nil, err
	}
	frontProxy, err := pki.LoadAuthority(dir.PKI(""), "front-proxy-ca")
	if err != nil {
		return nil, err
	}
	if err := pki.EnsureSigningKey(dir.PKI(""), "service-account"); err != nil {
		return nil, err
	}
	if err := ca.IssueFiles(dir.PKI(""), "apiserver", pki.Subject{
		Name: "kube-apiserver",
		DNS:  []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPs:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, firstServiceIP},
	}); err != nil {
		return nil, err
	}
	if err := frontProxy.IssueFiles(dir.PKI(""), "front-proxy-client", pki.Subject{Name: "front-proxy-client"}); err != nil {
		return nil, err
	}
	// The API server calls kubelets as a client with this name; see system:kubelet-api-admin in bootstrap.
	if err := ca.IssueFiles(dir.PKI(""), "apiserver-kubelet-client", pki.Subject{Name: kubeletClientUser}); err != nil {
		return nil, err
	}
	for path, subject := range map[string]pki.Subject{
		dir.AdminKubeconfig():              {Name: "devcluster-admin", Groups: []string{"system:masters"}},
		dir.Identity("controller-manager"): {Name: "system:kube-controller-manager"},
		dir.Identity("scheduler"):          {Name: "system:kube-scheduler"},
		dir.Identity("fake-node"):          {Name: fakeNodeUser},
		dir.Identity("kubelet"):            {Name: "system:node:" + realnode.NodeName, Groups: []string{"system:nodes"}},
		dir.Identity("kube-proxy"):         {Name: "system:kube-proxy"},
	} {
		if err := ca.WriteKubeconfig(path, server, subject); err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
		}
	}
	return ca, nil
}
