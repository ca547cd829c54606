package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

const (
	exportResources  = `SELECT ` + rows.ResourceColumns + `, ` + edgesOf + `, ` + outputsOf + ` FROM resources r ORDER BY r.key`
	exportOperations = `SELECT ` + rows.OperationColumns + ` FROM operations o ORDER BY o.seq`
	exportMessages   = `SELECT m.operation, m.seq, m.time, m.text FROM messages m ORDER BY m.operation, m.seq`
	exportAudit      = `SELECT ` + rows.AuditColumns + ` FROM audit a ORDER BY a.seq`
	countAll         = `SELECT (SELECT count(*) FROM versions), (SELECT count(*) FROM manifests), (SELECT count(*) FROM resources),
		(SELECT count(*) FROM operations), (SELECT count(*) FROM messages), (SELECT count(*) FROM audit)`
)

// Export implements [store.Portable].
func (s *Store) Export(ctx context.Context, begin func(map[store.Kind]int) error, each func(store.Record) error) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.calls.Done()
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return s.fault("read", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it has changed nothing
	n := make([]int, len(store.Kinds))
	if err := tx.QueryRow(ctx, countAll).Scan(&n[0], &n[1], &n[2], &n[3], &n[4], &n[5]); err != nil {
		return s.fault("read", err)
	}
	counts := map[store.Kind]int{}
	for i, k := range store.Kinds {
		counts[k] = n[i]
	}
	if err := begin(counts); err != nil {
		return err
	}
	for _, one := range []struct {
		q    string
		read func(scan) (store.Record, error)
	}{
		{selectVersions + ` ORDER BY version`, func(sc scan) (store.Record, error) {
			k, err := rows.Keyset(sc)
			return store.Record{Keyset: &k}, err
		}},
		{`SELECT namespace, manifest FROM manifests ORDER BY namespace_key`, func(sc scan) (store.Record, error) {
			var namespace, manifest string
			err := sc(&namespace, &manifest)
			return store.Record{Manifest: &store.ManifestRecord{Namespace: namespace, Manifest: json.RawMessage(manifest)}}, err
		}},
		{exportResources, func(sc scan) (store.Record, error) {
			r, err := scanResource(sc)
			return store.Record{Resource: &r}, err
		}},
		{exportOperations, func(sc scan) (store.Record, error) {
			var row rows.Operation
			if err := sc(row.Columns()...); err != nil {
				return store.Record{}, err
			}
			o, err := row.Operation()
			return store.Record{Operation: &o}, err
		}},
		{exportMessages, func(sc scan) (store.Record, error) {
			var m store.MessageRecord
			var at int64
			err := sc(&m.Operation, &m.Message.Seq, &at, &m.Message.Text)
			m.Message.Time = rows.Moment(at)
			return store.Record{Message: &m}, err
		}},
		{exportAudit, func(sc scan) (store.Record, error) {
			r, err := rows.AuditRecord(sc)
			return store.Record{Audit: &r}, err
		}},
	} {
		if err := s.exportRows(ctx, tx, one.q, one.read, each); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) exportRows(ctx context.Context, tx pgx.Tx, q string, read func(scan) (store.Record, error), each func(store.Record) error) error {
	rows, err := tx.Query(ctx, q)
	if err != nil {
		return s.fault("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		r, err := read(rows.Scan)
		if err != nil {
			return s.fault("read", err)
		}
		if err := each(r); err != nil {
			return err // the caller's
		}
	}
	return s.fault("read", rows.Err())
}

// importBatch is how many rows go out together.
const importBatch = 500

// Import implements [store.Portable].
func (s *Store) Import(ctx context.Context, next func() (store.Record, error)) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.calls.Done()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.fault("written", err)
	}
	defer conn.Release()
	t := &tx{s: s, ctx: ctx, conn: conn, batch: &pgx.Batch{}}
	t.batch.Queue("BEGIN")
	if err = t.importAll(next); err == nil {
		t.changed(store.Change{Kind: store.ChangeReset})
		err = t.commit()
	}
	if err != nil {
		if conn.Conn().PgConn().TxStatus() != 'I' {
			_, _ = conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
		}
		return s.fault("written", err)
	}
	s.feed.committed()
	return nil
}

