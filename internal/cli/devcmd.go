package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/cli/dev"
)

// eventsFD is the descriptor on which a detached start tells what it does, as JSON lines; 0 for none.
const eventsFD = 3

// stopLimit is how long dev stop waits for the end.
const stopLimit = 2 * time.Minute

func (s *session) devCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "dev", Short: "Run Radial on this machine, with a Kubernetes API server of its own",
		Long: `Developer mode runs a Kubernetes API server, the control plane and the controller on this machine, on
loopback, with all of their state in one directory: --dir or RADIAL_DIR, else ~/.radial.`,
	}
	c.AddCommand(s.devStart(), s.devStop(), s.devStatus())
	return c
}

func (s *session) devStart() *cobra.Command {
	var o dev.Options
	var detach, detached bool
	c := &cobra.Command{
		Use: "start", Short: "Start everything, or go on where it was stopped", Args: cobra.NoArgs,
		Long: `Starts everything and runs until Ctrl-C; with --detach it returns when everything is ready, and
radial dev stop ends it. A start on a directory from before goes on with its state, on the same ports.`,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.Node != dev.NodeFake && o.Node != dev.NodeReal {
				return usagef("--node %q is not one of %s, %s", o.Node, dev.NodeFake, dev.NodeReal)
			}
			if o.Dir, _, err = s.stateDir(); err != nil {
				return err
			}
			if o.Bin, err = dev.Bin(); err != nil {
				return err
			}
			switch {
			case detached:
				return s.runDetached(c.Context(), o)
			case detach:
				return s.detach(c.Context(), o)
			default:
				err := dev.Run(c.Context(), o, s.narrator(false))
				if err == nil {
					fmt.Fprintf(s.Out, "\nStopped. The state stays in %[1]s: radial dev start --dir %[1]s goes on with it.\n", o.Dir)
				}
				return err
			}
		},
	}
	c.Flags().BoolVarP(&detach, "detach", "d", false, "return when everything is ready")
	c.Flags().IntVar(&o.Port, "port", 0, "port of the control plane (0: the one from before, or a free one)")
	c.Flags().StringVar(&o.Node, "node", dev.NodeFake, "what runs the pods: fake (they become Ready, no process runs) or real (needs root)")
	c.Flags().BoolVar(&detached, "detached", false, "")
	if err := c.Flags().MarkHidden("detached"); err != nil {
		panic(err)
	}
	return c
}

// narrator tells a person what a start does.
func (s *session) narrator(detach bool) func(dev.Event) {
	return func(e dev.Event) {
		switch {
		case e.Ready != nil:
			s.ready(*e.Ready, detach)
		case e.Note != "":
			fmt.Fprintf(s.Err, "radial: %s\n", e.Note)
		case e.Done != "":
			if s.Terminal {
				fmt.Fprint(s.Err, "\r\033[K")
			}
			fmt.Fprintf(s.Out, "  %-14s %s\n", e.Step, e.Done)
		case e.Step != "" && s.Terminal:
			fmt.Fprintf(s.Err, "  %-14s ...", e.Step)
		}
	}
}

func (s *session) ready(st dev.Status, detach bool) {
	dir := filepath.Dir(st.Kubeconfig)
	stop := "Ctrl-C stops it"
	if detach {
		stop = "radial dev stop stops it"
	}
	bin, _ := dev.Bin()
	fmt.Fprintf(s.Out, `
Radial is ready. Its state is in %[1]s; %[2]s.

  export RADIAL_DIR=%[1]s KUBECONFIG=%[3]s
  radial app list                  # what Radial knows
  radial recipe list               # what it can provision
  %[4]s kubectl get nodes     # the kubectl that goes with the cluster
`, dir, stop, st.Kubeconfig, filepath.Join(bin, "devcluster"))
}

