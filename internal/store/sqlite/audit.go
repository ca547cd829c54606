package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

const insertAudit = `INSERT INTO audit (time, principal, action, target, target_key, allowed, reason, source, request)
	SELECT value ->> 't', value ->> 'p', value ->> 'a', value ->> 'i', value ->> 'k', value ->> 'l', value ->> 'r', value ->> 's', value ->> 'q'
	FROM json_each(?)`

// AppendAudit implements [store.Audit].
func (s *Store) AppendAudit(ctx context.Context, records []store.AuditRecord) error {
	if len(records) == 0 {
		return nil
	}
	rows, err := auditRows(records, s.nanos)
	if err != nil {
		return err
	}
	return s.writer.do(ctx, func(t *tx) error {
		_, err := t.exec(insertAudit, rows)
		return err
	})
}

// auditRows are records as they go to insertAudit.
func auditRows(records []store.AuditRecord, nanos func(time.Time) int64) (string, error) {
	rows := make([]map[string]any, len(records))
	for i, r := range records {
		rows[i] = map[string]any{"t": nanos(r.Time), "p": r.Principal, "a": r.Action, "i": r.Target, "k": strings.ToLower(r.Target),
			"l": r.Allowed, "r": r.Reason, "s": r.Source, "q": r.Request}
	}
	b, err := json.Marshal(rows)
	if err != nil {
		return "", core.Errorf(core.CodeInternal, "audit: %w", err)
	}
	return string(b), nil
}

const auditColumns = `a.seq, a.time, a.principal, a.action, a.target, a.allowed, a.reason, a.source, a.request`

func scanAudit(sc scan) (store.AuditRecord, error) {
	var r store.AuditRecord
	var at int64
	err := sc(&r.Seq, &at, &r.Principal, &r.Action, &r.Target, &r.Allowed, &r.Reason, &r.Source, &r.Request)
	r.Time = rows.Moment(at)
	return r, err
}

// AuditRecords implements [store.Audit]. Records are in the order of their
// times; one that is written late stands where its time says.
func (s *Store) AuditRecords(ctx context.Context, q store.AuditQuery) (store.AuditPage, error) {
	where, args := []string{`true`}, []any{}
	add := func(cond string, values ...any) {
		where = append(where, cond)
		args = append(args, values...)
	}
	if q.Principal != "" {
		add(`a.principal = ?`, q.Principal)
	}
	if q.Target != "" {
		key := strings.TrimSuffix(strings.ToLower(q.Target), "/")
		from, to := rules.Below(key)
		add(`(a.target_key = ? OR a.target_key > ? AND a.target_key < ?)`, key, from, to)
	}
	if q.Refused {
		add(`a.allowed = 0`)
	}
	if !q.From.IsZero() {
		add(`a.time >= ?`, rows.Column(q.From))
	}
	if q.After != "" { // it is at or before To
		at, seq, err := pageMark(q.After)
		if err != nil {
			return store.AuditPage{}, err
		}
		add(`(a.time, a.seq) < (?, ?)`, at, seq)
	} else if !q.To.IsZero() {
		add(`a.time < ?`, rows.Column(q.To))
	}
	text := `SELECT ` + auditColumns + ` FROM audit a WHERE ` + strings.Join(where, ` AND `) + ` ORDER BY a.time DESC, a.seq DESC`
	if q.Limit > 0 {
		text += ` LIMIT ?`
		args = append(args, q.Limit+1)
	}
	var page store.AuditPage
	err := s.readRows(ctx, text, args, func(sc scan) error {
		if q.Limit > 0 && len(page.Records) == q.Limit {
			last := page.Records[q.Limit-1]
			page.Next = fmt.Sprintf("%d.%d", rows.Column(last.Time), last.Seq)
			return nil
		}
		r, err := scanAudit(sc)
		page.Records = append(page.Records, r)
		return err
	})
	if err != nil {
		return store.AuditPage{}, err
	}
	return page, nil
}

// pageMark reads what AuditRecords wrote as Next.
func pageMark(s string) (at, seq int64, err error) {
	a, b, _ := strings.Cut(s, ".")
	at, err1 := strconv.ParseInt(a, 10, 64)
	seq, err2 := strconv.ParseInt(b, 10, 64)
	if rows.First(err1, err2) != nil {
		return 0, 0, badPage(s)
	}
	return at, seq, nil
}
