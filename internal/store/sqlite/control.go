package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

// messageRow is a message as it goes to insertMessages.
type messageRow struct {
	Time int64  `json:"t"`
	Text string `json:"x"`
}

const insertMessages = `INSERT INTO messages (operation, seq, time, text)
	SELECT ?1, (SELECT coalesce(max(seq), 0) FROM messages WHERE operation = ?1) + 1 + j.key, value ->> 't', value ->> 'x' FROM json_each(?2) j`

// Append implements [store.Queue].
func (s *Store) Append(ctx context.Context, op string, fence int64, messages []store.Message) error {
	if len(messages) == 0 {
		return nil
	}
	list := make([]messageRow, len(messages))
	for i, m := range messages {
		list[i] = messageRow{s.nanos(m.Time), m.Text}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return core.Errorf(core.CodeInternal, "log of operation %s: %w", op, err)
	}
	return s.writer.do(ctx, func(t *tx) error {
		var id string
		found, err := t.row(`SELECT resource_id FROM operations`+held, []any{op, fence}, &id)
		if err != nil {
			return err
		}
		if !found {
			return t.fenced(op, fence)
		}
		if _, err := t.exec(insertMessages, op, string(b)); err != nil {
			return err
		}
		c := store.Change{Kind: store.ChangeMessages, Operation: op}
		err = rows.ParseID(id, &c.ID)
		t.changed(c)
		return err
	})
}

// Cancel implements [store.Queue].
func (s *Store) Cancel(ctx context.Context, c store.Cancel) (core.Operation, error) {
	var o core.Operation
	err := s.writer.do(ctx, func(t *tx) (err error) {
		if o, err = s.cancel(t, c); err != nil {
			return err
		}
		return s.cancelChildren(t, c)
	})
	return o, err
}

// cancelChildren cancels the live operations below one, nearest first.
func (s *Store) cancelChildren(t *tx, c store.Cancel) error {
	for at, family := 0, []string{c.Operation}; at < len(family); at++ {
		var live []string
		if err := t.rows(`SELECT id FROM operations WHERE parent = ? AND ended = 0 ORDER BY row`, []any{family[at]}, func(sc scan) error {
			var id string
			err := sc(&id)
			live = append(live, id)
			return err
		}); err != nil {
			return err
		}
		for _, id := range live {
			if slices.Contains(family, id) {
				continue
			}
			family = append(family, id)
			if _, err := s.markOrCut(t, store.Cancel{Operation: id, Error: c.Error, Now: c.Now}); err != nil {
				return err
			}
		}
	}
	return nil
}

// cancel marks an operation that a worker holds, and ends any other.
func (s *Store) cancel(t *tx, c store.Cancel) (core.Operation, error) {
	o, err := s.markOrCut(t, c)
	if err != nil || o != nil {
		return deref(o), err
	}
	if o, err = t.operation(`SELECT `+rows.OperationColumns+` FROM operations o WHERE o.id = ?`, c.Operation); err != nil {
		return core.Operation{}, err
	}
	return core.Operation{}, rules.NotCancelable(c.Operation, o)
}

// markOrCut is what cancel does to one operation; nil when none of that id is live.
func (s *Store) markOrCut(t *tx, c store.Cancel) (*core.Operation, error) {
	now := s.nanos(c.Now)
	o, err := t.operation(`UPDATE operations SET cancel_requested = CASE cancel_requested WHEN 0 THEN ?1 ELSE cancel_requested END
		WHERE id = ?2 AND ended = 0 AND worker <> '' AND lease_until > ?1 RETURNING `+rows.Bare(rows.OperationColumns, "o"), now, c.Operation)
	if err != nil {
		return nil, err
	}
	if o != nil {
		t.changed(store.Change{Kind: store.ChangeCancel, ID: o.ResourceID, Operation: o.ID, State: o.State})
		return o, nil
	}
	return s.cut(t, c)
}

