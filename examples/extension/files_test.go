package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	sdk "github.com/radial-project/radial/extensionsdk"
)

// Nothing outside of the directory is read or written, whatever a template says.
func TestStaysInside(t *testing.T) {
	base := t.TempDir()
	dir, outside := filepath.Join(base, "dir"), filepath.Join(base, "outside")
	if _, err := makeMark(dir, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "secret.txt"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "way-out")); err != nil {
		t.Fatal(err)
	}
	f := newFiles(base)
	config := map[string]any{"directory": "dir"}
	for _, name := range []string{"../outside/new.txt", "/etc/new.txt", "way-out/new.txt", "a/../../outside/new.txt", "", ".", "./a", "a//b", markFile, "sub/" + markFile} {
		if _, err := f.CreateOrUpdate(t.Context(), sdk.Specification{Type: "File", Config: config, Properties: map[string]any{"path": name, "content": "x"}}); err == nil {
			t.Errorf("%q was written", name)
		}
	}
	for _, name := range []string{"../outside/secret.txt", "way-out/secret.txt", markFile} {
		if r, err := f.Get(t.Context(), sdk.Reference{Type: "File", Config: config, Identifiers: map[string]any{"path": name}}); err == nil {
			t.Errorf("%q was read: %v", name, r.Properties)
		}
		if _, err := f.Delete(t.Context(), sdk.Reference{Type: "File", Config: config, Identifiers: map[string]any{"path": name}}); err == nil {
			t.Errorf("%q was deleted", name)
		}
	}
	for _, directory := range []any{"../outside", "/", "outside", "", 1, "dir/../.."} {
		_, err := f.Get(t.Context(), sdk.Reference{Type: "File", Config: map[string]any{"directory": directory}, Identifiers: map[string]any{"path": "secret.txt"}})
		var refused *sdk.Error
		if !errors.As(err, &refused) || refused.Target != "/config/directory" {
			t.Errorf("directory %v: %v", directory, err)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// A directory keeps its mark for life, and asks for its passphrase.
func TestMark(t *testing.T) {
	base := t.TempDir()
	if _, err := makeMark(filepath.Join(base, "d"), "open sesame\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := makeMark(filepath.Join(base, "d"), ""); err == nil {
		t.Error("a directory was marked twice")
	}
	f := newFiles(base)
	for passphrase, ok := range map[any]bool{"open sesame": true, "open": false, "": false, 7: false} {
		p, err := f.open(map[string]any{"directory": "d", "passphrase": passphrase}, "")
		if (err == nil) != ok {
			t.Errorf("%v: %v", passphrase, err)
		}
		if err == nil {
			if _, echoed := p.echo["passphrase"]; echoed {
				t.Error("the passphrase is echoed")
			}
			p.close()
		}
	}
}