func (t *tx) importAll(next func() (store.Record, error)) error {
	// Nobody writes meanwhile, whatever process it is.
	t.do(`LOCK TABLE versions, resources, operations, manifests, audit IN SHARE ROW EXCLUSIVE MODE`)
	n := make([]int, len(store.Kinds))
	var found bool
	t.row(countAll, nil, &found, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5])
	if err := t.flush(); err != nil {
		return err
	}
	for i, k := range store.Kinds {
		if n[i] > 0 {
			return rules.NotEmpty("the store in "+t.s.where, k, n[i])
		}
	}
	for {
		r, err := next()
		if errors.Is(err, io.EOF) {
			return t.flush()
		}
		if err == nil {
			err = t.importRecord(r)
		}
		if err == nil && t.batch.Len() >= importBatch {
			err = t.flush()
		}
		if err != nil {
			return err
		}
	}
}

func (t *tx) importRecord(r store.Record) error {
	switch r.Kind() {
	case store.KindKeyset:
		k := r.Keyset
		t.exec(nil, insertVersion, k.Version, string(k.State), k.Wrapped, rows.Column(k.Created), rows.Column(k.Changed))
		if k.State != store.KeysetDisabled {
			t.exec(nil, openVersion, k.Version)
		}
	case store.KindManifest:
		t.exec(nil, `INSERT INTO manifests (namespace_key, namespace, manifest) VALUES ($1, $2, $3)`,
			strings.ToLower(r.Manifest.Namespace), r.Manifest.Namespace, string(r.Manifest.Manifest))
	case store.KindResource:
		row := r.Resource.Resource
		if err := t.put(row, false, nil, store.Write{Edges: r.Resource.Edges}); err != nil {
			return err
		}
		if len(r.Resource.Outputs) > 0 {
			list, err := outputRows(r.Resource.Outputs)
			if err != nil {
				return err
			}
			t.exec(nil, putOutputs, row.ID.Key(), list)
		}
	case store.KindOperation:
		o := r.Operation
		fail, err := rows.ToJSON(o.Error, o.Error == nil)
		if err != nil {
			return err
		}
		// A lease belongs to a worker of then; its fence still counts.
		t.exec(nil, importOperation, o.ID, o.ResourceID.Key(), o.ResourceID.String(), string(o.Verb), o.APIVersion, string(o.State), fail,
			o.Group, rows.Nullable(o.Parent), o.Parked, o.Children, o.Fence, o.Attempts,
			rows.Column(o.Created), rows.Column(o.Started), rows.Column(o.Ended), rows.Column(o.Deadline), rows.Column(o.CancelRequested), o.Trace)
	case store.KindMessage:
		m := r.Message
		t.exec(nil, `INSERT INTO messages (operation, seq, time, text) VALUES ($1, $2, $3, $4)`, m.Operation, m.Message.Seq, rows.Column(m.Message.Time), m.Message.Text)
	case store.KindAudit:
		list, err := rows.AuditRows([]store.AuditRecord{*r.Audit}, rows.Column)
		if err != nil {
			return err
		}
		t.exec(nil, insertAudit, list)
	default:
		return core.Errorf(core.CodeInvalidContent, "a record holds nothing that this release knows")
	}
	return nil
}

const importOperation = `INSERT INTO operations (id, resource_key, resource_id, verb, api_version, state, error, grp, parent,
	parked, children, fence, attempts, created, started, ended, deadline, cancel_requested, trace)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`

// Integrity implements [store.Portable]. PostgreSQL checks references and
// uniqueness as it writes; what can go wrong below that is that an index and its
// table disagree, which reading each both ways shows.
func (s *Store) Integrity(ctx context.Context) ([]string, error) {
	var out []string
	for _, table := range []string{"resources", "operations", "outputs", "edges", "messages", "audit"} {
		var n int64
		if _, err := s.readRow(ctx, `SELECT count(*) FROM (SELECT t::text FROM `+table+` t OFFSET 0) whole`, nil, &n); core.IsCode(err, core.CodeUnavailable) {
			return nil, err
		} else if err != nil {
			out = append(out, "table "+table+" cannot be read: "+err.Error())
		}
	}
	for _, one := range []struct{ says, q string }{
		{"outputs belong to no resource", `SELECT count(*) FROM outputs u WHERE NOT EXISTS (SELECT 1 FROM resources r WHERE r.key = u.resource_key)`},
		{"edges leave no resource", `SELECT count(*) FROM edges e WHERE NOT EXISTS (SELECT 1 FROM resources r WHERE r.key = e.from_key)`},
		{"messages belong to no operation", `SELECT count(*) FROM messages m WHERE NOT EXISTS (SELECT 1 FROM operations o WHERE o.id = m.operation)`},
	} {
		var n int64
		if _, err := s.readRow(ctx, one.q, nil, &n); err != nil {
			return nil, err
		}
		if n > 0 {
			out = append(out, itoa(n)+" "+one.says)
		}
	}
	return out, nil
}
