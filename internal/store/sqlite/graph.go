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

// What a graph shows of a resource, an edge and an output; CROSS JOIN fixes the
// order of the joins: from the resources into the other table's index.
const (
	graphResource = `r.key, r.id, r.state, r.properties`
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

// besideMost bounds the graphs that are read on two connections: with more nodes
// what both hold at once would be most of a small server's memory.
const besideMost = 20_000

// Graph implements [store.Reader]: three statements on one snapshot for what
// belongs to root, and three more when edges lead beyond, however many
// resources there are.
func (s *Store) Graph(ctx context.Context, root core.ID) (store.Graph, error) {
	part, args := membersOf, []any{root.Key()}
	if root.IsScope() {
		from, to := rules.Below(root.Key())
		part, args = belowOf, []any{from, to, strings.ToLower(store.TypeGroup), strings.ToLower(store.TypePlane)}
	}
	snapshot, release, err := s.snapshot(ctx)
	if err != nil {
		return store.Graph{}, err
	}
	defer release()
	d := rules.NewDrawing()
	if err := s.draw(ctx, snapshot, d, part, args); err != nil {
		return store.Graph{}, err
	}
	if beyond := d.Beyond(); len(beyond) > 0 {
		seeds, err := json.Marshal(beyond)
		if err != nil {
			return store.Graph{}, err
		}
		if err := s.draw(ctx, snapshot, d, beyondOf, []any{string(seeds)}); err != nil {
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

// draw adds the resources that part selects, with what belongs to them; those
// that are there already are passed over.
func (s *Store) draw(ctx context.Context, snapshot [2]*sql.Tx, d *rules.Drawing, part func(columns, join string) string, args []any) error {
	read := func(tx *sql.Tx, q string, each func(scan) error) error {
		st, err := s.prepared(ctx, q)
		if err != nil {
			return err
		}
		return s.fault("read", eachRow(ctx, tx.StmtContext(ctx, st), args, each))
	}
	first := d.Len()
	var properties sql.RawBytes
	err := read(snapshot[0], part(graphResource, ``), func(sc scan) error {
		var key, id, state string
		if err := sc(&key, &id, &state, &properties); err != nil {
			return err
		}
		var shown json.RawMessage
		if bytes.Contains(properties, []byte("://")) {
			shown = bytes.Clone(properties)
		}
		d.Node(key, id, state, shown)
		return nil
	})
	if err != nil {
		return err
	}
	// All nodes are there: edges and outputs touch nothing of each other's.
	edges := func() error {
		var from, to, toID, kind, name string // not kept, but for what the drawing keeps
		return read(snapshot[0], part(graphEdge, joinEdges), func(sc scan) error {
			if err := sc(&from, &to, &toID, &kind, &name); err != nil || d.At(from) < first {
				return err
			}
			d.Edge(from, to, toID, kind, name)
			return nil
		})
	}
	// Outputs of one resource come together, by their keys.
	type output struct {
		ordinal int64
		id      string
	}
	outputs := func() error {
		var key string
		var list []output
		flush := func() {
			slices.SortFunc(list, func(a, b output) int { return int(a.ordinal - b.ordinal) })
			for _, o := range list {
				d.Output(key, o.id)
			}
			list = list[:0]
		}
		err := read(snapshot[1], part(graphOutput, joinOutputs), func(sc scan) error {
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
