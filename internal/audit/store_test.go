package audit

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
)

func TestStoreSink_D46(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "radial.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	l := New(Options{Sink: StoreSink{db}})
	const id = "/planes/radius/local/resourceGroups/g/providers/Applications.Core/containers/c"
	l.Record(Record{Principal: "user:a", Verb: "write", ID: id, Allowed: true, Reason: "Contributor", Source: "10.0.0.1", Request: "r1"})
	l.Record(Record{Principal: "user:b", Verb: "discover", ID: "/planes", Request: "r2"})
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := db.AuditRecords(t.Context(), store.AuditQuery{})
	if err != nil || len(page.Records) != 2 {
		t.Fatalf("%+v, %v", page, err)
	}
	got := page.Records[1]
	if got.Principal != "user:a" || got.Action != "write Applications.Core/containers" || got.Target != id || !got.Allowed || got.Reason != "Contributor" ||
		got.Source != "10.0.0.1" || got.Request != "r1" || time.Since(got.Time) > time.Minute {
		t.Errorf("D-46: the store has %+v", got)
	}
}

func TestSinks_D46(t *testing.T) {
	t.Parallel()
	good, bad := &sink{}, &sink{fail: errors.New("down")}
	all := Sinks(good, bad)
	if err := all.Append(t.Context(), []Record{{Verb: "read"}}); err == nil {
		t.Error("a failure is no failure")
	}
	bad.fail = nil
	if err := all.Append(t.Context(), []Record{{Verb: "read"}}); err != nil {
		t.Error(err)
	}
	if err := all.Append(t.Context(), []Record{{Verb: "write"}}); err != nil {
		t.Error(err)
	}
	if len(good.records) != 2 || len(bad.records) != 2 {
		t.Errorf("D-46: %v and %v", good.records, bad.records)
	}
}
