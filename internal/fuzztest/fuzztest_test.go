package fuzztest

import "testing"

// failures counts Errorf calls.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.n++ }

var kept []byte

func TestBounded(t *testing.T) {
	f := &failures{TB: t}
	if Bounded(f, 10, func() { kept = make([]byte, 1<<20) }); f.n != 0 {
		t.Error("a megabyte is refused")
	}
	if Bounded(f, 10, func() { kept = make([]byte, 2*fixed) }); f.n != 1 {
		t.Error("twice the bound passes")
	}
	kept = nil
}
