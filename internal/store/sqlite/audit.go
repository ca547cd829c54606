package sqlite

import (
	"context"

	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
)

const insertAudit = `INSERT INTO audit (time, principal, action, target, target_key, allowed, reason, source, request)
	SELECT value ->> 't', value ->> 'p', value ->> 'a', value ->> 'i', value ->> 'k', value ->> 'l', value ->> 'r', value ->> 's', value ->> 'q'
	FROM json_each(?)`

// AppendAudit implements [store.Audit].
func (s *Store) AppendAudit(ctx context.Context, records []store.AuditRecord) error {
	if len(records) == 0 {
		return nil
	}
	list, err := rows.AuditRows(records, s.nanos)
	if err != nil {
		return err
	}
	return s.writer.do(ctx, func(t *tx) error {
		_, err := t.exec(insertAudit, list)
		return err
	})
}

// AuditRecords implements [store.Audit].
func (s *Store) AuditRecords(ctx context.Context, q store.AuditQuery) (page store.AuditPage, err error) {
	w := &rows.Where{Dialect: rows.SQLite}
	text, err := rows.SelectAudit(q, w)
	if err != nil {
		return page, err
	}
	err = s.readRows(ctx, text, w.Args, rows.AddAudit(&page, q.Limit))
	if err != nil {
		return store.AuditPage{}, err
	}
	return page, nil
}
