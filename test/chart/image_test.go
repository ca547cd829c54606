package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
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
	"testing"
	"time"

	"github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
)

// tool is a program of bin/.
func tool(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("RADIAL_BIN")
	if dir == "" {
		dir = "../../bin"
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		if os.Getenv("RADIAL_REQUIRE_TOOLS") == "1" {
			t.Fatalf("%s is not built: run `make %s` (%v)", name, name, err)
		}
		t.Skipf("%s is not built: run `make %s` (%v)", name, name, err)
	}
	return path
}

// registry runs a real registry and returns its address.
func registry(t *testing.T) string {
	t.Helper()
	program := tool(t, "registry")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %q}}\nhttp: {addr: %q}\n", dir, address)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "serve", config)
	cmd.Env = []string{"HOME=" + dir, "OTEL_TRACES_EXPORTER=none"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	deadline := time.Now().Add(30 * time.Second)
	for {
		resp, err := http.Get("http://" + address + "/v2/")
		if err == nil {
			resp.Body.Close()
			return address
		}
		if time.Now().After(deadline) {
			t.Fatalf("the registry does not answer: %v", err)
		}
		time.Sleep(20 * time.Millisecond) // it has no signal
	}
}

// Images are one static program for each platform, run by nobody in particular,
// and the same programs make the same image.
func TestImages(t *testing.T) {
	t.Parallel()
	mkimage := tool(t, "mkimage")
	address := registry(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	from := t.TempDir()
	for _, platform := range []string{"linux-amd64", "linux-arm64"} {
		if err := os.MkdirAll(filepath.Join(from, platform), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, platform, "radial-server"), []byte("program of "+platform), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pack := func(tag string) string {
		t.Helper()
		out, err := exec.CommandContext(ctx, mkimage, "-program", "radial-server", "-from", from, "-version", "v9", "-push", address+"/radial-server:"+tag).CombinedOutput()
		if err != nil {
			t.Fatalf("mkimage: %v\n%s", err, out)
		}
		_, digest, _ := strings.Cut(strings.TrimSpace(string(out)), "@")
		return digest
	}
	if first, second := pack("a"), pack("b"); first != second || first == "" {
		t.Errorf("the same program makes %s and %s", first, second)
	}

	repository, err := remote.NewRepository(address + "/radial-server")
	if err != nil {
		t.Fatal(err)
	}
	repository.PlainHTTP = true
	fetch := func(d v1.Descriptor) []byte {
		t.Helper()
		raw, err := content.FetchAll(ctx, repository, d)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	top, err := repository.Resolve(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	var index v1.Index
	if err := json.Unmarshal(fetch(top), &index); err != nil || len(index.Manifests) != 2 {
		t.Fatalf("%d platforms, %v", len(index.Manifests), err)
	}
	for _, m := range index.Manifests {
		platform := m.Platform.OS + "-" + m.Platform.Architecture
		var manifest v1.Manifest
		if err := json.Unmarshal(fetch(m), &manifest); err != nil {
			t.Fatal(err)
		}
		var image v1.Image
		if err := json.Unmarshal(fetch(manifest.Config), &image); err != nil {
			t.Fatal(err)
		}
		if image.Config.User != "65532:65532" || fmt.Sprint(image.Config.Entrypoint) != "[/radial-server]" || image.Architecture != m.Platform.Architecture ||
			image.Config.Labels["org.opencontainers.image.version"] != "v9" {
			t.Errorf("%s: %+v", platform, image)
		}
		files := map[string]string{}
		for _, l := range manifest.Layers {
			z, err := gzip.NewReader(bytes.NewReader(fetch(l)))
			if err != nil {
				t.Fatal(err)
			}
			for r := tar.NewReader(z); ; {
				h, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				raw, _ := io.ReadAll(r)
				files[h.Name] = string(raw)
				if h.Name == "radial-server" && h.Mode != 0o755 {
					t.Errorf("%s: the program has mode %o", platform, h.Mode)
				}
			}
		}
		if files["radial-server"] != "program of "+platform || len(files) != 5 {
			t.Errorf("%s holds %v", platform, files)
		}
	}
}
