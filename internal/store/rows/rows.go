// Package rows reads and writes rows of the tables that both SQL stores have, in
// columns of the same names: how a resource and an operation lie there is
// decided once.
package rows

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
)

// The columns of the two, with the alias of their table.
const (
	ResourceColumns = `r.id, r.api_version, r.location, r.tags, r.properties, r.status, r.secrets, r.state, r.etag,
		r.application, r.environment, r.owner_cluster, r.owner_namespace, r.owner_kind, r.owner_name, r.owner_uid,
		r.implicit, r.system_data, r.keyset`
	OperationColumns = `o.id, o.resource_id, o.verb, o.api_version, o.state, o.error, o.grp, o.parent, o.parked, o.children,
		o.worker, o.fence, o.lease_until, o.attempts, o.created, o.started, o.ended, o.deadline, o.cancel_requested, o.trace`
)

// Bare is a column list for RETURNING, where no alias of the table stands.
func Bare(columns, alias string) string { return strings.ReplaceAll(columns, alias+".", "") }

// Resource takes the columns of ResourceColumns.
type Resource struct {
	r                         core.Resource
	id, application, env, sys string
	tags, props, stat, secret sql.NullString
	keyset                    sql.NullInt64
}

// Columns are the places to scan a row into.
func (w *Resource) Columns() []any {
	o := &w.r.Owner
	return []any{&w.id, &w.r.APIVersion, &w.r.Location, &w.tags, &w.props, &w.stat, &w.secret, &w.r.State, &w.r.ETag,
		&w.application, &w.env, &o.Cluster, &o.Namespace, &o.Kind, &o.Name, &o.UID, &w.r.Implicit, &w.sys, &w.keyset}
}

// Resource is the row that was scanned.
func (w *Resource) Resource() (core.Resource, error) {
	w.r.Properties, w.r.Status, w.r.Keyset = RawJSON(w.props), RawJSON(w.stat), w.keyset.Int64
	err := First(
		ParseID(w.id, &w.r.ID), ParseID(w.application, &w.r.Application), ParseID(w.env, &w.r.Environment),
		FromJSON(w.tags, &w.r.Tags), FromJSON(w.secret, &w.r.Secrets),
		FromJSON(sql.NullString{String: w.sys, Valid: true}, &w.r.SystemData),
	)
	if err != nil {
		return core.Resource{}, fmt.Errorf("row of %s: %w", w.id, err)
	}
	return w.r, nil
}

// Operation takes the columns of OperationColumns. All may be NULL, for an
// outer join.
type Operation struct {
	id, resource, verb, version, state, fail, group, parent, worker sql.NullString
	parked                                                          sql.NullBool
	children, fence, until, attempts, created, started, ended, dead sql.NullInt64
	cancel                                                          sql.NullInt64
	trace                                                           sql.NullString
}

// Found says that an outer join has found one.
func (w *Operation) Found() bool { return w.id.Valid }

// Columns are the places to scan a row into.
func (w *Operation) Columns() []any {
	return []any{&w.id, &w.resource, &w.verb, &w.version, &w.state, &w.fail, &w.group, &w.parent, &w.parked, &w.children,
		&w.worker, &w.fence, &w.until, &w.attempts, &w.created, &w.started, &w.ended, &w.dead, &w.cancel, &w.trace}
}

// Operation is the row that was scanned.
func (w *Operation) Operation() (core.Operation, error) {
	o := core.Operation{
		ID: w.id.String, Verb: core.Verb(w.verb.String), APIVersion: w.version.String, State: core.State(w.state.String),
		Group: w.group.String, Parent: w.parent.String, Parked: w.parked.Bool, Children: int(w.children.Int64),
		Worker: w.worker.String, Fence: w.fence.Int64, LeaseUntil: Moment(w.until.Int64), Attempts: int(w.attempts.Int64),
		Created: Moment(w.created.Int64), Started: Moment(w.started.Int64), Ended: Moment(w.ended.Int64), Deadline: Moment(w.dead.Int64),
		CancelRequested: Moment(w.cancel.Int64), Trace: w.trace.String,
	}
	if err := First(ParseID(w.resource.String, &o.ResourceID), FromJSON(w.fail, &o.Error)); err != nil {
		return core.Operation{}, fmt.Errorf("row of operation %s: %w", o.ID, err)
	}
	return o, nil
}

// ResourceValues are the values of a row in the order of insertResource. The
// second half of a row's life (an update) takes them from the fourth on.
func ResourceValues(r core.Resource, rowType string) ([]any, error) {
	tags, err1 := ToJSON(r.Tags, len(r.Tags) == 0)
	secrets, err2 := ToJSON(r.Secrets, len(r.Secrets) == 0)
	sys, err3 := json.Marshal(r.SystemData)
	if err := First(err1, err2, err3); err != nil {
		return nil, core.Errorf(core.CodeInternal, "write %s: %w", r.ID, err)
	}
	return []any{
		r.ID.Key(), r.ID.String(), strings.ToLower(rowType),
		r.APIVersion, r.Location, tags, Text(r.Properties), Text(r.Status), secrets, string(r.State), r.ETag,
		r.Application.String(), Key(r.Application), r.Environment.String(), Key(r.Environment),
		r.Owner.Cluster, r.Owner.Namespace, r.Owner.Kind, r.Owner.Name, r.Owner.UID, r.Implicit, string(sys), Version(r.Keyset),
	}, nil
}

// Keys are the keys of ids, as a parameter that is a list.
func Keys(ids []core.ID) []string {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = id.Key()
	}
	return keys
}

// Key is what an indexed id column keeps: NULL for none.
func Key(id core.ID) any {
	if id.IsZero() {
		return nil
	}
	return id.Key()
}

// Nullable is NULL for the empty string.
func Nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// Version is a version of the data keyset as a row names it: NULL for none.
func Version(v int64) any {
	if v == 0 {
		return nil
	}
	return v
}

// Text is a JSON value as a column keeps it.
func Text(raw json.RawMessage) any {
	if raw == nil {
		return nil
	}
	return string(raw)
}

// RawJSON is a column as a JSON value, nil for NULL.
func RawJSON(s sql.NullString) json.RawMessage {
	if !s.Valid {
		return nil
	}
	return json.RawMessage(s.String)
}

// ToJSON is a value as a column keeps it: NULL for none.
func ToJSON(v any, none bool) (any, error) {
	if none {
		return nil, nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}

// FromJSON reads what ToJSON wrote.
func FromJSON(s sql.NullString, into any) error {
	if !s.Valid || s.String == "" {
		return nil
	}
	return json.Unmarshal([]byte(s.String), into)
}

// ParseID reads an id; empty text is the zero ID.
func ParseID(s string, into *core.ID) (err error) {
	if s != "" {
		*into, err = core.ParseID(s)
	}
	return err
}

// Moment is a column's time; 0 is the zero time.
func Moment(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos).UTC()
}

// Column is a time as a column keeps it.
func Column(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// First is the first error that is one.
func First(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
