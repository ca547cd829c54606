package sqlite_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
	"github.com/radial-project/radial/internal/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.Main(func() { os.Exit(m.Run()) }, map[string]func(dir string) error{"crash": childCrash, "hold": childHold})
}

// childCrash plays the steps, and the effects that it counts are on the disk.
func childCrash(dir string) error {
	point, err := storetest.CrashPoint()
	if err != nil {
		return err
	}
	var effects atomic.Int64
	watchDisk(nil, dir, func(e effect) int32 {
		storetest.Die(point, effects.Add(1)-1, e.half)
		return 0
	})
	ctx := context.Background()
	s, err := sqlite.Open(ctx, filepath.Join(dir, "radial.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	if err := storetest.Play(ctx, s, storetest.CrashSteps()); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	fmt.Println("effects", effects.Load())
	return nil
}

// TestCrash_D18 kills a process before and in the middle of effects on its
// files. The lock says then that no worker lives: nothing waits for a lease to
// run out.
func TestCrash_D18(t *testing.T) {
	t.Parallel()
	storetest.Crash{
		Prepare: func(t *testing.T) string { return t.TempDir() },
		Open:    func(t *testing.T, dir string) store.Store { return open(t, storetest.Dir(dir)) },
		Now:     crashTime, Sample: 60, Effects: 4,
	}.Run(t)
}

// crashTime is the time of all leases in the play.
var crashTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// childHold opens the store, plays until the parent is parked, and holds a lease.
func childHold(dir string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, filepath.Join(dir, "radial.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	for _, step := range storetest.CrashSteps()[:10] {
		if err := step.Do(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", step.Name, err)
		}
	}
	return storetest.Hold(ctx, s, crashTime)
}

// TestLock_D43 lets a second process meet the first, and takes over from it
// when it is killed.
func TestLock_D43(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := storetest.Child(t, "hold", dir)
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
		if err != nil || len(ls) != 1 || ls[0].Operation.ID != "put-b" || int(ls[0].Operation.Fence) <= storetest.Last(said.Bytes(), "holding") {
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
