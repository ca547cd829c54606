package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

const (
	selectVersions = `SELECT ` + rows.KeysetColumns + ` FROM versions`
	insertVersion  = `INSERT INTO versions (version, state, wrapped, created, changed) VALUES (?, ?, ?, ?, ?)`
	openVersion    = `INSERT INTO open_versions (version) VALUES (?)`
)

// version reads one version; nil when it is unknown.
func (t *tx) version(v int64) (*store.Keyset, error) {
	var found *store.Keyset
	err := t.rows(selectVersions+` WHERE version = ?`, []any{v}, func(sc scan) error {
		k, err := rows.Keyset(sc)
		found = &k
		return err
	})
	return found, err
}

// Keyset implements [store.Keysets].
func (s *Store) Keyset(ctx context.Context, initial []byte) ([]byte, error) {
	var wrapped []byte
	err := s.writer.do(ctx, func(t *tx) error {
		found, err := t.row(`SELECT wrapped FROM versions WHERE state = 'Primary'`, nil, &wrapped)
		if err != nil || found {
			return err
		}
		wrapped = initial
		now := s.nanos(time.Time{})
		if _, err := t.exec(insertVersion, 1, string(store.KeysetPrimary), initial, now, now); err != nil {
			return err
		}
		_, err = t.exec(openVersion, 1)
		t.changed(store.Change{Kind: store.ChangeKeysets})
		return err
	})
	if err != nil {
		return nil, err
	}
	return wrapped, nil
}

// Versions implements [store.Keysets].
func (s *Store) Versions(ctx context.Context) ([]store.Keyset, error) {
	var out []store.Keyset
	err := s.readRows(ctx, selectVersions+` ORDER BY version`, nil, rows.AddKeyset(&out))
	return out, err
}

// AddKeyset implements [store.Keysets].
func (s *Store) AddKeyset(ctx context.Context, wrapped []byte, now time.Time) (store.Keyset, error) {
	var k store.Keyset
	err := s.writer.do(ctx, func(t *tx) error {
		var last, added sql.NullInt64
		if _, err := t.row(`SELECT max(version), max(CASE state WHEN 'Added' THEN version END) FROM versions`, nil, &last, &added); err != nil {
			return err
		}
		if added.Valid {
			return rules.KeysetWaits(added.Int64)
		}
		at := s.nanos(now)
		k = store.Keyset{Version: last.Int64 + 1, State: store.KeysetAdded, Wrapped: wrapped, Created: rows.Moment(at), Changed: rows.Moment(at)}
		if _, err := t.exec(insertVersion, k.Version, string(k.State), wrapped, at, at); err != nil {
			return err
		}
		_, err := t.exec(openVersion, k.Version)
		t.changed(store.Change{Kind: store.ChangeKeysets})
		return err
	})
	return k, err
}

// PromoteKeyset implements [store.Keysets].
func (s *Store) PromoteKeyset(ctx context.Context, version int64, liveSince, now time.Time) error {
	return s.writer.do(ctx, func(t *tx) error {
		k, err := t.version(version)
		if err != nil || k != nil && k.State == store.KeysetPrimary {
			return err
		}
		if k == nil || k.State != store.KeysetAdded {
			return rules.KeysetNot(version, k, store.KeysetAdded)
		}
		var behind []string
		if err := t.rows(`SELECT name FROM replicas WHERE seen >= ? AND keyset < ? ORDER BY name`, []any{rows.Column(liveSince), version}, func(sc scan) error {
			var name string
			err := sc(&name)
			behind = append(behind, name)
			return err
		}); err != nil {
			return err
		}
		if len(behind) > 0 {
			return rules.KeysetUnacknowledged(version, behind)
		}
		at := s.nanos(now)
		if _, err := t.exec(`UPDATE versions SET state = 'Retired', changed = ? WHERE state = 'Primary'`, at); err != nil {
			return err
		}
		_, err = t.exec(`UPDATE versions SET state = 'Primary', changed = ? WHERE version = ?`, at, version)
		t.changed(store.Change{Kind: store.ChangeKeysets})
		return err
	})
}

