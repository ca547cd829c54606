package oci

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/ocitest"
)

// push publishes layers under a tag and returns the manifest's digest.
func push(t *testing.T, address, name, tag string, layers map[string][]byte) string {
	t.Helper()
	ctx := t.Context()
	store := memory.New()
	var descs []ocispec.Descriptor
	for mediaType, data := range layers {
		d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
		if err := store.Push(ctx, d, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		descs = append(descs, d)
	}
	m, err := oras.PackManifest(ctx, store, oras.PackManifestVersion1_1, "application/vnd.ms.bicep.module.artifact", oras.PackManifestOptions{Layers: descs})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Tag(ctx, m, tag); err != nil {
		t.Fatal(err)
	}
	repo, err := remote.NewRepository(address + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	repo.PlainHTTP = true
	if _, err := oras.Copy(ctx, store, tag, repo, tag, oras.DefaultCopyOptions); err != nil {
		t.Fatal(err)
	}
	return m.Digest.String()
}

// counting counts the requests that reach a registry.
type counting struct{ n atomic.Int64 }

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return http.DefaultTransport.RoundTrip(r)
}

func TestFetch(t *testing.T) {
	address := ocitest.Registry(t, "")
	first := push(t, address, "recipes/redis", "1.0", map[string][]byte{LayerType: []byte(`{"v":1}`)})
	count := &counting{}
	f := New(Options{Client: &http.Client{Transport: count}})

	fetch := func(path, version string) Content {
		t.Helper()
		c, err := f.Fetch(t.Context(), Reference{Path: path, Version: version, PlainHTTP: true})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := fetch(address+"/recipes/redis:1.0", ""); string(c.Data) != `{"v":1}` || c.Digest != first {
		t.Errorf("by tag: %s %s, want digest %s", c.Data, c.Digest, first)
	}
	before := count.n.Load()
	fetch(address+"/recipes/redis", "1.0")
	if n := count.n.Load() - before; n != 1 {
		t.Errorf("a tag that has not moved took %d requests, want the one that asks where it points", n)
	}
	before = count.n.Load()
	if c := fetch(address+"/recipes/redis@"+first, ""); string(c.Data) != `{"v":1}` {
		t.Errorf("by digest: %s", c.Data)
	}
	if n := count.n.Load() - before; n != 0 {
		t.Errorf("a known digest took %d requests", n)
	}

	// The tag moves; the digest does not.
	second := push(t, address, "recipes/redis", "1.0", map[string][]byte{LayerType: []byte(`{"v":2}`)})
	if c := fetch("oci://"+address+"/recipes/redis:1.0", ""); string(c.Data) != `{"v":2}` || c.Digest != second {
		t.Errorf("after the tag moved: %s", c.Data)
	}
	fresh := New(Options{})
	c, err := fresh.Fetch(t.Context(), Reference{Path: address + "/recipes/redis@" + first, PlainHTTP: true})
	if err != nil || string(c.Data) != `{"v":1}` {
		t.Errorf("by digest, by a fetcher that knows nothing: %s, %v", c.Data, err)
	}
	push(t, address, "recipes/plain", "latest", map[string][]byte{"application/json": []byte(`{"v":3}`), "text/plain": []byte("x")})
	if c := fetch(address+"/recipes/plain", ""); string(c.Data) != `{"v":3}` {
		t.Errorf("the only layer of JSON, tag latest: %s", c.Data)
	}
}

func TestFaults(t *testing.T) {
	address := ocitest.Registry(t, "")
	push(t, address, "r/text", "1", map[string][]byte{"text/plain": []byte("x")})
	push(t, address, "r/big", "1", map[string][]byte{LayerType: bytes.Repeat([]byte(" "), maxTemplate+1)})
	// user:password; anonymous reads are not allowed.
	htpasswd := filepath.Join(t.TempDir(), "htpasswd")
	if err := os.WriteFile(htpasswd, []byte("user:$2y$05$iyR3fEbkXDvC8rDmJOT.x.A6BvlJV3VMOBdOPYZDmBDTXgdqo5FHm\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	closed := ocitest.Registry(t, fmt.Sprintf("auth: {htpasswd: {realm: r, path: %s}}\n", htpasswd))
	for name, c := range map[string]struct {
		ref   Reference
		parts []string
	}{
		"no such tag":          {Reference{Path: address + "/r/text:9", PlainHTTP: true}, []string{address, "has no 9 in the repository r/text"}},
		"no such repository":   {Reference{Path: address + "/none:1", PlainHTTP: true}, []string{"has no 1 in the repository none"}},
		"no template in it":    {Reference{Path: address + "/r/text:1", PlainHTTP: true}, []string{"0 layers of JSON", LayerType}},
		"too large":            {Reference{Path: address + "/r/big:1", PlainHTTP: true}, []string{"4194305 bytes, more than 4194304"}},
		"plain HTTP not asked": {Reference{Path: address + "/r/text:1"}, []string{"speaks plain HTTP", "--plain-http"}},
		"not allowed":          {Reference{Path: closed + "/r/text:1", PlainHTTP: true}, []string{closed, "does not let us read"}},
		"unreachable":          {Reference{Path: "127.0.0.1:1/r/text:1", PlainHTTP: true}, []string{"the registry 127.0.0.1:1 cannot be reached by plain HTTP for 127.0.0.1:1/r/text:1"}},
		"no reference":         {Reference{Path: "redis"}, []string{`"redis" is not a reference`, "<registry>/<repository>:<tag>"}},
		"bad tag":              {Reference{Path: address + "/r/text", Version: "a b"}, []string{`"a b"`, "neither a tag nor a digest"}},
		"a file":               {Reference{Path: "file:///etc/hostname"}, []string{"only in developer mode"}},
	} {
		_, err := New(Options{}).Fetch(t.Context(), c.ref)
		if core.CodeOf(err) != core.CodeRecipeDownload {
			t.Errorf("%s: got %v (code %s)", name, err, core.CodeOf(err))
			continue
		}
		for _, p := range c.parts {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("%s: the error %q does not say %q", name, err, p)
			}
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(Options{}).Fetch(ended, Reference{Path: address + "/r/text:1", PlainHTTP: true}); err == nil || core.CodeOf(err) == core.CodeRecipeDownload {
		t.Errorf("a call that was cancelled is no fault of the registry: %v", err)
	}
}

func TestFiles(t *testing.T) {
	f := New(Options{AllowFiles: true})
	path := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(path, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := f.Fetch(t.Context(), Reference{Path: "file://" + path})
	if err != nil || string(c.Data) != `{}` || c.Digest != digest.FromString(`{}`).String() {
		t.Errorf("got %s %s, %v", c.Data, c.Digest, err)
	}
	for _, bad := range []string{"file://" + path + ".none", "file://host" + path, "file:x"} {
		if _, err := f.Fetch(t.Context(), Reference{Path: bad}); core.CodeOf(err) != core.CodeRecipeDownload {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestCacheStaysInItsBound(t *testing.T) {
	c := cache{limit: 10}
	c.put(Content{Data: make([]byte, 6), Digest: "a"})
	c.put(Content{Data: make([]byte, 4), Digest: "b"})
	c.get("a")
	c.put(Content{Data: make([]byte, 4), Digest: "c"})
	for digest, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if _, ok := c.get(digest); ok != want {
			t.Errorf("%s is kept: %t, want %t (what was used longest ago goes)", digest, ok, want)
		}
	}
}

func TestPublish(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	address := ocitest.Registry(t, "")
	p, f := NewPublisher(nil), New(Options{})
	ref := Reference{Path: address + "/recipes/redis:1.0", PlainHTTP: true}
	one, other := []byte(`{"resources":[]}`), []byte(`{"resources":[],"outputs":{}}`)

	first, err := p.Publish(t.Context(), ref, one, false)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.Publish(t.Context(), ref, one, false); err != nil || again != first {
		t.Errorf("the same once more: %s, %v; want %s", again, err, first)
	}
	// What was published is what a server fetches, by the tag and by the digest.
	for _, path := range []string{ref.Path, address + "/recipes/redis@" + first, address + "/recipes/redis:1.0@" + first} {
		c, err := f.Fetch(t.Context(), Reference{Path: path, PlainHTTP: true})
		if err != nil || string(c.Data) != string(one) || c.Digest != first {
			t.Errorf("fetch %s: %q, %s, %v", path, c.Data, c.Digest, err)
		}
	}
	if _, err := p.Publish(t.Context(), ref, other, false); !core.IsCode(err, core.CodeConflict) || !strings.Contains(err.Error(), "--force") {
		t.Errorf("another template under the tag: %v", err)
	}
	moved, err := p.Publish(t.Context(), ref, other, true)
	if err != nil || moved == first {
		t.Errorf("moved by force: %s, %v", moved, err)
	}
	if c, err := f.Fetch(t.Context(), ref); err != nil || string(c.Data) != string(other) {
		t.Errorf("the tag after the move: %q, %v", c.Data, err)
	}

	for name, c := range map[string]struct {
		ref      Reference
		template string
		want     string
	}{
		"a file":             {Reference{Path: "file:///tmp/x.json"}, `{}`, "is a file"},
		"a digest":           {Reference{Path: address + "/recipes/redis@" + first, PlainHTTP: true}, `{}`, "publish to a tag"},
		"no JSON":            {ref, `param x string`, "compile it first"},
		"no plain HTTP":      {Reference{Path: ref.Path}, `{}`, "plain HTTP"},
		"nobody answers":     {Reference{Path: "127.0.0.1:1/recipes/redis:1.0", PlainHTTP: true}, `{}`, "cannot be reached"},
		"no such repository": {Reference{Path: "redis"}, `{}`, "is not a reference"},
	} {
		if _, err := p.Publish(t.Context(), c.ref, []byte(c.template), false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
