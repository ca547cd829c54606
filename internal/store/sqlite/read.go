package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

const (
	selectResource  = `SELECT ` + rows.ResourceColumns + ` FROM resources r WHERE r.key = ?`
	selectOutputsOf = `SELECT ` + outputColumns + ` FROM outputs u WHERE u.resource_key IN (SELECT value FROM json_each(?)) ORDER BY u.resource_key, u.ordinal`
	selectOutputs   = `SELECT ` + outputColumns + ` FROM outputs u WHERE u.resource_key = ? ORDER BY u.ordinal`
)

// prepared returns the read for a text, prepared once a connection.
func (s *Store) prepared(ctx context.Context, q string) (*sql.Stmt, error) {
	if st, ok := s.stmts.Load(q); ok {
		return st.(*sql.Stmt), nil
	}
	st, err := s.reads.PrepareContext(ctx, q)
	if err != nil {
		return nil, s.fault("read", err)
	}
	if had, ok := s.stmts.LoadOrStore(q, st); ok {
		_ = st.Close()
		return had.(*sql.Stmt), nil
	}
	return st, nil
}

// readRow reads one row; sql.ErrNoRows comes back as it is.
func (s *Store) readRow(ctx context.Context, q string, args []any, into ...any) error {
	st, err := s.prepared(ctx, q)
	if err != nil {
		return err
	}
	err = st.QueryRowContext(ctx, args...).Scan(into...)
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return s.fault("read", err)
}

// readRows reads all rows of a query.
func (s *Store) readRows(ctx context.Context, q string, args []any, each func(scan) error) error {
	st, err := s.prepared(ctx, q)
	if err != nil {
		return err
	}
	return s.fault("read", eachRow(ctx, st, args, each))
}

// Get implements [store.Reader].
func (s *Store) Get(ctx context.Context, id core.ID) (core.Resource, *core.Operation, error) {
	var resource rows.Resource
	var operation rows.Operation
	err := s.readRow(ctx, `SELECT `+rows.ResourceColumns+`, `+rows.OperationColumns+`
		FROM resources r LEFT JOIN operations o ON o.resource_key = r.key AND o.ended = 0 WHERE r.key = ?`,
		[]any{id.Key()}, append(resource.Columns(), operation.Columns()...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return core.Resource{}, nil, rules.NotFound(id)
	}
	if err != nil {
		return core.Resource{}, nil, err
	}
	r, err := resource.Resource()
	if err != nil || !operation.Found() {
		return r, nil, s.fault("read", err)
	}
	o, err := operation.Operation()
	return r, &o, s.fault("read", err)
}

// Operation implements [store.Reader].
func (s *Store) Operation(ctx context.Context, id string) (core.Operation, error) {
	var row rows.Operation
	err := s.readRow(ctx, `SELECT `+rows.OperationColumns+` FROM operations o WHERE o.id = ?`, []any{id}, row.Columns()...)
	if errors.Is(err, sql.ErrNoRows) {
		return core.Operation{}, rules.OperationNotFound(id)
	}
	if err != nil {
		return core.Operation{}, err
	}
	o, err := row.Operation()
	return o, s.fault("read", err)
}

// Claimant implements [store.Reader].
func (s *Store) Claimant(ctx context.Context, output core.ID) (core.ID, error) {
	var id core.ID
	var text string
	err := s.readRow(ctx, `SELECT r.id FROM outputs u JOIN resources r ON r.key = u.resource_key WHERE u.key = ? AND u.claimed = 1`, []any{output.Key()}, &text)
	if errors.Is(err, sql.ErrNoRows) {
		return id, nil
	}
	if err == nil {
		err = s.fault("read", rows.ParseID(text, &id))
	}
	return id, err
}

// Outputs implements [store.Reader].
func (s *Store) Outputs(ctx context.Context, id core.ID) ([]core.Output, error) {
	var out []core.Output
	err := s.readRows(ctx, selectOutputs, []any{id.Key()}, func(sc scan) error {
		_, o, err := scanOutput(sc)
		out = append(out, o)
		return err
	})
	return out, err
}

// OutputsOf implements [store.Reader].
func (s *Store) OutputsOf(ctx context.Context, ids []core.ID) (map[string][]core.Output, error) {
	keys, err := json.Marshal(rows.Keys(ids))
	if err != nil {
		return nil, err
	}
	out := map[string][]core.Output{}
	err = s.readRows(ctx, selectOutputsOf, []any{string(keys)}, func(sc scan) error {
		key, o, err := scanOutput(sc)
		out[key] = append(out[key], o)
		return err
	})
	return out, err
}

// List implements [store.Reader]. A page is one walk along one index from the
// key after the page before: what is written meanwhile neither moves a row to
// another page nor hides one.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	w := &rows.Where{Dialect: rows.SQLite}
	rows.WhereListed(q, w)
	text := `SELECT ` + rows.ResourceColumns + ` FROM resources r` + w.String() + ` ORDER BY r.key` + w.Limit(q.Limit)
	var page store.Page
	err := s.readRows(ctx, text, w.Args, rows.AddListed(&page, q.Limit))
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}
