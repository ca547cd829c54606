package storetest

import (
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

func deployment(namespace, uid string) core.Owner {
	return core.Owner{Cluster: "local", Namespace: namespace, Kind: "Deployment", Name: "web", UID: uid}
}

func owned(o core.Owner) func(*store.Write) { return func(w *store.Write) { w.Resource.Owner = o } }

var ownerCases = map[string]func(*fixture){
	"K-49 a second object does not get the resource of the first": func(f *fixture) {
		f.start([]string{"g"})
		first, second := deployment("one", "uid-1"), deployment("two", "uid-2")
		id := ext("g", "web")
		before := f.write(id, owned(first))
		_, err := f.Accept(f.ctx, f.put(id, owned(second)))
		e := f.wantCode(err, core.CodeNameConflict, "write by the second")
		f.wantSays(e, "Deployment", "one/web")
		f.same([]core.ErrorInfo{{Type: "owner", Info: first}}, e.Info, "additional information")
		after, op := f.get(id)
		f.same(before, after, "the first's resource")
		if op != nil {
			f.Errorf("the refused write left operation %s", op.ID)
		}
		_, err = f.AcceptDelete(f.ctx, store.Delete{ID: id, Expect: "*", OwnerUID: second.UID})
		f.same(first, f.wantCode(err, core.CodeNameConflict, "delete by the second").Info[0].Info, "owner named")
		f.get(id)
		_, err = f.AcceptDelete(f.ctx, store.Delete{ID: id, Expect: "*", OwnerUID: first.UID})
		f.wantCode(err, "", "delete by the first")
		f.write(id, owned(second))
	},
	"K-49 the second takes over from one known to be gone": func(f *fixture) {
		f.start([]string{"g"})
		id := ext("g", "web")
		f.write(id, owned(deployment("one", "uid-1")))
		next := deployment("two", "uid-2")
		_, err := f.Accept(f.ctx, f.put(id, owned(next), func(w *store.Write) { w.Replaces = "uid-0" }))
		f.wantCode(err, core.CodeNameConflict, "replacing another than the stored")
		r := f.write(id, owned(next), func(w *store.Write) { w.Replaces = "uid-1" })
		f.same(next, r.Owner, "owner")
	},
	"K-49 an object of another cluster takes nothing over by its uid": func(f *fixture) {
		f.start([]string{"g"})
		id := ext("g", "web")
		first := deployment("one", "uid-1")
		f.write(id, owned(first))
		claims := first
		claims.Cluster = "elsewhere"
		_, err := f.Accept(f.ctx, f.put(id, owned(claims)))
		f.same([]core.ErrorInfo{{Type: "owner", Info: first}}, f.wantCode(err, core.CodeNameConflict, "write from elsewhere").Info, "additional information")
	},
	"K-49 an object does not take a resource made through the API": func(f *fixture) {
		f.start([]string{"g"})
		f.write(ext("g", "web"))
		_, err := f.Accept(f.ctx, f.put(ext("g", "web"), owned(deployment("one", "uid-1"))))
		e := f.wantCode(err, core.CodeNameConflict, "write")
		f.wantSays(e, "API")
		f.same([]core.ErrorInfo{{Type: "owner", Info: core.Owner{}}}, e.Info, "additional information")
	},
	"an owner's later writes and a user's pass": func(f *fixture) {
		f.start([]string{"g"})
		id := ext("g", "web")
		o := deployment("one", "uid-1")
		f.write(id, owned(o))
		f.write(id, owned(o))
		f.same(o, f.write(id).Owner, "owner after a write without one")
	},
	"a live operation is named before an owner": func(f *fixture) {
		f.start([]string{"g"})
		id := ext("g", "web")
		f.accept(id, owned(deployment("one", "uid-1")))
		_, err := f.Accept(f.ctx, f.put(id, owned(deployment("two", "uid-2"))))
		f.wantCode(err, core.CodeConflict, "write while the first's operation runs")
	},
}

// implicit makes the parents of a resource adopted into an application.
func implicit(group, application string) func(*store.Write) {
	return func(w *store.Write) {
		w.Resource.Application = app(group, application)
		w.Parents = []core.Resource{plain(core.GroupID(group), core.StateSucceeded), plain(app(group, application), core.StateSucceeded)}
	}
}

var parentCases = map[string]func(*fixture){
	"K-5 parents come with the first member and go with the last": func(f *fixture) {
		f.start(nil)
		a, b := ext("prod-shop", "a"), ext("prod-shop", "b")
		f.accept(a, implicit("prod-shop", "shop"))
		for _, id := range []core.ID{core.GroupID("prod-shop"), app("prod-shop", "shop")} {
			r, op := f.get(id)
			if !r.Implicit || r.ETag == "" || op != nil {
				f.Errorf("%s: implicit %t, tag %q, operation %v", id, r.Implicit, r.ETag, op)
			}
		}
		f.end(f.leaseOne(), core.StateSucceeded)
		before, _ := f.get(app("prod-shop", "shop"))
		f.accept(b, implicit("PROD-shop", "SHOP"))
		f.end(f.leaseOne(), core.StateFailed)
		after, _ := f.get(app("prod-shop", "shop"))
		f.same(before, after, "the application after the second member")
		f.gone(a)
		f.get(app("prod-shop", "shop"))
		op := f.remove(b)
		f.get(core.GroupID("prod-shop"))
		f.end(f.leaseOne(), core.StateSucceeded)
		f.mustNotExist(app("prod-shop", "shop"))
		f.mustNotExist(core.GroupID("prod-shop"))
		f.same(core.StateSucceeded, f.status(op).State, "the history of what is gone")
	},
	"K-5 a deletion that failed leaves the parents": func(f *fixture) {
		f.start(nil)
		f.accept(ext("g", "a"), implicit("g", "shop"))
		f.end(f.leaseOne(), core.StateSucceeded)
		f.remove(ext("g", "a"))
		f.end(f.leaseOne(), core.StateFailed)
		f.get(app("g", "shop"))
	},
	"K-5 a synchronous delete of the last member takes the parents too": func(f *fixture) {
		f.start(nil)
		f.write(ext("g", "a"), implicit("g", "shop"))
		_, err := f.AcceptDelete(f.ctx, store.Delete{ID: ext("g", "a"), Expect: "*"})
		f.wantCode(err, "", "delete")
		f.mustNotExist(core.GroupID("g"))
	},
	"K-5 what a user made stays": func(f *fixture) {
		f.start([]string{"g"})
		f.write(ext("g", "a"), implicit("g", "shop"))
		f.gone(ext("g", "a"))
		f.mustNotExist(app("g", "shop"))
		f.get(core.GroupID("g"))
		f.write(app("g", "mine"))
		f.write(ext("g", "a"), implicit("g", "mine"))
		f.gone(ext("g", "a"))
		f.get(app("g", "mine"))
	},
	"K-5 what is written explicitly stays from then on": func(f *fixture) {
		f.start(nil)
		f.write(ext("g", "a"), implicit("g", "shop"))
		before, _ := f.get(app("g", "shop"))
		w := store.Write{Resource: before, Expect: before.ETag, Now: f.now} // as it was read
		w.Resource.Tags = map[string]string{"mine": "now"}
		r, err := f.Accept(f.ctx, w)
		f.wantCode(err, "", "write the application")
		if r.Implicit {
			f.Error("the application is still implicit")
		}
		f.write(ext("g", "b"), implicit("g", "shop")) // a parent again: that changes nothing
		f.gone(ext("g", "a"))
		f.gone(ext("g", "b"))
		if r, _ := f.get(app("g", "shop")); r.Implicit || r.Tags["mine"] != "now" {
			f.Errorf("the application is %+v", r)
		}
		f.get(core.GroupID("g")) // it holds the application
		f.write(core.GroupID("g"))
		_, err = f.AcceptDelete(f.ctx, store.Delete{ID: app("g", "shop"), Expect: "*"})
		f.wantCode(err, "", "delete the application")
		if r, _ := f.get(core.GroupID("g")); r.Implicit {
			f.Error("the group is still implicit")
		}
	},
	"K-5 another resource keeps the group, and an application elsewhere goes with its own": func(f *fixture) {
		f.start(nil)
		f.write(ext("g", "a"), implicit("g", "shop"))
		f.write(ext("g", "other"))
		f.gone(ext("g", "a"))
		f.mustNotExist(app("g", "shop"))
		f.get(core.GroupID("g"))
		f.write(ext("g", "far"), implicit("h", "shop"))
		f.get(app("h", "shop"))
		f.gone(ext("g", "far"))
		f.mustNotExist(core.GroupID("h"))
		f.get(core.GroupID("g"))
		f.gone(ext("g", "other"))
		f.mustNotExist(core.GroupID("g"))
	},
	"K-5 a member that moves leaves its old application": func(f *fixture) {
		f.start(nil)
		f.write(ext("g", "a"), implicit("g", "one"))
		f.write(ext("g", "a"), implicit("g", "two"))
		f.mustNotExist(app("g", "one"))
		f.get(app("g", "two"))
		f.get(core.GroupID("g"))
	},
	"K-5 a refused member makes no parents": func(f *fixture) {
		f.start(nil)
		_, err := f.Accept(f.ctx, f.put(ext("g", "a"), implicit("g", "shop"), func(w *store.Write) { w.Expect = "stale" }))
		f.wantCode(err, store.Changed, "write")
		f.mustNotExist(core.GroupID("g"))
	},
	"K-5 members that come and go at once leave nothing": func(f *fixture) {
		f.start(nil)
		for i, err := range atOnce(24, func(i int) error {
			id := ext("g", string(rune('a'+i)))
			w := store.Write{Resource: plain(id, core.StateSucceeded)}
			implicit("g", "shop")(&w)
			if _, err := f.Accept(f.ctx, w); err != nil {
				return err
			}
			_, err := f.AcceptDelete(f.ctx, store.Delete{ID: id, Expect: "*"})
			return err
		}) {
			f.wantCode(err, "", "member "+string(rune('a'+i)))
		}
		f.mustNotExist(app("g", "shop"))
		f.mustNotExist(core.GroupID("g"))
	},
}
