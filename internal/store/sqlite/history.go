package sqlite

import (
	"context"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
)

// Operations implements [store.History].
func (s *Store) Operations(ctx context.Context, q store.OperationQuery) (page store.OperationPage, err error) {
	w := &rows.Where{Dialect: rows.SQLite}
	text, err := rows.SelectOperations(q, "o.row", w)
	if err != nil {
		return page, err
	}
	err = s.readRows(ctx, text, w.Args, rows.AddOperation(&page, q.Limit))
	if err != nil {
		return store.OperationPage{}, err
	}
	return page, nil
}

// Messages implements [store.History].
func (s *Store) Messages(ctx context.Context, op string, after int64, limit int) ([]store.Message, error) {
	if limit <= 0 {
		limit = -1
	}
	var out []store.Message
	err := s.readRows(ctx, `SELECT seq, time, text FROM messages WHERE operation = ? AND seq > ? ORDER BY seq LIMIT ?`, []any{op, after, limit}, rows.AddMessage(&out))
	if err != nil || len(out) > 0 {
		return out, err
	}
	_, err = s.Operation(ctx, op)
	return nil, err
}

// Counts implements [store.History].
func (s *Store) Counts(ctx context.Context, now time.Time) (store.Counts, error) {
	c := store.Counts{States: map[core.State]int{}}
	err := s.readRows(ctx, `SELECT state, count(*), sum(parked), sum(lease_until > ?1),
		coalesce(min(CASE WHEN parked = 0 AND lease_until <= ?1 THEN created END), 0) FROM operations WHERE ended = 0 GROUP BY state`,
		[]any{s.nanos(now)}, rows.AddCounts(&c))
	return c, err
}

// dependents answers in a write's own transaction.
func dependents(t *tx, u store.Use) (d store.Dependents, err error) {
	w := &rows.Where{Dialect: rows.SQLite}
	q := rows.SelectUsers(u, w)
	err = t.rows(q, w.Args, rows.AddUser(&d))
	return d, err
}

// Dependents implements [store.Reader].
func (s *Store) Dependents(ctx context.Context, u store.Use) (d store.Dependents, err error) {
	w := &rows.Where{Dialect: rows.SQLite}
	q := rows.SelectUsers(u, w)
	err = s.readRows(ctx, q, w.Args, rows.AddUser(&d))
	return d, err
}
