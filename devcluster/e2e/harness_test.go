// Package e2e runs the built devcluster, the way tests and demos do.
package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
)

// limit bounds every wait. It is an end to a hung test, not a measure of speed.
const limit = 3 * time.Minute

// program is the path of the built devcluster. Without it the test is skipped, unless RADIAL_REQUIRE_TOOLS=1
// says that it must be there.
func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test starts clusters")
	}
	dir := os.Getenv("RADIAL_BIN")
	if dir == "" {
		dir = filepath.Join("..", "..", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, "devcluster"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		return path
	}
	msg := fmt.Sprintf("%s is missing: make devcluster builds it", path)
	if os.Getenv("RADIAL_REQUIRE_TOOLS") == "1" {
		t.Fatal(msg)
	}
	t.Skip(msg)
	return ""
}

// running is one `devcluster up`.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	state string

	mu    sync.Mutex
	lines []string      // what it printed
	more  chan struct{} // closed and replaced with every line
	ended chan struct{} // closed when it has ended
	err   error         // how it ended; read after ended
}

// start runs `devcluster up` on the state directory and returns at once.
func start(t *testing.T, state string, args ...string) *running {
	t.Helper()
	r := &running{t: t, state: state, more: make(chan struct{}), ended: make(chan struct{})}
	r.cmd = exec.Command(program(t), append([]string{"up", "--state", state}, args...)...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	read, write := io.Pipe()
	r.cmd.Stdout, r.cmd.Stderr = write, write
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the death signal follows the thread; it ends with this function
		started <- r.cmd.Start()
		r.err = r.cmd.Wait()
		write.Close()
		close(r.ended)
	}()
	go func() {
		for scan := bufio.NewScanner(read); scan.Scan(); {
			r.mu.Lock()
			r.lines = append(r.lines, scan.Text())
			close(r.more)
			r.more = make(chan struct{})
			r.mu.Unlock()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.stop)
	return r
}

// cluster starts `devcluster up` and waits until it can be used.
func cluster(t *testing.T, state string, args ...string) *running {
	t.Helper()
	r := start(t, state, args...)
	r.waitLine("KUBECONFIG=")
	return r
}

// stop asks the cluster to end and waits for that.
func (r *running) stop() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	r.waitEnd()
}

func (r *running) waitEnd() {
	select {
	case <-r.ended:
	case <-time.After(limit):
		_ = r.cmd.Process.Kill()
		r.t.Errorf("devcluster up did not end within %s; it printed:\n%s", limit, r.output())
	}
}

func (r *running) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// waitLine waits for a printed line that contains the text.
func (r *running) waitLine(text string) string {
	r.t.Helper()
	end := time.After(limit)
	for seen, final := 0, false; ; {
		r.mu.Lock()
		lines, more := r.lines, r.more
		r.mu.Unlock()
		for ; seen < len(lines); seen++ {
			if strings.Contains(lines[seen], text) {
				return lines[seen]
			}
		}
		if final {
			r.t.Fatalf("devcluster up ended (%v) without a line with %q; it printed:\n%s", r.err, text, r.output())
		}
		select {
		case <-more:
		case <-r.ended:
			final = true // one more look: the last line may have come with the end
		case <-end:
			r.t.Fatalf("no line with %q within %s; it printed:\n%s", text, limit, r.output())
		}
	}
}

func (r *running) kubeconfig() string { return filepath.Join(r.state, "admin.kubeconfig") }

func (r *running) client() kubernetes.Interface { return clientFor(r.t, r.kubeconfig()) }

func clientFor(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	rc.QPS = -1
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// component is the pid of a component: the child of the supervisor whose first argument is its name.
func (r *running) component(name string) int {
	r.t.Helper()
	for _, pid := range r.children() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue // it has just ended
		}
		if args := strings.Split(string(line), "\x00"); len(args) > 1 && args[1] == name {
			return pid
		}
	}
	r.t.Fatalf("no process %s under pid %d", name, r.cmd.Process.Pid)
	return 0
}

func (r *running) children() []int {
	r.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.cmd.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	var pids []int
	for _, f := range files {
		b, err := os.ReadFile(f)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			r.t.Fatal(err)
		}
		for _, word := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				r.t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// runs tells whether a process still runs; one that waits to be reaped does not.
func runs(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// wait waits on a watch until the condition holds.
func wait(t *testing.T, what string, lw cache.ListerWatcher, kind apiruntime.Object, done watchtools.ConditionFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := watchtools.UntilWithSync(ctx, lw, kind, nil, done); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// call runs a devcluster command to its end.
func call(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, program(t), args...).CombinedOutput()
	return string(out), err
}

// eventually asks again until there is no error, for what sends no event.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	end := time.After(limit)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-end:
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		case <-ticker.C:
		}
	}
}
