// Package scope resolves a reference to where resources live into the target
// that makes them there. References are what the store keeps; targets, with
// their connections and credentials, live only in the process.
package scope

import (
	"context"
	"sort"
	"strings"
	"sync"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
)

// Kubernetes is the name of the extension for clusters.
const Kubernetes = "Kubernetes"

// Connect opens the connection to a member cluster. It is called at most once
// for a cluster as long as it succeeds.
type Connect func(ctx context.Context) (*kubernetes.Cluster, error)

// Resolver resolves scopes of the clusters that it was given. It is safe for
// concurrent use.
type Resolver struct {
	mu       sync.Mutex
	connects map[string]Connect
	clusters map[string]*kubernetes.Cluster
}

var _ extension.Resolver = (*Resolver)(nil)

// NewResolver makes a resolver of clusters by their names.
func NewResolver(clusters map[string]Connect) *Resolver {
	r := &Resolver{connects: map[string]Connect{}, clusters: map[string]*kubernetes.Cluster{}}
	for name, c := range clusters {
		r.connects[strings.ToLower(name)] = c
	}
	return r
}

// Resolve implements extension.Resolver. The empty cluster is the server's own.
func (r *Resolver) Resolve(ctx context.Context, s extension.Scope, _ extension.Secrets) (extension.Target, error) {
	if !strings.EqualFold(s.Extension, Kubernetes) {
		return nil, core.Errorf(core.CodeTarget, "there is no extension %q: templates can import %s", s.Extension, Kubernetes)
	}
	name := strings.ToLower(s.Cluster)
	if name == "" {
		name = core.LocalCluster
	}
	c, err := r.cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	return c.Target(s.Namespace), nil
}

func (r *Resolver) cluster(ctx context.Context, name string) (*kubernetes.Cluster, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clusters[name]; c != nil {
		return c, nil
	}
	connect := r.connects[name]
	if connect == nil {
		names := make([]string, 0, len(r.connects))
		for n := range r.connects {
			names = append(names, n)
		}
		sort.Strings(names)
		known := "this server was started without a kubeconfig, so it has none"
		if len(names) > 0 {
			known = "known: " + strings.Join(names, ", ")
		}
		return nil, core.Errorf(core.CodeTarget, "there is no cluster %q (%s)", name, known).WithTarget(name)
	}
	c, err := connect(ctx)
	if err != nil {
		return nil, core.Errorf(core.CodeTarget, "cluster %q cannot be used: %w", name, err).WithTarget(name)
	}
	r.clusters[name] = c
	return c, nil
}
