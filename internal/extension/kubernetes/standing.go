package kubernetes

import (
	"context"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// A run that applies again what it made before mostly changes nothing. When it
// does so to many objects of one kind in one namespace, they are read together,
// and those that stand as they are asked for are not written.
const (
	// standingFrom is how many objects have to be left to apply for a read of all
	// to be worth it.
	standingFrom = 8
	// standingFor is how long what was read is believed. An object that somebody
	// changes within it is one that was changed just after it was applied.
	standingFor = 5 * time.Second
	// standingBytes bounds what is read, in bytes as sent; standingCount bounds it
	// in objects where those of others cannot be left out. What is beyond is
	// applied unread.
	standingBytes = 32 << 20
	standingCount = 2000
)

// standings are those of one session.
type standings struct {
	mu sync.Mutex
	of map[standingOf]*standing
}

type standingOf struct {
	gvk       schema.GroupVersionKind
	namespace string
	owner     string // as [OwnerHash] has it, "" for none
}

type standingsIn struct{ cluster string }

// standing are the objects of one kind, namespace and owner that a run applies.
type standing struct {
	// held has one place: for the reader, and for who looks at what follows.
	held chan struct{}
	// left is how many are announced and not applied yet.
	left int
	// off says that they cannot be read together.
	off     bool
	read    time.Time
	objects map[string]*unstructured.Unstructured
}

func (c *Cluster) standingFor(ctx context.Context, a addressed, owner core.ID) *standing {
	if isSecret(a.object) || isCloudResource(a.gvk.GroupKind()) {
		return nil // nothing reads many of those at once
	}
	all, err := extension.Once(ctx, standingsIn{c.name}, func() (*standings, error) {
		return &standings{of: map[standingOf]*standing{}}, nil
	})
	if err != nil { // ctx has ended
		return nil
	}
	key := standingOf{gvk: a.gvk, namespace: a.object.GetNamespace()}
	if !owner.IsZero() {
		key.owner = OwnerHash(owner)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	s := all.of[key]
	if s == nil {
		s = &standing{held: make(chan struct{}, 1)}
		all.of[key] = s
	}
	return s
}

// enter takes the place; false when ctx ended first.
func (s *standing) enter(ctx context.Context) bool {
	select {
	case s.held <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *standing) leave() { <-s.held }

// announce notes that the run is going to apply an object.
func (c *Cluster) announce(ctx context.Context, a addressed, owner core.ID) {
	if s := c.standingFor(ctx, a, owner); s != nil && s.enter(ctx) {
		s.left++
		s.leave()
	}
}

// standing answers the object with that uid as it stood a moment ago, nil where it
// was not read or is not there: then only the API server knows.
func (t *Target) standing(ctx context.Context, a addressed, owner core.ID, uid types.UID) *unstructured.Unstructured {
	s := t.c.standingFor(ctx, a, owner)
	if s == nil || !s.enter(ctx) {
		return nil
	}
	defer s.leave()
	left := s.left
	s.left = max(0, left-1)
	if uid == "" || s.off {
		return nil
	}
	if s.objects == nil || time.Since(s.read) > standingFor {
		if s.objects = nil; left < standingFrom {
			return nil
		}
		s.read = time.Now()
		// A failure is not the run's: it does without.
		if s.objects = t.c.readStanding(ctx, a, owner, left); s.objects == nil {
			s.off = ctx.Err() == nil
			return nil
		}
	}
	live := s.objects[a.object.GetName()]
	delete(s.objects, a.object.GetName())
	if live == nil || live.GetUID() != uid {
		return nil
	}
	return live
}

// readStanding reads the owner's objects of a kind in a namespace by name; without
// an owner all that are there, unless they are far more than are wanted. It answers
// nil when that is refused.
func (c *Cluster) readStanding(ctx context.Context, a addressed, owner core.ID, wanted int) map[string]*unstructured.Unstructured {
	objects := map[string]*unstructured.Unstructured{}
	size, page, next := 0, 100, ""
	for {
		r := c.collection(c.rest.Get(), a).Param("limit", strconv.Itoa(page))
		if !owner.IsZero() {
			r = r.Param("labelSelector", OwnerKey+"="+OwnerHash(owner))
		}
		if next != "" {
			r = r.Param("continue", next)
		}
		raw, err := r.Do(ctx).Raw()
		if err != nil {
			return nil
		}
		list := &unstructured.UnstructuredList{}
		if _, _, err := unstructured.UnstructuredJSONScheme.Decode(raw, nil, list); err != nil {
			return nil
		}
		for i := range list.Items {
			objects[list.Items[i].GetName()] = &list.Items[i]
		}
		next = list.GetContinue()
		size += len(raw)
		switch {
		case next == "", size >= standingBytes, owner.IsZero() && len(objects) >= max(standingCount, 4*wanted):
			return objects
		case size < len(objects)<<14: // small ones
			page = 500
		}
	}
}
