package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

var queueCases = map[string]func(*fixture){
	"a lease brings operation, resource and inventory": func(f *fixture) {
		f.start([]string{"g"})
		op := f.accept(ext("g", "a"), func(w *store.Write) { w.Resource.Location = "here" })
		l := f.leaseOne()
		want := f.status(op)
		f.same(want, l.Operation, "operation")
		if want.Fence < 1 || want.Worker != "w" || !want.LeaseUntil.Equal(f.now.Add(leaseFor)) || want.Attempts != 1 || !want.Started.Equal(f.now) ||
			want.Trace != fmt.Sprintf("00-%032x-%016x-01", f.ops, f.ops) {
			f.Errorf("leased operation is %+v", want)
		}
		r, _ := f.get(ext("g", "a"))
		f.same(r, l.Resource, "resource")
		f.same([]string{}, operationIDs(f.lease(9)), "leased a second time")
	},
	"operations are leased oldest first": func(f *fixture) {
		f.start([]string{"g"})
		var want []string
		for i := range 5 {
			want = append(want, f.accept(ext("g", fmt.Sprintf("r%d", 9-i))))
		}
		f.same(want[:3], operationIDs(f.lease(3)), "first lease")
		f.same(want[3:], operationIDs(f.lease(3)), "second lease")
	},
	"groups come in turn within one lease and over many": func(f *fixture) {
		f.start([]string{"big", "small"})
		for i := range 20 {
			f.accept(ext("big", fmt.Sprintf("r%02d", i)))
		}
		late := f.accept(ext("small", "a"))
		if got := operationIDs(f.lease(2)); !slices.Contains(got, late) {
			f.Errorf("leased %v, without the small group's %s", got, late)
		}
		later := f.accept(ext("small", "b"))
		if got := operationIDs(append(f.lease(1), f.lease(1)...)); !slices.Contains(got, later) {
			f.Errorf("leased %v one at a time, without the small group's %s", got, later)
		}
	},
	"operations on scopes, which have no group, are leased too": func(f *fixture) {
		f.start([]string{"g"})
		inGroup := f.accept(ext("g", "a"))
		onPlane := f.accept(core.ID{Plane: core.Segment{Type: "aws", Name: "aws"}}, func(w *store.Write) { w.Operation.Group = "" })
		got := operationIDs(f.lease(5))
		slices.Sort(got)
		f.same([]string{inGroup, onPlane}, got, "leased")
	},
	"every operation goes to one worker": func(f *fixture) {
		f.start([]string{"g"})
		for i := range 40 {
			f.accept(ext("g", fmt.Sprintf("r%02d", i)))
		}
		got := make([][]store.Leased, 20)
		for _, err := range atOnce(len(got), func(i int) (err error) {
			got[i], err = f.Lease(f.ctx, store.Lease{Worker: fmt.Sprint(i), Max: 3, Now: f.now, Until: f.now.Add(leaseFor)})
			return err
		}) {
			f.wantCode(err, "", "lease")
		}
		by := map[string]string{}
		for _, ls := range got {
			for _, l := range ls {
				if other, ok := by[l.Operation.ID]; ok {
					f.Errorf("%s was leased to %s and %s", l.Operation.ID, other, l.Operation.Worker)
				}
				by[l.Operation.ID] = l.Operation.Worker
			}
		}
		if len(by) != 40 {
			f.Errorf("%d of 40 operations were leased", len(by))
		}
	},
	"D-18 a lease that ran out is taken over under a newer fence": func(f *fixture) {
		f.start([]string{"g"})
		op := f.accept(ext("g", "a"))
		old := f.leaseOne()
		f.now = f.now.Add(leaseFor - time.Nanosecond)
		f.same([]string{}, operationIDs(f.lease(1)), "leased while the lease holds")
		f.now = f.now.Add(time.Nanosecond)
		taken := f.leaseOne()
		if taken.Operation.ID != op || taken.Operation.Fence <= old.Operation.Fence || taken.Operation.Attempts != 2 {
			f.Fatalf("took over %+v after %+v", taken.Operation, old.Operation)
		}
		if !taken.Operation.Started.Equal(old.Operation.Started) {
			f.Error("the start moved")
		}
		f.fencedOut(old)
		f.end(taken, core.StateSucceeded)
		f.fencedOut(taken)
		f.same(core.StateSucceeded, f.status(op).State, "state after late calls")
	},
	"D-18 a renewed lease is not taken over": func(f *fixture) {
		f.start([]string{"g"})
		f.accept(ext("g", "a"))
		l := f.leaseOne()
		until := f.now.Add(3 * leaseFor)
		f.wantCode(f.Renew(f.ctx, l.Operation.ID, l.Operation.Fence, until), "", "renew")
		_, next, err := f.Pending(f.ctx)
		f.wantCode(err, "", "pending")
		if !next.Equal(until) {
			f.Errorf("the next lease ends at %v, want %v", next, until)
		}
		f.now = until.Add(-time.Nanosecond)
		f.same([]string{}, operationIDs(f.lease(1)), "leased")
		f.now = until
		f.leaseOne()
	},
	"D-18 a holder whose lease ran out may end while nobody took over": func(f *fixture) {
		f.start([]string{"g"})
		f.accept(ext("g", "a"))
		l := f.leaseOne()
		f.now = f.now.Add(time.Hour)
		f.end(l, core.StateSucceeded)
	},
	"D-18 of many that end one operation one does": func(f *fixture) {
		f.start([]string{"g"})
		f.accept(ext("g", "a"))
		l := f.leaseOne()
		ended := 0
		for _, err := range atOnce(20, func(int) error {
			return f.End(f.ctx, store.Ending{Operation: l.Operation.ID, Fence: l.Operation.Fence, State: core.StateSucceeded, Now: f.now})
		}) {
			if err == nil {
				ended++
			} else {
				f.wantCode(err, core.CodeFenced, "a late end")
			}
		}
		if ended != 1 {
			f.Errorf("ended %d times", ended)
		}
	},
	"resource and operation change together": func(f *fixture) {
		f.start([]string{"g"})
		op := f.accept(ext("g", "a"), func(w *store.Write) {
			w.Resource.Tags, w.Resource.Status = map[string]string{"keep": "me"}, []byte(`{"old":1}`)
		})
		l := f.leaseOne()
		f.wantCode(f.Progress(f.ctx, op, l.Operation.Fence, core.StateUpdating), "", "progress")
		r, live := f.get(ext("g", "a"))
		f.same([]core.State{core.StateUpdating, core.StateUpdating}, []core.State{r.State, live.State}, "states under way")
		fail := core.Errorf(core.CodeRecipeDeployment, "it broke").WithTarget("x").WithDetails(core.Error{Code: core.CodeTarget, Message: "why"})
		next := r
		next.Properties, next.Status, next.Secrets = []byte(`{"p":1}`), nil, map[string]jsonRaw{"s": jsonRaw(`{"$sealed":"AA=="}`)}
		f.now = f.now.Add(time.Second)
		f.wantCode(f.End(f.ctx, store.Ending{Operation: op, Fence: l.Operation.Fence, State: core.StateFailed, Error: fail, Resource: &next, Now: f.now}), "", "end")
		got, live := f.get(ext("g", "a"))
		if live != nil {
			f.Errorf("operation %s is still live", live.ID)
		}
		next.State, next.ETag = core.StateFailed, got.ETag
		f.same(next, got, "resource")
		o := f.status(op)
		if o.State != core.StateFailed || !o.Ended.Equal(f.now) || o.Error == nil || o.Error.Code != fail.Code || o.Error.Message != fail.Message || len(o.Error.Details) != 1 {
			f.Errorf("operation ended as %+v, error %+v", o, o.Error)
		}
	},
	"an end without a resource keeps what is there": func(f *fixture) {
		f.start([]string{"g"})
		f.accept(ext("g", "a"), func(w *store.Write) { w.Resource.Properties = []byte(`{"p":1}`) })
		before, _ := f.get(ext("g", "a"))
		f.end(f.leaseOne(), core.StateCanceled)
		after, _ := f.get(ext("g", "a"))
		before.State, before.ETag = core.StateCanceled, after.ETag
		f.same(before, after, "resource")
	},
	"S-45 what only the operation may know goes with its end": func(f *fixture) {
		f.start([]string{"g"})
		sealed := func(w *store.Write) {
			w.Resource.Secrets = map[string]jsonRaw{
				"!a": jsonRaw(`{"$sealed":"AA=="}`), store.InputsSecret: jsonRaw(`{"$sealed":"AQ=="}`), "b": jsonRaw(`{"$sealed":"Ag=="}`),
			}
		}
		only := func(w *store.Write) {
			w.Resource.Secrets = map[string]jsonRaw{store.InputsSecret: jsonRaw(`{"$sealed":"AQ=="}`)}
		}
		last := func(w *store.Write) { sealed(w); delete(w.Resource.Secrets, "b") }
		check := func(id core.ID, want map[string]jsonRaw) {
			f.Helper()
			r, _ := f.get(id)
			f.same(want, r.Secrets, "secrets of "+id.Name())
		}
		kept := map[string]jsonRaw{"!a": jsonRaw(`{"$sealed":"AA=="}`), "b": jsonRaw(`{"$sealed":"Ag=="}`)}
		// By a worker, with and without a row to write.
		f.accept(ext("g", "a"), sealed)
		check(ext("g", "a"), map[string]jsonRaw{"!a": kept["!a"], store.InputsSecret: jsonRaw(`{"$sealed":"AQ=="}`), "b": kept["b"]})
		f.end(f.leaseOne(), core.StateFailed)
		check(ext("g", "a"), kept)
		f.accept(ext("g", "b"), sealed)
		l := f.leaseOne()
		r, _ := f.get(ext("g", "b"))
		f.wantCode(f.End(f.ctx, store.Ending{Operation: l.Operation.ID, Fence: l.Operation.Fence, State: core.StateSucceeded, Resource: &r, Now: f.now}), "", "end")
		check(ext("g", "b"), kept)
		f.accept(ext("g", "c"), only)
		f.end(f.leaseOne(), core.StateCanceled)
		check(ext("g", "c"), nil)
		f.accept(ext("g", "d"), last)
		f.end(f.leaseOne(), core.StateFailed)
		check(ext("g", "d"), map[string]jsonRaw{"!a": kept["!a"]})
		// By nobody's: canceled and expired without a worker.
		op := f.accept(ext("g", "e"), sealed)
		_, err := f.cancel(op)
		f.wantCode(err, "", "cancel")
		check(ext("g", "e"), kept)
		f.accept(ext("g", "f"), only)
		f.now = f.now.Add(48 * time.Hour)
		ended, err := f.Expire(f.ctx, store.Expiry{Error: byAlice, Now: f.now, Limit: 5})
		f.wantCode(err, "", "expire")
		f.same(1, len(ended), "expired")
		check(ext("g", "f"), nil)
	},
	"a deletion that ends takes the row": func(f *fixture) {
		f.start([]string{"g"})
		f.write(ext("g", "a"))
		op := f.remove(ext("g", "a"))
		r, _ := f.get(ext("g", "a"))
		f.same(core.StateDeleting, r.State, "state while the deletion runs")
		f.end(f.leaseOne(), core.StateSucceeded)
		f.mustNotExist(ext("g", "a"))
		f.same(core.StateSucceeded, f.status(op).State, "operation")
	},
	"pending counts what lives": func(f *fixture) {
		f.start([]string{"g"})
		check := func(want int, next time.Time) {
			f.Helper()
			n, got, err := f.Pending(f.ctx)
			if err != nil || n != want || !got.Equal(next) {
				f.Errorf("pending is %d, %v (%v), want %d, %v", n, got, err, want, next)
			}
		}
		check(0, time.Time{})
		f.accept(ext("g", "a"))
		f.accept(ext("g", "b"))
		check(2, time.Time{})
		ls := f.lease(1)
		check(2, f.now.Add(leaseFor))
		f.end(ls[0], core.StateSucceeded)
		check(1, time.Time{})
	},
	"an unknown operation is not found": func(f *fixture) {
		f.start(nil)
		_, err := f.Operation(f.ctx, "none")
		f.wantCode(err, core.CodeNotFound, "operation")
		f.wantCode(f.End(f.ctx, store.Ending{Operation: "none", Fence: 1, State: core.StateSucceeded}), core.CodeNotFound, "end")
	},
}

// fencedOut checks that the holder of a lost lease can change nothing.
func (f *fixture) fencedOut(l store.Leased) {
	f.Helper()
	before, err := Dump(f.ctx, f.Store)
	f.wantCode(err, "", "dump")
	op, fence := l.Operation.ID, l.Operation.Fence
	f.wantCode(f.Renew(f.ctx, op, fence, f.now.Add(time.Hour)), core.CodeFenced, "renew")
	f.wantCode(f.Progress(f.ctx, op, fence, core.StateUpdating), core.CodeFenced, "progress")
	f.wantCode(f.Park(f.ctx, op, fence), core.CodeFenced, "park")
	f.wantCode(f.SaveOutputs(f.ctx, op, fence, []core.Output{{ID: ext("g", "x")}}, nil), core.CodeFenced, "save outputs")
	f.wantCode(f.End(f.ctx, store.Ending{Operation: op, Fence: fence, State: core.StateFailed, Removed: true, Now: f.now}), core.CodeFenced, "end")
	after, err := Dump(f.ctx, f.Store)
	f.wantCode(err, "", "dump")
	f.same(before, after, "after calls of a lost lease")
}
