package sqlite

import (
	"context"
	"encoding/json"

	"github.com/radial-project/radial/internal/core"
)

// PutManifest implements [store.Registry]. Namespaces compare without case.
func (s *Store) PutManifest(ctx context.Context, namespace string, manifest json.RawMessage) error {
	return s.writer.do(ctx, func(t *tx) error {
		_, err := t.exec(`INSERT INTO manifests (namespace, manifest) VALUES (?, ?)
			ON CONFLICT (namespace) DO UPDATE SET manifest = excluded.manifest`, namespace, string(manifest))
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

// dataKeyset is the row of the one keyset there is.
const dataKeyset = "data"

// Keyset implements [store.Registry].
func (s *Store) Keyset(ctx context.Context, initial []byte) ([]byte, error) {
	var keyset []byte
	err := s.writer.do(ctx, func(t *tx) error {
		if _, err := t.exec(`INSERT INTO keysets (name, keyset) VALUES (?, ?) ON CONFLICT (name) DO NOTHING`, dataKeyset, initial); err != nil {
			return err
		}
		_, err := t.row(`SELECT keyset FROM keysets WHERE name = ?`, []any{dataKeyset}, &keyset)
		return err
	})
	if err != nil {
		return nil, err
	}
	return keyset, nil
}
