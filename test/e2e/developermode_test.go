package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/radial-project/radial/internal/clustertest"
)

// status is the part of `radial dev status -o json` that the tests read.
type status struct {
	Running bool   `json:"running"`
	Ready   bool   `json:"ready"`
	PID     int    `json:"pid"`
	Server  string `json:"server"`
	Status  struct {
		ServerURL string `json:"serverURL"`
	} `json:"status"`
}

func (i installation) status(t *testing.T) status {
	t.Helper()
	return decode[status](t, i.must(t, "dev", "status", "-o", "json"))
}

// TestDeveloperMode goes through the life of one installation: what it promises to other programs, a second start,
// processes that die, and the same state after a stop.
func TestDeveloperMode(t *testing.T) {
	clustertest.Long(t)
	i := newInstallation(t)
	first := i.status(t)
	if !first.Ready || first.Server != "answers" {
		t.Fatalf("a start that returned is not ready: %+v", first)
	}

	t.Run("the first Recipe is taken at once", func(t *testing.T) {
		// By creation, as a client does: an API server holds that up for two seconds where the kind is new.
		dyn, err := dynamic.NewForConfig(i.cluster(t))
		if err != nil {
			t.Fatal(err)
		}
		recipe := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "radapp.io/v1alpha3", "kind": "Recipe", "metadata": map[string]any{"generateName": "first-"},
			"spec": map[string]any{"type": "Applications.Core/extenders"},
		}}
		client := dyn.Resource(schema.GroupVersionResource{Group: "radapp.io", Version: "v1alpha3", Resource: "recipes"}).Namespace("default")
		create := func() time.Duration {
			begun := time.Now()
			if _, err := client.Create(t.Context(), recipe.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Fatal(err)
			}
			return time.Since(begun)
		}
		const hold = 2 * time.Second
		if first, second := create(), create(); first >= hold && second < hold {
			t.Errorf("a start that returned is not ready: the first Recipe took %s, the second %s", first, second)
		}
	})

	t.Run("the contract's files and defaults", func(t *testing.T) {
		url, err := os.ReadFile(filepath.Join(i.dir, "server.url"))
		if err != nil || strings.TrimSpace(string(url)) != first.Status.ServerURL || !strings.HasPrefix(string(url), "http://127.0.0.1:") {
			t.Errorf("server.url is %q (%v), not the loopback URL %q", url, err, first.Status.ServerURL)
		}
		if out := i.kubectl(t, "", "get", "nodes", "-o", "name"); !strings.HasPrefix(out, "node/") {
			t.Errorf("DIR/kubeconfig shows no node: %s", out)
		}
		if out := i.must(t, "env", "list"); !strings.Contains(out, "default") {
			t.Errorf("there is no default environment:\n%s", out)
		}
		if out := i.must(t, "group", "list"); !strings.Contains(out, "default") {
			t.Errorf("there is no default group:\n%s", out)
		}
		if out := i.must(t, "recipe", "list"); !strings.Contains(out, "Applications.Datastores/redisCaches") {
			t.Errorf("the local recipes are not registered:\n%s", out)
		}
	})

	t.Run("the processes run under their own ServiceAccounts", func(t *testing.T) {
		for _, account := range []string{"radial-controller", "radial-server"} {
			out := i.kubectl(t, "", "--kubeconfig", filepath.Join(i.dir, "identities", account+".kubeconfig"), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
			if want := "system:serviceaccount:radial-system:" + account; out != want {
				t.Errorf("%s.kubeconfig is %s, not %s", account, out, want)
			}
		}
	})

	t.Run("a second start says what runs and what to do", func(t *testing.T) {
		says := []string{"already running on " + i.dir, fmt.Sprintf("pid %d", first.PID), "radial dev stop --dir " + i.dir}
		i.refuses(t, []string{"dev", "start", "--detach"}, says...)
		i.refuses(t, []string{"dev", "start"}, says...)
	})

	t.Run("a killed server comes back, and the controller goes on", func(t *testing.T) {
		i.apply(t, "interrupted", "before")
		i.ready(t, "interrupted", "before")
		server := i.child(t, "radial-server")
		gone := processEnd(t, server)
		if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-gone
		// Asked for while the server is down or just back: it comes by itself when the cause has gone.
		i.apply(t, "interrupted", "during")
		i.ready(t, "interrupted", "during")
		if again := i.child(t, "radial-server"); again == server {
			t.Errorf("the server still has pid %d", again)
		}
		if log := i.logs(); !strings.Contains(log, "radial-server started again") {
			t.Errorf("dev.log does not tell of the restart: %s", log)
		}
		out := i.must(t, "resource", "list", "-o", "json")
		for _, name := range []string{`"name": "before"`, `"name": "during"`} {
			if !strings.Contains(out, name) {
				t.Errorf("the catalogue has no %s:\n%s", name, out)
			}
		}
	})

	i.must(t, "recipe", "unregister", "default", "--resource-type", "Radius.Data/redisCaches")
	i.must(t, "group", "create", "kept")

	t.Run("a start after a stop goes on with the same state and ports", func(t *testing.T) {
		pids := []int{first.PID, i.child(t, "radial-server"), i.child(t, "radial-controller"), i.child(t, "devcluster")}
		i.must(t, "dev", "stop")
		for _, pid := range pids {
			if err := syscall.Kill(pid, 0); err == nil && !zombie(pid) {
				t.Errorf("dev stop returned while pid %d still ran", pid)
			}
		}
		if out := i.must(t, "dev", "stop"); !strings.Contains(out, "not running") {
			t.Errorf("a second stop says %q", out)
		}
		i.refuses(t, []string{"app", "list"}, "Radial is not running on "+i.dir, "radial dev start --dir "+i.dir)
		i.must(t, "dev", "start", "--detach")
		if again := i.status(t); again.Status.ServerURL != first.Status.ServerURL {
			t.Errorf("the server moved from %s to %s", first.Status.ServerURL, again.Status.ServerURL)
		}
		i.must(t, "group", "show", "kept")
		if out := i.must(t, "recipe", "list"); strings.Contains(out, "Radius.Data/redisCaches") || !strings.Contains(out, "Applications.Datastores/redisCaches") {
			t.Errorf("the recipes are not those from before the stop:\n%s", out)
		}
		i.ready(t, "interrupted", "before")
	})

	t.Run("a killed supervisor takes everything with it, and the next start goes on", func(t *testing.T) {
		supervisor := i.status(t).PID
		var ends []<-chan struct{}
		for _, name := range []string{"radial-server", "radial-controller", "devcluster"} {
			ends = append(ends, processEnd(t, i.child(t, name)))
		}
		if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for _, end := range ends {
			<-end
		}
		foreground := i.foreground(t)
		i.must(t, "group", "show", "kept")
		foreground.interrupt(t)
		if i.status(t).Running {
			t.Error("something runs after Ctrl-C")
		}
	})
}

