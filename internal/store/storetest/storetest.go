// Package storetest is the suite that every implementation of [store.Store]
// passes. It knows the contract only: what is special to one implementation
// (a file's lock, a full disk) is tested beside it.
//
// An implementation's test is one call:
//
//	func TestStore(t *testing.T) { storetest.Run(t, open) }
//
// and a second one, of its own making, that kills a process between any two
// effects on its disk or network while it plays [CrashSteps], and looks with
// [Dump] and [Drain] at what is left.
package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// Config is how a test wants its store.
type Config struct {
	// Dir, when not "", names the data: a store closed and opened with the same
	// Dir holds the same. Empty data otherwise.
	Dir      string
	Listener store.Listener
	Clock    func() time.Time
}

// Option sets a part of Config.
type Option func(*Config)

// Dir keeps the data in a directory of the test's.
func Dir(dir string) Option { return func(c *Config) { c.Dir = dir } }

// Listener tells l of changes.
func Listener(l store.Listener) Option { return func(c *Config) { c.Listener = l } }

// Configure applies options, for the open function of an implementation.
func Configure(options ...Option) Config {
	var c Config
	for _, o := range options {
		o(&c)
	}
	return c
}

// Opener opens a store for one test and closes it with the test.
type Opener func(t *testing.T, o ...Option) store.Store

// Run runs the whole suite.
func Run(t *testing.T, open func(t *testing.T, o ...Option) store.Store) {
	for _, group := range []struct {
		name  string
		cases map[string]func(*fixture)
	}{
		{"Accept", acceptCases},
		{"Owner", ownerCases},
		{"Parents", parentCases},
		{"Queue", queueCases},
		{"Park", parkCases},
		{"Fair", fairCases},
		{"Cancel", cancelCases},
		{"Deadline", deadlineCases},
		{"Messages", messageCases},
		{"History", historyCases},
		{"Outputs", outputCases},
		{"List", listCases},
		{"Graph", graphCases},
		{"Together", togetherCases},
		{"Dependents", dependentCases},
		{"Keysets", keysetCases},
		{"Audit", auditCases},
		{"Portable", portableCases},
		{"Registry", registryCases},
		{"Listener", listenerCases},
		{"Model", modelCases},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for name, run := range group.cases {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					run(&fixture{T: t, open: open, ctx: t.Context(), now: epoch})
				})
			}
		})
	}
}

// epoch is when all tests begin; their time moves only when they say so.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// leaseFor is how long leases of the tests last.
const leaseFor = 10 * time.Second

// fixture is one test's own store, its clock and its words.
type fixture struct {
	*testing.T
	store.Store
	open func(t *testing.T, o ...Option) store.Store
	ctx  context.Context
	now  time.Time
	ops  int
}

// start opens the store and makes plane and groups in it.
func (f *fixture) start(groups []string, o ...Option) *fixture {
	f.Helper()
	f.Store = f.open(f.T, o...)
	f.makeScopes(groups...)
	return f
}

func (f *fixture) makeScopes(groups ...string) {
	f.Helper()
	f.write(planeID)
	for _, g := range groups {
		f.write(core.GroupID(g))
	}
}

var planeID = core.ID{Plane: core.Segment{Type: "radius", Name: "local"}}

const (
	typeApp = "Applications.Core/applications"
	typeEnv = "Applications.Core/environments"
	typeExt = "Applications.Core/extenders"
)

func ext(group, name string) core.ID { return core.GroupID(group).Resource(typeExt, name) }
func app(group, name string) core.ID { return core.GroupID(group).Resource(typeApp, name) }

// plain is a resource with nothing but its id and state.
func plain(id core.ID, s core.State) core.Resource {
	return core.Resource{ID: id, APIVersion: "2023-10-01-preview", State: s}
}

// write makes or replaces a resource synchronously.
func (f *fixture) write(id core.ID, change ...func(*store.Write)) core.Resource {
	f.Helper()
	w := store.Write{Resource: plain(id, core.StateSucceeded), Expect: "*", Now: f.now}
	for _, c := range change {
		c(&w)
	}
	r, err := f.Accept(f.ctx, w)
	if err != nil {
		f.Fatalf("write %s: %v", id, err)
	}
	return r
}

// operation returns a new operation on a resource.
func (f *fixture) operation(id core.ID, verb core.Verb) *core.Operation {
	f.ops++
	s := core.StateAccepted
	if verb == core.VerbDelete {
		s = core.StateDeleting
	}
	return &core.Operation{
		ID: fmt.Sprintf("op-%03d", f.ops), ResourceID: id, Verb: verb, APIVersion: "2023-10-01-preview", State: s,
		Group: id.Group(), Trace: fmt.Sprintf("00-%032x-%016x-01", f.ops, f.ops), Created: f.now.Add(time.Duration(f.ops) * time.Microsecond), Deadline: f.now.Add(24 * time.Hour),
	}
}

