package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/radial-project/radial/internal/cli"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/ocitest"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// TestMain makes this test program the command line itself when a script calls it.
func TestMain(m *testing.M) {
	run := func() {
		os.Exit(cli.Run(context.Background(), cli.Surroundings{
			Args: os.Args, In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv,
		}))
	}
	// asking behaves as on a terminal: it asks, and shows progress.
	asking := func() {
		os.Exit(cli.Run(context.Background(), cli.Surroundings{
			Args: append([]string{"radial"}, os.Args[1:]...), In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Asks: true, Terminal: true,
		}))
	}
	testscript.Main(clustered{m}, map[string]func(){"radial": run, "kubectl-radial": run, "radial-asking": asking})
}

// clustered ends the cluster that tests started.
type clustered struct{ m *testing.M }

func (c clustered) Run() int {
	code := c.m.Run()
	if err := clustertest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "clustertest:", err)
		code = max(code, 1)
	}
	return code
}

// TestScripts runs every script against a real control plane of its own.
func TestScripts(t *testing.T) {
	program := clustertest.Program(t, "radial-server")
	var planes sync.Map // what stops the plane of a script, by its folder
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			url, stop, err := startServer(program, filepath.Join(e.WorkDir, ".server"))
			if err != nil {
				return err
			}
			e.Defer(stop)
			e.Setenv("RADIAL_SERVER", url)
			e.Setenv("SERVER", url)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits,
			// plane DIR starts a second control plane on DIR, of which RADIAL_SERVER is the address; stopped stops it.
			"plane": func(ts *testscript.TestScript, _ bool, args []string) {
				url, stop, err := startServer(program, ts.MkAbs(args[0]))
				ts.Check(err)
				stop = sync.OnceFunc(stop)
				planes.Store(ts.Getenv("WORK"), stop)
				ts.Defer(stop)
				ts.Setenv("RADIAL_SERVER", url)
			},
			"stopped": func(ts *testscript.TestScript, _ bool, _ []string) {
				stop, _ := planes.Load(ts.Getenv("WORK"))
				stop.(func())()
			},
			// audited DIR makes a store with three decisions in its audit log: of two hours, a minute and half a minute ago.
			"audited": func(ts *testscript.TestScript, _ bool, args []string) {
				dir := ts.MkAbs(args[0])
				ts.Check(os.MkdirAll(dir, 0o700))
				s, err := sqlite.Open(context.Background(), filepath.Join(dir, "radial.db"), sqlite.Options{})
				ts.Check(err)
				const groups = "/planes/radius/local/resourceGroups/"
				now := time.Now()
				ts.Check(s.AppendAudit(context.Background(), []store.AuditRecord{
					{Time: now.Add(-2 * time.Hour), Principal: "user:ann", Action: "write", Target: groups + "old", Allowed: true, Reason: "root"},
					{Time: now.Add(-time.Minute), Principal: "user:bob", Action: "delete", Target: groups + "other", Reason: "role Contributor is missing"},
					{Time: now.Add(-time.Minute / 2), Principal: "user:ann", Action: "write Applications.Core/extenders", Allowed: true,
						Target: groups + "g/providers/Applications.Core/extenders/x", Reason: "Contributor of user:ann"},
				}))
				ts.Check(s.Close())
			},
			// registry starts a registry and puts its address into $REGISTRY.
			"registry": func(ts *testscript.TestScript, _ bool, _ []string) {
				dir := ts.MkAbs(".registry")
				ts.Check(os.MkdirAll(dir, 0o700))
				address, stop, err := ocitest.Start(clustertest.Program(t, "registry"), dir, "")
				ts.Check(err)
				ts.Defer(stop)
				ts.Setenv("REGISTRY", address)
			},
		},
		// A script that needs a program asks for it by its name, and is skipped without.
		Condition: func(name string) (bool, error) {
			if name != "registry" {
				return false, fmt.Errorf("there is no condition %q", name)
			}
			return clustertest.Has(name), nil
		},
	})
}

// exits CODE PROGRAM ARGS... runs a program and demands its exit code; stdout and stderr are for what follows.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGS...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, not %d", got, want)
	}
}

// startServer starts a control plane without a cluster and returns its URL once it answers.
func startServer(program, dir string) (url string, stop func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	ready := filepath.Join(dir, "ready")
	_ = os.Remove(ready)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return "", nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, "--developer-mode", "--listen", "127.0.0.1:0", "--store", filepath.Join(dir, "radial.db"), "--key-file", filepath.Join(dir, "key"), "--ready-file", ready)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for {
		if b, err := os.ReadFile(ready); err == nil {
			return strings.TrimSpace(string(b)), stop, nil
		}
		select {
		case <-tick.C:
		case <-ended:
			b, _ := os.ReadFile(log.Name())
			return "", nil, errors.New("radial-server ended before it was ready: " + string(b))
		case <-limit:
			stop()
			return "", nil, errors.New("radial-server was not ready within a minute")
		}
	}
}
