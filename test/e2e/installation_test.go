// Package e2e tests Radial's programs as a user has them: the built executables, a real Kubernetes API server, the
// real Helm. They need `make build tools`; without them they are skipped, unless RADIAL_REQUIRE_TOOLS=1.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/internal/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// limit bounds every wait of these tests, on a machine under load.
const limit = 2 * time.Minute

// programs returns the folder of the built programs.
func programs(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs whole installations; -short is set")
	}
	bin := ""
	for _, name := range []string{"radial", "radial-server", "radial-controller", "devcluster", "helm"} {
		bin = filepath.Dir(clustertest.Program(t, name))
	}
	return bin
}

// installation is a Radial in developer mode.
type installation struct {
	bin, dir string
}

// answer is what a run of radial came to.
type answer struct {
	out, err string
	code     int
}

// run runs radial with RADIAL_DIR set, and returns what it came to.
func (i installation) run(t *testing.T, args ...string) answer {
	t.Helper()
	return execute(t, filepath.Join(i.bin, "radial"), []string{"RADIAL_DIR=" + i.dir, "RADIAL_SERVER="}, args...)
}

func execute(t *testing.T, program string, env []string, args ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	a := answer{}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		a.code = exit.ExitCode()
	case err != nil:
		t.Fatalf("%s %s: %v", program, strings.Join(args, " "), err)
	}
	a.out, a.err = out.String(), errs.String()
	return a
}

// must runs radial and demands success.
func (i installation) must(t *testing.T, args ...string) string {
	t.Helper()
	a := i.run(t, args...)
	if a.code != 0 {
		t.Fatalf("radial %s: exit code %d\n%s%s%s", strings.Join(args, " "), a.code, a.out, a.err, i.logs())
	}
	return a.out
}

// refuses runs radial and demands that it fails and says all of the texts.
func (i installation) refuses(t *testing.T, args []string, says ...string) {
	t.Helper()
	a := i.run(t, args...)
	if a.code == 0 {
		t.Fatalf("radial %s succeeded:\n%s", strings.Join(args, " "), a.out)
	}
	for _, s := range says {
		if !strings.Contains(a.err, s) {
			t.Errorf("radial %s does not say %q:\n%s", strings.Join(args, " "), s, a.err)
		}
	}
}

// logs is the end of every log, for a failure.
func (i installation) logs() string {
	var b strings.Builder
	paths, _ := filepath.Glob(filepath.Join(i.dir, "logs", "*.log"))
	for _, p := range paths {
		raw, _ := os.ReadFile(p)
		if len(raw) > 2000 {
			raw = raw[len(raw)-2000:]
		}
		b.WriteString("\n== " + filepath.Base(p) + "\n" + string(raw))
	}
	return b.String()
}

// newInstallation starts developer mode on a folder of the test's own; the end of the test stops it.
func newInstallation(t *testing.T) installation {
	t.Helper()
	i := installation{bin: programs(t), dir: filepath.Join(t.TempDir(), "radial")}
	t.Cleanup(func() {
		if a := i.run(t, "dev", "stop"); a.code != 0 {
			t.Errorf("dev stop: %s", a.err)
		}
	})
	i.must(t, "dev", "start", "--detach")
	return i
}

func (i installation) cluster(t *testing.T) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(i.dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	return cfg
}

// kubectl runs the kubectl that goes with the cluster.
func (i installation) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(i.bin, "devcluster"), append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(i.dir, "kubeconfig"))
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, out, i.logs())
	}
	return string(out)
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}