// detach runs the supervisor as a process of its own session and returns when it is ready or has failed.
func (s *session) detach(ctx context.Context, o dev.Options) error {
	dir, err := dev.Open(o.Dir) // what cannot work is said before anything starts
	if err != nil {
		return err
	}
	if pid, err := dir.Running(); err != nil {
		return err
	} else if pid != 0 {
		return &dev.RunningError{Dir: dir, PID: pid}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	log, err := os.OpenFile(filepath.Join(dir.Logs(), "dev.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	cmd := exec.Command(exe, "dev", "start", "--detached", "--dir", string(dir), "--port", strconv.Itoa(o.Port), "--node", o.Node)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{w}
	cmd.Dir = string(dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	if err := errors.Join(err, w.Close(), log.Close()); err != nil {
		return fmt.Errorf("cannot start the supervisor: %w", err)
	}
	// An interrupt while we wait stops what was begun.
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	tell := s.narrator(true)
	for lines := bufio.NewScanner(r); lines.Scan(); {
		var e dev.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("the supervisor says what is no event: %w", err)
		}
		tell(e)
		switch {
		case e.Ready != nil:
			return cmd.Process.Release()
		case e.Failed != "":
			_ = cmd.Wait() // its exit status says the same
			return errors.New(e.Failed)
		}
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return errors.New("interrupted: what had been started is stopped again")
	}
	return fmt.Errorf("the supervisor ended before it was ready (%w): look into %s", cmp.Or(err, io.EOF), filepath.Join(dir.Logs(), "dev.log"))
}

// runDetached is the supervisor of a detached start. It tells its parent what happens until everything is
// ready, and its log from then on.
func (s *session) runDetached(ctx context.Context, o dev.Options) error {
	events := os.NewFile(eventsFD, "events")
	listening := true
	send := func(e dev.Event) {
		if e.Note != "" || e.Failed != "" {
			fmt.Fprintf(s.Err, "%s %s\n", time.Now().UTC().Format(time.RFC3339), cmp.Or(e.Note, e.Failed))
		}
		if !listening {
			return
		}
		if err := json.NewEncoder(events).Encode(e); err != nil || e.Ready != nil || e.Failed != "" {
			listening = false
			_ = events.Close()
		}
	}
	syscall.CloseOnExec(eventsFD) // a child that kept it open would keep our parent waiting
	relay := make(chan dev.Event)
	ended := make(chan error, 1)
	go func() { ended <- dev.Run(ctx, o, func(e dev.Event) { relay <- e }) }()
	for {
		select {
		case e := <-relay:
			send(e)
		case err := <-ended:
			if err != nil {
				send(dev.Event{Failed: err.Error()})
			}
			return err
		}
	}
}

func (s *session) devStop() *cobra.Command {
	return &cobra.Command{
		Use: "stop", Short: "Stop everything; its state stays", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, _, err := s.stateDir()
			if err != nil {
				return err
			}
			var ran bool
			err = s.working(c.Context(), "stopping", func(context.Context) (err error) {
				ran, err = dev.Stop(dev.Dir(dir), stopLimit)
				return err
			})
			if err != nil {
				return err
			}
			if !ran {
				return s.done(map[string]any{"dir": dir, "stopped": false}, "Radial is not running on %s.", dir)
			}
			return s.done(map[string]any{"dir": dir, "stopped": true}, "Stopped. The state stays in %[1]s: radial dev start --dir %[1]s goes on with it.", dir)
		},
	}
}

// devState is what dev status tells.
type devState struct {
	Dir     string      `json:"dir"`
	Running bool        `json:"running"`
	Ready   bool        `json:"ready"`
	PID     int         `json:"pid,omitempty"`
	Status  *dev.Status `json:"status,omitempty"`
	// Server is "answers", or why it does not.
	Server string `json:"server,omitempty"`
}

func (s *session) devStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Tell what runs on the state directory", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			path, _, err := s.stateDir()
			if err != nil {
				return err
			}
			dir := dev.Dir(path)
			st := devState{Dir: path}
			if st.PID, err = dir.Running(); err != nil {
				return err
			}
			if st.PID == 0 {
				return s.done(st, "Radial is not running on %[1]s: radial dev start --dir %[1]s starts it.", path)
			}
			st.Running = true
			status, err := dir.Status()
			if errors.Is(err, os.ErrNotExist) {
				return s.done(st, "Radial is starting on %s (pid %d); logs are in %s.", path, st.PID, dir.Logs())
			}
			if err != nil {
				return err
			}
			st.Ready, st.Status, st.Server = true, &status, "answers"
			s.server = status.ServerURL
			ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
			defer cancel()
			if _, err := s.groups(ctx); err != nil {
				st.Server = err.Error()
			}
			return s.show(view{data: st, text: strings.Join([]string{
				fmt.Sprintf("Radial runs on %s (pid %d) since %s.", path, st.PID, status.Ready.Local().Format(time.DateTime)),
				fields([2]string{"Control plane", status.ServerURL + " " + st.Server}, [2]string{"Kubeconfig", status.Kubeconfig}, [2]string{"Node", status.Node}, [2]string{"Logs", dir.Logs()}),
			}, "\n")})
		},
	}
}
