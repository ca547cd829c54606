package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// current is what the checks of a write need of the row that stands.
type current struct {
	exists      bool
	id          core.ID
	etag        string
	state       core.State
	owner       core.Owner
	application string // key, "" for none
	system      core.SystemData
	live        bool
	// oldest is the oldest version of the data keyset in use, 0 for none; open
	// says that the version asked for is in use.
	oldest int64
	open   bool
	// known are those of the keys asked for that have a row.
	known []string
}

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
func (t *tx) current(id core.ID, keys []string, keyset int64) (current, error) {
	asked, err := json.Marshal(keys)
	if err != nil {
		return current{}, err
	}
	var c current
	var known string
	var stored, etag, state, cluster, namespace, kind, name, uid, application, system sql.NullString
	var oldest sql.NullInt64
	if _, err := t.row(selectCurrent, []any{string(asked), keyset, id.Key()}, &known, &stored, &etag, &state,
		&cluster, &namespace, &kind, &name, &uid, &application, &system, &c.live, &oldest, &c.open); err != nil {
		return current{}, err
	}
	if err := first(json.Unmarshal([]byte(known), &c.known), parseID(stored.String, &c.id), fromJSON(system, &c.system)); err != nil {
		return current{}, err
	}
	c.exists, c.etag, c.state, c.application = stored.Valid, etag.String, core.State(state.String), application.String
	c.oldest = oldest.Int64
	c.owner = core.Owner{Cluster: cluster.String, Namespace: namespace.String, Kind: kind.String, Name: name.String, UID: uid.String}
	return c, nil
}

// check is the part of the checks that updates and deletes share, in order.
func (c current) check(id core.ID, expect string) error {
	if expect != "*" && expect != c.etag {
		return store.ChangedError(id)
	}
	if c.live {
		return core.Errorf(core.CodeConflict, "The target resource is in progress state: %s.", c.state).WithTarget(id.String())
	}
	return nil
}

// sealed is the version of the data keyset that a row is to name.
func (c current) sealed(r core.Resource) (int64, error) { return store.SealedWith(r, c.oldest, c.open) }

// ownerConflict says that an object of a cluster has the resource already.
func (c current) ownerConflict(id core.ID) error {
	e := core.Errorf(core.CodeNameConflict, "%s belongs to %s %s/%s of cluster %s: rename the new object, or remove that one",
		id, c.owner.Kind, c.owner.Namespace, c.owner.Name, c.owner.Cluster)
	if c.owner.IsZero() {
		e = core.Errorf(core.CodeNameConflict, "%s was made through the API and stands for no object of a cluster: rename the object, or delete that resource", id)
	}
	e = e.WithTarget(id.String())
	e.Info = []core.ErrorInfo{{Type: "owner", Info: c.owner}}
	return e
}

func sameOwner(a, b core.Owner) bool { return a == b || a.UID != "" && a.UID == b.UID }

// parentScope is the scope whose row must be there before a row of id: its
// group or plane; the zero ID for a plane.
func parentScope(id core.ID) core.ID {
	if id.Provider != "" {
		return id.Scope()
	}
	if n := len(id.Scopes); n > 0 {
		return core.ID{Plane: id.Plane, Scopes: id.Scopes[:n-1]}
	}
	return core.ID{}
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
	r := w.Resource
	var asked []string
	for _, id := range slices.Concat([]core.ID{r.ID}, ids(w.Parents)) {
		if scope := parentScope(id); !scope.IsZero() {
			asked = append(asked, scope.Key())
		}
		asked = append(asked, id.Key())
	}
	c, err := t.current(r.ID, asked, r.Keyset)
	if err != nil {
		return r, err
	}
	missing, err := missingParents(r.ID, w.Parents, c.known)
	if err != nil {
		return r, err
	}
	if err := c.check(r.ID, w.Expect); err != nil {
		return r, err
	}
	if c.exists && !r.Owner.IsZero() && !sameOwner(c.owner, r.Owner) && (w.Replaces == "" || w.Replaces != c.owner.UID) {
		return r, c.ownerConflict(c.id)
	}
	if r.Keyset, err = c.sealed(r); err != nil {
		return r, err
	}
	for _, p := range missing {
		p.ETag, p.Implicit = s.etag(), true
		values, err := resourceValues(p, store.TypeOf(p.ID))
		if err != nil {
			return r, err
		}
		if _, err := t.exec(insertResource, values...); err != nil {
			return r, err
		}
		t.changed(store.Change{ID: p.ID, State: p.State})
	}
	r.Implicit = false
	if c.exists {
		r.ID = c.id
		r.SystemData.CreatedAt, r.SystemData.CreatedBy, r.SystemData.CreatedByType = c.system.CreatedAt, c.system.CreatedBy, c.system.CreatedByType
		if r.Owner.IsZero() {
			r.Owner = c.owner
		}
	}
	r.ETag = s.etag()
	if err := t.putResource(r, c.exists); err != nil {
		return r, err
	}
	if err := t.putEdges(r.ID, w.Edges, c.exists); err != nil {
		return r, err
	}
	if err := s.putOperation(t, r, w.Operation); err != nil {
		return r, err
	}
	if old := c.application; old != "" && old != r.Application.Key() {
		// It moved to another application, and may have been the last here.
		if err := t.removeEmptyParents(r.ID, old); err != nil {
			return r, err
		}
	}
	return r, nil
}

