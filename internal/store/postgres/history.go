package postgres

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
	w := &where{}
	for _, one := range []struct{ column, value string }{
		{"o.resource_key", q.Resource.Key()}, {"o.parent", q.Parent}, {"o.grp", q.Group},
	} {
		if one.value != "" {
			w.add(one.column+` = ?`, one.value)
		}
	}
	if q.Live {
		w.add(`o.ended = 0`)
	}
	if q.After != "" {
		seq, err := strconv.ParseInt(q.After, 10, 64)
		if err != nil {
			return store.OperationPage{}, badPage(q.After)
		}
		w.add(`o.seq < ?`, seq)
	}
	text := `SELECT o.seq, ` + rows.OperationColumns + ` FROM operations o` + w.String() + ` ORDER BY o.seq DESC` + w.limit(q.Limit)
	var page store.OperationPage
	var last int64
	err := s.read(ctx, text, w.args, func(sc scan) error {
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
	var bound any // NULL is no bound
	if limit > 0 {
		bound = limit
	}
	var out []store.Message
	err := s.read(ctx, `SELECT seq, time, text FROM messages WHERE operation = $1 AND seq > $2 ORDER BY seq LIMIT $3`, []any{op, after, bound}, func(sc scan) error {
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
	err := s.read(ctx, `SELECT state, count(*), count(*) FILTER (WHERE parked), count(*) FILTER (WHERE lease_until > $1),
		coalesce(min(created) FILTER (WHERE NOT parked AND lease_until <= $1), 0) FROM operations WHERE ended = 0 GROUP BY state`,
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
func useWhere(u store.Use, w *where) {
	switch {
	case u.Type != "":
		w.add(`r.type = ?`, strings.ToLower(u.Type))
		if u.APIVersion != "" {
			w.add(`r.api_version = ?`, u.APIVersion)
		}
	case u.Of.IsScope():
		from, to := rules.Below(u.Of.Key())
		w.add(`r.key > ? AND r.key < ?`, from, to)
		if store.TypeOf(u.Of) != store.TypePlane {
			w.add(`r.type NOT IN (?, ?)`, strings.ToLower(store.TypeGroup), strings.ToLower(store.TypePlane))
		}
	default:
		k := u.Of.Key()
		w.add(`r.key <> ?`, k)
		w.add(`r.key IN (SELECT key FROM resources WHERE application_key = ? UNION SELECT key FROM resources WHERE environment_key = ?
			UNION SELECT from_key FROM edges WHERE to_key = ?)`, k, k, k)
	}
}

// usersOf answers the first users of something, each beside the count n of all;
// the values go to w.
func usersOf(u store.Use, w *where) string {
	useWhere(u, w)
	text := `SELECT r.id, count(*) OVER () AS n FROM resources r` + w.String() + ` ORDER BY r.key`
	if u.Limit > 0 {
		text += ` LIMIT ` + strconv.Itoa(u.Limit)
	}
	return text
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

// Dependents implements [store.Reader].
func (s *Store) Dependents(ctx context.Context, u store.Use) (d store.Dependents, err error) {
	w := &where{}
	q := usersOf(u, w)
	err = s.read(ctx, q, w.args, addUser(&d))
	return d, err
}
