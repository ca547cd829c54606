package sqlite_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
	"github.com/radial-project/radial/internal/store/storetest"
)

// A child process of these tests is this test binary with a role in its
// environment.
const (
	envRole = "RADIAL_TEST_ROLE" // crash, hold
	envDir  = "RADIAL_TEST_DIR"
	envAt   = "RADIAL_TEST_CRASH_AT"
)

func TestMain(m *testing.M) {
	switch role := os.Getenv(envRole); role {
	case "":
		os.Exit(m.Run())
	case "crash":
		childCrash(os.Getenv(envDir), os.Getenv(envAt))
	case "hold":
		childHold(os.Getenv(envDir))
	default:
		fail(fmt.Errorf("unknown role %q", role))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(3)
}

// child starts this binary in a role.
func child(t *testing.T, role, dir string, env ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), append(env, envRole+"="+role, envDir+"="+dir)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// childCrash plays the steps and kills itself at the given point: point 2n is
// before effect n on the disk, 2n+1 in the middle of it. It prints how many
// steps returned, and when it comes to its end how many effects there were.
func childCrash(dir, point string) {
	n, err := strconv.ParseInt(point, 10, 64)
	if err != nil {
		fail(err)
	}
	var effects atomic.Int64
	watchDisk(nil, dir, func(e effect) int32 {
		if effects.Add(1)-1 == n/2 {
			if n%2 == 1 {
				e.half()
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return 0
	})
	ctx := context.Background()
	s, err := sqlite.Open(ctx, filepath.Join(dir, "radial.db"), sqlite.Options{})
	if err != nil {
		fail(err)
	}
	for i, step := range storetest.CrashSteps() {
		if err := step.Do(ctx, s); err != nil {
			fail(fmt.Errorf("%s: %w", step.Name, err))
		}
		fmt.Println("step", i+1)
	}
	if err := s.Close(); err != nil {
		fail(err)
	}
	fmt.Println("effects", effects.Load())
	os.Exit(0)
}

// last returns the number in the last line that starts with word, 0 without one.
func last(out []byte, word string) int {
	n := 0
	for line := range strings.Lines(string(out)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), word+" "); ok {
			n, _ = strconv.Atoi(v)
		}
	}
	return n
}

// TestCrash_D18 kills a process before and in the middle of effects on its
// files, opens what is left, and wants to find the state before or after the
// call that was under way, and a queue that runs empty. RADIAL_FAULT=all takes
// every effect; otherwise it is a sample whose seed is logged (RADIAL_SEED sets
// it).
func TestCrash_D18(t *testing.T) {
	t.Parallel()
	// The states that an undisturbed run passes through.
	steps := storetest.CrashSteps()
	undisturbed := open(t)
	states := []string{dump(t, undisturbed)}
	for _, step := range steps {
		if err := step.Do(t.Context(), undisturbed); err != nil {
			t.Fatalf("%s: %v", step.Name, err)
		}
		states = append(states, dump(t, undisturbed))
	}
	for i := 1; i < len(states); i++ {
		if states[i] == states[i-1] && !slices.Contains([]string{"keyset", "renew", "heartbeat"}, steps[i-1].Name) {
			t.Fatalf("step %q leaves no trace in the dump", steps[i-1].Name)
		}
	}

	out, err := child(t, "crash", t.TempDir(), envAt+"=-2").Output()
	if err != nil {
		t.Fatalf("undisturbed child: %v", err)
	}
	effects := last(out, "effects")
	if effects < 4*len(steps) {
		t.Fatalf("only %d effects were seen", effects)
	}
	points := make([]int, 2*effects)
	for i := range points {
		points[i] = i
	}
	if os.Getenv("RADIAL_FAULT") != "all" {
		seed, err := strconv.ParseUint(os.Getenv("RADIAL_SEED"), 10, 64)
		if err != nil {
			seed = uint64(time.Now().UnixNano())
		}
		t.Logf("a sample of %d points, RADIAL_SEED=%d", len(points), seed)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
		points = points[:60]
	}
	for _, p := range points {
		t.Run(fmt.Sprintf("point %d", p), func(t *testing.T) {
			t.Parallel()
			crashAt(t, p, steps, states)
		})
	}
}

func crashAt(t *testing.T, point int, steps []storetest.CrashStep, states []string) {
	dir := t.TempDir()
	out, err := child(t, "crash", dir, fmt.Sprintf("%s=%d", envAt, point)).Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child was not killed: %v", err)
	}
	done := last(out, "step")
	name := "closing"
	if done < len(steps) {
		name = steps[done].Name
	}
	s := open(t, storetest.Dir(dir))
	got := dump(t, s)
	if allowed := states[done:min(done+2, len(states))]; !slices.Contains(allowed, got) {
		t.Errorf("killed while %q ran, the store holds neither what was before nor what is after:\n%s\nbefore:\n%s\nafter:\n%s",
			name, got, allowed[0], allowed[len(allowed)-1])
	}
	// The lock says that no worker lives: nothing waits for a lease to run out.
	if err := storetest.Drain(t.Context(), s, crashTime); err != nil {
		t.Errorf("killed while %q ran: %v", name, err)
	}
}

