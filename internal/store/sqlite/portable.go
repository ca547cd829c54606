package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/rules"
)

const (
	// exportResources answers each row with its edges and its inventory, as
	// arrays within arrays.
	exportResources = `SELECT ` + rows.ResourceColumns + `,
		(SELECT json_group_array(json_array(e.to_id, e.kind, e.name)) FROM edges e WHERE e.from_key = r.key),
		(SELECT json_group_array(json_array(u.id, u.local_id, u.state, u.managed, u.depends_on, u.handle, u.claimed) ORDER BY u.ordinal) FROM outputs u WHERE u.resource_key = r.key)
		FROM resources r ORDER BY r.key`
	exportOperations = `SELECT ` + rows.OperationColumns + ` FROM operations o ORDER BY o.row`
	exportMessages   = `SELECT m.operation, m.seq, m.time, m.text FROM messages m ORDER BY m.operation, m.seq`
	exportAudit      = `SELECT ` + rows.AuditColumns + ` FROM audit a ORDER BY a.seq`
	countAll         = `SELECT (SELECT count(*) FROM versions), (SELECT count(*) FROM manifests), (SELECT count(*) FROM resources),
		(SELECT count(*) FROM operations), (SELECT count(*) FROM messages), (SELECT count(*) FROM audit)`
)

// Export implements [store.Portable].
func (s *Store) Export(ctx context.Context, begin func(map[store.Kind]int) error, each func(store.Record) error) error {
	tx, err := s.reads.BeginTx(ctx, nil)
	if err != nil {
		return s.fault("read", err)
	}
	defer func() { _ = tx.Rollback() }() // it has changed nothing
	n := make([]int, len(store.Kinds))
	if err := tx.QueryRowContext(ctx, countAll).Scan(&n[0], &n[1], &n[2], &n[3], &n[4], &n[5]); err != nil {
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
		{`SELECT namespace, manifest FROM manifests ORDER BY namespace`, func(sc scan) (store.Record, error) {
			var namespace, manifest string
			err := sc(&namespace, &manifest)
			return store.Record{Manifest: &store.ManifestRecord{Namespace: namespace, Manifest: json.RawMessage(manifest)}}, err
		}},
		{exportResources, exportedResource},
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

func (s *Store) exportRows(ctx context.Context, tx *sql.Tx, q string, read func(scan) (store.Record, error), each func(store.Record) error) error {
	rows, err := tx.QueryContext(ctx, q)
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

func exportedResource(sc scan) (store.Record, error) {
	var row rows.Resource
	var edges, outputs string
	if err := sc(append(row.Columns(), &edges, &outputs)...); err != nil {
		return store.Record{}, err
	}
	r, err := row.Resource()
	if err != nil {
		return store.Record{}, err
	}
	out := &store.ResourceRecord{Resource: r}
	out.Edges, out.Outputs, err = rules.ParseBelongings(r.ID, edges, outputs)
	return store.Record{Resource: out}, err
}

// Import implements [store.Portable].
func (s *Store) Import(ctx context.Context, next func() (store.Record, error)) error {
	begun := false
	return s.writer.do(ctx, func(t *tx) error {
		if begun { // a failed disk under other writes: what was read is gone
			return core.Errorf(core.CodeUnavailable, "restoring into store %s was interrupted and has changed nothing: restore again", s.path)
		}
		begun = true
		n := make([]int, len(store.Kinds))
		if _, err := t.row(countAll, nil, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5]); err != nil {
			return err
		}
		for i, k := range store.Kinds {
			if n[i] > 0 {
				return rules.NotEmpty("store "+s.path, k, n[i])
			}
		}
		for {
			r, err := next()
			if errors.Is(err, io.EOF) {
				t.changed(store.Change{Kind: store.ChangeReset})
				return nil
			}
			if err == nil {
				err = t.importRecord(r)
			}
			if err != nil {
				return err
			}
		}
	})
}

func (t *tx) importRecord(r store.Record) (err error) {
	switch r.Kind() {
	case store.KindKeyset:
		k := r.Keyset
		if _, err = t.exec(insertVersion, k.Version, string(k.State), k.Wrapped, rows.Column(k.Created), rows.Column(k.Changed)); err == nil && k.State != store.KeysetDisabled {
			_, err = t.exec(openVersion, k.Version)
		}
	case store.KindManifest:
		_, err = t.exec(`INSERT INTO manifests (namespace, manifest) VALUES (?, ?)`, r.Manifest.Namespace, string(r.Manifest.Manifest))
	case store.KindResource:
		var values []any
		if values, err = rows.ResourceValues(r.Resource.Resource, store.TypeOf(r.Resource.Resource.ID)); err != nil {
			return err
		}
		if _, err = t.exec(insertResource, values...); err != nil {
			return err
		}
		if err = t.putEdges(r.Resource.Resource.ID, r.Resource.Edges, false); err != nil || len(r.Resource.Outputs) == 0 {
			return err
		}
		var list string
		if list, err = outputRows(r.Resource.Outputs); err == nil {
			_, err = t.exec(putOutputs, r.Resource.Resource.ID.Key(), list)
		}
	case store.KindOperation:
		o := r.Operation
		var fail any
		if fail, err = rows.ToJSON(o.Error, o.Error == nil); err != nil {
			return err
		}
		// A lease belongs to a worker of then; its fence still counts.
		_, err = t.exec(importOperation, o.ID, o.ResourceID.Key(), o.ResourceID.String(), string(o.Verb), o.APIVersion, string(o.State), fail,
			o.Group, rows.Nullable(o.Parent), o.Parked, o.Children, o.Fence, o.Attempts,
			rows.Column(o.Created), rows.Column(o.Started), rows.Column(o.Ended), rows.Column(o.Deadline), rows.Column(o.CancelRequested), o.Trace)
	case store.KindMessage:
		m := r.Message
		_, err = t.exec(`INSERT INTO messages (operation, seq, time, text) VALUES (?, ?, ?, ?)`, m.Operation, m.Message.Seq, rows.Column(m.Message.Time), m.Message.Text)
	case store.KindAudit:
		a := *r.Audit
		var list string
		if list, err = rows.AuditRows([]store.AuditRecord{a}, rows.Column); err == nil {
			_, err = t.exec(insertAudit, list)
		}
	default:
		err = core.Errorf(core.CodeInvalidContent, "a record holds nothing that this release knows")
	}
	return err
}

const importOperation = `INSERT INTO operations (id, resource_key, resource_id, verb, api_version, state, error, grp, parent,
	parked, children, worker, fence, lease_until, attempts, created, started, ended, deadline, cancel_requested, trace)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?, 0, ?, ?, ?, ?, ?, ?, ?)`

// Integrity implements [store.Portable].
func (s *Store) Integrity(ctx context.Context) ([]string, error) {
	var out []string
	err := s.readRows(ctx, `PRAGMA integrity_check(100)`, nil, func(sc scan) error {
		var line string
		err := sc(&line)
		if line != "ok" {
			out = append(out, line)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = s.readRows(ctx, `PRAGMA foreign_key_check`, nil, func(sc scan) error {
		var table, parent string
		var row sql.NullInt64
		var key int64
		err := sc(&table, &row, &parent, &key)
		out = append(out, "a row of "+table+" names a row of "+parent+" that is not there")
		return err
	})
	return out, err
}
