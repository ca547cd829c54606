package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/pgtest"
)

// runMain makes this test binary the program itself, so that tests can start
// and kill real processes of it.
const runMain = "RADIAL_SERVER_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	code := m.Run()
	pgtest.Stop()
	if err := clustertest.Stop(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// program is the command line of the program, with an environment of its own.
func program(ctx context.Context, environment []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append([]string{runMain + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, environment...)
	return cmd
}

// process is a running radial-server.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
	log bytes.Buffer
	// exited is closed when it has ended, err says how.
	exited chan struct{}
	err    error
}

// launch starts a radial-server on a directory and waits until it answers.
func launch(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	ready := filepath.Join(dir, "ready")
	_ = os.Remove(ready)
	p := &process{t: t, exited: make(chan struct{})}
	p.cmd = program(context.Background(), nil, append([]string{
		"--developer-mode", "--listen", "127.0.0.1:0", "--store", filepath.Join(dir, "radial.db"),
		"--key-file", filepath.Join(dir, "key"), "--ready-file", ready,
	}, args...)...)
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.exited) }()
	t.Cleanup(p.kill)
	deadline := time.After(30 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case <-p.exited:
			t.Fatalf("radial-server ended: %v\n%s", p.err, p.log.String())
		case <-deadline:
			t.Fatal("radial-server was not ready within 30 s")
		case <-tick.C:
			if raw, err := os.ReadFile(ready); err == nil {
				tick.Stop()
				p.url = strings.TrimSpace(string(raw))
				return p
			}
		}
	}
}

// kill ends the process as a power cut does.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.exited
}

type reply struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

func (p *process) send(method, path, body string, header ...string) (reply, error) {
	target := path
	if strings.HasPrefix(path, "/") {
		target = p.url + path
	}
	r, err := http.NewRequest(method, target, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	out := reply{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &out.body)
	return out, err
}

func (p *process) must(status int, method, path, body string, header ...string) reply {
	p.t.Helper()
	got, err := p.send(method, path, body, header...)
	if err != nil || got.status != status {
		p.t.Fatalf("%s %s: %v, status %d, want %d: %s", method, path, err, got.status, status, got.raw)
	}
	return got
}

const (
	ucp     = "?api-version=2023-10-01-preview"
	group   = "/planes/radius/local/resourceGroups/g"
	inert   = group + "/providers/Crash.Tests/inert/"
	version = "?api-version=2026-01-01"
)

func (p *process) prepare() {
	p.t.Helper()
	p.must(200, "PUT", group+ucp, `{}`)
	p.must(200, "PUT", "/planes/radius/local/providers/System.Resources/resourceproviders/Crash.Tests/manifest"+ucp,
		`{"namespace":"Crash.Tests","types":{"inert":{"capabilities":["ManualResourceProvisioning"],"apiVersions":{"2026-01-01":{"schema":{"type":"object","properties":{"n":{"type":"integer"}}}}}}}}`)
}

// TestKill_D18 kills the process while clients write, again and again, and
// looks whether everything that was accepted ends and nothing is stuck.
func TestKill_D18(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, dir)
	p.prepare()
	for round, after := range []int64{1, 40, 150} {
		const clients = 8
		var accepted atomic.Int64
		enough := make(chan struct{})
		var once sync.Once
		operations := make([][]string, clients)
		var wait sync.WaitGroup
		for c := range clients {
			wait.Go(func() {
				for n := 0; ; n++ {
					// Names are used again, so that creates, updates and deletes all are cut off.
					name := fmt.Sprintf("r%d-c%d-n%d", round, c, n%7)
					method, body := "PUT", fmt.Sprintf(`{"properties":{"n":%d}}`, n)
					if n%5 == 4 {
						method, body = "DELETE", ""
					}
					got, err := p.send(method, inert+name+version, body)
					if err != nil {
						return // killed
					}
					if link := got.header.Get("Azure-AsyncOperation"); link != "" {
						operations[c] = append(operations[c], strings.TrimPrefix(link, p.url))
						if accepted.Add(1) >= after {
							once.Do(func() { close(enough) })
						}
					}
				}
			})
		}
		<-enough
		p.kill()
		wait.Wait()
		p = launch(t, dir)
		total := 0
		for _, list := range operations {
			for _, link := range list {
				total++
				got := p.must(200, "GET", link, "", "Prefer", "wait=10")
				if got.body["status"] != "Succeeded" {
					t.Fatalf("D-18 round %d: an accepted operation is %s", round, got.raw)
				}
			}
		}
		// Nothing is stuck, the writes whose answers were lost included.
		for c := range clients {
			for n := range 7 {
				name := fmt.Sprintf("r%d-c%d-n%d", round, c, n)
				got := p.must(201, "PUT", inert+name+version, `{"properties":{"n":-1}}`)
				if end := p.must(200, "GET", got.header.Get("Azure-AsyncOperation"), "", "Prefer", "wait=10"); end.body["status"] != "Succeeded" {
					t.Fatalf("D-18 round %d: %s afterwards: %s", round, name, end.raw)
				}
			}
		}
		t.Logf("round %d: %d operations accepted before the kill, all ended", round, total)
	}
}

