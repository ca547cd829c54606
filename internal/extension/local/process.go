// Package local runs extensions as processes of their own and carries calls to
// them over gRPC: the form of Bicep's local deploy (S-47). A [Process] is one
// executable; it is started by the first call, shared by all deployments, and
// started anew by the next call after it ended.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	sdk "github.com/radial-project/radial/extensionsdk"
	"github.com/radial-project/radial/extensionsdk/rpc"
	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
)

const (
	// StartTimeout is how long an extension may take to answer its first Ping.
	StartTimeout = 30 * time.Second
	// CallTimeout is how long one call may take. The contract of local extensions
	// has no operations to follow, so it is long.
	CallTimeout = 10 * time.Minute
	// endTimeout is how long an extension may take to end when it is asked to,
	// before it is killed.
	endTimeout = 5 * time.Second
	// An extension that ended early is not started again at once: the pause
	// grows twofold with each early end.
	early        = 10 * time.Second
	firstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
	// maxSocketPath is what fits into a Unix socket's address on every system.
	maxSocketPath = 100
)

// Options say how an extension is run.
type Options struct {
	// Name is the extension's, for errors and the log.
	Name string
	// Path is its executable, Args come before --socket.
	Path string
	Args []string
	// Env are further variables, NAME=VALUE. Of our own environment it gets only
	// what programs need to find their way ([inherited]); ours may hold secrets.
	Env []string
	// Log takes what it writes to standard output and error.
	Log *slog.Logger
	// Alone says that one user has the process to themselves: errors then tell its
	// last words. Those of a shared one may be about what another user does.
	Alone bool
	// StartTimeout and CallTimeout are 0 for the usual ones.
	StartTimeout, CallTimeout time.Duration
	// Sleep waits between starts; nil is the clock's.
	Sleep func(context.Context, time.Duration) error
}

// inherited are the variables that an extension gets from us.
var inherited = []string{"PATH", "HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}

// Process is an extension's executable, running or not. It is safe for
// concurrent use; Close ends it.
type Process struct {
	o      Options
	log    *logged
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	// starting is held by whoever starts the process.
	starting chan struct{}
	mu       sync.Mutex
	running  *running
	deaths   int // early ones in a row
	started  int
}

// running is one life of the process.
type running struct {
	client rpc.BicepExtensionClient
	conn   *grpc.ClientConn
	pid    int
	dir    string
	at     time.Time
	ended  chan struct{}
	// why it ended; set before ended is closed.
	why error
}

// New says what is to be run, and runs nothing yet.
func New(o Options) (*Process, error) {
	path, err := exec.LookPath(o.Path)
	if err != nil {
		return nil, fmt.Errorf("its executable cannot be run: %w", err)
	}
	if o.Path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = StartTimeout
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = CallTimeout
	}
	if o.Sleep == nil {
		o.Sleep = core.Pause
	}
	p := &Process{o: o, log: newLogged(o.Log.With("extension", o.Name)), starting: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Place is the executable, for texts.
func (p *Process) Place() string { return p.o.Path }

// Guard keeps values out of the log while a call runs, and for some time after.
func (p *Process) Guard(values ...*conceal.Values) (done func()) { return p.log.guard(values) }

// Starts is how often it was started.
func (p *Process) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started
}

// Pid is the process's id, 0 while it does not run.
func (p *Process) Pid() int {
	if r := p.alive(); r != nil {
		return r.pid
	}
	return 0
}

func (p *Process) alive() *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return nil
	}
	select {
	case <-p.running.ended:
		return nil
	default:
		return p.running
	}
}

