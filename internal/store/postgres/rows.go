package postgres

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
)

// scan reads the columns of the current row.
type scan func(into ...any) error

const (
	resourceColumns = `r.id, r.api_version, r.location, r.tags, r.properties, r.status, r.secrets, r.state, r.etag,
		r.application, r.environment, r.owner_cluster, r.owner_namespace, r.owner_kind, r.owner_name, r.owner_uid,
		r.implicit, r.system_data, r.keyset`
	operationColumns = `o.id, o.resource_id, o.verb, o.api_version, o.state, o.error, o.grp, o.parent, o.parked, o.children,
		o.worker, o.fence, o.lease_until, o.attempts, o.created, o.started, o.ended, o.deadline, o.cancel_requested`
	outputColumns = `u.resource_key, u.id, u.local_id, u.state, u.managed, u.depends_on, u.handle`
)

// bare is a column list for RETURNING, where no alias of the table stands.
func bare(columns, alias string) string { return strings.ReplaceAll(columns, alias+".", "") }

// resourceRow takes the columns of resourceColumns.
type resourceRow struct {
	r                         core.Resource
	id, application, env, sys string
	tags, props, stat, secret sql.NullString
	keyset                    sql.NullInt64
}

func (w *resourceRow) columns() []any {
	o := &w.r.Owner
	return []any{&w.id, &w.r.APIVersion, &w.r.Location, &w.tags, &w.props, &w.stat, &w.secret, &w.r.State, &w.r.ETag,
		&w.application, &w.env, &o.Cluster, &o.Namespace, &o.Kind, &o.Name, &o.UID, &w.r.Implicit, &w.sys, &w.keyset}
}

func (w *resourceRow) resource() (core.Resource, error) {
	w.r.Properties, w.r.Status, w.r.Keyset = rawJSON(w.props), rawJSON(w.stat), w.keyset.Int64
	err := first(
		parseID(w.id, &w.r.ID), parseID(w.application, &w.r.Application), parseID(w.env, &w.r.Environment),
		fromJSON(w.tags, &w.r.Tags), fromJSON(w.secret, &w.r.Secrets),
		fromJSON(sql.NullString{String: w.sys, Valid: true}, &w.r.SystemData),
	)
	if err != nil {
		return core.Resource{}, fmt.Errorf("row of %s: %w", w.id, err)
	}
	return w.r, nil
}

// operationRow takes the columns of operationColumns. All may be NULL, for an
// outer join.
type operationRow struct {
	id, resource, verb, version, state, fail, group, parent, worker sql.NullString
	parked                                                          sql.NullBool
	children, fence, until, attempts, created, started, ended, dead sql.NullInt64
	cancel                                                          sql.NullInt64
}

func (w *operationRow) columns() []any {
	return []any{&w.id, &w.resource, &w.verb, &w.version, &w.state, &w.fail, &w.group, &w.parent, &w.parked, &w.children,
		&w.worker, &w.fence, &w.until, &w.attempts, &w.created, &w.started, &w.ended, &w.dead, &w.cancel}
}

func (w *operationRow) operation() (core.Operation, error) {
	o := core.Operation{
		ID: w.id.String, Verb: core.Verb(w.verb.String), APIVersion: w.version.String, State: core.State(w.state.String),
		Group: w.group.String, Parent: w.parent.String, Parked: w.parked.Bool, Children: int(w.children.Int64),
		Worker: w.worker.String, Fence: w.fence.Int64, LeaseUntil: moment(w.until.Int64), Attempts: int(w.attempts.Int64),
		Created: moment(w.created.Int64), Started: moment(w.started.Int64), Ended: moment(w.ended.Int64), Deadline: moment(w.dead.Int64),
		CancelRequested: moment(w.cancel.Int64),
	}
	if err := first(parseID(w.resource.String, &o.ResourceID), fromJSON(w.fail, &o.Error)); err != nil {
		return core.Operation{}, fmt.Errorf("row of operation %s: %w", o.ID, err)
	}
	return o, nil
}

// resourceValues are the values of a row in the order of insertResource. The
// second half of a row's life (an update) takes them from the fourth on.
func resourceValues(r core.Resource, rowType string) ([]any, error) {
	tags, err1 := toJSON(r.Tags, len(r.Tags) == 0)
	secrets, err2 := toJSON(r.Secrets, len(r.Secrets) == 0)
	sys, err3 := json.Marshal(r.SystemData)
	if err := first(err1, err2, err3); err != nil {
		return nil, core.Errorf(core.CodeInternal, "write %s: %w", r.ID, err)
	}
	return []any{
		r.ID.Key(), r.ID.String(), strings.ToLower(rowType),
		r.APIVersion, r.Location, tags, text(r.Properties), text(r.Status), secrets, string(r.State), r.ETag,
		r.Application.String(), key(r.Application), r.Environment.String(), key(r.Environment),
		r.Owner.Cluster, r.Owner.Namespace, r.Owner.Kind, r.Owner.Name, r.Owner.UID, r.Implicit, string(sys), version(r.Keyset),
	}, nil
}

// key is what an indexed id column keeps: NULL for none.
func key(id core.ID) any {
	if id.IsZero() {
		return nil
	}
	return id.Key()
}

func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// version is a version of the data keyset as a row names it: NULL for none.
func version(v int64) any {
	if v == 0 {
		return nil
	}
	return v
}

// text is a JSON value as a column keeps it.
func text(raw json.RawMessage) any {
	if raw == nil {
		return nil
	}
	return string(raw)
}

func rawJSON(s sql.NullString) json.RawMessage {
	if !s.Valid {
		return nil
	}
	return json.RawMessage(s.String)
}

func toJSON(v any, none bool) (any, error) {
	if none {
		return nil, nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}

func fromJSON(s sql.NullString, into any) error {
	if !s.Valid || s.String == "" {
		return nil
	}
	return json.Unmarshal([]byte(s.String), into)
}

func parseID(s string, into *core.ID) (err error) {
	if s != "" {
		*into, err = core.ParseID(s)
	}
	return err
}

// moment is a column's time; 0 is the zero time.
func moment(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos).UTC()
}

// column is a time as a column keeps it.
func column(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
