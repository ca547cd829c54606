package scope

import (
	"context"
	"errors"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
)

// connection is a cluster whose credentials can be asked for again.
type connection struct {
	// held has the one place of who may read or replace the cluster.
	held    chan struct{}
	cluster *kubernetes.Cluster
	connect Connect
	fixed   bool
}

func newConnection(c *kubernetes.Cluster, connect Connect, fixed bool) *connection {
	return &connection{held: make(chan struct{}, 1), cluster: c, connect: connect, fixed: fixed}
}

func (c *connection) hold(ctx context.Context) (func(), error) {
	select {
	case c.held <- struct{}{}:
		return func() { <-c.held }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *connection) current(ctx context.Context) (*kubernetes.Cluster, error) {
	free, err := c.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	return c.cluster, nil
}

// renew asks for other credentials in place of those of refused, once for all
// who were refused. They must lead to the same cluster: what was planned for one
// is not made in another.
func (c *connection) renew(ctx context.Context, refused *kubernetes.Cluster) (*kubernetes.Cluster, error) {
	free, err := c.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	if c.cluster != refused {
		return c.cluster, nil
	}
	cluster, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	if before := refused.KnownConfigID(); before != "" {
		now, err := cluster.ConfigID(ctx)
		if err != nil {
			return nil, err
		}
		if now != "" && now != before {
			return nil, core.Errorf(extension.CodeWrongTarget, "cluster %q was replaced by another one meanwhile: nothing was done to the new one; deploy again", cluster.Name())
		}
	}
	c.cluster = cluster
	return cluster, nil
}

// target is a cluster with a namespace; a call whose credentials are refused is
// made once more with new ones.
type target struct {
	conn      *connection
	namespace string
}

var (
	_ extension.Target           = (*target)(nil)
	_ extension.Releaser         = (*target)(nil)
	_ extension.DefaultNamespace = (*target)(nil)
)

func (t *target) do(ctx context.Context, call func(*kubernetes.Target) error) error {
	cluster, err := t.conn.current(ctx)
	if err != nil {
		return err
	}
	err = call(cluster.Target(t.namespace))
	if t.conn.fixed || !errors.Is(err, extension.ErrCredentials) {
		return err
	}
	if cluster, err = t.conn.renew(ctx, cluster); err != nil {
		return err
	}
	return call(cluster.Target(t.namespace))
}

// Preview implements extension.Target.
func (t *target) Preview(ctx context.Context, r extension.Resource) (s extension.State, err error) {
	err = t.do(ctx, func(k *kubernetes.Target) error {
		s, err = k.Preview(ctx, r)
		return err
	})
	return s, err
}

// Apply implements extension.Target.
func (t *target) Apply(ctx context.Context, r extension.Resource) (s extension.State, err error) {
	err = t.do(ctx, func(k *kubernetes.Target) error {
		s, err = k.Apply(ctx, r)
		return err
	})
	return s, err
}

// Get implements extension.Target.
func (t *target) Get(ctx context.Context, ref extension.Ref) (s extension.State, err error) {
	err = t.do(ctx, func(k *kubernetes.Target) error {
		s, err = k.Get(ctx, ref)
		return err
	})
	return s, err
}

// Delete implements extension.Target.
func (t *target) Delete(ctx context.Context, ref extension.Ref) error {
	return t.do(ctx, func(k *kubernetes.Target) error { return k.Delete(ctx, ref) })
}

// Release implements extension.Releaser.
func (t *target) Release(ctx context.Context, ref extension.Ref) error {
	return t.do(ctx, func(k *kubernetes.Target) error { return k.Release(ctx, ref) })
}

// ConfigID implements extension.Target.
func (t *target) ConfigID(ctx context.Context) (id string, err error) {
	err = t.do(ctx, func(k *kubernetes.Target) error {
		id, err = k.ConfigID(ctx)
		return err
	})
	return id, err
}

// DefaultNamespace implements extension.DefaultNamespace.
func (t *target) DefaultNamespace() string { return t.namespace }
