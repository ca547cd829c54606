package storetest

import (
	"fmt"
	"sync"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// togetherCases are calls that come at once: a store may make several in one
// transaction, and each must still be what it is alone.
var togetherCases = map[string]func(*fixture){
	"D-18 each of many writes passes or fails by its own fault": func(f *fixture) {
		f.start([]string{"g"})
		const n = 24
		at := func(kind string, i int) core.ID { return ext("g", fmt.Sprint(kind, i)) }
		for i := range n {
			f.write(at("stale", i))
			f.write(at("doomed", i))
			f.write(at("kept", i))
		}
		type outcome struct {
			what string
			want core.Code
			err  error
		}
		var mu sync.Mutex
		var got []outcome
		var wg sync.WaitGroup
		call := func(what string, want core.Code, do func() error) {
			wg.Go(func() {
				err := do()
				mu.Lock()
				defer mu.Unlock()
				got = append(got, outcome{what, want, err})
			})
		}
		write := func(what string, want core.Code, w store.Write) {
			call(what, want, func() error { _, err := f.Accept(f.ctx, w); return err })
		}
		for i := range n {
			write("a new one", "", f.put(at("new", i), func(w *store.Write) {
				w.Edges = []core.Edge{{From: w.Resource.ID, To: at("kept", i), Kind: core.EdgeConnection, Name: "kept"}}
			}))
			write("one with another tag", store.Changed, f.put(at("stale", i), func(w *store.Write) { w.Expect = "old" }))
			write("one without a group", core.CodeNotFound, f.put(ext("none", fmt.Sprint(i))))
			write("one that makes its group", "", f.put(ext(fmt.Sprint("made", i%3), fmt.Sprint(i)), implicit(fmt.Sprint("made", i%3), "shop")))
			d := store.Delete{ID: at("doomed", i), Operation: f.operation(at("doomed", i), core.VerbDelete), State: core.StateDeleting, Expect: "*", Now: f.now}
			call("a deletion", "", func() error {
				r, err := f.AcceptDelete(f.ctx, d)
				if err == nil && (!r.ID.Equal(d.ID) || r.State != core.StateDeleting) {
					err = fmt.Errorf("it answers %s in state %s", r.ID, r.State)
				}
				return err
			})
			none := store.Delete{ID: at("none", i), Operation: f.operation(at("none", i), core.VerbDelete), State: core.StateDeleting, Expect: "*", Now: f.now}
			call("a deletion of nothing", core.CodeNotFound, func() error { _, err := f.AcceptDelete(f.ctx, none); return err })
		}
		wg.Wait()
		for _, o := range got {
			f.wantCode(o.err, o.want, o.what)
		}
		leased := f.lease(4 * n)
		f.same(3*n, len(leased), "operations that were accepted")
		got = nil
		for i, l := range leased {
			e := store.Ending{Operation: l.Operation.ID, Fence: l.Operation.Fence, State: core.StateSucceeded, Removed: l.Operation.Verb == core.VerbDelete, Now: f.now}
			if i%2 == 0 {
				e.Parentless = true
			}
			old := e
			old.Fence--
			call("an end under an old fence", core.CodeFenced, func() error { return f.End(f.ctx, old) })
			call("an end", "", func() error { return f.End(f.ctx, e) })
		}
		wg.Wait()
		for _, o := range got {
			f.wantCode(o.err, o.want, o.what)
		}
		for i := range n {
			f.mustNotExist(at("doomed", i))
			if r, o := f.get(at("new", i)); r.State != core.StateSucceeded || o != nil {
				f.Errorf("%s is %s under %v, want it Succeeded", r.ID, r.State, o)
			}
		}
		for _, l := range leased {
			if o := f.status(l.Operation.ID); o.State != core.StateSucceeded || o.Ended.IsZero() {
				f.Errorf("operation %s on %s is %s", o.ID, o.ResourceID, o.State)
			}
		}
	},
	"D-9 of many writes of one resource under one tag one passes": func(f *fixture) {
		f.start([]string{"g"})
		for round := range 10 {
			id := ext("g", fmt.Sprint("r", round))
			tag := f.write(id).ETag
			var wg sync.WaitGroup
			errs := make([]error, 16)
			for i := range errs {
				w := store.Write{Resource: plain(id, core.StateSucceeded), Expect: tag, Now: f.now}
				wg.Go(func() { _, errs[i] = f.Accept(f.ctx, w) })
			}
			wg.Wait()
			passed := 0
			for _, err := range errs {
				if err == nil {
					passed++
				} else {
					f.wantCode(err, store.Changed, "a write under a tag that another has used")
				}
			}
			f.same(1, passed, "writes that passed")
		}
	},
	"a graph is one snapshot": func(f *fixture) {
		f.start([]string{"g"})
		a, done := ext("g", "a"), make(chan struct{})
		go func() {
			defer close(done)
			for range 40 {
				f.accept(a)
				l := f.leaseOne()
				if err := f.SaveOutputs(f.ctx, l.Operation.ID, l.Operation.Fence, []core.Output{{ID: secret("s"), State: core.OutputMade}}, nil); err != nil {
					f.Errorf("save: %v", err)
					return
				}
				f.end(l, core.StateSucceeded)
				f.gone(a)
			}
		}()
		for {
			g, err := f.Graph(f.ctx, core.GroupID("g"))
			f.wantCode(err, "", "graph")
			for _, n := range g.Nodes {
				if n.State == core.StateDeleting && len(n.Outputs) != 1 { // both go by one commit
					f.Errorf("%s is %s and has the outputs %v", n.ID, n.State, n.Outputs)
				}
			}
			select {
			case <-done:
				return
			default:
			}
		}
	},
}