// get returns the running process, and starts one where there is none.
func (p *Process) get(ctx context.Context) (*running, error) {
	if r := p.alive(); r != nil {
		return r, nil
	}
	select {
	case p.starting <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	type result struct {
		r   *running
		err error
	}
	done := make(chan result, 1)
	// Others wait for the same start: it goes on when this call gives up.
	go func() {
		defer func() { <-p.starting }()
		r, err := p.again()
		done <- result{r, err}
	}()
	select {
	case out := <-done:
		return out.r, out.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// again starts the process unless somebody else has.
func (p *Process) again() (*running, error) {
	if r := p.alive(); r != nil {
		return r, nil
	}
	if p.ctx.Err() != nil {
		return nil, p.fault("was ended with the server")
	}
	if pause := p.pause(); pause > 0 {
		if err := p.o.Sleep(p.ctx, pause); err != nil {
			return nil, p.fault("was ended with the server")
		}
	}
	r, err := p.start()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.running; old != nil {
		_ = old.conn.Close()
	}
	p.running = r
	return r, nil
}

// pause is how long not to start it again.
func (p *Process) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deaths < 2 {
		return 0
	}
	return min(firstPause<<min(p.deaths-2, 16), longestPause)
}

func (p *Process) died(r *running) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(r.at) < early {
		p.deaths++
	} else {
		p.deaths = 0
	}
}

// start runs the executable and waits until it answers.
func (p *Process) start() (*running, error) {
	dir, err := os.MkdirTemp("", "radial-ext-")
	if err != nil {
		return nil, p.fault("cannot be started: no directory for its socket: %w", err)
	}
	r := &running{dir: dir, at: time.Now(), ended: make(chan struct{})}
	p.log.forget() // an error of this start tells what this start said
	socket := filepath.Join(dir, "s")
	if len(socket) > maxSocketPath {
		_ = os.RemoveAll(dir)
		return nil, p.fault("cannot be started: the path of its socket, %s, is longer than the %d bytes that a socket takes: set TMPDIR to a shorter one", socket, maxSocketPath)
	}
	cmd := exec.Command(p.o.Path, append(p.o.Args[:len(p.o.Args):len(p.o.Args)], "--socket", socket)...)
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.Env = append(cmd.Env, p.o.Env...)
	out := p.log.writer()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = endTimeout // a child of it may hold its standard error open
	isolate(cmd)
	if err := p.run(cmd, r); err != nil {
		_ = os.RemoveAll(dir)
		return nil, p.fault("cannot be started: %w", err)
	}
	r.conn, err = grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket in a directory that only we can enter
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(sdk.MaxResponse), grpc.MaxCallSendMsgSize(sdk.MaxRequest)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, MaxDelay: 250 * time.Millisecond}, MinConnectTimeout: time.Second}))
	if err != nil {
		p.end(r)
		return nil, p.fault("cannot be reached: %w", err)
	}
	r.client = rpc.NewBicepExtensionClient(r.conn)
	if err := p.await(r); err != nil {
		p.end(r)
		return nil, err
	}
	p.log.log.Info("extension started", "path", p.o.Path, "pid", r.pid)
	return r, nil
}

// run starts the program on a thread that waits for its end: on Linux the
// program is told to die with the thread that started it.
func (p *Process) run(cmd *exec.Cmd, r *running) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			r.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		killGroup(r.pid) // what it started itself goes with it
		if err == nil {
			err = errors.New("exit status 0")
		}
		r.why = err
		p.died(r)
		_ = os.RemoveAll(r.dir)
		if p.ctx.Err() == nil {
			p.log.log.Warn("extension ended", "pid", r.pid, "why", err)
		}
		close(r.ended)
	}()
	err := <-started
	if err == nil {
		p.mu.Lock()
		p.started++
		p.mu.Unlock()
	}
	return err
}

// await waits for the first Ping's answer.
func (p *Process) await(r *running) error {
	ping, cancel := context.WithTimeout(p.ctx, p.o.StartTimeout)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := r.client.Ping(ping, &rpc.Empty{}, grpc.WaitForReady(true))
		answered <- err
	}()
	select {
	case err := <-answered:
		switch {
		case err == nil:
			return nil
		case p.ctx.Err() != nil:
			return p.fault("was ended with the server")
		case status.Code(err) == codes.DeadlineExceeded:
			return p.fault("did not answer Ping within %s of its start%s", p.o.StartTimeout, p.log.tail())
		}
		select {
		case <-r.ended:
			return p.fault("ended at its start (%v)%s", r.why, p.log.tail())
		case <-time.After(endTimeout):
		}
		return p.fault("does not answer Ping: %v%s", status.Convert(err).Message(), p.log.tail())
	case <-r.ended:
		return p.fault("ended at its start (%v)%s", r.why, p.log.tail())
	}
}

// end stops one life of the process and waits for its end.
func (p *Process) end(r *running) {
	if r.conn != nil {
		_ = r.conn.Close()
	}
	select {
	case <-r.ended:
		return
	default:
	}
	terminateGroup(r.pid)
	t := time.NewTimer(endTimeout)
	defer t.Stop()
	select {
	case <-r.ended:
	case <-t.C:
		killGroup(r.pid)
		<-r.ended
	}
}

// Close ends the process, and what it started, and waits for that.
func (p *Process) Close() {
	p.cancel()
	p.starting <- struct{}{} // whoever starts it has noticed
	defer func() { <-p.starting }()
	if r := p.alive(); r != nil {
		p.end(r)
	}
}

func (p *Process) fault(format string, args ...any) error {
	return core.Errorf(core.CodeTarget, "the extension %s (%s) %w", p.o.Name, p.o.Path, fmt.Errorf(format, args...))
}
