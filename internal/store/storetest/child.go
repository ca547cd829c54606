package storetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/store"
)

// A child process of a store's tests is their own binary with a role in its
// environment.
const (
	envRole     = "RADIAL_TEST_ROLE"
	envLocation = "RADIAL_TEST_LOCATION"
	envPoint    = "RADIAL_TEST_CRASH_AT"
)

// nowhere is the point of a child that plays to its end.
const nowhere = -2

// Main is a TestMain: it runs the tests, or in a child process its role, which
// is given where the store is.
func Main(run func(), roles map[string]func(location string) error) {
	role := os.Getenv(envRole)
	if role == "" {
		if os.Getenv("RADIAL_REQUIRE_TOOLS") != "1" {
			// A plain run plays fewer sequences of calls against the model, which
			// take half of a store's time; -rapid.checks on the command line counts.
			if err := flag.Set("rapid.checks", "25"); err != nil {
				panic("storetest: " + err.Error()) // rapid has the flag
			}
		}
		run()
		return
	}
	play, known := roles[role]
	err := fmt.Errorf("unknown role %q", role)
	if known {
		err = play(os.Getenv(envLocation))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(0)
}

// Child is this binary in a role; it is not started.
func Child(t *testing.T, role, location string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), envRole+"="+role, envLocation+"="+location)
	cmd.Stderr = os.Stderr
	return cmd
}

// Last returns the number in the last line that starts with word, 0 without one.
func Last(out []byte, word string) int {
	n := 0
	for line := range strings.Lines(string(out)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), word+" "); ok {
			n, _ = strconv.Atoi(v)
		}
	}
	return n
}

// DumpOf is [Dump], which must succeed.
func DumpOf(t *testing.T, s store.Store) string {
	t.Helper()
	d, err := Dump(t.Context(), s)
	if err != nil {
		t.Fatalf("dump: %v", err)
	}
	return d
}

// Hold leases an operation for an hour, says its fence and waits to be killed.
func Hold(ctx context.Context, s store.Store, now time.Time) error {
	ls, err := s.Lease(ctx, store.Lease{Worker: "doomed", Max: 1, Now: now, Until: now.Add(time.Hour)})
	if err != nil || len(ls) != 1 {
		return fmt.Errorf("leased %d: %w", len(ls), err)
	}
	fmt.Println("holding", ls[0].Operation.Fence)
	select {}
}

// CrashPoint is where a child is to kill itself: 2n is before its effect n,
// 2n+1 in the middle of it, negative is nowhere.
func CrashPoint() (int64, error) { return strconv.ParseInt(os.Getenv(envPoint), 10, 64) }

// Die kills this process when effect n, counted from 0, is that of the point;
// half does the first half of the effect.
func Die(point, n int64, half func()) {
	if point < 0 || n != point/2 {
		return
	}
	if point%2 == 1 {
		half()
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// Play does the steps in a child and says how many returned.
func Play(ctx context.Context, s store.Store, steps []CrashStep) error {
	for i, step := range steps {
		if err := step.Do(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", step.Name, err)
		}
		fmt.Println("step", i+1)
	}
	return nil
}

// Crash is a store's test of sudden ends. Its child has the role "crash", plays
// [CrashSteps], dies at [CrashPoint] and says at its end how many effects there were.
type Crash struct {
	// Prepare returns where a new store lies that holds nothing.
	Prepare func(t *testing.T) string
	// Open opens a store; after a child was killed, when nothing of it is left.
	Open func(t *testing.T, location string) store.Store
	// Now is when no lease of the play holds any more.
	Now time.Time
	// Sample is how many points are taken; all with RADIAL_FAULT=all.
	Sample int
	// Effects are at least so many a step.
	Effects int
}

// Run kills processes before and in the middle of effects, opens what is left,
// and wants to find the state before or after the call that was under way, and a
// queue that runs empty. The seed of the sample is logged (RADIAL_SEED sets it).
func (c Crash) Run(t *testing.T) {
	// The states that an undisturbed run passes through.
	steps := CrashSteps()
	undisturbed := c.Open(t, c.Prepare(t))
	states := []string{DumpOf(t, undisturbed)}
	for _, step := range steps {
		if err := step.Do(t.Context(), undisturbed); err != nil {
			t.Fatalf("%s: %v", step.Name, err)
		}
		states = append(states, DumpOf(t, undisturbed))
	}
	for i := 1; i < len(states); i++ {
		if states[i] == states[i-1] && !slices.Contains([]string{"keyset", "renew", "heartbeat"}, steps[i-1].Name) {
			t.Fatalf("step %q leaves no trace in the dump", steps[i-1].Name)
		}
	}
	out, err := c.child(t, c.Prepare(t), nowhere).Output()
	if err != nil {
		t.Fatalf("undisturbed child: %v", err)
	}
	effects := Last(out, "effects")
	if effects < c.Effects*len(steps) {
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
		points = points[:c.Sample]
	}
	for _, p := range points {
		t.Run(fmt.Sprintf("point %d", p), func(t *testing.T) {
			t.Parallel()
			c.at(t, p, steps, states)
		})
	}
}

func (c Crash) child(t *testing.T, location string, point int) *exec.Cmd {
	cmd := Child(t, "crash", location)
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", envPoint, point))
	return cmd
}

func (c Crash) at(t *testing.T, point int, steps []CrashStep, states []string) {
	location := c.Prepare(t)
	out, err := c.child(t, location, point).Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child was not killed: %v\n%s", err, out)
	}
	done := Last(out, "step")
	name := "closing"
	if done < len(steps) {
		name = steps[done].Name
	}
	s := c.Open(t, location)
	got := DumpOf(t, s)
	if allowed := states[done:min(done+2, len(states))]; !slices.Contains(allowed, got) {
		t.Errorf("killed while %q ran, the store holds neither what was before nor what is after:\n%s\nbefore:\n%s\nafter:\n%s",
			name, got, allowed[0], allowed[len(allowed)-1])
	}
	if err := Drain(t.Context(), s, c.Now); err != nil {
		t.Errorf("killed while %q ran: %v", name, err)
	}
}
