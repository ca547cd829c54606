package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

// What a graph shows of a resource, an edge and an output; CROSS JOIN fixes the
// order of the joins: from the resources into the other table's index.
const (
	graphResource = `r.key, r.id, r.state, CASE WHEN instr(r.properties, '://') > 0 THEN r.properties END`
	graphEdge     = `e.from_key, e.to_key, e.to_id, e.kind, e.name`
	graphOutput   = `u.ordinal, ` + outputColumns
	joinEdges     = ` CROSS JOIN edges e ON e.from_key = r.key`
	joinOutputs   = ` CROSS JOIN outputs u ON u.resource_key = r.key`
)

// membersOf selects columns of what belongs to an application or an
// environment, belowOf of what lies below a scope, beyondOf of what edges reach
// from the keys of a JSON array. That walk ends on cycles, because a key that
// was reached is not reached again.
func membersOf(columns, join string) string {
	return `SELECT ` + columns + ` FROM resources r` + join + ` WHERE r.application_key = ?1
		UNION ALL SELECT ` + columns + ` FROM resources r` + join + ` WHERE r.environment_key = ?1`
}

func belowOf(columns, join string) string {
	return `SELECT ` + columns + ` FROM resources r` + join + ` WHERE r.key > ?1 AND r.key < ?2 AND r.type NOT IN (?3, ?4)`
}

func beyondOf(columns, join string) string {
	return `WITH RECURSIVE reached (key) AS (SELECT value FROM json_each(?1) UNION SELECT e.to_key FROM reached CROSS JOIN edges e ON e.from_key = reached.key)
		SELECT ` + columns + ` FROM reached CROSS JOIN resources r ON r.key = reached.key` + join
}

// drawing is a graph while it is read, with the keys that it is ordered by.
type drawing struct {
	resources []drawnResource
	edges     []drawnEdge
	outputs   map[string][]drawnOutput
	// known are the keys of resources; ids the ids by their text, since most
	// ends of edges are resources that were read already.
	known map[string]core.ID
	ids   map[string]core.ID
}

type drawnResource struct {
	key string
	core.Resource
}

type drawnEdge struct {
	from, to string
	core.Edge
}

type drawnOutput struct {
	ordinal int64
	core.Output
}

// Graph implements [store.Reader]: three statements on one snapshot for what
// belongs to root, and three more when edges lead beyond, however many
// resources there are.
func (s *Store) Graph(ctx context.Context, root core.ID) (store.Graph, error) {
	part, args := membersOf, []any{root.Key()}
	if root.IsScope() {
		from, to := rules.Below(root.Key())
		part, args = belowOf, []any{from, to, strings.ToLower(store.TypeGroup), strings.ToLower(store.TypePlane)}
	}
	tx, err := s.reads.BeginTx(ctx, nil)
	if err != nil {
		return store.Graph{}, s.fault("read", err)
	}
	defer func() { _ = tx.Rollback() }() // it has changed nothing
	d := &drawing{outputs: map[string][]drawnOutput{}, known: map[string]core.ID{}, ids: map[string]core.ID{}}
	if err := s.draw(ctx, tx, d, part, args); err != nil {
		return store.Graph{}, err
	}
	beyond := []string{}
	for _, e := range d.edges {
		if _, ok := d.known[e.to]; !ok {
			beyond = append(beyond, e.to)
		}
	}
	if len(beyond) > 0 {
		seeds, err := json.Marshal(beyond)
		if err != nil {
			return store.Graph{}, err
		}
		if err := s.draw(ctx, tx, d, beyondOf, []any{string(seeds)}); err != nil {
			return store.Graph{}, err
		}
	}
	return d.graph(), nil
}

// draw adds the resources that part selects, with what belongs to them; those
// that are there already are passed over.
func (s *Store) draw(ctx context.Context, tx *sql.Tx, d *drawing, part func(columns, join string) string, args []any) error {
	read := func(q string, each func(scan) error) error {
		st, err := s.prepared(ctx, q)
		if err != nil {
			return err
		}
		return s.fault("read", eachRow(ctx, tx.StmtContext(ctx, st), args, each))
	}
	added := map[string]bool{}
	err := read(part(graphResource, ``), func(sc scan) error {
		var r drawnResource
		var id string
		var properties sql.NullString
		if err := sc(&r.key, &id, &r.State, &properties); err != nil {
			return err
		}
		if _, ok := d.known[r.key]; ok {
			return nil
		}
		r.Properties = rows.RawJSON(properties)
		err := rows.ParseID(id, &r.ID)
		d.resources, d.known[r.key], d.ids[id], added[r.key] = append(d.resources, r), r.ID, r.ID, true
		return err
	})
	if err != nil {
		return err
	}
	err = read(part(graphEdge, joinEdges), func(sc scan) error {
		var e drawnEdge
		var to string
		if err := sc(&e.from, &e.to, &to, &e.Kind, &e.Name); err != nil || !added[e.from] {
			return err
		}
		var ok bool
		if e.To, ok = d.ids[to]; !ok {
			if err := rows.ParseID(to, &e.To); err != nil {
				return err
			}
			d.ids[to] = e.To
		}
		e.From = d.known[e.from]
		d.edges = append(d.edges, e)
		return nil
	})
	if err != nil {
		return err
	}
	return read(part(graphOutput, joinOutputs), func(sc scan) error {
		var o drawnOutput
		key, output, err := scanOutput(func(into ...any) error { return sc(append([]any{&o.ordinal}, into...)...) })
		if err != nil || !added[key] {
			return err
		}
		o.Output = output
		d.outputs[key] = append(d.outputs[key], o)
		return nil
	})
}

// graph brings it all into its order.
func (d *drawing) graph() store.Graph {
	slices.SortFunc(d.resources, func(a, b drawnResource) int { return cmp.Compare(a.key, b.key) })
	slices.SortFunc(d.edges, func(a, b drawnEdge) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	g := store.Graph{Outputs: make(map[string][]core.Output, len(d.outputs))}
	for _, r := range d.resources {
		g.Resources = append(g.Resources, r.Resource)
	}
	for _, e := range d.edges {
		g.Edges = append(g.Edges, e.Edge)
	}
	for key, list := range d.outputs {
		slices.SortFunc(list, func(a, b drawnOutput) int { return cmp.Compare(a.ordinal, b.ordinal) })
		for _, o := range list {
			g.Outputs[key] = append(g.Outputs[key], o.Output)
		}
	}
	return g
}
