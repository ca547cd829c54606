package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// servedTimeout bounds the wait between a definition's Established condition
// and its kind in discovery.
const servedTimeout = 30 * time.Second

// expected is what resources of a run are about to make and what others of it
// need: a template lists a namespace, a definition and objects of both, and
// seldom says that the one needs the other. It belongs to the run's session:
// what another run was about to make is no reason to wait.
type expected struct {
	mu         sync.Mutex
	namespaces map[string]*coming
	kinds      map[schema.GroupKind]expectedKind
}

// coming is closed when it does not come after all.
type coming struct{ off chan struct{} }

type expectedKind struct {
	name       string // as the definition spells it
	namespaced bool
}

type expectedIn struct{ cluster string }

// expectations are those of the session of ctx, for this cluster; outside of one
// they are forgotten at once.
func (c *Cluster) expectations(ctx context.Context) *expected {
	e, err := extension.Once(ctx, expectedIn{c.name}, func() (*expected, error) {
		return &expected{namespaces: map[string]*coming{}, kinds: map[schema.GroupKind]expectedKind{}}, nil
	})
	if err != nil { // ctx has ended
		return &expected{}
	}
	return e
}

// expect notes what o will bring once it is made.
func (c *Cluster) expect(ctx context.Context, o *unstructured.Unstructured) {
	gk, k, isKind := defines(o)
	if !isKind && !isNamespace(o.GroupVersionKind()) {
		return
	}
	e := c.expectations(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.kinds == nil:
	case isKind:
		e.kinds[gk] = k
	case e.namespaces[o.GetName()] == nil:
		e.namespaces[o.GetName()] = &coming{make(chan struct{})}
	}
}

// doNotExpect takes it back: it was not made, and waiting for it is in vain.
func (c *Cluster) doNotExpect(ctx context.Context, o *unstructured.Unstructured) {
	gk, _, isKind := defines(o)
	if !isKind && !isNamespace(o.GroupVersionKind()) {
		return
	}
	e := c.expectations(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if isKind {
		delete(e.kinds, gk)
	} else if n := e.namespaces[o.GetName()]; n != nil {
		delete(e.namespaces, o.GetName())
		close(n.off)
	}
}

func (c *Cluster) expectsNamespace(ctx context.Context, name string) *coming {
	e := c.expectations(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.namespaces[name]
}

func (c *Cluster) expectsKind(ctx context.Context, gvk schema.GroupVersionKind) (expectedKind, bool) {
	e := c.expectations(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	k, ok := e.kinds[expectedKey(gvk.Group, gvk.Kind)]
	return k, ok
}

func expectedKey(group, name string) schema.GroupKind {
	return schema.GroupKind{Group: group, Kind: strings.ToLower(name)}
}

func isNamespace(gvk schema.GroupVersionKind) bool { return gvk.Group == "" && gvk.Kind == "Namespace" }

func isDefinition(gvk schema.GroupVersionKind) bool {
	return gvk.Group == "apiextensions.k8s.io" && gvk.Kind == "CustomResourceDefinition"
}

// defines reads the kind of a definition.
func defines(o *unstructured.Unstructured) (schema.GroupKind, expectedKind, bool) {
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	name, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
	scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope")
	return expectedKey(group, name), expectedKind{name: name, namespaced: scope != "Cluster"}, isDefinition(o.GroupVersionKind()) && group != "" && name != ""
}

// await looks a kind up; one that a definition of the same run will bring is
// waited for. Discovery has no watch, so this asks again after growing pauses.
func (c *Cluster) await(ctx context.Context, gvk schema.GroupVersionKind) (schema.GroupVersionKind, kind, error) {
	found, k, err := c.lookup(ctx, gvk)
	if err == nil || !isNotServed(err) {
		return found, k, err
	}
	if _, ok := c.expectsKind(ctx, gvk); !ok {
		return gvk, kind{}, err
	}
	deadline := time.Now().Add(c.o.ReadyTimeout)
	err = extension.Idle(ctx, func() error {
		for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			var err error
			if found, k, err = c.lookup(ctx, gvk); err == nil || !isNotServed(err) {
				return err
			}
			if _, ok := c.expectsKind(ctx, gvk); !ok {
				return err
			}
			if time.Now().After(deadline) {
				return core.Errorf(extension.CodeNotReady, "cluster %q does not serve the kind %s of %s yet, after %s, though a definition of it was deployed: look at that definition's versions and conditions",
					c.name, gvk.Kind, gvk.GroupVersion(), c.o.ReadyTimeout)
			}
			if err := wait(ctx, pause); err != nil {
				return c.fault(ctx, err, "discover", gvk.GroupVersion().String())
			}
		}
	})
	return found, k, err
}

// errNotComing is the cause of the end of a wait for what was not made.
var errNotComing = errors.New("it was not made")

// awaitNamespace waits until a namespace that the same run makes is there and
// can be used; comes is false when that run could not make it.
func (t *Target) awaitNamespace(ctx context.Context, name string, c *coming) (comes bool, err error) {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetName(name)
	ctx, cancel := context.WithTimeoutCause(ctx, t.c.o.ReadyTimeout, errNotReadyInTime)
	defer cancel()
	ctx, off := context.WithCancelCause(ctx)
	defer off(nil)
	go func() {
		select {
		case <-c.off:
			off(errNotComing)
		case <-ctx.Done():
		}
	}()
	a := addressed{gvk: gvk, kind: kind{resource: "namespaces"}, client: t.c.dynamic.Resource(namespaces), object: o, what: describe(gvk, "", name)}
	err = extension.Idle(ctx, func() error {
		return t.follow(ctx, a, nil, func(seen *unstructured.Unstructured) (bool, error) {
			return seen != nil && seen.GetDeletionTimestamp() == nil, nil
		})
	})
	switch {
	case err != nil && context.Cause(ctx) == errNotComing:
		return false, nil
	case err != nil && context.Cause(ctx) == errNotReadyInTime:
		return false, core.Errorf(extension.CodeNotReady, "cluster %q has no namespace %q yet, after %s, though it was deployed in the same run", t.c.name, name, t.c.o.ReadyTimeout)
	}
	return err == nil, err
}

// served waits until the kinds of a definition that has just become ready are
// found by discovery: its condition comes a moment before that, and an object
// of the kind may be the next thing that a template makes.
func (t *Target) served(ctx context.Context, a addressed, o *unstructured.Unstructured) error {
	if !isDefinition(a.gvk) {
		return nil
	}
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	name, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	ctx, cancel := context.WithTimeoutCause(ctx, servedTimeout, errNotReadyInTime)
	defer cancel()
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok || version["served"] != true {
			continue
		}
		text, _ := version["name"].(string)
		gvk := schema.GroupVersionKind{Group: group, Version: text, Kind: name}
		for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			_, _, err := t.c.lookup(ctx, gvk)
			if err == nil {
				break
			}
			if isNotServed(err) {
				err = wait(ctx, pause)
			}
			if context.Cause(ctx) == errNotReadyInTime {
				return core.Errorf(extension.CodeNotReady, "%s in cluster %q is established, but its kind %s is still not served after %s", a.what, t.c.name, gvk.Kind, servedTimeout)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", a.what, err)
			}
		}
	}
	return nil
}
