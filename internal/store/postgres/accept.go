package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

// selectCurrent answers one row always. Its parameters: an array of keys, a
// version of the data keyset, and the key of the resource.
var selectCurrent = currentText(``)

// currentText is selectCurrent with a further column.
func currentText(more string) string {
	return `SELECT ARRAY(SELECT key FROM resources WHERE key = ANY ($1::text[])),
	r.id, r.etag, r.state, r.owner_cluster, r.owner_namespace, r.owner_kind, r.owner_name, r.owner_uid, r.application_key, r.system_data,
	EXISTS (SELECT 1 FROM operations o WHERE o.resource_key = r.key AND o.ended = 0),
	(SELECT min(version) FROM open_versions), EXISTS (SELECT 1 FROM open_versions WHERE version = $2)` + more + `
	FROM (SELECT 1) one LEFT JOIN resources r ON r.key = $3`
}

// current reads the row of id, which of the keys have rows, and whether a
// version of the data keyset is in use. It sends what was queued before.
func (t *tx) current(id core.ID, keys []string, keyset int64) (rules.Standing, error) {
	return t.currentAnd(selectCurrent, []any{keys, keyset, id.Key()})
}

// currentAnd runs a text of currentText; what its further columns answer goes to
// more.
func (t *tx) currentAnd(q string, args []any, more ...any) (rules.Standing, error) {
	var r standing
	var known []string
	var found bool
	t.row(q, args, &found, append(append([]any{&known}, r.columns()...), more...)...)
	if err := t.flush(); err != nil {
		return r.c, err
	}
	c, err := r.standing()
	c.Known = known
	return c, err
}

// standing takes a row of what stands.
type standing struct {
	c                                                                          rules.Standing
	stored, etag, state, cluster, namespace, kind, name, uid, application, sys sql.NullString
	oldest                                                                     sql.NullInt64
}

// columns are the places to scan it into, all but the known keys.
func (r *standing) columns() []any {
	return []any{&r.stored, &r.etag, &r.state, &r.cluster, &r.namespace, &r.kind, &r.name, &r.uid, &r.application, &r.sys, &r.c.Live, &r.oldest, &r.c.Open}
}

func (r *standing) standing() (rules.Standing, error) {
	c := r.c
	c.Exists, c.ETag, c.State, c.Application, c.Oldest = r.stored.Valid, r.etag.String, core.State(r.state.String), r.application.String, r.oldest.Int64
	c.Owner = core.Owner{Cluster: r.cluster.String, Namespace: r.namespace.String, Kind: r.kind.String, Name: r.name.String, UID: r.uid.String}
	return c, rows.First(rows.ParseID(r.stored.String, &c.ID), rows.FromJSON(r.sys, &c.System))
}

// Accept implements [store.Writer].
func (s *Store) Accept(ctx context.Context, w store.Write) (core.Resource, error) {
	a := &accepting{call: call{key: w.Resource.ID.Key()}, put: &w}
	if err := s.accepts.do(ctx, a); !errors.Is(err, errAlone) {
		return a.stored, err
	}
	var stored core.Resource
	err := s.write(ctx, func(t *tx) (err error) {
		stored, err = t.accept(w)
		return err
	})
	if keysetGone(err) {
		err = rules.KeysetGone(w.Resource.ID, w.Resource.Keyset)
	}
	return stored, err
}

// keysetGone reports whether a row named a version of the data keyset that was
// disabled between its checks and its write.
func keysetGone(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.ConstraintName == "resources_keyset_fkey"
}

func (t *tx) accept(w store.Write) (core.Resource, error) {
	var l locks
	l.accept(&accepting{put: &w})
	t.lock(l)
	c, err := t.current(w.Resource.ID, rules.Asked(w), w.Resource.Keyset)
	if err != nil {
		return core.Resource{}, err
	}
	return t.acceptOn(c, w)
}

// acceptOn goes on from what stands.
func (t *tx) acceptOn(c rules.Standing, w store.Write) (core.Resource, error) {
	r, missing, err := c.Compose(w)
	if err != nil {
		return r, err
	}
	for i := range missing {
		p := &missing[i]
		p.ETag, p.Implicit = t.s.etag(), true
		t.changed(store.Change{ID: p.ID, State: p.State})
	}
	r.ETag = t.s.etag()
	change := store.Change{ID: r.ID, State: r.State}
	if w.Operation != nil {
		change.Operation, change.Work = w.Operation.ID, true
	}
	t.changed(change)
	if c.Moved(r) {
		if err := t.removeEmptyParents(r.ID, c.Application, parentKeys(r.ID, c.Application), locks{}, ""); err != nil {
			return r, err
		}
	}
	return r, t.put(r, c.Exists, missing, w)
}