// put is the write of an asynchronous PUT.
func (f *fixture) put(id core.ID, change ...func(*store.Write)) store.Write {
	w := store.Write{Resource: plain(id, core.StateAccepted), Operation: f.operation(id, core.VerbPut), Expect: "*", Now: f.now}
	for _, c := range change {
		c(&w)
	}
	return w
}

// accept commits an asynchronous PUT and returns its operation's id.
func (f *fixture) accept(id core.ID, change ...func(*store.Write)) string {
	f.Helper()
	w := f.put(id, change...)
	if _, err := f.Accept(f.ctx, w); err != nil {
		f.Fatalf("accept %s: %v", id, err)
	}
	return w.Operation.ID
}

// remove commits an asynchronous DELETE.
func (f *fixture) remove(id core.ID) string {
	f.Helper()
	op := f.operation(id, core.VerbDelete)
	if _, err := f.AcceptDelete(f.ctx, store.Delete{ID: id, Operation: op, State: core.StateDeleting, Expect: "*", Now: f.now}); err != nil {
		f.Fatalf("delete %s: %v", id, err)
	}
	return op.ID
}

// lease takes up to n operations.
func (f *fixture) lease(n int) []store.Leased {
	f.Helper()
	got, err := f.Lease(f.ctx, store.Lease{Worker: "w", Max: n, Now: f.now, Until: f.now.Add(leaseFor)})
	if err != nil {
		f.Fatalf("lease: %v", err)
	}
	return got
}

// leaseOne takes the one operation that waits.
func (f *fixture) leaseOne() store.Leased {
	f.Helper()
	got := f.lease(2)
	if len(got) != 1 {
		f.Fatalf("leased %v, want one operation", operationIDs(got))
	}
	return got[0]
}

func operationIDs(ls []store.Leased) []string {
	out := []string{}
	for _, l := range ls {
		out = append(out, l.Operation.ID)
	}
	return out
}

// end ends a leased operation.
func (f *fixture) end(l store.Leased, s core.State) {
	f.Helper()
	e := store.Ending{Operation: l.Operation.ID, Fence: l.Operation.Fence, State: s, Now: f.now,
		Removed: l.Operation.Verb == core.VerbDelete && s == core.StateSucceeded}
	if err := f.End(f.ctx, e); err != nil {
		f.Fatalf("end %s: %v", l.Operation.ID, err)
	}
}

// gone ends a DELETE of the resource as a worker would.
func (f *fixture) gone(id core.ID) {
	f.Helper()
	f.remove(id)
	f.end(f.leaseOne(), core.StateSucceeded)
}

// get reads a resource that must be there.
func (f *fixture) get(id core.ID) (core.Resource, *core.Operation) {
	f.Helper()
	r, o, err := f.Get(f.ctx, id)
	if err != nil {
		f.Fatalf("get %s: %v", id, err)
	}
	return r, o
}

func (f *fixture) mustNotExist(id core.ID) {
	f.Helper()
	_, _, err := f.Get(f.ctx, id)
	f.wantCode(err, core.CodeNotFound, "get "+id.String())
}

func (f *fixture) status(op string) core.Operation {
	f.Helper()
	o, err := f.Operation(f.ctx, op)
	if err != nil {
		f.Fatalf("operation %s: %v", op, err)
	}
	return o
}

// wantCode checks an error's code, "" for no error, and returns the error.
func (f *fixture) wantCode(err error, want core.Code, doing string) *core.Error {
	f.Helper()
	if got := core.CodeOf(err); got != want {
		f.Fatalf("%s: code %q (%v), want %q", doing, got, err, want)
	}
	if err == nil {
		return nil
	}
	return core.AsError(err)
}

// wantSays checks that an error names what it is about.
func (f *fixture) wantSays(err error, parts ...string) {
	f.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			f.Errorf("error %v does not say %q", err, p)
		}
	}
}

// same compares, with nil and empty alike.
func (f *fixture) same(want, got any, what string) {
	f.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(core.Error{})); d != "" {
		f.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// list reads all pages of a query.
func (f *fixture) list(q store.Query) []string {
	f.Helper()
	names := []string{}
	for {
		p, err := f.List(f.ctx, q)
		if err != nil {
			f.Fatalf("list %+v: %v", q, err)
		}
		if q.Limit > 0 && len(p.Resources) > q.Limit {
			f.Fatalf("a page of %d for limit %d", len(p.Resources), q.Limit)
		}
		for _, r := range p.Resources {
			names = append(names, r.ID.Name())
		}
		if p.Next == "" {
			return names
		}
		q.After = p.Next
	}
}
