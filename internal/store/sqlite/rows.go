package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store/rows"
)

type scan = rows.Scan

// eachRow runs a query and calls each for every row of its answer.
func eachRow(ctx context.Context, st *sql.Stmt, args []any, each func(scan) error) (err error) {
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

const outputColumns = `u.resource_key, u.id, u.local_id, u.state, u.managed, u.depends_on, u.handle, u.claimed`

// scanOutput reads outputColumns.
func scanOutput(s scan) (resourceKey string, o core.Output, err error) {
	var id string
	var depends, handle sql.NullString
	if err := s(&resourceKey, &id, &o.LocalID, &o.State, &o.Managed, &depends, &handle, &o.Claimed); err != nil {
		return "", o, err
	}
	o.Handle = rows.RawJSON(handle)
	if err := rows.First(rows.ParseID(id, &o.ID), rows.FromJSON(depends, &o.DependsOn)); err != nil {
		return "", o, fmt.Errorf("output %s: %w", id, err)
	}
	return resourceKey, o, nil
}

const (
	insertResource = insertColumns + valueList
	insertColumns  = `INSERT INTO resources (key, id, type,
		api_version, location, tags, properties, status, secrets, state, etag,
		application, application_key, environment, environment_key,
		owner_cluster, owner_namespace, owner_kind, owner_name, owner_uid, implicit, system_data, keyset) VALUES `
	valueList = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	// replaceResource keeps key, id and type of a row that is there.
	replaceResource = ` ON CONFLICT (key) DO UPDATE SET api_version = excluded.api_version, location = excluded.location,
		tags = excluded.tags, properties = excluded.properties, status = excluded.status, secrets = excluded.secrets,
		state = excluded.state, etag = excluded.etag, application = excluded.application, application_key = excluded.application_key,
		environment = excluded.environment, environment_key = excluded.environment_key,
		owner_cluster = excluded.owner_cluster, owner_namespace = excluded.owner_namespace, owner_kind = excluded.owner_kind,
		owner_name = excluded.owner_name, owner_uid = excluded.owner_uid, implicit = excluded.implicit,
		system_data = excluded.system_data, keyset = excluded.keyset`
	insertOperation = `INSERT INTO operations (id, resource_key, resource_id, verb, api_version, state, grp, parent,
		parked, children, worker, fence, lease_until, attempts, created, started, ended, deadline, trace)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '', 0, 0, 0, ?, 0, 0, ?, ?)`
)
