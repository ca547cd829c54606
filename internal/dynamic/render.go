package dynamic

import (
	"context"
	"encoding/json"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/recipe"
)

// What Radial renders itself ([Kind].Renders) is run where recipes are, by a
// driver of its own, and is given more: what its connections carry to a
// workload, what else it refers to, and the key by which data is hashed.

// hashKeySecret is the name among a row's secrets of the key by which the
// resource's connection data is hashed. It lives as long as the resource, so
// that equal data has an equal hash in every run (K-19); nothing answers it.
const hashKeySecret = "$hash-key"

// sealHashKey gives a row its key when it has none.
func (p *Provider) sealHashKey(r *core.Resource) error {
	if _, ok := r.Secrets[hashKeySecret]; ok {
		return nil
	}
	return p.sealRandom(r, hashKeySecret)
}

// keepHashKey carries the key over into the secrets that a run answered.
func keepHashKey(r *core.Resource, before map[string]json.RawMessage) {
	sealed, ok := before[hashKeySecret]
	if !ok {
		return
	}
	if r.Secrets == nil {
		r.Secrets = map[string]json.RawMessage{}
	}
	r.Secrets[hashKeySecret] = sealed
}

// rendering completes the request of what Radial renders.
func (c *Controller) rendering(ctx context.Context, job *operation.Job, kind Kind, props map[string]any, req *recipe.Request) error {
	var err error
	if req.HashKey, err = c.p.openRandom(job.Resource, hashKeySecret); err != nil {
		return err
	}
	if kind.Edges == nil {
		return nil
	}
	for _, e := range kind.Edges(job.Resource.ID, props) {
		used, err := c.connected(ctx, job.Resource, c.p.present(e.To))
		if err != nil {
			return core.Errorf(core.CodeOf(err), "%s is used by %s: %w", e.To, job.Resource.ID, err)
		}
		if req.Uses == nil {
			req.Uses = map[string]core.Resource{}
		}
		used.Properties = used.opened
		req.Uses[e.To.Key()] = used.Resource
	}
	return nil
}
