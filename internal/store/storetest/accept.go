package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

var acceptCases = map[string]func(*fixture){
	"a resource comes back as it was written": func(f *fixture) {
		f.start([]string{"Default"})
		want := core.Resource{
			ID: ext("Default", "Web"), APIVersion: "2023-10-01-preview", Location: "global", Tags: map[string]string{"a": "1"},
			Properties: json.RawMessage(`{"x":[1,"é",null]}`), Status: json.RawMessage(`{"recipe":{"k":"v"}}`),
			Secrets:     map[string]json.RawMessage{"password": json.RawMessage(`{"$sealed":"AQ=="}`)},
			State:       core.StateSucceeded,
			Application: app("Default", "Shop"), Environment: core.GroupID("Default").Resource(typeEnv, "Prod"),
			Owner:      core.Owner{Cluster: "local", Namespace: "demo", Kind: "Deployment", Name: "web", UID: "u1"},
			SystemData: core.SystemData{CreatedBy: "a", CreatedByType: "User", CreatedAt: f.now, LastModifiedBy: "b", LastModifiedByType: "User", LastModifiedAt: f.now},
		}
		stored, err := f.Accept(f.ctx, store.Write{Resource: want, Now: f.now})
		f.wantCode(err, "", "accept")
		if stored.ETag == "" {
			f.Error("no entity tag")
		}
		want.ETag = stored.ETag
		f.same(want, stored, "returned by Accept")
		got, op := f.get(core.MustParseID(strings.ToUpper(want.ID.String())))
		f.same(want, got, "read back, asked for in upper case")
		if op != nil {
			f.Errorf("a synchronous write left operation %s", op.ID)
		}
	},
	"an operation comes back as it was given": func(f *fixture) {
		f.start([]string{"g"})
		w := f.put(ext("g", "a"))
		w.Operation.Parent = "another"
		_, err := f.Accept(f.ctx, w)
		f.wantCode(err, "", "accept")
		f.same(*w.Operation, f.status(w.Operation.ID), "operation")
		_, live := f.get(ext("g", "a"))
		f.same(w.Operation, live, "live operation")
	},
	"an update keeps case, creation and owner": func(f *fixture) {
		f.start([]string{"g"})
		owner := core.Owner{Cluster: "local", Namespace: "n", Kind: "Deployment", Name: "web", UID: "u"}
		first := f.write(ext("g", "Web"), func(w *store.Write) {
			w.Resource.Owner = owner
			w.Resource.SystemData = core.SystemData{CreatedBy: "first", CreatedAt: f.now, LastModifiedBy: "first"}
		})
		second := f.write(ext("G", "wEB"), func(w *store.Write) {
			w.Resource.SystemData = core.SystemData{CreatedBy: "second", CreatedAt: f.now.Add(time.Hour), LastModifiedBy: "second"}
		})
		if second.ETag == first.ETag {
			f.Error("the entity tag did not change")
		}
		want := first
		want.ETag, want.SystemData.LastModifiedBy = second.ETag, "second"
		f.same(want, second, "returned")
		got, _ := f.get(ext("g", "web"))
		f.same(want, got, "stored")
	},
	"the scope must exist, and is named": func(f *fixture) {
		f.start(nil)
		_, err := f.Accept(f.ctx, f.put(ext("nowhere", "a")))
		f.wantSays(f.wantCode(err, core.CodeNotFound, "write into no group"), "/planes/radius/local/resourceGroups/nowhere")
		other := core.ID{Plane: core.Segment{Type: "radius", Name: "elsewhere"}, Scopes: []core.Segment{{Type: "resourceGroups", Name: "g"}}}
		_, err = f.Accept(f.ctx, store.Write{Resource: plain(other, core.StateSucceeded)})
		f.wantSays(f.wantCode(err, core.CodeNotFound, "write a group into no plane"), "/planes/radius/elsewhere")
		f.mustNotExist(ext("nowhere", "a"))
		if n, _, err := f.Pending(f.ctx); err != nil || n != 0 {
			f.Errorf("%d operations after refused writes (%v)", n, err)
		}
	},
	"expectations": func(f *fixture) {
		f.start([]string{"g"})
		id := ext("g", "a")
		expect := func(etag string) error {
			_, err := f.Accept(f.ctx, store.Write{Resource: plain(id, core.StateSucceeded), Expect: etag, Now: f.now})
			return err
		}
		f.wantCode(expect("gone"), store.Changed, "update of a row that is not there")
		f.wantCode(expect(""), "", "create")
		f.wantCode(expect(""), store.Changed, "create of what is there")
		r, _ := f.get(id)
		f.wantCode(expect(r.ETag), "", "update of what was read")
		f.wantCode(expect(r.ETag), store.Changed, "update of what was read earlier")
		f.wantCode(expect("*"), "", "update of whatever is there")
		_, err := f.AcceptDelete(f.ctx, store.Delete{ID: id, Expect: r.ETag})
		f.wantCode(err, store.Changed, "delete of what was read earlier")
		r, _ = f.get(id)
		_, err = f.AcceptDelete(f.ctx, store.Delete{ID: id, Expect: r.ETag})
		f.wantCode(err, "", "delete of what was read")
		_, err = f.AcceptDelete(f.ctx, store.Delete{ID: id, Expect: "*"})
		f.wantCode(err, core.CodeNotFound, "delete of what is gone")
	},
	"an entity tag never comes back": func(f *fixture) {
		f.start([]string{"g"})
		seen := map[string]bool{}
		note := func() {
			r, _ := f.get(ext("g", "a"))
			if seen[r.ETag] {
				f.Fatalf("entity tag %s twice", r.ETag)
			}
			seen[r.ETag] = true
		}
		for range 2 { // created again after it went
			f.accept(ext("g", "a"))
			note()
			l := f.leaseOne()
			f.wantCode(f.Progress(f.ctx, l.Operation.ID, l.Operation.Fence, core.StateUpdating), "", "progress")
			note()
			f.end(l, core.StateSucceeded)
			note()
			f.remove(ext("g", "a"))
			note()
			f.end(f.leaseOne(), core.StateSucceeded)
		}
	},
	"D-17 a second write meanwhile is a conflict that names the state": func(f *fixture) {
		f.start([]string{"g"})
		id := ext("g", "a")
		f.accept(id)
		try := func(state string) {
			f.Helper()
			_, err := f.Accept(f.ctx, f.put(id))
			f.wantSays(f.wantCode(err, core.CodeConflict, "second PUT"), "The target resource is in progress state: "+state+".")
			_, err = f.AcceptDelete(f.ctx, store.Delete{ID: id, Operation: f.operation(id, core.VerbDelete), Expect: "*"})
			f.wantSays(f.wantCode(err, core.CodeConflict, "DELETE meanwhile"), state)
		}
		try("Accepted")
		l := f.leaseOne()
		f.wantCode(f.Progress(f.ctx, l.Operation.ID, l.Operation.Fence, core.StateUpdating), "", "progress")
		try("Updating")
		f.end(l, core.StateFailed)
		f.remove(id)
		try("Deleting")
		_, err := f.Accept(f.ctx, store.Write{Resource: plain(id, core.StateSucceeded), Expect: "*"})
		f.wantCode(err, core.CodeConflict, "synchronous write meanwhile")
		f.end(f.leaseOne(), core.StateSucceeded)
		f.accept(id)
	},
	"D-17 of fifty first writes at once one is accepted": func(f *fixture) {
		f.start([]string{"g"})
		id := ext("g", "a")
		writes := make([]store.Write, 50)
		for i := range writes {
			writes[i] = f.put(id, func(w *store.Write) {
				w.Expect = ""
				w.Resource.Location = w.Operation.ID
			})
		}
		errs := atOnce(len(writes), func(i int) error {
			_, err := f.Accept(f.ctx, writes[i])
			return err
		})
		winner := ""
		for i, err := range errs {
			switch core.CodeOf(err) {
			case "":
				if winner != "" {
					f.Fatalf("both %s and %s were accepted", winner, writes[i].Operation.ID)
				}
				winner = writes[i].Operation.ID
			case store.Changed, core.CodeConflict:
			default:
				f.Errorf("a losing write got %v", err)
			}
		}
		r, op := f.get(id)
		if op == nil || op.ID != winner || r.Location != winner {
			f.Errorf("accepted was %q, stored is the row of %q with operation %+v", winner, r.Location, op)
		}
		if n, _, err := f.Pending(f.ctx); err != nil || n != 1 {
			f.Errorf("%d live operations (%v), want 1", n, err)
		}
	},
	"of fifty updates from one version one is accepted": func(f *fixture) {
		f.start([]string{"g"})
		r := f.write(ext("g", "a"))
		won := 0
		for _, err := range atOnce(50, func(i int) error {
			_, err := f.Accept(f.ctx, store.Write{Resource: plain(r.ID, core.StateSucceeded), Expect: r.ETag, Now: f.now})
			return err
		}) {
			if err == nil {
				won++
			} else {
				f.wantCode(err, store.Changed, "a losing update")
			}
		}
		if won != 1 {
			f.Errorf("%d updates from one version were accepted", won)
		}
	},
	"writes side by side do not disturb each other": func(f *fixture) {
		f.start([]string{"g"})
		for i, err := range atOnce(90, func(i int) error {
			group := "g"
			if i%3 == 0 {
				group = "missing"
			}
			_, err := f.Accept(f.ctx, store.Write{Resource: plain(ext(group, fmt.Sprintf("r%02d", i)), core.StateSucceeded)})
			return err
		}) {
			want := core.Code("")
			if i%3 == 0 {
				want = core.CodeNotFound
			}
			f.wantCode(err, want, fmt.Sprintf("write %d", i))
		}
		if n := len(f.list(store.Query{Scope: core.GroupID("g")})); n != 60 {
			f.Errorf("%d rows, want the 60 that were accepted", n)
		}
	},
	"a synchronous delete takes the row with its edges and outputs": func(f *fixture) {
		f.start([]string{"g"})
		f.write(ext("g", "b"))
		f.accept(ext("g", "a"), func(w *store.Write) {
			w.Edges = []core.Edge{{From: w.Resource.ID, To: ext("g", "b"), Kind: core.EdgeConnection, Name: "b"}}
		})
		l := f.leaseOne()
		f.wantCode(f.SaveOutputs(f.ctx, l.Operation.ID, l.Operation.Fence, []core.Output{{ID: core.KubernetesID("local", "n", "", "Secret", "s")}}, nil), "", "save")
		f.end(l, core.StateSucceeded)
		_, err := f.AcceptDelete(f.ctx, store.Delete{ID: ext("g", "A"), Expect: "*"})
		f.wantCode(err, "", "delete")
		f.mustNotExist(ext("g", "a"))
		f.write(ext("g", "a"))
		g, err := f.Graph(f.ctx, core.GroupID("g"))
		f.wantCode(err, "", "graph")
		if len(g.Edges) != 0 || slices.ContainsFunc(g.Nodes, func(n store.Node) bool { return len(n.Outputs) > 0 }) {
			f.Errorf("the new resource has edges or outputs of the old: %+v", g)
		}
	},
	"a scope goes only when it is empty": func(f *fixture) {
		f.start([]string{"g", "g2"})
		f.write(ext("g2", "a"))
		_, err := f.AcceptDelete(f.ctx, store.Delete{ID: core.GroupID("g2"), Expect: "*"})
		f.wantSays(f.wantCode(err, core.CodeConflict, "delete a group with a member"), "g2")
		_, err = f.AcceptDelete(f.ctx, store.Delete{ID: core.GroupID("g"), Expect: "*"})
		f.wantCode(err, "", "delete an empty group beside one with its name as prefix")
		_, err = f.AcceptDelete(f.ctx, store.Delete{ID: planeID, Expect: "*"})
		f.wantCode(err, core.CodeConflict, "delete a plane with a group")
	},
	"a closed store says so": func(f *fixture) {
		f.start([]string{"g"})
		f.accept(ext("g", "a"))
		l := f.leaseOne()
		f.wantCode(f.Close(), "", "close")
		f.wantCode(f.Close(), "", "close again")
		_, err := f.Accept(f.ctx, f.put(ext("g", "b")))
		f.wantCode(err, core.CodeUnavailable, "accept")
		f.wantCode(f.End(f.ctx, store.Ending{Operation: l.Operation.ID, Fence: l.Operation.Fence, State: core.StateSucceeded}), core.CodeUnavailable, "end")
		_, err = f.Lease(f.ctx, store.Lease{Max: 1})
		f.wantCode(err, core.CodeUnavailable, "lease")
		_, _, err = f.Get(f.ctx, ext("g", "a"))
		f.wantCode(err, core.CodeUnavailable, "get")
		_, err = f.List(f.ctx, store.Query{})
		f.wantCode(err, core.CodeUnavailable, "list")
		_, err = f.Graph(f.ctx, core.GroupID("g"))
		f.wantCode(err, core.CodeUnavailable, "graph")
		_, err = f.Manifests(f.ctx)
		f.wantCode(err, core.CodeUnavailable, "manifests")
	},
	"what was committed is there after a restart": func(f *fixture) {
		dir := f.TempDir()
		f.start([]string{"g"}, Dir(dir))
		f.accept(ext("g", "a"))
		want, err := Dump(f.ctx, f.Store)
		f.wantCode(err, "", "dump")
		f.wantCode(f.Close(), "", "close")
		f.Store = f.open(f.T, Dir(dir))
		got, err := Dump(f.ctx, f.Store)
		f.wantCode(err, "", "dump")
		f.same(want, got, "after a restart")
		r := f.write(ext("g", "b"))
		if a, _ := f.get(ext("g", "a")); a.ETag == r.ETag {
			f.Errorf("entity tag %s was used before the restart", r.ETag)
		}
	},
}

// atOnce runs f n times side by side, all released together, and returns what
// each returned.
func atOnce(n int, f func(i int) error) []error {
	errs := make([]error, n)
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-gate
			errs[i] = f(i)
		})
	}
	close(gate)
	wg.Wait()
	return errs
}
