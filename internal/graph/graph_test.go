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

func snapshot() store.Graph {
	lower := core.MustParseID(cache.Key())
	return store.Graph{
		Resources: []core.Resource{
			{ID: app, State: core.StateSucceeded},
			{ID: web, State: core.StateUpdating, Properties: json.RawMessage(`{"password":"needle"}`), Secrets: map[string]json.RawMessage{"p": json.RawMessage(`"needle"`)}},
			{ID: cache},
		},
		Edges: []core.Edge{
			{From: web, To: lower, Kind: core.EdgeConnection, Name: "redis"},
			{From: web, To: lost, Kind: core.EdgeConnection, Name: "gone"},
			{From: web, To: pod, Kind: core.EdgeReference},
			{From: web, To: other, Kind: core.EdgeReference},
			{From: cache, To: cache, Kind: core.EdgeDependency},
		},
		Outputs: map[string][]core.Output{web.Key(): {{ID: pod, State: core.OutputMade, Handle: json.RawMessage(`{"needle":1}`)}}},
	}
}

func TestBuild(t *testing.T) {
	got := Build(snapshot(), app)
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
	if raw, _ := json.Marshal(Build(store.Graph{}, app)); string(raw) != `{"resources":[]}` {
		t.Errorf("an empty graph is %s", raw)
	}
}

// The order of the snapshot does not show.
func TestBuildIsDeterministic(t *testing.T) {
	want, _ := json.Marshal(Build(snapshot(), app))
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		g := snapshot()
		random.Shuffle(len(g.Resources), func(i, j int) { g.Resources[i], g.Resources[j] = g.Resources[j], g.Resources[i] })
		random.Shuffle(len(g.Edges), func(i, j int) { g.Edges[i], g.Edges[j] = g.Edges[j], g.Edges[i] })
		if got, _ := json.Marshal(Build(g, app)); !slices.Equal(want, got) {
			t.Fatalf("another order gives\n%s\nand not\n%s", got, want)
		}
	}
}