// putRow puts a row and its operation, whose id is $24 (NULL for none).
var putRow = `written AS (
		INSERT INTO resources (key, id, type, api_version, location, tags, properties, status, secrets, state, etag,
			application, application_key, environment, environment_key,
			owner_cluster, owner_namespace, owner_kind, owner_name, owner_uid, implicit, system_data, keyset)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)
		` + replaceRow + `)`

// replaceRow replaces a row that is there, all but its identity.
const replaceRow = `ON CONFLICT (key) DO UPDATE SET api_version = excluded.api_version, location = excluded.location, tags = excluded.tags,
			properties = excluded.properties, status = excluded.status, secrets = excluded.secrets, state = excluded.state, etag = excluded.etag,
			application = excluded.application, application_key = excluded.application_key,
			environment = excluded.environment, environment_key = excluded.environment_key,
			owner_cluster = excluded.owner_cluster, owner_namespace = excluded.owner_namespace, owner_kind = excluded.owner_kind,
			owner_name = excluded.owner_name, owner_uid = excluded.owner_uid, implicit = excluded.implicit,
			system_data = excluded.system_data, keyset = excluded.keyset`

// putEdges makes the edges in $35 those that leave the row, in whatever order
// PostgreSQL runs its parts: no two of them touch one edge.
const putEdges = `edge AS (SELECT k, i, d, n FROM json_to_recordset($35::json) AS e (k text, i text, d text, n text)),
	gone AS (DELETE FROM edges WHERE from_key = $1 AND NOT EXISTS (SELECT 1 FROM edge e WHERE e.k = to_key AND e.d = kind AND e.n = name))
	INSERT INTO edges (from_key, to_key, kind, name, to_id) SELECT DISTINCT ON (k, d, n) $1, k, d, n, i FROM edge
	ON CONFLICT (from_key, to_key, kind, name) DO UPDATE SET to_id = excluded.to_id`

// One statement writes all that belongs to a write; what a write has not is
// left out, because every part costs something even where it finds nothing.
var (
	writeRow       = `WITH ` + putRow + ` ` + insertOperation(24)
	writeWithEdges = `WITH ` + putRow + `, accepted AS (` + insertOperation(24) + `), ` + putEdges
	// writeWithParents makes the rows in $36 too, unless another write has.
	writeWithParents = `WITH parents AS (
		INSERT INTO resources SELECT * FROM json_populate_recordset(NULL::resources, $36::json) ON CONFLICT (key) DO NOTHING),
	` + strings.TrimPrefix(writeWithEdges, `WITH `)
)

// insertOperation adds the operation in the parameters from the given one on,
// unless the first, its id, is NULL.
func insertOperation(from int) string {
	id := "$" + strconv.Itoa(from)
	text := `INSERT INTO operations (id, resource_key, resource_id, verb, api_version, state, grp, parent, created, deadline, trace) SELECT ` + id + `::text`
	for i, cast := range []string{"", "", "", "", "", "", "", "::bigint", "::bigint", ""} {
		text += ", $" + strconv.Itoa(from+1+i) + cast
	}
	return text + ` WHERE ` + id + `::text IS NOT NULL`
}

// operationValues are the values of insertOperation.
func (s *Store) operationValues(r core.Resource, o *core.Operation) []any {
	if o == nil {
		return []any{nil, "", "", "", "", "", "", nil, 0, 0, ""}
	}
	return []any{o.ID, r.ID.Key(), r.ID.String(), string(o.Verb), o.APIVersion, string(o.State), o.Group, rows.Nullable(o.Parent),
		s.nanos(o.Created), rows.Column(o.Deadline), o.Trace}
}

// edgeRow is an edge as it goes to putEdges.
type edgeRow struct {
	Key  string `json:"k"`
	ID   string `json:"i"`
	Kind string `json:"d"`
	Name string `json:"n"`
}

