package sqlite

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

// Operations implements [store.History]. A page is one walk down one index from
// the row after the page before.
func (s *Store) Operations(ctx context.Context, q store.OperationQuery) (store.OperationPage, error) {
	where, args := []string{}, []any{}
	add := func(cond string, values ...any) {
		where = append(where, cond)
		args = append(args, values...)
	}
	// The narrowest index is walked; a plus keeps the planner from the others.
	hint := ""
	for _, one := range []struct{ column, value string }{
		{"o.resource_key", q.Resource.Key()}, {"o.parent", q.Parent}, {"o.grp", q.Group},
	} {
		if one.value != "" {
			add(hint+one.column+` = ?`, one.value)
			hint = "+"
		}
	}
	if q.Live {
		add(hint + `o.ended = 0`)
	}
	if q.After != "" {
		row, err := strconv.ParseInt(q.After, 10, 64)
		if err != nil {
			return store.OperationPage{}, badPage(q.After)
		}
		add(`o.row < ?`, row)
	}
	text := `SELECT o.row, ` + rows.OperationColumns + ` FROM operations o`
	if len(where) > 0 {
		text += ` WHERE ` + strings.Join(where, ` AND `)
	}
	text += ` ORDER BY o.row DESC`
	if q.Limit > 0 {
		text += ` LIMIT ?`
		args = append(args, q.Limit+1) // one more tells whether there is a next page
	}
	var page store.OperationPage
	var last int64
	err := s.readRows(ctx, text, args, func(sc scan) error {
		if q.Limit > 0 && len(page.Operations) == q.Limit {
			page.Next = strconv.FormatInt(last, 10)
			return nil
		}
		var row rows.Operation
		if err := sc(append([]any{&last}, row.Columns()...)...); err != nil {
			return err
		}
		o, err := row.Operation()
		page.Operations = append(page.Operations, o)
		return err
	})
	if err != nil {
		return store.OperationPage{}, err
	}
	return page, nil
}

func badPage(after string) *core.Error {
	return core.Errorf(core.CodeBadRequest, "%q is not the mark of a page: begin with the first page again", after)
}

// Messages implements [store.History].
func (s *Store) Messages(ctx context.Context, op string, after int64, limit int) ([]store.Message, error) {
	if limit <= 0 {
		limit = -1
	}
	var out []store.Message
	err := s.readRows(ctx, `SELECT seq, time, text FROM messages WHERE operation = ? AND seq > ? ORDER BY seq LIMIT ?`, []any{op, after, limit}, func(sc scan) error {
		var m store.Message
		var at int64
		err := sc(&m.Seq, &at, &m.Text)
		m.Time = rows.Moment(at)
		out = append(out, m)
		return err
	})
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
		[]any{s.nanos(now)}, func(sc scan) error {
			var state core.State
			var all, parked, leased int
			var oldest int64
			if err := sc(&state, &all, &parked, &leased, &oldest); err != nil {
				return err
			}
			c.States[state] = all
			c.Parked, c.Leased, c.Waiting = c.Parked+parked, c.Leased+leased, c.Waiting+all-parked-leased
			if at := rows.Moment(oldest); !at.IsZero() && (c.Oldest.IsZero() || at.Before(c.Oldest)) {
				c.Oldest = at
			}
			return nil
		})
	return c, err
}

// useWhere is the condition of the rows that use something.
func useWhere(u store.Use) (string, []any) {
	group, plane := strings.ToLower(store.TypeGroup), strings.ToLower(store.TypePlane)
	switch {
	case u.Type != "" && u.APIVersion != "":
		return `r.type = ? AND +r.api_version = ?`, []any{strings.ToLower(u.Type), u.APIVersion}
	case u.Type != "":
		return `r.type = ?`, []any{strings.ToLower(u.Type)}
	case u.Of.IsScope():
		from, to := rules.Below(u.Of.Key())
		if store.TypeOf(u.Of) == store.TypePlane {
			return `r.key > ? AND r.key < ?`, []any{from, to}
		}
		return `r.key > ? AND r.key < ? AND +r.type NOT IN (?, ?)`, []any{from, to, group, plane}
	}
	return `r.key IN (SELECT key FROM resources WHERE application_key = ?1 UNION SELECT key FROM resources WHERE environment_key = ?1
		UNION SELECT from_key FROM edges WHERE to_key = ?1) AND r.key <> ?1`, []any{u.Of.Key()}
}

// usersOf answers the first users of something, each beside the count of all.
func usersOf(u store.Use) (string, []any) {
	where, args := useWhere(u)
	limit := u.Limit
	if limit <= 0 {
		limit = -1
	}
	return `SELECT r.id, count(*) OVER () FROM resources r WHERE ` + where + ` ORDER BY r.key LIMIT ` + strconv.Itoa(limit), args
}

func addUser(d *store.Dependents) func(scan) error {
	return func(sc scan) error {
		var s string
		var id core.ID
		if err := sc(&s, &d.Count); err != nil {
			return err
		}
		err := rows.ParseID(s, &id)
		d.IDs = append(d.IDs, id)
		return err
	}
}

// dependents answers in a write's own transaction.
func dependents(t *tx, u store.Use) (d store.Dependents, err error) {
	q, args := usersOf(u)
	err = t.rows(q, args, addUser(&d))
	return d, err
}

// Dependents implements [store.Reader].
func (s *Store) Dependents(ctx context.Context, u store.Use) (d store.Dependents, err error) {
	q, args := usersOf(u)
	err = s.readRows(ctx, q, args, addUser(&d))
	return d, err
}
