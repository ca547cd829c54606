package plane

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/radial-project/radial/internal/store"
)

// role makes the running program a control plane: its value is a [Config].
const role = "RADIAL_TEST_PLANE"

// startLimit bounds the start of a child on a machine under load.
const startLimit = time.Minute

// Main makes this process the control plane that [Launch] asked for, and
// returns when it was started for anything else. Call it first in main or
// TestMain.
func Main() {
	v, ok := os.LookupEnv(role)
	if !ok {
		return
	}
	if err := serve(v); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(0)
}

// serve answers one line for every line on standard input until that ends,
// which it does with the parent.
func serve(config string) error {
	var c Config
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	crash := &Crash{}
	p, err := Start(context.Background(), c, func(s store.Store) store.Store {
		crash.Store = s
		return crash
	})
	if err != nil {
		return err
	}
	fmt.Println("url", p.URL)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "arm":
			at, err := strconv.Atoi(words[1])
			if err != nil {
				return err
			}
			crash.Arm(at, Mode(words[2]))
			fmt.Println("armed")
		case "writes":
			fmt.Println("writes", strings.Join(crash.Writes(), " "))
		case "open":
			p.Gate.Open()
			fmt.Println("opened")
		default:
			return fmt.Errorf("unknown command %q", words[0])
		}
	}
	p.Stop()
	return nil
}

// Process is a control plane in a process of its own.
type Process struct {
	URL string
	// Exited is closed when the process has ended.
	Exited chan struct{}

	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
	mu     sync.Mutex
	err    error
}

// Launch starts this very program as a control plane, and returns when it
// answers.
func Launch(c Config) (*Process, error) {
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{Exited: make(chan struct{}), cmd: exec.Command(exe)}
	p.cmd.Env = append(os.Environ(), role+"="+string(config))
	p.cmd.Stderr = &p.stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// A pipe of our own: Wait would close the command's before all is read.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout = w
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	_ = w.Close()
	p.out = bufio.NewReader(r)
	go func() {
		p.err = p.cmd.Wait()
		close(p.Exited)
	}()
	watchdog := time.AfterFunc(startLimit, func() { _ = p.cmd.Process.Kill() })
	defer watchdog.Stop()
	line, err := p.out.ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "url ")
	if err != nil || !ok {
		p.Kill()
		return nil, fmt.Errorf("the control plane did not start: %w\n%s", p.err, p.stderr.String())
	}
	p.URL = url
	return p, nil
}

// Command sends a line and returns the answer.
func (p *Process) Command(format string, args ...any) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		return "", err
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the control plane ended: %w\n%s", err, p.stderr.String())
	}
	return strings.TrimSpace(line), nil
}

// Arm makes the process kill itself at a write; see [Crash.Arm].
func (p *Process) Arm(at int, m Mode) error {
	_, err := p.Command("arm %d %s", at, m)
	return err
}

// Writes are the writes since Arm.
func (p *Process) Writes() ([]string, error) {
	line, err := p.Command("writes")
	return strings.Fields(strings.TrimPrefix(line, "writes")), err
}

// Open opens the gate of the recipes.
func (p *Process) Open() error {
	_, err := p.Command("open")
	return err
}

// Kill ends the process as a power cut does, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.Exited
}

// Killed reports whether an ended process ended by SIGKILL, and what it said.
func (p *Process) Killed() (bool, string) {
	<-p.Exited
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL, p.stderr.String()
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }
