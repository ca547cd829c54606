package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

// What a graph shows of a resource, an edge and an output. Resources are read in
// the order in which they lie, since they are large, what is bound to them in
// that of their keys, which is how it lies. CROSS JOIN fixes the order of the
// joins: from the resources' index into the other table.
const (
	graphResource = `r.row, r.id, r.state, r.properties`
	graphEdge     = `r.row, e.to_id, e.kind, e.name`
	graphOutput   = `r.row, u.ordinal, u.id`
	joinEdges     = ` CROSS JOIN edges e ON e.from_key = r.key`
	joinOutputs   = ` CROSS JOIN outputs u ON u.resource_key = r.key`
)

// part are the statements that read resources of a graph, and what is bound to
// them: columns of r and, with a join, of the other table.
type part struct {
	nodes string
	bound func(columns, join string) string
}

var (
	// What belongs to an application or an environment.
	members = part{
		nodes: `SELECT ` + graphResource + ` FROM resources r WHERE r.row IN (
			SELECT row FROM resources WHERE application_key = ?1 UNION ALL SELECT row FROM resources WHERE environment_key = ?1)`,
		bound: func(columns, join string) string {
			return `SELECT ` + columns + ` FROM resources r` + join + ` WHERE r.application_key = ?1
				UNION ALL SELECT ` + columns + ` FROM resources r` + join + ` WHERE r.environment_key = ?1`
		},
	}
	// What lies below a scope; scopes, which are no nodes, have nothing bound to them.
	below = part{
		nodes: `SELECT ` + graphResource + ` FROM resources r WHERE r.row IN (SELECT row FROM resources WHERE key > ?1 AND key < ?2) AND +r.type NOT IN ('` +
			strings.ToLower(store.TypeGroup) + `', '` + strings.ToLower(store.TypePlane) + `')`,
		bound: func(columns, join string) string {
			return `SELECT ` + columns + ` FROM resources r` + join + ` WHERE r.key > ?1 AND r.key < ?2`
		},
	}
	// What edges reach from the keys of a JSON array. The walk ends on cycles,
	// because a key that was reached is not reached again.
	beyond = part{nodes: reached(graphResource, ``), bound: reached}
)

func reached(columns, join string) string {
	return `WITH RECURSIVE reached (key) AS (SELECT value FROM json_each(?1) UNION SELECT e.to_key FROM reached CROSS JOIN edges e ON e.from_key = reached.key)
		SELECT ` + columns + ` FROM reached CROSS JOIN resources r ON r.key = reached.key` + join
}

// besideMost bounds the graphs that are read on two connections: with more nodes
// what both hold at once would be most of a small server's memory.
const besideMost = 20_000

// Graph implements [store.Reader]: three statements on one snapshot for what
// belongs to root, and three more when edges lead beyond, however many
// resources there are.
func (s *Store) Graph(ctx context.Context, root core.ID) (store.Graph, error) {
	first, args := members, []any{root.Key()}
	if root.IsScope() {
		from, to := rules.Below(root.Key())
		first, args = below, []any{from, to}
	}
	snapshot, release, err := s.snapshot(ctx)
	if err != nil {
		return store.Graph{}, err
	}
	defer release()
	d := rules.NewDrawing()
	if err := s.draw(ctx, snapshot, d, first, args); err != nil {
		return store.Graph{}, err
	}
	if keys := d.Beyond(); len(keys) > 0 {
		seeds, err := json.Marshal(keys)
		if err != nil {
			return store.Graph{}, err
		}
		if err := s.draw(ctx, snapshot, d, beyond, []any{string(seeds)}); err != nil {
			return store.Graph{}, err
		}
	}
	return d.Graph(), nil
}

