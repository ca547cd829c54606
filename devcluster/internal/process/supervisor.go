// Package process runs a cluster's components as child processes: each has its own log, is started again
// when it dies, and never outlives the supervisor.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Spec describes one component.
type Spec struct {
	Name string
	Path string   // executable
	Args []string // without the program's name
	Dir  string   // working directory
	Env  []string // added to ours

	// Inherit is handed down as file descriptor 3 when it is not nil.
	Inherit *os.File

	// Notify gives the component a NOTIFY_SOCKET in the manner of systemd; Process.Ready is closed when it
	// first reports READY=1.
	Notify bool

	// Namespaces are CLONE_NEW… flags: the component starts as the first process of its own namespaces.
	Namespaces uintptr

	// Grace is how long the component has between SIGTERM and SIGKILL; 0 means DefaultGrace.
	Grace time.Duration
}

// DefaultGrace is the time a component has to stop on its own.
const DefaultGrace = 10 * time.Second

// Config is what a Supervisor needs.
type Config struct {
	Logs    string                           // directory for NAME.log
	Report  func(format string, args ...any) // tells a person what happened; one line without its end
	Backoff Backoff

	// Patience is how many times a component may die before Settled is called. After that many, the
	// supervisor gives up: a component that cannot start has a wrong flag more often than bad luck.
	Patience int
}

// Supervisor starts components and keeps them running.
type Supervisor struct {
	cfg     Config
	spawn   chan func()
	failed  chan error
	settled atomic.Bool

	killing  chan struct{} // closed by Kill
	killOnce sync.Once

	mu        sync.Mutex
	processes []*Process // in the order of their start
}

// New returns a supervisor. Shutdown must be called at the end.
func New(cfg Config) *Supervisor {
	s := &Supervisor{cfg: cfg, spawn: make(chan func()), failed: make(chan error, 1), killing: make(chan struct{})}
	go s.spawner()
	return s
}

// spawner runs every fork on one thread that lives as long as the supervisor: the kernel sends a child its
// parent-death signal when the THREAD that forked it ends, and Go ends threads as it likes.
func (s *Supervisor) spawner() {
	runtime.LockOSThread()
	for f := range s.spawn {
		f()
	}
}

// Failed delivers the error with which a component made the supervisor give up, at most one.
func (s *Supervisor) Failed() <-chan error { return s.failed }

// Settled says that the start is over: from now on a component that dies is started again without end.
func (s *Supervisor) Settled() { s.settled.Store(true) }

// Start starts a component. The error is about the first start only; what happens later is reported.
func (s *Supervisor) Start(spec Spec) (*Process, error) {
	p := &Process{spec: spec, sup: s, stop: make(chan struct{}), done: make(chan struct{}), ready: make(chan struct{})}
	if err := rotate(p.logPath()); err != nil {
		return nil, err
	}
	if spec.Notify {
		if err := p.listenNotify(); err != nil {
			return nil, fmt.Errorf("%s: %w", spec.Name, err)
		}
	}
	cmd, err := p.launch()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", spec.Name, err), p.closeNotify())
	}
	s.mu.Lock()
	s.processes = append(s.processes, p)
	s.mu.Unlock()
	go p.keep(cmd)
	return p, nil
}

// Shutdown stops the components one after the other, the last started first, so that none is taken away
// from one that still needs it. It returns when all have ended.
func (s *Supervisor) Shutdown() {
	s.mu.Lock()
	processes := s.processes
	s.processes = nil
	s.mu.Unlock()
	for i := len(processes) - 1; i >= 0; i-- {
		processes[i].Stop()
	}
	close(s.spawn)
}

// Kill makes Shutdown end components with SIGKILL instead of asking them to stop: what they keep is then as after
// a crash. It shortens a Shutdown that is under way.
func (s *Supervisor) Kill() { s.killOnce.Do(func() { close(s.killing) }) }

