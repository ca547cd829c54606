package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

type jsonRaw = json.RawMessage

func secret(name string) core.ID { return core.KubernetesID("local", "demo", "", "Secret", name) }

var outputCases = map[string]func(*fixture){
	"D-31 outputs are planned, made and dropped in the order planned": func(f *fixture) {
		f.start([]string{"g"})
		f.accept(ext("g", "a"))
		l := f.leaseOne()
		save := func(put []core.Output, drop ...core.ID) {
			f.Helper()
			f.wantCode(f.SaveOutputs(f.ctx, l.Operation.ID, l.Operation.Fence, put, drop), "", "save")
		}
		want := func(outputs ...core.Output) {
			f.Helper()
			got, err := f.Outputs(f.ctx, ext("G", "A"))
			f.wantCode(err, "", "outputs")
			f.same(outputs, got, "inventory")
			many, err := f.OutputsOf(f.ctx, []core.ID{ext("g", "none"), ext("G", "A")})
			f.wantCode(err, "", "outputs of many")
			f.same(map[string][]core.Output{ext("g", "a").Key(): outputs}, many, "inventories by key")
		}
		z := core.Output{ID: secret("z"), LocalID: "Last", State: core.OutputPlanned, Managed: true}
		y := core.Output{ID: core.KubernetesID("local", "demo", "apps", "Deployment", "y"), LocalID: "web", State: core.OutputPlanned, Managed: true,
			DependsOn: []core.ID{secret("z")}, Handle: json.RawMessage(`{"extension":"kubernetes","uid":"u\"1"}`)}
		x := core.Output{ID: secret("x"), State: core.OutputMade}
		save([]core.Output{z, y})
		want(z, y)
		z.State, z.Handle = core.OutputMade, json.RawMessage(`{"uid":"u2"}`)
		save([]core.Output{z, x})
		want(z, y, x)
		save(nil, core.MustParseID("/planes/kubernetes/LOCAL/namespaces/demo/providers/apps/deployment/Y"))
		want(z, x)
		save([]core.Output{y}, secret("z"))
		want(x, y)
		save(nil)
		want(x, y)
		f.end(l, core.StateFailed)
		want(x, y) // a failed run forgets nothing
		f.accept(ext("g", "a"))
		f.same([]core.Output{x, y}, f.leaseOne().Outputs, "inventory in the next lease")
	},
	"D-31 two resources may name one output": func(f *fixture) {
		f.start([]string{"g"})
		f.accept(ext("g", "a"))
		f.accept(ext("g", "b"))
		for _, l := range f.lease(2) {
			f.wantCode(f.SaveOutputs(f.ctx, l.Operation.ID, l.Operation.Fence, []core.Output{{ID: secret("s"), LocalID: l.Resource.ID.Name()}}, nil), "", "save")
		}
		for _, name := range []string{"a", "b"} {
			got, err := f.Outputs(f.ctx, ext("g", name))
			f.wantCode(err, "", "outputs")
			f.same([]core.Output{{ID: secret("s"), LocalID: name}}, got, "outputs of "+name)
		}
		many, err := f.OutputsOf(f.ctx, []core.ID{ext("g", "a"), ext("g", "b")})
		f.wantCode(err, "", "outputs of both")
		f.same(map[string][]core.Output{
			ext("g", "a").Key(): {{ID: secret("s"), LocalID: "a"}},
			ext("g", "b").Key(): {{ID: secret("s"), LocalID: "b"}},
		}, many, "outputs of both")
	},
	"S-55 an output is one resource's claim, until that lets go of it": func(f *fixture) {
		f.start([]string{"g"})
		thing := ext("g", "thing")
		claim := func(l store.Leased, state core.OutputState) {
			f.Helper()
			f.wantCode(f.SaveOutputs(f.ctx, l.Operation.ID, l.Operation.Fence, []core.Output{{ID: thing, State: state, Claimed: true}}, nil), "", "claim")
		}
		want := func(id core.ID) {
			f.Helper()
			got, err := f.Claimant(f.ctx, core.MustParseID(strings.ToUpper(thing.String()[:7])+thing.String()[7:]))
			f.wantCode(err, "", "claimant")
			f.same(id.String(), got.String(), "claimant")
			for _, name := range []string{"a", "b"} {
				outputs, err := f.Outputs(f.ctx, ext("g", name))
				f.wantCode(err, "", "outputs")
				for _, o := range outputs {
					if o.Claimed != ext("g", name).Equal(id) {
						f.Errorf("%s has the output with Claimed %t, and the claimant is %s", name, o.Claimed, id)
					}
				}
			}
		}
		want(core.ID{})
		f.accept(ext("g", "a"))
		a := f.leaseOne()
		f.accept(ext("g", "b"))
		b := f.leaseOne()
		claim(a, core.OutputPlanned)
		want(ext("g", "a"))
		claim(b, core.OutputMade) // a works on it: its plan counts
		want(ext("g", "a"))
		f.end(a, core.StateFailed)
		claim(b, core.OutputPlanned) // a has not made it, and works no more
		want(ext("g", "b"))
		claim(b, core.OutputMade)
		f.end(b, core.StateSucceeded)
		f.accept(ext("g", "a"))
		a = f.leaseOne()
		claim(a, core.OutputMade)
		want(ext("g", "b"))
		f.accept(ext("g", "b"))
		b = f.leaseOne()
		f.wantCode(f.SaveOutputs(f.ctx, b.Operation.ID, b.Operation.Fence, nil, []core.ID{thing}), "", "let go")
		want(core.ID{})
		claim(a, core.OutputMade)
		want(ext("g", "a"))
		f.end(b, core.StateSucceeded)
		f.wantCode(f.End(f.ctx, store.Ending{Operation: a.Operation.ID, Fence: a.Operation.Fence, State: core.StateSucceeded, Removed: true, Now: f.now}), "", "remove")
		want(core.ID{})
	},
	"S-55 of claims at once one is granted": func(f *fixture) {
		f.start([]string{"g"})
		const resources, things = 6, 4
		for i := range resources {
			f.accept(ext("g", fmt.Sprintf("r%d", i)))
		}
		leased := f.lease(resources)
		for _, err := range atOnce(resources, func(i int) error {
			for n := range things { // in an order of its own
				o := core.Output{ID: ext("g", fmt.Sprintf("t%d", (n+i)%things)), State: core.OutputPlanned, Claimed: true}
				if err := f.SaveOutputs(f.ctx, leased[i].Operation.ID, leased[i].Operation.Fence, []core.Output{o}, nil); err != nil {
					return err
				}
			}
			return nil
		}) {
			f.wantCode(err, "", "claim")
		}
		granted := map[string]int{}
		for _, l := range leased {
			outputs, err := f.Outputs(f.ctx, l.Resource.ID)
			f.wantCode(err, "", "outputs")
			for _, o := range outputs {
				if o.Claimed {
					granted[o.ID.Name()]++
				}
			}
		}
		f.same(map[string]int{"t0": 1, "t1": 1, "t2": 1, "t3": 1}, granted, "claims")
	},
	"an inventory of nothing is empty": func(f *fixture) {
		f.start([]string{"g"})
		got, err := f.Outputs(f.ctx, ext("g", "none"))
		f.wantCode(err, "", "outputs")
		f.same([]core.Output{}, got, "inventory")
	},
}

