package dev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
)

// Limits of the steps of a start, on a machine under load. On an idle one a first start takes about five seconds.
const (
	clusterLimit = 3 * time.Minute
	serverLimit  = time.Minute
)

// Options are what a start may be told.
type Options struct {
	// Dir is the state directory.
	Dir string
	// Bin is the folder of Radial's programs.
	Bin string
	// Port of the control plane; 0 is the one from before, or a free one.
	Port int
	// Node is "fake" (pods become Ready, no process runs in them) or "real".
	Node string
}

// Event is something a person wants to see of a start.
type Event struct {
	// Step began, when Done is not set.
	Step string `json:"step,omitempty"`
	// Done tells what the step came to.
	Done string `json:"done,omitempty"`
	// Note is something that happened beside the steps.
	Note string `json:"note,omitempty"`
	// Ready is the last event of a start that worked.
	Ready *Status `json:"ready,omitempty"`
	// Failed is the last event of one that did not.
	Failed string `json:"failed,omitempty"`
}

// Run starts everything, reports Ready, keeps it running until ctx ends, and stops it. It returns nil when it
// was asked to stop.
func Run(ctx context.Context, o Options, report func(Event)) (err error) {
	programs, err := findPrograms(o.Bin, o.Node)
	if err != nil {
		return err
	}
	dir, err := Open(o.Dir)
	if err != nil {
		return err
	}
	lock, err := dir.lock()
	if err != nil {
		return err
	}
	// The lock is never given back by hand: it goes with the process, so that whoever waits for it (dev stop)
	// finds nothing of this installation running.
	if err := dir.removeStatus(); err != nil { // of a supervisor that was killed
		return err
	}
	port, err := dir.port(o.Port)
	if err != nil {
		return err
	}
	note := func(s string) { report(Event{Note: s}) }
	s := &supervisor{Options: o, dir: dir, programs: programs, port: port, report: report, note: note, keeper: newKeeper(dir.Logs(), lock, note)}
	// What serves the children (their tokens) ends after them.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		s.keeper.shutdown()
		cancel()
		err = errors.Join(err, dir.removeStatus())
	}()
	if err := s.start(ctx, inner); err != nil {
		if ctx.Err() != nil {
			return nil // interrupted: nothing is wrong
		}
		return err
	}
	s.keeper.settled.Store(true)
	status := Status{PID: os.Getpid(), Version: core.Version, Node: o.Node, ServerURL: s.url(), Kubeconfig: dir.Kubeconfig(), Ready: time.Now().UTC()}
	if err := dir.writeStatus(status); err != nil {
		return err
	}
	report(Event{Ready: &status})
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.keeper.failed:
		return err
	}
}

type supervisor struct {
	Options
	dir      Dir
	programs programs
	port     int
	keeper   *keeper
	report   func(Event)
	note     func(string)
	admin    *rest.Config
	// usable gets the outcome of the wait for the API server to treat the first objects as any.
	usable chan error
}

func (s *supervisor) url() string { return "http://" + s.address() }

func (s *supervisor) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// start brings everything up in order. ctx interrupts it; life is the context of what runs on.
func (s *supervisor) start(ctx, life context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // nothing waits on for a start that failed
	for _, step := range []struct {
		name string
		do   func(ctx, life context.Context) (string, error)
	}{
		{"Kubernetes", s.startCluster},
		{"installation", s.install},
		{"control plane", s.startServer},
		{"defaults", s.defaults},
		{"controller", s.startController},
		{"in force", s.awaitUse},
	} {
		began := time.Now()
		s.report(Event{Step: step.name})
		done, err := step.do(ctx, life)
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		s.report(Event{Step: step.name, Done: fmt.Sprintf("%s (%.1f s)", done, time.Since(began).Seconds())})
	}
	return nil
}

// startCluster starts the development cluster and copies its kubeconfig to where people look for it.
func (s *supervisor) startCluster(ctx, _ context.Context) (string, error) {
	args := []string{"up", "--state", s.dir.join("cluster")}
	if s.Node == NodeReal {
		args = append(args, "--node", NodeReal)
	}
	ready := s.dir.join("cluster.ready")
	args = append(args, "--ready-file", ready)
	c, err := s.keeper.start(program{name: "devcluster", path: s.programs.devcluster, args: args, readyFile: ready, grace: 40 * time.Second})
	if err != nil {
		return "", err
	}
	if err := c.await(ctx, clusterLimit); err != nil {
		return "", err
	}
	kubeconfig, err := os.ReadFile(s.dir.join("cluster", "admin.kubeconfig"))
	if err != nil {
		return "", err
	}
	if err := writeFile(s.dir.Kubeconfig(), kubeconfig, 0o600); err != nil {
		return "", err
	}
	if s.admin, err = clientcmd.RESTConfigFromKubeConfig(kubeconfig); err != nil {
		return "", err
	}
	s.admin.QPS = -1 // one administrator, who asks a few dozen times in all
	node := "a simulated node: pods become Ready, no process runs in them"
	if s.Node == NodeReal {
		node = "a real node"
	}
	return fmt.Sprintf("API server at %s, with %s", s.admin.Host, node), nil
}

