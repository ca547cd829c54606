package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

const (
	// held is the condition under which a worker may still change an
	// operation: it lives, and no newer lease was given.
	held = ` WHERE id = $1 AND fence = $2 AND ended = 0 AND NOT parked`
	// liveChildren answers (children, parked) of an operation as it must be now.
	liveChildren = `(children, parked) = (SELECT count(*), count(*) > 0 FROM operations c WHERE c.parent = operations.id AND c.ended = 0)`
)

// waitingGroup answers the first group with waiting operations that the
// condition lets pass: one step into the index.
func waitingGroup(condition string) string {
	return `(SELECT w.grp FROM operations w WHERE w.ended = 0 AND NOT w.parked AND w.lease_until <= $1` + condition + ` ORDER BY w.grp LIMIT 1)`
}

// leaseText leases up to $4 operations: it walks from group to group, first
// those after $5 and then the others, gives each its share, and takes exactly as
// many rows as it leases, so that another worker that skips what is locked here
// loses nothing. Row by row it answers operation, resource and inventory, the
// group's turn and how many groups were served.
var leaseText = `WITH RECURSIVE later AS (
		` + waitingGroup(` AND w.grp > $5`) + `
		UNION ALL SELECT ` + waitingGroup(` AND w.grp > g.grp`) + ` FROM later g WHERE g.grp IS NOT NULL),
	sooner AS (
		` + waitingGroup(` AND w.grp <= $5`) + `
		UNION ALL SELECT ` + waitingGroup(` AND w.grp > g.grp AND w.grp <= $5`) + ` FROM sooner g WHERE g.grp IS NOT NULL),
	turn AS (SELECT grp, row_number() OVER () AS n, count(*) OVER () AS groups FROM (
		SELECT grp FROM later WHERE grp IS NOT NULL UNION ALL SELECT grp FROM sooner WHERE grp IS NOT NULL LIMIT $4) served),
	picked AS MATERIALIZED (SELECT t.n, t.groups, p.seq FROM turn t CROSS JOIN LATERAL (
		SELECT w.seq FROM operations w WHERE w.grp = t.grp AND w.ended = 0 AND NOT w.parked AND w.lease_until <= $1
		ORDER BY w.created, w.seq LIMIT ($4 - t.n) / t.groups + 1 FOR UPDATE SKIP LOCKED) p),
	leased AS (UPDATE operations o SET worker = $2, fence = fence + 1, lease_until = $3, attempts = attempts + 1,
		started = CASE started WHEN 0 THEN $1 ELSE started END FROM picked WHERE o.seq = picked.seq RETURNING picked.n, picked.groups, o.*)
	SELECT ` + rows.OperationColumns + `, ` + rows.ResourceColumns + `, ` + outputsOf + `, o.n, o.groups
	FROM leased o JOIN resources r ON r.key = o.resource_key ORDER BY o.n, o.created, o.seq`

// outputsOf aggregates the inventory of r as [rules.ParseOutputs] takes it.
const outputsOf = `(SELECT coalesce(json_agg(json_build_array(u.id, u.local_id, u.state, u.managed, u.depends_on, u.handle, u.claimed) ORDER BY u.ordinal), '[]')::text
	FROM outputs u WHERE u.resource_key = r.key)`

// Lease implements [store.Queue]. Groups come in turn over all calls of this
// process: the group served last is remembered, so that a worker that takes one
// operation at a time serves all groups as well (D-47). Each statement is a
// transaction of its own, and what it leased is answered even if a later one
// fails. One statement is enough unless a group has more than its share while
// another had less.
func (s *Store) Lease(ctx context.Context, l store.Lease) ([]store.Leased, error) {
	var out []store.Leased
	for len(out) < l.Max {
		got, all, err := s.leaseSome(ctx, l, l.Max-len(out))
		if err != nil && len(out) == 0 {
			return nil, err
		}
		out = append(out, got...)
		if err != nil || all {
			break
		}
	}
	return out, nil
}

