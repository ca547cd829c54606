// Package scope resolves a reference to where resources live into the target
// that makes them there. References are what the store keeps; targets, with
// their connections and credentials, live only in the process, and credentials
// that were asked for only as long as the run they were asked for.
//
// How the cluster of a scope is found is a [Finder]'s to say, registered by the
// scope's type. The member clusters that the server was told of are the type "";
// [UserOwned] and [Radial] are here, AzureResourceManager is the package azure.
package scope

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sort"
	"strings"
	"sync"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
)

// Kubernetes is the name of the extension for clusters.
const Kubernetes = "Kubernetes"

// The types of scopes, as import configurations write them. Cluster, or none,
// is a member cluster by its name.
const (
	TypeCluster   = "Cluster"
	TypeAzure     = "AzureResourceManager"
	TypeRadial    = "Radial"
	TypeUserOwned = "UserOwned"
)

// Finder finds the clusters of scopes of one type. It is the part to replace:
// another way to credentials, or a test's double, is another Finder, and nothing
// that deploys knows the difference.
type Finder interface {
	// Find refuses a scope that can lead nowhere, before anything is asked of
	// anybody, and answers how to reach the others.
	Find(ctx context.Context, s extension.Scope, secrets extension.Secrets) (Place, error)
}

// Place is where a scope leads to.
type Place struct {
	// Key is comparable and tells places apart: within a session, Connect is
	// called once for a key.
	Key any
	// Connect asks for credentials and makes the connection. It is called again
	// when the API server refuses them: they may have been rotated.
	Connect Connect
	// Fixed says that asking again answers the same, so that it is not done.
	Fixed bool
	// Namespace is the one of objects when neither they nor the scope say one.
	Namespace string
	// Member is the name of a member cluster instead of Connect.
	Member string
}

// Connect opens the connection to a cluster.
type Connect func(ctx context.Context) (*kubernetes.Cluster, error)

// Resolver resolves scopes. It is safe for concurrent use.
type Resolver struct {
	mu      sync.Mutex
	members map[string]*member
	finders map[string]Finder
}

var _ extension.Resolver = (*Resolver)(nil)

// NewResolver makes a resolver of member clusters by their names, and of
// clusters whose kubeconfig comes with the request. Connect is called once for a
// member, as long as it succeeds and the cluster takes its credentials.
func NewResolver(clusters map[string]Connect) *Resolver {
	r := &Resolver{members: map[string]*member{}, finders: map[string]Finder{}}
	for name, c := range clusters {
		r.Member(name, Member{Connect: c})
	}
	r.Type(TypeUserOwned, UserOwned{})
	return r
}

// Type registers how clusters of a type of scopes are found, in place of what
// was registered.
func (r *Resolver) Type(name string, f Finder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finders[strings.ToLower(name)] = f
}

// Resolve implements extension.Resolver.
func (r *Resolver) Resolve(ctx context.Context, s extension.Scope, secrets extension.Secrets) (extension.Target, error) {
	if !strings.EqualFold(s.Extension, Kubernetes) {
		return nil, core.Errorf(core.CodeTarget, "there is no extension %q: templates can import %s", s.Extension, Kubernetes)
	}
	place, err := r.find(ctx, s, secrets)
	if err != nil {
		return nil, err
	}
	conn, err := r.connection(ctx, s, place)
	if err != nil {
		return nil, err
	}
	namespace := s.Namespace
	if namespace == "" {
		namespace = place.Namespace
	}
	return &target{conn, namespace}, nil
}

func (r *Resolver) find(ctx context.Context, s extension.Scope, secrets extension.Secrets) (Place, error) {
	if s.Type == "" || strings.EqualFold(s.Type, TypeCluster) {
		name := s.Cluster
		if name == "" {
			name = s.ID // as answers write it
		}
		if name == "" {
			name = core.LocalCluster
		}
		return Place{Member: name}, nil
	}
	r.mu.Lock()
	f := r.finders[strings.ToLower(s.Type)]
	known := []string{}
	for _, t := range []string{TypeAzure, TypeRadial, TypeUserOwned} {
		if r.finders[strings.ToLower(t)] != nil {
			known = append(known, t)
		}
	}
	r.mu.Unlock()
	if f == nil {
		hint := ""
		if strings.EqualFold(s.Type, TypeAzure) {
			hint = "; radial-server --azure-scopes turns this one on"
		}
		return Place{}, core.Errorf(core.CodeTarget, "scopes of the type %q cannot be used here: known are %s%s", s.Type, cmp.Or(strings.Join(known, ", "), "none"), hint).WithTarget(s.ID)
	}
	return f.Find(ctx, s, secrets)
}

// sessionKey is what is shared within a session.
type sessionKey struct {
	scopeType string
	place     any
}

func (r *Resolver) connection(ctx context.Context, s extension.Scope, p Place) (*connection, error) {
	if p.Member != "" {
		return r.member(ctx, p.Member)
	}
	return extension.Once(ctx, sessionKey{strings.ToLower(s.Type), p.Key}, func() (*connection, error) {
		cluster, err := p.Connect(ctx)
		if err != nil {
			return nil, err
		}
		return newConnection(cluster, p.Connect, p.Fixed), nil
	})
}

func keys[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// ClusterName is the name that a cluster found by an id has in the ids of its
// objects (/planes/kubernetes/<name>/…): readable, and another one for another
// id. It is a function of the id alone, so it is known before the cluster is.
func ClusterName(id string) string {
	id = strings.TrimSuffix(id, "/")
	sum := sha256.Sum256([]byte(strings.ToLower(id)))
	return id[strings.LastIndexByte(id, '/')+1:] + "-" + hex.EncodeToString(sum[:4])
}