// missingParents returns those of parents that have no row, and NotFound when
// the scope of id, or of one to be made, neither has nor gets one.
func missingParents(id core.ID, parents []core.Resource, known []string) ([]core.Resource, error) {
	known = slices.Clone(known)
	var missing []core.Resource
	for _, p := range parents {
		if slices.Contains(known, p.ID.Key()) {
			continue
		}
		if err := inScope(p.ID, known); err != nil {
			return nil, err
		}
		known = append(known, p.ID.Key())
		missing = append(missing, p)
	}
	return missing, inScope(id, known)
}

func inScope(id core.ID, known []string) error {
	scope := parentScope(id)
	if scope.IsZero() || slices.Contains(known, scope.Key()) {
		return nil
	}
	what := "plane"
	if len(scope.Scopes) > 0 {
		what = "resource group"
	}
	return core.Errorf(core.CodeNotFound, "the %s %s does not exist: create it first", what, scope).WithTarget(scope.String())
}

func ids(rs []core.Resource) []core.ID {
	out := make([]core.ID, len(rs))
	for i, r := range rs {
		out[i] = r.ID
	}
	return out
}

// putResource writes a whole row.
func (t *tx) putResource(r core.Resource, exists bool) error {
	values, err := resourceValues(r, store.TypeOf(r.ID))
	if err != nil {
		return err
	}
	if exists {
		_, err = t.exec(updateResource, append(values[3:], values[0])...)
	} else {
		_, err = t.exec(insertResource, values...)
	}
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
			o.Group, nullable(o.Parent), s.nanos(o.Created), column(o.Deadline)); err != nil {
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

// shownUsers is how many users a refused deletion names.
const shownUsers = 10

// below are the bounds, exclusive, of the keys below a scope: "0" is the
// character after "/". No pattern is matched, so a name may hold any character.
func below(scopeKey string) (from, to string) { return scopeKey + "/", scopeKey + "0" }

func (s *Store) acceptDelete(t *tx, d store.Delete) (core.Resource, error) {
	c, err := t.current(d.ID, []string{}, 0)
	if err != nil {
		return core.Resource{}, err
	}
	if !c.exists {
		return core.Resource{}, store.NotFound(d.ID)
	}
	if err := c.check(c.id, d.Expect); err != nil {
		return core.Resource{}, err
	}
	if d.OwnerUID != "" && d.OwnerUID != c.owner.UID {
		return core.Resource{}, c.ownerConflict(c.id)
	}
	if c.id.IsScope() || d.Unused {
		// Only the transaction can know that no user came meanwhile.
		used, err := dependents(t, store.Use{Of: c.id, Limit: shownUsers})
		if err != nil {
			return core.Resource{}, err
		}
		if used.Count > 0 {
			return core.Resource{}, store.InUse(c.id, used)
		}
	}
	if d.Operation == nil {
		var row resourceRow
		if _, err := t.row(`DELETE FROM resources WHERE key = ? RETURNING `+bare(resourceColumns, "r"), []any{d.ID.Key()}, row.columns()...); err != nil {
			return core.Resource{}, err
		}
		t.changed(store.Change{ID: c.id, Deleted: true})
		if err := t.removeEmptyParents(c.id, c.application); err != nil {
			return core.Resource{}, err
		}
		return row.resource()
	}
	var row resourceRow
	if _, err := t.row(`UPDATE resources SET state = ?, etag = ? WHERE key = ? RETURNING `+bare(resourceColumns, "r"),
		[]any{string(d.State), s.etag(), d.ID.Key()}, row.columns()...); err != nil {
		return core.Resource{}, err
	}
	r, err := row.resource()
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
// the application and of the group and has none left (K-5), now that id went.
func (t *tx) removeEmptyParents(id core.ID, applicationKey string) error {
	scopes := []core.ID{id.Scope()}
	if applicationKey != "" && applicationKey != id.Key() {
		gone, err := t.removeImplicit(removeEmptyApplication, applicationKey)
		if err != nil {
			return err
		}
		if scope := gone.Scope(); !gone.IsZero() && !scope.Equal(scopes[0]) {
			scopes = append(scopes, scope)
		}
	}
	for _, scope := range scopes {
		if len(scope.Scopes) == 0 {
			continue // planes are not made implicitly
		}
		from, to := below(scope.Key())
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
	if err := parseID(s, &id); err != nil {
		return id, err
	}
	t.changed(store.Change{ID: id, Deleted: true})
	return id, nil
}
