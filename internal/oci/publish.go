package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/radial-project/radial/internal/core"
)

// Media types of a published template: those of a Bicep module, so that every
// program that reads recipes reads ours.
const (
	ArtifactType = "application/vnd.ms.bicep.module.artifact"
	ConfigType   = "application/vnd.ms.bicep.module.config.v1+json"
)

// Publisher pushes templates to registries.
type Publisher struct{ auth *auth.Client }

// NewPublisher makes a Publisher that signs in with the credentials that Docker
// keeps for its user, where there are any. c is the HTTP client, nil for one
// with a timeout.
func NewPublisher(c *http.Client) *Publisher {
	if c == nil {
		c = &http.Client{Timeout: timeout}
	}
	p := &Publisher{auth: &auth.Client{Client: c, Cache: auth.NewCache()}}
	// A configuration that cannot be read is none: the registry says whether it wants one.
	if store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{}); err == nil {
		p.auth.Credential = credentials.Credential(store)
	}
	return p
}

// Publish pushes a template and returns the digest of its manifest. The same
// template gives the same digest, and pushing it again changes nothing. A tag
// that stands for another template moves only with force; else the error is a
// Conflict.
func (p *Publisher) Publish(ctx context.Context, r Reference, template []byte, force bool) (string, error) {
	if strings.HasPrefix(strings.ToLower(r.Path), "file:") {
		return "", core.Errorf(core.CodeBadRequest, "%s is a file: a template is published to <registry>/<repository>:<tag>", r.Path).WithTarget(r.Path)
	}
	if len(template) > maxTemplate {
		return "", core.Errorf(core.CodeTooLarge, "the template has %d bytes, more than %d", len(template), maxTemplate)
	}
	var object map[string]any
	if err := json.Unmarshal(template, &object); err != nil {
		return "", core.Errorf(core.CodeRecipeInvalid, "the template is not a JSON object: compile it first (bicep build), and publish what that makes: %w", err)
	}
	ref, err := parse(r)
	if err != nil {
		return "", err
	}
	if _, err := ref.Digest(); err == nil {
		return "", core.Errorf(core.CodeBadRequest, "%s names a digest: publish to a tag, and use the digest that this answers", r.Path).WithTarget(r.Path)
	}
	repo := &remote.Repository{Client: p.auth, Reference: ref, PlainHTTP: r.PlainHTTP}
	config := ocispec.Descriptor{MediaType: ConfigType, Digest: digest.FromBytes(nothing), Size: int64(len(nothing))}
	layer := ocispec.Descriptor{MediaType: LayerType, Digest: digest.FromBytes(template), Size: int64(len(template))}
	raw, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		ArtifactType: ArtifactType, Config: config, Layers: []ocispec.Descriptor{layer},
	})
	if err != nil {
		return "", err
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, raw)
	there, err := repo.Resolve(ctx, ref.Reference)
	switch {
	case err == nil && there.Digest == desc.Digest:
		return desc.Digest.String(), nil
	case err == nil && !force:
		return "", core.Errorf(core.CodeConflict, "%s stands for another template (%s): publish under another tag, or move this one with --force", ref, there.Digest).WithTarget(ref.String())
	case err != nil && !errors.Is(err, errdef.ErrNotFound):
		return "", p.fault(ctx, err, ref, r.PlainHTTP)
	}
	for _, blob := range []struct {
		d    ocispec.Descriptor
		data []byte
	}{{config, nothing}, {layer, template}} {
		if err := pushBlob(ctx, repo, blob.d, blob.data); err != nil {
			return "", p.fault(ctx, err, ref, r.PlainHTTP)
		}
	}
	if err := repo.PushReference(ctx, desc, strings.NewReader(string(raw)), ref.Reference); err != nil {
		return "", p.fault(ctx, err, ref, r.PlainHTTP)
	}
	return desc.Digest.String(), nil
}

var nothing = []byte("{}")

func pushBlob(ctx context.Context, repo *remote.Repository, d ocispec.Descriptor, data []byte) error {
	there, err := repo.Blobs().Exists(ctx, d)
	if err != nil || there {
		return err
	}
	return repo.Blobs().Push(ctx, d, strings.NewReader(string(data)))
}

// fault says why a registry did not take a template.
func (p *Publisher) fault(ctx context.Context, err error, ref registry.Reference, plain bool) error {
	said := fault(ctx, err, ref, plain)
	if e := (*core.Error)(nil); errors.As(said, &e) && strings.Contains(e.Message, "does not let us read") {
		return core.Errorf(core.CodeForbidden, "the registry %s does not let us write %s: sign in (docker login %s, or the file that DOCKER_CONFIG names)", ref.Registry, ref, ref.Registry).WithTarget(ref.String())
	}
	return fmt.Errorf("not published: %w", said)
}
