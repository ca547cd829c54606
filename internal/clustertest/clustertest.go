// Package clustertest gives a test package one real Kubernetes API server: the
// devcluster of this repository, started on first use and stopped when the
// package's tests have ended.
//
// A package that uses it says so once:
//
//	func TestMain(m *testing.M) { clustertest.Main(m) }
//
// and each test asks for the cluster and for a namespace of its own, which it
// leaves behind: waiting for namespaces to end would cost more than the
// cluster's whole start.
//
// The program is looked for in the directory that RADIAL_BIN names, else in
// bin/ at the root of the repository. Without it tests are skipped, unless
// RADIAL_REQUIRE_TOOLS=1 says that a missing program is a failure.
package clustertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// startLimit bounds the start of a cluster on a machine under load; on an idle
// one it takes about three seconds.
const startLimit = 3 * time.Minute

// Cluster is a running Kubernetes control plane with one simulated node: pods
// are scheduled and become Ready, no process runs in them.
type Cluster struct {
	// Kubeconfig is the path of an administrator's kubeconfig.
	Kubeconfig string
	// Config is the same for client-go, without client-side rate limits. Copy
	// it before changing it.
	Config *rest.Config
	// Dir is the cluster's state directory, with its logs.
	Dir string

	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	output  *tail
}

// sharedCluster is a cluster that all tests of a package use.
type sharedCluster struct {
	alone   bool // starts from nothing, with authorities of its own
	once    sync.Once
	cluster *Cluster
	err     error
}

var shared, second = sharedCluster{}, sharedCluster{alone: true}

// errMissing says that the devcluster has not been built.
var errMissing = errors.New("devcluster is not built: run `make devcluster`, or set RADIAL_BIN to a directory that holds it")

// Main runs the tests of a package, stops the cluster if one was started, and
// exits.
func Main(m *testing.M) {
	code := m.Run()
	if err := Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "clustertest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Stop ends the clusters that were started: for a TestMain that has more to do
// than [Main].
func Stop() error {
	var errs []error
	for _, s := range []*sharedCluster{&shared, &second} {
		if s.cluster != nil {
			errs = append(errs, s.cluster.remove())
		}
	}
	return errors.Join(errs...)
}

// Start returns the package's cluster, starting it on the first call. It skips
// the test when the devcluster is missing.
func Start(tb testing.TB) *Cluster {
	tb.Helper()
	return shared.get(tb)
}

// Second returns another cluster, for tests in which it matters that two are
// not one. It has an address, authorities and objects of its own; like the
// first it is started on the first call and ends with the package's tests.
func Second(tb testing.TB) *Cluster {
	tb.Helper()
	Long(tb)
	return second.get(tb)
}

func (s *sharedCluster) get(tb testing.TB) *Cluster {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a cluster; -short is set")
	}
	s.once.Do(func() { s.cluster, s.err = start(s.alone) })
	switch {
	case errors.Is(s.err, errMissing) && os.Getenv("RADIAL_REQUIRE_TOOLS") != "1":
		tb.Skip(s.err)
	case s.err != nil:
		tb.Fatalf("start devcluster: %v", s.err)
	}
	return s.cluster
}

// Namespace makes a namespace whose name starts with prefix and ends in what no
// other test has, and waits until pods can be made in it (it has its default
// ServiceAccount: a ReplicaSet that comes earlier pauses for seconds). It is not
// deleted.
func (c *Cluster) Namespace(tb testing.TB, prefix string) string {
	tb.Helper()
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		tb.Fatal(err)
	}
	ns, err := client.CoreV1().Namespaces().Create(tb.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"},
	}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("make a namespace: %v", err)
	}
	w, err := client.CoreV1().ServiceAccounts(ns.Name).Watch(tb.Context(), metav1.ListOptions{FieldSelector: "metadata.name=default"})
	if err != nil {
		tb.Fatalf("watch for the ServiceAccount of namespace %s: %v", ns.Name, err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Added {
			return ns.Name
		}
	}
	tb.Fatalf("the watch for the ServiceAccount of namespace %s ended", ns.Name)
	return ""
}