// snapshot begins two reads that see the same commits, so that two statements
// run side by side. While others do so it is one, twice: whoever holds one
// connection and waits for a second must be alone in that.
func (s *Store) snapshot(ctx context.Context) (txs [2]*sql.Tx, release func(), err error) {
	two := s.drawing.TryLock()
	release = func() {
		for _, tx := range txs {
			if tx != nil {
				_ = tx.Rollback() // it has changed nothing, and may have ended
			}
		}
		if two {
			s.drawing.Unlock()
		}
	}
	for i := range txs {
		if i > 0 && !two {
			txs[i] = txs[0]
		} else if txs[i], err = s.reads.BeginTx(ctx, nil); err != nil {
			release()
			return txs, nil, s.fault("read", err)
		}
	}
	if !two {
		return txs, release, nil
	}
	// A transaction sees what was committed before its first read, and nobody
	// commits but our writer.
	s.writer.commits.RLock()
	defer s.writer.commits.RUnlock()
	for _, tx := range txs {
		var one int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM resources LIMIT 1)`).Scan(&one); err != nil {
			release()
			return txs, nil, s.fault("read", err)
		}
	}
	return txs, release, nil
}

// draw adds the resources of a part, with what belongs to them; those that are
// there already are passed over.
func (s *Store) draw(ctx context.Context, snapshot [2]*sql.Tx, d *rules.Drawing, p part, args []any) error {
	// The end of ctx ends the transaction and with it a read; that each row looks
	// for it as well is what this keeps away.
	running := context.WithoutCancel(ctx)
	read := func(tx *sql.Tx, q string, each func(scan) error) error {
		st, err := s.prepared(ctx, q)
		if err != nil {
			return err
		}
		return s.fault("read", eachRow(running, tx.StmtContext(ctx, st), args, each))
	}
	var added []int64 // rows of the nodes added
	first := d.Len()
	var row int64
	var id, state string
	var properties sql.RawBytes
	resource := []any{&row, &id, &state, &properties}
	err := read(snapshot[0], p.nodes, func(sc scan) error {
		if err := sc(resource...); err != nil {
			return err
		}
		var shown json.RawMessage
		if bytes.Contains(properties, []byte("://")) {
			shown = bytes.Clone(properties)
		}
		if _, ok := d.Node(strings.ToLower(id), id, state, shown); ok {
			added = append(added, row)
		}
		return nil
	})
	if err != nil {
		return err
	}
	places := make(map[int64]int32, len(added))
	for i, row := range added {
		places[row] = int32(first + i)
	}
	// All nodes are there: edges and outputs touch nothing of each other's.
	edges := func() error {
		var from int64
		var to, kind, name string
		edge := []any{&from, &to, &kind, &name}
		return read(snapshot[0], p.bound(graphEdge, joinEdges), func(sc scan) error {
			if err := sc(edge...); err != nil {
				return err
			}
			if at, ok := places[from]; ok {
				d.Edge(at, to, kind, name)
			}
			return nil
		})
	}
	// Outputs of one resource come together, by their keys.
	type output struct {
		ordinal int64
		id      string
	}
	outputs := func() error {
		var of, last int64
		var o output
		var list []output
		columns := []any{&of, &o.ordinal, &o.id}
		flush := func() {
			at, ok := places[last]
			if !ok {
				list = list[:0]
			}
			slices.SortFunc(list, func(a, b output) int { return int(a.ordinal - b.ordinal) })
			for _, o := range list {
				d.Output(at, o.id)
			}
			list = list[:0]
		}
		err := read(snapshot[1], p.bound(graphOutput, joinOutputs), func(sc scan) error {
			if err := sc(columns...); err != nil {
				return err
			}
			if of != last {
				flush()
				last = of
			}
			list = append(list, o)
			return nil
		})
		flush()
		return err
	}
	if snapshot[0] == snapshot[1] || d.Len() > besideMost {
		return rows.First(edges(), outputs())
	}
	var beside sync.WaitGroup
	var failed error
	beside.Go(func() { failed = outputs() })
	err = edges()
	beside.Wait()
	return rows.First(err, failed)
}
