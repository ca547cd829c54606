// Package kubernetes is the extension that makes objects of a Kubernetes API:
// any kind that the cluster serves, custom resources included.
//
// Objects are written by server-side apply under the field manager
// [FieldManager], never forced, and carry the id of the control plane's
// resource that they are made for, if there is one. The first write of an object
// is one that fails when there is such an object already, so that nothing of
// others is ever written to by chance. Readiness is judged by kstatus on a
// watch; deletion carries the object's uid and ends when the object, and for
// workloads what it started, is gone.
//
// The package keeps no informer and no copy of an object: a call reads what it
// needs. What discovery answered is kept as a few words for each kind that was
// asked for.
package kubernetes

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/core"
)

// FieldManager owns the fields that Radial's templates set.
const FieldManager = "radial"

// GuestManager owns them in objects that others made, which a plain deployment may
// change: so it can be told what Radial made and what it only touched (a stack takes
// over the one and not the other, since it would delete it).
const GuestManager = "radial-guest"

// Options tune a Cluster.
type Options struct {
	// ReadyTimeout bounds the wait for one object; 0 is 10 minutes. An object's
	// annotation [ReadyTimeoutKey] says otherwise.
	ReadyTimeout time.Duration
	// DeleteTimeout bounds the wait for the end of one object; 0 is 10 minutes.
	DeleteTimeout time.Duration
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
	// asking has one place: who holds it asks for what all share (discovery,
	// identity), so that many resources at once ask once.
	asking chan struct{}
	// id is the mark of the cluster, once known.
	id *identity
}

// New makes the connection of a cluster; it does not reach out. name is the
// cluster's name in ids.
func New(name string, config *rest.Config, o Options) (*Cluster, error) {
	if o.ReadyTimeout == 0 {
		o.ReadyTimeout = 10 * time.Minute
	}
	if o.DeleteTimeout == 0 {
		o.DeleteTimeout = 10 * time.Minute
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // the API server's own priority and fairness shares it out
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, unusable(name, err)
	}
	c := &Cluster{name: name, host: config.Host, o: o, kinds: map[schema.GroupVersion]map[string]kind{}, asking: make(chan struct{}, 1)}
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, client); err != nil {
		return nil, unusable(name, err)
	}
	raw := dynamic.ConfigFor(config)
	raw.GroupVersion = &schema.GroupVersion{}
	raw.APIPath = "/"
	if c.rest, err = rest.RESTClientForConfigAndClient(raw, client); err != nil {
		return nil, unusable(name, err)
	}
	return c, nil
}

// unusable names a configuration that no connection can be made of. The cause
// may quote a key or a certificate, so its text is left out.
func unusable(name string, _ error) error {
	return core.Errorf(core.CodeTarget, "cluster %q: its configuration cannot be used: look at the address, the certificates and the keys of its kubeconfig", name)
}

// Name is the cluster's name.
func (c *Cluster) Name() string { return c.name }

// Named is the same connection under another name in ids.
func (c *Cluster) Named(name string) *Cluster {
	n := &Cluster{name: name, host: c.host, dynamic: c.dynamic, rest: c.rest, o: c.o,
		kinds: map[schema.GroupVersion]map[string]kind{}, asking: make(chan struct{}, 1), id: c.knownIdentity()}
	return n
}

// Target returns the cluster as a target whose objects go, unless they say
// otherwise, to a namespace.
func (c *Cluster) Target(namespace string) *Target { return &Target{c, namespace} }

// ask holds the one place for asking; the answer frees it.
func (c *Cluster) ask(ctx context.Context) (func(), error) {
	select {
	case c.asking <- struct{}{}:
		return func() { <-c.asking }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cluster %q: %w", c.name, context.Cause(ctx))
	}
}
