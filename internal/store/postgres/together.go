package postgres

import (
	"strconv"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

// What follows makes many writes in the statements of one: their values go as
// arrays, an array a column. It knows what nearly all writes are, and leaves to
// accept.go and queue.go those that need more locks once they have read
// (errAlone): so a transaction takes all its locks at once, in their order.

// columnsOf are the parameters of an unnest: a table of the given columns, whose
// values are in parameters from the given one on.
func columnsOf(from int, columns ...string) string {
	var list, names []string
	for i, c := range columns {
		name, kind, _ := strings.Cut(c, " ")
		if kind == "" {
			kind = "text"
		}
		names = append(names, name)
		list = append(list, "$"+strconv.Itoa(from+i)+"::"+kind+"[]")
	}
	return `unnest(` + strings.Join(list, ", ") + `) AS n (` + strings.Join(names, ", ") + `)`
}

// accepting is a PUT, or a DELETE that an operation does.
type accepting struct {
	call
	put    *store.Write
	del    *store.Delete
	stored core.Resource
}

func (a *accepting) id() core.ID {
	if a.put != nil {
		return a.put.Resource.ID
	}
	return a.del.ID
}

// currentAll is selectCurrent for many: its parameters are their keys and
// versions of the data keyset, and the keys of which is asked whether they have
// rows, which the first row answers.
var currentAll = `SELECT CASE n WHEN 1 THEN ARRAY(SELECT key FROM resources WHERE key = ANY ($3::text[])) END,
	r.id, r.etag, r.state, r.owner_cluster, r.owner_namespace, r.owner_kind, r.owner_name, r.owner_uid, r.application_key, r.system_data,
	EXISTS (SELECT 1 FROM operations o WHERE o.resource_key = r.key AND o.ended = 0),
	(SELECT min(version) FROM open_versions), EXISTS (SELECT 1 FROM open_versions WHERE version = q.v)
	FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY q (k, v, n) LEFT JOIN resources r ON r.key = q.k ORDER BY n`

// standings reads what stands for each write.
func (t *tx) standings(all []*accepting) ([]rules.Standing, error) {
	keys, versions := make([]string, len(all)), make([]int64, len(all))
	var asked []string
	for i, a := range all {
		keys[i] = a.id().Key()
		if a.put != nil {
			versions[i] = a.put.Resource.Keyset
			asked = append(asked, rules.Asked(*a.put)...)
		}
	}
	out := make([]rules.Standing, 0, len(all))
	var known []string
	t.rows(currentAll, []any{keys, versions, asked}, func(sc scan) error {
		var r standing
		err := sc(append([]any{&known}, r.columns()...)...)
		if err != nil {
			return err
		}
		c, err := r.standing()
		if len(out) > 0 {
			known = out[0].Known
		}
		c.Known = known
		out = append(out, c)
		return err
	})
	return out, t.flush()
}

// acceptAll makes many writes: it locks and reads for all in one step, and
// writes in the next what passes its checks.
func (t *tx) acceptAll(all []*accepting) error {
	var l locks
	for _, a := range all {
		l.accept(a)
	}
	t.do(lockNamesSoon, l.names, l.alone)
	standing, err := t.standings(all)
	if err != nil {
		return err
	}
	var put putting
	var del deleting
	var jobs operations
	for i, a := range all {
		switch c := standing[i]; {
		case a.put != nil:
			a.err = put.add(t, &jobs, a, c)
			if a.err == errAlone && len(all) == 1 { // it is
				a.stored, a.err = t.acceptOn(c, *a.put)
				return a.err
			}
		default:
			if a.err = c.CheckDelete(*a.del); a.err == nil {
				del.add(t, &jobs, a, c)
			}
		}
	}
	put.queue(t)
	del.queue(t)
	return jobs.queue(t)
}

// accept adds what a write locks.
func (l *locks) accept(a *accepting) {
	l.add(ownName, a.id().Key(), true)
	if a.put == nil {
		return
	}
	for _, key := range rules.Asked(*a.put) {
		l.add(membersName, key, false)
	}
	l.add(membersName, a.put.Resource.Application.Key(), false)
	l.add(membersName, a.put.Resource.Environment.Key(), false)
	for _, e := range a.put.Edges {
		l.add(membersName, e.To.Key(), false)
	}
}

// putting gathers rows to be written, and the edges that leave them.
type putting struct {
	text     [][]*string // by column; implicit and keyset apart
	implicit []bool
	keyset   []*int64
	// leaving are the keys of rows that have or had edges.
	leaving []string
	edges   [5][]string
}

// The columns of resources, as [rows.ResourceValues] orders them.
const (
	implicitAt = 20
	keysetAt   = 22
)

var putAll = func() string {
	columns := make([]string, len(resourceNames))
	copy(columns, resourceNames)
	columns[implicitAt] += " boolean"
	columns[keysetAt] += " bigint"
	return `INSERT INTO resources (` + strings.Join(resourceNames, ", ") + `) SELECT * FROM ` + columnsOf(1, columns...) + ` ` + replaceRow
}()

// putEdgesAll makes the edges in $2 to $6 those that leave the rows in $1. No
// two of its parts touch one edge, in whatever order PostgreSQL runs them.
var putEdgesAll = `WITH gone AS (DELETE FROM edges WHERE from_key = ANY ($1::text[]) AND (from_key, to_key, kind, name) NOT IN
		(SELECT from_key, to_key, kind, name FROM ` + columnsOf(2, "from_key", "to_key", "kind", "name") + `))
	INSERT INTO edges (from_key, to_key, kind, name, to_id) SELECT DISTINCT ON (from_key, to_key, kind, name) * FROM ` +
	columnsOf(2, "from_key", "to_key", "kind", "name", "to_id") + ` ON CONFLICT (from_key, to_key, kind, name) DO UPDATE SET to_id = excluded.to_id`

// add checks a write and adds its row.
func (p *putting) add(t *tx, jobs *operations, a *accepting, c rules.Standing) error {
	r, missing, err := c.Compose(*a.put)
	if err != nil {
		return err
	}
	if len(missing) > 0 || c.Moved(r) {
		return errAlone // it locks more
	}
	r.ETag = t.s.etag()
	values, err := rows.ResourceValues(r, store.TypeOf(r.ID))
	if err != nil {
		return err
	}
	if p.text == nil {
		p.text = make([][]*string, len(values))
	}
	for i, v := range values {
		switch v := v.(type) {
		case string:
			p.text[i] = append(p.text[i], &v)
		case bool:
			p.implicit = append(p.implicit, v)
		case int64:
			p.keyset = append(p.keyset, &v)
		default:
			if i == keysetAt {
				p.keyset = append(p.keyset, nil)
			} else {
				p.text[i] = append(p.text[i], nil)
			}
		}
	}
	if c.Exists || len(a.put.Edges) > 0 {
		p.leaving = append(p.leaving, r.ID.Key())
	}
	for _, e := range a.put.Edges {
		for i, v := range []string{r.ID.Key(), e.To.Key(), string(e.Kind), e.Name, e.To.String()} {
			p.edges[i] = append(p.edges[i], v)
		}
	}
	change := store.Change{ID: r.ID, State: r.State}
	if o := a.put.Operation; o != nil {
		change.Operation, change.Work = o.ID, true
		jobs.add(t, r.ID, o)
	}
	t.changed(change)
	a.stored = r
	return nil
}

func (p *putting) queue(t *tx) {
	if len(p.implicit) > 0 {
		args := make([]any, len(p.text))
		for i, column := range p.text {
			args[i] = column
		}
		args[implicitAt], args[keysetAt] = p.implicit, p.keyset
		t.do(putAll, args...)
	}
	if len(p.leaving) > 0 {
		args := []any{p.leaving}
		for _, column := range p.edges {
			args = append(args, column)
		}
		t.do(putEdgesAll, args...)
	}
}

// deleting gathers rows whose deletion an operation does.
type deleting struct {
	calls               []*accepting
	keys, states, etags []string
}

var deletingAll = `UPDATE resources r SET state = n.state, etag = n.etag FROM ` + columnsOf(1, "key", "state", "etag") +
	` WHERE r.key = n.key RETURNING r.key, ` + rows.ResourceColumns

func (d *deleting) add(t *tx, jobs *operations, a *accepting, c rules.Standing) {
	d.calls = append(d.calls, a)
	d.keys, d.states, d.etags = append(d.keys, a.del.ID.Key()), append(d.states, string(a.del.State)), append(d.etags, t.s.etag())
	jobs.add(t, c.ID, a.del.Operation)
	t.changed(store.Change{ID: c.ID, State: a.del.State, Operation: a.del.Operation.ID, Work: true})
}

func (d *deleting) queue(t *tx) {
	if len(d.calls) == 0 {
		return
	}
	t.rows(deletingAll, []any{d.keys, d.states, d.etags}, func(sc scan) error {
		var key string
		var row rows.Resource
		if err := sc(append([]any{&key}, row.Columns()...)...); err != nil {
			return err
		}
		r, err := row.Resource()
		for _, a := range d.calls {
			if a.key == key {
				a.stored = r
			}
		}
		return err
	})
}

// operations gathers the jobs of writes.
type operations struct {
	id, key, resource, verb, version, state, group []string
	parent                                         []*string
	created, deadline                              []int64
	trace                                          []string
}

// tellAll adds the jobs, and the changes of all writes.
var tellAll = `WITH accepted AS (INSERT INTO operations (id, resource_key, resource_id, verb, api_version, state, grp, parent, created, deadline, trace) SELECT * FROM ` +
	columnsOf(2, "id", "resource_key", "resource_id", "verb", "api_version", "state", "grp", "parent", "created bigint", "deadline bigint", "trace") + `) ` + insertChanges

func (o *operations) add(t *tx, id core.ID, j *core.Operation) {
	var parent *string
	if j.Parent != "" {
		parent = &j.Parent
	}
	o.id, o.key, o.resource = append(o.id, j.ID), append(o.key, id.Key()), append(o.resource, id.String())
	o.verb, o.version, o.state = append(o.verb, string(j.Verb)), append(o.version, j.APIVersion), append(o.state, string(j.State))
	o.group, o.parent, o.trace = append(o.group, j.Group), append(o.parent, parent), append(o.trace, j.Trace)
	o.created, o.deadline = append(o.created, t.s.nanos(j.Created)), append(o.deadline, rows.Column(j.Deadline))
}

func (o *operations) queue(t *tx) error {
	if len(o.id) == 0 {
		return nil
	}
	payload, err := t.payload()
	if err != nil {
		return err
	}
	t.told = true
	t.do(tellAll, payload, o.id, o.key, o.resource, o.verb, o.version, o.state, o.group, o.parent, o.created, o.deadline, o.trace)
	return nil
}

// ending is the end of an operation that does not cancel its children.
type ending struct {
	call
	end store.Ending
	// fail and secrets are JSON, keyset as endReplaced takes it.
	fail, properties, status, secrets *string
	keyset                            int64
	etag                              string
}

// ending makes the values of an end's row.
func (s *Store) ending(end store.Ending) (*ending, error) {
	e := &ending{call: call{key: end.Operation}, end: end, etag: s.etag()}
	fail, err := rows.ToJSON(end.Error, end.Error == nil)
	e.fail = optional(fail)
	if r := end.Resource; r != nil && err == nil {
		var secrets any
		kept := rules.WithoutInputs(r.Secrets)
		secrets, err = rows.ToJSON(kept, len(kept) == 0)
		e.secrets, e.properties, e.status = optional(secrets), optional(rows.Text(r.Properties)), optional(rows.Text(r.Status))
		if e.keyset = r.Keyset; e.keyset == 0 && rules.LooksSealed(*r) {
			e.keyset = -1
		}
	}
	return e, err
}

// optional is a value of a column that may be NULL.
func optional(v any) *string {
	if s, ok := v.(string); ok {
		return &s
	}
	return nil
}

// lockOperations takes the resources of operations.
const lockOperations = `SELECT ` + lockTimeout + `, pg_advisory_xact_lock(h)::text FROM (
	SELECT hashtextextended('` + ownName + `' || resource_key, 0) AS h FROM operations WHERE id = ANY ($1::text[]) GROUP BY 1 ORDER BY 1) s`

// endAll ends operations with their resources and tells of it, all in one
// statement. It passes over those that somebody else holds or has ended, that
// another operation waits for, and whose deletion may empty an implicit parent:
// these are looked at one by one. It answers which it has ended.
var endAll = `WITH n AS (SELECT * FROM ` + columnsOf(1, "id", "fence bigint", "state", "error", "ended bigint", "removed boolean", "etag",
	"replaced boolean", "new_properties", "new_status", "new_secrets", "new_keyset bigint") + `),
	o AS (UPDATE operations o SET state = n.state, error = n.error, ended = n.ended, lease_until = 0 FROM n
		WHERE o.id = n.id AND o.fence = n.fence AND o.ended = 0 AND NOT o.parked AND o.parent IS NULL AND NOT (n.removed AND EXISTS (
			SELECT 1 FROM resources r JOIN resources p ON p.key IN (r.application_key, substring(r.key FROM '^(.*)/providers/')) WHERE r.key = o.resource_key AND p.implicit))
		RETURNING o.*, n.removed, n.etag, n.replaced, n.new_properties, n.new_status, n.new_secrets, n.new_keyset),
	gone AS (DELETE FROM resources r USING o WHERE o.removed AND r.key = o.resource_key),
	kept AS (UPDATE resources r SET state = o.state, etag = o.etag,
		properties = CASE WHEN o.replaced THEN new_properties ELSE properties END,
		status = CASE WHEN o.replaced THEN new_status ELSE status END,
		secrets = CASE WHEN o.replaced THEN new_secrets ELSE ` + withoutInputs + ` END,
		keyset = CASE WHEN NOT o.replaced THEN keyset WHEN new_keyset < 0 THEN (SELECT min(version) FROM open_versions) ELSE nullif(new_keyset, 0) END
		FROM o WHERE NOT o.removed AND r.key = o.resource_key),
	told AS (INSERT INTO changes (payload) SELECT json_agg(json_build_object('i', resource_id, 'o', id, 's', state, 'd', removed))::text FROM o HAVING count(*) > 0)
	SELECT ` + rows.OperationColumns + ` FROM o`

// endAll makes many ends. It needs no answer before its commit, so all of it is
// one round trip; only one that comes alone and may need more is waited for, and
// then that is done in the same transaction.
func (t *tx) endAll(all []*ending) error {
	var id, state, etag []string
	var fence, ended, keyset []int64
	var removed, replaced []bool
	columns := [4][]*string{}
	for _, e := range all {
		e.err = errAlone // until one answers
		id, fence, state = append(id, e.end.Operation), append(fence, e.end.Fence), append(state, string(e.end.State))
		ended, removed, etag = append(ended, t.s.nanos(e.end.Now)), append(removed, e.end.Removed), append(etag, e.etag)
		replaced, keyset = append(replaced, e.end.Resource != nil && !e.end.Removed), append(keyset, e.keyset)
		for i, v := range []*string{e.fail, e.properties, e.status, e.secrets} {
			columns[i] = append(columns[i], v)
		}
	}
	t.told = true
	t.do(lockOperations, id)
	t.rows(endAll, []any{id, fence, state, columns[0], ended, removed, etag, replaced, columns[1], columns[2], columns[3], keyset}, func(sc scan) error {
		var row rows.Operation
		if err := sc(row.Columns()...); err != nil {
			return err
		}
		o, err := row.Operation()
		for _, e := range all {
			if e.end.Operation == o.ID && e.end.Fence == o.Fence {
				e.err = nil
				t.changed(store.Change{ID: o.ResourceID, Operation: o.ID, State: o.State, Deleted: e.end.Removed})
				t.ends = append(t.ends, o)
			}
		}
		return err
	})
	if len(all) > 1 || all[0].end.Parentless && !all[0].end.Removed {
		return nil
	}
	if err := t.flush(); err != nil || all[0].err == nil {
		return err
	}
	t.told = false
	all[0].err = t.endOne(all[0])
	return all[0].err
}
