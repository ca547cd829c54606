package clustertest

import (
	"flag"
	"os"
	"testing"
)

// Long leaves a test out of a plain `go test ./...`, which is to stay a matter
// of a few minutes: one of those that together wait for minutes, as the garbage
// collector does that learns new kinds every half minute. `make test` runs all
// (RADIAL_REQUIRE_TOOLS=1), and so does go test with a -run of one's own.
func Long(tb testing.TB) {
	tb.Helper()
	if !Whole() {
		tb.Skip("left out of a plain go test, as it takes long: make test runs it, and so does -run with its name (or RADIAL_REQUIRE_TOOLS=1)")
	}
}

// Whole reports whether the run is one that [Long] leaves nothing out of.
func Whole() bool {
	if os.Getenv("RADIAL_REQUIRE_TOOLS") == "1" {
		return true
	}
	if !flag.Parsed() { // a TestMain asks before the tests run
		flag.Parse()
	}
	run := flag.Lookup("test.run")
	return run != nil && run.Value.String() != ""
}
