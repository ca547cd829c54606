package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

var byAlice = core.Errorf(core.CodeCanceled, "canceled by alice")

// cancel asks for the end of an operation.
func (f *fixture) cancel(op string) (core.Operation, error) {
	return f.Cancel(f.ctx, store.Cancel{Operation: op, Error: byAlice, Now: f.now})
}

// wantCanceled checks an operation that the store has ended, and its resource.
func (f *fixture) wantCanceled(op string, id core.ID) {
	f.Helper()
	o := f.status(op)
	if o.State != core.StateCanceled || !o.Ended.Equal(f.now) || o.Error == nil || o.Error.Code != core.CodeCanceled || !o.LeaseUntil.IsZero() || o.Parked {
		f.Errorf("canceled operation is %+v, error %v", o, o.Error)
	}
	r, live := f.get(id)
	if r.State != core.StateCanceled || live != nil {
		f.Errorf("%s is %s with live operation %v", id, r.State, live)
	}
}

// recorder keeps what a listener is told.
type recorder struct {
	mu   sync.Mutex
	told []store.Change
}

func (r *recorder) listen(cs []store.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, cs...)
}

// of returns the changes of a kind so far.
func (r *recorder) of(k store.ChangeKind) (out []store.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.told {
		if c.Kind == k {
			c.Seq = 0
			out = append(out, c)
		}
	}
	return out
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.told)
}

// since returns what was told after the first n changes.
func (r *recorder) since(n int) []store.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]store.Change(nil), r.told[n:]...)
}

// sync waits until the listener was told of everything before: a write's own
// change comes after those of all writes before it.
func (f *fixture) sync(r *recorder) {
	f.Helper()
	f.ops++
	id := core.GroupID(fmt.Sprintf("sync-%d", f.ops))
	f.write(id)
	f.eventually(func() bool {
		for _, c := range r.of(store.ChangeState) {
			if c.ID.Equal(id) {
				return true
			}
		}
		return false
	}, "the change of "+id.String()+" was not told")
}

// eventually waits for what another goroutine of the store does.
func (f *fixture) eventually(ok func() bool, what string) {
	f.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			f.Fatal(what)
		}
		time.Sleep(time.Millisecond)
	}
}

