// Package backup writes everything that a store holds to one file, and fills an
// empty store from it, of the same kind or of the other.
//
// # The file
//
// It is gzip over lines of JSON: a header, a line for each record in the order
// of [store.Kinds], and a trailer with the number of records and the SHA-256 of
// all bytes before it. So it is streamed in both directions, and a file that was
// cut off or changed is known as such before anything is committed.
//
// Sealed values stay sealed and data keysets stay wrapped: without the key of
// the server a backup tells no secret, and a restored one opens none.
package backup

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// format and version of the file. A change that an older release would misread
// raises the version; testdata holds a file of each that was ever written.
const (
	format  = "radial-backup"
	version = 1
)

// maxLine bounds one record, in bytes: far above what a request may bring in.
const maxLine = 64 << 20

// Header is the first line.
type Header struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	Release string    `json:"release"`
	Time    time.Time `json:"time"`
	// Records are announced by kind, for progress.
	Records map[store.Kind]int `json:"records"`
}

// Total is how many records are announced.
func (h Header) Total() int {
	n := 0
	for _, k := range h.Records {
		n += k
	}
	return n
}

// record is a line: the field of its kind is set.
type record struct {
	Keyset    *store.Keyset         `json:"keyset,omitempty"`
	Manifest  *store.ManifestRecord `json:"manifest,omitempty"`
	Resource  *store.ResourceRecord `json:"resource,omitempty"`
	Operation *core.Operation       `json:"operation,omitempty"`
	Message   *store.MessageRecord  `json:"message,omitempty"`
	Audit     *store.AuditRecord    `json:"audit,omitempty"`
	// End is the trailer.
	End *trailer `json:"end,omitempty"`
}

type trailer struct {
	Records int    `json:"records"`
	SHA256  string `json:"sha256"`
}

// Summary is what was written, read or filled in.
type Summary struct {
	Header
	// SHA256 is of the uncompressed content before the trailer, in hex.
	SHA256 string `json:"sha256"`
}

// Progress is told how many of the announced records are done; nil is nobody.
type Progress func(done, total int)

func (p Progress) tell(done, total int) {
	if p != nil {
		p(done, total)
	}
}

// Write writes a snapshot of the store. Writes go on meanwhile and are not in it.
func Write(ctx context.Context, from store.Portable, to io.Writer, now time.Time, p Progress) (Summary, error) {
	out := gzip.NewWriter(to)
	w := &writer{sum: sha256.New()}
	w.to = io.MultiWriter(out, w.sum)
	s := Summary{Header: Header{Format: format, Version: version, Release: core.Version, Time: now.UTC()}}
	done, total := 0, 0
	err := from.Export(ctx, func(counts map[store.Kind]int) error {
		s.Records = counts
		total = s.Total()
		return w.line(s.Header)
	}, func(r store.Record) error {
		done++
		p.tell(done, total)
		return w.line(record{Keyset: r.Keyset, Manifest: r.Manifest, Resource: r.Resource, Operation: r.Operation, Message: r.Message, Audit: r.Audit})
	})
	if err != nil {
		return s, err
	}
	s.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	if err := w.line(record{End: &trailer{Records: done, SHA256: s.SHA256}}); err != nil {
		return s, err
	}
	return s, out.Close()
}

type writer struct {
	to  io.Writer
	sum hash.Hash
	buf bytes.Buffer
}

// line writes one line; bodies keep their bytes as far as JSON lets them.
func (w *writer) line(v any) error {
	w.buf.Reset()
	e := json.NewEncoder(&w.buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.to.Write(w.buf.Bytes())
	return err
}

// Restore fills an empty store: all or nothing. Conflict when the store holds
// anything, InvalidRequestContent when the file is none, is damaged, or of a
// newer release.
func Restore(ctx context.Context, to store.Portable, from io.Reader, p Progress) (Summary, error) {
	r, err := open(from)
	if err != nil {
		return Summary{}, err
	}
	total := r.header.Total()
	err = to.Import(ctx, func() (store.Record, error) {
		if err := ctx.Err(); err != nil {
			return store.Record{}, err
		}
		one, err := r.next()
		if err == nil {
			p.tell(r.done, total)
		}
		return one, err
	})
	return Summary{Header: r.header, SHA256: r.digest}, err
}

// Verify reads a whole file as Restore would, and keeps nothing.
func Verify(ctx context.Context, from io.Reader, p Progress) (Summary, error) {
	r, err := open(from)
	if err != nil {
		return Summary{}, err
	}
	for err == nil {
		if err = ctx.Err(); err == nil {
			if _, err = r.next(); err == nil {
				p.tell(r.done, r.header.Total())
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return Summary{Header: r.header, SHA256: r.digest}, err
}

type reader struct {
	lines  *bufio.Reader
	sum    hash.Hash
	header Header
	done   int
	digest string
}

func damaged(why string, args ...any) *core.Error {
	return core.Errorf(core.CodeInvalidContent, "the backup is damaged, and nothing was changed: "+why+"; take another copy of it", args...)
}

func open(from io.Reader) (*reader, error) {
	in, err := gzip.NewReader(from)
	if err != nil {
		return nil, core.Errorf(core.CodeInvalidContent, "this is no backup of Radial: %w", err)
	}
	r := &reader{lines: bufio.NewReaderSize(in, 1<<20), sum: sha256.New()}
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(line, &r.header) != nil || r.header.Format != format {
		return nil, core.Errorf(core.CodeInvalidContent, "this is no backup of Radial: it does not begin like one")
	}
	if r.header.Version > version {
		return nil, core.Errorf(core.CodeInvalidContent, "the backup was written by a newer release (%s, format %d; this release reads up to %d): restore it with that one", r.header.Release, r.header.Version, version)
	}
	r.sum.Write(line)
	return r, nil
}

// line reads one line, with its end.
func (r *reader) line() ([]byte, error) {
	var line []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, damaged("record %d is longer than %d bytes", r.done+1, maxLine)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, damaged("it ends after record %d of %d", r.done, r.header.Total())
		default:
			return nil, damaged("it cannot be read after record %d of %d: %w", r.done, r.header.Total(), err)
		}
	}
}

// next returns a record, and io.EOF after the trailer has vouched for all of them.
func (r *reader) next() (store.Record, error) {
	line, err := r.line()
	if err != nil {
		return store.Record{}, err
	}
	var one record
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&one); err != nil {
		return store.Record{}, damaged("record %d cannot be read", r.done+1)
	}
	if end := one.End; end != nil {
		r.digest = hex.EncodeToString(r.sum.Sum(nil))
		if end.Records != r.done || end.SHA256 != r.digest {
			return store.Record{}, damaged("its checksum is not that of its %d records", r.done)
		}
		// Reading on to the end also checks the compression's own checksum.
		if _, err := r.lines.ReadByte(); !errors.Is(err, io.EOF) {
			return store.Record{}, damaged("something follows its end")
		}
		return store.Record{}, io.EOF
	}
	r.sum.Write(line)
	r.done++
	out := store.Record{Keyset: one.Keyset, Manifest: one.Manifest, Resource: one.Resource, Operation: one.Operation, Message: one.Message, Audit: one.Audit}
	if out.Kind() == "" {
		return store.Record{}, damaged("record %d holds nothing that this release knows", r.done)
	}
	return out, nil
}
