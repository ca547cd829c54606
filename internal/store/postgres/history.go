package postgres

import (
	"context"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
)

// Operations implements [store.History].
func (s *Store) Operations(ctx context.Context, q store.OperationQuery) (page store.OperationPage, err error) {
	w := &rows.Where{Dialect: rows.Postgres}
	text, err := rows.SelectOperations(q, "o.seq", w)
	if err != nil {
		return page, err
	}
	err = s.read(ctx, text, w.Args, rows.AddOperation(&page, q.Limit))
	if err != nil {
		return store.OperationPage{}, err
	}
	return page, nil
}

// Messages implements [store.History].
func (s *Store) Messages(ctx context.Context, op string, after int64, limit int) ([]store.Message, error) {
	var bound any // NULL is no bound
	if limit > 0 {
		bound = limit
	}
	var out []store.Message
	err := s.read(ctx, `SELECT seq, time, text FROM messages WHERE operation = $1 AND seq > $2 ORDER BY seq LIMIT $3`, []any{op, after, bound}, rows.AddMessage(&out))
	if err != nil || len(out) > 0 {
		return out, err
	}
	_, err = s.Operation(ctx, op)
	return nil, err
}

// Counts implements [store.History].
func (s *Store) Counts(ctx context.Context, now time.Time) (store.Counts, error) {
	c := store.Counts{States: map[core.State]int{}}
	err := s.read(ctx, `SELECT state, count(*), count(*) FILTER (WHERE parked), count(*) FILTER (WHERE lease_until > $1),
		coalesce(min(created) FILTER (WHERE NOT parked AND lease_until <= $1), 0) FROM operations WHERE ended = 0 GROUP BY state`,
		[]any{s.nanos(now)}, rows.AddCounts(&c))
	return c, err
}

// Dependents implements [store.Reader].
func (s *Store) Dependents(ctx context.Context, u store.Use) (d store.Dependents, err error) {
	w := &rows.Where{Dialect: rows.Postgres}
	q := rows.SelectUsers(u, w)
	err = s.read(ctx, q, w.Args, rows.AddUser(&d))
	return d, err
}