// foreground is a `radial dev start` without --detach.
type foreground struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

// foreground starts Radial as in a terminal, and returns when it says that it is ready.
func (i installation) foreground(t *testing.T) foreground {
	t.Helper()
	f := foreground{cmd: exec.Command(filepath.Join(i.bin, "radial"), "dev", "start", "--dir", i.dir)}
	pipe, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.out = bufio.NewScanner(pipe)
	for f.out.Scan() {
		if strings.HasPrefix(f.out.Text(), "Radial is ready.") {
			return f
		}
	}
	t.Fatalf("radial dev start ended before it was ready: %v%s", f.cmd.Wait(), i.logs())
	return f
}

// interrupt is Ctrl-C; it returns when the command has ended, as it should.
func (f foreground) interrupt(t *testing.T) {
	t.Helper()
	if err := f.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	last := ""
	for f.out.Scan() {
		last = f.out.Text()
	}
	if err := f.cmd.Wait(); err != nil || !strings.HasPrefix(last, "Stopped.") {
		t.Errorf("after Ctrl-C radial dev start ended with %v, its last words %q", err, last)
	}
}

// TestDeveloperMode_BadInput: what stands in the way of a start is said, with what to do about it.
func TestDeveloperMode_BadInput(t *testing.T) {
	bin := programs(t)

	t.Run("missing programs", func(t *testing.T) {
		alone := t.TempDir()
		if err := os.Link(filepath.Join(bin, "radial"), filepath.Join(alone, "radial")); err != nil {
			raw, err := os.ReadFile(filepath.Join(bin, "radial"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(alone, "radial"), raw, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		i := installation{bin: alone, dir: filepath.Join(t.TempDir(), "radial")}
		i.refuses(t, []string{"dev", "start"}, "devcluster, radial-server and radial-controller are not beside radial in "+alone, "make build")
	})

	t.Run("a directory that cannot be written", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		i := installation{bin: bin, dir: filepath.Join(file, "radial")}
		for _, args := range [][]string{{"dev", "start"}, {"dev", "start", "--detach"}} {
			i.refuses(t, args, "cannot keep state in "+i.dir, "not a directory", "--dir DIR")
		}
	})

	t.Run("a directory locked by another process", func(t *testing.T) {
		i := installation{bin: bin, dir: t.TempDir()}
		lock, err := os.Create(filepath.Join(i.dir, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		holder := fmt.Sprintf("locked by another process (pid %d, ", os.Getpid())
		i.refuses(t, []string{"dev", "start"}, i.dir+" is "+holder, "end it, or choose another --dir")
		i.refuses(t, []string{"dev", "start", "--detach"}, holder)
		i.refuses(t, []string{"dev", "stop"}, holder)
	})

	t.Run("a port that is taken", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		i := installation{bin: bin, dir: t.TempDir()}
		i.refuses(t, []string{"dev", "start", "--port", port}, "port "+port+" on 127.0.0.1 is taken by another program", "choose another --port")
		i.refuses(t, []string{"dev", "start", "--detach", "--port", port}, "port "+port+" on 127.0.0.1 is taken")
		if err := os.WriteFile(filepath.Join(i.dir, "port"), []byte(port+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		i.refuses(t, []string{"dev", "start"}, "port "+port, "move the control plane with --port N")
	})

	t.Run("a node of no kind", func(t *testing.T) {
		i := installation{bin: bin, dir: t.TempDir()}
		i.refuses(t, []string{"dev", "start", "--node", "paper"}, `--node "paper" is not one of fake, real`)
	})
}

// child finds a process of the installation by its program's name.
func (i installation) child(t *testing.T, name string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		raw, err := os.ReadFile(p)
		if err != nil {
			continue // it has ended meanwhile
		}
		args := strings.Split(string(raw), "\x00")
		if filepath.Base(args[0]) != name || !strings.Contains(string(raw), i.dir+"/") {
			continue
		}
		if name == "devcluster" && args[1] != "up" {
			continue // one of its components
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Fatalf("no %s runs on %s%s", name, i.dir, i.logs())
	return 0
}

// zombie tells whether a process has ended and only its parent has not noticed: as a container's first process
// may never do.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(b), ") ")
	return err == nil && ok && strings.HasPrefix(rest, "Z")
}

// processEnd returns a channel that is closed when the process has ended.
func processEnd(t *testing.T, pid int) <-chan struct{} {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("pid %d: %v", pid, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer unix.Close(fd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && err != unix.EINTR {
				return
			}
		}
	}()
	return ended
}

// apply asks for a Recipe in a namespace.
func (i installation) apply(t *testing.T, namespace, name string) {
	t.Helper()
	i.kubectl(t, fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: radapp.io/v1alpha3
kind: Recipe
metadata: {name: %[2]s, namespace: %[1]s}
spec: {type: Applications.Datastores/redisCaches}
`, namespace, name), "apply", "-f", "-")
}

var recipes = schema.GroupVersionResource{Group: "radapp.io", Version: "v1alpha3", Resource: "recipes"}

// ready waits until a Recipe is Ready.
func (i installation) ready(t *testing.T, namespace, name string) {
	t.Helper()
	i.says(t, namespace, name, "True")
}

// says waits until a Recipe's Ready has the status and a message with all of the texts.
func (i installation) says(t *testing.T, namespace, name, status string, texts ...string) {
	t.Helper()
	dyn, err := dynamic.NewForConfig(i.cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	client := dyn.Resource(recipes).Namespace(namespace)
	only := fields.OneTermEqualSelector("metadata.name", name).String()
	var last any
	_, err = watchtools.UntilWithSync(ctx, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return client.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, nil, func(e watch.Event) (bool, error) {
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			return false, nil
		}
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		last = conditions
		for _, c := range conditions {
			c, _ := c.(map[string]any)
			message, _ := c["message"].(string)
			if c["type"] == "Ready" && c["status"] == status && !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(message, s) }) {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatalf("Recipe %s/%s does not say Ready %s %q: %v; its conditions are %v%s", namespace, name, status, texts, err, last, i.logs())
	}
}