// DisableKeyset implements [store.Keysets].
func (s *Store) DisableKeyset(ctx context.Context, version int64, now time.Time) error {
	return s.writer.do(ctx, func(t *tx) error {
		k, err := t.version(version)
		if err != nil || k != nil && k.State == store.KeysetDisabled {
			return err
		}
		if k == nil || k.State == store.KeysetPrimary {
			return rules.KeysetNot(version, k, store.KeysetRetired)
		}
		var rows int64
		if _, err := t.row(`SELECT count(*) FROM resources WHERE keyset = ?`, []any{version}, &rows); err != nil {
			return err
		}
		if rows > 0 {
			return rules.KeysetInUse(version, rows)
		}
		if _, err := t.exec(`DELETE FROM open_versions WHERE version = ?`, version); err != nil {
			return err
		}
		_, err = t.exec(`UPDATE versions SET state = 'Disabled', changed = ? WHERE version = ?`, s.nanos(now), version)
		t.changed(store.Change{Kind: store.ChangeKeysets})
		return err
	})
}

// Rewrap implements [store.Keysets].
func (s *Store) Rewrap(ctx context.Context, version int64, wrapped []byte) error {
	return s.writer.do(ctx, func(t *tx) error {
		n, err := t.exec(`UPDATE versions SET wrapped = ? WHERE version = ?`, wrapped, version)
		if err == nil && n == 0 {
			err = rules.KeysetNot(version, nil, "")
		}
		return err
	})
}

// Reseal implements [store.Keysets].
func (s *Store) Reseal(ctx context.Context, r store.Resealing) error {
	secrets, err := rows.ToJSON(r.Secrets, len(r.Secrets) == 0)
	if err != nil {
		return core.Errorf(core.CodeInternal, "seal %s again: %w", r.ID, err)
	}
	return s.writer.do(ctx, func(t *tx) error {
		c, err := t.current(r.ID, []string{}, r.Keyset)
		if err != nil {
			return err
		}
		if !c.Exists {
			return rules.NotFound(r.ID)
		}
		if r.Keyset != 0 && !c.Open {
			return rules.KeysetGone(r.ID, r.Keyset)
		}
		n, err := t.exec(`UPDATE resources SET properties = ?, secrets = ?, keyset = ?
			WHERE key = ? AND (etag = ? OR ? = '*') AND keyset IS NOT NULL AND (keyset < ? OR ? = 0)`,
			rows.Text(r.Properties), secrets, rows.Version(r.Keyset), r.ID.Key(), r.Expect, r.Expect, r.Keyset, r.Keyset)
		if err == nil && n == 0 {
			err = rules.ChangedError(r.ID)
		}
		return err
	})
}

// Purge implements [store.Purger]: it folds the log into the file and empties
// it. What rows held before is overwritten in the file when they change
// (secure_delete).
func (s *Store) Purge(ctx context.Context) error {
	var busy, pages, moved int
	if err := s.reads.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &moved); err != nil {
		return s.fault("purged", err)
	}
	if busy != 0 {
		return core.Errorf(core.CodeUnavailable, "purge the store: a reader holds the log; it is tried again")
	}
	return nil
}

// Heartbeat implements [store.Keysets].
func (s *Store) Heartbeat(ctx context.Context, r store.Replica) error {
	return s.writer.do(ctx, func(t *tx) error {
		_, err := t.exec(`INSERT INTO replicas (name, started, seen, keyset) VALUES (?, ?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET seen = excluded.seen, keyset = excluded.keyset`, r.Name, s.nanos(r.Started), s.nanos(r.Seen), r.Keyset)
		return err
	})
}

// Replicas implements [store.Keysets].
func (s *Store) Replicas(ctx context.Context, since time.Time) ([]store.Replica, error) {
	var out []store.Replica
	err := s.readRows(ctx, `SELECT name, started, seen, keyset FROM replicas WHERE seen >= ? ORDER BY name`, []any{rows.Column(since)}, rows.AddReplica(&out))
	return out, err
}

// RemoveReplica implements [store.Keysets].
func (s *Store) RemoveReplica(ctx context.Context, name string) error {
	return s.writer.do(ctx, func(t *tx) error {
		_, err := t.exec(`DELETE FROM replicas WHERE name = ?`, name)
		return err
	})
}
