package stack

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"

	"github.com/radial-project/radial/internal/core"
)

// format is the form of documents that this release writes.
const format = 1

// maxDocument bounds a document that is read, uncompressed, in bytes.
const maxDocument = 256 << 20

// Document is what keeps a stack where there is no control plane: its record and
// the engine's journal. It holds no secret.
type Document struct {
	Format  int           `json:"format"`
	Record  Record        `json:"record"`
	Journal []core.Output `json:"journal,omitempty"`
}

// Encode writes a document as JSON.
func (d Document) Encode() ([]byte, error) {
	d.Format = format
	raw, err := json.Marshal(d)
	if err != nil {
		return nil, core.Errorf(core.CodeInternal, "the record of stack %s cannot be written: %w", d.Record.ID, err)
	}
	return raw, nil
}

// Pack writes a document compressed: entries differ by little.
func (d Document) Pack() ([]byte, error) {
	raw, err := d.Encode()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(raw); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Decode reads what Encode or Pack wrote.
func Decode(raw []byte) (Document, error) {
	var d Document
	if len(raw) > 1 && raw[0] == 0x1f && raw[1] == 0x8b {
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err == nil {
			raw, err = io.ReadAll(io.LimitReader(z, maxDocument))
		}
		if err != nil {
			return d, core.Errorf(core.CodeInternal, "the record of a stack is damaged: %w", err)
		}
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, core.Errorf(core.CodeInternal, "the record of a stack cannot be read: %w", err)
	}
	if d.Format > format {
		return d, core.Errorf(CodeOutOfSync, "the record of stack %s was written by a later release (form %d; this one knows %d): use that release", d.Record.ID.Name(), d.Format, format)
	}
	return d, nil
}

// Noted returns a journal with entries put and dropped.
func Noted(journal []core.Output, put []core.Output, drop []core.ID) []core.Output {
	at := make(map[string]int, len(journal))
	gone := make(map[string]bool, len(drop))
	for _, id := range drop {
		gone[id.Key()] = true
	}
	kept := make([]core.Output, 0, len(journal)+len(put))
	for _, o := range journal {
		if !gone[o.ID.Key()] {
			at[o.ID.Key()] = len(kept)
			kept = append(kept, o)
		}
	}
	for _, o := range put {
		if i, ok := at[o.ID.Key()]; ok {
			kept[i] = o
			continue
		}
		at[o.ID.Key()] = len(kept)
		kept = append(kept, o)
	}
	return kept
}

// LockedError is the Conflict of a stack that another holds.
func LockedError(id core.ID, holder string) *core.Error {
	return core.Errorf(core.CodeConflict, "stack %s is being changed by %s: wait until that has ended, and repeat", id.Name(), holder).WithTarget(id.String())
}

// LostError is the OperationFenced of a session whose lock another took.
func LostError(id core.ID) *core.Error {
	return core.Errorf(core.CodeFenced, "the lock of stack %s was lost to another process, which goes on with it: this one stops", id.Name()).WithTarget(id.String())
}

// NotFoundError says that a stack has no record; where is the place that was
// looked at.
func NotFoundError(id core.ID, where string) *core.Error {
	return core.Errorf(core.CodeNotFound, "stack %s does not exist (%s)", id.Name(), where).WithTarget(id.String())
}
