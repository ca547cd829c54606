// Package cluster puts the components of a development cluster together: it makes their identities and
// command lines, starts them in order, and says when the cluster can be used.
package cluster

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// Kinds of node.
const (
	NodeFake = "fake" // internal/fakenode: pods become Ready at once, nothing runs
	NodeReal = "real" // internal/realnode: kubelet, containerd and runc, as root
)

// Options is what `devcluster up` takes.
type Options struct {
	State             string // directory for everything that is kept
	Port              int    // of the API server; 0: as before, or a free one
	Node              string // NodeFake or NodeReal
	FakeNodes         int    // how many, with NodeFake; may be 0
	NoScheduler       bool
	NoController      bool     // leave kube-controller-manager out
	APIServerArgs     []string // appended to the API server's command line
	ControllerArgs    []string // appended to the controller manager's
	ReadyFile         string   // written when the cluster can be used, removed when it stops
	Executable        string   // this program, which is every component too
	RealNodePrograms  string   // directory with kubelet, containerd and the rest, for NodeReal
	Out               io.Writer
	ServiceClusterIPs string // range of Service addresses

	// Kill, when it is closed, makes the end come by SIGKILL: for a state directory that nobody uses again.
	Kill <-chan struct{}
}

// DefaultServiceClusterIPs is the range of Service addresses unless Options say otherwise.
const DefaultServiceClusterIPs = "10.96.0.0/16"

// Validate says what cannot work, before anything is touched.
func (o *Options) Validate() error {
	switch {
	case o.State == "":
		return errors.New("--state is needed: the directory where the cluster keeps its data (it is made if missing)")
	case o.Port < 0 || o.Port > 65535:
		return fmt.Errorf("--port %d is no port", o.Port)
	case o.FakeNodes < 0 || o.FakeNodes > 1000:
		return fmt.Errorf("--fake-nodes %d: 0 to 1000 are possible", o.FakeNodes)
	case !slices.Contains([]string{NodeFake, NodeReal}, o.Node):
		return fmt.Errorf("--node %q: it is either %s or %s", o.Node, NodeFake, NodeReal)
	case o.Node == NodeReal && (o.NoScheduler || o.NoController):
		return errors.New("--node real needs the scheduler and the controller manager")
	}
	return nil
}
