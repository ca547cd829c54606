// Command devcluster is a real Kubernetes control plane in one program, for tests, demos and development:
// `devcluster up` supervises etcd, kube-apiserver, kube-controller-manager, kube-scheduler and a fake node.
// Every component is this program again under another sub-command, unmodified from upstream.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	etcdversion "go.etcd.io/etcd/api/v3/version"
	"k8s.io/component-base/version"

	"github.com/radial-project/radial/devcluster/internal/cluster"
	"github.com/radial-project/radial/devcluster/internal/state"
)

// Exit statuses.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

func main() { os.Exit(run()) }

func run() int {
	// Programs that look for a component by its name find it through a symlink to this one (assets).
	if main, ok := upstream[filepath.Base(os.Args[0])]; ok {
		return main(os.Args)
	}
	if len(os.Args) < 2 {
		usage(os.Stderr)
		return exitUsage
	}
	name, args := os.Args[1], os.Args[2:]
	if main, ok := upstream[name]; ok {
		os.Args = os.Args[1:]
		return main(os.Args)
	}
	if name == "help" || name == "-h" || name == "--help" {
		if len(args) == 0 {
			usage(os.Stdout)
			return exitOK
		}
		name, args = args[0], []string{"--help"}
		if main, ok := upstream[name]; ok {
			os.Args = []string{name, "--help"}
			return main(os.Args)
		}
	}
	command, ok := commands[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "devcluster: there is no command %q; devcluster help lists them\n", name)
		return exitUsage
	}
	err := command(args)
	var wrong *usageError
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return exitOK
	case errors.As(err, &wrong):
		fmt.Fprintf(os.Stderr, "devcluster %s: %v (devcluster help %s lists the flags)\n", name, err, name)
		return exitUsage
	default:
		fmt.Fprintf(os.Stderr, "devcluster %s: %v\n", name, err)
		return exitError
	}
}

var commands = map[string]func(args []string) error{
	"up": up, "stop": stop, "assets": assets, "version": printVersion,
	"fake-node": fakeNode, "real-node": realNode, "load": load,
}

// usageError is a command line that cannot be meant.
type usageError struct{ error }

// parse reads the flags of a command; what names its positional arguments, and there must be as many.
func parse(fs *pflag.FlagSet, args []string, about string, what ...string) ([]string, error) {
	fs.SortFlags = false
	fs.Usage = func() {
		fmt.Fprintf(os.Stdout, "devcluster %s\n\n%s\n\nFlags:\n%s", strings.Join(append([]string{fs.Name(), "[flags]"}, what...), " "), about, fs.FlagUsagesWrapped(100))
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, err
		}
		return nil, &usageError{err}
	}
	if fs.NArg() != len(what) {
		return nil, &usageError{fmt.Errorf("it takes %d arguments %v, not %q", len(what), what, fs.Args())}
	}
	return fs.Args(), nil
}

