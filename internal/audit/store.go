package audit

import (
	"context"
	"errors"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// StoreSink keeps records in the control plane's store, which sweeps the old.
type StoreSink struct{ Store store.Audit }

// Append implements [Sink].
func (s StoreSink) Append(ctx context.Context, records []Record) error {
	rows := make([]store.AuditRecord, len(records))
	for i, r := range records {
		rows[i] = store.AuditRecord{Time: r.At, Principal: r.Principal, Action: r.action(), Target: r.ID, Allowed: r.Allowed,
			Reason: r.Reason, Source: r.Source, Request: r.Request}
	}
	return s.Store.AppendAudit(ctx, rows)
}

// action is the verb and the type that it was wanted of.
func (r Record) action() string {
	id, err := core.ParseID(r.ID)
	if err != nil || id.Type() == "" {
		return r.Verb
	}
	return strings.TrimSpace(r.Verb + " " + id.Type())
}

// Sinks gives records to all of several sinks. A sink that took them is not
// given them again while another fails.
func Sinks(sinks ...Sink) Sink { return &several{sinks: sinks, has: make([]bool, len(sinks))} }

// several is used by one log, which appends one batch at a time.
type several struct {
	sinks []Sink
	has   []bool
}

// Append implements [Sink].
func (s *several) Append(ctx context.Context, records []Record) error {
	var failed []error
	for i, sink := range s.sinks {
		if s.has[i] {
			continue
		}
		err := sink.Append(ctx, records)
		s.has[i] = err == nil
		failed = append(failed, err)
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	clear(s.has)
	return nil
}
