// Package oci fetches the templates of recipes: from a registry by tag or
// digest, or, where developer mode allows it, from a file.
package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/radial-project/radial/internal/core"
)

// LayerType is the media type of the layer that holds a compiled template.
const LayerType = "application/vnd.ms.bicep.module.layer.v1+json"

const (
	maxTemplate = 4 << 20 // as package template allows
	maxManifest = 1 << 20
	// cacheBytes bounds the templates that are kept by their digest.
	cacheBytes = 8 << 20
	// timeout bounds one request of a registry.
	timeout = 30 * time.Second
)

// Reference says where a template lies.
type Reference struct {
	// Path is <registry>/<repository>[:<tag>|@<digest>] or a file:// URL.
	Path string
	// Version is the tag when Path has none; "latest" when neither has.
	Version string
	// PlainHTTP speaks HTTP to the registry.
	PlainHTTP bool
}

// Content is a fetched template.
type Content struct {
	Data []byte
	// Digest is that of the artifact's manifest, for a file that of its
	// content: what names this very content later.
	Digest string
}

// Options make a Fetcher.
type Options struct {
	// AllowFiles lets file:// URLs in: only in developer mode, since they read
	// the server's own files.
	AllowFiles bool
	// Client is the HTTP client, nil for one with a timeout.
	Client *http.Client
}

// Fetcher fetches templates and keeps a few by digest. It is safe for
// concurrent use.
type Fetcher struct {
	o     Options
	auth  *auth.Client
	cache cache
}

// New makes a Fetcher.
func New(o Options) *Fetcher {
	if o.Client == nil {
		o.Client = &http.Client{Timeout: timeout}
	}
	return &Fetcher{o: o, auth: &auth.Client{Client: o.Client, Cache: auth.NewCache()}, cache: cache{limit: cacheBytes}}
}

// Fetch returns the template. Errors are of core.CodeRecipeDownload; they name
// the reference, the registry, and what to do.
func (f *Fetcher) Fetch(ctx context.Context, r Reference) (Content, error) {
	if strings.HasPrefix(strings.ToLower(r.Path), "file:") {
		return f.file(r.Path)
	}
	ref, err := parse(r)
	if err != nil {
		return Content{}, err
	}
	if d, err := ref.Digest(); err == nil {
		if c, ok := f.cache.get(d.String()); ok {
			return c, nil
		}
	}
	repo := &remote.Repository{Client: f.auth, Reference: ref, PlainHTTP: r.PlainHTTP}
	desc, err := repo.Resolve(ctx, ref.Reference)
	if err != nil {
		return Content{}, fault(ctx, err, ref, r.PlainHTTP)
	}
	if c, ok := f.cache.get(desc.Digest.String()); ok {
		return c, nil
	}
	if desc.Size > maxManifest {
		return Content{}, refuse(ref, "its manifest has %d bytes, more than %d", desc.Size, maxManifest)
	}
	raw, err := content.FetchAll(ctx, repo.Manifests(), desc)
	if err != nil {
		return Content{}, fault(ctx, err, ref, r.PlainHTTP)
	}
	layer, err := pick(raw, ref)
	if err != nil {
		return Content{}, err
	}
	data, err := content.FetchAll(ctx, repo.Blobs(), layer)
	if err != nil {
		return Content{}, fault(ctx, err, ref, r.PlainHTTP)
	}
	c := Content{Data: data, Digest: desc.Digest.String()}
	f.cache.put(c)
	return c, nil
}

func parse(r Reference) (registry.Reference, error) {
	path := r.Path
	for _, scheme := range []string{"oci://", "br:", "https://", "http://"} {
		path = strings.TrimPrefix(path, scheme)
	}
	ref, err := registry.ParseReference(path)
	if err != nil {
		return ref, core.Errorf(core.CodeRecipeDownload, "the template path %q is not a reference: write <registry>/<repository>:<tag> or …@<digest>", r.Path).WithTarget(r.Path)
	}
	if ref.Reference == "" {
		ref.Reference = r.Version
	}
	if ref.Reference == "" {
		ref.Reference = "latest"
	}
	if err := ref.ValidateReference(); err != nil {
		return ref, core.Errorf(core.CodeRecipeDownload, "%q of the template path %q is neither a tag nor a digest", ref.Reference, r.Path).WithTarget(r.Path)
	}
	return ref, nil
}