// leaseSome leases up to most operations; all says that no group has more.
func (s *Store) leaseSome(ctx context.Context, l store.Lease, most int) (out []store.Leased, all bool, err error) {
	s.turn.Lock()
	last := s.turn.group
	s.turn.Unlock()
	var groups int64
	given := map[int64]int64{} // by the group's turn
	forget := func() {
		out, groups = nil, 0
		clear(given)
	}
	args := []any{s.nanos(l.Now), l.Worker, rows.Column(l.Until), most, last}
	err = s.single(ctx, leaseText, args, forget, func(sc scan) error {
		var operation rows.Operation
		var resource rows.Resource
		var outputs string
		var turn int64
		if err := sc(append(append(operation.Columns(), resource.Columns()...), &outputs, &turn, &groups)...); err != nil {
			return err
		}
		var l store.Leased
		var err1, err2, err3 error
		l.Operation, err1 = operation.Operation()
		l.Resource, err2 = resource.Resource()
		l.Outputs, err3 = rules.ParseOutputs(outputs)
		out = append(out, l)
		given[turn]++
		return rows.First(err1, err2, err3)
	})
	if err != nil || len(out) == 0 {
		return nil, true, err
	}
	s.turn.Lock()
	s.turn.group = out[len(out)-1].Operation.Group
	s.turn.Unlock()
	all = groups < int64(most)
	for turn, n := range given {
		all = all && n < (int64(most)-turn)/groups+1
	}
	return out, all, nil
}

// single runs one statement that is a transaction of its own and tells nobody.
// start is called before each attempt, to forget what one that failed answered.
func (s *Store) single(ctx context.Context, q string, args []any, start func(), each func(scan) error) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.calls.Done()
	if s.trace != nil {
		s.trace(q)
	}
	for conflicts, dead := 0, 0; ; {
		start()
		conn, err := s.pool.Acquire(ctx)
		if err == nil {
			// Not interrupted half way: what it has done is to be known.
			work, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
			var rows pgx.Rows
			if rows, err = conn.Query(work, q, args...); err == nil {
				err = eachRow(rows, each)
			}
			cancel()
			conn.Release()
		}
		switch {
		case again(err) && conflicts < maxConflicts:
			conflicts++
		case err != nil && lost(err) && dead < maxLost && ctx.Err() == nil:
			// Should it have taken effect all the same, nobody holds what it
			// leased, and that is waited out as after a killed worker.
			dead++
		default:
			return s.fault("written", err)
		}
	}
}

// Renew implements [store.Queue].
func (s *Store) Renew(ctx context.Context, op string, fence int64, until time.Time) error {
	found := false
	err := s.single(ctx, `UPDATE operations SET lease_until = $3`+held+` AND worker <> '' RETURNING 1`, []any{op, fence, rows.Column(until)}, func() { found = false }, func(sc scan) error {
		found = true
		var one int
		return sc(&one)
	})
	if err == nil && !found {
		err = s.fenced(ctx, op, fence)
	}
	return err
}

// selectFence answers how an operation stands, for who lost it.
const selectFence = `SELECT ended > 0, fence FROM operations WHERE id = $1`

func (s *Store) fenced(ctx context.Context, op string, fence int64) error {
	var ended bool
	var newest int64
	found, err := s.readRow(ctx, selectFence, []any{op}, &ended, &newest)
	if err != nil {
		return err
	}
	if !found {
		return rules.OperationNotFound(op)
	}
	return rules.Fenced(op, fence, newest, ended)
}

func (t *tx) fenced(op string, fence int64) error {
	var found, ended bool
	var newest int64
	t.row(selectFence, []any{op}, &found, &ended, &newest)
	if err := t.flush(); err != nil {
		return err
	}
	if !found {
		return rules.OperationNotFound(op)
	}
	return rules.Fenced(op, fence, newest, ended)
}

func (t *tx) changedOperation(id, op string, state core.State, work bool) error {
	c := store.Change{Operation: op, State: state, Work: work}
	err := rows.ParseID(id, &c.ID)
	t.changed(c)
	return err
}

// Progress implements [store.Queue].
func (s *Store) Progress(ctx context.Context, op string, fence int64, state core.State) error {
	return s.write(ctx, func(t *tx) error {
		var found bool
		var id string
		t.do(lockOperation, op)
		t.row(`WITH o AS (UPDATE operations SET state = $3`+held+` RETURNING resource_key, resource_id),
			r AS (UPDATE resources SET state = $3, etag = $4 FROM o WHERE key = o.resource_key) SELECT resource_id FROM o`,
			[]any{op, fence, string(state), s.etag()}, &found, &id)
		if err := t.flush(); err != nil {
			return err
		}
		if !found {
			return t.fenced(op, fence)
		}
		return t.changedOperation(id, op, state, false)
	})
}

