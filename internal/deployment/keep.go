package deployment

import (
	"context"
	"slices"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// DefaultKeep is how many deployments of a resource group are remembered: clients
// that give each run a name of its own would fill the store.
const DefaultKeep = 800

// sweepPage bounds the deployments that are read at a time.
const sweepPage = 100

// Keep forgets the oldest deployments of groups that have more than are kept,
// until ctx ends.
func (s *Service) Keep(ctx context.Context, every time.Duration) {
	if every <= 0 {
		every = 10 * time.Minute
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := s.Sweep(ctx, DefaultKeep); err != nil && ctx.Err() == nil {
			s.o.Log.Warn("the history of deployments could not be kept in order; it is tried again", "error", err.Error())
		}
	}
}

// Sweep forgets the oldest deployments that have ended, beyond keep of each
// group, and says how many went.
func (s *Service) Sweep(ctx context.Context, keep int) (int, error) {
	type past struct {
		id    core.ID
		etag  string
		ended bool
		last  time.Time
	}
	groups := map[string][]past{}
	for q := (store.Query{Type: Type, Limit: sweepPage}); ; {
		page, err := s.o.Store.List(ctx, q)
		if err != nil {
			return 0, err
		}
		for _, r := range page.Resources {
			key := r.ID.Scope().Key()
			groups[key] = append(groups[key], past{r.ID, r.ETag, r.State.Terminal(), r.SystemData.LastModifiedAt})
		}
		if page.Next == "" {
			break
		}
		q.After = page.Next
	}
	gone := 0
	for _, all := range groups {
		if len(all) <= keep {
			continue
		}
		slices.SortFunc(all, func(a, b past) int { return a.last.Compare(b.last) })
		more := len(all) - keep
		for _, d := range all {
			if more == 0 {
				break
			}
			if !d.ended {
				continue
			}
			// With its tag: one that has begun again meanwhile stays.
			_, err := s.o.Store.AcceptDelete(ctx, store.Delete{ID: d.id, Expect: d.etag, Now: s.o.Now()})
			switch code := core.CodeOf(err); {
			case err == nil:
				gone++
			case code == core.CodeNotFound, code == core.CodeConflict, code == store.Changed:
			default:
				return gone, err
			}
			more--
		}
	}
	return gone, nil
}