func (s *Supervisor) giveUp(err error) {
	select {
	case s.failed <- err:
	default: // the first reason is the one to tell
	}
}

// Process is one component under supervision.
type Process struct {
	spec   Spec
	sup    *Supervisor
	notify io.Closer
	socket string

	stopOnce sync.Once
	stop     chan struct{} // closed to ask for the end
	done     chan struct{} // closed at the end

	readyOnce sync.Once
	ready     chan struct{}
}

// Ready is closed once the component has reported that it serves (Spec.Notify).
func (p *Process) Ready() <-chan struct{} { return p.ready }

// Stop ends the component for good and returns when it has ended.
func (p *Process) Stop() {
	p.stopOnce.Do(func() { close(p.stop) })
	<-p.done
}

func (p *Process) logPath() string { return filepath.Join(p.sup.cfg.Logs, p.spec.Name+".log") }

// launch starts one run of the component.
func (p *Process) launch() (*exec.Cmd, error) {
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(p.spec.Path, p.spec.Args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, p.spec.Dir
	cmd.Env = append(os.Environ(), p.spec.Env...)
	if p.socket != "" {
		cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+p.socket)
	}
	if p.spec.Inherit != nil {
		cmd.ExtraFiles = []*os.File{p.spec.Inherit}
	}
	// A process group of its own keeps the terminal's Ctrl-C from the components: the supervisor stops
	// them in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Cloneflags: p.spec.Namespaces}
	result := make(chan error, 1)
	p.sup.spawn <- func() { result <- cmd.Start() }
	if err := <-result; err != nil {
		return nil, err
	}
	return cmd, nil
}

// keep waits for the component's end and starts it again, until Stop.
func (p *Process) keep(cmd *exec.Cmd) {
	defer close(p.done)
	defer p.closeNotify()
	var err error // why the component is not running
	deaths, attempt := 0, 0
	for {
		if cmd != nil {
			started := time.Now()
			end, stopped := p.wait(cmd)
			if stopped {
				return
			}
			if time.Since(started) >= p.sup.cfg.Backoff.Reset {
				attempt = 0
			}
			err = fmt.Errorf("%s (pid %d) ended: %s", p.spec.Name, cmd.Process.Pid, outcome(end))
		}
		deaths++
		if !p.sup.settled.Load() && deaths >= p.sup.cfg.Patience {
			p.sup.giveUp(fmt.Errorf("%w\n%s", err, p.logTail()))
			<-p.stop
			return
		}
		delay := p.sup.cfg.Backoff.Delay(attempt)
		attempt++
		p.sup.cfg.Report("%v; starting it again in %s (log: %s)", err, delay, p.logPath())
		timer := time.NewTimer(delay)
		select {
		case <-p.stop:
			timer.Stop()
			return
		case <-timer.C:
		}
		if cmd, err = p.launch(); err != nil {
			cmd, err = nil, fmt.Errorf("%s does not start: %w", p.spec.Name, err)
			continue
		}
		p.sup.cfg.Report("%s started again (pid %d)", p.spec.Name, cmd.Process.Pid)
	}
}

// wait returns when the run has ended; stopped tells that it was asked to.
func (p *Process) wait(cmd *exec.Cmd) (err error, stopped bool) {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err, false
	case <-p.stop:
	}
	grace := p.spec.Grace
	if grace == 0 {
		grace = DefaultGrace
	}
	select {
	case <-p.sup.killing: // it is killed below
	default:
		_ = cmd.Process.Signal(syscall.SIGTERM) // already ended: the wait below returns at once
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err = <-ended:
	case <-p.sup.killing:
		_ = cmd.Process.Kill()
		err = <-ended
	case <-timer.C:
		p.sup.cfg.Report("%s (pid %d) did not stop within %s and is killed", p.spec.Name, cmd.Process.Pid, grace)
		_ = cmd.Process.Kill()
		err = <-ended
	}
	return err, true
}

func outcome(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}
