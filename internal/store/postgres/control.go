package postgres

import (
	"context"
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
	SELECT $1, (SELECT coalesce(max(seq), 0) FROM messages WHERE operation = $1) + j.n, j.t, j.x
	FROM ROWS FROM (json_to_recordset($2::json) AS (t bigint, x text)) WITH ORDINALITY AS j (t, x, n)`

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
	return s.write(ctx, func(t *tx) error {
		_, id, _, err := t.hold(op, fence)
		if err != nil {
			return err
		}
		t.exec(nil, insertMessages, op, string(b))
		c := store.Change{Kind: store.ChangeMessages, Operation: op}
		err = rows.ParseID(id, &c.ID)
		t.changed(c)
		return err
	})
}

var (
	markCanceled = `UPDATE operations SET cancel_requested = CASE cancel_requested WHEN 0 THEN $2 ELSE cancel_requested END
		WHERE id = $1 AND ended = 0 AND worker <> '' AND lease_until > $2 RETURNING ` + rows.Bare(rows.OperationColumns, "o")
	// cutOperation ends an operation that no worker holds. The fence grows, for
	// a worker whose lease ran out.
	cutOperation = `WITH o AS (UPDATE operations SET state = $2, error = $3, ended = $4, worker = '', lease_until = 0, fence = fence + 1, parked = false, children = 0
			WHERE id = $1 AND ended = 0 AND lease_until <= $4 RETURNING resource_key, resource_id, parent),
		r AS (UPDATE resources SET state = $2, etag = $5, secrets = ` + withoutInputs + ` FROM o WHERE key = o.resource_key)
		SELECT resource_id, parent, NULL::text, NULL::text[] FROM o`
	selectOperation = `SELECT ` + rows.OperationColumns + ` FROM operations o WHERE o.id = $1`
)

// Cancel implements [store.Queue].
func (s *Store) Cancel(ctx context.Context, c store.Cancel) (core.Operation, error) {
	var out core.Operation
	err := s.write(ctx, func(t *tx) error {
		t.do(lockFamily, c.Operation)
		o, canceled, err := t.cancel(c)
		if err != nil {
			return err
		}
		if !canceled {
			return rules.NotCancelable(c.Operation, o)
		}
		out = *o
		return t.cancelChildren(c)
	})
	return out, err
}

// cancel marks an operation that a worker holds, and ends any other. It answers
// the operation as it is then, nil when it is unknown; canceled is false for one
// that is unknown or has ended.
func (t *tx) cancel(c store.Cancel) (o *core.Operation, canceled bool, err error) {
	for {
		var marked rows.Operation
		var found bool
		t.row(markCanceled, []any{c.Operation, t.s.nanos(c.Now)}, &found, marked.Columns()...)
		if err := t.flush(); err != nil {
			return nil, false, err
		}
		if found {
			o, err := marked.Operation()
			t.changed(store.Change{Kind: store.ChangeCancel, ID: o.ResourceID, Operation: o.ID, State: o.State})
			return &o, true, err
		}
		cut, err := t.cut(c)
		if err != nil {
			return nil, false, err
		}
		o, err := t.operation(c.Operation)
		if err != nil || cut || o == nil || !o.Ended.IsZero() {
			return o, cut, err
		}
		// Leased between the two: now there is a worker to tell.
	}
}

// cancelChildren cancels the live operations below one, nearest first.
func (t *tx) cancelChildren(c store.Cancel) error {
	for at, family := 0, []string{c.Operation}; at < len(family); at++ {
		var live []string
		t.rows(`SELECT id FROM operations WHERE parent = $1 AND ended = 0 ORDER BY seq`, []any{family[at]}, func(sc scan) error {
			var id string
			err := sc(&id)
			live = append(live, id)
			return err
		})
		if err := t.flush(); err != nil {
			return err
		}
		for _, id := range live {
			if slices.Contains(family, id) {
				continue
			}
			family = append(family, id)
			if _, _, err := t.cancel(store.Cancel{Operation: id, Error: c.Error, Now: c.Now}); err != nil {
				return err
			}
		}
	}
	return nil
}

// cut ends an operation that no worker holds, as Canceled.
func (t *tx) cut(c store.Cancel) (bool, error) {
	fail, err := rows.ToJSON(c.Error, c.Error == nil)
	if err != nil {
		return false, core.Errorf(core.CodeInternal, "cancel operation %s: %w", c.Operation, err)
	}
	return t.endWith(store.Ending{Operation: c.Operation, State: core.StateCanceled}, cutOperation,
		[]any{c.Operation, string(core.StateCanceled), fail, t.s.nanos(c.Now), t.s.etag()})
}

// operation reads one operation; nil when it is unknown.
func (t *tx) operation(id string) (*core.Operation, error) {
	var row rows.Operation
	var found bool
	t.row(selectOperation, []any{id}, &found, row.Columns()...)
	if err := t.flush(); err != nil || !found {
		return nil, err
	}
	o, err := row.Operation()
	return &o, err
}

// Expire implements [store.Queue]: each operation in a transaction of its own,
// so that none waits for another's locks.
func (s *Store) Expire(ctx context.Context, e store.Expiry) ([]core.Operation, error) {
	var due []string
	now := s.nanos(e.Now)
	err := s.read(ctx, `SELECT id FROM operations WHERE ended = 0 AND deadline > 0 AND deadline <= $1 AND lease_until <= $1 ORDER BY deadline LIMIT $2`,
		[]any{now, e.Limit}, func(sc scan) error {
			var id string
			err := sc(&id)
			due = append(due, id)
			return err
		})
	if err != nil {
		return nil, err
	}
	var out []core.Operation
	for _, id := range due {
		var ended *core.Operation
		err := s.write(ctx, func(t *tx) error {
			ended = nil
			t.do(lockFamily, id)
			c := store.Cancel{Operation: id, Error: e.Error, Now: e.Now}
			cut, err := t.cut(c)
			if err == nil && cut {
				if ended, err = t.operation(id); err == nil {
					err = t.cancelChildren(c)
				}
			}
			return err
		})
		if err != nil {
			return out, err
		}
		if ended != nil { // else it ended, or was leased, meanwhile
			out = append(out, *ended)
		}
	}
	return out, nil
}

// Sweep implements [store.History].
func (s *Store) Sweep(ctx context.Context, w store.Sweep) (int, error) {
	var operations, audit int64
	err := s.write(ctx, func(t *tx) error {
		operations, audit = 0, 0
		if !w.Operations.IsZero() {
			t.exec(&operations, `DELETE FROM operations WHERE seq IN (
				SELECT seq FROM operations WHERE ended > 0 AND ended < $1 ORDER BY ended LIMIT $2 FOR UPDATE SKIP LOCKED)`, rows.Column(w.Operations), w.Limit)
		}
		if !w.Audit.IsZero() {
			t.exec(&audit, `DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE time < $1 ORDER BY time, seq LIMIT $2 FOR UPDATE SKIP LOCKED)`, rows.Column(w.Audit), w.Limit)
		}
		return t.flush()
	})
	s.recent.forget()
	return int(operations + audit), err
}
