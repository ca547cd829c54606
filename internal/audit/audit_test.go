package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// sink keeps records, fails while told to, and may hold an Append until it is
// let go.
type sink struct {
	mu      sync.Mutex
	records []Record
	batches int
	fail    error
	entered chan struct{} // gets one value per Append
	gate    chan struct{} // nil: open
}

func (s *sink) Append(ctx context.Context, records []Record) error {
	if s.entered != nil {
		s.entered <- struct{}{}
	}
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.records = append(s.records, records...)
	s.batches++
	return nil
}

func TestBatchesInOrder_D46(t *testing.T) {
	t.Parallel()
	s := &sink{}
	l := New(Options{Sink: s, Batch: 100})
	const n = 1000
	for i := range n {
		l.Record(Record{Request: string(rune('a' + i%26)), Verb: "read", Lost: int64(i)})
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.records) != n || s.batches > n/100+2 {
		t.Fatalf("D-46: %d records in %d batches, want %d in about %d", len(s.records), s.batches, n, n/100)
	}
	for i, r := range s.records {
		if r.Lost != int64(i) || r.At.IsZero() {
			t.Fatalf("record %d is %+v", i, r)
		}
	}
	if l.Written() != n || l.Dropped() != 0 {
		t.Errorf("written %d, dropped %d", l.Written(), l.Dropped())
	}
}

func TestNeverBlocksNorLosesSilently_D46(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	s := &sink{entered: make(chan struct{}, 1), gate: make(chan struct{})}
	l := New(Options{Sink: s, Queue: 10, Batch: 1, Log: slog.New(slog.NewTextHandler(&said, nil))})
	l.Record(Record{Verb: "first"})
	<-s.entered // the sink holds the first; the queue is empty
	s.entered = nil
	for range 10 {
		l.Record(Record{Verb: "waits"})
	}
	for range 7 { // returns although nothing moves: this test would hang if it did not
		l.Record(Record{Verb: "lost"})
	}
	if l.Dropped() != 7 {
		t.Errorf("D-46: dropped is %d, want 7", l.Dropped())
	}
	close(s.gate)
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var told int64
	kept := 0
	for _, r := range s.records {
		if r.Verb == VerbLost {
			told += r.Lost
		} else {
			kept++
		}
	}
	if kept != 11 || told != 7 {
		t.Errorf("D-46: %d records and %d told of as lost, want 11 and 7", kept, told)
	}
	if n := strings.Count(said.String(), "missing from the audit log"); n != 1 {
		t.Errorf("the log tells of it %d times: %s", n, said.String())
	}
}

func TestSinkFailureIsRetried_D46(t *testing.T) {
	t.Parallel()
	s := &sink{fail: errors.New("disk full")}
	tries := make(chan int, 100)
	l := New(Options{Sink: s, Retry: func(n int) time.Duration {
		tries <- n
		return time.Millisecond
	}})
	l.Record(Record{Verb: "read"})
	for n := range tries {
		if n == 3 {
			break
		}
	}
	s.mu.Lock()
	s.fail = nil
	s.mu.Unlock()
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.records) != 1 || l.Dropped() != 0 {
		t.Errorf("D-46: the sink has %v, dropped %d", s.records, l.Dropped())
	}
}

func TestCloseSaysWhatIsLost_D46(t *testing.T) {
	t.Parallel()
	l := New(Options{Sink: &sink{fail: errors.New("disk full")}, Batch: 2, Retry: func(int) time.Duration { return time.Hour }})
	for range 5 {
		l.Record(Record{Verb: "read"})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := l.Close(ctx)
	if err == nil || !strings.Contains(err.Error(), "5 decisions") || l.Dropped() != 5 {
		t.Errorf("D-46: closing says %v, dropped %d, want 5", err, l.Dropped())
	}
	l.Record(Record{Verb: "late"})
	if l.Dropped() != 6 {
		t.Errorf("a record after the end is not counted: %d", l.Dropped())
	}
}

func TestFile_D46(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Append(t.Context(), []Record{{Verb: "read", ID: "/planes/radius/local"}, {Verb: "write"}}); err != nil {
		t.Fatal(err)
	}
	if lines := read(t, path); len(lines) != 2 || lines[0].ID != "/planes/radius/local" {
		t.Fatalf("D-46: the file holds %+v", lines)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v", info.Mode())
	}
	// A rotation moves it away.
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := f.Append(t.Context(), []Record{{Verb: "delete"}}); err != nil {
		t.Fatal(err)
	}
	if lines := read(t, path); len(lines) != 1 || lines[0].Verb != "delete" {
		t.Errorf("D-46: after a rotation the file holds %+v", lines)
	}
}

func read(t *testing.T, path string) (out []Record) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var r Record
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}
