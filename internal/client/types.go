package client

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// apiVersionUCP is the version of planes, groups and providers.
const apiVersionUCP = "2023-10-01-preview"

// Provider is the summary of one namespace of resource types.
type Provider struct {
	Name          string                  `json:"name"`
	ResourceTypes map[string]ResourceType `json:"resourceTypes"`
}

// ResourceType is the summary of one type.
type ResourceType struct {
	APIVersions       map[string]APIVersion `json:"apiVersions"`
	DefaultAPIVersion string                `json:"defaultApiVersion,omitempty"`
	Capabilities      []string              `json:"capabilities,omitempty"`
	Description       string                `json:"description,omitempty"`
}

// APIVersion is one version of a type.
type APIVersion struct {
	// Schema is the OpenAPI schema of the properties, absent where the server
	// does not show it.
	Schema json.RawMessage `json:"schema,omitempty"`
}

// Type is what a writer of resources needs to know about their type.
type Type struct {
	// Name is "Namespace/type" as registered.
	Name string
	// APIVersion is the default one, or the newest that is no preview, or the
	// newest.
	APIVersion string
	// Inert types are stored and run no recipe.
	Inert bool
	// Declared are the names of the properties that the schema declares; nil
	// when the server shows no schema.
	Declared map[string]bool
}

// CapabilityInert is the capability of types that run no recipe.
const CapabilityInert = "ManualResourceProvisioning"

// Providers lists all namespaces of resource types.
func (c *Client) Providers(ctx context.Context) ([]Provider, error) {
	return collect[Provider](ctx, c, "/planes/radius/local/providers", version(apiVersionUCP), 0)
}

// Type looks up a resource type by its name, without case. NotFound of the
// namespace and InvalidResourceType of the type both say which are known.
func (c *Client) Type(ctx context.Context, resourceType string) (Type, error) {
	ns, name, ok := strings.Cut(resourceType, "/")
	if !ok || ns == "" || name == "" {
		return Type{}, core.Errorf(core.CodeInvalidResourceType, "%q is not a resource type; write it as Namespace/type, such as Applications.Datastores/redisCaches", resourceType)
	}
	a, err := c.call(ctx, http.MethodGet, "/planes/radius/local/providers/"+ns, version(apiVersionUCP), nil, nil)
	if err != nil && core.IsCode(err, core.CodeNotFound) {
		return Type{}, core.Errorf(core.CodeInvalidResourceType, "resource type %q is not registered: there is no namespace %s; `radial resource-type list` shows the registered types: %w", resourceType, ns, err)
	}
	if err != nil {
		return Type{}, err
	}
	var p Provider
	if err := json.Unmarshal(a.body, &p); err != nil {
		return Type{}, core.Errorf(core.CodeInternal, "the summary of namespace %s cannot be read: %w", ns, err)
	}
	known := make([]string, 0, len(p.ResourceTypes))
	for n, t := range p.ResourceTypes {
		if strings.EqualFold(n, name) {
			return t.describe(ns + "/" + n)
		}
		known = append(known, ns+"/"+n)
	}
	slices.Sort(known)
	return Type{}, core.Errorf(core.CodeInvalidResourceType, "resource type %q is not registered; %s has: %s", resourceType, ns, strings.Join(known, ", "))
}

func (t ResourceType) describe(name string) (Type, error) {
	d := Type{Name: name, APIVersion: t.DefaultAPIVersion, Inert: slices.Contains(t.Capabilities, CapabilityInert)}
	if d.APIVersion == "" {
		for v := range t.APIVersions {
			if d.APIVersion == "" || newer(v, d.APIVersion) {
				d.APIVersion = v
			}
		}
	}
	if d.APIVersion == "" {
		return Type{}, core.Errorf(core.CodeInvalidAPIVersion, "resource type %s has no API version; register one", name)
	}
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if raw := t.APIVersions[d.APIVersion].Schema; len(raw) > 0 && json.Unmarshal(raw, &s) == nil {
		d.Declared = make(map[string]bool, len(s.Properties))
		for p := range s.Properties {
			d.Declared[p] = true
		}
	}
	return d, nil
}

// newer prefers released versions, then later dates.
func newer(a, b string) bool {
	pa, pb := strings.HasSuffix(a, "-preview"), strings.HasSuffix(b, "-preview")
	if pa != pb {
		return pb
	}
	return a > b
}

// PutManifest registers the manifest of a namespace whole: its types are those,
// or nothing has changed. force replaces schemas that stored resources do not
// fit.
func (c *Client) PutManifest(ctx context.Context, namespace string, manifest json.RawMessage, force bool) error {
	query := version(apiVersionUCP)
	if force {
		query.Set("force", "true")
	}
	_, err := c.call(ctx, http.MethodPut, "/planes/radius/local/providers/System.Resources/resourceProviders/"+namespace+"/manifest", query, nil, manifest)
	return err
}