// registry is an OCI registry that says when it is asked, and answers as the
// test wants.
func registry(t *testing.T, asked chan<- struct{}, answer func(http.ResponseWriter, *http.Request)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		answer(w, r)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

// TestKillDuringRecipe_D18 kills the process while a recipe runs: the operation
// is taken up at once by the next one and ends, and so does a deletion after it.
func TestKillDuringRecipe_D18(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked, hang := make(chan struct{}, 1), &atomic.Bool{}
	hang.Store(true)
	address := registry(t, asked, func(w http.ResponseWriter, r *http.Request) {
		if hang.Load() {
			<-r.Context().Done()
			return
		}
		http.NotFound(w, r)
	})
	p := launch(t, dir)
	p.prepare()
	environment := group + "/providers/Applications.Core/environments/e"
	p.must(200, "PUT", environment+ucp, fmt.Sprintf(`{"properties":{"compute":{"kind":"kubernetes","namespace":"d"},
		"recipes":{"Applications.Datastores/redisCaches":{"default":{"templateKind":"bicep","templatePath":"%s/redis:1","plainHttp":true}}}}}`, address))
	cache := group + "/providers/Applications.Datastores/redisCaches/c"
	started := p.must(201, "PUT", cache+ucp, fmt.Sprintf(`{"properties":{"environment":"%s"}}`, environment))
	select {
	case <-asked:
	case <-time.After(20 * time.Second):
		t.Fatal("the recipe did not run")
	}
	link := strings.TrimPrefix(started.header.Get("Azure-AsyncOperation"), p.url)
	if got := p.must(200, "GET", link, ""); got.body["status"] != "Updating" {
		t.Fatalf("while the recipe runs: %s", got.raw)
	}
	p.kill()
	hang.Store(false)

	p = launch(t, dir)
	got := p.must(200, "GET", link, "", "Prefer", "wait=20")
	failure, _ := got.body["error"].(map[string]any)
	if got.body["status"] != "Failed" || failure["code"] != "RecipeDownloadFailed" || !strings.Contains(fmt.Sprint(failure["message"]), address) {
		t.Fatalf("D-18: after the kill the operation is %s", got.raw)
	}
	gone := p.must(202, "DELETE", cache+ucp, "")
	if end := p.must(200, "GET", gone.header.Get("Azure-AsyncOperation"), "", "Prefer", "wait=20"); end.body["status"] != "Succeeded" {
		t.Fatalf("the deletion ended as %s", end.raw)
	}
	p.must(404, "GET", cache+ucp, "")
}

// An orderly end gives held answers, ends with status 0 and takes the ready
// file along.
func TestShutdown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, dir)
	p.prepare()
	watching := make(chan error, 1)
	resp, err := http.Get(p.url + "/watch/changes")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		watching <- err
	}()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.exited:
	case <-time.After(20 * time.Second):
		t.Fatal("it did not end")
	}
	if p.err != nil {
		t.Errorf("it ended with %v\n%s", p.err, p.log.String())
	}
	// One that held the shutdown would be broken off at the end of its grace.
	if err := <-watching; err != nil {
		t.Errorf("the stream broke off: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ready")); !os.IsNotExist(err) {
		t.Errorf("the ready file is still there: %v", err)
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	broken := filepath.Join(dir, "broken.kubeconfig")
	if err := os.WriteFile(broken, []byte("{not yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	locked := t.TempDir()
	holder := launch(t, locked)
	fresh := func() []string {
		return []string{"--developer-mode", "--listen", "127.0.0.1:0", "--store", filepath.Join(t.TempDir(), "radial.db")}
	}
	for name, c := range map[string]struct {
		args, environment, want []string
	}{
		"without developer mode":             {[]string{"--listen", "127.0.0.1:0"}, nil, []string{"--developer-mode", "loopback"}},
		"D-48 on every address":              {append(fresh(), "--listen", "0.0.0.0:0"), nil, []string{"--listen", "0.0.0.0:0", "loopback"}},
		"D-48 on no address":                 {append(fresh(), "--listen", ":8080"), nil, []string{"--listen", "loopback"}},
		"D-48 on a name":                     {append(fresh(), "--listen", "example.org:80"), nil, []string{"--listen", "loopback"}},
		"D-48 on an address by environment":  {[]string{"--developer-mode"}, []string{"RADIAL_LISTEN=10.0.0.1:80"}, []string{"10.0.0.1:80", "loopback"}},
		"D-48 metrics on every address":      {append(fresh(), "--metrics-listen", "0.0.0.0:0"), nil, []string{"--metrics-listen", "loopback"}},
		"metrics on an address that is none": {append(fresh(), "--metrics-listen", "9090"), nil, []string{"--metrics-listen", "host:port"}},
		"an address that is none":            {append(fresh(), "--listen", "localhost"), nil, []string{"--listen", "host:port"}},
		"a port that is taken":               {append(fresh(), "--listen", taken.Addr().String()), nil, []string{taken.Addr().String(), "in use", "--listen"}},
		"a store that is locked":             {[]string{"--developer-mode", "--listen", "127.0.0.1:0", "--store", filepath.Join(locked, "radial.db")}, nil, []string{fmt.Sprint(holder.cmd.Process.Pid)}},
		"no kubeconfig where one is named":   {append(fresh(), "--kubeconfig", filepath.Join(dir, "none")), nil, []string{"--kubeconfig", "none"}},
		"a kubeconfig that is none":          {append(fresh(), "--kubeconfig", broken), nil, []string{"--kubeconfig", broken}},
		"a bad value by environment":         {fresh(), []string{"RADIAL_LEASE=soon"}, []string{"RADIAL_LEASE", "soon"}},
		"a bad level":                        {append(fresh(), "--log-level", "loud"), nil, []string{"--log-level", "loud"}},
		"an unknown flag":                    {append(fresh(), "--listne", "x"), nil, []string{"--listne"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			out, err := program(ctx, c.environment, c.args...).CombinedOutput()
			if err == nil || ctx.Err() != nil {
				t.Fatalf("it started: %v\n%s", err, out)
			}
			for _, want := range c.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("the message does not say %q: %s", want, out)
				}
			}
		})
	}
}

// Every flag may come from the environment, and help says what each is for.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := program(ctx, []string{
		"RADIAL_DEVELOPER_MODE=true", "RADIAL_LISTEN=127.0.0.1:0", "RADIAL_STORE=" + filepath.Join(dir, "s.db"), "RADIAL_READY_FILE=" + ready,
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("it was not ready in time")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := os.Stat(filepath.Join(dir, "s.db.key")); err != nil {
		t.Errorf("the key is not beside the store: %v", err)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	help, err := program(ctx, nil, "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--developer-mode", "--store", "RADIAL_LISTEN", "loopback", "radial dev start"} {
		if !strings.Contains(string(help), want) {
			t.Errorf("help does not say %q:\n%s", want, help)
		}
	}
}
