package store

import (
	"context"
	"time"
)

// Audit keeps who was allowed and refused what (D-46). Records are added and,
// when they are old, swept; nothing changes one.
type Audit interface {
	// AppendAudit adds records, all or none.
	AppendAudit(ctx context.Context, records []AuditRecord) error
	// AuditRecords returns a page, the newest first.
	AuditRecords(ctx context.Context, q AuditQuery) (AuditPage, error)
}

// AuditRecord is one decision. It never holds a secret.
type AuditRecord struct {
	// Seq is given by the store.
	Seq  int64     `json:"seq"`
	Time time.Time `json:"time"`
	// Principal is who asked, as authentication named it.
	Principal string `json:"principal"`
	// Action is what was asked for, such as "write Applications.Core/containers".
	Action string `json:"action"`
	// Target is the id it was asked for.
	Target  string `json:"target"`
	Allowed bool   `json:"allowed"`
	// Reason is the role assignment or the rule that decided.
	Reason string `json:"reason,omitempty"`
	// Source is the address asked from; Request the id that the logs have too.
	Source  string `json:"source,omitempty"`
	Request string `json:"request,omitempty"`
}

// AuditQuery selects records. Zero fields do not restrict.
type AuditQuery struct {
	Principal string
	// Target is an id; what was asked at or below it matches, without case.
	Target string
	// Refused leaves out what was allowed.
	Refused bool
	// From is included, To is not.
	From, To time.Time
	Limit    int
	// After is the Next of the page before.
	After string
}

// AuditPage is one page of records; Next is "" on the last.
type AuditPage struct {
	Records []AuditRecord
	Next    string
}
