// Package fuzztest says what every fuzz target of ours has to hold beside its
// own rules.
package fuzztest

import (
	"runtime"
	"testing"
)

// What one call may allocate: a part that every call may have (tables that are
// made once, caches) and one that grows with the input. A parser that a small
// input can make allocate without bound is a way to stop the server.
const (
	fixed   = 32 << 20
	perByte = 16 << 10
)

// Bounded runs f, which handles an input of so many bytes, and fails the test
// when it allocates more than in proportion. Targets run one input at a time in
// a process, so what is allocated meanwhile is theirs.
func Bounded(tb testing.TB, bytes int, f func()) {
	tb.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if took, limit := after.TotalAlloc-before.TotalAlloc, uint64(fixed+bytes*perByte); took > limit {
		tb.Errorf("an input of %d bytes made it allocate %d bytes, more than %d", bytes, took, limit)
	}
}
