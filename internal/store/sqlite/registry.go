package sqlite

import (
	"context"
	"encoding/json"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// PutManifest implements [store.Registry]. Namespaces compare without case.
func (s *Store) PutManifest(ctx context.Context, namespace string, manifest json.RawMessage) error {
	return s.writer.do(ctx, func(t *tx) error {
		_, err := t.exec(`INSERT INTO manifests (namespace, manifest) VALUES (?, ?)
			ON CONFLICT (namespace) DO UPDATE SET manifest = excluded.manifest`, namespace, string(manifest))
		t.changed(store.Change{Kind: store.ChangeManifests, ID: store.ProviderID(namespace)})
		return err
	})
}

// DeleteManifest implements [store.Registry].
func (s *Store) DeleteManifest(ctx context.Context, namespace string) error {
	return s.writer.do(ctx, func(t *tx) error {
		n, err := t.exec(`DELETE FROM manifests WHERE namespace = ?`, namespace)
		if err == nil && n == 0 {
			return core.Errorf(core.CodeNotFound, "The resource provider %s was not found.", namespace).WithTarget(namespace)
		}
		t.changed(store.Change{Kind: store.ChangeManifests, ID: store.ProviderID(namespace)})
		return err
	})
}

// Manifests implements [store.Registry].
func (s *Store) Manifests(ctx context.Context) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	err := s.readRows(ctx, `SELECT namespace, manifest FROM manifests`, nil, func(sc scan) error {
		var namespace, manifest string
		err := sc(&namespace, &manifest)
		out[namespace] = json.RawMessage(manifest)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