var cancelCases = map[string]func(*fixture){
	"D-20 what no worker holds ends at once with its resource": func(f *fixture) {
		f.start([]string{"g"})
		op := f.accept(ext("g", "a"))
		before, _ := f.get(ext("g", "a"))
		o, err := f.cancel(op)
		f.wantCode(err, "", "cancel")
		f.wantCanceled(op, ext("g", "a"))
		f.same(f.status(op), o, "returned")
		if after, _ := f.get(ext("g", "a")); after.ETag == before.ETag {
			f.Error("the resource changed and its entity tag did not")
		}
		f.same([]string{}, operationIDs(f.lease(5)), "leased")
		_, err = f.cancel(op)
		f.wantSays(f.wantCode(err, core.CodeConflict, "cancel what has ended"), op, "Canceled")
		_, err = f.cancel("none")
		f.wantCode(err, core.CodeNotFound, "cancel what is unknown")
		f.accept(ext("g", "a")) // the resource is free again
	},
	"D-20 a worker that holds it is told, and ends it": func(f *fixture) {
		var r recorder
		f.start([]string{"g"}, Listener(r.listen))
		op := f.accept(ext("g", "a"))
		l := f.leaseOne()
		f.now = f.now.Add(time.Second)
		o, err := f.cancel(op)
		f.wantCode(err, "", "cancel")
		if !o.CancelRequested.Equal(f.now) || o.State != core.StateAccepted || !o.Ended.IsZero() {
			f.Errorf("canceled while leased: %+v", o)
		}
		asked := f.now
		f.now = f.now.Add(time.Second)
		o, err = f.cancel(op)
		f.wantCode(err, "", "cancel again")
		if !o.CancelRequested.Equal(asked) {
			f.Errorf("asked for at %v, want the first time, %v", o.CancelRequested, asked)
		}
		f.sync(&r)
		told := r.of(store.ChangeCancel)
		if len(told) == 0 || told[0].Operation != op || !told[0].ID.Equal(ext("g", "a")) {
			f.Errorf("told %+v", told)
		}
		f.wantCode(f.Renew(f.ctx, op, l.Operation.Fence, f.now.Add(leaseFor)), "", "renew meanwhile")
		f.end(l, core.StateCanceled)
		f.same(core.StateCanceled, f.status(op).State, "state")
	},
	"D-20 a mark outlives its worker": func(f *fixture) {
		f.start([]string{"g"})
		op := f.accept(ext("g", "a"))
		f.leaseOne()
		_, err := f.cancel(op)
		f.wantCode(err, "", "cancel")
		f.now = f.now.Add(2 * leaseFor) // the worker died
		next := f.leaseOne()
		if next.Operation.ID != op || next.Operation.CancelRequested.IsZero() {
			f.Errorf("the next worker got %+v", next.Operation)
		}
	},
	"D-20 D-18 a lease that ran out does not keep it, and its worker is fenced": func(f *fixture) {
		f.start([]string{"g"})
		op := f.accept(ext("g", "a"))
		l := f.leaseOne()
		f.now = f.now.Add(leaseFor)
		_, err := f.cancel(op)
		f.wantCode(err, "", "cancel")
		f.wantCanceled(op, ext("g", "a"))
		f.fencedOut(l)
	},
	"D-20 D-45 a parked operation ends with all below it, and wakes its own parent": func(f *fixture) {
		var told recorder
		f.start([]string{"g"}, Listener(told.listen))
		top := f.accept(ext("g", "top"))
		l := f.leaseOne()
		middle := f.accept(ext("g", "middle"), child(top))
		f.wantCode(f.Park(f.ctx, top, l.Operation.Fence), "", "park top")
		l = f.leaseOne()
		waits, held := f.accept(ext("g", "waits"), child(middle)), f.accept(ext("g", "held"), child(middle))
		f.wantCode(f.Park(f.ctx, middle, l.Operation.Fence), "", "park middle")
		ls := f.lease(2)
		if ls[0].Operation.ID != held {
			ls[0], ls[1] = ls[1], ls[0]
		}
		below := f.accept(ext("g", "below"), child(waits))
		f.wantCode(f.Park(f.ctx, waits, ls[1].Operation.Fence), "", "park what waits")
		_, err := f.cancel(middle)
		f.wantCode(err, "", "cancel")
		f.wantCanceled(middle, ext("g", "middle"))
		f.wantCanceled(waits, ext("g", "waits"))
		f.wantCanceled(below, ext("g", "below"))
		if o := f.status(held); o.CancelRequested.IsZero() || !o.Ended.IsZero() {
			f.Errorf("what a worker holds is %+v", o)
		}
		f.sync(&told)
		if asked := told.of(store.ChangeCancel); len(asked) != 1 || asked[0].Operation != held {
			f.Errorf("the workers are told %+v", asked)
		}
		f.same([]string{top}, operationIDs(f.lease(5)), "leased")
		f.end(ls[0], core.StateCanceled)
		if n, _, err := f.Pending(f.ctx); err != nil || n != 1 {
			f.Errorf("%d operations live beside the top (%v)", n-1, err)
		}
	},
	"D-20 D-45 what its worker ends as canceled takes its children along": func(f *fixture) {
		f.start([]string{"g"})
		parent := f.accept(ext("g", "parent"))
		l := f.leaseOne()
		first := f.accept(ext("g", "first"), child(parent))
		_, err := f.cancel(parent)
		f.wantCode(err, "", "cancel")
		f.wantCanceled(first, ext("g", "first"))
		second := f.accept(ext("g", "second"), child(parent)) // its worker has not heard of it yet
		f.wantCode(f.End(f.ctx, store.Ending{Operation: parent, Fence: l.Operation.Fence, State: core.StateCanceled, Error: byAlice, Now: f.now}), "", "end")
		f.wantCanceled(second, ext("g", "second"))
		f.wantCanceled(parent, ext("g", "parent"))
	},
	"D-20 a deletion that is canceled leaves the resource": func(f *fixture) {
		f.start([]string{"g"})
		f.write(ext("g", "a"))
		op := f.remove(ext("g", "a"))
		_, err := f.cancel(op)
		f.wantCode(err, "", "cancel")
		f.wantCanceled(op, ext("g", "a"))
	},
	"D-20 of canceling and leasing at once one comes first": func(f *fixture) {
		f.start([]string{"g"})
		for i := range 20 {
			op := f.accept(ext("g", fmt.Sprintf("r%d", i)))
			var ls []store.Leased
			for _, err := range atOnce(2, func(i int) (err error) {
				if i == 0 {
					_, err = f.cancel(op)
				} else {
					ls, err = f.Lease(f.ctx, store.Lease{Worker: "w", Max: 1, Now: f.now, Until: f.now.Add(leaseFor)})
				}
				return err
			}) {
				f.wantCode(err, "", "cancel or lease")
			}
			switch o := f.status(op); {
			case len(ls) == 0 && o.State == core.StateCanceled:
			case len(ls) == 1 && !o.CancelRequested.IsZero():
				f.end(ls[0], core.StateCanceled)
			default:
				f.Errorf("leased %v and the operation is %+v", operationIDs(ls), o)
			}
		}
	},
}

