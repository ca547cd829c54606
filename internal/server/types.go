package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/application"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/container"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/store"
)

// followTypes keeps the registered types as the store has them, whichever
// process changes them, until ctx ends.
func (s *Server) followTypes(ctx context.Context) {
	changed, stop := s.o.Feed.Alert(store.ChangeManifests, "")
	defer stop()
	for pause := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again(pause):
		}
		pause = 0
		if err := s.syncTypes(ctx, s.o.Feed.Seq()); err != nil && ctx.Err() == nil {
			s.o.Log.Warn("the registered types could not be loaded again", "error", err.Error())
			pause = time.Second
		}
	}
}

// again fires after a pause, never for none.
func again(pause time.Duration) <-chan time.Time {
	if pause == 0 {
		return nil
	}
	return time.After(pause)
}

// syncTypes loads the registered types unless they are at least as new as the
// change numbered seq.
func (s *Server) syncTypes(ctx context.Context, seq int64) error {
	s.registering.Lock()
	defer s.registering.Unlock()
	if s.typesSeq >= seq {
		return nil
	}
	now := s.o.Feed.Seq()
	if err := s.loadTypes(ctx); err != nil {
		return err
	}
	s.typesSeq = max(now, seq)
	return nil
}

// loadTypes registers what the store keeps, and only that. A manifest that this
// release cannot read leaves its types as they were and the rest untouched: the
// log says which. The caller holds registering.
func (s *Server) loadTypes(ctx context.Context) error {
	stored, err := s.o.Store.Manifests(ctx)
	if err != nil {
		return err
	}
	gone := maps.Clone(s.typesRaw)
	for _, namespace := range slices.Sorted(maps.Keys(stored)) {
		key, raw := strings.ToLower(namespace), string(stored[namespace])
		delete(gone, key)
		if have, ok := s.typesRaw[key]; ok && have == raw {
			continue
		}
		s.typesRaw[key] = raw
		m, err := manifest.Parse(stored[namespace])
		if err != nil {
			s.o.Log.Error("a stored manifest cannot be read; its types are unknown until it is registered again", "namespace", namespace, "error", err.Error())
			continue
		}
		s.types.Set(m)
	}
	for key := range gone {
		delete(s.typesRaw, key)
		s.types.Remove(key)
	}
	return nil
}

// registered returns the stored manifest of a namespace in any case, as a copy
// that may be edited, and as it is stored; nil when there is none.
func (s *Server) registered(ctx context.Context, namespace string) (*manifest.Manifest, json.RawMessage, error) {
	stored, err := s.o.Store.Manifests(ctx)
	if err != nil {
		return nil, nil, err
	}
	for name, raw := range stored {
		if strings.EqualFold(name, namespace) {
			m, err := manifest.Parse(raw)
			return m, raw, err
		}
	}
	return nil, nil, nil
}

// maxEdits bounds how often an edit is made again that another server's came
// before. Of several at once one always gets through.
const maxEdits = 100

// edit changes the manifest of a namespace as one atomic write: it is checked
// whole, and whatever is refused changes nothing (D-5). change gets a copy, nil
// where there is none, and returns what shall be, nil to remove it. It is called
// again when another server has changed the manifest meanwhile, so that the edits
// of both are there.
//
// What stored resources have cannot be taken away (D-6), and a schema that one of
// them does not fit is refused unless forced (D-5).
func (s *Server) edit(ctx context.Context, namespace string, force bool, change func(*manifest.Manifest) (*manifest.Manifest, error)) error {
	s.registering.Lock()
	defer s.registering.Unlock()
	for n := 1; ; n++ {
		err := s.editOnce(ctx, namespace, force, change)
		if !core.IsCode(err, store.Changed) {
			return err
		}
		if n == maxEdits || ctx.Err() != nil {
			return core.Errorf(core.CodeConflict, "the resource provider %s is being changed by others all the time: repeat the request", namespace).WithTarget(namespace)
		}
	}
}

func (s *Server) editOnce(ctx context.Context, namespace string, force bool, change func(*manifest.Manifest) (*manifest.Manifest, error)) error {
	old, stored, err := s.registered(ctx, namespace)
	if err != nil {
		return err
	}
	var base *manifest.Manifest
	if stored != nil {
		namespace = old.Namespace
		if base, err = copyManifest(old); err != nil {
			return err
		}
	}
	wanted, err := change(base)
	if err != nil {
		return err
	}
	var next *manifest.Manifest
	if wanted != nil {
		if next, err = copyManifest(wanted); err != nil {
			return err
		}
		if err := checkOwn(next); err != nil {
			return err
		}
	}
	if err := s.checkRemoved(ctx, old, next); err != nil {
		return err
	}
	if !force {
		if err := s.checkEvolved(ctx, old, next); err != nil {
			return err
		}
	}
	now, err := s.replaceManifest(ctx, namespace, next, stored)
	if err != nil {
		return err
	}
	// A resource that was made between the check and now keeps its type, unless
	// another server has changed the manifest once more: then that one checks.
	if err := s.checkRemoved(ctx, old, next); err != nil {
		_, undone := s.replaceManifest(ctx, namespace, old, now)
		if core.IsCode(undone, store.Changed) {
			return err
		}
		return errors.Join(err, undone)
	}
	return nil
}

