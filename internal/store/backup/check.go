package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// Report is what Check found.
type Report struct {
	Records map[store.Kind]int `json:"records"`
	// Faults are what is not as it must be; empty is well.
	Faults []string `json:"faults"`
}

// maxFaults bounds the list of faults.
const maxFaults = 100

// Check asks the database about its own structures, reads every record, and
// looks whether they fit together: each resource has its scope, is sealed with
// a keyset that is there and in use, and says that an operation is under way
// only when one is.
func Check(ctx context.Context, s store.Portable, p Progress) (Report, error) {
	report := Report{Faults: []string{}}
	structure, err := s.Integrity(ctx)
	if err != nil {
		return report, err
	}
	c := checker{Report: &report, keysets: map[int64]store.KeysetState{}, scopes: map[string]bool{}, busy: map[string]core.State{}, live: map[string]string{}}
	c.Faults = append(c.Faults, structure...)
	done, total := 0, 0
	err = s.Export(ctx, func(counts map[store.Kind]int) error {
		c.Records = counts
		total = Header{Records: counts}.Total()
		return nil
	}, func(r store.Record) error {
		done++
		p.tell(done, total)
		c.look(r)
		return ctx.Err()
	})
	if err != nil {
		return report, err
	}
	c.finish()
	return report, nil
}

type checker struct {
	*Report
	keysets map[int64]store.KeysetState
	scopes  map[string]bool
	// wanted are scopes by the first resource in them that was seen before.
	wanted map[string]core.ID
	// busy are resources whose state says that an operation is under way; live
	// are operations that are, by resource.
	busy map[string]core.State
	live map[string]string
}

func (c *checker) fault(format string, args ...any) {
	if len(c.Faults) < maxFaults {
		c.Faults = append(c.Faults, fmt.Sprintf(format, args...))
	}
}

func (c *checker) look(r store.Record) {
	switch r.Kind() {
	case store.KindKeyset:
		c.keysets[r.Keyset.Version] = r.Keyset.State
	case store.KindManifest:
		if !json.Valid(r.Manifest.Manifest) {
			c.fault("the manifest of namespace %s is no JSON", r.Manifest.Namespace)
		}
	case store.KindResource:
		c.resource(r.Resource)
	case store.KindOperation:
		o := r.Operation
		if o.Ended.IsZero() {
			if other := c.live[o.ResourceID.Key()]; other != "" {
				c.fault("%s has two live operations, %s and %s", o.ResourceID, other, o.ID)
			}
			c.live[o.ResourceID.Key()] = o.ID
		} else if !o.State.Terminal() {
			c.fault("operation %s has ended in the state %s", o.ID, o.State)
		}
	}
}

func (c *checker) resource(r *store.ResourceRecord) {
	id := r.Resource.ID
	if id.IsScope() {
		c.scopes[id.Key()] = true
	} else {
		if c.wanted == nil {
			c.wanted = map[string]core.ID{}
		}
		if scope := id.Scope().Key(); c.wanted[scope].IsZero() {
			c.wanted[scope] = id
		}
	}
	for name, raw := range map[string]json.RawMessage{"properties": r.Resource.Properties, "status": r.Resource.Status} {
		if len(raw) > 0 && !json.Valid(raw) {
			c.fault("the %s of %s are no JSON", name, id)
		}
	}
	if v := r.Resource.Keyset; v != 0 {
		switch state, ok := c.keysets[v]; {
		case !ok:
			c.fault("%s is sealed with version %d of the data keyset, which is not there", id, v)
		case state == store.KeysetDisabled:
			c.fault("%s is sealed with version %d of the data keyset, which is disabled", id, v)
		}
	}
	if !r.Resource.State.Terminal() {
		c.busy[id.Key()] = r.Resource.State
	}
}

// finish compares what had to be gathered first.
func (c *checker) finish() {
	for scope, id := range c.wanted {
		if !c.scopes[scope] {
			c.fault("%s stands in a scope that is not there", id)
		}
	}
	for key, op := range c.live {
		if _, ok := c.busy[key]; !ok {
			c.fault("operation %s is live, and its resource %s does not say so", op, key)
		}
	}
	for key, state := range c.busy {
		if c.live[key] == "" {
			c.fault("%s is in progress (%s), and no operation works on it", key, state)
		}
	}
	primary := 0
	for _, state := range c.keysets {
		if state == store.KeysetPrimary {
			primary++
		}
	}
	if len(c.keysets) > 0 && primary != 1 {
		c.fault("%d versions of the data keyset are primary; one must be", primary)
	}
	sort.Strings(c.Faults)
}
