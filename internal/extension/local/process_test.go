//go:build unix

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	sdk "github.com/radial-project/radial/extensionsdk"
	"github.com/radial-project/radial/extensionsdk/rpc"
	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
)

// mode is the variable that makes this test's program an extension.
const mode = "RADIAL_TEST_EXTENSION"

func TestMain(m *testing.M) {
	switch os.Getenv(mode) {
	case "":
		os.Exit(m.Run())
	case "serve":
		fmt.Fprintln(os.Stderr, "hello")
		os.Exit(sdk.Main(plain{}))
	case "exit": // before it serves
		fmt.Fprintln(os.Stderr, "no license found")
		os.Exit(7)
	case "silent": // serves nothing
		select {}
	case "deaf": // does not end when it is asked to
		signal.Ignore(syscall.SIGTERM)
		s := sdk.GRPC(plain{})
		l, err := net.Listen("unix", os.Args[len(os.Args)-1])
		if err != nil {
			panic(err)
		}
		_ = s.Serve(l)
	case "odd": // breaks the contract
		s := grpc.NewServer()
		rpc.RegisterBicepExtensionServer(s, odd{})
		l, err := net.Listen("unix", os.Args[len(os.Args)-1])
		if err != nil {
			panic(err)
		}
		_ = s.Serve(l)
	}
}

// plain is an extension whose resources tell about its process.
type plain struct{}

func (plain) Preview(context.Context, sdk.Specification) (sdk.Resource, error) {
	return sdk.Resource{}, sdk.Errorf(sdk.CodePreviewNotSupported, "no")
}

func (plain) CreateOrUpdate(_ context.Context, s sdk.Specification) (sdk.Answer, error) {
	r := &sdk.Resource{Type: s.Type, Identifiers: map[string]any{"pid": os.Getpid()}, Properties: map[string]any{}}
	switch s.Type {
	case "Child":
		child := exec.Command("sleep", "1000")
		child.Stderr = os.Stderr // and holds it open
		if err := child.Start(); err != nil {
			return sdk.Answer{}, err
		}
		r.Properties["pid"] = child.Process.Pid
	case "Environment":
		r.Properties["environment"] = strings.Join(os.Environ(), "\n")
	case "Say":
		fmt.Fprintln(os.Stderr, s.Properties["text"])
	}
	return sdk.Answer{Resource: r}, nil
}

func (plain) Get(context.Context, sdk.Reference) (sdk.Resource, error) {
	return sdk.Resource{}, sdk.Errorf(sdk.CodeNotFound, "none")
}

func (plain) Delete(context.Context, sdk.Reference) (sdk.Answer, error) { return sdk.Answer{}, nil }

func (plain) TypeFiles(context.Context) (string, map[string]string, error) {
	return "index.json", map[string]string{"index.json": "{}"}, nil
}

// odd answers with both a resource and an error, with neither, or with what is
// no JSON.
type odd struct {
	rpc.UnimplementedBicepExtensionServer
}

func (odd) Ping(context.Context, *rpc.Empty) (*rpc.Empty, error) { return &rpc.Empty{}, nil }

func (odd) CreateOrUpdate(_ context.Context, s *rpc.ResourceSpecification) (*rpc.LocalExtensibilityOperationResponse, error) {
	r := &rpc.Resource{Type: s.Type, Identifiers: "{}", Properties: "{}"}
	e := &rpc.ErrorData{Error: &rpc.Error{Code: "X", Message: "y"}}
	switch s.Type {
	case "Both":
		return &rpc.LocalExtensibilityOperationResponse{Resource: r, ErrorData: e}, nil
	case "Neither":
		return &rpc.LocalExtensibilityOperationResponse{}, nil
	}
	r.Properties = "[1"
	return &rpc.LocalExtensibilityOperationResponse{Resource: r}, nil
}

// written is a log that can be waited for.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
	at chan struct{}
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at != nil {
		close(w.at)
		w.at = nil
	}
	return w.b.Write(p)
}

