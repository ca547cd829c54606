package dynamic

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/store"
)

// A recipe may make resources of the control plane beside objects of clusters:
// each is a child operation of the recipe's (D-45), carries the mark of the
// resource that it was made for, and goes with that.

// maxDepth bounds recipes whose recipes make resources whose recipes make
// resources: beyond it they make each other without end.
const maxDepth = 8

// sealSeed gives a write the secret from which its recipe's run derives what it
// makes up, the same in every attempt. It goes with the operation.
func (p *Provider) sealSeed(r *core.Resource) error { return p.sealRandom(r, store.InputsSecret) }

// sealRandom puts a secret of 32 random bytes among those of a row.
func (p *Provider) sealRandom(r *core.Resource, name string) error {
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	sealed, err := p.o.Sealer.Seal(r.ID, seal.SecretPath(name), base64.StdEncoding.EncodeToString(random))
	if err != nil {
		return err
	}
	secrets := make(map[string]json.RawMessage, len(r.Secrets)+1)
	maps.Copy(secrets, r.Secrets)
	secrets[name] = sealed
	r.Secrets = secrets
	return nil
}

// openRandom reads what sealRandom wrote, nil where there is none.
func (p *Provider) openRandom(r core.Resource, name string) ([]byte, error) {
	sealed, ok := r.Secrets[name]
	if !ok {
		return nil, nil
	}
	v, err := p.openSecret(r.ID, name, sealed)
	if err != nil {
		return nil, err
	}
	text, _ := v.(string)
	random, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, core.Errorf(core.CodeInternal, "the secret %s of %s cannot be read", name, r.ID)
	}
	return random, nil
}

// resources are what the recipe of a job may do with the control plane, the name
// of its run, and its seed.
func (c *Controller) resources(job *operation.Job) (extension.ResourceAPI, string, []byte, error) {
	if c.p.o.RecipeMay == nil {
		return nil, "", nil, nil
	}
	seed, err := c.p.openRandom(job.Resource, store.InputsSecret)
	if err != nil {
		return nil, "", nil, err
	}
	of := job.Resource
	api := c.p.API(APIOptions{
		Operation: job.Operation.ID, Owner: of.ID, Ended: c.p.o.Ended,
		SystemData: core.SystemData{CreatedBy: of.ID.String(), CreatedByType: "Application", LastModifiedBy: of.ID.String(), LastModifiedByType: "Application"},
		Allow: func(ctx context.Context, a Access, id core.ID, _ map[string]any) error {
			if id.Equal(of.ID) && a != AccessRead {
				return core.Errorf(core.CodeConflict, "%s is the resource that the recipe runs for: a recipe answers its values, and does not write it", id).WithTarget(id.String())
			}
			if a == AccessWrite {
				if err := c.shallow(ctx, job.Operation); err != nil {
					return err
				}
			}
			return c.p.o.RecipeMay(ctx, of, a, id)
		},
	})
	return api, job.Operation.ID, seed, nil
}

// shallow refuses recipes that make each other.
func (c *Controller) shallow(ctx context.Context, op core.Operation) error {
	for range maxDepth {
		if op.Parent == "" {
			return nil
		}
		above, err := c.p.o.Store.Operation(ctx, op.Parent)
		if core.IsCode(err, core.CodeNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		op = above
	}
	return core.Errorf(core.CodeConflict, "recipes make resources whose recipes make resources, %d deep: one of them makes its own kind without end", maxDepth)
}
