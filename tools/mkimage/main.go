// Mkimage packs static programs into container images, FROM scratch and without
// a container engine: one image for all platforms, the same bytes for the same
// programs.
//
//	mkimage -program radial-server -from dist/programs -version v1 -push localhost:5000/radial-server:v1
//
// The programs are in directories by platform: dist/programs/linux-amd64/radial-server.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is who the programs run as, unless the pod says otherwise.
const user = "65532:65532"

type options struct {
	program, from, version, push, layout string
	plain                                bool
}

func main() {
	var o options
	flag.StringVar(&o.program, "program", "", "`name` of the program")
	flag.StringVar(&o.from, "from", "", "`directory` with a directory for each platform")
	flag.StringVar(&o.version, "version", "dev", "`version` in the labels")
	flag.StringVar(&o.push, "push", "", "`reference` to push to")
	flag.StringVar(&o.layout, "layout", "", "`directory` to write an OCI layout to")
	flag.BoolVar(&o.plain, "plain-http", false, "push by plain HTTP also to registries that are not on this machine")
	flag.Parse()
	if err := run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run(o options, out io.Writer) error {
	if o.program == "" || o.from == "" || o.push == "" && o.layout == "" {
		return errors.New("give -program, -from, and -push or -layout")
	}
	index, err := build(o)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if o.layout != "" {
		if _, err := layout.Write(o.layout, index); err != nil {
			return err
		}
		fmt.Fprintln(out, o.layout+"@"+digest.String())
	}
	if o.push != "" {
		var how []name.Option
		if o.plain {
			how = append(how, name.Insecure)
		}
		ref, err := name.ParseReference(o.push, how...)
		if err != nil {
			return err
		}
		if err := remote.WriteIndex(ref, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("push to %s: %w", ref, err)
		}
		fmt.Fprintln(out, ref.Context().Name()+"@"+digest.String())
	}
	return nil
}

// build makes an image for each platform that has the program.
func build(o options) (v1.ImageIndex, error) {
	found, err := filepath.Glob(filepath.Join(o.from, "*", o.program))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no directory OS-ARCH with %s: build it first", o.from, o.program)
	}
	slices.Sort(found)
	labels := map[string]string{
		"org.opencontainers.image.title":    o.program,
		"org.opencontainers.image.version":  o.version,
		"org.opencontainers.image.source":   "https://github.com/radial-project/radial",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, path := range found {
		platform := filepath.Base(filepath.Dir(path))
		system, arch, ok := strings.Cut(platform, "-")
		if !ok {
			return nil, fmt.Errorf("%s is not named OS-ARCH", filepath.Dir(path))
		}
		image, err := pack(path, system, arch, o.program, labels)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: system, Architecture: arch}},
		})
	}
	return mutate.Annotations(index, labels).(v1.ImageIndex), nil
}

func pack(path, system, arch, program string, labels map[string]string) (v1.Image, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	// What hardly ever changes is a layer of its own.
	base := []entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/passwd", mode: 0o644, content: []byte("radial:x:65532:65532::/nonexistent:/sbin/nologin\n")},
		{name: "etc/group", mode: 0o644, content: []byte("radial:x:65532:\n")},
		{name: "tmp/", mode: 0o1777},
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, entries := range [][]entry{base, {{name: program, mode: 0o755, content: content}}} {
		raw, err := archive(entries)
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = system, arch
	config.Config = v1.Config{Entrypoint: []string{"/" + program}, User: user, WorkingDir: "/", Labels: labels}
	return mutate.ConfigFile(image, config)
}

type entry struct {
	name    string // a directory's ends with "/"
	mode    int64
	content []byte
}

// archive is a tar with no times and no owners: the same for the same content.
func archive(entries []entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}