var registryCases = map[string]func(*fixture){
	"manifests are kept whole, by namespace without case": func(f *fixture) {
		f.start(nil)
		one, two := json.RawMessage(`{"v":1}`), json.RawMessage(`{"v":2}`)
		f.wantCode(f.PutManifest(f.ctx, "Contoso.App", one, nil), "", "put")
		f.wantCode(f.PutManifest(f.ctx, "Fabrikam", json.RawMessage(`{}`), nil), "", "put")
		f.wantCode(f.PutManifest(f.ctx, "contoso.app", two, one), "", "replace")
		for what, err := range map[string]error{
			"put where one was made meanwhile": f.PutManifest(f.ctx, "CONTOSO.APP", one, nil),
			"replace what was replaced":        f.PutManifest(f.ctx, "Contoso.App", json.RawMessage(`{"v":3}`), one),
			"replace what was removed":         f.PutManifest(f.ctx, "Gone", one, one),
			"delete what was replaced":         f.DeleteManifest(f.ctx, "Contoso.App", one),
		} {
			f.wantCode(err, store.Changed, what)
		}
		got, err := f.Manifests(f.ctx)
		f.wantCode(err, "", "manifests")
		f.same(map[string]jsonRaw{"Contoso.App": jsonRaw(`{"v":2}`), "Fabrikam": jsonRaw(`{}`)}, got, "manifests")
		f.wantCode(f.DeleteManifest(f.ctx, "CONTOSO.APP", two), "", "delete")
		f.wantSays(f.wantCode(f.DeleteManifest(f.ctx, "Contoso.App", two), store.Changed, "delete again"), "Contoso.App")
	},
	"of edits of one manifest at once none is lost": func(f *fixture) {
		f.start(nil)
		const edits = 6
		for _, err := range atOnce(edits, func(int) error {
			for {
				all, err := f.Manifests(f.ctx)
				if err != nil {
					return err
				}
				old := all["Contoso"]
				if err = f.PutManifest(f.ctx, "Contoso", json.RawMessage(`"`+strings.Trim(string(old), `"`)+`x"`), old); !core.IsCode(err, store.Changed) {
					return err
				}
			}
		}) {
			f.wantCode(err, "", "edit")
		}
		got, err := f.Manifests(f.ctx)
		f.wantCode(err, "", "manifests")
		f.same(`"`+strings.Repeat("x", edits)+`"`, string(got["Contoso"]), "manifest")
	},
	"the first keyset stays": func(f *fixture) {
		f.start(nil)
		keysets := make([][]byte, 8)
		for _, err := range atOnce(len(keysets), func(i int) (err error) {
			keysets[i], err = f.Keyset(f.ctx, []byte{0, byte(i), 0xff})
			return err
		}) {
			f.wantCode(err, "", "keyset")
		}
		for _, k := range keysets {
			f.same(keysets[0], k, "keyset of a caller at the same time")
		}
		again, err := f.Keyset(f.ctx, []byte("later"))
		f.wantCode(err, "", "keyset")
		f.same(keysets[0], again, "keyset of a later caller")
	},
}

