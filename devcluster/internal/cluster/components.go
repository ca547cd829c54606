package cluster

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/radial-project/radial/devcluster/internal/process"
	"github.com/radial-project/radial/devcluster/internal/realnode"
	"github.com/radial-project/radial/devcluster/internal/state"
)

// Names of the components: of their sub-command, their process and their log alike.
const (
	etcdName       = "etcd"
	apiServerName  = "kube-apiserver"
	controllerName = "kube-controller-manager"
	schedulerName  = "kube-scheduler"
	fakeNodeName   = "fake-node"
	realNodeName   = "real-node"
)

// realNodeGrace is how long the real node's own programs have to stop, one after the other.
const realNodeGrace = 45 * time.Second

// etcdSocket is where etcd listens, relative to the state directory, which is the working directory of every
// component: a socket's path may have 107 bytes at most, and a state directory may be deeper than that. A
// socket in a directory of mode 0700 needs neither a port nor a certificate.
const (
	etcdSocket     = "unix://etcd.sock"
	etcdPeerSocket = "unix://etcd-peer.sock"
)

// components makes the specs of one cluster's processes.
type components struct {
	opts Options
	dir  *state.Dir
	port int
}

func (c components) spec(name string, args ...string) process.Spec {
	return process.Spec{
		Name: name, Path: c.opts.Executable, Args: append([]string{name}, args...),
		Dir: c.dir.Path(), Inherit: c.dir.LockFile(),
	}
}

func (c components) etcd() process.Spec {
	s := c.spec(etcdName,
		"--name=devcluster", "--data-dir=etcd",
		"--listen-client-urls="+etcdSocket, "--advertise-client-urls="+etcdSocket,
		"--listen-peer-urls="+etcdPeerSocket, "--initial-advertise-peer-urls="+etcdPeerSocket,
		"--initial-cluster=devcluster="+etcdPeerSocket,
		// Objects survive a killed process; a power cut may cost the last of them. No test can tell, and a
		// write is a tenth of a millisecond instead of a disk's several.
		"--unsafe-no-fsync",
		"--auto-compaction-retention=10m",
		"--log-level=warn",
	)
	s.Notify = true
	return s
}

func (c components) apiServer() process.Spec {
	pki := c.dir.PKI
	args := []string{
		"--etcd-servers=" + etcdSocket,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.port),
		// Endpoints may not hold a loopback address; a real node publishes one that pods reach (realnode).
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
		"--client-ca-file=" + pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP", // a node's host name is in no DNS
		"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"), "--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pki("service-account.pub"), "--service-account-signing-key-file=" + pki("service-account.key"),
		"--service-cluster-ip-range=" + c.opts.ServiceClusterIPs,
		"--authorization-mode=Node,RBAC",
		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pki("front-proxy-client.crt"), "--proxy-client-key-file=" + pki("front-proxy-client.key"),
		"--anonymous-auth=false", "--profiling=false", "--allow-privileged=true",
	}
	if c.opts.NoController { // nobody makes the ServiceAccounts that pods would have to name
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return c.spec(apiServerName, append(args, c.opts.APIServerArgs...)...)
}

func (c components) controllerManager() process.Spec {
	args := []string{
		"--kubeconfig=" + c.dir.Identity("controller-manager"),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.dir.PKI("service-account.key"), "--root-ca-file=" + c.dir.PKI("ca.crt"),
		"--cluster-signing-cert-file=" + c.dir.PKI("ca.crt"), "--cluster-signing-key-file=" + c.dir.PKI("ca.key"),
		"--leader-elect=false",
		// With the default of 20 a second every start takes more than five seconds longer.
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--secure-port=0", // nobody asks it anything: its end is noticed by the supervisor
	}
	return c.spec(controllerName, append(args, c.opts.ControllerArgs...)...)
}

func (c components) scheduler() process.Spec {
	return c.spec(schedulerName,
		"--kubeconfig="+c.dir.Identity("scheduler"),
		"--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000",
		"--secure-port=0",
	)
}

func (c components) fakeNode() process.Spec {
	args := []string{"--kubeconfig=" + c.dir.Identity("fake-node"), "--nodes=" + strconv.Itoa(c.opts.FakeNodes)}
	if c.opts.NoController {
		args = append(args, "--untaint")
	}
	return c.spec(fakeNodeName, args...)
}

// realNodeConfig is the real node of this cluster.
func (c components) realNodeConfig() realnode.Config {
	return realnode.Config{
		Data:              filepath.Join(c.dir.Path(), "real-node"),
		Programs:          c.opts.RealNodePrograms,
		CAFile:            c.dir.PKI("ca.crt"),
		KubeletKubeconfig: c.dir.Identity("kubelet"),
		ProxyKubeconfig:   c.dir.Identity("kube-proxy"),
	}
}

// realNode runs the node's programs in a process and a mount namespace of their own, which end with their
// first process. That one holds the claim on the machine.
func (c components) realNode(claim *os.File) process.Spec {
	node := c.realNodeConfig()
	s := c.spec(realNodeName, "--first-process",
		"--data="+node.Data, "--programs="+node.Programs, "--ca="+node.CAFile,
		"--kubelet-kubeconfig="+node.KubeletKubeconfig, "--proxy-kubeconfig="+node.ProxyKubeconfig)
	s.Inherit, s.Namespaces, s.Grace = claim, syscall.CLONE_NEWPID|syscall.CLONE_NEWNS, realNodeGrace
	return s
}
