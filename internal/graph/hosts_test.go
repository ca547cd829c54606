package graph

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// A URL whose host is a container of the graph leads there, any other nowhere.
func TestURLsOfContainers(t *testing.T) {
	api := scope.Resource("Applications.Core/containers", "Api")
	edge := scope.Resource("Applications.Core/gateways", "edge")
	twin := core.GroupID("other").Resource("Applications.Core/containers", "twin")
	properties := func(text string) json.RawMessage { return json.RawMessage(text) }
	g := drawn([]store.Node{
		{ID: api.String()},
		{ID: edge.String(), Properties: properties(`{"routes":[{"destination":"http://web"},{"destination":"http://api:8080"},{"destination":"https://example.com"}]}`)},
		{ID: twin.String()}, {ID: scope.Resource("Applications.Core/containers", "twin").String()},
		{ID: web.String(), Properties: properties(`{"connections":{"a":{"source":"http://api:8080/v1"},"b":{"source":"http://db.example:5432"},"t":{"source":"http://twin"},"w":{"source":"http://web"},
			"s":{"source":"redis://user:needle@cache"},"bad":{"source":"://"}}}`)},
		{ID: cache.String(), Properties: properties(`{"connections":["http://api"]}`)},
	}, nil, nil)
	got := map[string][]wire.GraphConnection{}
	for _, r := range build(t, g, app).Resources {
		if len(r.Connections) > 0 {
			got[r.Name] = r.Connections
		}
	}
	want := map[string][]wire.GraphConnection{
		"web": {
			{ID: api.String(), Direction: "Outbound", Kind: "Connection", Name: "a"},
			{ID: edge.String(), Direction: "Inbound", Kind: "Connection"},
		},
		"edge": {
			{ID: api.String(), Direction: "Outbound", Kind: "Connection"},
			{ID: web.String(), Direction: "Outbound", Kind: "Connection"},
		},
		"Api": {
			{ID: edge.String(), Direction: "Inbound", Kind: "Connection"},
			{ID: web.String(), Direction: "Inbound", Kind: "Connection", Name: "a"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