// Program returns the path of one of the repository's built programs. It skips
// or fails the test as Start does when it is missing.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	path, err := find(name)
	if err == nil {
		return path
	}
	msg := fmt.Sprintf("%s is not built: run `make %s`, or set RADIAL_BIN to a directory that holds it", name, name)
	if os.Getenv("RADIAL_REQUIRE_TOOLS") == "1" {
		tb.Fatal(msg)
	}
	tb.Skip(msg)
	return ""
}

// Has reports whether Program would find a program, or fail the test for want of
// it: where it is false, it would skip.
func Has(name string) bool {
	_, err := find(name)
	return err == nil || os.Getenv("RADIAL_REQUIRE_TOOLS") == "1"
}

func find(name string) (string, error) {
	dir := os.Getenv("RADIAL_BIN")
	if dir == "" {
		root, err := repositoryRoot()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "bin")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	return path, nil
}

// repositoryRoot is the nearest directory above the working directory (which
// for tests is the package's) that holds the workspace file.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.work above the working directory")
		}
		dir = parent
	}
}

// start starts a cluster in a directory of its own, from the program's template
// unless it is to be alone.
func start(alone bool) (*Cluster, error) {
	program, err := find("devcluster")
	if err != nil {
		return nil, errMissing
	}
	dir, err := os.MkdirTemp("", "radial-clustertest-")
	if err != nil {
		return nil, err
	}
	if !alone {
		if err := fromTemplate(program, dir); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	return launch(program, dir)
}

// launch starts the program on a state directory, and returns when the cluster
// can be used. It removes the directory when that fails.
func launch(program, dir string) (_ *Cluster, err error) {
	c := &Cluster{Dir: dir, ended: make(chan struct{}), output: &tail{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.remove())
		}
	}()
	c.process = exec.Command(program, "up", "--state", dir)
	c.process.SysProcAttr = dieWithParent()
	if _, set := os.LookupEnv("GOGC"); !set { // a short life: memory for time
		c.process.Env = append(os.Environ(), "GOGC=400")
	}
	stdout, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.process.Stderr = c.output
	if err := c.run(); err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	// The last line that `up` prints tells that all is usable and where the
	// kubeconfig lies.
	ready := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(io.TeeReader(stdout, c.output))
		for lines.Scan() {
			if path, ok := strings.CutPrefix(lines.Text(), "KUBECONFIG="); ok {
				select {
				case ready <- path:
				default:
				}
			}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	select {
	case c.Kubeconfig = <-ready:
	case <-c.ended:
		return nil, fmt.Errorf("%s up ended before it was ready; its last output:\n%s", program, c.output)
	case <-ctx.Done():
		return nil, fmt.Errorf("%s up was not ready within %s; its last output:\n%s", program, startLimit, c.output)
	}
	c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	c.Config.QPS = -1
	return c, nil
}

// run starts the process from a thread that lives until the process has
// ended: the signal on the parent's death follows the thread, not the process.
func (c *Cluster) run() error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.ended)
		err := c.process.Start()
		started <- err
		if err == nil {
			_, _ = c.process.Process.Wait()
		}
	}()
	return <-started
}

// How a cluster ends: so that its directory can be used again, or at once.
const (
	inOrder = syscall.SIGTERM
	atOnce  = syscall.SIGQUIT
)

// end asks the process to end in one of the two ways, and returns when it has.
func (c *Cluster) end(how syscall.Signal) error {
	if c.process == nil || c.process.Process == nil {
		return nil
	}
	_ = c.process.Process.Signal(how) // it may have ended already
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-c.ended:
		return nil
	case <-timer.C:
		_ = c.process.Process.Kill()
		<-c.ended
		return errors.New("devcluster up did not end within 30s and was killed")
	}
}

// remove ends the cluster, whose objects nobody needs any more, and removes its
// directory.
func (c *Cluster) remove() error {
	_ = c.end(atOnce) // killed or not, it has ended
	return os.RemoveAll(c.Dir)
}

// tail keeps the last few KiB written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
