// Package filerecords keeps the records of stacks in a file: the form of
// [stack.Records] for one machine, or for a repository that the file is kept in.
//
// The file is JSON, one member for each stack. It is replaced whole, so that a
// reader sees one state or the next; a lock file beside it, flocked, lets one
// process change it at a time. The kernel frees that lock however the process
// ends.
package filerecords

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	raw, err := json.MarshalIndent(f, "", " ")
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
	f, err := r.read()
	if err == nil {
		s := &session{records: r, ctx: ctx, lock: lock, doc: stack.Document{Record: stack.Record{ID: id}}}
		raw, ok := f.Stacks[id.Key()]
		if !ok {
			return s, nil
		}
		if s.doc, err = stack.Decode(raw); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, unlock(lock))
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

	mu  sync.Mutex
	doc stack.Document
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
	return slices.Clone(s.doc.Journal)
}

// change writes what f makes of the document.
func (s *session) change(f func(*stack.Document)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.doc
	f(&next)
	raw, err := next.Encode()
	if err != nil {
		return err
	}
	all, err := s.records.read()
	if err != nil {
		return err
	}
	all.Stacks[next.Record.ID.Key()] = raw
	if err := s.records.write(all); err != nil {
		return err
	}
	s.doc = next
	return nil
}

func (s *session) Note(_ context.Context, put []core.Output, drop []core.ID) error {
	return s.change(func(d *stack.Document) { d.Journal = stack.Noted(d.Journal, put, drop) })
}

func (s *session) Save(_ context.Context, r stack.Record) error {
	return s.change(func(d *stack.Document) { d.Record = r })
}

func (s *session) Remove(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.records.read()
	if err != nil {
		return err
	}
	delete(all.Stacks, s.doc.Record.ID.Key())
	return s.records.write(all)
}

func (s *session) Close() error { return unlock(s.lock) }
