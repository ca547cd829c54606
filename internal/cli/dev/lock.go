package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dyingGrace is how long a start waits for the children of a supervisor that was killed. The kernel kills
// them with it; only their end takes a moment.
const dyingGrace = 15 * time.Second

// RunningError says that a supervisor already works on the directory.
type RunningError struct {
	Dir Dir
	PID int
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("Radial is already running on %[1]s (pid %[2]d): use it as it is (radial dev status --dir %[1]s), end it first (radial dev stop --dir %[1]s), or choose another --dir", e.Dir, e.PID)
}

// LockedError says that something that is no supervisor holds the directory's lock.
type LockedError struct {
	Dir     Dir
	PID     int    // 0 when the system does not tell
	Command string // the holder's name, "" when unknown
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.PID > 0 {
		who = fmt.Sprintf("another process (pid %d", e.PID)
		if e.Command != "" {
			who += ", " + e.Command
		}
		who += ")"
	}
	return fmt.Sprintf("%s is locked by %s: end it, or choose another --dir", e.Dir, who)
}

func (d Dir) lockPath() string { return d.join("lock") }

// lock takes the directory for this process and writes its pid into the lock file. The file stays open, and
// is handed to the children, for as long as the directory is in use.
func (d Dir) lock() (*os.File, error) {
	f, err := os.OpenFile(d.lockPath(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unwritable(string(d), err)
	}
	err = tryLock(f)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = d.heldBy()
		if err == nil { // the supervisor is dead, its children are dying
			err = waitLock(f, dyingGrace)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			pid := lockHolder(d.lockPath())
			err = &LockedError{Dir: d, PID: pid, Command: command(pid)}
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

// heldBy returns who holds the lock as an error, nil when it is a supervisor that no longer lives.
func (d Dir) heldBy() error {
	pid := writtenPID(d.lockPath())
	if alive(pid) && isSupervisor(pid) {
		return &RunningError{Dir: d, PID: pid}
	}
	if pid > 0 && !alive(pid) {
		return nil
	}
	pid = lockHolder(d.lockPath())
	return &LockedError{Dir: d, PID: pid, Command: command(pid)}
}

// Running returns the pid of the supervisor that works on the directory, 0 when none does.
func (d Dir) Running() (int, error) {
	f, err := os.OpenFile(d.lockPath(), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	switch err := tryLock(f); {
	case err == nil:
		return 0, nil
	case !errors.Is(err, syscall.EWOULDBLOCK):
		return 0, fmt.Errorf("%s: %w", d.lockPath(), err)
	}
	var running *RunningError
	switch err := d.heldBy(); {
	case errors.As(err, &running):
		return running.PID, nil
	default:
		return 0, err
	}
}

// Stop ends what runs on the directory and returns when all of it has ended; ran is false when nothing did.
func Stop(d Dir, limit time.Duration) (ran bool, err error) {
	pid, err := d.Running()
	if pid == 0 || err != nil {
		return false, err
	}
	f, err := os.OpenFile(d.lockPath(), os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	ended := watchEnd(pid)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return false, fmt.Errorf("cannot stop pid %d: %w", pid, err)
	}
	if err := waitLock(f, limit); err != nil {
		return true, fmt.Errorf("pid %d was asked to stop %s ago and something of it still runs: look into %s, or kill it (kill -9 %d; its children end with it)", pid, limit, d.Logs(), pid)
	}
	<-ended // a process gives its files back a moment before it ends
	return true, nil
}

// watchEnd returns a channel that is closed when the process has ended; at once where the system cannot tell.
func watchEnd(pid int) <-chan struct{} {
	ended := make(chan struct{})
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		close(ended)
		return ended
	}
	go func() {
		defer close(ended)
		defer unix.Close(fd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	return ended
}

func tryLock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// waitLock blocks in the kernel until the lock is free. flock has no deadline of its own, so it runs beside a
// timer; when that wins, the call that still waits ends with the process, which is about to fail.
func waitLock(f *os.File, limit time.Duration) error {
	got := make(chan error, 1)
	go func() {
		for {
			err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
			if !errors.Is(err, syscall.EINTR) {
				got <- err
				return
			}
		}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-got:
		return err
	case <-timer.C:
		return context.DeadlineExceeded
	}
}

// writtenPID reads the pid that the lock's owner wrote; 0 when there is none.
func writtenPID(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}

// lockHolder asks the kernel who holds a flock on the file; 0 when it does not tell.
func lockHolder(path string) int {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	f, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer f.Close()
	inode := ":" + strconv.FormatUint(sys.Ino, 10)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 4711 fd:01:131090 0 EOF; a waiter's line has "->" in the second field.
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || !strings.HasSuffix(fields[5], inode) {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

func command(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// isSupervisor tells a radial from a process that was given the pid of one that is gone. Where the system does
// not say what a process is, the pid is believed.
func isSupervisor(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return true
	}
	args := strings.Split(string(b), "\x00")
	for i := 1; i+1 < len(args); i++ {
		if args[i] == "dev" && args[i+1] == "start" {
			return true
		}
	}
	return pid == os.Getpid()
}

func alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	if err := syscall.Kill(pid, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return false
	}
	// A process that ended and only waits for its parent to notice runs nothing any more.
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return true
	}
	_, rest, ok := strings.Cut(string(b), ") ")
	return !ok || !strings.HasPrefix(rest, "Z")
}
