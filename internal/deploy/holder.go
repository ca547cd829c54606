package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// namespaceType is the type of what holds objects of a cluster.
const namespaceType = "core/Namespace"

// homeless says of the resources that were surveyed which of them have no
// namespace to be made in: their cluster has none of that name and the run makes
// none. A deployment would fail at them, unless somebody else makes it first.
//
// Nothing is said where it cannot be known: a nested deployment or a namespace has
// no name yet, or the cluster does not let namespaces be read.
func (r *run) homeless(ctx context.Context) (map[*node]string, error) {
	type home struct {
		ref  extension.Ref
		at   *place
		keep []*node
	}
	made, homes := map[string]bool{}, map[string]*home{}
	var order []*home
	unknown := false
	r.root.walk(func(n *node) {
		switch {
		case n.res.Deployment && !n.res.Existing:
			unknown = unknown || n.child == nil
		case n.res.Existing || n.res.Extension == nil || !strings.EqualFold(n.res.Extension.Provider, providerKubernetes):
		case strings.EqualFold(n.res.Type, namespaceType) && (!n.bound || n.res.Uncertain):
			unknown = true
		case strings.EqualFold(n.res.Type, namespaceType):
			made[n.ref.ID.Key()] = true
		case n.bound && n.place.target != nil:
			ref, ok := homeOf(n.ref)
			if !ok {
				return
			}
			h := homes[ref.ID.Key()]
			if h == nil {
				h = &home{ref: ref, at: n.place}
				homes[ref.ID.Key()] = h
				order = append(order, h)
			}
			h.keep = append(h.keep, n)
		}
	})
	if unknown {
		return nil, nil
	}
	out := map[*node]string{}
	for _, h := range order {
		if made[h.ref.ID.Key()] {
			continue
		}
		_, err := h.at.target.Get(ctx, h.ref)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !core.IsCode(err, core.CodeNotFound) {
			continue
		}
		for _, n := range h.keep {
			out[n] = fmt.Sprintf("cluster %q has no namespace %q, and nothing in this template makes it: deployed as it is, this would fail. Make the namespace before (kubectl create namespace %s), or as a resource of the template",
				h.ref.ID.Plane.Name, h.ref.ID.Name(), h.ref.ID.Name())
		}
	}
	return out, nil
}

// homeOf is the namespace that an object of a cluster is in, false for one of
// the cluster itself.
func homeOf(ref extension.Ref) (extension.Ref, bool) {
	var ids struct {
		Metadata struct {
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if json.Unmarshal(ref.Identifiers, &ids) != nil || ids.Metadata.Namespace == "" {
		return extension.Ref{}, false
	}
	name := ids.Metadata.Namespace
	return extension.Ref{
		ID: core.KubernetesID(ref.ID.Plane.Name, "", "", "Namespace", name), Type: namespaceType, APIVersion: "v1", ConfigID: ref.ConfigID,
		Identifiers: mustJSON(map[string]any{"metadata": map[string]any{"name": name}}),
	}, true
}
