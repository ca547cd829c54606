package postgres

import (
	"context"

	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
)

const insertAudit = `INSERT INTO audit (time, principal, action, target, target_key, allowed, reason, source, request)
	SELECT t, p, a, i, k, l, r, s, q FROM ROWS FROM (json_to_recordset($1::json) AS (t bigint, p text, a text, i text, k text, l boolean, r text, s text, q text))
	WITH ORDINALITY AS j (t, p, a, i, k, l, r, s, q, n) ORDER BY n`

// AppendAudit implements [store.Audit].
func (s *Store) AppendAudit(ctx context.Context, records []store.AuditRecord) error {
	if len(records) == 0 {
		return nil
	}
	list, err := rows.AuditRows(records, s.nanos)
	if err != nil {
		return err
	}
	return s.write(ctx, func(t *tx) error {
		t.exec(nil, insertAudit, list)
		return nil
	})
}

// AuditRecords implements [store.Audit].
func (s *Store) AuditRecords(ctx context.Context, q store.AuditQuery) (page store.AuditPage, err error) {
	w := &rows.Where{Dialect: rows.Postgres}
	text, err := rows.SelectAudit(q, w)
	if err != nil {
		return page, err
	}
	err = s.read(ctx, text, w.Args, rows.AddAudit(&page, q.Limit))
	if err != nil {
		return store.AuditPage{}, err
	}
	return page, nil
}
