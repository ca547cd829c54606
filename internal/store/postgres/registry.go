package postgres

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// PutManifest implements [store.Registry]. Namespaces compare without case.
func (s *Store) PutManifest(ctx context.Context, namespace string, manifest json.RawMessage) error {
	return s.write(ctx, func(t *tx) error {
		t.exec(nil, `INSERT INTO manifests (namespace_key, namespace, manifest) VALUES ($1, $2, $3)
			ON CONFLICT (namespace_key) DO UPDATE SET manifest = excluded.manifest`, strings.ToLower(namespace), namespace, string(manifest))
		t.changed(store.Change{Kind: store.ChangeManifests, ID: store.ProviderID(namespace)})
		return nil
	})
}

// DeleteManifest implements [store.Registry].
func (s *Store) DeleteManifest(ctx context.Context, namespace string) error {
	return s.write(ctx, func(t *tx) error {
		var n int64
		t.exec(&n, `DELETE FROM manifests WHERE namespace_key = $1`, strings.ToLower(namespace))
		if err := t.flush(); err != nil {
			return err
		}
		if n == 0 {
			return core.Errorf(core.CodeNotFound, "The resource provider %s was not found.", namespace).WithTarget(namespace)
		}
		t.changed(store.Change{Kind: store.ChangeManifests, ID: store.ProviderID(namespace)})
		return nil
	})
}

// Manifests implements [store.Registry].
func (s *Store) Manifests(ctx context.Context) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	err := s.read(ctx, `SELECT namespace, manifest FROM manifests`, nil, func(sc scan) error {
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
