package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

// selectCurrent answers one row always. Its parameters: a JSON array of keys, a
// version of the data keyset, and the key of the resource.
const selectCurrent = `SELECT (SELECT json_group_array(key) FROM resources WHERE key IN (SELECT value FROM json_each(?))),
	r.id, r.etag, r.state, r.owner_cluster, r.owner_namespace, r.owner_kind, r.owner_name, r.owner_uid,
	r.application_key, r.system_data,
	EXISTS (SELECT 1 FROM operations o WHERE o.resource_key = r.key AND o.ended = 0),
	(SELECT min(version) FROM open_versions), EXISTS (SELECT 1 FROM open_versions WHERE version = ?)
	FROM (SELECT 1) LEFT JOIN resources r ON r.key = ?`

// current reads the row of id, which of the keys have rows, and whether a
// version of the data keyset is in use.
func (t *tx) current(id core.ID, keys []string, keyset int64) (rules.Standing, error) {
	asked, err := json.Marshal(keys)
	if err != nil {
		return rules.Standing{}, err
	}
	var c rules.Standing
	var known string
	var stored, etag, state, cluster, namespace, kind, name, uid, application, system sql.NullString
	var oldest sql.NullInt64
	if _, err := t.row(selectCurrent, []any{string(asked), keyset, id.Key()}, &known, &stored, &etag, &state,
		&cluster, &namespace, &kind, &name, &uid, &application, &system, &c.Live, &oldest, &c.Open); err != nil {
		return rules.Standing{}, err
	}
	if err := rows.First(json.Unmarshal([]byte(known), &c.Known), rows.ParseID(stored.String, &c.ID), rows.FromJSON(system, &c.System)); err != nil {
		return rules.Standing{}, err
	}
	c.Exists, c.ETag, c.State, c.Application = stored.Valid, etag.String, core.State(state.String), application.String
	c.Oldest = oldest.Int64
	c.Owner = core.Owner{Cluster: cluster.String, Namespace: namespace.String, Kind: kind.String, Name: name.String, UID: uid.String}
	return c, nil
}

// Accept implements [store.Writer].
func (s *Store) Accept(ctx context.Context, w store.Write) (core.Resource, error) {
	var stored core.Resource
	err := s.writer.do(ctx, func(t *tx) (err error) {
		stored, err = s.accept(t, w)
		return err
	})
	return stored, err
}

func (s *Store) accept(t *tx, w store.Write) (core.Resource, error) {
	c, err := t.current(w.Resource.ID, rules.Asked(w), w.Resource.Keyset)
	if err != nil {
		return core.Resource{}, err
	}
	r, missing, err := c.Compose(w)
	if err != nil {
		return r, err
	}
	for i := range missing {
		p := &missing[i]
		p.ETag, p.Implicit = s.etag(), true
		t.changed(store.Change{ID: p.ID, State: p.State})
	}
	r.ETag = s.etag()
	if err := t.putResources(append(missing, r)); err != nil {
		return r, err
	}
	if err := t.putEdges(r.ID, w.Edges, c.Exists); err != nil {
		return r, err
	}
	if err := s.putOperation(t, r, w.Operation); err != nil {
		return r, err
	}
	if c.Moved(r) {
		if err := t.removeEmptyParents(r.ID, c.Application, true); err != nil {
			return r, err
		}
	}
	return r, nil
}

// putResources writes whole rows, in one statement.
func (t *tx) putResources(rs []core.Resource) error {
	var all []any
	for _, r := range rs {
		values, err := rows.ResourceValues(r, store.TypeOf(r.ID))
		if err != nil {
			return err
		}
		all = append(all, values...)
	}
	_, err := t.exec(insertColumns+valueList+strings.Repeat(", "+valueList, len(rs)-1)+replaceResource, all...)
	return err
}

// edgeRow is an edge as it goes to insertEdges.
type edgeRow struct {
	Key  string `json:"k"`
	ID   string `json:"i"`
	Kind string `json:"d"`
	Name string `json:"n"`
}

const insertEdges = `INSERT OR REPLACE INTO edges (from_key, to_key, kind, name, to_id)
	SELECT ?, value ->> 'k', value ->> 'd', value ->> 'n', value ->> 'i' FROM json_each(?)`

// putEdges replaces the edges that leave a resource.
func (t *tx) putEdges(from core.ID, edges []core.Edge, exists bool) error {
	if exists {
		if _, err := t.exec(`DELETE FROM edges WHERE from_key = ?`, from.Key()); err != nil {
			return err
		}
	}
	if len(edges) == 0 {
		return nil
	}
	rows := make([]edgeRow, len(edges))
	for i, e := range edges {
		rows[i] = edgeRow{e.To.Key(), e.To.String(), string(e.Kind), e.Name}
	}
	b, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	_, err = t.exec(insertEdges, from.Key(), string(b))
	return err
}

