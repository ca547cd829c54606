package sqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rows"
	"github.com/radial-project/radial/internal/store/storetest"
)

func openInside(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "radial.db"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// traced returns the statements of each call of run since the last.
func traced(t *testing.T, s *Store) (take func() []string) {
	t.Helper()
	var said []string
	if err := s.writer.do(t.Context(), func(x *tx) error {
		x.w.trace = func(q string) { said = append(said, q) }
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// Reads are safe between calls: each returned after the writer was done.
	return func() []string {
		out := said
		said = nil
		return out
	}
}

func write(id core.ID) store.Write {
	return store.Write{Resource: core.Resource{ID: id, State: core.StateSucceeded}, Expect: "*"}
}

var planeID = core.ID{Plane: core.Segment{Type: "radius", Name: "local"}}

// TestWriter_coalesces holds the writer in its listener while ten writes queue
// up: they share one commit, and the one that fails takes no other with it.
func TestWriter_coalesces(t *testing.T) {
	t.Parallel()
	told := make(chan struct{})
	gate := make(chan struct{})
	s := openInside(t, Options{Listener: func(cs []store.Change) {
		if cs[0].ID.Equal(planeID) {
			close(told)
			<-gate
		}
	}})
	take := traced(t, s)
	first := make(chan error, 1)
	go func() {
		_, err := s.Accept(t.Context(), write(planeID))
		first <- err
	}()
	<-told
	var queued []*request
	for i := range 10 {
		id := core.GroupID(fmt.Sprintf("g%d", i))
		if i == 4 {
			id.Plane.Name = "missing"
		}
		w := write(id)
		r := &request{fn: func(x *tx) error { _, err := s.accept(x, w); return err }, done: make(chan struct{})}
		queued = append(queued, r)
		s.writer.requests <- r
	}
	take()
	close(gate)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	for i, r := range queued {
		<-r.done
		if want := map[bool]core.Code{true: core.CodeNotFound}[i == 4]; core.CodeOf(r.err) != want {
			t.Errorf("write %d: %v, want %q", i, r.err, want)
		}
	}
	count := map[string]int{}
	for _, q := range take() {
		count[q]++
	}
	if count["BEGIN IMMEDIATE"] != 1 || count["COMMIT"] != 1 || count["ROLLBACK TO one"] != 1 {
		t.Errorf("transactions: %v, want one with one write rolled back", count)
	}
	page, err := s.List(t.Context(), store.Query{Type: store.TypeGroup})
	if err != nil || len(page.Resources) != 9 {
		t.Errorf("%d groups (%v), want the 9 that were accepted", len(page.Resources), err)
	}
}

// TestWriter_faultOfOne lets SQLite itself fail in one of three writes that
// share a transaction: the others are committed all the same.
func TestWriter_faultOfOne(t *testing.T) {
	t.Parallel()
	s := openInside(t, Options{})
	var runs [3]int
	batch := make([]*request, 3)
	for i := range batch {
		batch[i] = &request{done: make(chan struct{}), fn: func(x *tx) error {
			runs[i]++
			if i == 1 {
				// The kind of error after which SQLite has no transaction any more.
				if err := x.w.step("ROLLBACK"); err != nil {
					return err
				}
				return errGone
			}
			_, err := x.exec(`INSERT INTO manifests (namespace, manifest) VALUES (?, '{}')`, fmt.Sprintf("n%d", i))
			return err
		}}
	}
	// Hold the writer in another write until all three wait for it.
	entered, hold, held := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		held <- s.writer.do(t.Context(), func(*tx) error {
			close(entered)
			<-hold
			return nil
		})
	}()
	<-entered
	for _, r := range batch {
		s.writer.requests <- r
	}
	close(hold)
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	for i, r := range batch {
		<-r.done
		if (r.err != nil) != (i == 1) {
			t.Errorf("write %d: %v", i, r.err)
		}
	}
	if runs != [3]int{2, 2, 1} {
		t.Errorf("the writes ran %v times, want the first two together and then each alone", runs)
	}
	if !core.IsCode(batch[1].err, core.CodeUnavailable) {
		t.Errorf("the write that failed got %v", batch[1].err)
	}
	ms, err := s.Manifests(t.Context())
	if err != nil || len(ms) != 2 {
		t.Errorf("stored %v (%v), want the two innocent", ms, err)
	}
}

// TestStatements counts what each call of the play costs, and asks SQLite how
// it answers each statement: through an index, so that no call grows with the
// number of rows.
func TestStatements(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openInside(t, Options{})
	take := traced(t, s)
	for _, step := range append(storetest.CrashSteps(), storetest.HeavySteps()...) {
		take()
		if err := step.Do(ctx, s); err != nil {
			t.Fatalf("%s: %v", step.Name, err)
		}
		var own []string
		for _, q := range take() {
			switch q {
			case "BEGIN IMMEDIATE", "COMMIT", "SAVEPOINT one", "RELEASE one":
			default:
				own = append(own, q)
			}
		}
		if len(own) > 6 {
			t.Errorf("%s takes %d statements:\n%s", step.Name, len(own), strings.Join(own, "\n"))
		}
	}
	app := core.GroupID("g").Resource("Applications.Core/applications", "a")
	for _, q := range []store.Query{
		{Scope: core.GroupID("g")}, {Scope: core.GroupID("g"), Type: "a/b", Limit: 5, After: core.GroupID("g").Key() + "/x"}, {Application: app}, {Environment: app},
		{Application: app, Environment: app, Type: "a/b", Scope: planeID}, {Type: store.TypeGroup, Scope: planeID}, {Type: store.TypePlane},
	} {
		if _, err := s.List(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	for _, root := range []core.ID{app, core.GroupID("g")} {
		if _, err := s.Graph(ctx, root); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Pending(ctx); err != nil {
		t.Fatal(err)
	}
	for _, q := range []store.OperationQuery{
		{Resource: app, Limit: 5}, {Group: "g", Limit: 5, After: "9"}, {Parent: "p", Limit: 5}, {Live: true, Limit: 5},
		{Live: true, Group: "g", Limit: 5}, {Live: true, Resource: app, Group: "g", Parent: "p", Limit: 5},
	} {
		if _, err := s.Operations(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	for _, u := range []store.Use{{Of: app}, {Of: core.GroupID("g")}, {Of: planeID}, {Type: "a/b"}, {Type: "a/b", APIVersion: "1"}} {
		if _, err := s.Dependents(ctx, u); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range []store.AuditQuery{{Limit: 5}, {Principal: "a", Limit: 5, After: "1.1"}, {From: time.Unix(1, 0), To: time.Unix(2, 0), Limit: 5}} {
		if _, err := s.AuditRecords(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Counts(ctx, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Expire(ctx, store.Expiry{Limit: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Dump(ctx, s); err != nil {
		t.Fatal(err)
	}
	seen := 0
	check := func(q string) {
		seen++
		if strings.Count(q, "r.key > ?") > 1 {
			t.Errorf("%s\nhas two lower bounds, and the walk begins at the first", q)
		}
		for _, line := range plan(t, s, q) {
			for _, table := range []string{"resources", "operations", "outputs", "edges", " r", " o", " u", " e", " m", " c"} {
				// One that counts live operations walks the index that holds
				// nothing else.
				// A page of all operations is a walk from the newest that ends with the page.
				page := strings.HasSuffix(q, "ORDER BY o.row DESC LIMIT ?")
				if !page && strings.HasSuffix(strings.TrimSpace(line), "SCAN "+strings.TrimSpace(table)) {
					t.Errorf("%s\nwalks a whole table: %s", q, line)
				}
			}
			counts := strings.Contains(q, "count(*) OVER ()") // all that it counts it must see
			if !counts && strings.Contains(line, "TEMP B-TREE") && strings.Contains(q, "LIMIT") {
				t.Errorf("%s\nsorts before it limits: %s", q, line)
			}
		}
	}
	if err := s.writer.do(ctx, func(x *tx) error {
		for q := range x.w.stmts {
			if !strings.Contains(q, " one") && q != "BEGIN IMMEDIATE" && q != "COMMIT" {
				defer check(q)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s.stmts.Range(func(q, _ any) bool {
		// Dump's list of everything is what only a test asks for.
		if q := q.(string); q != `SELECT `+rows.ResourceColumns+` FROM resources r WHERE +r.type NOT IN (?, ?) ORDER BY r.key` {
			check(q)
		}
		return true
	})
	if seen < 30 {
		t.Errorf("only %d statements were looked at", seen)
	}
}

// plan is SQLite's plan of a statement.
func plan(t *testing.T, s *Store, q string) []string {
	t.Helper()
	args := make([]any, strings.Count(q, "?"))
	if strings.Contains(q, "?1") {
		args = args[:0]
		for i := 1; strings.Contains(q, fmt.Sprintf("?%d", i)); i++ {
			args = append(args, nil)
		}
	}
	rows, err := s.reads.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+q, args...)
	if err != nil {
		t.Fatalf("plan of %s: %v", q, err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		out = append(out, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLiveIndex_D17 breaks the rule behind the checks' back.
func TestLiveIndex_D17(t *testing.T) {
	t.Parallel()
	s := openInside(t, Options{})
	for _, w := range []store.Write{write(planeID), write(core.GroupID("g"))} {
		if _, err := s.Accept(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	second := core.Operation{ID: "second", ResourceID: core.GroupID("g"), Created: time.Unix(1, 0)}
	w := write(core.GroupID("g"))
	w.Operation = &core.Operation{ID: "first", ResourceID: core.GroupID("g"), Created: time.Unix(1, 0)}
	if _, err := s.Accept(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	err := s.writer.do(t.Context(), func(x *tx) error {
		return s.putOperation(x, core.Resource{ID: core.GroupID("G")}, &second)
	})
	if !core.IsCode(err, core.CodeInternal) || !strings.Contains(err.Error(), "breaks its rules") {
		t.Errorf("a second live operation: %v", err)
	}
	if n, _, err := s.Pending(t.Context()); err != nil || n != 1 {
		t.Errorf("%d live operations (%v)", n, err)
	}
}

// TestRecover_D45 opens a file whose parked operations say what is not so.
func TestRecover_D45(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "radial.db")
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range storetest.CrashSteps()[:11] { // the parent parked, its child leased
		if err := step.Do(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", step.Name, err)
		}
	}
	if err := s.writer.do(t.Context(), func(x *tx) error {
		_, err := x.exec(`UPDATE operations SET children = 7 WHERE id = 'put-a'`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	reopen := func() {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(t.Context(), path, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	reopen()
	parent, err := s.Operation(t.Context(), "put-a")
	if err != nil || !parent.Parked || parent.Children != 1 {
		t.Errorf("parent is %+v (%v), want parked for its one child", parent, err)
	}
	kid, err := s.Operation(t.Context(), "put-b")
	if err != nil || kid.Worker != "" || !kid.LeaseUntil.IsZero() {
		t.Errorf("the child's lease came back: %+v (%v)", kid, err)
	}
	if err := s.writer.do(t.Context(), func(x *tx) error {
		_, err := x.exec(`UPDATE operations SET ended = 1 WHERE id = 'put-b'`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	reopen()
	ls, err := s.Lease(t.Context(), store.Lease{Worker: "w", Max: 5, Now: time.Unix(1, 0), Until: time.Unix(2, 0)})
	if err != nil || len(ls) != 1 || ls[0].Operation.ID != "put-a" {
		t.Errorf("leased %+v (%v), want the parent that waits for nobody", ls, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// errGone is one of the errors after which a transaction is no more.
var errGone = sql.ErrConnDone