// crashTime is the time of all leases in the play.
var crashTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func dump(t *testing.T, s store.Store) string {
	t.Helper()
	d, err := storetest.Dump(t.Context(), s)
	if err != nil {
		t.Fatalf("dump: %v", err)
	}
	return d
}

// childHold opens the store, leases an operation for an hour and waits to be
// killed.
func childHold(dir string) {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, filepath.Join(dir, "radial.db"), sqlite.Options{})
	if err != nil {
		fail(err)
	}
	for _, step := range storetest.CrashSteps()[:10] { // until the parent is parked
		if err := step.Do(ctx, s); err != nil {
			fail(fmt.Errorf("%s: %w", step.Name, err))
		}
	}
	ls, err := s.Lease(ctx, store.Lease{Worker: "doomed", Max: 1, Now: crashTime, Until: crashTime.Add(time.Hour)})
	if err != nil || len(ls) != 1 {
		fail(fmt.Errorf("leased %d: %w", len(ls), err))
	}
	fmt.Println("holding", ls[0].Operation.Fence)
	select {}
}

// TestLock_D43 lets a second process meet the first, and takes over from it
// when it is killed.
func TestLock_D43(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := child(t, "hold", dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	for lines := bufio.NewScanner(stdout); !strings.Contains(said.String(), "holding"); {
		if !lines.Scan() {
			t.Fatalf("the child ended: %v", cmd.Wait())
		}
		said.Write(lines.Bytes())
		said.WriteByte('\n')
	}
	_, err = sqlite.Open(t.Context(), filepath.Join(dir, "radial.db"), sqlite.Options{})
	if !core.IsCode(err, core.CodeUnavailable) {
		t.Fatalf("second process: %v", err)
	}
	for _, part := range []string{dir, fmt.Sprintf("process %d", cmd.Process.Pid), "stop that process"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed

	t.Run("D-18 a killed worker's operation is taken over at once after a restart", func(t *testing.T) {
		s := open(t, storetest.Dir(dir))
		ls, err := s.Lease(t.Context(), store.Lease{Worker: "next", Max: 2, Now: crashTime, Until: crashTime.Add(time.Second)})
		if err != nil || len(ls) != 1 || ls[0].Operation.ID != "put-b" || int(ls[0].Operation.Fence) <= last(said.Bytes(), "holding") {
			t.Fatalf("leased %+v (%v), want put-b under a newer fence", ls, err)
		}
		parent, err := s.Operation(t.Context(), "put-a")
		if err != nil || !parent.Parked || parent.Children != 1 {
			t.Errorf("D-45: the parked operation came back as %+v (%v)", parent, err)
		}
		if err := storetest.Drain(t.Context(), s, crashTime.Add(time.Second)); err != nil {
			t.Error(err)
		}
	})
}
