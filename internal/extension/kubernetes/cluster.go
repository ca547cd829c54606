// Package kubernetes is the extension that makes objects of a Kubernetes API:
// any kind that the cluster serves, custom resources included.
//
// Objects are written by server-side apply under the field manager
// [FieldManager], never forced, and carry the id of the control plane's
// resource that they are made for. Readiness is judged by kstatus on a watch;
// deletion carries the object's uid and ends when the object, and for
// workloads what it started, is gone.
//
// The package keeps no informer and no copy of an object: a call reads what it
// needs. What discovery answered is kept as a few words for each kind that was
// asked for.
package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/core"
)

// FieldManager owns the fields that Radial's templates set.
const FieldManager = "radial"

// Options tune a Cluster.
type Options struct {
	// ReadyTimeout bounds the wait for one object; 0 is 10 minutes.
	ReadyTimeout time.Duration
}

// Cluster is a connection to one API server. It is safe for concurrent use.
type Cluster struct {
	name    string
	host    string
	dynamic dynamic.Interface
	rest    rest.Interface
	o       Options

	mu    sync.Mutex
	kinds map[schema.GroupVersion]map[string]kind // discovery, by kind's name
	uid   string                                  // of kube-system, once read
}

// kind is what has to be known of a kind to address its objects.
type kind struct {
	resource   string // plural
	namespaced bool
}

// New makes the connection of a cluster; it does not reach out. name is the
// cluster's name in ids.
func New(name string, config *rest.Config, o Options) (*Cluster, error) {
	if o.ReadyTimeout == 0 {
		o.ReadyTimeout = 10 * time.Minute
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // the API server's own priority and fairness shares it out
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, core.Errorf(core.CodeTarget, "cluster %q: its configuration cannot be used: %w", name, err)
	}
	c := &Cluster{name: name, host: config.Host, o: o, kinds: map[schema.GroupVersion]map[string]kind{}}
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, client); err != nil {
		return nil, core.Errorf(core.CodeTarget, "cluster %q: its configuration cannot be used: %w", name, err)
	}
	raw := dynamic.ConfigFor(config)
	raw.GroupVersion = &schema.GroupVersion{}
	raw.APIPath = "/"
	if c.rest, err = rest.RESTClientForConfigAndClient(raw, client); err != nil {
		return nil, core.Errorf(core.CodeTarget, "cluster %q: its configuration cannot be used: %w", name, err)
	}
	return c, nil
}

// Name is the cluster's name.
func (c *Cluster) Name() string { return c.name }

// Target returns the cluster as a target whose objects go, unless they say
// otherwise, to a namespace.
func (c *Cluster) Target(namespace string) *Target { return &Target{c, namespace} }

// groupVersionKind reads a type such as apps/Deployment, core/Secret or
// Secret, and a version.
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
	if version == "" {
		return schema.GroupVersionKind{}, core.Errorf(core.CodeInvalidTemplate, "the type %q has no version: write %s@v1, or set apiVersion", typ, typ)
	}
	return schema.GroupVersionKind{Group: group, Version: version, Kind: name}, nil
}

// lookup finds the kind by discovery of its group and version; a kind that is
// not among what was seen before is looked up anew, since a custom resource
// may have been added. The Kind comes back as the server spells it.
func (c *Cluster) lookup(ctx context.Context, gvk schema.GroupVersionKind) (schema.GroupVersionKind, kind, error) {
	gv := gvk.GroupVersion()
	c.mu.Lock()
	known := c.kinds[gv]
	c.mu.Unlock()
	if found, k, ok := find(known, gvk); ok {
		return found, k, nil
	}
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
	return gvk, kind{}, c.unknownKind(gvk)
}

func (c *Cluster) unknownKind(gvk schema.GroupVersionKind) error {
	return core.Errorf(core.CodeInvalidTemplate, "cluster %q serves no kind %s of %s: install its definition in the cluster, or correct the type", c.name, gvk.Kind, gvk.GroupVersion())
}

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
		return nil, c.fault(ctx, err, "discovery of "+gv.String())
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

// client addresses the objects of a kind in a namespace.
func (c *Cluster) client(gvk schema.GroupVersionKind, k kind, namespace string) dynamic.ResourceInterface {
	r := c.dynamic.Resource(gvk.GroupVersion().WithResource(k.resource))
	if k.namespaced {
		return r.Namespace(namespace)
	}
	return r
}

// describe names an object for people.
func describe(gvk schema.GroupVersionKind, namespace, name string) string {
	if namespace == "" {
		return fmt.Sprintf("%s %s", gvk.Kind, name)
	}
	return fmt.Sprintf("%s %s/%s", gvk.Kind, namespace, name)
}