// pick chooses the layer with the template: the first of LayerType, else the
// only one of JSON.
func pick(raw []byte, ref registry.Reference) (ocispec.Descriptor, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return ocispec.Descriptor{}, refuse(ref, "its manifest is not JSON")
	}
	var jsonLayers []ocispec.Descriptor
	for _, l := range m.Layers {
		if l.MediaType == LayerType {
			jsonLayers = []ocispec.Descriptor{l}
			break
		}
		if l.MediaType == "application/json" || strings.HasSuffix(l.MediaType, "+json") {
			jsonLayers = append(jsonLayers, l)
		}
	}
	if len(jsonLayers) != 1 {
		return ocispec.Descriptor{}, refuse(ref, "it has %d layers of JSON and none of type %s: publish the compiled template as one layer", len(jsonLayers), LayerType)
	}
	if l := jsonLayers[0]; l.Size > maxTemplate {
		return ocispec.Descriptor{}, refuse(ref, "its template has %d bytes, more than %d", l.Size, maxTemplate)
	}
	return jsonLayers[0], nil
}

func refuse(ref registry.Reference, format string, args ...any) error {
	return core.Errorf(core.CodeRecipeDownload, "%s is not a template: %s", ref, fmt.Sprintf(format, args...)).WithTarget(ref.String())
}

// fault says what went wrong with a registry and what to do.
func fault(ctx context.Context, err error, ref registry.Reference, plain bool) error {
	if ctx.Err() != nil {
		return fmt.Errorf("fetch %s: %w", ref, context.Cause(ctx))
	}
	var answer *errcode.ErrorResponse
	status := 0
	if errors.As(err, &answer) {
		status = answer.StatusCode
	}
	say := func(format string, args ...any) error {
		return core.Errorf(core.CodeRecipeDownload, format, args...).WithTarget(ref.String())
	}
	switch {
	case errors.Is(err, errdef.ErrNotFound) || status == http.StatusNotFound:
		return say("the registry %s has no %s in the repository %s: publish it, or correct the recipe's template path", ref.Registry, ref.Reference, ref.Repository)
	case status == http.StatusUnauthorized || status == http.StatusForbidden || errors.Is(err, auth.ErrBasicCredentialNotFound):
		return say("the registry %s does not let us read %s: allow anonymous reads of the repository %s", ref.Registry, ref, ref.Repository)
	case status != 0:
		return say("the registry %s answered %d for %s: %w", ref.Registry, status, ref, err)
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return say("the registry %s speaks plain HTTP: register the recipe with plainHttp (--plain-http) to read %s", ref.Registry, ref)
	case unreachable(err):
		hint := ""
		if plain {
			hint = " by plain HTTP"
		}
		return say("the registry %s cannot be reached%s for %s: check its name and that it runs: %w", ref.Registry, hint, ref, err)
	}
	return say("fetch %s: %w", ref, err)
}

func unreachable(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var u *url.Error
	return errors.As(err, &op) || errors.As(err, &dns) || errors.As(err, &u)
}

// file reads a template from a file:// URL.
func (f *Fetcher) file(path string) (Content, error) {
	say := func(format string, args ...any) error {
		return core.Errorf(core.CodeRecipeDownload, format, args...).WithTarget(path)
	}
	if !f.o.AllowFiles {
		return Content{}, say("the template path %q is a file: files are read only in developer mode; publish the template to a registry", path)
	}
	u, err := url.Parse(path)
	if err != nil || u.Host != "" && u.Host != "localhost" || u.Path == "" {
		return Content{}, say("%q is not a file:// URL with an absolute path", path)
	}
	file, err := os.Open(u.Path)
	if err != nil {
		return Content{}, say("the template %s cannot be read: %w", path, err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxTemplate+1))
	if err != nil {
		return Content{}, say("the template %s cannot be read: %w", path, err)
	}
	if len(data) > maxTemplate {
		return Content{}, say("the template %s has more than %d bytes", path, maxTemplate)
	}
	return Content{Data: data, Digest: digest.FromBytes(data).String()}, nil
}
