package storetest

import (
	"fmt"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

func child(of string) func(*store.Write) {
	return func(w *store.Write) { w.Operation.Parent = of }
}

var parkCases = map[string]func(*fixture){
	"D-45 the end of the last child wakes the parent": func(f *fixture) {
		f.start([]string{"g"})
		parent := f.accept(ext("g", "parent"))
		l := f.leaseOne()
		f.accept(ext("g", "a"), child(parent))
		f.accept(ext("g", "b"), child(parent))
		f.wantCode(f.Park(f.ctx, parent, l.Operation.Fence), "", "park")
		o := f.status(parent)
		if !o.Parked || o.Children != 2 || !o.LeaseUntil.IsZero() || o.Worker != "" {
			f.Errorf("parked operation is %+v", o)
		}
		f.fencedOut(l)
		f.now = f.now.Add(100 * leaseFor) // no lease, so none that could run out
		children := f.lease(9)
		f.same(2, len(children), "operations to lease while the parent is parked")
		f.end(children[0], core.StateSucceeded)
		f.same([]string{}, operationIDs(f.lease(9)), "leased after the first child")
		f.end(children[1], core.StateFailed)
		woken := f.leaseOne()
		if woken.Operation.ID != parent || woken.Operation.Parked || woken.Operation.Children != 0 || woken.Operation.Fence <= l.Operation.Fence {
			f.Errorf("woken is %+v", woken.Operation)
		}
		f.end(woken, core.StateSucceeded)
	},
	"D-45 one worker, nesting three deep": func(f *fixture) {
		f.start([]string{"g"})
		// Each operation on a resource of depth n needs one of depth n+1, and
		// parks until it is there. One worker with one slot plays them all.
		f.accept(ext("g", "depth0"))
		var ended []string
		started := map[string]bool{}
		for range 20 {
			ls := f.lease(1)
			if len(ls) == 0 {
				break
			}
			l := ls[0]
			depth := int(l.Resource.ID.Name()[len("depth")] - '0')
			if depth < 3 && !started[l.Operation.ID] {
				started[l.Operation.ID] = true
				f.accept(ext("g", fmt.Sprintf("depth%d", depth+1)), child(l.Operation.ID))
				f.wantCode(f.Park(f.ctx, l.Operation.ID, l.Operation.Fence), "", "park")
				continue
			}
			f.end(l, core.StateSucceeded)
			ended = append(ended, l.Resource.ID.Name())
		}
		f.same([]string{"depth3", "depth2", "depth1", "depth0"}, ended, "order of ends")
		if n, _, err := f.Pending(f.ctx); err != nil || n != 0 {
			f.Errorf("%d operations are left (%v)", n, err)
		}
	},
	"D-45 parking without live children waits for a worker at once": func(f *fixture) {
		f.start([]string{"g"})
		parent := f.accept(ext("g", "parent"))
		l := f.leaseOne()
		f.accept(ext("g", "a"), child(parent))
		f.end(f.leaseOne(), core.StateSucceeded) // before the parent parks
		f.wantCode(f.Park(f.ctx, parent, l.Operation.Fence), "", "park")
		f.fencedOut(l)
		f.same(parent, f.leaseOne().Operation.ID, "leased")
	},
	"D-45 waiting for children is no attempt": func(f *fixture) {
		f.start([]string{"g"})
		parent := f.accept(ext("g", "parent"))
		for n := range 4 {
			l := f.leaseOne()
			f.same(1, l.Operation.Attempts, "attempts")
			f.accept(ext("g", fmt.Sprint("kid", n)), child(parent))
			f.wantCode(f.Park(f.ctx, parent, l.Operation.Fence), "", "park")
			f.end(f.leaseOne(), core.StateSucceeded)
		}
		lost := f.leaseOne()
		f.now = f.now.Add(leaseFor)
		f.same(2, f.leaseOne().Operation.Attempts, "attempts after a worker that was lost")
		f.fencedOut(lost)
	},
	"D-45 children that end as the parent parks wake it once": func(f *fixture) {
		f.start([]string{"g"})
		for round := range 10 {
			name := fmt.Sprintf("r%d", round)
			parent := f.accept(ext("g", name))
			l := f.leaseOne()
			for i := range 4 {
				f.accept(ext("g", fmt.Sprintf("%s-%d", name, i)), child(parent))
			}
			children := f.lease(4)
			for _, err := range atOnce(5, func(i int) error {
				if i == 4 {
					return f.Park(f.ctx, parent, l.Operation.Fence)
				}
				return f.End(f.ctx, store.Ending{Operation: children[i].Operation.ID, Fence: children[i].Operation.Fence, State: core.StateSucceeded, Now: f.now})
			}) {
				f.wantCode(err, "", "park or end")
			}
			woken := f.leaseOne()
			f.same(parent, woken.Operation.ID, "leased")
			f.end(woken, core.StateSucceeded)
		}
	},
}
