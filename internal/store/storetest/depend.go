package storetest

import (
	"fmt"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

var dependentCases = map[string]func(*fixture){
	"D-6 what uses a group, an environment, an application, a type, a pack": func(f *fixture) {
		f.start([]string{"g", "h", "g-2"})
		env, shop := core.GroupID("g").Resource(typeEnv, "Prod"), app("g", "shop")
		pack := core.GroupID("h").Resource("Radius.Core/recipePacks", "pack")
		f.write(pack)
		f.write(env, func(w *store.Write) {
			w.Edges = []core.Edge{{From: env, To: pack, Kind: core.EdgeReference}}
		})
		f.write(shop, func(w *store.Write) { w.Resource.Environment = env })
		f.write(ext("h", "A"), func(w *store.Write) { w.Resource.Application, w.Resource.Environment = shop, env })
		f.write(ext("g", "b"), func(w *store.Write) {
			w.Resource.APIVersion = "2099-01-01"
			w.Edges = []core.Edge{{From: ext("g", "b"), To: env, Kind: core.EdgeReference}, {From: ext("g", "b"), To: ext("g", "b"), Kind: core.EdgeReference}}
		})
		for name, c := range map[string]struct {
			use  store.Use
			want []core.ID
		}{
			"a group":                    {store.Use{Of: core.GroupID("G")}, []core.ID{shop, env, ext("g", "b")}},
			"an empty group":             {store.Use{Of: core.GroupID("g-2")}, nil},
			"the plane":                  {store.Use{Of: planeID}, []core.ID{core.GroupID("g"), core.GroupID("g-2"), shop, env, ext("g", "b"), core.GroupID("h"), ext("h", "A"), pack}},
			"an environment":             {store.Use{Of: core.MustParseID(env.Key())}, []core.ID{shop, ext("g", "b"), ext("h", "A")}},
			"an application":             {store.Use{Of: shop}, []core.ID{ext("h", "A")}},
			"a pack":                     {store.Use{Of: pack}, []core.ID{env}},
			"itself":                     {store.Use{Of: ext("g", "b")}, nil},
			"a type":                     {store.Use{Type: "applications.core/EXTENDERS"}, []core.ID{ext("g", "b"), ext("h", "A")}},
			"a type's version":           {store.Use{Type: typeExt, APIVersion: "2099-01-01"}, []core.ID{ext("g", "b")}},
			"a type without resources":   {store.Use{Type: "No.Such/type"}, nil},
			"what is not there":          {store.Use{Of: ext("g", "none")}, nil},
			"a version without resource": {store.Use{Type: typeExt, APIVersion: "2000-01-01"}, nil},
		} {
			for _, limit := range []int{0, 1, 2, 50} {
				c.use.Limit = limit
				d, err := f.Dependents(f.ctx, c.use)
				f.wantCode(err, "", name)
				want := c.want
				if limit > 0 && len(want) > limit {
					want = want[:limit]
				}
				f.same(store.Dependents{IDs: want, Count: len(c.want)}, d, fmt.Sprintf("%s, at most %d", name, limit))
			}
		}
	},
	"D-6 what is in use is not deleted, and the users are named": func(f *fixture) {
		f.start([]string{"g"})
		env := core.GroupID("g").Resource(typeEnv, "prod")
		f.write(env)
		for i := range 12 {
			f.write(ext("g", fmt.Sprintf("r%02d", i)), func(w *store.Write) { w.Resource.Environment = env })
		}
		_, err := f.AcceptDelete(f.ctx, store.Delete{ID: env, Expect: "*", Unused: true})
		e := f.wantCode(err, core.CodeConflict, "delete a used environment")
		f.wantSays(e, ext("g", "r00").String(), "and 2 more")
		if d, ok := e.Info[0].Info.(store.Dependents); !ok || d.Count != 12 || len(d.IDs) != 10 {
			f.Errorf("additional information is %+v", e.Info)
		}
		_, err = f.AcceptDelete(f.ctx, store.Delete{ID: core.GroupID("g"), Expect: "*"})
		f.wantSays(f.wantCode(err, core.CodeConflict, "delete a group that holds something"), env.String())
		_, err = f.AcceptDelete(f.ctx, store.Delete{ID: env, Expect: "*"})
		f.wantCode(err, "", "delete it all the same")
		f.write(env)
		for i := range 12 {
			f.write(ext("g", fmt.Sprintf("r%02d", i)))
		}
		_, err = f.AcceptDelete(f.ctx, store.Delete{ID: env, Expect: "*", Unused: true})
		f.wantCode(err, "", "delete it once it is free")
	},
	"D-6 a user that comes as it is deleted is there, or the environment is": func(f *fixture) {
		f.start([]string{"g"})
		for i := range 15 {
			env := core.GroupID("g").Resource(typeEnv, fmt.Sprintf("e%d", i))
			f.write(env)
			user := store.Write{Resource: plain(ext("g", fmt.Sprintf("r%d", i)), core.StateSucceeded), Now: f.now}
			user.Resource.Environment = env
			errs := atOnce(2, func(i int) (err error) {
				if i == 0 {
					_, err = f.Accept(f.ctx, user)
				} else {
					_, err = f.AcceptDelete(f.ctx, store.Delete{ID: env, Expect: "*", Unused: true})
				}
				return err
			})
			f.wantCode(errs[0], "", "the user's write")
			// Deleted first, the user names what is not there: its writer's
			// own check comes before the store. Written first, it stays.
			_, _, err := f.Get(f.ctx, env)
			if want := map[bool]core.Code{true: core.CodeNotFound}[errs[1] == nil]; core.CodeOf(err) != want {
				f.Errorf("deleting answered %v, and the environment then %v", errs[1], err)
			}
			if errs[1] != nil {
				f.wantCode(errs[1], core.CodeConflict, "the deletion")
			}
		}
	},
}

var fairCases = map[string]func(*fixture){
	"D-47 a thousand operations of a group do not hold back another's one": func(f *fixture) {
		f.start([]string{"big", "small", "tiny"})
		for _, err := range atOnce(1000, func(i int) error {
			w := store.Write{Resource: plain(ext("big", fmt.Sprintf("r%d", i)), core.StateAccepted), Expect: "*", Now: f.now}
			w.Operation = &core.Operation{ID: fmt.Sprintf("big-%d", i), ResourceID: w.Resource.ID, Verb: core.VerbPut, State: core.StateAccepted, Group: "big", Created: f.now}
			_, err := f.Accept(f.ctx, w)
			return err
		}) {
			f.wantCode(err, "", "accept")
		}
		late := map[string]bool{}
		for _, g := range []string{"small", "tiny"} {
			late[f.accept(ext(g, "a"))] = true
		}
		// A worker with one slot: every group comes within one round.
		for range 3 {
			l := f.lease(1)
			delete(late, l[0].Operation.ID)
			f.end(l[0], core.StateSucceeded)
		}
		if len(late) > 0 {
			f.Errorf("after three leases of one, three groups and %v are still waiting", late)
		}
		// A worker with many: the late one is in the first lease.
		one := f.accept(ext("small", "b"))
		got := f.lease(32)
		found := false
		for _, l := range got {
			found = found || l.Operation.ID == one
		}
		if !found || len(got) != 32 {
			f.Errorf("of %d leased, none is the small group's", len(got))
		}
	},
}
