package client

import (
	"context"
	"strconv"
	"time"
)

// auditRecords is where the audit log is read.
const auditRecords = "/planes/radius/local/providers/System.Resources/auditRecords"

// AuditRecord is one decision of the control plane about who may do what.
type AuditRecord struct {
	Seq       int64     `json:"seq"`
	Time      time.Time `json:"time"`
	Principal string    `json:"principal"`
	Action    string    `json:"action"`
	Target    string    `json:"target"`
	Allowed   bool      `json:"allowed"`
	Reason    string    `json:"reason,omitempty"`
	Source    string    `json:"source,omitempty"`
	Request   string    `json:"request,omitempty"`
}

// AuditQuery narrows the audit log. Zero fields do not restrict.
type AuditQuery struct {
	// Principal as records have it, such as user:ann.
	Principal string
	// ID is an id: what was asked at or below it.
	ID string
	// Since is included, Until is not.
	Since, Until time.Time
	// Refused leaves out what was allowed.
	Refused bool
	// Limit ends the list early; 0 is all of it.
	Limit int
}

// AuditRecords lists decisions, the newest first.
func (c *Client) AuditRecords(ctx context.Context, q AuditQuery) ([]AuditRecord, error) {
	query := version(apiVersionUCP)
	for name, v := range map[string]string{"principal": q.Principal, "id": q.ID} {
		if v != "" {
			query.Set(name, v)
		}
	}
	for name, t := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !t.IsZero() {
			query.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if q.Refused {
		query.Set("refused", "true")
	}
	if q.Limit > 0 {
		query.Set("top", strconv.Itoa(min(q.Limit, 1000)))
	}
	return collect[AuditRecord](ctx, c, auditRecords, query, q.Limit)
}
