// Package image writes container images without a container engine: one layer of local files, in the archive
// format that `docker load` and `ctr images import` read. Equal input gives equal bytes.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Spec says what is in an image.
type Spec struct {
	Name       string            // with its tag
	Files      map[string]string // path in the image → file on this machine; all are executable
	Entrypoint []string
}

// Write writes the archive.
func (s Spec) Write(w io.Writer) error {
	layer, err := s.layer()
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "created": time.Unix(0, 0).UTC(),
		"config": map[string]any{"Entrypoint": s.Entrypoint},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
	if err != nil {
		return err
	}
	configName, layerName := digest(config)+".json", digest(layer)+".tar"
	manifest, err := json.Marshal([]map[string]any{{"Config": configName, "RepoTags": []string{s.Name}, "Layers": []string{layerName}}})
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	for _, f := range []struct {
		name    string
		content []byte
	}{{configName, config}, {layerName, layer}, {"manifest.json", manifest}} {
		if err := add(tw, f.name, 0o644, f.content); err != nil {
			return err
		}
	}
	return tw.Close()
}

func (s Spec) layer() ([]byte, error) {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, path := range slices.Sorted(maps.Keys(s.Files)) {
		content, err := os.ReadFile(s.Files[path])
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", s.Name, err)
		}
		if err := add(tw, strings.TrimPrefix(path, "/"), 0o755, content); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), tw.Close()
}

func add(tw *tar.Writer, name string, mode int64, content []byte) error {
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err := tw.Write(content)
	return err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
