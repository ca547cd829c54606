// Package ocitest runs the real registry of this repository's tools for tests.
package ocitest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/radial-project/radial/internal/clustertest"
)

var listening = regexp.MustCompile(`listening on (127\.0\.0\.1:\d+)`)

// Start runs a registry on a free port of loopback that keeps its data in dir,
// with extra lines of configuration, and returns its address and what stops it.
func Start(program, dir, extra string) (address string, stop func(), err error) {
	config := filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: info}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: '127.0.0.1:0'}\n%s", filepath.Join(dir, "data"), extra)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return "", nil, err
	}
	cmd := exec.Command(program, "serve", config)
	cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	logs, err := cmd.StderrPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	var seen bytes.Buffer
	lines := bufio.NewScanner(io.TeeReader(logs, &seen))
	for lines.Scan() {
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, logs) }()
			return m[1], stop, nil
		}
	}
	stop()
	return "", nil, fmt.Errorf("the registry ended before it listened:\n%s", seen.String())
}

// Registry runs a registry until the test ends and returns its address. It
// skips the test when the registry is not built.
func Registry(t testing.TB, extra string) string {
	t.Helper()
	address, stop, err := Start(clustertest.Program(t, "registry"), t.TempDir(), extra)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return address
}
