package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

var listCases = map[string]func(*fixture){
	"each restriction, alone and together": func(f *fixture) {
		f.start([]string{"g", "h"})
		env := core.GroupID("g").Resource(typeEnv, "prod")
		belongs := func(a core.ID) func(*store.Write) {
			return func(w *store.Write) { w.Resource.Application, w.Resource.Environment = a, env }
		}
		f.write(env)
		f.write(app("g", "shop"))
		f.write(ext("g", "b"), belongs(app("g", "shop")))
		f.write(ext("g", "A"), belongs(app("g", "shop")))
		f.write(ext("h", "c"), belongs(app("g", "shop")))
		f.write(core.GroupID("g").Resource("Applications.Datastores/redisCaches", "d"), belongs(app("g", "shop")))
		f.write(ext("h", "e"))
		upper := core.MustParseID("/PLANES/RADIUS/LOCAL/RESOURCEGROUPS/G/PROVIDERS/APPLICATIONS.CORE/APPLICATIONS/SHOP")
		for name, c := range map[string]struct {
			q    store.Query
			want []string
		}{
			"a group":                     {store.Query{Scope: core.GroupID("G")}, []string{"shop", "prod", "A", "b", "d"}},
			"a plane, without its groups": {store.Query{Scope: planeID}, []string{"shop", "prod", "A", "b", "d", "c", "e"}},
			"everything":                  {store.Query{}, []string{"shop", "prod", "A", "b", "d", "c", "e"}},
			"a type":                      {store.Query{Type: "applications.core/EXTENDERS"}, []string{"A", "b", "c", "e"}},
			"a type of a group":           {store.Query{Scope: core.GroupID("h"), Type: typeExt}, []string{"c", "e"}},
			"an application":              {store.Query{Application: upper}, []string{"A", "b", "d", "c"}},
			"an application's of a type":  {store.Query{Application: upper, Type: typeExt}, []string{"A", "b", "c"}},
			"an application's of a group": {store.Query{Application: upper, Scope: core.GroupID("h")}, []string{"c"}},
			"an environment":              {store.Query{Environment: env}, []string{"A", "b", "d", "c"}},
			"all of them":                 {store.Query{Environment: env, Application: upper, Type: typeExt, Scope: core.GroupID("g")}, []string{"A", "b"}},
			"groups":                      {store.Query{Scope: planeID, Type: store.TypeGroup}, []string{"g", "h"}},
			"planes":                      {store.Query{Type: store.TypePlane}, []string{"local"}},
			"nothing":                     {store.Query{Type: "No.Such/type"}, []string{}},
		} {
			for _, limit := range []int{0, 1, 2, 100} {
				c.q.Limit = limit
				f.same(c.want, f.list(c.q), fmt.Sprintf("%s, %d a page", name, limit))
			}
		}
	},
	"names that patterns would match": func(f *fixture) {
		names := []string{"a_b", "axb", "a%b", "a%", "a-b", "a", "a.b", "A*b", "a[x]b"}
		f.start(names)
		for _, n := range names {
			f.write(ext(n, "in-"+n))
			f.write(app(n, "app_"+n))
			f.write(core.GroupID("a").Resource("Applications.Core/gateways", n), func(w *store.Write) { w.Resource.Application = app(n, "app_"+n) })
		}
		for _, n := range names {
			f.same([]string{"in-" + n}, f.list(store.Query{Scope: core.GroupID(n), Type: typeExt}), "extenders of group "+n)
			f.same([]string{n}, f.list(store.Query{Application: app(n, "app_"+n)}), "members of application app_"+n)
			g, err := f.Graph(f.ctx, core.GroupID(n))
			f.wantCode(err, "", "graph")
			if want := map[bool]int{true: 2 + len(names), false: 2}[n == "a"]; len(g.Nodes) != want {
				f.Errorf("graph of group %s has %v, want %d", n, nodesOf(g), want)
			}
		}
	},
	"D-23 pages are complete and without duplicates under concurrent writes": func(f *fixture) {
		f.start([]string{"g"})
		const stable = 200
		want := []string{}
		for i := range stable {
			n := fmt.Sprintf("r%03d", i)
			want = append(want, n)
			f.write(ext("g", n))
		}
		ctx, stop := context.WithCancel(f.ctx)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					// Between the stable rows others come and go, and the
					// stable ones change.
					id := ext("g", fmt.Sprintf("r%03d-%d", (i*37)%stable, w))
					now := time.Unix(0, int64(i+1))
					_, _ = f.Accept(ctx, store.Write{Resource: plain(id, core.StateSucceeded), Expect: "*", Now: now})
					_, _ = f.Accept(ctx, store.Write{Resource: plain(ext("g", fmt.Sprintf("r%03d", (i*53)%stable)), core.StateFailed), Expect: "*", Now: now})
					_, _ = f.AcceptDelete(ctx, store.Delete{ID: id, Expect: "*", Now: now})
				}
			})
		}
		for range 5 {
			seen := map[string]bool{}
			var got []string
			for _, n := range f.list(store.Query{Scope: core.GroupID("g"), Limit: 7}) {
				if seen[n] {
					f.Errorf("%s came twice", n)
				}
				seen[n] = true
				if len(n) == 4 {
					got = append(got, n)
				}
			}
			f.same(want, got, "rows that were there all the time")
		}
		stop()
		wg.Wait()
	},
}

