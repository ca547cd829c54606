package kubernetes

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// identity is a cluster's mark; uid is "" where reading it is forbidden.
type identity struct{ uid string }

// ConfigID implements extension.Target: the uid of the namespace kube-system,
// which stays when address, authority and credentials change (S-48). It is
// read once for a connection, "" where reading it is forbidden.
func (t *Target) ConfigID(ctx context.Context) (string, error) { return t.c.identity(ctx) }

// ConfigID is that of the cluster's targets.
func (c *Cluster) ConfigID(ctx context.Context) (string, error) { return c.identity(ctx) }

var _ extension.Target = (*Target)(nil)

func (c *Cluster) identity(ctx context.Context) (string, error) {
	if id := c.knownIdentity(); id != nil {
		return id.uid, nil
	}
	free, err := c.ask(ctx)
	if err != nil {
		return "", err
	}
	defer free()
	if id := c.knownIdentity(); id != nil {
		return id.uid, nil
	}
	id := &identity{}
	ns, err := c.dynamic.Resource(namespaces).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case err == nil:
		id.uid = string(ns.GetUID())
	case !apierrors.IsForbidden(err):
		return "", c.fault(ctx, err, "read", "Namespace "+metav1.NamespaceSystem)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = id
	return id.uid, nil
}

func (c *Cluster) knownIdentity() *identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// sameCluster refuses a reference to an object of another cluster. Where the
// cluster's mark may not be read nothing can be compared: the object's uid is
// then all that vouches for it.
func (c *Cluster) sameCluster(ctx context.Context, ref extension.Ref, verb, what string) error {
	if ref.ConfigID == "" {
		return nil
	}
	id, err := c.identity(ctx)
	if err != nil || id == "" || id == ref.ConfigID {
		return err
	}
	return core.Errorf(extension.CodeWrongTarget,
		"cannot %s %s: cluster %q is not the one that it was made in (the uid of the namespace %s is %s, it was %s); nothing was changed: "+
			"lead the scope to that cluster again, or detach the resource if that cluster is no more",
		verb, what, c.name, metav1.NamespaceSystem, id, ref.ConfigID).WithTarget(ref.ID.String())
}

// KnownConfigID is ConfigID as far as it was read before, else "".
func (c *Cluster) KnownConfigID() string {
	if id := c.knownIdentity(); id != nil {
		return id.uid
	}
	return ""
}
