package store

import (
	"context"
	"encoding/json"

	"github.com/radial-project/radial/internal/core"
)

// Portable moves everything a store holds, whatever it is made of; package
// backup writes it to a file and reads it back.
type Portable interface {
	// Export calls begin with the number of records of each kind, then each
	// for every record, from one snapshot: writes go on meanwhile and are not
	// in it. Kinds come in the order of [Kinds], so that what is referred to
	// comes before what refers to it. An error of either ends it.
	//
	// Leases, heartbeats and the change feed are not exported: they belong to
	// running processes.
	Export(ctx context.Context, begin func(map[Kind]int) error, each func(Record) error) error
	// Import fills an empty store from next, which ends with io.EOF, in one
	// transaction: all or nothing. Conflict when the store holds anything.
	// Entity tags are kept, so that what clients hold stays right.
	Import(ctx context.Context, next func() (Record, error)) error
	// Integrity asks the database whether its own structures are sound, and
	// returns what it answers; empty is well. It may take long.
	Integrity(ctx context.Context) ([]string, error)
}

// Kind is a kind of record.
type Kind string

// The kinds of records.
const (
	KindKeyset    Kind = "keyset"
	KindManifest  Kind = "manifest"
	KindResource  Kind = "resource"
	KindOperation Kind = "operation"
	KindMessage   Kind = "message"
	KindAudit     Kind = "audit"
)

// Kinds is the order of an export.
var Kinds = []Kind{KindKeyset, KindManifest, KindResource, KindOperation, KindMessage, KindAudit}

// Record is one thing in a store. The field of its kind is set.
type Record struct {
	Keyset    *Keyset
	Manifest  *ManifestRecord
	Resource  *ResourceRecord
	Operation *core.Operation
	Message   *MessageRecord
	Audit     *AuditRecord
}

// Kind is the kind of the record, "" of an empty one.
func (r Record) Kind() Kind {
	switch {
	case r.Keyset != nil:
		return KindKeyset
	case r.Manifest != nil:
		return KindManifest
	case r.Resource != nil:
		return KindResource
	case r.Operation != nil:
		return KindOperation
	case r.Message != nil:
		return KindMessage
	case r.Audit != nil:
		return KindAudit
	}
	return ""
}

// ManifestRecord is a registered manifest.
type ManifestRecord struct {
	Namespace string
	Manifest  json.RawMessage
}

// ResourceRecord is a row with all that goes with it. Outputs are in the order
// planned.
type ResourceRecord struct {
	Resource core.Resource
	Edges    []core.Edge
	Outputs  []core.Output
}

// MessageRecord is a message of an operation.
type MessageRecord struct {
	Operation string
	Message   Message
}
