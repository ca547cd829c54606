package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// program is one child process to keep running.
type program struct {
	name string
	path string
	args []string
	// readyFile is written by the program once it serves; "" when it says so otherwise.
	readyFile string
	// grace is the time between SIGTERM and SIGKILL.
	grace time.Duration
}

// patience is how many times a program may die before everything is ready. A program that cannot start has a
// wrong flag or a broken store more often than bad luck.
const patience = 3

// maxLog is the size from which a log is set aside at a start.
const maxLog = 32 << 20

// backoff after a death: the wait doubles up to max, and a run that lasted reset counts as good.
type backoff struct{ first, max, reset time.Duration }

var restarts = backoff{first: 100 * time.Millisecond, max: 10 * time.Second, reset: 20 * time.Second}

func (b backoff) delay(attempt int) time.Duration {
	d := b.first
	for range attempt {
		if d >= b.max/2 {
			return b.max
		}
		d *= 2
	}
	return d
}

// keeper starts programs and starts them again when they die. All of them die with this process.
type keeper struct {
	logs    string
	inherit *os.File // handed to every child, so that the lock outlives this process by its children
	report  func(string)
	spawn   chan func()
	failed  chan error // at most one: why the keeper gave up
	settled atomic.Bool

	mu       sync.Mutex
	children []*child
}

func newKeeper(logs string, inherit *os.File, report func(string)) *keeper {
	k := &keeper{logs: logs, inherit: inherit, report: report, spawn: make(chan func()), failed: make(chan error, 1)}
	go func() {
		// Every fork runs on one thread that lives as long as the keeper: the kernel sends a child its
		// parent-death signal when the THREAD that forked it ends, and Go ends threads as it likes.
		runtime.LockOSThread()
		for f := range k.spawn {
			f()
		}
	}()
	return k
}

// start starts a program; the error is about its first start only.
func (k *keeper) start(p program) (*child, error) {
	c := &child{program: p, keeper: k, stop: make(chan struct{}), done: make(chan struct{}), ready: make(chan struct{})}
	if err := c.rotate(); err != nil {
		return nil, err
	}
	cmd, err := c.launch()
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	k.mu.Lock()
	k.children = append(k.children, c)
	k.mu.Unlock()
	go c.keep(cmd)
	if p.readyFile != "" {
		if err := watchFile(c.done, p.readyFile, c.isReady); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// shutdown stops the children one after the other, the last started first, so that none is taken away from one
// that still needs it. It returns when all have ended.
func (k *keeper) shutdown() {
	k.mu.Lock()
	children := k.children
	k.children = nil
	k.mu.Unlock()
	for i := len(children) - 1; i >= 0; i-- {
		children[i].end()
	}
	close(k.spawn)
}

func (k *keeper) giveUp(err error) {
	select {
	case k.failed <- err:
	default: // the first reason is the one to tell
	}
}

// child is one program under the keeper.
type child struct {
	program
	keeper *keeper
	once   sync.Once
	stop   chan struct{} // closed to ask for the end
	done   chan struct{} // closed at the end

	readyOnce sync.Once
	ready     chan struct{} // closed when the program first said that it serves
}

func (c *child) end() {
	c.once.Do(func() { close(c.stop) })
	<-c.done
}

func (c *child) log() string { return filepath.Join(c.keeper.logs, c.name+".log") }

func (c *child) rotate() error {
	info, err := os.Stat(c.log())
	if err != nil || info.Size() < maxLog {
		return nil // absent, or small enough to go on with
	}
	return os.Rename(c.log(), c.log()+".old")
}

func (c *child) launch() (*exec.Cmd, error) {
	if c.readyFile != "" {
		if err := remove(c.readyFile); err != nil {
			return nil, err
		}
	}
	log, err := os.OpenFile(c.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(c.path, c.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{c.keeper.inherit}
	// What the user's shell says to Radial's clients is not meant for its processes: each gets everything
	// by flags, and a kubeconfig or a RADIAL_ variable left over from elsewhere must not reach them.
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RADIAL_") && !strings.HasPrefix(v, "KUBECONFIG=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// A process group of its own keeps the terminal's Ctrl-C from the children: they are stopped in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	result := make(chan error, 1)
	c.keeper.spawn <- func() { result <- cmd.Start() }
	if err := <-result; err != nil {
		return nil, err
	}
	return cmd, nil
}

func (c *child) isReady() { c.readyOnce.Do(func() { close(c.ready) }) }

// await waits until the child is ready for the first time.
func (c *child) await(ctx context.Context, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.ready:
		return nil
	case err := <-c.keeper.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("%s was not ready within %s; the end of %s:\n%s", c.name, limit, c.log(), c.tail())
	}
}

// keep waits for the program's end and starts it again, until it is asked to stop.
func (c *child) keep(cmd *exec.Cmd) {
	defer close(c.done)
	deaths, attempt := 0, 0
	for {
		var err error
		if cmd != nil {
			started := time.Now()
			if err = c.wait(cmd); err == nil {
				return
			}
			if time.Since(started) >= restarts.reset {
				attempt = 0
			}
		}
		deaths++
		if !c.keeper.settled.Load() && deaths >= patience {
			c.keeper.giveUp(fmt.Errorf("%s does not start: %w; the end of %s:\n%s", c.name, errOr(err, "see its log"), c.log(), c.tail()))
			<-c.stop
			return
		}
		delay := restarts.delay(attempt)
		attempt++
		if err != nil {
			c.keeper.report(fmt.Sprintf("%v; starting it again in %s (log: %s)", err, delay, c.log()))
		}
		timer := time.NewTimer(delay)
		select {
		case <-c.stop:
			timer.Stop()
			return
		case <-timer.C:
		}
		if cmd, err = c.launch(); err != nil {
			cmd = nil
			c.keeper.report(fmt.Sprintf("%s does not start: %v", c.name, err))
			continue
		}
		c.keeper.report(fmt.Sprintf("%s started again (pid %d)", c.name, cmd.Process.Pid))
	}
}

// wait returns when the run has ended: nil when it was asked to, else how it ended.
func (c *child) wait(cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return fmt.Errorf("%s (pid %d) ended: %w", c.name, cmd.Process.Pid, errOr(err, "exit status 0"))
	case <-c.stop:
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // already ended: the wait below returns at once
	timer := time.NewTimer(c.grace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		c.keeper.report(fmt.Sprintf("%s (pid %d) did not stop within %s and is killed", c.name, cmd.Process.Pid, c.grace))
		_ = cmd.Process.Kill()
		<-ended
	}
	return nil
}

// tail is the end of the log, for an error.
func (c *child) tail() string {
	f, err := os.Open(c.log())
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const most = 4 << 10
	if info, err := f.Stat(); err == nil && info.Size() > most {
		if _, err := f.Seek(-most, 2); err != nil {
			return err.Error()
		}
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(f); err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if len(lines) > 12 {
		lines = lines[len(lines)-12:]
	}
	return "    " + strings.Join(lines, "\n    ")
}

func errOr(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

// watchFile calls found once the file exists, until stop is closed.
func watchFile(stop <-chan struct{}, path string, found func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err := w.Add(filepath.Dir(path)); err != nil {
		return errors.Join(err, w.Close())
	}
	exists := func() bool { _, err := os.Stat(path); return err == nil }
	go func() {
		defer w.Close()
		for !exists() {
			select {
			case <-stop:
				return
			case <-w.Events:
			case <-w.Errors: // an overflow: look again
			}
		}
		found()
	}()
	return nil
}
