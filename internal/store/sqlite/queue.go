package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

// liveChildren answers the pair (children, parked) of an operation as it must be now.
const liveChildren = `(SELECT count(*), count(*) > 0 FROM operations c WHERE c.parent = operations.id AND c.ended = 0)`

// held is the condition under which a worker may still change an operation: it
// lives, and no newer lease was given. Its parameters: id, fence.
const held = ` WHERE id = ? AND fence = ? AND ended = 0 AND parked = 0`

// lease takes the oldest waiting operation of the next group in turn. Two
// texts, so that each is one step into the index: the first group that has
// work, and the first one after the last served.
var (
	leaseFirst = leaseText(``)
	leaseAfter = leaseText(` AND grp > ?`)
)

func leaseText(after string) string {
	return `UPDATE operations SET worker = ?, fence = fence + 1, lease_until = ?, attempts = attempts + 1,
		started = CASE started WHEN 0 THEN ? ELSE started END
		WHERE row = (SELECT row FROM operations WHERE ended = 0 AND parked = 0 AND lease_until <= ?` + after + `
			ORDER BY grp, created, row LIMIT 1)
		RETURNING resource_key, ` + rows.Bare(rows.OperationColumns, "o")
}

// Lease implements [store.Queue]. Groups come in turn over all calls, not only
// within one: the group served last is remembered, so that a worker that takes
// one operation at a time serves all groups as well (D-47).
func (s *Store) Lease(ctx context.Context, l store.Lease) ([]store.Leased, error) {
	var out []store.Leased
	err := s.writer.do(ctx, func(t *tx) error {
		out = nil
		for len(out) < l.Max {
			one, err := s.leaseNext(t, l)
			if err != nil {
				return err
			}
			if one == nil {
				return nil
			}
			out = append(out, *one)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Store) leaseNext(t *tx, l store.Lease) (*store.Leased, error) {
	now := s.nanos(l.Now)
	args := []any{l.Worker, rows.Column(l.Until), now, now}
	var row rows.Operation
	var key string
	into := append([]any{&key}, row.Columns()...)
	found, err := false, error(nil)
	if s.lastGroup != nil {
		found, err = t.row(leaseAfter, append(args, *s.lastGroup), into...)
	}
	if err == nil && !found {
		found, err = t.row(leaseFirst, args, into...)
	}
	if err != nil || !found {
		return nil, err
	}
	var one store.Leased
	if one.Operation, err = row.Operation(); err != nil {
		return nil, err
	}
	s.lastGroup = &one.Operation.Group
	var resource rows.Resource
	found, err = t.row(selectResource, []any{key}, resource.Columns()...)
	if err != nil {
		return nil, err
	}
	if !found {
		// No transition leaves an operation without its row.
		return nil, core.Errorf(core.CodeInternal, "operation %s has no resource %s", one.Operation.ID, key)
	}
	if one.Resource, err = resource.Resource(); err != nil {
		return nil, err
	}
	err = t.rows(selectOutputs, []any{key}, func(sc scan) error {
		_, o, err := scanOutput(sc)
		one.Outputs = append(one.Outputs, o)
		return err
	})
	return &one, err
}

// Renew implements [store.Queue].
func (s *Store) Renew(ctx context.Context, op string, fence int64, until time.Time) error {
	return s.writer.do(ctx, func(t *tx) error {
		n, err := t.exec(`UPDATE operations SET lease_until = ?`+held+` AND worker <> ''`, rows.Column(until), op, fence)
		if err == nil && n == 0 {
			err = t.fenced(op, fence)
		}
		return err
	})
}

// fenced is the error for a worker that lost its operation.
func (t *tx) fenced(op string, fence int64) error {
	var ended, newest int64
	var parked bool
	found, err := t.row(`SELECT ended, fence, parked FROM operations WHERE id = ?`, []any{op}, &ended, &newest, &parked)
	switch {
	case err != nil:
		return err
	case !found:
		return rules.OperationNotFound(op)
	}
	return rules.Fenced(op, fence, newest, ended != 0)
}

// Progress implements [store.Queue].
func (s *Store) Progress(ctx context.Context, op string, fence int64, state core.State) error {
	return s.writer.do(ctx, func(t *tx) error {
		var key, id string
		found, err := t.row(`UPDATE operations SET state = ?`+held+` RETURNING resource_key, resource_id`, []any{string(state), op, fence}, &key, &id)
		if err != nil {
			return err
		}
		if !found {
			return t.fenced(op, fence)
		}
		if _, err := t.exec(`UPDATE resources SET state = ?, etag = ? WHERE key = ?`, string(state), s.etag(), key); err != nil {
			return err
		}
		return t.changedOperation(id, op, state, false)
	})
}

func (t *tx) changedOperation(id, op string, state core.State, work bool) error {
	c := store.Change{Operation: op, State: state, Work: work}
	err := rows.ParseID(id, &c.ID)
	t.changed(c)
	return err
}

// Park implements [store.Queue]. The fence grows, so that the worker that
// parked cannot go on as if it still held the operation.
func (s *Store) Park(ctx context.Context, op string, fence int64) error {
	return s.writer.do(ctx, func(t *tx) error {
		var id, state string
		var parked bool
		found, err := t.row(`UPDATE operations SET (children, parked) = `+liveChildren+`, worker = '', lease_until = 0, fence = fence + 1, attempts = attempts - 1`+held+
			` RETURNING resource_id, state, parked`, []any{op, fence}, &id, &state, &parked)
		if err != nil {
			return err
		}
		if !found {
			return t.fenced(op, fence)
		}
		return t.changedOperation(id, op, core.State(state), !parked)
	})
}

// outputRow is an output as it goes to putOutputs; dep and handle are JSON
// within JSON.
type outputRow struct {
	Key     string `json:"k"`
	ID      string `json:"i"`
	LocalID string `json:"l"`
	State   string `json:"s"`
	Managed bool   `json:"m"`
	Depends any    `json:"d"`
	Handle  any    `json:"h"`
	Claimed bool   `json:"c"`
}

// putOutputs keeps the place of what is there and appends what is new. What is
// another's claim is not claimed.
const putOutputs = `INSERT INTO outputs (resource_key, key, ordinal, id, local_id, state, managed, depends_on, handle, claimed)
	SELECT ?1, value ->> 'k', (SELECT coalesce(max(ordinal), 0) FROM outputs WHERE resource_key = ?1) + 1 + j.key,
		value ->> 'i', value ->> 'l', value ->> 's', value ->> 'm', value ->> 'd', value ->> 'h',
		value ->> 'c' AND NOT EXISTS (SELECT 1 FROM outputs x WHERE x.key = value ->> 'k' AND x.claimed = 1 AND x.resource_key <> ?1)
	FROM json_each(?2) j WHERE true
	ON CONFLICT (resource_key, key) DO UPDATE SET id = excluded.id, local_id = excluded.local_id, state = excluded.state,
		managed = excluded.managed, depends_on = excluded.depends_on, handle = excluded.handle, claimed = excluded.claimed`

// freeClaims ends the claims of others to what they planned and do not work on.
const freeClaims = `UPDATE outputs SET claimed = 0 WHERE key IN (SELECT value ->> 'k' FROM json_each(?2) WHERE value ->> 'c')
	AND claimed = 1 AND resource_key <> ?1 AND state = '` + string(core.OutputPlanned) + `'
	AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.resource_key = outputs.resource_key AND o.ended = 0)`

func outputRows(put []core.Output) (string, error) {
	list := make([]outputRow, len(put))
	for i, o := range put {
		depends, err := rows.ToJSON(o.DependsOn, len(o.DependsOn) == 0)
		if err != nil {
			return "", core.Errorf(core.CodeInternal, "save output %s: %w", o.ID, err)
		}
		list[i] = outputRow{o.ID.Key(), o.ID.String(), o.LocalID, string(o.State), o.Managed, depends, rows.Text(o.Handle), o.Claimed}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return "", core.Errorf(core.CodeInternal, "save outputs: %w", err)
	}
	return string(b), nil
}

// SaveOutputs implements [store.Queue]: all of it in one commit, in five
// statements however many outputs there are.
func (s *Store) SaveOutputs(ctx context.Context, op string, fence int64, put []core.Output, drop []core.ID) error {
	putJSON, err := outputRows(put)
	if err != nil {
		return err
	}
	keys := make([]string, len(drop))
	for i, id := range drop {
		keys[i] = id.Key()
	}
	dropJSON, err := json.Marshal(keys)
	if err != nil {
		return core.Errorf(core.CodeInternal, "save outputs of operation %s: %w", op, err)
	}
	return s.writer.do(ctx, func(t *tx) error {
		var key, id, state string
		found, err := t.row(`SELECT resource_key, resource_id, state FROM operations`+held, []any{op, fence}, &key, &id, &state)
		if err != nil {
			return err
		}
		if !found {
			return t.fenced(op, fence)
		}
		if len(keys) > 0 {
			if _, err := t.exec(`DELETE FROM outputs WHERE resource_key = ? AND key IN (SELECT value FROM json_each(?))`, key, string(dropJSON)); err != nil {
				return err
			}
		}
		if slices.ContainsFunc(put, func(o core.Output) bool { return o.Claimed }) {
			if _, err := t.exec(freeClaims, key, putJSON); err != nil {
				return err
			}
		}
		if len(put) > 0 {
			if _, err := t.exec(putOutputs, key, putJSON); err != nil {
				return err
			}
		}
		return t.changedOperation(id, op, core.State(state), false)
	})
}

// End implements [store.Queue].
func (s *Store) End(ctx context.Context, e store.Ending) error {
	return s.writer.do(ctx, func(t *tx) error { return s.end(t, e) })
}

func (s *Store) end(t *tx, e store.Ending) error {
	fail, err := rows.ToJSON(e.Error, e.Error == nil)
	if err != nil {
		return core.Errorf(core.CodeInternal, "end operation %s: %w", e.Operation, err)
	}
	var key, id string
	var parent sql.NullString
	found, err := t.row(`UPDATE operations SET state = ?, error = ?, ended = ?, lease_until = 0`+held+` RETURNING resource_key, resource_id, parent`,
		[]any{string(e.State), fail, s.nanos(e.Now), e.Operation, e.Fence}, &key, &id, &parent)
	if err != nil {
		return err
	}
	if !found {
		return t.fenced(e.Operation, e.Fence)
	}
	if err := s.ended(t, e, key, id, parent.String); err != nil || e.State != core.StateCanceled {
		return err
	}
	return s.cancelChildren(t, store.Cancel{Operation: e.Operation, Error: e.Error, Now: e.Now})
}

// ended brings what hangs on an operation that has just ended to its end: its
// resource, and the operation that waits for it.
func (s *Store) ended(t *tx, e store.Ending, key, id, parent string) error {
	change := store.Change{Operation: e.Operation, State: e.State, Deleted: e.Removed}
	if err := rows.ParseID(id, &change.ID); err != nil {
		return err
	}
	t.changed(change)
	if err := s.endResource(t, key, change.ID, e); err != nil {
		return err
	}
	if parent == "" {
		return nil
	}
	var parentID, state string
	var parked bool
	found, err := t.row(`UPDATE operations SET (children, parked) = `+liveChildren+` WHERE id = ? AND ended = 0 AND parked = 1 RETURNING resource_id, state, parked`,
		[]any{parent}, &parentID, &state, &parked)
	if err != nil || !found || parked {
		return err
	}
	return t.changedOperation(parentID, parent, core.State(state), true)
}

// endResource brings the row to where the operation ended.
func (s *Store) endResource(t *tx, key string, id core.ID, e store.Ending) error {
	switch {
	case e.Removed:
		var application sql.NullString
		if _, err := t.row(`DELETE FROM resources WHERE key = ? RETURNING application_key`, []any{key}, &application); err != nil {
			return err
		}
		return t.removeEmptyParents(id, application.String, false)
	case e.Resource != nil:
		kept := rules.WithoutInputs(e.Resource.Secrets)
		secrets, err := rows.ToJSON(kept, len(kept) == 0)
		if err != nil {
			return core.Errorf(core.CodeInternal, "end operation %s: %w", e.Operation, err)
		}
		keyset, err := t.sealed(*e.Resource)
		if err != nil {
			return err
		}
		_, err = t.exec(`UPDATE resources SET state = ?, etag = ?, properties = ?, status = ?, secrets = ?, keyset = ? WHERE key = ?`,
			string(e.State), s.etag(), rows.Text(e.Resource.Properties), rows.Text(e.Resource.Status), secrets, rows.Version(keyset), key)
		return err
	default:
		_, err := t.exec(`UPDATE resources SET state = ?, etag = ?, secrets = nullif(json_remove(secrets, '$."`+store.InputsSecret+`"'), '{}') WHERE key = ?`, string(e.State), s.etag(), key)
		return err
	}
}

// Pending implements [store.Queue].
func (s *Store) Pending(ctx context.Context) (int, time.Time, error) {
	var n int
	var next sql.NullInt64
	err := s.readRow(ctx, `SELECT (SELECT count(*) FROM operations WHERE ended = 0),
		(SELECT min(lease_until) FROM operations WHERE ended = 0 AND lease_until > 0)`, nil, &n, &next)
	return n, rows.Moment(next.Int64), err
}