// putOperation adds the job of a write, if it has one, and records the change.
func (s *Store) putOperation(t *tx, r core.Resource, o *core.Operation) error {
	change := store.Change{ID: r.ID, State: r.State}
	if o != nil {
		change.Operation, change.Work = o.ID, true
		if _, err := t.exec(insertOperation, o.ID, r.ID.Key(), r.ID.String(), string(o.Verb), o.APIVersion, string(o.State),
			o.Group, rows.Nullable(o.Parent), s.nanos(o.Created), rows.Column(o.Deadline), o.Trace); err != nil {
			return err
		}
	}
	t.changed(change)
	return nil
}

// AcceptDelete implements [store.Writer].
func (s *Store) AcceptDelete(ctx context.Context, d store.Delete) (core.Resource, error) {
	var stored core.Resource
	err := s.writer.do(ctx, func(t *tx) (err error) {
		stored, err = s.acceptDelete(t, d)
		return err
	})
	return stored, err
}

func (s *Store) acceptDelete(t *tx, d store.Delete) (core.Resource, error) {
	c, err := t.current(d.ID, []string{}, 0)
	if err != nil {
		return core.Resource{}, err
	}
	if err := c.CheckDelete(d); err != nil {
		return core.Resource{}, err
	}
	if c.ID.IsScope() || d.Unused {
		// Only the transaction can know that no user came meanwhile.
		used, err := dependents(t, store.Use{Of: c.ID, Limit: rules.ShownUsers})
		if err != nil {
			return core.Resource{}, err
		}
		if used.Count > 0 {
			return core.Resource{}, rules.InUse(c.ID, used)
		}
	}
	if d.Operation == nil {
		var row rows.Resource
		if _, err := t.row(`DELETE FROM resources WHERE key = ? RETURNING `+rows.Bare(rows.ResourceColumns, "r"), []any{d.ID.Key()}, row.Columns()...); err != nil {
			return core.Resource{}, err
		}
		t.changed(store.Change{ID: c.ID, Deleted: true})
		if err := t.removeEmptyParents(c.ID, c.Application, false); err != nil {
			return core.Resource{}, err
		}
		return row.Resource()
	}
	var row rows.Resource
	if _, err := t.row(`UPDATE resources SET state = ?, etag = ? WHERE key = ? RETURNING `+rows.Bare(rows.ResourceColumns, "r"),
		[]any{string(d.State), s.etag(), d.ID.Key()}, row.Columns()...); err != nil {
		return core.Resource{}, err
	}
	r, err := row.Resource()
	if err != nil {
		return r, err
	}
	return r, s.putOperation(t, r, d.Operation)
}

const (
	// removeEmptyApplication removes an implicit application without members
	// (an operation that runs on it keeps it).
	removeEmptyApplication = `DELETE FROM resources WHERE key = ?1 AND implicit = 1
		AND NOT EXISTS (SELECT 1 FROM resources m WHERE m.application_key = ?1 AND m.key <> ?1)
		AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.resource_key = ?1 AND o.ended = 0) RETURNING id`
	removeEmptyGroup = `DELETE FROM resources WHERE key = ?1 AND implicit = 1
		AND NOT EXISTS (SELECT 1 FROM resources m WHERE m.key > ?2 AND m.key < ?3) RETURNING id`
)

// removeEmptyParents removes what was made implicitly with the first member of
// the application and of the group and has none left (K-5), now that id went, or
// moved to another application and still stands in its group.
func (t *tx) removeEmptyParents(id core.ID, applicationKey string, stands bool) error {
	var scopes []core.ID
	if !stands {
		scopes = append(scopes, id.Scope())
	}
	if applicationKey != "" && applicationKey != id.Key() {
		gone, err := t.removeImplicit(removeEmptyApplication, applicationKey)
		if err != nil {
			return err
		}
		if scope := gone.Scope(); !gone.IsZero() && !scope.Equal(id.Scope()) {
			scopes = append(scopes, scope)
		}
	}
	for _, scope := range scopes {
		if len(scope.Scopes) == 0 {
			continue // planes are not made implicitly
		}
		from, to := rules.Below(scope.Key())
		if _, err := t.removeImplicit(removeEmptyGroup, scope.Key(), from, to); err != nil {
			return err
		}
	}
	return nil
}

// removeImplicit runs one of the two above and returns the id of what went.
func (t *tx) removeImplicit(q string, args ...any) (core.ID, error) {
	var s string
	found, err := t.row(q, args, &s)
	if err != nil || !found {
		return core.ID{}, err
	}
	var id core.ID
	if err := rows.ParseID(s, &id); err != nil {
		return id, err
	}
	t.changed(store.Change{ID: id, Deleted: true})
	return id, nil
}