// replaceManifest stores and registers next in the place of what is stored; nil
// removes that. It returns what is stored then.
func (s *Server) replaceManifest(ctx context.Context, namespace string, next *manifest.Manifest, stored json.RawMessage) (json.RawMessage, error) {
	switch {
	case next != nil:
		raw, err := json.Marshal(next)
		if err != nil {
			return nil, err
		}
		if err := s.o.Store.PutManifest(ctx, namespace, raw, stored); err != nil {
			return nil, err
		}
		s.typesRaw[strings.ToLower(namespace)] = string(raw)
		s.types.Set(next)
		return raw, nil
	case stored != nil:
		if err := s.o.Store.DeleteManifest(ctx, namespace, stored); err != nil {
			return nil, err
		}
		delete(s.typesRaw, strings.ToLower(namespace))
		s.types.Remove(namespace)
	}
	return nil, nil
}

// copyManifest checks a manifest whole and returns a copy.
func copyManifest(m *manifest.Manifest) (*manifest.Manifest, error) {
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return manifest.Parse(raw)
}

// own are the types that mean something to the control plane itself. A manifest
// that could replace one could take its meaning away.
var own = []string{
	application.TypeApplication, application.TypeApplicationNext, application.TypeEnvironment, application.TypeEnvironmentNext,
	container.Type, "Radius.Core/recipePacks", auth.TypeRoleAssignment,
}

func checkOwn(m *manifest.Manifest) error {
	for name := range m.Types {
		full := m.Namespace + "/" + name
		if slices.ContainsFunc(own, func(t string) bool { return strings.EqualFold(t, full) }) {
			return core.Errorf(core.CodeConflict, "type %s is built in and cannot be replaced: choose another name", full).WithTarget(full)
		}
	}
	return nil
}

// summary is a namespace as the provider summaries show it.
type summary struct {
	Name          string                     `json:"name"`
	Locations     map[string]map[string]any  `json:"locations"`
	ResourceTypes map[string]summarisedTypes `json:"resourceTypes"`
}

type summarisedTypes struct {
	APIVersions       map[string]summarisedVersion `json:"apiVersions"`
	DefaultAPIVersion string                       `json:"defaultApiVersion,omitempty"`
	Capabilities      []string                     `json:"capabilities,omitempty"`
	Description       string                       `json:"description,omitempty"`
	IconHash          string                       `json:"iconHash,omitempty"`
}

type summarisedVersion struct {
	Schema json.RawMessage `json:"schema,omitempty"`
}

func summarise(m *manifest.Manifest) summary {
	out := summary{Name: m.Namespace, Locations: map[string]map[string]any{}, ResourceTypes: map[string]summarisedTypes{}}
	for _, name := range locations(m) {
		out.Locations[name] = map[string]any{}
	}
	for name, t := range m.Types {
		versions := map[string]summarisedVersion{}
		for v, a := range t.APIVersions {
			versions[v] = summarisedVersion{Schema: a.Schema}
		}
		out.ResourceTypes[name] = summarisedTypes{
			APIVersions: versions, DefaultAPIVersion: t.Default(), Capabilities: t.Capabilities, Description: t.Description,
			IconHash: iconHash(t),
		}
	}
	return out
}

// aliasSummary is the summary of a namespace that holds only other names of
// types: the clients of an older release ask by it. nil when there is none.
func (s *Server) aliasSummary(namespace string) *summary {
	var out *summary
	for alias, canonical := range s.types.Aliases() {
		ns, name, _ := strings.Cut(alias, "/")
		if !strings.EqualFold(ns, namespace) {
			continue
		}
		own, short, _ := strings.Cut(canonical, "/")
		m, ok := s.types.Manifest(own)
		if !ok || m.Types[short] == nil {
			continue
		}
		if out == nil {
			out = &summary{Name: ns, Locations: map[string]map[string]any{"global": {}}, ResourceTypes: map[string]summarisedTypes{}}
		}
		out.ResourceTypes[name] = summarise(m).ResourceTypes[short]
	}
	return out
}

// providerID is the id of a registration or of what stands below it.
func providerID(namespace string, below ...string) string {
	id := localPlane.String() + "/providers/System.Resources/resourceProviders/" + namespace
	for _, b := range below {
		id += "/" + b
	}
	return id
}

func notRegistered(what, name, where string) error {
	return core.Errorf(core.CodeNotFound, "%s %q is not registered%s", what, name, where).WithTarget(name)
}

// find returns the merged manifest of a namespace: built-in and registered types.
func (s *Server) find(namespace string) (*manifest.Manifest, error) {
	if m, ok := s.types.Manifest(namespace); ok {
		return m, nil
	}
	return nil, notRegistered("resource provider", namespace, "")
}

func findType(m *manifest.Manifest, name string) (string, *manifest.Type, error) {
	for n, t := range m.Types {
		if strings.EqualFold(n, name) {
			return n, t, nil
		}
	}
	return "", nil, notRegistered("resource type", fmt.Sprintf("%s/%s", m.Namespace, name), "")
}

func findVersion(m *manifest.Manifest, typeName string, t *manifest.Type, version string) (string, *manifest.APIVersion, error) {
	for v, a := range t.APIVersions {
		if strings.EqualFold(v, version) {
			return v, a, nil
		}
	}
	return "", nil, notRegistered("API version", version, fmt.Sprintf(" for %s/%s", m.Namespace, typeName))
}