// await returns the log once it holds text.
func (w *written) await(t *testing.T, text string) string {
	t.Helper()
	for {
		w.mu.Lock()
		all := w.b.String()
		if w.at == nil {
			w.at = make(chan struct{})
		}
		at := w.at
		w.mu.Unlock()
		if strings.Contains(all, text) {
			return all
		}
		select {
		case <-at:
		case <-t.Context().Done():
			t.Fatalf("%q is not in the log:\n%s", text, all)
		case <-time.After(20 * time.Second):
			t.Fatalf("%q is not in the log:\n%s", text, all)
		}
	}
}

func start(t *testing.T, how string, change func(*Options)) (*Process, *written) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := &written{}
	o := Options{Name: "Test", Path: self, Env: []string{mode + "=" + how}, Log: slog.New(slog.NewTextHandler(log, nil))}
	if change != nil {
		change(&o)
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, log
}

func apply(t *testing.T, p *Process, typ string, properties map[string]any) map[string]any {
	t.Helper()
	a, err := p.Carrier().CreateOrUpdate(t.Context(), sdk.Specification{Type: typ, Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	return a.Resource.Properties
}

func TestStarts(t *testing.T) {
	t.Run("one process for all", func(t *testing.T) {
		t.Parallel()
		p, log := start(t, "serve", nil)
		if p.Pid() != 0 {
			t.Error("it runs before it is needed")
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := p.Carrier().CreateOrUpdate(t.Context(), sdk.Specification{Type: "x"}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if p.Starts() != 1 {
			t.Errorf("%d processes", p.Starts())
		}
		log.await(t, "line=hello")
		if index, files, err := p.TypeFiles(t.Context()); err != nil || index != "index.json" || files["index.json"] != "{}" {
			t.Errorf("%s, %v, %v", index, files, err)
		}
	})
	t.Run("one that ends says why", func(t *testing.T) {
		t.Parallel()
		p, _ := start(t, "exit", nil)
		_, err := p.Carrier().Get(t.Context(), sdk.Reference{})
		if !core.IsCode(err, core.CodeTarget) || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "no license found") {
			t.Errorf("%v", err)
		}
	})
	t.Run("one that ends each time is given time", func(t *testing.T) {
		t.Parallel()
		var waits []time.Duration
		p, _ := start(t, "exit", func(o *Options) {
			o.Sleep = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
		})
		for range 5 {
			if _, err := p.Carrier().Get(t.Context(), sdk.Reference{}); err == nil {
				t.Fatal("no error")
			}
		}
		if len(waits) != 3 || waits[0] >= waits[1] || waits[1] >= waits[2] {
			t.Errorf("started again after %v", waits)
		}
	})
	t.Run("one that does not answer is ended", func(t *testing.T) {
		t.Parallel()
		p, _ := start(t, "silent", func(o *Options) { o.StartTimeout = 200 * time.Millisecond })
		_, err := p.Carrier().Get(t.Context(), sdk.Reference{})
		if !core.IsCode(err, core.CodeTarget) || !strings.Contains(err.Error(), "did not answer Ping within 200ms") {
			t.Errorf("%v", err)
		}
		if p.Pid() != 0 {
			t.Error("it still runs")
		}
	})
	t.Run("a call that gives up does not end it for others", func(t *testing.T) {
		t.Parallel()
		p, _ := start(t, "serve", nil)
		hurried, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Carrier().Get(hurried, sdk.Reference{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		apply(t, p, "x", nil)
		if p.Starts() != 1 {
			t.Errorf("%d starts", p.Starts())
		}
	})
	t.Run("a path too long for a socket", func(t *testing.T) {
		long := t.TempDir() + strings.Repeat("/long", 20)
		if err := os.MkdirAll(long, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", long)
		p, _ := start(t, "serve", nil)
		if _, err := p.Carrier().Get(t.Context(), sdk.Reference{}); err == nil || !strings.Contains(err.Error(), "set TMPDIR to a shorter one") {
			t.Errorf("%v", err)
		}
		if left, err := os.ReadDir(long); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

func exists(pid int) bool { return syscall.Kill(pid, 0) == nil }

// gone waits for a process that is none of ours to wait for.
func gone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for exists(pid) && !zombie(pid) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d still runs", pid)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// zombie is a process that has ended and that nobody asked how.
func zombie(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(raw), ") Z ")
}

func TestEnds(t *testing.T) {
	t.Run("with what it started", func(t *testing.T) {
		t.Parallel()
		p, _ := start(t, "serve", nil)
		child := int(apply(t, p, "Child", nil)["pid"].(int64))
		pid := p.Pid()
		if pid == 0 || !exists(pid) || !exists(child) {
			t.Fatalf("%d and %d do not run", pid, child)
		}
		p.Close()
		gone(t, pid)
		gone(t, child)
		if _, err := p.Carrier().Get(t.Context(), sdk.Reference{}); err == nil || !strings.Contains(err.Error(), "ended with the server") {
			t.Errorf("a call after the end: %v", err)
		}
	})
	t.Run("killed, it is started anew, and its children are gone", func(t *testing.T) {
		t.Parallel()
		p, log := start(t, "serve", nil)
		child := int(apply(t, p, "Child", nil)["pid"].(int64))
		if err := syscall.Kill(p.Pid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		apply(t, p, "x", nil)
		if p.Starts() != 2 {
			t.Errorf("%d starts", p.Starts())
		}
		gone(t, child)
		log.await(t, "signal: killed")
	})
	t.Run("one that does not want to is killed", func(t *testing.T) {
		t.Parallel()
		p, _ := start(t, "deaf", nil)
		apply(t, p, "x", nil)
		pid := p.Pid()
		p.Close()
		gone(t, pid)
	})
}

// An extension gets what programs need of our environment, and no more: ours has
// the store's password.
func TestEnvironment(t *testing.T) {
	t.Setenv("RADIAL_STORE", "postgres://user:environment-canary@db/radial")
	t.Setenv("LANG", "eo")
	p, _ := start(t, "serve", nil)
	env, _ := apply(t, p, "Environment", nil)["environment"].(string)
	if strings.Contains(env, "canary") || !strings.Contains(env, "LANG=eo") || !strings.Contains(env, mode+"=serve") {
		t.Errorf("%s", env)
	}
}

// What it writes is searched for the secrets of every call, a while after it too.
func TestLogConceals(t *testing.T) {
	p, log := start(t, "serve", nil)
	var mine, others conceal.Values
	mine.Add("mine-canary-1")
	others.Add("others-canary-2")
	mineDone, othersDone := p.Guard(&mine), p.Guard(&others, nil)
	othersDone()
	apply(t, p, "Say", map[string]any{"text": "mine-canary-1 and others-canary-2 and what is no secret"})
	mineDone()
	apply(t, p, "Say", map[string]any{"text": "late: mine-canary-1"})
	apply(t, p, "Say", map[string]any{"text": "long: " + strings.Repeat("x", 2*longestLine) + "\nthe end"})
	all := log.await(t, "the end")
	if strings.Contains(all, "canary") || !strings.Contains(all, "[secret] and [secret] and what is no secret") || !strings.Contains(all, "late: [secret]") {
		t.Errorf("%.2000s", all)
	}
	if strings.Contains(all, strings.Repeat("x", longestLine+1)) {
		t.Error("a long line was not cut")
	}
}

func TestOddAnswers_S47(t *testing.T) {
	p, _ := start(t, "odd", nil)
	for typ, want := range map[string]string{"Both": "a resource and an error at once", "Neither": "neither a resource nor an error", "Broken": "properties that are no JSON object"} {
		_, err := p.Carrier().CreateOrUpdate(t.Context(), sdk.Specification{Type: typ})
		if !core.IsCode(err, core.CodeTarget) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", typ, err, want)
		}
	}
	if _, err := p.Carrier().Get(t.Context(), sdk.Reference{}); !core.IsCode(err, core.CodeTarget) || !strings.Contains(err.Error(), "does not serve Get") {
		t.Errorf("a method that is not there: %v", err)
	}
	if p.Starts() != 1 {
		t.Errorf("%d starts", p.Starts())
	}
}

// The names on the wire are those of the public service.
func TestServiceName(t *testing.T) {
	d := rpc.BicepExtension_ServiceDesc
	var names []string
	for _, m := range d.Methods {
		names = append(names, m.MethodName)
	}
	if got := d.ServiceName + " " + strings.Join(names, " "); got != "extension.BicepExtension CreateOrUpdate Preview Get Delete GetTypeFiles Ping" {
		t.Error(got)
	}
}
