package postgres

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
	insertVersion  = `INSERT INTO versions (version, state, wrapped, created, changed) VALUES ($1, $2, $3, $4, $5)`
	openVersion    = `INSERT INTO open_versions (version) VALUES ($1)`
	// lockVersions makes steps of a rotation come one after the other.
	lockVersions = `LOCK TABLE versions IN SHARE ROW EXCLUSIVE MODE`
)

// version reads one version; nil when it is unknown. It sends what was queued.
func (t *tx) version(v int64) (*store.Keyset, error) {
	var found *store.Keyset
	t.rows(selectVersions+` WHERE version = $1`, []any{v}, func(sc scan) error {
		k, err := rows.Keyset(sc)
		found = &k
		return err
	})
	err := t.flush()
	return found, err
}

// Keyset implements [store.Registry].
func (s *Store) Keyset(ctx context.Context, initial []byte) ([]byte, error) {
	var wrapped []byte
	err := s.write(ctx, func(t *tx) error {
		var found bool
		t.do(lockVersions)
		t.row(`SELECT wrapped FROM versions WHERE state = 'Primary'`, nil, &found, &wrapped)
		if err := t.flush(); err != nil || found {
			return err
		}
		wrapped = initial
		now := s.nanos(time.Time{})
		t.exec(nil, insertVersion, 1, string(store.KeysetPrimary), initial, now, now)
		t.exec(nil, openVersion, 1)
		t.changed(store.Change{Kind: store.ChangeKeysets})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return wrapped, nil
}

// Versions implements [store.Keysets].
func (s *Store) Versions(ctx context.Context) ([]store.Keyset, error) {
	var out []store.Keyset
	err := s.read(ctx, selectVersions+` ORDER BY version`, nil, rows.AddKeyset(&out))
	return out, err
}

// AddKeyset implements [store.Keysets].
func (s *Store) AddKeyset(ctx context.Context, wrapped []byte, now time.Time) (store.Keyset, error) {
	var k store.Keyset
	err := s.write(ctx, func(t *tx) error {
		var last, added sql.NullInt64
		var found bool
		t.do(lockVersions)
		t.row(`SELECT max(version), max(version) FILTER (WHERE state = 'Added') FROM versions`, nil, &found, &last, &added)
		if err := t.flush(); err != nil {
			return err
		}
		if added.Valid {
			return rules.KeysetWaits(added.Int64)
		}
		at := s.nanos(now)
		k = store.Keyset{Version: last.Int64 + 1, State: store.KeysetAdded, Wrapped: wrapped, Created: rows.Moment(at), Changed: rows.Moment(at)}
		t.exec(nil, insertVersion, k.Version, string(k.State), wrapped, at, at)
		t.exec(nil, openVersion, k.Version)
		t.changed(store.Change{Kind: store.ChangeKeysets})
		return nil
	})
	return k, err
}

// PromoteKeyset implements [store.Keysets].
func (s *Store) PromoteKeyset(ctx context.Context, version int64, liveSince, now time.Time) error {
	return s.write(ctx, func(t *tx) error {
		var behind []string
		t.do(lockVersions)
		t.rows(`SELECT name FROM replicas WHERE seen >= $1 AND keyset < $2 ORDER BY name`, []any{rows.Column(liveSince), version}, func(sc scan) error {
			var name string
			err := sc(&name)
			behind = append(behind, name)
			return err
		})
		k, err := t.version(version)
		switch {
		case err != nil || k != nil && k.State == store.KeysetPrimary:
			return err
		case k == nil || k.State != store.KeysetAdded:
			return rules.KeysetNot(version, k, store.KeysetAdded)
		case len(behind) > 0:
			return rules.KeysetUnacknowledged(version, behind)
		}
		at := s.nanos(now)
		t.exec(nil, `UPDATE versions SET state = 'Retired', changed = $1 WHERE state = 'Primary'`, at)
		t.exec(nil, `UPDATE versions SET state = 'Primary', changed = $1 WHERE version = $2`, at, version)
		t.changed(store.Change{Kind: store.ChangeKeysets})
		return nil
	})
}

// DisableKeyset implements [store.Keysets]. The reference from resources to
// open_versions decides between it and a write that names the version at the
// same moment: one of the two fails.
func (s *Store) DisableKeyset(ctx context.Context, version int64, now time.Time) error {
	err := s.write(ctx, func(t *tx) error {
		var rows int64
		var found bool
		t.do(lockVersions)
		t.row(`SELECT count(*) FROM resources WHERE keyset = $1`, []any{version}, &found, &rows)
		k, err := t.version(version)
		switch {
		case err != nil || k != nil && k.State == store.KeysetDisabled:
			return err
		case k == nil || k.State == store.KeysetPrimary:
			return rules.KeysetNot(version, k, store.KeysetRetired)
		case rows > 0:
			return rules.KeysetInUse(version, rows)
		}
		t.exec(nil, `DELETE FROM open_versions WHERE version = $1`, version)
		t.exec(nil, `UPDATE versions SET state = 'Disabled', changed = $1 WHERE version = $2`, s.nanos(now), version)
		t.changed(store.Change{Kind: store.ChangeKeysets})
		return nil
	})
	if keysetGone(err) { // a write was faster
		err = rules.KeysetInUse(version, 1)
	}
	return err
}

// Rewrap implements [store.Keysets].
func (s *Store) Rewrap(ctx context.Context, version int64, wrapped []byte) error {
	return s.write(ctx, func(t *tx) error {
		var n int64
		t.exec(&n, `UPDATE versions SET wrapped = $1 WHERE version = $2`, wrapped, version)
		if err := t.flush(); err != nil || n > 0 {
			return err
		}
		return rules.KeysetNot(version, nil, "")
	})
}

// Reseal implements [store.Keysets].
func (s *Store) Reseal(ctx context.Context, r store.Resealing) error {
	secrets, err := rows.ToJSON(r.Secrets, len(r.Secrets) == 0)
	if err != nil {
		return core.Errorf(core.CodeInternal, "seal %s again: %w", r.ID, err)
	}
	err = s.write(ctx, func(t *tx) error {
		var n int64
		var l locks
		l.add(ownName, r.ID.Key(), true)
		t.lock(l)
		t.exec(&n, `UPDATE resources SET properties = $2, secrets = $3, keyset = nullif($4::bigint, 0)
			WHERE key = $1 AND (etag = $5 OR $5 = '*') AND keyset IS NOT NULL AND (keyset < $4::bigint OR $4::bigint = 0)`,
			r.ID.Key(), rows.Text(r.Properties), secrets, r.Keyset, r.Expect)
		c, err := t.current(r.ID, []string{}, r.Keyset)
		switch {
		case err != nil:
			return err
		case !c.Exists:
			return rules.NotFound(r.ID)
		case r.Keyset != 0 && !c.Open:
			return rules.KeysetGone(r.ID, r.Keyset)
		case n == 0:
			return rules.ChangedError(r.ID)
		}
		return nil
	})
	if keysetGone(err) {
		err = rules.KeysetGone(r.ID, r.Keyset)
	}
	return err
}

// Heartbeat implements [store.Keysets].
func (s *Store) Heartbeat(ctx context.Context, r store.Replica) error {
	return s.write(ctx, func(t *tx) error {
		t.exec(nil, `INSERT INTO replicas (name, started, seen, keyset) VALUES ($1, $2, $3, $4)
			ON CONFLICT (name) DO UPDATE SET seen = excluded.seen, keyset = excluded.keyset`, r.Name, s.nanos(r.Started), s.nanos(r.Seen), r.Keyset)
		return nil
	})
}

// Replicas implements [store.Keysets].
func (s *Store) Replicas(ctx context.Context, since time.Time) ([]store.Replica, error) {
	var out []store.Replica
	err := s.read(ctx, `SELECT name, started, seen, keyset FROM replicas WHERE seen >= $1 ORDER BY name`, []any{rows.Column(since)}, rows.AddReplica(&out))
	return out, err
}

// RemoveReplica implements [store.Keysets].
func (s *Store) RemoveReplica(ctx context.Context, name string) error {
	return s.write(ctx, func(t *tx) error {
		t.exec(nil, `DELETE FROM replicas WHERE name = $1`, name)
		return nil
	})
}
