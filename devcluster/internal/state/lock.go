package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dyingGrace is how long Open waits for the components of a supervisor that is gone. The kernel kills them
// with it; what takes time is only the end of a process with a few hundred megabytes.
const dyingGrace = 10 * time.Second

// LockedError says that another process uses the state directory.
type LockedError struct {
	Dir string
	PID int // of the supervisor that holds it; 0 when the lock does not say
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("state directory %s is in use by pid %d: stop that cluster (devcluster stop --state %s) or choose another --state", e.Dir, e.PID, e.Dir)
}

// LockFile locks the file at path, made if missing, and writes our pid into it. It is free again once every
// process that holds it or inherited it has closed it. When a living process holds it, the error is a
// *LockedError; when its holder is gone and only what that one started is still ending, it waits.
func LockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	err = tryLock(f)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		if pid := holder(path); alive(pid) {
			err = &LockedError{Dir: filepath.Dir(path), PID: pid}
		} else if err = waitLock(f, dyingGrace); err != nil {
			err = fmt.Errorf("%s: pid %d is gone, but what it started still holds the lock: %w", path, pid, err)
		}
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// waitLock blocks in the kernel until the lock is free. flock has no deadline of its own, so the wait runs
// beside a timer; when that wins, the waiting call ends with the process, which is about to fail anyway.
func waitLock(f *os.File, limit time.Duration) error {
	got := make(chan error, 1)
	go func() { got <- syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }()
	select {
	case err := <-got:
		return err
	case <-time.After(limit):
		return fmt.Errorf("not free within %s", limit)
	}
}

// holder reads the pid that the lock's owner wrote; 0 when there is none.
func holder(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

func alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := syscall.Kill(pid, 0)
	return (err == nil || errors.Is(err, syscall.EPERM)) && !zombie(pid)
}

// zombie tells whether a process has ended and only waits for its parent to notice: it runs nothing any more.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(b), ") ")
	return ok && strings.HasPrefix(rest, "Z")
}

// ErrNotRunning is returned by Stop when no cluster uses the directory.
var ErrNotRunning = errors.New("no cluster is running on this state directory")

// Stop ends the cluster that uses the directory at path, and returns once its last component is gone.
func Stop(ctx context.Context, path string) error {
	d := &Dir{path: path}
	f, err := os.OpenFile(d.lockPath(), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return ErrNotRunning
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := tryLock(f); err == nil {
		return ErrNotRunning
	}
	pid := holder(d.lockPath())
	if pid <= 0 {
		return fmt.Errorf("%s is locked, but does not say by whom", d.lockPath())
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop pid %d: %w", pid, err)
	}
	limit := time.Minute
	if end, ok := ctx.Deadline(); ok {
		limit = time.Until(end)
	}
	if err := waitLock(f, limit); err != nil {
		return fmt.Errorf("pid %d was asked to stop: %w", pid, err)
	}
	return nil
}
