package clustertest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The package's cluster goes on from the template, which has nothing of a run;
// the second one has authorities of its own.
func TestTemplate(t *testing.T) {
	c, other := Start(t), Second(t)
	if c.Config.Host == other.Config.Host {
		t.Errorf("both clusters answer at %s", c.Config.Host)
	}
	first, second := read(t, filepath.Join(c.Dir, "pki", "ca.crt")), read(t, filepath.Join(other.Dir, "pki", "ca.crt"))
	if bytes.Equal(first, second) {
		t.Error("the second cluster has the authority of the first")
	}
	program, err := find("devcluster")
	if err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := fromTemplate(program, copied); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(copied, "port")); !os.IsNotExist(err) {
		t.Errorf("a template with a port makes its copies collide: %v", err)
	}
	if authority := read(t, filepath.Join(copied, "pki", "ca.crt")); !bytes.Equal(authority, first) {
		t.Error("the package's cluster did not start from the template")
	}
}

func TestCopyKeepsContentAndSize(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	content := make([]byte, 3<<20+5)
	copy(content, "begin")
	copy(content[1<<20:], "middle")
	for name, b := range map[string][]byte{"holes": content, "empty": nil, "short": []byte("short"), "zeros": make([]byte, 100)} {
		if err := os.WriteFile(filepath.Join(from, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyTree(to, from); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"holes": content, "empty": {}, "short": []byte("short"), "zeros": make([]byte, 100)} {
		if got := read(t, filepath.Join(to, name)); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes that differ from the %d copied", name, len(got), len(want))
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
