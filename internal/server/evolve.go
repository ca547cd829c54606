package server

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/store"
)

// shownUsers is how many resources a refusal lists.
const shownUsers = 10

// scanPage is how many resources are read at a time where all of a type are.
const scanPage = 500

// inUse refuses to take something away, naming who uses it.
func inUse(what string, d store.Dependents, remedy string) error {
	e := core.Errorf(core.CodeConflict, "%s is used by %s: %s", what, listed(d), remedy).WithTarget(what)
	e.Info = []core.ErrorInfo{{Type: "dependents", Info: d}}
	return e
}

// listed names the first of some resources and how many more there are.
func listed(d store.Dependents) string {
	names := make([]string, len(d.IDs))
	for i, id := range d.IDs {
		names[i] = id.String()
	}
	text := strings.Join(names, ", ")
	if more := d.Count - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// checkRemoved refuses to take away types and API versions that stored resources
// have. old is nil where nothing was registered, next where nothing shall be.
func (s *Server) checkRemoved(ctx context.Context, old, next *manifest.Manifest) error {
	if old == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(old.Types)) {
		full := old.Namespace + "/" + name
		var kept *manifest.Type
		if next != nil {
			kept = next.Types[name]
		}
		if kept == nil {
			if s.types.Builtin(full) {
				continue // what is built in comes back into its own
			}
			used, err := s.o.Store.Dependents(ctx, store.Use{Type: full, Limit: shownUsers})
			if err != nil {
				return err
			}
			if used.Count > 0 {
				return inUse("type "+full, used, "delete them first, or repeat the deletion with cascade=true")
			}
			continue
		}
		for _, v := range slices.Sorted(maps.Keys(old.Types[name].APIVersions)) {
			if kept.APIVersions[v] != nil {
				continue
			}
			used, err := s.o.Store.Dependents(ctx, store.Use{Type: full, APIVersion: v, Limit: shownUsers})
			if err != nil {
				return err
			}
			if used.Count > 0 {
				return inUse("API version "+v+" of type "+full, used, "write them with another version first, delete them, or repeat the deletion with cascade=true")
			}
		}
	}
	return nil
}

// checkEvolved refuses schemas that stored resources do not fit (D-5). They are
// read page by page, their sealed values opened, and nothing is changed.
func (s *Server) checkEvolved(ctx context.Context, old, next *manifest.Manifest) error {
	if next == nil {
		return nil
	}
	var wanted *manifest.Registry
	for _, name := range slices.Sorted(maps.Keys(next.Types)) {
		full := next.Namespace + "/" + name
		for _, v := range slices.Sorted(maps.Keys(next.Types[name].APIVersions)) {
			current, err := s.types.Lookup(full, v)
			if err != nil || sameSchema(old, next, name, v) {
				continue // it is new, or as it was
			}
			if wanted == nil {
				wanted = manifest.NewRegistry(next)
			}
			tv, err := wanted.Lookup(full, v)
			if err != nil {
				return err
			}
			if err := s.checkFits(ctx, current, tv); err != nil {
				return err
			}
		}
	}
	return nil
}

func sameSchema(old, next *manifest.Manifest, name, version string) bool {
	if old == nil || old.Types[name] == nil || old.Types[name].APIVersions[version] == nil {
		return false
	}
	return bytes.Equal(old.Types[name].APIVersions[version].Schema, next.Types[name].APIVersions[version].Schema)
}

func (s *Server) checkFits(ctx context.Context, current, next *manifest.TypeVersion) error {
	var misfits store.Dependents
	var faults []core.Error
	q := store.Query{Scope: localPlane, Type: next.Type, Limit: scanPage}
	for {
		page, err := s.o.Store.List(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.Resources {
			if !strings.EqualFold(r.APIVersion, next.APIVersion) {
				continue
			}
			err := s.provider.Fits(r, current, next)
			if err == nil {
				continue
			}
			if misfits.Count++; misfits.Count > shownUsers {
				continue
			}
			misfits.IDs = append(misfits.IDs, r.ID)
			faults = append(faults, *core.AsError(err).WithTarget(r.ID.String()))
		}
		if page.Next == "" {
			break
		}
		q.After = page.Next
	}
	if misfits.Count == 0 {
		return nil
	}
	e := core.Errorf(core.CodeConflict, "the new schema of %s@%s does not fit what is stored, and nothing was changed: %s. Change those resources first, register another API version, or repeat the request with force=true",
		next.Type, next.APIVersion, listed(misfits)).WithTarget(next.Type).WithDetails(faults...)
	e.Info = []core.ErrorInfo{{Type: "dependents", Info: misfits}}
	return e
}