// install applies kinds, policies and grants, and gives Radial's processes their identities.
func (s *supervisor) install(ctx, life context.Context) (string, error) {
	applied, err := setup.Install(ctx, s.admin, installation.Files)
	if err != nil {
		return "", err
	}
	// The API server needs two seconds to take the new kinds and policies in, in which the rest can start.
	s.usable = make(chan error, 1)
	go func() { s.usable <- setup.AwaitUse(ctx, s.admin) }()
	for _, account := range []string{installation.ServerAccount, installation.ControllerAccount} {
		if err := s.dir.identityOf(account, s.admin, s.note).start(life); err != nil {
			return "", err
		}
	}
	changed := 0
	for _, a := range applied {
		if a.Result != "unchanged" {
			changed++
		}
	}
	return fmt.Sprintf("%d objects (kinds, admission policy, grants), %d new or changed", len(applied), changed), nil
}

func (s *supervisor) startServer(ctx, _ context.Context) (string, error) {
	ready := s.dir.join("server.ready")
	c, err := s.keeper.start(program{
		name: "radial-server", path: s.programs.server, grace: 15 * time.Second,
		args: []string{
			"--developer-mode",
			"--listen", s.address(),
			"--store", s.dir.join("radial.db"),
			"--key-file", s.dir.join("key"),
			"--kubeconfig", s.dir.Identity(installation.ServerAccount + ".kubeconfig"),
			"--cluster", core.LocalCluster,
			"--ready-file", ready,
		},
		readyFile: ready,
	})
	if err != nil {
		return "", err
	}
	if err := c.await(ctx, serverLimit); err != nil {
		return "", err
	}
	return s.url(), writeFile(s.dir.URLFile(), []byte(s.url()+"\n"), 0o644)
}

// defaults makes the default group and environment and registers the local recipes: each once, so that what
// was unregistered since stays so.
func (s *supervisor) defaults(ctx, _ context.Context) (string, error) {
	local, err := setup.WriteRecipes(s.dir.Recipes())
	if err != nil {
		return "", err
	}
	offered, err := s.dir.offered()
	if err != nil {
		return "", err
	}
	var fresh []setup.Registration
	for _, r := range local {
		if !offered[r.ResourceType+"/"+r.Name] {
			fresh = append(fresh, r)
		}
	}
	made, err := setup.Defaults(ctx, client.New(s.url(), client.Options{}), fresh)
	if err != nil {
		return "", err
	}
	for _, r := range local {
		offered[r.ResourceType+"/"+r.Name] = true
	}
	if err := s.dir.writeOffered(offered); err != nil {
		return "", err
	}
	var names []string
	for _, r := range made.Recipes {
		if _, name, _ := strings.Cut(r.ResourceType, "/"); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	said := "environment and group default"
	if !made.Environment {
		said += " as before"
	}
	if len(names) > 0 {
		said += ", recipes for " + strings.Join(names, ", ")
	}
	return said, nil
}

func (s *supervisor) startController(ctx, _ context.Context) (string, error) {
	ready := s.dir.join("controller.ready")
	c, err := s.keeper.start(program{
		name: "radial-controller", path: s.programs.controller, grace: 15 * time.Second,
		args: []string{
			"--kubeconfig", s.dir.Identity(installation.ControllerAccount + ".kubeconfig"),
			"--server", s.url(),
			"--cluster", core.LocalCluster,
			"--health-listen", "0", // nobody probes it: the supervisor sees its end
			"--metrics-listen", "127.0.0.1:0",
			"--ready-file", ready,
		},
		readyFile: ready,
	})
	if err != nil {
		return "", err
	}
	if err := c.await(ctx, serverLimit); err != nil {
		return "", err
	}
	return "watches Deployments and Recipes", nil
}

// awaitUse waits for what install began, so that whoever is told of a start that is ready waits for nothing more.
func (s *supervisor) awaitUse(context.Context, context.Context) (string, error) {
	select {
	case err := <-s.usable: // it ends with the context of the start
		return "Recipes are taken, rollouts are held", err
	case err := <-s.keeper.failed:
		return "", err
	}
}