// cut ends an operation that no worker holds, as Canceled; nil when there is no
// such operation. The fence grows, for a worker whose lease ran out.
func (s *Store) cut(t *tx, c store.Cancel) (*core.Operation, error) {
	fail, err := rows.ToJSON(c.Error, c.Error == nil)
	if err != nil {
		return nil, core.Errorf(core.CodeInternal, "cancel operation %s: %w", c.Operation, err)
	}
	o, err := t.operation(`UPDATE operations SET state = ?, error = ?, ended = ?, worker = '', lease_until = 0, fence = fence + 1, parked = 0, children = 0
		WHERE id = ? AND ended = 0 AND lease_until <= ? RETURNING `+rows.Bare(rows.OperationColumns, "o"),
		string(core.StateCanceled), fail, s.nanos(c.Now), c.Operation, s.nanos(c.Now))
	if err != nil || o == nil {
		return nil, err
	}
	return o, s.ended(t, store.Ending{Operation: o.ID, State: o.State}, o.ResourceID.Key(), o.ResourceID.String(), o.Parent)
}

func deref(o *core.Operation) core.Operation {
	if o == nil {
		return core.Operation{}
	}
	return *o
}

// operation runs a statement that answers rows.OperationColumns of one operation at
// most; nil when it answers none.
func (t *tx) operation(q string, args ...any) (*core.Operation, error) {
	var row rows.Operation
	found, err := t.row(q, args, row.Columns()...)
	if err != nil || !found {
		return nil, err
	}
	o, err := row.Operation()
	return &o, err
}

// Expire implements [store.Queue].
func (s *Store) Expire(ctx context.Context, e store.Expiry) ([]core.Operation, error) {
	var out []core.Operation
	err := s.writer.do(ctx, func(t *tx) error {
		out = nil
		now := s.nanos(e.Now)
		var due []string
		if err := t.rows(`SELECT id FROM operations WHERE ended = 0 AND deadline > 0 AND deadline <= ? AND lease_until <= ? ORDER BY deadline LIMIT ?`,
			[]any{now, now, e.Limit}, func(sc scan) error {
				var id string
				err := sc(&id)
				due = append(due, id)
				return err
			}); err != nil {
			return err
		}
		for _, id := range due {
			o, err := s.cut(t, store.Cancel{Operation: id, Error: e.Error, Now: e.Now})
			if err != nil {
				return err
			}
			if o == nil {
				continue // canceled with another of these
			}
			out = append(out, *o)
			if err := s.cancelChildren(t, store.Cancel{Operation: id, Error: e.Error, Now: e.Now}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Sweep implements [store.History].
func (s *Store) Sweep(ctx context.Context, w store.Sweep) (int, error) {
	var gone int64
	err := s.writer.do(ctx, func(t *tx) error {
		gone = 0
		for _, one := range []struct {
			before int64
			q      string
		}{
			{rows.Column(w.Operations), `DELETE FROM operations WHERE row IN (SELECT row FROM operations WHERE ended > 0 AND ended < ? ORDER BY ended LIMIT ?)`},
			{rows.Column(w.Audit), `DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE time < ? ORDER BY time LIMIT ?)`},
		} {
			if one.before == 0 {
				continue
			}
			n, err := t.exec(one.q, one.before, w.Limit)
			if err != nil {
				return err
			}
			gone += n
		}
		return nil
	})
	return int(gone), err
}

// sealed is the version of the data keyset that a row is to name.
func (t *tx) sealed(r core.Resource) (int64, error) {
	var oldest sql.NullInt64
	var open bool
	if r.Keyset == 0 && !rules.LooksSealed(r) {
		return 0, nil
	}
	if _, err := t.row(`SELECT (SELECT min(version) FROM open_versions), EXISTS (SELECT 1 FROM open_versions WHERE version = ?)`,
		[]any{r.Keyset}, &oldest, &open); err != nil {
		return 0, err
	}
	return rules.SealedWith(r, oldest.Int64, open)
}
