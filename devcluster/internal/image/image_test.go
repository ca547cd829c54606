package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestWrite(t *testing.T) {
	program := filepath.Join(t.TempDir(), "p")
	if err := os.WriteFile(program, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := Spec{Name: "example.test/p:1", Files: map[string]string{"/bin/p": program}, Entrypoint: []string{"/bin/p"}}
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if err := spec.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("equal input gave different archives")
	}
	files := untar(t, &first)
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	var config struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(files[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	layer := files[manifest[0].Layers[0]]
	if config.RootFS.DiffIDs[0] != "sha256:"+digest(layer) || manifest[0].RepoTags[0] != spec.Name {
		t.Errorf("manifest %v and config %v do not describe the layer", manifest, config)
	}
	if got := untar(t, bytes.NewReader(layer)); string(got["bin/p"]) != "program" {
		t.Errorf("the layer holds %q", got)
	}
}

func TestMissingFile(t *testing.T) {
	err := Spec{Name: "x", Files: map[string]string{"/p": filepath.Join(t.TempDir(), "absent")}}.Write(io.Discard)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
}
