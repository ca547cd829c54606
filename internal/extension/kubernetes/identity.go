package kubernetes

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/radial-project/radial/internal/extension"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// ConfigID implements extension.Target: the uid of the namespace kube-system,
// which stays when address, authority and credentials change (S-48). It is
// read once for a connection, "" where reading it is forbidden.
func (t *Target) ConfigID(ctx context.Context) (string, error) { return t.c.identity(ctx) }

var _ extension.Target = (*Target)(nil)

func (c *Cluster) identity(ctx context.Context) (string, error) {
	c.mu.Lock()
	uid := c.uid
	c.mu.Unlock()
	if uid != "" {
		return uid, nil
	}
	ns, err := c.dynamic.Resource(namespaces).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		return "", nil
	}
	if err != nil {
		return "", c.fault(ctx, err, "the namespace "+metav1.NamespaceSystem)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uid = string(ns.GetUID())
	return c.uid, nil
}
