package sqlite

import (
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
	graphOutput   = `u.resource_key, u.ordinal, u.id`
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
	d := rules.NewDrawing()
	if err := s.draw(ctx, tx, d, part, args); err != nil {
		return store.Graph{}, err
	}
	if beyond := d.Beyond(); len(beyond) > 0 {
		seeds, err := json.Marshal(beyond)
		if err != nil {
			return store.Graph{}, err
		}
		if err := s.draw(ctx, tx, d, beyondOf, []any{string(seeds)}); err != nil {
			return store.Graph{}, err
		}
	}
	return d.Graph(), nil
}

// draw adds the resources that part selects, with what belongs to them; those
// that are there already are passed over.
func (s *Store) draw(ctx context.Context, tx *sql.Tx, d *rules.Drawing, part func(columns, join string) string, args []any) error {
	read := func(q string, each func(scan) error) error {
		st, err := s.prepared(ctx, q)
		if err != nil {
			return err
		}
		return s.fault("read", eachRow(ctx, tx.StmtContext(ctx, st), args, each))
	}
	first := d.Len()
	err := read(part(graphResource, ``), func(sc scan) error {
		var key, id, state string
		var properties sql.NullString
		if err := sc(&key, &id, &state, &properties); err != nil {
			return err
		}
		d.Node(key, id, state, rows.RawJSON(properties))
		return nil
	})
	if err != nil {
		return err
	}
	var from, to, toID, kind, name string // not kept, but for what the drawing keeps
	err = read(part(graphEdge, joinEdges), func(sc scan) error {
		if err := sc(&from, &to, &toID, &kind, &name); err != nil || d.At(from) < first {
			return err
		}
		d.Edge(from, to, toID, kind, name)
		return nil
	})
	if err != nil {
		return err
	}
	// Outputs of one resource come together, by their keys.
	type output struct {
		ordinal int64
		id      string
	}
	var key string
	var list []output
	flush := func() {
		slices.SortFunc(list, func(a, b output) int { return int(a.ordinal - b.ordinal) })
		for _, o := range list {
			d.Output(key, o.id)
		}
		list = list[:0]
	}
	err = read(part(graphOutput, joinOutputs), func(sc scan) error {
		var of string
		var o output
		if err := sc(&of, &o.ordinal, &o.id); err != nil || d.At(of) < first {
			return err
		}
		if of != key {
			flush()
			key = of
		}
		list = append(list, o)
		return nil
	})
	flush()
	return err
}
