// Package filerecords keeps the records of stacks in a file: the form of
// [stack.Records] for one machine, or for a repository that the file is kept in.
//
// The file is JSON, one member for each stack. It is replaced whole, so that a
// reader sees one state or the next; a lock file beside it, flocked, lets one
// process change it at a time. The kernel frees that lock however the process
// ends. While an update runs, what the engine notes is appended to a second file
// beside it, which goes with the update; after a process was killed the next one
// takes it up.
package filerecords

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/stack"
)

// Records are those of one file.
type Records struct{ path string }

var _ stack.Records = (*Records)(nil)

// New returns the records of a file, which need not exist yet.
func New(path string) *Records { return &Records{path} }

// file is the content: documents by the key of their stack's id.
type file struct {
	Stacks map[string]json.RawMessage `json:"stacks"`
}

func (r *Records) read() (file, error) {
	f := file{Stacks: map[string]json.RawMessage{}}
	raw, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, core.Errorf(core.CodeUnavailable, "the records of stacks cannot be read: %w", err)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return f, nil
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return f, core.Errorf(core.CodeInternal, "%s does not hold records of stacks: %w", r.path, err)
	}
	if f.Stacks == nil {
		f.Stacks = map[string]json.RawMessage{}
	}
	return f, nil
}

// write replaces the file: what is there before or after is whole, and on disk.
func (r *Records) write(f file) (err error) {
	defer func() {
		if err != nil {
			err = core.Errorf(core.CodeUnavailable, "the records of stacks cannot be written: %w", err)
		}
	}()
	raw, err := json.Marshal(f)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(r.path), filepath.Base(r.path)+".new*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(append(raw, '\n'))
	if err == nil {
		err = temporary.Sync()
	}
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary.Name(), r.path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(r.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Read implements [stack.Records].
func (r *Records) Read(_ context.Context, id core.ID) (stack.Record, error) {
	f, err := r.read()
	if err != nil {
		return stack.Record{}, err
	}
	raw, ok := f.Stacks[id.Key()]
	if !ok {
		return stack.Record{}, stack.NotFoundError(id, "in "+r.path)
	}
	d, err := stack.Decode(raw)
	return d.Record, err
}

// List implements [stack.Records].
func (r *Records) List(context.Context) ([]stack.Record, error) {
	f, err := r.read()
	if err != nil {
		return nil, err
	}
	var list []stack.Record
	for _, raw := range f.Stacks {
		d, err := stack.Decode(raw)
		if err != nil {
			return nil, err
		}
		list = append(list, d.Record)
	}
	slices.SortFunc(list, func(a, b stack.Record) int { return strings.Compare(a.ID.Key(), b.ID.Key()) })
	return list, nil
}

// Open implements [stack.Records].
func (r *Records) Open(ctx context.Context, id core.ID) (stack.Session, error) {
	lock, err := r.lock(id)
	if err != nil {
		return nil, err
	}
	s := &session{records: r, ctx: ctx, lock: lock, doc: stack.Document{Record: stack.Record{ID: id}}}
	if err := s.load(id); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// note is one line of the file of notes.
type note struct {
	Stack string        `json:"stack"`
	Put   []core.Output `json:"put,omitempty"`
	Drop  []core.ID     `json:"drop,omitempty"`
}

// load reads the document, and over it the notes of a process that was killed. To
// take one up twice does no harm: the last word on an entry stays the last.
func (s *session) load(id core.ID) (err error) {
	if s.all, err = s.records.read(); err != nil {
		return err
	}
	if raw, ok := s.all.Stacks[id.Key()]; ok {
		if s.doc, err = stack.Decode(raw); err != nil {
			return err
		}
	}
	path := s.records.path + ".notes"
	if s.notes, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return core.Errorf(core.CodeUnavailable, "the notes of an update cannot be kept: %w", err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return core.Errorf(core.CodeUnavailable, "the notes of an update cannot be read: %w", err)
	}
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1] // the last line may be half a one
	for line := range bytes.Lines(whole) {
		var n note
		if err := json.Unmarshal(line, &n); err != nil {
			return core.Errorf(core.CodeInternal, "%s does not hold the notes of an update: %w", path, err)
		}
		if err := s.take(id, n); err != nil {
			return err
		}
	}
	if len(raw) == 0 {
		return nil
	}
	return s.store() // those of other stacks too, whose updates were killed
}

// take puts a note into the document that it is of.
func (s *session) take(id core.ID, n note) error {
	if n.Stack == id.Key() {
		s.doc.Journal = stack.Noted(s.doc.Journal, n.Put, n.Drop)
		return nil
	}
	d := stack.Document{}
	if raw, ok := s.all.Stacks[n.Stack]; ok {
		var err error
		if d, err = stack.Decode(raw); err != nil {
			return err
		}
	} else if err := d.Record.ID.UnmarshalText([]byte(n.Stack)); err != nil {
		return err
	}
	d.Journal = stack.Noted(d.Journal, n.Put, n.Drop)
	raw, err := d.Encode()
	s.all.Stacks[n.Stack] = raw
	return err
}

// store writes all documents, and then the notes are not needed any more.
func (s *session) store() error {
	s.fold()
	if s.removed {
		delete(s.all.Stacks, s.doc.Record.ID.Key())
	} else if s.doc.Record.State != "" || len(s.doc.Journal) > 0 {
		raw, err := s.doc.Encode()
		if err != nil {
			return err
		}
		s.all.Stacks[s.doc.Record.ID.Key()] = raw
	}
	if err := s.records.write(s.all); err != nil {
		return err
	}
	if err := s.notes.Truncate(0); err != nil {
		return core.Errorf(core.CodeUnavailable, "the notes of an update cannot be taken away: %w", err)
	}
	return nil
}

func (r *Records) lock(id core.ID) (*os.File, error) {
	name := r.path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, core.Errorf(core.CodeUnavailable, "%s cannot be locked: %w", r.path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, core.Errorf(core.CodeUnavailable, "%s cannot be locked: %w; put it on a file system that knows flock", r.path, err)
		}
		holder := "another process"
		if b, err := os.ReadFile(name); err == nil && len(bytes.TrimSpace(b)) > 0 {
			holder = "process " + string(bytes.TrimSpace(b))
		}
		return nil, stack.LockedError(id, holder)
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(core.Errorf(core.CodeUnavailable, "%s cannot be locked: %w", r.path, err), unlock(f))
	}
	return f, nil
}

func unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

type session struct {
	records *Records
	ctx     context.Context
	lock    *os.File
	notes   *os.File

	mu      sync.Mutex
	all     file
	doc     stack.Document
	removed bool
	// pending are notes on disk that doc does not have yet: it takes them all at
	// once, since each time costs a walk over the whole journal.
	pending []note
}

// fold takes the notes that are pending into the document.
func (s *session) fold() {
	if len(s.pending) == 0 {
		return
	}
	last := map[string]*core.Output{} // nil: dropped
	var keys []string
	var drop []core.ID
	for _, n := range s.pending {
		for _, id := range n.Drop {
			drop = append(drop, id)
			last[id.Key()] = nil
		}
		for i := range n.Put {
			key := n.Put[i].ID.Key()
			if last[key] == nil {
				keys = append(keys, key)
			}
			last[key] = &n.Put[i]
		}
	}
	var put []core.Output
	for _, key := range keys {
		if o := last[key]; o != nil {
			put = append(put, *o)
			last[key] = nil // one that was dropped in between stands in keys twice
		}
	}
	s.doc.Journal, s.pending = stack.Noted(s.doc.Journal, put, drop), nil
}

func (s *session) Context() context.Context { return s.ctx }

func (s *session) Record() stack.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doc.Record
}

func (s *session) Journal() []core.Output {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fold()
	return slices.Clone(s.doc.Journal)
}

// Note appends: an update of thousands of resources notes them many times.
func (s *session) Note(_ context.Context, put []core.Output, drop []core.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := note{s.doc.Record.ID.Key(), put, drop}
	raw, err := json.Marshal(n)
	if err == nil {
		_, err = s.notes.Write(append(raw, '\n'))
	}
	if err == nil {
		err = s.notes.Sync()
	}
	if err != nil {
		return core.Errorf(core.CodeUnavailable, "the notes of an update cannot be written: %w", err)
	}
	s.pending = append(s.pending, n)
	return nil
}

func (s *session) Save(_ context.Context, r stack.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doc.Record = r
	return s.store()
}

func (s *session) Remove(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = true
	return s.store()
}

// Close gives the lock back, with the notes in their document.
func (s *session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.notes != nil {
		if at, seek := s.notes.Seek(0, io.SeekEnd); seek == nil && at > 0 {
			err = s.store()
		}
		if err == nil {
			err = os.Remove(s.notes.Name())
		}
		err = errors.Join(err, s.notes.Close())
	}
	return errors.Join(err, unlock(s.lock))
}