var deadlineCases = map[string]func(*fixture){
	"D-20 what passed its deadline while nobody held it ends": func(f *fixture) {
		f.start([]string{"g"})
		expire := func(limit int) []string {
			f.Helper()
			os, err := f.Expire(f.ctx, store.Expiry{Error: core.Errorf(core.CodeCanceled, "too late"), Now: f.now, Limit: limit})
			f.wantCode(err, "", "expire")
			out := []string{}
			for _, o := range os {
				f.same(f.status(o.ID), o, "returned")
				out = append(out, o.ID)
			}
			return out
		}
		soon := func(d time.Duration) func(*store.Write) {
			return func(w *store.Write) { w.Operation.Deadline = f.now.Add(d) }
		}
		waiting := f.accept(ext("g", "waiting"), soon(time.Minute))
		held := f.accept(ext("g", "held"), soon(time.Minute))
		parked := f.accept(ext("g", "parked"), soon(time.Minute))
		later := f.accept(ext("g", "later"), soon(time.Hour))
		never := f.accept(ext("g", "never"), func(w *store.Write) { w.Operation.Deadline = time.Time{} })
		for _, l := range f.lease(9) {
			switch l.Operation.ID {
			case held:
				f.wantCode(f.Renew(f.ctx, held, l.Operation.Fence, f.now.Add(90*time.Second)), "", "renew")
			case parked:
				f.accept(ext("g", "kid"), child(parked))
				f.wantCode(f.Park(f.ctx, parked, l.Operation.Fence), "", "park")
			}
		}
		f.same([]string{}, expire(9), "before the deadline")
		f.now = f.now.Add(time.Minute)
		first := expire(1)
		if len(first) != 1 {
			f.Fatalf("ended %v, asked for one", first)
		}
		got := append(first, expire(9)...)
		if len(got) != 2 || got[0] == got[1] || got[0] != waiting && got[0] != parked || got[1] != waiting && got[1] != parked {
			f.Fatalf("ended %v, want %s and %s", got, waiting, parked)
		}
		f.wantCanceled(waiting, ext("g", "waiting"))
		f.wantCanceled(parked, ext("g", "parked"))
		f.now = f.now.Add(30 * time.Second)
		f.same([]string{held}, expire(9), "once the lease ran out")
		for _, op := range []string{later, never} {
			if o := f.status(op); !o.Ended.IsZero() {
				f.Errorf("%s ended as %s", op, o.State)
			}
		}
	},
}

