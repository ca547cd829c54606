package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/pgtest"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/postgres"
	"github.com/radial-project/radial/internal/store/storetest"
)

var planeID = core.ID{Plane: core.Segment{Type: "radius", Name: "local"}}

func resource(group, name string) core.ID {
	return core.GroupID(group).Resource("Applications.Core/extenders", name)
}

// write makes or replaces a row, at once.
func write(t *testing.T, s store.Store, ids ...core.ID) {
	t.Helper()
	for _, id := range ids {
		if _, err := s.Accept(t.Context(), store.Write{Resource: core.Resource{ID: id, State: core.StateSucceeded}, Expect: "*"}); err != nil {
			t.Fatalf("write %s: %v", id, err)
		}
	}
}

// put accepts an operation on a row.
func put(id core.ID, op string) store.Write {
	return store.Write{Resource: core.Resource{ID: id, State: core.StateAccepted}, Expect: "*",
		Operation: &core.Operation{ID: op, ResourceID: id, Verb: core.VerbPut, State: core.StateAccepted, Group: id.Group()}}
}

// ear keeps what a listener is told.
type ear struct {
	mu    sync.Mutex
	told  []store.Change
	heard chan struct{}
}

func newEar() *ear { return &ear{heard: make(chan struct{}, 1)} }

func (e *ear) listen(cs []store.Change) {
	e.mu.Lock()
	e.told = append(e.told, cs...)
	e.mu.Unlock()
	select {
	case e.heard <- struct{}{}:
	default:
	}
}

func (e *ear) all() []store.Change {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]store.Change(nil), e.told...)
}

// until waits for a change and returns all up to and with it.
func (e *ear) until(t *testing.T, what string, is func(store.Change) bool) []store.Change {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		all := e.all()
		for i, c := range all {
			if is(c) {
				return all[:i+1]
			}
		}
		select {
		case <-e.heard:
		case <-timeout:
			t.Fatalf("not told of %s", what)
		}
	}
}

func about(id core.ID) func(store.Change) bool {
	return func(c store.Change) bool { return c.ID.Equal(id) }
}

// TestFeed_D43: two replicas hear of everything that either commits, in one
// order and under the same numbers, and each resource's changes in theirs.
func TestFeed_D43(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	ears := []*ear{newEar(), newEar()}
	replicas := []store.Store{openAt(t, dsn, storetest.Listener(ears[0].listen)), openAt(t, dsn, storetest.Listener(ears[1].listen))}
	write(t, replicas[0], planeID, core.GroupID("g"))
	const workers, each = 8, 25
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				s := replicas[(w+i)%2]
				// Two workers share each row, so that they wait for each other.
				id := resource("g", fmt.Sprint("r", w/2))
				r := core.Resource{ID: id, State: core.State(fmt.Sprintf("%d-%d", w, i))}
				if _, err := s.Accept(t.Context(), store.Write{Resource: r, Expect: "*"}); err != nil {
					t.Errorf("write: %v", err)
				}
			}
		})
	}
	wg.Wait()
	finish := resource("g", "finish")
	write(t, replicas[1], finish)
	first := ears[0].until(t, "the last write", about(finish))
	second := ears[1].until(t, "the last write", about(finish))
	if d := cmp.Diff(first, second); d != "" {
		t.Errorf("the replicas were told different things:\n%s", d)
	}
	if len(first) != workers*each+3 {
		t.Errorf("told of %d changes, want %d", len(first), workers*each+3)
	}
	newest := map[string]core.State{}
	for i, c := range first {
		if i > 0 && c.Seq <= first[i-1].Seq {
			t.Fatalf("change %d came after %d", c.Seq, first[i-1].Seq)
		}
		newest[c.ID.Key()] = c.State
	}
	for w := range workers / 2 {
		id := resource("g", fmt.Sprint("r", w))
		r, _, err := replicas[0].Get(t.Context(), id)
		if err != nil || r.State != newest[id.Key()] {
			t.Errorf("%s is %s (%v), and the last that was told is %s", id, r.State, err, newest[id.Key()])
		}
	}
}

