package rows

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rules"
)

// AuditColumns are the columns of a record, with the alias of their table.
const AuditColumns = `a.seq, a.time, a.principal, a.action, a.target, a.allowed, a.reason, a.source, a.request`

// AuditRecord reads AuditColumns.
func AuditRecord(sc Scan) (store.AuditRecord, error) {
	var r store.AuditRecord
	var at int64
	err := sc(&r.Seq, &at, &r.Principal, &r.Action, &r.Target, &r.Allowed, &r.Reason, &r.Source, &r.Request)
	r.Time = Moment(at)
	return r, err
}

// AuditRows are records as both stores insert them: an array of objects with a
// member of one letter for each column.
func AuditRows(records []store.AuditRecord, nanos func(time.Time) int64) (string, error) {
	list := make([]map[string]any, len(records))
	for i, r := range records {
		list[i] = map[string]any{"t": nanos(r.Time), "p": r.Principal, "a": r.Action, "i": r.Target, "k": strings.ToLower(r.Target),
			"l": r.Allowed, "r": r.Reason, "s": r.Source, "q": r.Request}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return "", core.Errorf(core.CodeInternal, "audit: %w", err)
	}
	return string(b), nil
}

// SelectAudit is the statement of a page of records, newest first. They are in
// the order of their times; one that is written late stands where its time says.
func SelectAudit(q store.AuditQuery, w *Where) (string, error) {
	if q.Principal != "" {
		w.Add(`a.principal = ?`, q.Principal)
	}
	if q.Target != "" {
		key := strings.TrimSuffix(strings.ToLower(q.Target), "/")
		from, to := rules.Below(key)
		w.Add(`(a.target_key = ? OR a.target_key > ? AND a.target_key < ?)`, key, from, to)
	}
	if q.Refused {
		w.Add(`NOT a.allowed`)
	}
	if !q.From.IsZero() {
		w.Add(`a.time >= ?`, Column(q.From))
	}
	if q.After != "" { // it is at or before To
		at, seq, err := auditMark(q.After)
		if err != nil {
			return "", err
		}
		w.Add(`(a.time, a.seq) < (?, ?)`, at, seq)
	} else if !q.To.IsZero() {
		w.Add(`a.time < ?`, Column(q.To))
	}
	return `SELECT ` + AuditColumns + ` FROM audit a` + w.String() + ` ORDER BY a.time DESC, a.seq DESC` + w.Limit(q.Limit), nil
}

// auditMark reads what AddAudit writes as Next.
func auditMark(s string) (at, seq int64, err error) {
	a, b, _ := strings.Cut(s, ".")
	at, err1 := strconv.ParseInt(a, 10, 64)
	seq, err2 := strconv.ParseInt(b, 10, 64)
	if First(err1, err2) != nil {
		return 0, 0, badPage(s)
	}
	return at, seq, nil
}

// AddAudit adds the rows of SelectAudit to a page.
func AddAudit(page *store.AuditPage, limit int) func(Scan) error {
	return func(sc Scan) error {
		if limit > 0 && len(page.Records) == limit {
			last := page.Records[limit-1]
			page.Next = fmt.Sprintf("%d.%d", Column(last.Time), last.Seq)
			return nil
		}
		r, err := AuditRecord(sc)
		page.Records = append(page.Records, r)
		return err
	}
}