var listenerCases = map[string]func(*fixture){
	"changes are told after their commit, in order": func(f *fixture) {
		var r recorder
		f.start(nil, Listener(r.listen))
		taken := 0
		// take waits for n changes, for a store that tells of them on its own
		// time, and for what comes without being wanted.
		take := func(n int) []store.Change {
			f.Helper()
			f.eventually(func() bool { return r.count() >= taken+n }, "not all changes were told")
			out := r.since(taken)
			taken += len(out)
			for i := range out {
				if i > 0 && out[i].Seq <= out[i-1].Seq {
					f.Errorf("change %d came after %d", out[i].Seq, out[i-1].Seq)
				}
			}
			for i := range out {
				out[i].Seq = 0
			}
			return out
		}
		want := func(what string, cs ...store.Change) {
			f.Helper()
			f.same(cs, take(len(cs)), what)
		}
		a, b, group, shop := ext("g", "a"), ext("g", "b"), core.GroupID("g"), app("g", "shop")
		want("a synchronous write", store.Change{ID: planeID, State: core.StateSucceeded})
		op := f.accept(a, implicit("g", "shop"))
		want("a first member", store.Change{ID: group, State: core.StateSucceeded}, store.Change{ID: shop, State: core.StateSucceeded},
			store.Change{ID: a, Operation: op, State: core.StateAccepted, Work: true})
		_, err := f.Accept(f.ctx, f.put(a))
		f.wantCode(err, core.CodeConflict, "refused write")
		want("a refused write")
		l := f.leaseOne()
		f.wantCode(f.Progress(f.ctx, op, l.Operation.Fence, core.StateUpdating), "", "progress")
		want("progress", store.Change{ID: a, Operation: op, State: core.StateUpdating})
		kid := f.accept(b, child(op))
		f.wantCode(f.Park(f.ctx, op, l.Operation.Fence), "", "park")
		want("parked", store.Change{ID: b, Operation: kid, State: core.StateAccepted, Work: true}, store.Change{ID: a, Operation: op, State: core.StateUpdating})
		f.end(f.leaseOne(), core.StateSucceeded)
		want("the last child's end", store.Change{ID: b, Operation: kid, State: core.StateSucceeded},
			store.Change{ID: a, Operation: op, State: core.StateUpdating, Work: true})
		f.end(f.leaseOne(), core.StateSucceeded)
		want("the end", store.Change{ID: a, Operation: op, State: core.StateSucceeded})
		f.gone(b)
		take(2)
		op = f.remove(a)
		want("a deletion", store.Change{ID: a, Operation: op, State: core.StateDeleting, Work: true})
		f.end(f.leaseOne(), core.StateSucceeded)
		want("the last member's end", store.Change{ID: a, Operation: op, State: core.StateSucceeded, Deleted: true},
			store.Change{ID: shop, Deleted: true}, store.Change{ID: group, Deleted: true})
	},
	"who is told can read it": func(f *fixture) {
		told := make(chan store.Change, 1000)
		f.start([]string{"g"}, Listener(func(cs []store.Change) {
			for _, c := range cs {
				told <- c
			}
		}))
		const n = 50
		errs := make(chan []error, 1)
		go func() {
			errs <- atOnce(n, func(i int) error {
				_, err := f.Accept(f.ctx, store.Write{Resource: plain(ext("g", fmt.Sprintf("r%d", i)), core.StateSucceeded), Now: epoch})
				return err
			})
		}()
		for range n + 2 { // and plane and group
			select {
			case c := <-told:
				f.get(c.ID)
			case <-f.ctx.Done():
				f.Fatal("not all changes were told")
			}
		}
		for _, err := range <-errs {
			f.wantCode(err, "", "accept")
		}
	},
}
