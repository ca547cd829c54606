package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/devcluster/internal/fakenode"
	"github.com/radial-project/radial/devcluster/internal/process"
	"github.com/radial-project/radial/devcluster/internal/realnode"
	"github.com/radial-project/radial/devcluster/internal/state"
)

// startPatience is how often a component may die while the cluster starts.
const startPatience = 3

// Up starts a cluster and keeps it running until ctx ends; then it stops everything and returns nil.
func Up(ctx context.Context, opts Options) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	dir, err := state.Open(opts.State)
	if err != nil {
		return err
	}
	defer dir.Close()
	port, err := dir.Port(opts.Port)
	if err != nil {
		return err
	}
	if err := removeReadyFile(opts.ReadyFile); err != nil {
		return err
	}
	u := &up{opts: opts, dir: dir, begun: time.Now(), parts: components{opts: opts, dir: dir, port: port}}
	return u.run(ctx)
}

// up is one run of a cluster.
type up struct {
	opts   Options
	dir    *state.Dir
	parts  components
	sup    *process.Supervisor
	client kubernetes.Interface
	begun  time.Time

	host  *realnode.Host // with NodeReal
	relay *realnode.Relay
}

func (u *up) run(ctx context.Context) (err error) {
	server := "https://127.0.0.1:" + strconv.Itoa(u.parts.port)
	if _, err := makeIdentities(u.dir, server); err != nil {
		return err
	}
	kubeconfig, err := clientcmd.BuildConfigFromFlags("", u.dir.AdminKubeconfig())
	if err != nil {
		return err
	}
	if u.client, err = newClient(kubeconfig); err != nil {
		return err
	}
	if u.opts.Node == NodeReal {
		release, refused := u.claimHost()
		if refused != nil {
			return refused
		}
		defer func() { err = errors.Join(err, release()) }() // runs after the components have ended
	}
	u.sup = process.New(process.Config{Logs: u.dir.Logs(), Report: u.report, Backoff: process.DefaultBackoff, Patience: startPatience})
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-u.opts.Kill:
			u.sup.Kill()
		case <-over:
		}
	}()
	defer func() {
		stopping := time.Now()
		u.sup.Shutdown()
		u.report("stopped in %s", time.Since(stopping).Round(time.Millisecond))
	}()

	// A component that cannot start ends the waiting of the steps below.
	starting, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	go func() {
		select {
		case err := <-u.sup.Failed():
			abort(err)
		case <-starting.Done():
		}
	}()
	if err := u.start(starting); err != nil {
		if ctx.Err() != nil { // asked to stop while starting
			return nil
		}
		return err
	}
	u.sup.Settled()
	u.report("ready after %s: %s", u.age(), server)
	// The file before the line: who reads the line finds the file.
	if u.opts.ReadyFile != "" {
		if err := state.WriteFile(u.opts.ReadyFile, []byte(u.dir.AdminKubeconfig()+"\n"), 0o600); err != nil {
			return fmt.Errorf("ready file: %w", err)
		}
		defer func() { err = errors.Join(err, removeReadyFile(u.opts.ReadyFile)) }()
	}
	fmt.Fprintf(u.opts.Out, "KUBECONFIG=%s\n", u.dir.AdminKubeconfig())
	<-ctx.Done()
	return nil
}

// start brings the components up in the order in which they need each other, and returns when the cluster can
// be used by whoever reads the kubeconfig.
func (u *up) start(ctx context.Context) error {
	etcd, err := u.sup.Start(u.parts.etcd())
	if err != nil {
		return err
	}
	if err := u.waitReported(ctx, etcd, etcdName); err != nil {
		return err
	}
	if _, err := u.sup.Start(u.parts.apiServer()); err != nil {
		return err
	}
	if err := waitReadyz(ctx, u.client); err != nil {
		return err
	}
	u.report("API server ready after %s", u.age())
	if err := bootstrap(ctx, u.client); err != nil {
		return cause(ctx, err)
	}
	nodes := u.nodeNames()
	if err := pruneNodes(ctx, u.client, nodes); err != nil {
		return cause(ctx, err)
	}
	if !u.opts.NoController {
		if _, err := u.sup.Start(u.parts.controllerManager()); err != nil {
			return err
		}
	}
	if !u.opts.NoScheduler {
		if _, err := u.sup.Start(u.parts.scheduler()); err != nil {
			return err
		}
	}
	if err := u.startNodes(ctx); err != nil {
		return err
	}
	if !u.opts.NoController {
		if err := waitServiceAccount(ctx, u.client); err != nil {
			return err
		}
	}
	if len(nodes) > 0 {
		return waitNodes(ctx, u.client, nodes)
	}
	return nil
}

func (u *up) startNodes(ctx context.Context) error {
	if u.opts.Node == NodeReal {
		return u.startRealNode(ctx)
	}
	if err := withdrawAPI(ctx, u.client); err != nil {
		return cause(ctx, err)
	}
	if u.opts.FakeNodes == 0 {
		return nil
	}
	_, err := u.sup.Start(u.parts.fakeNode())
	return err
}

func (u *up) startRealNode(ctx context.Context) (err error) {
	if err := u.host.Prepare(); err != nil {
		return err
	}
	if u.relay, err = realnode.StartRelay(u.parts.port); err != nil {
		return err
	}
	if err := publishAPI(ctx, u.client, realnode.Address, u.parts.port); err != nil {
		return cause(ctx, err)
	}
	_, err = u.sup.Start(u.parts.realNode(u.host.LockFile()))
	return err
}

// claimHost takes the machine for a real node, and returns what gives it back.
func (u *up) claimHost() (release func() error, err error) {
	if err := u.parts.realNodeConfig().Check(); err != nil {
		return nil, err
	}
	if u.host, err = realnode.Claim(u.opts.RealNodePrograms, u.report); err != nil {
		return nil, err
	}
	return func() error {
		var err error
		if u.relay != nil {
			err = u.relay.Close()
		}
		return errors.Join(err, u.host.Release())
	}, nil
}

func (u *up) nodeNames() []string {
	if u.opts.Node == NodeReal {
		return []string{realnode.NodeName}
	}
	names := make([]string, u.opts.FakeNodes)
	for i := range names {
		names[i] = fakenode.NodeName(i)
	}
	return names
}

func (u *up) waitReported(ctx context.Context, p *process.Process, name string) error {
	timer := time.NewTimer(etcdLimit)
	defer timer.Stop()
	select {
	case <-p.Ready():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("%s did not say within %s that it serves (log: %s/%s.log)", name, etcdLimit, u.dir.Logs(), name)
	}
}

// report tells a person what happened, one line at a time.
func (u *up) report(format string, args ...any) {
	fmt.Fprintf(u.opts.Out, "devcluster: "+format+"\n", args...)
}

func (u *up) age() time.Duration { return time.Since(u.begun).Round(time.Millisecond) }

// cause prefers the reason why ctx ended to the error that its end made elsewhere.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

func removeReadyFile(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("ready file: %w", err)
	}
	return nil
}
