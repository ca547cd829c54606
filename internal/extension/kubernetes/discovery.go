package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// kind is what has to be known of a kind to address its objects.
type kind struct {
	resource   string // plural
	namespaced bool
}

// groupVersionKind reads a type such as apps/Deployment, core/Secret or
// Secret, and a version; a version is not needed to find what exists.
func groupVersionKind(typ, version string) (schema.GroupVersionKind, error) {
	if t, v, ok := strings.Cut(typ, "@"); ok {
		typ, version = t, v
	}
	if i := strings.LastIndexByte(version, '/'); i >= 0 {
		version = version[i+1:]
	}
	group, name := "", typ
	if i := strings.LastIndexByte(typ, '/'); i >= 0 {
		group, name = typ[:i], typ[i+1:]
	}
	if strings.EqualFold(group, "core") {
		group = ""
	}
	if name == "" || strings.Contains(group, "/") {
		return schema.GroupVersionKind{}, core.Errorf(core.CodeInvalidTemplate, "%q is not the type of a Kubernetes object: write <group>/<Kind>, core/<Kind> for the legacy group", typ)
	}
	return schema.GroupVersionKind{Group: strings.ToLower(group), Version: version, Kind: name}, nil
}

// lookup finds the kind by discovery of its group and version; a kind that is
// not among what was seen before is looked up anew, since a custom resource
// may have been added. The Kind comes back as the server spells it.
func (c *Cluster) lookup(ctx context.Context, gvk schema.GroupVersionKind) (schema.GroupVersionKind, kind, error) {
	if found, k, ok := c.remembered(gvk); ok {
		return found, k, nil
	}
	free, err := c.ask(ctx)
	if err != nil {
		return gvk, kind{}, err
	}
	defer free()
	if found, k, ok := c.remembered(gvk); ok { // by who asked before us
		return found, k, nil
	}
	gv := gvk.GroupVersion()
	known, err := c.discover(ctx, gv)
	if err != nil {
		return gvk, kind{}, err
	}
	c.mu.Lock()
	c.kinds[gv] = known
	c.mu.Unlock()
	if found, k, ok := find(known, gvk); ok {
		return found, k, nil
	}
	return gvk, kind{}, c.notServed(gvk)
}

func (c *Cluster) remembered(gvk schema.GroupVersionKind) (schema.GroupVersionKind, kind, bool) {
	c.mu.Lock()
	known := c.kinds[gvk.GroupVersion()]
	c.mu.Unlock()
	return find(known, gvk)
}

// lookupAny is lookup for what exists already: where the version is not said, or
// is not served any more, another one of the group shows the same objects. It
// answers an error of [extension.ErrNotServed] only when no version has the
// kind.
func (c *Cluster) lookupAny(ctx context.Context, gvk schema.GroupVersionKind) (schema.GroupVersionKind, kind, error) {
	if gvk.Version != "" {
		found, k, err := c.lookup(ctx, gvk)
		if err == nil || !isNotServed(err) {
			return found, k, err
		}
	}
	versions, err := c.versions(ctx, gvk.Group)
	if err != nil {
		return gvk, kind{}, err
	}
	for _, v := range versions {
		other := gvk
		other.Version = v
		found, k, err := c.lookup(ctx, other)
		if err == nil || !isNotServed(err) {
			return found, k, err
		}
	}
	return gvk, kind{}, c.notServed(gvk)
}

// versions are those of a group that the cluster serves, the preferred first.
func (c *Cluster) versions(ctx context.Context, group string) ([]string, error) {
	if group == "" {
		return []string{"v1"}, nil
	}
	raw, err := c.rest.Get().AbsPath("/apis/" + group).Do(ctx).Raw()
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, c.fault(ctx, err, "discover", group)
	}
	var answer metav1.APIGroup
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, core.Errorf(core.CodeTarget, "cluster %q answered discovery of %s with something that is not a group", c.name, group)
	}
	var versions []string
	if v := answer.PreferredVersion.Version; v != "" {
		versions = append(versions, v)
	}
	for _, v := range answer.Versions {
		if v.Version != answer.PreferredVersion.Version {
			versions = append(versions, v.Version)
		}
	}
	return versions, nil
}

// notServed is the error of a kind that the cluster does not have.
func (c *Cluster) notServed(gvk schema.GroupVersionKind) error {
	of := gvk.GroupVersion().String()
	if gvk.Version == "" {
		of = gvk.Group
	}
	return core.Errorf(core.CodeInvalidTemplate, "%w", &notServed{fmt.Sprintf(
		"cluster %q serves no kind %s of %s: install its definition in the cluster, deploy the definition in the same template, or correct the type", c.name, gvk.Kind, of)})
}

// notServed has a text of its own and is [extension.ErrNotServed].
type notServed struct{ text string }

func (e *notServed) Error() string { return e.text }
func (e *notServed) Unwrap() error { return extension.ErrNotServed }

// forget drops what discovery said of a group and version, after the server
// did not know a kind that it had listed.
func (c *Cluster) forget(gv schema.GroupVersion) {
	c.mu.Lock()
	delete(c.kinds, gv)
	c.mu.Unlock()
}

func find(known map[string]kind, gvk schema.GroupVersionKind) (schema.GroupVersionKind, kind, bool) {
	if k, ok := known[gvk.Kind]; ok {
		return gvk, k, true
	}
	for name, k := range known {
		if strings.EqualFold(name, gvk.Kind) {
			gvk.Kind = name
			return gvk, k, true
		}
	}
	return gvk, kind{}, false
}

func (c *Cluster) discover(ctx context.Context, gv schema.GroupVersion) (map[string]kind, error) {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	raw, err := c.rest.Get().AbsPath(path).Do(ctx).Raw()
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, c.fault(ctx, err, "discover", gv.String())
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, core.Errorf(core.CodeTarget, "cluster %q answered discovery of %s with something that is not a list of resources", c.name, gv)
	}
	kinds := map[string]kind{}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") { // no subresources
			kinds[r.Kind] = kind{resource: r.Name, namespaced: r.Namespaced}
		}
	}
	return kinds, nil
}

// describe names an object for people.
func describe(gvk schema.GroupVersionKind, namespace, name string) string {
	if namespace == "" {
		return fmt.Sprintf("%s %s", gvk.Kind, name)
	}
	return fmt.Sprintf("%s %s/%s", gvk.Kind, namespace, name)
}
