package postgres

import (
	"context"
	"database/sql"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

// Get implements [store.Reader].
func (s *Store) Get(ctx context.Context, id core.ID) (core.Resource, *core.Operation, error) {
	var resource rows.Resource
	var operation rows.Operation
	found, err := s.readRow(ctx, `SELECT `+rows.ResourceColumns+`, `+rows.OperationColumns+`
		FROM resources r LEFT JOIN operations o ON o.resource_key = r.key AND o.ended = 0 WHERE r.key = $1`,
		[]any{id.Key()}, append(resource.Columns(), operation.Columns()...)...)
	if err != nil {
		return core.Resource{}, nil, err
	}
	if !found {
		return core.Resource{}, nil, rules.NotFound(id)
	}
	r, err := resource.Resource()
	if err != nil || !operation.Found() {
		return r, nil, s.fault("read", err)
	}
	o, err := operation.Operation()
	return r, &o, s.fault("read", err)
}

// Operation implements [store.Reader].
func (s *Store) Operation(ctx context.Context, id string) (core.Operation, error) {
	if o, ok := s.recent.get(id); ok && !s.closed.Load() {
		return o, nil
	}
	var row rows.Operation
	found, err := s.readRow(ctx, selectOperation, []any{id}, row.Columns()...)
	if err != nil {
		return core.Operation{}, err
	}
	if !found {
		return core.Operation{}, rules.OperationNotFound(id)
	}
	o, err := row.Operation()
	return o, s.fault("read", err)
}

// Claimant implements [store.Reader].
func (s *Store) Claimant(ctx context.Context, output core.ID) (core.ID, error) {
	var id core.ID
	var text string
	found, err := s.readRow(ctx, `SELECT r.id FROM outputs u JOIN resources r ON r.key = u.resource_key WHERE u.key = $1 AND u.claimed`, []any{output.Key()}, &text)
	if err != nil || !found {
		return id, err
	}
	return id, s.fault("read", rows.ParseID(text, &id))
}

// Outputs implements [store.Reader].
func (s *Store) Outputs(ctx context.Context, id core.ID) ([]core.Output, error) {
	outputs := "[]"
	if _, err := s.readRow(ctx, `SELECT `+outputsOf+` FROM resources r WHERE r.key = $1`, []any{id.Key()}, &outputs); err != nil {
		return nil, err
	}
	out, err := rules.ParseOutputs(outputs)
	return out, s.fault("read", err)
}

// OutputsOf implements [store.Reader].
func (s *Store) OutputsOf(ctx context.Context, ids []core.ID) (map[string][]core.Output, error) {
	out := map[string][]core.Output{}
	err := s.read(ctx, `SELECT r.key, `+outputsOf+` FROM unnest($1::text[]) AS r(key)
		WHERE EXISTS (SELECT 1 FROM outputs u WHERE u.resource_key = r.key)`, []any{rows.Keys(ids)}, func(sc scan) error {
		var key, outputs string
		if err := sc(&key, &outputs); err != nil {
			return err
		}
		inventory, err := rules.ParseOutputs(outputs)
		out[key] = inventory
		return err
	})
	return out, err
}

// List implements [store.Reader]. A page is one walk along one index from the
// key after the page before: what is written meanwhile neither moves a row to
// another page nor hides one.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	w := &rows.Where{Dialect: rows.Postgres}
	rows.WhereListed(q, w)
	text := `SELECT ` + rows.ResourceColumns + ` FROM resources r` + w.String() + ` ORDER BY r.key` + w.Limit(q.Limit)
	var page store.Page
	err := s.read(ctx, text, w.Args, rows.AddListed(&page, q.Limit))
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

// Graph implements [store.Reader]: one statement, and so one snapshot, however
// many resources there are. The walk along edges ends on cycles, because a key
// that was reached is not reached again.
func (s *Store) Graph(ctx context.Context, root core.ID) (store.Graph, error) {
	members, args := `SELECT key FROM resources WHERE application_key = $1 UNION SELECT key FROM resources WHERE environment_key = $1`, []any{root.Key()}
	if root.IsScope() {
		from, to := rules.Below(root.Key())
		members, args = `SELECT key FROM resources WHERE key > $1 AND key < $2 AND type NOT IN ($3, $4)`,
			[]any{from, to, strings.ToLower(store.TypeGroup), strings.ToLower(store.TypePlane)}
	}
	d := rules.NewDrawing()
	type edge struct {
		from             int32
		toID, kind, name string
	}
	var edges []edge // until all nodes are known
	err := s.read(ctx, `WITH RECURSIVE reached (key) AS (`+members+` UNION SELECT e.to_key FROM reached JOIN edges e ON e.from_key = reached.key)
		SELECT r.key, r.id, r.state, CASE WHEN strpos(r.properties, '://') > 0 THEN r.properties END,
		ARRAY(SELECT ARRAY[e.to_id, e.kind, e.name] FROM edges e WHERE e.from_key = r.key ORDER BY e.to_key, e.kind, e.name),
		ARRAY(SELECT u.id FROM outputs u WHERE u.resource_key = r.key ORDER BY u.ordinal)
		FROM reached JOIN resources r ON r.key = reached.key ORDER BY r.key`, args, func(sc scan) error {
		var key, id, state string
		var properties sql.NullString
		var leave [][]string
		var outputs []string
		if err := sc(&key, &id, &state, &properties, &leave, &outputs); err != nil {
			return err
		}
		at, _ := d.Node(key, id, state, rows.RawJSON(properties))
		for _, e := range leave {
			edges = append(edges, edge{at, e[0], e[1], e[2]})
		}
		for _, o := range outputs {
			d.Output(at, o)
		}
		return nil
	})
	if err != nil {
		return store.Graph{}, err
	}
	for _, e := range edges {
		d.Edge(e.from, e.toID, e.kind, e.name)
	}
	return d.Graph(), nil
}

// edgesOf aggregates the edges that leave r as [rules.ParseBelongings] takes them.
const edgesOf = `(SELECT coalesce(json_agg(json_build_array(e.to_id, e.kind, e.name) ORDER BY e.to_key, e.kind, e.name), '[]')::text
	FROM edges e WHERE e.from_key = r.key)`

// scanResource reads rows.ResourceColumns, edgesOf and outputsOf.
func scanResource(sc scan) (store.ResourceRecord, error) {
	var row rows.Resource
	var edges, outputs string
	if err := sc(append(row.Columns(), &edges, &outputs)...); err != nil {
		return store.ResourceRecord{}, err
	}
	r, err := row.Resource()
	if err != nil {
		return store.ResourceRecord{}, err
	}
	out := store.ResourceRecord{Resource: r}
	out.Edges, out.Outputs, err = rules.ParseBelongings(r.ID, edges, outputs)
	return out, err
}
