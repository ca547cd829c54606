package graph

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/rules"
)

var (
	scope = core.GroupID("shop")
	app   = scope.Resource("Applications.Core/applications", "shop")
	web   = scope.Resource("Applications.Core/containers", "web")
	cache = scope.Resource("Applications.Datastores/redisCaches", "Cache")
	lost  = scope.Resource("Applications.Datastores/redisCaches", "lost")
	pod   = core.KubernetesID("local", "shop", "apps", "Deployment", "web")
	other = core.KubernetesID("local", "shop", "apps", "Deployment", "other")
)

// drawn is what a store answers: nodes as (id, state, properties), edges
// between them and outputs.
func drawn(nodes []store.Node, edges []core.Edge, outputs map[string][]core.ID) store.Graph {
	d := rules.NewDrawing()
	places := map[string]int32{}
	for _, n := range nodes {
		key := strings.ToLower(n.ID)
		at, _ := d.Node(key, n.ID, string(n.State), n.Properties)
		places[key] = at
		for _, o := range outputs[key] {
			d.Output(at, o.String())
		}
	}
	for _, e := range edges {
		d.Edge(places[e.From.Key()], e.To.String(), string(e.Kind), e.Name)
	}
	return d.Graph()
}

func build(t *testing.T, g store.Graph, root core.ID) wire.Graph {
	t.Helper()
	out := wire.Graph{Resources: []wire.GraphResource{}}
	err := Each(g, root, func(n wire.GraphResource) error {
		n.Connections, n.OutputResources = slices.Clone(n.Connections), slices.Clone(n.OutputResources)
		out.Resources = append(out.Resources, n)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func snapshot() (nodes []store.Node, edges []core.Edge, outputs map[string][]core.ID) {
	lower := core.MustParseID(cache.Key())
	return []store.Node{
			{ID: app.String(), State: core.StateSucceeded},
			{ID: web.String(), State: core.StateUpdating, Properties: json.RawMessage(`{"password":"needle","url":"http://user:needle@elsewhere"}`)},
			{ID: cache.String()},
		},
		[]core.Edge{
			{From: web, To: lower, Kind: core.EdgeConnection, Name: "redis"},
			{From: web, To: lost, Kind: core.EdgeConnection, Name: "gone"},
			{From: web, To: pod, Kind: core.EdgeReference},
			{From: web, To: other, Kind: core.EdgeReference},
			{From: cache, To: cache, Kind: core.EdgeDependency},
		},
		map[string][]core.ID{web.Key(): {pod}}
}

func TestEach(t *testing.T) {
	got := build(t, drawn(snapshot()), app)
	want := wire.Graph{Resources: []wire.GraphResource{
		{
			ID: web.String(), Name: "web", Type: "Applications.Core/containers", ProvisioningState: "Updating",
			Connections: []wire.GraphConnection{
				{ID: lost.String(), Direction: "Outbound", Kind: "Connection", Name: "gone"},
				{ID: cache.String(), Direction: "Outbound", Kind: "Connection", Name: "redis"},
				{ID: other.String(), Direction: "Outbound", Kind: "Reference"},
			},
			OutputResources: []wire.GraphOutput{{ID: pod.String(), Type: "apps/Deployment", Name: "web"}},
		},
		{
			ID: cache.String(), Name: "Cache", Type: "Applications.Datastores/redisCaches", ProvisioningState: "Succeeded",
			Connections: []wire.GraphConnection{
				{ID: cache.String(), Direction: "Outbound", Kind: "Dependency"},
				{ID: web.String(), Direction: "Inbound", Kind: "Connection", Name: "redis"},
				{ID: cache.String(), Direction: "Inbound", Kind: "Dependency"},
			},
			OutputResources: []wire.GraphOutput{},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("graph (-want +got):\n%s", diff)
	}
	raw, err := json.Marshal(got)
	if err != nil || strings.Contains(string(raw), "needle") {
		t.Errorf("the graph holds a property: %s, %v", raw, err)
	}
	if raw, _ := json.Marshal(build(t, store.Graph{}, app)); string(raw) != `{"resources":[]}` {
		t.Errorf("an empty graph is %s", raw)
	}
}

// The order of the snapshot does not show.
func TestEachIsDeterministic(t *testing.T) {
	want, _ := json.Marshal(build(t, drawn(snapshot()), app))
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		nodes, edges, outputs := snapshot()
		random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		random.Shuffle(len(edges), func(i, j int) { edges[i], edges[j] = edges[j], edges[i] })
		if got, _ := json.Marshal(build(t, drawn(nodes, edges, outputs), app)); !slices.Equal(want, got) {
			t.Fatalf("another order gives\n%s\nand not\n%s", got, want)
		}
	}
}

// TestNamed takes names and types from ids as core.ID does, whatever segments
// are called.
func TestNamed(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"/planes/radius/local/resourceGroups/g/providers/Applications.Core/containers/web",
		"/planes/radius/local/resourceGroups/g/providers/Applications.Core/containers/web/parts/one",
		"/planes/radius/local/resourceGroups/providers/providers/Applications.Core/containers/web",
		"/planes/radius/local/resourceGroups/g/PROVIDERS/Applications.Core/containers/web",
		"/planes/radius/local/resourceGroups/g/providers/Applications.Core/containers",
		"/planes/radius/local/resourceGroups/g/providers/Applications.Core/containers/web/",
		"/planes/kubernetes/local/namespaces/default/providers/core/ConfigMap/providers",
		"/planes/kubernetes/local/providers/core/Namespace/default",
		"/planes/radius/providers/a/b/c/d",
		"/planes/providers/x/y/z",
		"/planes/radius/local/resourceGroups/g",
		"/planes/radius/local",
	} {
		name, kind, err := named(id)
		want, wantErr := core.ParseID(id)
		if name != want.Name() || kind != want.Type() || (err == nil) != (wantErr == nil) {
			t.Errorf("%s: named %q of type %q (%v), want %q of type %q (%v)", id, name, kind, err, want.Name(), want.Type(), wantErr)
		}
	}
}
