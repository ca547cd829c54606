package postgres

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rules"
)

// PutManifest implements [store.Registry]. Namespaces compare without case.
func (s *Store) PutManifest(ctx context.Context, namespace string, manifest, expect json.RawMessage) error {
	key := strings.ToLower(namespace)
	if expect == nil {
		return s.changeManifest(ctx, namespace, `INSERT INTO manifests (namespace_key, namespace, manifest) VALUES ($1, $2, $3)
			ON CONFLICT (namespace_key) DO NOTHING`, key, namespace, string(manifest))
	}
	return s.changeManifest(ctx, namespace, `UPDATE manifests SET manifest = $2 WHERE namespace_key = $1 AND manifest = $3`, key, string(manifest), string(expect))
}

// DeleteManifest implements [store.Registry].
func (s *Store) DeleteManifest(ctx context.Context, namespace string, expect json.RawMessage) error {
	return s.changeManifest(ctx, namespace, `DELETE FROM manifests WHERE namespace_key = $1 AND manifest = $2`, strings.ToLower(namespace), string(expect))
}

// changeManifest runs a statement that touches the manifest as it was read.
func (s *Store) changeManifest(ctx context.Context, namespace, q string, args ...any) error {
	return s.write(ctx, func(t *tx) error {
		var n int64
		t.exec(&n, q, args...)
		if err := t.flush(); err != nil {
			return err
		}
		if n == 0 {
			return rules.ManifestChanged(namespace)
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
