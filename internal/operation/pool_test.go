package operation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// bundle is a store with what workers need, of one test.
type bundle struct {
	t    *testing.T
	s    *sqlite.Store
	feed *feed.Broker
	log  *lines
}

// lines is a log that is read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

var testGroup = core.GroupID("g")

func newBundle(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{t: t, feed: feed.New(), log: &lines{}}
	var err error
	if b.s, err = sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), sqlite.Options{Listener: b.feed.Publish}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.s.Close() })
	for _, scope := range []core.ID{{Plane: testGroup.Plane}, testGroup} {
		if _, err := b.s.Accept(t.Context(), store.Write{Resource: core.Resource{ID: scope, Properties: []byte("{}")}, Now: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// put accepts the operation of a resource and returns its id.
func (b *bundle) put(resourceType, name string, deadline time.Duration) string {
	b.t.Helper()
	id := testGroup.Resource(resourceType, name)
	op := &core.Operation{
		ID: uuid.NewString(), ResourceID: id, Verb: core.VerbPut, State: core.StateAccepted, Group: testGroup.Key(),
		Created: time.Now(), Deadline: time.Now().Add(deadline),
	}
	_, err := b.s.Accept(b.t.Context(), store.Write{
		Resource: core.Resource{ID: id, Properties: []byte("{}"), State: core.StateAccepted}, Operation: op, Now: time.Now(),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return op.ID
}

// ended waits for the end of an operation.
func (b *bundle) ended(id string) core.Operation {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	if err := b.feed.WaitOperation(ctx, id); err != nil {
		b.t.Fatalf("operation %s did not end: %v", id, err)
	}
	op, err := b.s.Operation(ctx, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return op
}

// pool runs workers until the returned function is called or the test ends.
func (b *bundle) pool(o operation.Options, fallback operation.Controller) (stop func()) {
	if o.Queue == nil {
		o.Queue = b.s
	}
	if o.Controllers == nil {
		o.Controllers = operation.NewRegistry(fallback)
	}
	if o.Worker == "" {
		o.Worker = "w"
	}
	o.Work = b.feed.Work()
	o.Log = slog.New(slog.NewTextHandler(b.log, nil))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { operation.New(o).Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	b.t.Cleanup(stop)
	return stop
}

func TestRegistry_D29(t *testing.T) {
	t.Parallel()
	named := func(name string) operation.Controller {
		return operation.ControllerFunc(func(context.Context, *operation.Job) (operation.Outcome, error) {
			return operation.Outcome{}, core.Errorf(core.CodeInternal, "%s", name)
		})
	}
	r := operation.NewRegistry(named("default"))
	r.Register("Test.Things/special", core.VerbPut, named("special put"))
	for _, c := range []struct {
		resourceType string
		verb         core.Verb
		want         string
	}{
		{"test.things/SPECIAL", core.VerbPut, "special put"},
		{"Test.Things/special", core.VerbDelete, "default"},
		{"Test.Things/other", core.VerbPut, "default"},
	} {
		_, err := r.Find(c.resourceType, c.verb).Run(t.Context(), nil)
		if err == nil || err.Error() != c.want {
			t.Errorf("D-29: the controller of %s %s is %v, want %s", c.verb, c.resourceType, err, c.want)
		}
	}
}

func TestEndings(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.pool(operation.Options{}, operation.ControllerFunc(func(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
		switch job.Operation.ResourceID.Name() {
		case "good":
			return operation.Outcome{}, nil
		case "error":
			return operation.Outcome{}, core.Errorf(core.CodeRecipeDeployment, "no quota").WithTarget("db")
		case "kept":
			r := job.Resource
			r.Status = []byte(`{"recipeStatus":"executionError"}`)
			return operation.Outcome{Resource: &r, Failure: core.Errorf(core.CodeRecipeDeployment, "half way")}, nil
		case "panic":
			panic("needle-in-a-panic")
		case "slow":
			<-ctx.Done()
			return operation.Outcome{}, ctx.Err()
		}
		return operation.Outcome{}, errors.New("unexpected")
	}))
	for _, c := range []struct {
		name     string
		deadline time.Duration
		state    core.State
		code     core.Code
		message  string
	}{
		{"good", time.Hour, core.StateSucceeded, "", ""},
		{"error", time.Hour, core.StateFailed, core.CodeRecipeDeployment, "no quota"},
		{"kept", time.Hour, core.StateFailed, core.CodeRecipeDeployment, "half way"},
		{"panic", time.Hour, core.StateFailed, core.CodeInternal, "defect"},
		{"slow", 50 * time.Millisecond, core.StateCanceled, core.CodeCanceled, "deadline"},
		{"late", -time.Second, core.StateCanceled, core.CodeCanceled, "deadline"},
	} {
		op := b.ended(b.put("Test.Things/t", c.name, c.deadline))
		r, live, err := b.s.Get(t.Context(), op.ResourceID)
		if err != nil || live != nil {
			t.Fatalf("%s: %v, operation still live: %v", c.name, err, live)
		}
		if op.State != c.state || r.State != c.state {
			t.Errorf("%s: operation %s, resource %s, want %s", c.name, op.State, r.State, c.state)
		}
		if c.code == "" {
			continue
		}
		if op.Error == nil || op.Error.Code != c.code || !strings.Contains(op.Error.Message, c.message) || strings.Contains(op.Error.Message, "needle") {
			t.Errorf("%s: the error is %+v", c.name, op.Error)
		}
		if c.name == "kept" && !strings.Contains(string(r.Status), "executionError") {
			t.Errorf("what a failed run has to remember is %s", r.Status)
		}
	}
	if log := b.log.String(); strings.Contains(log, "needle") || !strings.Contains(log, "pool_test.go") {
		t.Errorf("the log must hold the panic's stack and not its value:\n%s", log)
	}
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var now, peak atomic.Int64
	b.pool(operation.Options{Concurrency: 3}, operation.ControllerFunc(func(context.Context, *operation.Job) (operation.Outcome, error) {
		n := now.Add(1)
		for {
			p := peak.Load()
			if n <= p || peak.CompareAndSwap(p, n) {
				break
			}
		}
		time.Sleep(time.Millisecond) // the work
		now.Add(-1)
		return operation.Outcome{}, nil
	}))
	var ids []string
	for i := range 60 {
		ids = append(ids, b.put("Test.Things/t", fmt.Sprint(i), time.Hour))
	}
	for _, id := range ids {
		if op := b.ended(id); op.State != core.StateSucceeded {
			t.Errorf("ended as %s", op.State)
		}
	}
	if p := peak.Load(); p > 3 || p < 2 {
		t.Errorf("%d operations ran at a time, want 3 at most and some side by side", p)
	}
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	running := make(chan struct{})
	stop := b.pool(operation.Options{Worker: "first", Lease: time.Hour}, operation.ControllerFunc(func(ctx context.Context, _ *operation.Job) (operation.Outcome, error) {
		close(running)
		<-ctx.Done()
		return operation.Outcome{}, ctx.Err()
	}))
	id := b.put("Test.Things/t", "a", time.Hour)
	<-running
	stop()
	if op, err := b.s.Operation(t.Context(), id); err != nil || op.State.Terminal() {
		t.Fatalf("after the shutdown the operation is %s, %v", op.State, err)
	}
	// Its lease of an hour was given back: the next worker has it at once.
	b.pool(operation.Options{Worker: "second"}, operation.ControllerFunc(func(_ context.Context, job *operation.Job) (operation.Outcome, error) {
		if job.Operation.Worker != "second" || job.Operation.Fence != 2 {
			t.Errorf("leased by %s under fence %d", job.Operation.Worker, job.Operation.Fence)
		}
		return operation.Outcome{}, nil
	}))
	if op := b.ended(id); op.State != core.StateSucceeded {
		t.Errorf("ended as %s", op.State)
	}
}

// cut is a queue whose leases can no longer be renewed, and whose end can be
// refused for a while.
type cut struct {
	store.Queue
	renew atomic.Bool
	ends  atomic.Int64
}

func (c *cut) Renew(ctx context.Context, op string, fence int64, until time.Time) error {
	if c.renew.Load() {
		return c.Queue.Renew(ctx, op, fence, until)
	}
	return core.Errorf(core.CodeUnavailable, "the store cannot be reached")
}

func (c *cut) End(ctx context.Context, e store.Ending) error {
	if c.ends.Add(-1) >= 0 {
		return core.Errorf(core.CodeUnavailable, "the store cannot be reached")
	}
	return c.Queue.End(ctx, e)
}

func TestTakeover_D18(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const lease = 600 * time.Millisecond
	begun, over, late := make(chan time.Time, 1), make(chan time.Time, 1), make(chan error, 1)
	release := make(chan struct{})
	b.pool(operation.Options{Queue: &cut{Queue: b.s}, Worker: "cut off", Lease: lease, Concurrency: 1}, operation.ControllerFunc(func(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
		begun <- time.Now()
		<-ctx.Done()
		over <- time.Now()
		<-release // it goes on all the same, as outside calls may
		late <- job.SaveOutputs(context.WithoutCancel(ctx), []core.Output{{ID: core.KubernetesID("local", "n", "", "Secret", "late")}}, nil)
		return operation.Outcome{}, nil
	}))
	id := b.put("Test.Things/t", "a", time.Hour)
	start := <-begun
	if held := (<-over).Sub(start); held >= lease || held < lease/2 {
		t.Errorf("D-18: the context of a lease of %s ended after %s", lease, held)
	}
	taken := make(chan int64, 1)
	b.pool(operation.Options{Worker: "healthy", Lease: lease}, operation.ControllerFunc(func(_ context.Context, job *operation.Job) (operation.Outcome, error) {
		taken <- job.Operation.Fence
		close(release)
		if err := <-late; !core.IsCode(err, core.CodeFenced) {
			t.Errorf("D-18: the worker that lost its lease could record an output: %v", err)
		}
		return operation.Outcome{}, nil
	}))
	select {
	case fence := <-taken:
		if fence != 2 {
			t.Errorf("D-18: taken over under fence %d", fence)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("D-18: nobody took the operation over")
	}
	op := b.ended(id)
	if op.State != core.StateSucceeded || op.Worker != "healthy" || op.Attempts != 2 {
		t.Errorf("D-18: ended as %s by %s after %d attempts", op.State, op.Worker, op.Attempts)
	}
}

func TestRenewal(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const lease = 300 * time.Millisecond
	q := &cut{Queue: b.s}
	q.renew.Store(true)
	q.ends.Store(3)
	b.pool(operation.Options{Queue: q, Lease: lease}, operation.ControllerFunc(func(ctx context.Context, _ *operation.Job) (operation.Outcome, error) {
		select {
		case <-ctx.Done():
			return operation.Outcome{}, ctx.Err()
		case <-time.After(3 * lease): // work that outlives its first lease
			return operation.Outcome{}, nil
		}
	}))
	op := b.ended(b.put("Test.Things/t", "long", time.Hour))
	if op.State != core.StateSucceeded || op.Attempts != 1 {
		t.Errorf("ended as %s after %d attempts: %+v", op.State, op.Attempts, op.Error)
	}
}

// An operation that takes its process along each time ends.
func TestAttempts(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id := b.put("Test.Things/t", "poison", time.Hour)
	for i := range 2 { // two workers that died holding it
		past := time.Now().Add(-time.Minute)
		leased, err := b.s.Lease(t.Context(), store.Lease{Worker: fmt.Sprint("dead ", i), Max: 1, Now: time.Now(), Until: past})
		if err != nil || len(leased) != 1 {
			t.Fatalf("%v, %d leased", err, len(leased))
		}
	}
	ran := false
	b.pool(operation.Options{Attempts: 2}, operation.ControllerFunc(func(context.Context, *operation.Job) (operation.Outcome, error) {
		ran = true
		return operation.Outcome{}, nil
	}))
	op := b.ended(id)
	if ran || op.State != core.StateFailed || !strings.Contains(op.Error.Message, "2 times") {
		t.Errorf("ran %v, ended as %s: %+v", ran, op.State, op.Error)
	}
}