func edgeRows(edges []core.Edge) (string, error) {
	rows := make([]edgeRow, len(edges))
	for i, e := range edges {
		rows[i] = edgeRow{e.To.Key(), e.To.String(), string(e.Kind), e.Name}
	}
	b, err := json.Marshal(rows)
	return string(b), err
}

// put queues the row of a write; exists says that one stands there, which may
// have edges.
func (t *tx) put(r core.Resource, exists bool, parents []core.Resource, w store.Write) error {
	values, err := rows.ResourceValues(r, store.TypeOf(r.ID))
	if err != nil {
		return err
	}
	values = append(values, t.s.operationValues(r, w.Operation)...)
	if !exists && len(w.Edges) == 0 && len(parents) == 0 {
		t.do(writeRow, values...)
		return nil
	}
	edges, err := edgeRows(w.Edges)
	if err != nil {
		return err
	}
	values = append(values, edges)
	if len(parents) == 0 {
		t.do(writeWithEdges, values...)
		return nil
	}
	made, err := resourceObjects(parents)
	if err != nil {
		return err
	}
	t.do(writeWithParents, append(values, made)...)
	return nil
}

// resourceObjects are rows as json_populate_recordset takes them.
func resourceObjects(rs []core.Resource) (string, error) {
	list := []map[string]any{}
	for _, r := range rs {
		values, err := rows.ResourceValues(r, store.TypeOf(r.ID))
		if err != nil {
			return "", err
		}
		row := map[string]any{}
		for i, name := range resourceNames {
			row[name] = values[i]
		}
		list = append(list, row)
	}
	b, err := json.Marshal(list)
	return string(b), err
}

// resourceNames are the columns of resourceValues.
var resourceNames = []string{"key", "id", "type", "api_version", "location", "tags", "properties", "status", "secrets", "state", "etag",
	"application", "application_key", "environment", "environment_key",
	"owner_cluster", "owner_namespace", "owner_kind", "owner_name", "owner_uid", "implicit", "system_data", "keyset"}

// AcceptDelete implements [store.Writer].
func (s *Store) AcceptDelete(ctx context.Context, d store.Delete) (core.Resource, error) {
	if d.Operation != nil && !d.Unused && !d.ID.IsScope() { // any other locks more
		a := &accepting{call: call{key: d.ID.Key()}, del: &d}
		if err := s.accepts.do(ctx, a); !errors.Is(err, errAlone) {
			return a.stored, err
		}
	}
	var stored core.Resource
	err := s.write(ctx, func(t *tx) (err error) {
		stored, err = t.acceptDelete(d)
		return err
	})
	return stored, err
}

// implicitParents answers which of the parents of a row that goes were made
// implicitly: only for those is it asked whether they are empty now. Its
// parameter is the group's key.
const implicitParents = `ARRAY(SELECT p.key FROM resources p WHERE p.implicit AND p.key IN (resources.application_key, $2))`

var (
	deleteRow   = `DELETE FROM resources WHERE key = $1 RETURNING ` + implicitParents + `, ` + rows.Bare(rows.ResourceColumns, "r")
	deletingRow = `WITH accepted AS (` + insertOperation(4) + `) UPDATE resources SET state = $2, etag = $3 WHERE key = $1 RETURNING ` + rows.Bare(rows.ResourceColumns, "r")
)

