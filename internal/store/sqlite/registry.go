package sqlite

import (
	"context"
	"encoding/json"

	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rules"
)

// PutManifest implements [store.Registry]. Namespaces compare without case.
func (s *Store) PutManifest(ctx context.Context, namespace string, manifest, expect json.RawMessage) error {
	if expect == nil {
		return s.changeManifest(ctx, namespace, `INSERT INTO manifests (namespace, manifest) VALUES (?, ?) ON CONFLICT (namespace) DO NOTHING`, namespace, string(manifest))
	}
	return s.changeManifest(ctx, namespace, `UPDATE manifests SET manifest = ? WHERE namespace = ? AND manifest = ?`, string(manifest), namespace, string(expect))
}

// DeleteManifest implements [store.Registry].
func (s *Store) DeleteManifest(ctx context.Context, namespace string, expect json.RawMessage) error {
	return s.changeManifest(ctx, namespace, `DELETE FROM manifests WHERE namespace = ? AND manifest = ?`, namespace, string(expect))
}

// changeManifest runs a statement that touches the manifest as it was read.
func (s *Store) changeManifest(ctx context.Context, namespace, q string, args ...any) error {
	return s.writer.do(ctx, func(t *tx) error {
		n, err := t.exec(q, args...)
		if err == nil && n == 0 {
			return rules.ManifestChanged(namespace)
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