func up(args []string) error {
	opts := cluster.Options{Out: os.Stdout, ServiceClusterIPs: cluster.DefaultServiceClusterIPs}
	var apiserverArgs, controllerArgs []string
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	fs.StringVar(&opts.State, "state", "", "directory for data, certificates, kubeconfigs and logs (needed; made if missing)")
	fs.IntVar(&opts.Port, "port", 0, "port of the API server; 0 keeps the one that the state directory had, or picks a free one")
	fs.IntVar(&opts.FakeNodes, "fake-nodes", 1, "number of fake nodes, whose pods become Ready without running; 0 for none")
	fs.StringVar(&opts.Node, "node", cluster.NodeFake, "what runs the pods: fake, or real (kubelet, containerd and runc; as root, see docs/development-cluster.md)")
	fs.BoolVar(&opts.NoScheduler, "no-scheduler", false, "leave kube-scheduler out: pods stay unbound")
	fs.BoolVar(&opts.NoController, "no-controller-manager", false, "leave kube-controller-manager out: no Deployments, no garbage collection, no ServiceAccounts")
	fs.StringArrayVar(&apiserverArgs, "apiserver-args", nil, "more flags for kube-apiserver, split at spaces; may be repeated")
	fs.StringArrayVar(&controllerArgs, "controller-manager-args", nil, "more flags for kube-controller-manager, split at spaces; may be repeated")
	fs.StringVar(&opts.ReadyFile, "ready-file", "", "file to write the kubeconfig's path to once the cluster can be used; removed when it stops")
	if _, err := parse(fs, args, `Starts a cluster on the state directory and keeps it running until SIGINT or SIGTERM; SIGQUIT kills it at once,
for a directory that nobody uses again. A directory that had a cluster before goes on where that one stopped, on the same port and with the same authorities, so that
old kubeconfigs stay good. Everything listens on 127.0.0.1 or on sockets inside the directory.

When the cluster can be used (the API server is ready, the namespace default has its ServiceAccount, the
nodes are Ready and untainted), it prints a line KUBECONFIG=PATH. A component that dies is started again.`); err != nil {
		return err
	}
	opts.APIServerArgs, opts.ControllerArgs = splitAll(apiserverArgs), splitAll(controllerArgs)
	if err := opts.Validate(); err != nil {
		return &usageError{err}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	opts.Executable, opts.RealNodePrograms = self, filepath.Join(filepath.Dir(self), "realnode")
	signal.Ignore(syscall.SIGPIPE) // a reader that closed our output after the ready line must not end the cluster
	var ctx context.Context
	ctx, opts.Kill = stopped()
	return cluster.Up(ctx, opts)
}

// stopped follows the signals that end a cluster: ctx ends with the first of them, and kill is closed by SIGQUIT.
func stopped() (ctx context.Context, kill <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	at := make(chan os.Signal, 8)
	signal.Notify(at, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	closed := make(chan struct{})
	go func() {
		killed := false
		for s := range at {
			if s == syscall.SIGQUIT && !killed {
				killed = true
				close(closed)
			}
			cancel()
		}
	}()
	return ctx, closed
}

func stop(args []string) error {
	fs := pflag.NewFlagSet("stop", pflag.ContinueOnError)
	dir := fs.String("state", "", "state directory of the cluster (needed)")
	limit := fs.Duration("timeout", time.Minute, "how long to wait for its end")
	if _, err := parse(fs, args, "Stops the cluster that runs on the state directory, and returns when its last component has ended."); err != nil {
		return err
	}
	if *dir == "" {
		return &usageError{errors.New("--state is needed")}
	}
	path, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	err = state.Stop(ctx, path)
	if errors.Is(err, state.ErrNotRunning) {
		fmt.Println(err)
		return nil
	}
	return err
}

// assets links every upstream program into a directory.
func assets(args []string) error {
	fs := pflag.NewFlagSet("assets", pflag.ContinueOnError)
	dirs, err := parse(fs, args, `Makes DIR with symlinks etcd, kube-apiserver, kubectl and the rest to this program, which acts as the
program by whose name it is called. DIR then serves as envtest's BinaryAssetsDirectory (KUBEBUILDER_ASSETS).`, "DIR")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dirs[0], 0o755); err != nil {
		return err
	}
	for name := range upstream {
		link := filepath.Join(dirs[0], name)
		if have, err := os.Readlink(link); err == nil && have == self {
			continue
		}
		// A link under a temporary name replaces the old one in one step: two tests may do this at once.
		temporary := fmt.Sprintf("%s.%d", link, os.Getpid())
		if err := os.Symlink(self, temporary); err != nil {
			return err
		}
		if err := os.Rename(temporary, link); err != nil {
			return errors.Join(err, os.Remove(temporary))
		}
	}
	return nil
}

func printVersion(args []string) error {
	if _, err := parse(pflag.NewFlagSet("version", pflag.ContinueOnError), args, "Prints the versions of Kubernetes and etcd."); err != nil {
		return err
	}
	fmt.Printf("kubernetes %s\netcd v%s\n", version.Get().GitVersion, etcdversion.Version)
	return nil
}

func splitAll(values []string) []string {
	var out []string
	for _, v := range values {
		out = append(out, strings.Fields(v)...)
	}
	return out
}

func usage(w *os.File) {
	names := make([]string, 0, len(upstream))
	for name := range upstream {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(w, `devcluster is a real Kubernetes control plane in one program, for tests, demos and development.

  devcluster up --state DIR      start a cluster and keep it running; DIR/admin.kubeconfig is the way in
  devcluster stop --state DIR    stop it and wait for its end
  devcluster kubectl ...         kubectl, of the cluster's own version
  devcluster assets DIR          links for envtest's BinaryAssetsDirectory
  devcluster version             versions of Kubernetes and etcd
  devcluster load IMAGE FILE     make an image of a program and give it to the real node
  devcluster fake-node           the fake node alone
  devcluster help COMMAND        the flags of a command

Upstream programs under their own names: %s.

An example:
  devcluster up --state /tmp/dev &
  export KUBECONFIG=/tmp/dev/admin.kubeconfig
  devcluster kubectl create deployment web --image=any
`, strings.Join(names, ", "))
}