var messageCases = map[string]func(*fixture){
	"messages are kept in order, over workers": func(f *fixture) {
		f.start([]string{"g"})
		op, other := f.accept(ext("g", "a")), f.accept(ext("g", "b"))
		ls := f.lease(2)
		l := ls[0]
		want := []store.Message{}
		say := func(l store.Leased, texts ...string) {
			f.Helper()
			var ms []store.Message
			for _, text := range texts {
				f.now = f.now.Add(time.Millisecond)
				ms = append(ms, store.Message{Time: f.now, Text: text})
				if l.Operation.ID == op {
					want = append(want, store.Message{Seq: int64(len(want) + 1), Time: f.now, Text: text})
				}
			}
			f.wantCode(f.Append(f.ctx, l.Operation.ID, l.Operation.Fence, ms), "", "append")
		}
		read := func(after int64, limit int) []store.Message {
			f.Helper()
			ms, err := f.Messages(f.ctx, op, after, limit)
			f.wantCode(err, "", "messages")
			return ms
		}
		f.same([]store.Message{}, read(0, 0), "before the first")
		say(l, "one", "two \"quoted\"\n")
		say(ls[1], "another's")
		say(l)
		say(l, "three")
		f.now = f.now.Add(leaseFor)
		for _, next := range f.lease(2) {
			if next.Operation.ID == op {
				say(next, "four")
			}
		}
		f.same(want, read(0, 0), "all")
		f.same(want[2:], read(2, 0), "after the second")
		f.same(want[1:3], read(1, 2), "two after the first")
		f.same([]store.Message{}, read(4, 0), "after the last")
		f.wantCode(f.Append(f.ctx, op, l.Operation.Fence, []store.Message{{Text: "late"}}), core.CodeFenced, "append under a lost lease")
		f.same(want, read(0, 0), "after a refused one")
		_, err := f.Messages(f.ctx, "none", 0, 0)
		f.wantCode(err, core.CodeNotFound, "messages of an unknown operation")
		f.same(1, len(must(f.Messages(f.ctx, other, 0, 0))), "messages of the other")
	},
	"a reader is told that there are more": func(f *fixture) {
		var r recorder
		f.start([]string{"g"}, Listener(r.listen))
		op := f.accept(ext("g", "a"))
		l := f.leaseOne()
		f.wantCode(f.Append(f.ctx, op, l.Operation.Fence, []store.Message{{Time: f.now, Text: "one"}, {Time: f.now, Text: "two"}}), "", "append")
		f.sync(&r)
		f.same([]store.Change{{Kind: store.ChangeMessages, ID: ext("g", "a"), Operation: op}}, r.of(store.ChangeMessages), "told")
	},
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var historyCases = map[string]func(*fixture){
	"operations are listed newest first, by each restriction": func(f *fixture) {
		f.start([]string{"g", "h"})
		var all []string
		note := func(op string) string {
			all = append([]string{op}, all...)
			return op
		}
		a1 := note(f.accept(ext("g", "a")))
		l := f.leaseOne()
		kid := note(f.accept(ext("h", "kid"), child(a1)))
		f.end(l, core.StateFailed)
		a2 := note(f.accept(ext("g", "A")))
		b := note(f.accept(ext("g", "b")))
		for name, c := range map[string]struct {
			q    store.OperationQuery
			want []string
		}{
			"all":                          {store.OperationQuery{}, all},
			"of a resource":                {store.OperationQuery{Resource: ext("G", "a")}, []string{a2, a1}},
			"of a group":                   {store.OperationQuery{Group: "g"}, []string{b, a2, a1}},
			"of a parent":                  {store.OperationQuery{Parent: a1}, []string{kid}},
			"live":                         {store.OperationQuery{Live: true}, []string{b, a2, kid}},
			"live of a group":              {store.OperationQuery{Live: true, Group: "g"}, []string{b, a2}},
			"live of a resource and group": {store.OperationQuery{Live: true, Group: "g", Resource: ext("g", "a")}, []string{a2}},
			"nothing":                      {store.OperationQuery{Group: "no"}, []string{}},
		} {
			for _, limit := range []int{0, 1, 2, 9} {
				c.q.Limit, c.q.After = limit, ""
				got := []string{}
				for {
					p, err := f.Operations(f.ctx, c.q)
					f.wantCode(err, "", name)
					for _, o := range p.Operations {
						f.same(f.status(o.ID), o, name)
						got = append(got, o.ID)
					}
					if c.q.After = p.Next; p.Next == "" {
						break
					}
				}
				f.same(c.want, got, fmt.Sprintf("%s, %d a page", name, limit))
			}
		}
		_, err := f.Operations(f.ctx, store.OperationQuery{After: "x"})
		f.wantCode(err, core.CodeBadRequest, "a page that is none")
	},
	"D-20 history is removed once it is old, what lives never": func(f *fixture) {
		f.start([]string{"g"})
		var old []string
		for i := range 3 {
			old = append(old, f.accept(ext("g", fmt.Sprintf("old%d", i))))
			l := f.leaseOne()
			f.wantCode(f.Append(f.ctx, l.Operation.ID, l.Operation.Fence, []store.Message{{Time: f.now, Text: "x"}}), "", "append")
			f.end(l, core.StateSucceeded)
		}
		live := f.accept(ext("g", "live"))
		f.wantCode(f.AppendAudit(f.ctx, []store.AuditRecord{{Time: f.now, Principal: "old"}}), "", "audit")
		f.now = f.now.Add(store.KeptOperations)
		recent := f.accept(ext("g", "recent"))
		for _, l := range f.lease(9) {
			if l.Operation.ID == recent {
				f.end(l, core.StateSucceeded)
			}
		}
		f.wantCode(f.AppendAudit(f.ctx, []store.AuditRecord{{Time: f.now, Principal: "recent"}}), "", "audit")
		sweep := func(limit int) int {
			f.Helper()
			n, err := f.Sweep(f.ctx, store.Sweep{Operations: f.now, Limit: limit})
			f.wantCode(err, "", "sweep")
			return n
		}
		f.same([]int{2, 1, 0}, []int{sweep(2), sweep(2), sweep(2)}, "rows that went")
		for _, op := range old {
			_, err := f.Operation(f.ctx, op)
			f.wantCode(err, core.CodeNotFound, "an old operation")
			_, err = f.Messages(f.ctx, op, 0, 0)
			f.wantCode(err, core.CodeNotFound, "its messages")
		}
		f.status(live)
		f.status(recent)
		f.same(2, len(must(f.AuditRecords(f.ctx, store.AuditQuery{})).Records), "audit records, which were not to go")
		n, err := f.Sweep(f.ctx, store.Sweep{Audit: f.now, Limit: 9})
		f.wantCode(err, "", "sweep the audit")
		f.same(1, n, "audit records that went")
		f.same("recent", must(f.AuditRecords(f.ctx, store.AuditQuery{})).Records[0].Principal, "what is left")
		f.get(ext("g", "old0"))
	},
	"counts say how the queue stands": func(f *fixture) {
		f.start([]string{"g"})
		want := func(c store.Counts) {
			f.Helper()
			got, err := f.Counts(f.ctx, f.now)
			f.wantCode(err, "", "counts")
			f.same(c, got, "counts")
		}
		want(store.Counts{})
		parent := f.accept(ext("g", "parent"))
		l := f.leaseOne()
		f.accept(ext("g", "kid"), child(parent))
		f.wantCode(f.Park(f.ctx, parent, l.Operation.Fence), "", "park")
		kid := f.leaseOne()
		f.wantCode(f.Progress(f.ctx, kid.Operation.ID, kid.Operation.Fence, core.StateUpdating), "", "progress")
		first := f.accept(ext("g", "first"))
		f.accept(ext("g", "second"))
		f.write(ext("g", "gone"))
		f.remove(ext("g", "gone"))
		want(store.Counts{Waiting: 3, Leased: 1, Parked: 1, Oldest: f.status(first).Created,
			States: map[core.State]int{core.StateAccepted: 3, core.StateUpdating: 1, core.StateDeleting: 1}})
		f.now = f.now.Add(leaseFor) // the lease of the child ran out
		want(store.Counts{Waiting: 4, Parked: 1, Oldest: f.status(kid.Operation.ID).Created,
			States: map[core.State]int{core.StateAccepted: 3, core.StateUpdating: 1, core.StateDeleting: 1}})
	},
}

var auditCases = map[string]func(*fixture){
	"D-46 records are kept, newest first, by each restriction": func(f *fixture) {
		f.start(nil)
		at := func(s int) time.Time { return f.now.Add(time.Duration(s) * time.Second) }
		records := []store.AuditRecord{
			{Time: at(1), Principal: "alice", Action: "write A/b", Target: ext("G", "a").String(), Allowed: true, Reason: "owner", Source: "10.0.0.1", Request: "r1"},
			{Time: at(2), Principal: "bob", Action: "delete A/b", Target: ext("g", "A").String(), Reason: "no role"},
			{Time: at(2), Principal: "alice", Action: "read A/b", Target: ext("g2", "a").String(), Allowed: true},
			{Time: at(3), Principal: "alice", Action: "delete A/b", Target: ext("g", "ab").String()},
		}
		f.wantCode(f.AppendAudit(f.ctx, records[:3]), "", "append")
		f.wantCode(f.AppendAudit(f.ctx, records[3:]), "", "append")
		f.wantCode(f.AppendAudit(f.ctx, nil), "", "append nothing")
		for name, c := range map[string]struct {
			q    store.AuditQuery
			want []int
		}{
			"all":                {store.AuditQuery{}, []int{3, 2, 1, 0}},
			"a principal":        {store.AuditQuery{Principal: "alice"}, []int{3, 2, 0}},
			"a resource":         {store.AuditQuery{Target: ext("g", "A").String()}, []int{1, 0}},
			"a group":            {store.AuditQuery{Target: core.GroupID("g").String()}, []int{3, 1, 0}},
			"refused":            {store.AuditQuery{Refused: true}, []int{3, 1}},
			"from a time":        {store.AuditQuery{From: at(2)}, []int{3, 2, 1}},
			"to a time":          {store.AuditQuery{To: at(2)}, []int{0}},
			"between":            {store.AuditQuery{From: at(2), To: at(3)}, []int{2, 1}},
			"alice's, refused":   {store.AuditQuery{Principal: "alice", Refused: true}, []int{3}},
			"nobody's":           {store.AuditQuery{Principal: "eve"}, nil},
			"bob's in the group": {store.AuditQuery{Principal: "bob", Target: core.GroupID("G").String(), To: at(9)}, []int{1}},
		} {
			for _, limit := range []int{0, 1, 3} {
				c.q.Limit, c.q.After = limit, ""
				var got, want []store.AuditRecord
				for _, i := range c.want {
					want = append(want, records[i])
				}
				for {
					p, err := f.AuditRecords(f.ctx, c.q)
					f.wantCode(err, "", name)
					for _, r := range p.Records {
						if r.Seq == 0 {
							f.Errorf("%s: a record without a number", name)
						}
						r.Seq = 0
						got = append(got, r)
					}
					if c.q.After = p.Next; p.Next == "" {
						break
					}
				}
				f.same(want, got, fmt.Sprintf("%s, %d a page", name, limit))
			}
		}
		_, err := f.AuditRecords(f.ctx, store.AuditQuery{After: "7.x"})
		f.wantCode(err, core.CodeBadRequest, "a page that is none")
	},
}
