package registry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/radial-project/radial/extensionsdk"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/extension"
)

// program is the example extension, built.
var program string

// faulty is the variable that makes this test's program an extension that does
// what extensions must not.
const faulty = "RADIAL_TEST_EXTENSION"

func TestMain(m *testing.M) {
	if os.Getenv(faulty) != "" {
		os.Exit(sdk.Main(misbehaved{}))
	}
	dir, err := os.MkdirTemp("", "radial-example-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "extension")
	if out, err := exec.Command("go", "build", "-o", program, "../../../examples/extension").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the example: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	if err := clustertest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// output is everything that a process wrote.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{} // closed by the next write
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more != nil {
		close(o.more)
		o.more = nil
	}
	return o.b.Write(p)
}

// await waits until text was written.
func (o *output) await(t *testing.T, text string) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		o.mu.Lock()
		if o.more == nil {
			o.more = make(chan struct{})
		}
		all, more := o.b.String(), o.more
		o.mu.Unlock()
		if strings.Contains(all, text) {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("%q was not written:\n%s", text, all)
		}
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func logger(o *output) *slog.Logger {
	return slog.New(slog.NewTextHandler(o, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// serveHTTP starts a program as an extension over HTTP and returns its address.
func serveHTTP(t *testing.T, path string, env ...string) string {
	t.Helper()
	cmd := exec.Command(path, "--http", "0")
	cmd.Env = append(os.Environ(), env...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			go func() { _, _ = io.Copy(io.Discard, stderr) }()
			return url
		}
		t.Log(lines.Text())
	}
	t.Fatal("the extension ended before it listened")
	return ""
}

// pauses are what a registry waited for, none of which takes time.
type pauses struct {
	mu   sync.Mutex
	list []time.Duration
}

func (p *pauses) sleep(ctx context.Context, d time.Duration) error {
	p.mu.Lock()
	p.list = append(p.list, d)
	p.mu.Unlock()
	// Processes need a moment in which they run; a millisecond is none to wait
	// for.
	t := time.NewTimer(time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

func newRegistry(t *testing.T, o Options, list ...Registration) *Registry {
	t.Helper()
	x, err := New(list, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

// target resolves the import of an extension.
func target(t *testing.T, x *Registry, s extension.Scope, secrets extension.Secrets) extension.Target {
	t.Helper()
	got, err := x.Resolve(t.Context(), s, secrets)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// markDirectory makes a directory the example's, as its README says.
func markDirectory(t *testing.T, dir, passphrase string) {
	t.Helper()
	args := []string{"mark", dir}
	if passphrase != "" {
		file := filepath.Join(t.TempDir(), "passphrase")
		if err := os.WriteFile(file, []byte(passphrase+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--passphrase-file", file)
	}
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