var graphCases = map[string]func(*fixture){
	"members, what they reach, and their outputs": func(f *fixture) {
		f.start([]string{"g", "h"})
		env := core.GroupID("g").Resource(typeEnv, "prod")
		f.write(env)
		f.write(app("g", "shop"), func(w *store.Write) { w.Resource.Environment = env })
		f.write(app("g", "other"), func(w *store.Write) { w.Resource.Environment = env })
		to := func(id core.ID, kind core.EdgeKind, name string) core.Edge {
			return core.Edge{To: id, Kind: kind, Name: name}
		}
		make := func(id core.ID, application string, edges ...core.Edge) {
			f.write(id, func(w *store.Write) {
				w.Resource.Environment = env
				if application != "" {
					w.Resource.Application = app("g", application)
				}
				for _, e := range edges {
					e.From = id
					w.Edges = append(w.Edges, e)
				}
			})
		}
		web, db, disk, stray := ext("g", "Web"), ext("h", "DB"), ext("h", "disk"), ext("h", "stray")
		absent := ext("h", "absent")
		make(disk, "", to(core.MustParseID("/planes/radius/local/RESOURCEGROUPS/h/providers/applications.core/extenders/db"), core.EdgeDependency, "")) // a cycle
		make(db, "", to(disk, core.EdgeReference, ""))
		make(stray, "", to(disk, core.EdgeReference, "")) // leads here, is not reached
		make(ext("g", "second"), "other")
		make(web, "shop", to(db, core.EdgeConnection, "db"), to(db, core.EdgeConnection, "backup"), to(absent, core.EdgeConnection, "later"))
		f.accept(db, func(w *store.Write) {
			w.Resource.Environment = env
			w.Edges = []core.Edge{{From: db, To: disk, Kind: core.EdgeReference}}
		})
		l := f.leaseOne()
		out := core.Output{ID: secret("s"), LocalID: "secret", State: core.OutputMade, Managed: true}
		f.wantCode(f.SaveOutputs(f.ctx, l.Operation.ID, l.Operation.Fence, []core.Output{out}, nil), "", "save")

		g, err := f.Graph(f.ctx, app("g", "SHOP"))
		f.wantCode(err, "", "graph")
		f.same([]string{"Web", "DB", "disk"}, nodesOf(g), "resources of the application")
		f.same([]store.GraphEdge{
			{From: 0, To: -1, ToID: absent.String(), Kind: core.EdgeConnection, Name: "later"},
			{From: 0, To: 1, Kind: core.EdgeConnection, Name: "backup"},
			{From: 0, To: 1, Kind: core.EdgeConnection, Name: "db"},
			{From: 1, To: 2, Kind: core.EdgeReference},
			{From: 2, To: 1, Kind: core.EdgeDependency},
		}, g.Edges, "edges")
		f.same([][]string{nil, {out.ID.String()}, nil}, [][]string{g.Nodes[0].Outputs, g.Nodes[1].Outputs, g.Nodes[2].Outputs}, "outputs")

		g, err = f.Graph(f.ctx, env)
		f.wantCode(err, "", "graph")
		f.same([]string{"other", "shop", "second", "Web", "DB", "disk", "stray"}, nodesOf(g), "resources of the environment")
		g, err = f.Graph(f.ctx, core.GroupID("h"))
		f.wantCode(err, "", "graph")
		f.same([]string{"DB", "disk", "stray"}, nodesOf(g), "resources of the group")
		g, err = f.Graph(f.ctx, planeID)
		f.wantCode(err, "", "graph")
		f.same(8, len(g.Nodes), "resources of the plane, without its groups")
	},
	"an update replaces the edges": func(f *fixture) {
		f.start([]string{"g"})
		a := ext("g", "a")
		edge := func(to string) func(*store.Write) {
			return func(w *store.Write) {
				w.Edges = []core.Edge{{From: a, To: ext("g", to), Kind: core.EdgeConnection, Name: to}}
			}
		}
		f.write(a, edge("b"))
		f.write(a, edge("c"))
		g, err := f.Graph(f.ctx, core.GroupID("g"))
		f.wantCode(err, "", "graph")
		f.same([]store.GraphEdge{{From: 0, To: -1, ToID: ext("g", "c").String(), Kind: core.EdgeConnection, Name: "c"}}, g.Edges, "edges")
		f.write(a)
		g, err = f.Graph(f.ctx, core.GroupID("g"))
		f.wantCode(err, "", "graph")
		f.same([]store.GraphEdge{}, g.Edges, "edges after an update without any")
	},
}

// nodesOf are the names of the nodes.
func nodesOf(g store.Graph) []string {
	out := []string{}
	for _, n := range g.Nodes {
		out = append(out, core.MustParseID(n.ID).Name())
	}
	return out
}
