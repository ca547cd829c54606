package rows

import (
	"strconv"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rules"
)

// badPage refuses a mark that no page ended with.
func badPage(after string) *core.Error {
	return core.Errorf(core.CodeBadRequest, "%q is not the mark of a page: begin with the first page again", after)
}

// SelectOperations is the statement of a page of operations, newest first: one
// walk down one index from the row after the page before. number is the column
// that orders them.
func SelectOperations(q store.OperationQuery, number string, w *Where) (string, error) {
	column := w.narrowest()
	for _, one := range []struct{ column, value string }{
		{"o.resource_key", q.Resource.Key()}, {"o.parent", q.Parent}, {"o.grp", q.Group},
	} {
		if one.value != "" {
			w.Add(column(one.column)+` = ?`, one.value)
		}
	}
	if q.Live {
		w.Add(column("o.ended") + ` = 0`)
	}
	if q.After != "" {
		after, err := strconv.ParseInt(q.After, 10, 64)
		if err != nil {
			return "", badPage(q.After)
		}
		w.Add(number+` < ?`, after)
	}
	return `SELECT ` + number + `, ` + OperationColumns + ` FROM operations o` + w.String() + ` ORDER BY ` + number + ` DESC` + w.Limit(q.Limit), nil
}

// AddOperation adds the rows of SelectOperations to a page.
func AddOperation(page *store.OperationPage, limit int) func(Scan) error {
	var last int64
	return func(sc Scan) error {
		if limit > 0 && len(page.Operations) == limit {
			page.Next = strconv.FormatInt(last, 10)
			return nil
		}
		var row Operation
		if err := sc(append([]any{&last}, row.Columns()...)...); err != nil {
			return err
		}
		o, err := row.Operation()
		page.Operations = append(page.Operations, o)
		return err
	}
}

// AddMessage adds rows of seq, time and text.
func AddMessage(out *[]store.Message) func(Scan) error {
	return func(sc Scan) error {
		var m store.Message
		var at int64
		err := sc(&m.Seq, &at, &m.Text)
		m.Time = Moment(at)
		*out = append(*out, m)
		return err
	}
}

// AddCounts adds up rows of a state of live operations, how many are in it, are
// parked and are leased, and when the oldest that waits was accepted.
func AddCounts(c *store.Counts) func(Scan) error {
	return func(sc Scan) error {
		var state core.State
		var all, parked, leased int
		var oldest int64
		if err := sc(&state, &all, &parked, &leased, &oldest); err != nil {
			return err
		}
		c.States[state] = all
		c.Parked, c.Leased, c.Waiting = c.Parked+parked, c.Leased+leased, c.Waiting+all-parked-leased
		if at := Moment(oldest); !at.IsZero() && (c.Oldest.IsZero() || at.Before(c.Oldest)) {
			c.Oldest = at
		}
		return nil
	}
}

// SelectUsers is the statement of the first users of something, each beside the
// count n of all.
func SelectUsers(u store.Use, w *Where) string {
	switch {
	case u.Type != "":
		w.Add(`r.type = ?`, strings.ToLower(u.Type))
		if u.APIVersion != "" {
			w.Add(w.unindexed("r.api_version")+` = ?`, u.APIVersion)
		}
	case u.Of.IsScope():
		from, to := rules.Below(u.Of.Key())
		w.Add(`r.key > ? AND r.key < ?`, from, to)
		if store.TypeOf(u.Of) != store.TypePlane {
			w.noScopes()
		}
	default:
		k := u.Of.Key()
		w.Add(`r.key <> ?`, k)
		w.Add(`r.key IN (SELECT key FROM resources WHERE application_key = ? UNION SELECT key FROM resources WHERE environment_key = ?
			UNION SELECT from_key FROM edges WHERE to_key = ?)`, k, k, k)
	}
	text := `SELECT r.id, count(*) OVER () AS n FROM resources r` + w.String() + ` ORDER BY r.key`
	if u.Limit > 0 {
		text += ` LIMIT ` + strconv.Itoa(u.Limit)
	}
	return text
}

// noScopes leaves out groups and planes.
func (w *Where) noScopes() {
	w.Add(w.unindexed("r.type")+` NOT IN (?, ?)`, strings.ToLower(store.TypeGroup), strings.ToLower(store.TypePlane))
}

// AddUser adds the rows of SelectUsers.
func AddUser(d *store.Dependents) func(Scan) error {
	return func(sc Scan) error {
		var s string
		var id core.ID
		if err := sc(&s, &d.Count); err != nil {
			return err
		}
		err := ParseID(s, &id)
		d.IDs = append(d.IDs, id)
		return err
	}
}

// WhereListed is the condition of a list.
func WhereListed(q store.Query, w *Where) {
	rowType := strings.ToLower(q.Type)
	scopes := rowType == strings.ToLower(store.TypeGroup) || rowType == strings.ToLower(store.TypePlane)
	column := w.narrowest()
	if !q.Application.IsZero() {
		w.Add(column("r.application_key")+` = ?`, q.Application.Key())
	}
	if !q.Environment.IsZero() {
		w.Add(column("r.environment_key")+` = ?`, q.Environment.Key())
	}
	if q.SealedBefore != 0 {
		w.Add(`r.keyset < ?`, q.SealedBefore)
	}
	if q.Type != "" {
		w.Add(column("r.type")+` = ?`, rowType)
	} else {
		w.noScopes()
	}
	// One lower bound only: SQLite walks an index from the first it is given,
	// and would walk all pages before this one again.
	low := q.After
	if !q.Scope.IsZero() {
		from, to := rules.Below(q.Scope.Key())
		w.Add(`r.key < ?`, to)
		switch {
		case low > from:
		case scopes && low == "": // a scope matches itself; "-" sorts before "/"
			w.Add(`r.key >= ? AND (r.key > ? OR r.key = ?)`, q.Scope.Key(), from, q.Scope.Key())
		default:
			low = from
		}
	}
	if low != "" {
		w.Add(`r.key > ?`, low)
	}
}

// AddListed adds rows of ResourceColumns to a page.
func AddListed(page *store.Page, limit int) func(Scan) error {
	return func(sc Scan) error {
		if limit > 0 && len(page.Resources) == limit {
			page.Next = page.Resources[limit-1].ID.Key()
			return nil
		}
		var row Resource
		if err := sc(row.Columns()...); err != nil {
			return err
		}
		r, err := row.Resource()
		page.Resources = append(page.Resources, r)
		return err
	}
}
