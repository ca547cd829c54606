package state

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func TestPortIsKept(t *testing.T) {
	path := t.TempDir()
	open := func() *Dir {
		d, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := open()
	first, err := d.Port(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = open()
	defer d.Close()
	if again, err := d.Port(0); err != nil || again != first {
		t.Errorf("port %d, %v; want %d as before", again, err, first)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	var err2 *PortTakenError
	if _, err := d.Port(taken); !errors.As(err, &err2) || err2.Port != taken || err2.Kept {
		t.Errorf("a port that is taken: %v", err)
	}
	if again, err := d.Port(0); err != nil || again != first {
		t.Errorf("a refused port replaced the kept one: %d, %v", again, err)
	}

	if err := os.WriteFile(d.portPath(), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Port(0); err == nil || !strings.Contains(err.Error(), d.portPath()) {
		t.Errorf("a damaged port file: %v", err)
	}
}

func TestLockNamesItsHolder(t *testing.T) {
	path := t.TempDir()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var locked *LockedError
	if _, err := Open(path); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Fatalf("a second holder: %v, want a refusal that names pid %d", err, os.Getpid())
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err = Open(path); err != nil {
		t.Fatalf("after its holder closed it: %v", err)
	}
	defer d.Close()
}

// A supervisor that was killed leaves components that hold the lock until they have ended: the next start
// waits for them instead of refusing.
func TestLockWaitsForDyingComponents(t *testing.T) {
	path := t.TempDir()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	component := exec.Command("/bin/cat")
	component.ExtraFiles = []*os.File{d.LockFile()}
	alive, err := component.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := component.Start(); err != nil {
		t.Fatal(err)
	}
	// As if the supervisor were gone: its descriptor is closed, and its pid is that of a process that ended.
	gone := exec.Command("/bin/true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.lockPath(), []byte(strconv.Itoa(gone.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		d, err := Open(path)
		if err == nil {
			err = d.Close()
		}
		opened <- err
	}()
	alive.Close()
	if err := component.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

func TestStopWithoutCluster(t *testing.T) {
	path := t.TempDir()
	if err := Stop(context.Background(), path); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a directory that never had one: %v", err)
	}
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Stop(context.Background(), path); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a directory whose cluster has stopped: %v", err)
	}
}
