package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const limit = time.Minute

// reports collects what a supervisor says and wakes whoever waits for it.
type reports struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{}
}

func (r *reports) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
	close(r.more)
	r.more = make(chan struct{})
}

// wait returns once n lines contain the text.
func (r *reports) wait(t *testing.T, text string, n int) {
	t.Helper()
	end := time.After(limit)
	for {
		r.mu.Lock()
		count, more, all := 0, r.more, strings.Join(r.lines, "\n")
		for _, l := range r.lines {
			if strings.Contains(l, text) {
				count++
			}
		}
		r.mu.Unlock()
		if count >= n {
			return
		}
		select {
		case <-more:
		case <-end:
			t.Fatalf("not %d lines with %q:\n%s", n, text, all)
		}
	}
}

func newTest(t *testing.T) (*Supervisor, *reports) {
	t.Helper()
	r := &reports{more: make(chan struct{})}
	s := New(Config{Logs: t.TempDir(), Report: r.add, Patience: 3, Backoff: Backoff{First: time.Millisecond, Max: 4 * time.Millisecond, Reset: time.Hour}})
	t.Cleanup(s.Shutdown)
	return s, r
}

func shell(script string) Spec {
	return Spec{Name: "part", Path: "/bin/sh", Args: []string{"-c", script}}
}

func TestDeadComponentIsStartedAgain(t *testing.T) {
	t.Parallel()
	s, r := newTest(t)
	s.Settled()
	if _, err := s.Start(shell("exit 3")); err != nil {
		t.Fatal(err)
	}
	r.wait(t, "ended: exit status 3; starting it again in", 5)
	r.wait(t, "part started again", 4)
}

func TestHopelessStartGivesUp(t *testing.T) {
	t.Parallel()
	s, _ := newTest(t)
	if _, err := s.Start(shell("echo flag provided but not defined; exit 2")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-s.Failed():
		for _, want := range []string{"part", "exit status 2", "flag provided but not defined"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
	case <-time.After(limit):
		t.Fatal("it never gives up")
	}
}

func TestMissingProgram(t *testing.T) {
	t.Parallel()
	s, _ := newTest(t)
	_, err := s.Start(Spec{Name: "part", Path: filepath.Join(t.TempDir(), "absent")})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "part") {
		t.Errorf("got %v", err)
	}
}

// fifo is a pipe through which a component says how far it has come: a read returns when it has written.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStopOrderAndGrace(t *testing.T) {
	t.Parallel()
	r := &reports{more: make(chan struct{})}
	s := New(Config{Logs: t.TempDir(), Report: r.add, Patience: 3, Backoff: DefaultBackoff})
	trace, up := filepath.Join(t.TempDir(), "trace"), fifo(t)
	polite := `trap 'kill $!; echo %[1]s >>` + trace + `; exit 0' TERM; sleep 1000 & echo up >` + up + `; wait`
	for _, c := range []struct {
		name, script string
		grace        time.Duration
	}{
		{"first", fmt.Sprintf(polite, "first"), 0},
		{"second", fmt.Sprintf(polite, "second"), 0},
		{"stubborn", `trap '' TERM; echo up >` + up + `; exec sleep 1000`, 50 * time.Millisecond},
	} {
		spec := shell(c.script)
		spec.Name, spec.Grace = c.name, c.grace
		if _, err := s.Start(spec); err != nil {
			t.Fatal(err)
		}
		if _, err := os.ReadFile(up); err != nil {
			t.Fatal(err)
		}
	}
	s.Shutdown()
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(strings.Fields(string(b)), " "); got != "second first" {
		t.Errorf("stopped in the order %q, want the last started first", got)
	}
	r.wait(t, "stubborn (pid", 1)
}

func TestKill(t *testing.T) {
	t.Parallel()
	for name, beforehand := range map[string]bool{"before the end": true, "while it waits for the end": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &reports{more: make(chan struct{})}
			s := New(Config{Logs: t.TempDir(), Report: r.add, Patience: 3, Backoff: DefaultBackoff})
			asked, up := fifo(t), fifo(t)
			scripts := []string{`trap '' TERM; echo up >` + up + `; exec sleep 1000`}
			if !beforehand {
				scripts = append(scripts, `trap 'kill $!; echo asked >`+asked+`; exit 0' TERM; sleep 1000 & echo up >`+up+`; wait`)
			}
			for _, script := range scripts {
				spec := shell(script)
				spec.Grace = time.Hour
				if _, err := s.Start(spec); err != nil {
					t.Fatal(err)
				}
				if _, err := os.ReadFile(up); err != nil {
					t.Fatal(err)
				}
			}
			ended := make(chan struct{})
			if beforehand {
				s.Kill()
			}
			go func() { s.Shutdown(); close(ended) }()
			if !beforehand {
				if _, err := os.ReadFile(asked); err != nil { // the other one is asked next, and does not end
					t.Fatal(err)
				}
				s.Kill()
			}
			select {
			case <-ended:
			case <-time.After(limit):
				t.Error("a component that ignores SIGTERM was not killed")
			}
		})
	}
}

func TestNotify(t *testing.T) {
	t.Parallel()
	s, _ := newTest(t)
	p, err := s.Start(Spec{Name: "part", Path: os.Args[0], Args: []string{"-test.run", "^TestHelperNotify$"}, Notify: true, Env: []string{helperEnv + "=1"}})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Ready():
	case <-time.After(limit):
		t.Fatal("its report did not arrive")
	}
}

const helperEnv = "DEVCLUSTER_TEST_NOTIFY"

// TestHelperNotify is the component of TestNotify.
func TestHelperNotify(t *testing.T) {
	if os.Getenv(helperEnv) == "" {
		t.Skip("it runs as a child of TestNotify")
	}
	conn, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("STATUS=almost\nREADY=1\n")); err != nil {
		t.Fatal(err)
	}
	select {} // until the supervisor stops it
}

func TestLogsOfOneRun(t *testing.T) {
	t.Parallel()
	s, _ := newTest(t)
	up := fifo(t)
	for i := range 2 {
		p, err := s.Start(shell(fmt.Sprintf("echo run %d; echo up >%s; exec sleep 1000", i, up)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.ReadFile(up); err != nil {
			t.Fatal(err)
		}
		p.Stop()
	}
	logs := s.cfg.Logs
	now, err := os.ReadFile(filepath.Join(logs, "part.log"))
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(filepath.Join(logs, "part.log.old"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(now), "run 0") || strings.Contains(string(old), "run 1") {
		t.Errorf("log %q, log of the run before %q", now, old)
	}
}

func TestBackoff(t *testing.T) {
	b := Backoff{First: time.Second, Max: 10 * time.Second}
	for attempt, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if got := b.Delay(attempt); got != want*time.Second {
			t.Errorf("attempt %d: %s, want %s", attempt, got, want*time.Second)
		}
	}
}
