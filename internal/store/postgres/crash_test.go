package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/pgtest"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/postgres"
	"github.com/radial-project/radial/internal/store/storetest"
)

// A child process of these tests is this test binary with a role in its
// environment.
const (
	envRole = "RADIAL_TEST_ROLE" // crash, hold, write
	envDSN  = "RADIAL_TEST_DSN"
	envAt   = "RADIAL_TEST_CRASH_AT"
)

func TestMain(m *testing.M) {
	switch role := os.Getenv(envRole); role {
	case "":
		pgtest.Main(m)
	case "crash":
		childCrash(os.Getenv(envDSN), os.Getenv(envAt))
	case "hold":
		childHold(os.Getenv(envDSN))
	case "write":
		childWrite(os.Getenv(envDSN))
	default:
		fail(fmt.Errorf("unknown role %q", role))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(3)
}

// child starts this binary in a role.
func child(t *testing.T, role, dsn string, env ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), append(env, envRole+"="+role, envDSN+"="+dsn)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// killer is a connection that kills the process at a point of its writes: 2n is
// before write n, 2n+1 when half of it is sent.
type killer struct {
	net.Conn
	writes *atomic.Int64
	at     int64
}

func (k killer) Write(p []byte) (int, error) {
	if k.writes.Add(1)-1 == k.at/2 && k.at >= 0 {
		if k.at%2 == 1 {
			_, _ = k.Conn.Write(p[:len(p)/2])
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return k.Conn.Write(p)
}

// childCrash plays the steps and kills itself at the given point. It prints how
// many steps returned, and when it comes to its end how many writes there were.
func childCrash(dsn, point string) {
	at, err := strconv.ParseInt(point, 10, 64)
	if err != nil {
		fail(err)
	}
	var writes atomic.Int64
	ctx := context.Background()
	s, err := postgres.Open(ctx, dsn, postgres.Options{}.WithDial(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return killer{conn, &writes, at}, nil
	}))
	if err != nil {
		fail(err)
	}
	for i, step := range storetest.CrashSteps() {
		if err := step.Do(ctx, s); err != nil {
			fail(fmt.Errorf("%s: %w", step.Name, err))
		}
		fmt.Println("step", i+1)
	}
	fmt.Println("writes", writes.Load())
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

// crashTime is after all leases of the play.
var crashTime = time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)

func dump(t *testing.T, s store.Store) string {
	t.Helper()
	d, err := storetest.Dump(t.Context(), s)
	if err != nil {
		t.Fatalf("dump: %v", err)
	}
	return d
}

// TestCrash_D18 kills a process before and in the middle of what it sends to the
// server, and wants to find the state before or after the call that was under
// way, and a queue that runs empty once the leases ran out. RADIAL_FAULT=all
// takes every point; otherwise it is a sample whose seed is logged (RADIAL_SEED
// sets it).
func TestCrash_D18(t *testing.T) {
	t.Parallel()
	empty := pgtest.Database(t)
	s, err := postgres.Open(t.Context(), empty, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	pgtest.Alone(t, empty)
	// The states that an undisturbed run passes through.
	steps := storetest.CrashSteps()
	undisturbed := openAt(t, pgtest.Copy(t, empty))
	states := []string{dump(t, undisturbed)}
	for _, step := range steps {
		if err := step.Do(t.Context(), undisturbed); err != nil {
			t.Fatalf("%s: %v", step.Name, err)
		}
		states = append(states, dump(t, undisturbed))
	}
	out, err := child(t, "crash", pgtest.Copy(t, empty), envAt+"=-1").Output()
	if err != nil {
		t.Fatalf("undisturbed child: %v", err)
	}
	writes := last(out, "writes")
	if writes < 2*len(steps) {
		t.Fatalf("only %d writes were seen", writes)
	}
	points := make([]int, 2*writes)
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
		points = points[:40]
	}
	for _, p := range points {
		t.Run(fmt.Sprintf("point %d", p), func(t *testing.T) {
			t.Parallel()
			crashAt(t, p, pgtest.Copy(t, empty), steps, states)
		})
	}
}

func crashAt(t *testing.T, point int, dsn string, steps []storetest.CrashStep, states []string) {
	out, err := child(t, "crash", dsn, fmt.Sprintf("%s=%d", envAt, point)).Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child was not killed: %v\n%s", err, out)
	}
	pgtest.Alone(t, dsn)
	done := last(out, "step")
	name := "closing"
	if done < len(steps) {
		name = steps[done].Name
	}
	s := openAt(t, dsn)
	got := dump(t, s)
	if allowed := states[done:min(done+2, len(states))]; !slices.Contains(allowed, got) {
		t.Errorf("killed while %q ran, the store holds neither what was before nor what is after:\n%s\nbefore:\n%s\nafter:\n%s",
			name, got, allowed[0], allowed[len(allowed)-1])
	}
	if err := storetest.Drain(t.Context(), s, crashTime); err != nil {
		t.Errorf("killed while %q ran: %v", name, err)
	}
}