// Park implements [store.Queue]. The fence grows, so that the worker that
// parked cannot go on as if it still held the operation.
func (s *Store) Park(ctx context.Context, op string, fence int64) error {
	return s.write(ctx, func(t *tx) error {
		var found, parked bool
		var id, state string
		t.do(lockParking, op)
		t.row(`UPDATE operations SET `+liveChildren+`, worker = '', lease_until = 0, fence = fence + 1, attempts = attempts - 1`+held+` RETURNING resource_id, state, parked`,
			[]any{op, fence}, &found, &id, &state, &parked)
		if err := t.flush(); err != nil {
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
	SELECT $1, j.k, (SELECT coalesce(max(ordinal), 0) FROM outputs WHERE resource_key = $1) + j.n, j.i, j.l, j.s, j.m, j.d, j.h,
		j.c AND NOT EXISTS (SELECT 1 FROM outputs x WHERE x.key = j.k AND x.claimed AND x.resource_key <> $1)
	FROM ROWS FROM (json_to_recordset($2::json) AS (k text, i text, l text, s text, m boolean, d text, h text, c boolean)) WITH ORDINALITY AS j (k, i, l, s, m, d, h, c, n)
	ON CONFLICT (resource_key, key) DO UPDATE SET id = excluded.id, local_id = excluded.local_id, state = excluded.state,
		managed = excluded.managed, depends_on = excluded.depends_on, handle = excluded.handle, claimed = excluded.claimed`

// lockClaimants keeps operations from beginning on the resources whose claims
// freeClaims ends: those to what they planned and do not work on.
const (
	lockClaimants = `SELECT 1 FROM resources WHERE key IN (SELECT resource_key FROM outputs WHERE key = ANY ($1::text[]) AND claimed AND resource_key <> $2
		AND state = '` + string(core.OutputPlanned) + `') ORDER BY key FOR UPDATE`
	freeClaims = `UPDATE outputs SET claimed = false WHERE key = ANY ($1::text[]) AND claimed AND resource_key <> $2
		AND state = '` + string(core.OutputPlanned) + `'
		AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.resource_key = outputs.resource_key AND o.ended = 0)`
)

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

// hold locks an operation that a worker must hold, and answers its resource.
func (t *tx) hold(op string, fence int64) (key, id, state string, err error) {
	var found bool
	t.do(lockOperation, op)
	t.row(`SELECT resource_key, resource_id, state FROM operations`+held+` FOR UPDATE`, []any{op, fence}, &found, &key, &id, &state)
	if err = t.flush(); err == nil && !found {
		err = t.fenced(op, fence)
	}
	return key, id, state, err
}

// SaveOutputs implements [store.Queue]: all of it in one commit, in eight
// statements however many outputs there are.
func (s *Store) SaveOutputs(ctx context.Context, op string, fence int64, put []core.Output, drop []core.ID) error {
	rows, err := outputRows(put)
	if err != nil {
		return err
	}
	keys := make([]string, len(drop))
	for i, id := range drop {
		keys[i] = id.Key()
	}
	var claims []string
	for _, o := range put {
		if o.Claimed {
			claims = append(claims, o.ID.Key())
		}
	}
	return s.write(ctx, func(t *tx) error {
		key, id, state, err := t.hold(op, fence)
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			t.exec(nil, `DELETE FROM outputs WHERE resource_key = $1 AND key = ANY ($2::text[])`, key, keys)
		}
		if len(claims) > 0 {
			t.exec(nil, lockClaims, claims)
			t.exec(nil, lockClaimants, claims, key)
			t.exec(nil, freeClaims, claims, key)
		}
		if len(put) > 0 {
			t.exec(nil, putOutputs, key, rows)
		}
		return t.changedOperation(id, op, core.State(state), false)
	})
}

// endOperation is the first part of an end: its parameters are those of held,
// state, error and time.
const endOperation = `WITH o AS (UPDATE operations SET state = $3, error = $4, ended = $5, lease_until = 0` + held + ` RETURNING resource_key, resource_id, parent)`

var (
	endRemoved = endOperation + `, r AS (DELETE FROM resources USING o WHERE resources.key = o.resource_key RETURNING resources.application_key,
		ARRAY(SELECT p.key FROM resources p WHERE p.implicit AND p.key IN (resources.application_key, substring(o.resource_key FROM '^(.*)/providers/'))) AS parents)
		SELECT o.resource_id, o.parent, r.application_key, r.parents FROM o LEFT JOIN r ON true`
	endKept = endOperation + `, r AS (UPDATE resources SET state = $3, etag = $6, secrets = ` + withoutInputs + ` FROM o WHERE key = o.resource_key)
		SELECT resource_id, parent, NULL::text, NULL::text[] FROM o`
	endReplaced = endOperation + `, r AS (UPDATE resources SET state = $3, etag = $6, properties = $7, status = $8, secrets = $9,
		keyset = CASE WHEN $10::bigint < 0 THEN (SELECT min(version) FROM open_versions) ELSE nullif($10::bigint, 0) END FROM o WHERE key = o.resource_key)
		SELECT resource_id, parent, NULL::text, NULL::text[] FROM o`
)

// withoutInputs takes [store.InputsSecret] out of a row's secrets. The text keeps
// its form, which the search for sealed values goes by; no sealed value holds a
// brace or a comma.
const withoutInputs = `nullif(replace(regexp_replace(secrets, '"\` + store.InputsSecret + `":\{[^}]*\},?', ''), ',}', '}'), '{}')`

// End implements [store.Queue].
func (s *Store) End(ctx context.Context, e store.Ending) error {
	one, err := s.ending(e)
	if err != nil {
		return core.Errorf(core.CodeInternal, "end operation %s: %w", e.Operation, err)
	}
	err = errAlone
	if e.State != core.StateCanceled { // with its children
		err = s.ends.do(ctx, one)
	}
	if errors.Is(err, errAlone) {
		err = s.write(ctx, func(t *tx) error { return t.endAlone(one) })
	}
	if keysetGone(err) {
		var id core.ID
		if o, readErr := s.Operation(ctx, e.Operation); readErr == nil {
			id = o.ResourceID
		}
		err = rules.KeysetGone(id, e.Resource.Keyset)
	}
	return err
}

// endAlone locks for one end, and makes it.
func (t *tx) endAlone(e *ending) error {
	if e.end.State != core.StateCanceled {
		t.do(lockOperation, e.end.Operation)
		return t.endOne(e)
	}
	t.do(lockFamily, e.end.Operation)
	if err := t.endOne(e); err != nil {
		return err
	}
	return t.cancelChildren(store.Cancel{Operation: e.end.Operation, Error: e.end.Error, Now: e.end.Now})
}

// endOne makes one end under its locks.
func (t *tx) endOne(e *ending) error {
	q, args := endKept, []any{e.end.Operation, e.end.Fence, string(e.end.State), e.fail, t.s.nanos(e.end.Now)}
	switch {
	case e.end.Removed:
		q = endRemoved
	case e.end.Resource != nil:
		q, args = endReplaced, append(args, e.etag, e.properties, e.status, e.secrets, e.keyset)
	default:
		args = append(args, e.etag)
	}
	found, err := t.endWith(e.end, q, args)
	if err == nil && !found {
		err = t.fenced(e.end.Operation, e.end.Fence)
	}
	return err
}

// endWith runs one of the statements that end an operation and its resource,
// and brings what hangs on them to its end: implicit parents, and the operation
// that waits for it.
func (t *tx) endWith(e store.Ending, q string, args []any) (found bool, err error) {
	var id string
	var parent, application sql.NullString
	var parents []string
	t.row(q, args, &found, &id, &parent, &application, &parents)
	if err := t.flush(); err != nil || !found {
		return found, err
	}
	change := store.Change{Operation: e.Operation, State: e.State, Deleted: e.Removed}
	if err := rows.ParseID(id, &change.ID); err != nil {
		return true, err
	}
	t.changed(change)
	// The locks of both in one statement: in its order nobody waits in a circle.
	var l locks
	l.add(childrenName, parent.String, true)
	if len(parents) > 0 {
		return true, t.removeEmptyParents(change.ID, application.String, parents, l, parent.String)
	}
	if parent.String == "" {
		return true, nil
	}
	t.lock(l)
	t.rows(wake+` WHERE id = $1`+waits, []any{parent.String}, func(sc scan) error {
		var state string
		var parked bool
		if err := sc(&id, &state, &parked); err != nil {
			return err
		}
		return t.woken(parent.String, id, state, parked)
	})
	return true, t.flush()
}

const (
	// wake looks again at an operation that waits for its children, see waits.
	wake  = `UPDATE operations SET ` + liveChildren
	waits = ` AND ended = 0 AND parked RETURNING resource_id, state, parked`
)

// woken tells of an operation that waited for its children, if it no longer does.
func (t *tx) woken(op, id, state string, parked bool) error {
	if parked {
		return nil
	}
	return t.changedOperation(id, op, core.State(state), true)
}

// Pending implements [store.Queue].
func (s *Store) Pending(ctx context.Context) (int, time.Time, error) {
	var n int
	var next sql.NullInt64
	_, err := s.readRow(ctx, `SELECT count(*), min(lease_until) FILTER (WHERE lease_until > 0) FROM operations WHERE ended = 0`, nil, &n, &next)
	return n, rows.Moment(next.Int64), err
}
