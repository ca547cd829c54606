package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// File is a sink that appends JSON lines to a file which a log shipper reads.
// Each batch is one write and is on disk when it returns. Half a line that a
// crash left is ended when the file is opened, so that it spoils no other.
type File struct {
	mu   sync.Mutex
	path string
	f    *os.File
}

// OpenFile opens or makes the file, readable by its owner only.
func OpenFile(path string) (*File, error) {
	s := &File{path: path}
	return s, s.open()
}

func (s *File) open() error {
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the audit file: %w", err)
	}
	s.f = f
	var last [1]byte
	switch end, err := f.Seek(0, io.SeekEnd); {
	case err != nil:
		return err
	case end > 0:
		if _, err := f.ReadAt(last[:], end-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			_, err := f.Write([]byte("\n"))
			return err
		}
	}
	return nil
}

// Append implements [Sink]. A file that a rotation moved away is made anew.
func (s *File) Append(_ context.Context, records []Record) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, r := range records {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.follow(); err != nil {
		return err
	}
	end, err := s.f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := s.f.Write(b.Bytes()); err != nil {
		return errors.Join(fmt.Errorf("cannot write %s: %w", s.path, err), s.f.Truncate(end))
	}
	return s.f.Sync()
}

// follow opens the path again when it no longer is the file that is open.
func (s *File) follow() error {
	there, err := os.Stat(s.path)
	if err == nil {
		have, err := s.f.Stat()
		if err == nil && os.SameFile(there, have) {
			return nil
		}
	}
	_ = s.f.Close()
	return s.open()
}

// Close closes the file.
func (s *File) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.f.Close()
}