func (t *tx) acceptDelete(d store.Delete) (core.Resource, error) {
	key := d.ID.Key()
	var l locks
	l.add(ownName, key, true)
	q, args := selectCurrent, []any{[]string{}, 0, key}
	var used store.Dependents
	var first []string
	var more []any
	if d.ID.IsScope() || d.Unused { // answered beside what is read of the row itself
		l.add(membersName, key, true)
		w := &rows.Where{Dialect: rows.Postgres, Args: args}
		users := rows.SelectUsers(store.Use{Of: d.ID, Limit: rules.ShownUsers}, w)
		q, args = currentText(`, (SELECT coalesce(max(n), 0) FROM (`+users+`) counted), ARRAY(SELECT id FROM (`+users+`) named)`), w.Args
		more = []any{&used.Count, &first}
	}
	t.lock(l)
	c, err := t.currentAnd(q, args, more...)
	if err != nil {
		return core.Resource{}, err
	}
	if err := c.CheckDelete(d); err != nil {
		return core.Resource{}, err
	}
	if used.Count > 0 {
		for _, s := range first {
			id, err := core.ParseID(s)
			if err != nil {
				return core.Resource{}, err
			}
			used.IDs = append(used.IDs, id)
		}
		return core.Resource{}, rules.InUse(c.ID, used)
	}
	var row rows.Resource
	var found bool
	if d.Operation != nil {
		args := append([]any{key, string(d.State), t.s.etag()}, t.s.operationValues(core.Resource{ID: c.ID}, d.Operation)...)
		t.row(deletingRow, args, &found, row.Columns()...)
		if err := t.flush(); err != nil {
			return core.Resource{}, err
		}
		t.changed(store.Change{ID: c.ID, State: d.State, Operation: d.Operation.ID, Work: true})
		return row.Resource()
	}
	var parents []string
	t.row(deleteRow, []any{key, groupKey(c.ID)}, &found, append([]any{&parents}, row.Columns()...)...)
	if err := t.flush(); err != nil {
		return core.Resource{}, err
	}
	t.changed(store.Change{ID: c.ID, Deleted: true})
	if len(parents) > 0 {
		if err := t.removeEmptyParents(c.ID, c.Application, parents, locks{}, ""); err != nil {
			return core.Resource{}, err
		}
	}
	return row.Resource()
}

// groupKey is the key of the group that a resource is in, "" for none.
func groupKey(id core.ID) string {
	if id.IsScope() || len(id.Scopes) == 0 {
		return ""
	}
	return id.Scope().Key()
}

// parentKeys are the keys of the group and the application of a resource.
func parentKeys(id core.ID, application string) []string {
	var keys []string
	for _, k := range []string{groupKey(id), application} {
		if k != "" {
			keys = append(keys, k)
		}
	}
	return keys
}

// removeEmpty removes those of the parents in $1 that were made implicitly and
// have no member left but $2: applications (an operation that runs on one keeps
// it), and then groups that hold nothing beside these. It also looks again at
// the operation $4 ("" for none), which waits for its children: the row with a
// state is its.
const removeEmpty = `WITH apps AS (
		DELETE FROM resources a WHERE a.key = ANY ($1::text[]) AND a.implicit AND a.type <> $3
		AND NOT EXISTS (SELECT 1 FROM resources m WHERE m.application_key = a.key AND m.key <> a.key AND m.key <> $2)
		AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.resource_key = a.key AND o.ended = 0) RETURNING a.key, a.id),
	groups AS (
		DELETE FROM resources g WHERE g.key = ANY ($1::text[]) AND g.implicit AND g.type = $3
		AND NOT EXISTS (SELECT 1 FROM resources m WHERE m.key > g.key || '/' AND m.key < g.key || '0' AND m.key NOT IN (SELECT key FROM apps)) RETURNING g.id),
	woken AS (` + wake + ` WHERE id = $4` + waits + `)
	SELECT id, NULL::text, false FROM apps UNION ALL SELECT id, NULL, false FROM groups UNION ALL SELECT * FROM woken`

// removeEmptyParents removes what was made implicitly with the first member of
// the application and of the group and has none left (K-5), now that id goes.
// candidates are the keys of those that may be so; l are further locks to take, and
// waiting is the operation that waits for the end of this one.
func (t *tx) removeEmptyParents(id core.ID, application string, candidates []string, l locks, waiting string) error {
	keys := append([]string(nil), candidates...)
	if application != "" {
		// An application elsewhere may be the last of its group.
		a, err := core.ParseID(application)
		if err != nil {
			return err
		}
		if g := groupKey(a); g != "" && g != groupKey(id) {
			keys = append(keys, g)
		}
	}
	for _, k := range keys {
		l.add(membersName, k, true)
	}
	t.lock(l)
	t.rows(removeEmpty, []any{keys, id.Key(), strings.ToLower(store.TypeGroup), waiting}, func(sc scan) error {
		var s string
		var state sql.NullString
		var parked bool
		if err := sc(&s, &state, &parked); err != nil {
			return err
		}
		if state.Valid {
			return t.woken(waiting, s, state.String, parked)
		}
		c := store.Change{Deleted: true}
		err := rows.ParseID(s, &c.ID)
		t.changed(c)
		return err
	})
	return t.flush()
}