// TestLateCommit_D43: a transaction that began early and commits late is not
// passed over, and while it runs readers are not left in the dark for good.
func TestLateCommit_D43(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := pgtest.Database(t)
	e := newEar()
	s := openAt(t, dsn, storetest.Listener(e.listen))
	write(t, s, planeID)
	e.until(t, "the plane", about(planeID))
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	late := core.GroupID("late")
	if _, err := tx.Exec(ctx, postgres.InsertChanges, `[{"i":"`+late.String()+`"}]`); err != nil {
		t.Fatal(err)
	}
	early := core.GroupID("early")
	write(t, s, early) // committed, and above the one that runs
	told := e.until(t, "a stalled feed", func(c store.Change) bool { return c.Kind == store.ChangeReset })
	for _, c := range told {
		if about(early)(c) {
			t.Errorf("a change above a running transaction was taken: the one below would be lost")
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	told = e.until(t, "the early write", about(early))
	if before := told[len(told)-2]; !about(late)(before) {
		t.Errorf("before %+v came %+v, want the late commit's change", told[len(told)-1], before)
	}
}

// TestCrashedNumbers_D43: a server that crashes gives numbers of transactions
// again that a feed has seen pass. What is committed under them is told.
func TestCrashedNumbers_D43(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := pgtest.Start(t)
	dsn := server.Database(t)
	e := newEar()
	s := openAt(t, dsn, storetest.Listener(e.listen))
	write(t, s, planeID)
	e.until(t, "the plane", about(planeID))
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is brought to the disk before it must be.
	for _, q := range []string{`ALTER SYSTEM SET wal_writer_delay = '10s'`, `SELECT pg_reload_conf()`, `SET synchronous_commit = off`} {
		if _, err := conn.Exec(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	var now time.Time
	for range 20 {
		if err := conn.QueryRow(ctx, `SELECT clock_timestamp() FROM pg_current_xact_id()`).Scan(&now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(ctx, `NOTIFY radial_changes`); err != nil {
		t.Fatal(err)
	}
	for read := false; !read; { // the feed has looked at least once since
		if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE query_start > $1 AND state = 'idle'
			AND query LIKE 'WITH h AS%changes%')`, now).Scan(&read); err != nil {
			t.Fatal(err)
		}
	}
	server.Crash(t)
	_ = conn.Close(ctx) // it went with the server
	server.Restart(t)
	if conn, err = pgx.Connect(ctx, dsn); err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	const again = 30
	for i := range again {
		if _, err := conn.Exec(ctx, postgres.InsertChanges, `[{"i":"`+core.GroupID(fmt.Sprint("after", i)).String()+`"}]`); err != nil {
			t.Fatal(err)
		}
	}
	for i := range again {
		e.until(t, "what was written after the crash", about(core.GroupID(fmt.Sprint("after", i))))
	}
}

// TestWaiting: a write that has to wait for another replica holds back no other
// write of its process.
func TestWaiting(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := pgtest.Database(t)
	s := openAt(t, dsn)
	write(t, s, planeID, core.GroupID("g"))
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	held := resource("g", "held")
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('0' || $1, 0))`, held.Key()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Accept(ctx, store.Write{Resource: core.Resource{ID: held, State: core.StateSucceeded}, Expect: "*"})
		done <- err
	}()
	for waits := false; !waits; {
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	write(t, s, resource("g", "free"))
	select {
	case err := <-done:
		t.Fatalf("the write did not wait: %v", err)
	default:
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// childHold leases an operation and waits to be killed.
func childHold(dsn string) error {
	s, err := postgres.Open(context.Background(), dsn, postgres.Options{})
	if err != nil {
		return err
	}
	return storetest.Hold(context.Background(), s, crashTime)
}

// childWrite writes until it is killed.
func childWrite(dsn string) error {
	s, err := postgres.Open(context.Background(), dsn, postgres.Options{})
	if err != nil {
		return err
	}
	for i := range 20 {
		if _, err := s.Accept(context.Background(), store.Write{Resource: core.Resource{ID: resource("g", fmt.Sprint("child", i)), State: core.StateSucceeded}, Expect: "*"}); err != nil {
			return err
		}
	}
	fmt.Println("written")
	select {}
}

// TestReplicas_D18 kills one of two processes that share a database: what it had
// leased is another's once the lease ran out, and not before; what it wrote, the
// other has heard of.
func TestReplicas_D18(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	e := newEar()
	s := openAt(t, dsn, storetest.Listener(e.listen))
	write(t, s, planeID, core.GroupID("g"))
	if _, err := s.Accept(t.Context(), put(resource("g", "a"), "op")); err != nil {
		t.Fatal(err)
	}
	fences := 0
	for _, role := range []string{"hold", "write"} {
		cmd := storetest.Child(t, role, dsn)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stdout)
		if !lines.Scan() {
			t.Fatalf("the child ended: %v", cmd.Wait())
		}
		if role == "hold" {
			fences = storetest.Last(lines.Bytes(), "holding")
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
	}
	for i := range 20 {
		e.until(t, "the other process's writes", about(resource("g", fmt.Sprint("child", i))))
	}
	lease := func(at time.Time) []store.Leased {
		t.Helper()
		ls, err := s.Lease(t.Context(), store.Lease{Worker: "next", Max: 2, Now: at, Until: at.Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		return ls
	}
	end := crashTime.Add(time.Hour)
	if ls := lease(end.Add(-time.Nanosecond)); len(ls) != 0 {
		t.Fatalf("leased %s while the killed process's lease held", ls[0].Operation.ID)
	}
	ls := lease(end)
	if len(ls) != 1 || int(ls[0].Operation.Fence) <= fences {
		t.Fatalf("leased %+v, want op under a newer fence than %d", ls, fences)
	}
	o := ls[0].Operation
	if err := s.End(t.Context(), store.Ending{Operation: o.ID, Fence: int64(fences), State: core.StateFailed}); !core.IsCode(err, core.CodeFenced) {
		t.Errorf("an end under the old fence: %v", err)
	}
	if err := s.End(t.Context(), store.Ending{Operation: o.ID, Fence: o.Fence, State: core.StateSucceeded}); err != nil {
		t.Error(err)
	}
}

// TestWorkers_D47 lets two replicas lease side by side: every operation goes to
// one, and each serves all groups.
func TestWorkers_D47(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	replicas := []store.Store{openAt(t, dsn), openAt(t, dsn)}
	write(t, replicas[0], planeID)
	const each = 20
	for g := range 4 {
		name := fmt.Sprint("g", g)
		write(t, replicas[0], core.GroupID(name))
		for i := range each {
			if _, err := replicas[0].Accept(t.Context(), put(resource(name, fmt.Sprint(i)), fmt.Sprintf("%s-%d", name, i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for _, s := range replicas {
		for range 2 {
			wg.Go(func() {
				for {
					ls, err := s.Lease(t.Context(), store.Lease{Worker: "w", Max: 1 + rand.IntN(5), Now: crashTime, Until: crashTime.Add(time.Hour)})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, l := range ls {
						seen[l.Operation.ID]++
					}
					all := len(seen)
					mu.Unlock()
					// None may mean that another has what waits in its hands.
					if len(ls) == 0 && all == 4*each {
						return
					}
				}
			})
		}
	}
	wg.Wait()
	for op, n := range seen {
		if n != 1 {
			t.Errorf("%s was leased %d times", op, n)
		}
	}
}

// TestOutage_D22 takes the server away under two open stores.
func TestOutage_D22(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	dsn := server.Database(t)
	e := newEar()
	s, other := openAt(t, dsn, storetest.Listener(e.listen)), openAt(t, dsn)
	write(t, s, planeID)
	if _, err := s.Accept(t.Context(), put(core.GroupID("g"), "op")); err != nil {
		t.Fatal(err)
	}
	for name, away := range map[string]func(testing.TB){"stopped": server.Stop, "crashed": server.Crash} {
		away(t)
		for what, call := range map[string]func() error{
			"write": func() error {
				_, err := s.Accept(t.Context(), store.Write{Resource: core.Resource{ID: core.GroupID("during")}, Expect: "*"})
				return err
			},
			"read": func() error { _, _, err := s.Get(t.Context(), planeID); return err },
			"lease": func() error {
				_, err := s.Lease(t.Context(), store.Lease{Max: 1, Now: crashTime, Until: crashTime})
				return err
			},
		} {
			if err := call(); !core.IsCode(err, core.CodeUnavailable) || !strings.Contains(err.Error(), "PostgreSQL at") {
				t.Errorf("%s while the server is %s: %v", what, name, err)
			}
		}
		server.Restart(t)
		if _, _, err := s.Get(t.Context(), planeID); err != nil {
			t.Errorf("read after it was %s: %v", name, err)
		}
		after := core.GroupID("after-" + name)
		write(t, other, after)
		e.until(t, "a write of the other replica after the server was "+name, about(after))
	}
	if _, _, err := s.Get(t.Context(), core.GroupID("during")); !core.IsCode(err, core.CodeNotFound) {
		t.Errorf("a write that was refused is there: %v", err)
	}
	if ls, err := s.Lease(t.Context(), store.Lease{Worker: "w", Max: 1, Now: crashTime, Until: crashTime}); err != nil || len(ls) != 1 {
		t.Errorf("leased %d after the outage (%v)", len(ls), err)
	}
}

// TestNewerRelease_D44 opens a database that a newer release has migrated.
func TestNewerRelease_D44(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := pgtest.Database(t)
	opened := openAt(t, dsn)
	write(t, opened, planeID)
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(ctx, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (900, true)`); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(ctx, dsn, postgres.Options{})
	if err == nil {
		_ = s.Close()
	}
	if !core.IsCode(err, core.CodeUnavailable) || !strings.Contains(err.Error(), "900") || !strings.Contains(err.Error(), "a newer release has used it") {
		t.Fatalf("open: %v", err)
	}
	if _, err := conn.Exec(ctx, `DELETE FROM goose_db_version WHERE version_id = 900`); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openAt(t, dsn).Get(ctx, planeID); err != nil {
		t.Errorf("after the refusal: %v", err)
	}
}

// TestOpen opens what is not there, not ours, and what others open at once.
func TestOpen(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	t.Run("D-44 replicas that start together migrate once", func(t *testing.T) {
		dsn := pgtest.Database(t)
		errs := make(chan error)
		for range 5 {
			go func() {
				s, err := postgres.Open(ctx, dsn, postgres.Options{})
				if err == nil {
					err = s.Close()
				}
				errs <- err
			}()
		}
		for range 5 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("D-44 views of an extension are no tables of another program", func(t *testing.T) {
		dsn := pgtest.Database(t)
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(ctx, `CREATE EXTENSION pg_stat_statements`); err != nil {
			t.Fatal(err)
		}
		s, err := postgres.Open(ctx, dsn, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	foreign := pgtest.Database(t)
	conn, err := pgx.Connect(ctx, foreign)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(ctx, `CREATE TABLE theirs (a int)`); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ dsn, says string }{
		"another program's": {foreign, "another program"},
		"no database":       {strings.Replace(foreign, "dbname=", "dbname=none_", 1), "does not exist"},
		"no server":         {"host=127.0.0.1 port=1 user=postgres dbname=x sslmode=disable password=hunter2", "cannot be reached"},
		"no address":        {"postgres://user:hunter2@host:port", "not one of PostgreSQL"},
	} {
		s, err := postgres.Open(ctx, c.dsn, postgres.Options{})
		if err == nil {
			_ = s.Close()
		}
		if !core.IsCode(err, core.CodeUnavailable) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStatements counts what each call of the play costs.
func TestStatements(t *testing.T) {
	t.Parallel()
	s := openAt(t, pgtest.Database(t))
	var said []string
	s.Trace(func(q string) { said = append(said, q) })
	steps := append(storetest.CrashSteps(), storetest.HeavySteps()...)
	for _, step := range steps {
		said = nil
		if err := step.Do(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", step.Name, err)
		}
		if len(said) > 6 {
			t.Errorf("%s takes %d statements:\n%s", step.Name, len(said), strings.Join(said, "\n"))
		}
	}
}

// TestCanceled withdraws what has not begun.
func TestCanceled(t *testing.T) {
	t.Parallel()
	s := openAt(t, pgtest.Database(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Accept(ctx, store.Write{Resource: core.Resource{ID: planeID}, Expect: "*"})
	if !core.IsCode(err, core.CodeUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("accept: %v", err)
	}
	if _, _, err := s.Get(t.Context(), planeID); !core.IsCode(err, core.CodeNotFound) {
		t.Errorf("get: %v", err)
	}
}
