package graph

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// containers are the types whose resources answer under their own name inside
// the cluster: a URL that an application gives with such a host leads there.
var containers = []string{"applications.core/containers", "radius.compute/containers"}

// hostEdges are the edges that URLs make: a connection or a route to
// "http://backend:8080" leads to container backend of the graph. A URL to
// anything else leads out of the graph and is no edge. Nothing of a URL is
// shown; it only finds what is there.
func hostEdges(g store.Graph) []store.GraphEdge {
	if !slices.ContainsFunc(g.Nodes, hasURL) {
		return nil
	}
	hosts := map[string]int32{}
	for i, n := range g.Nodes {
		name, kind, err := named(n.ID)
		if err != nil || !slices.Contains(containers, strings.ToLower(kind)) {
			continue
		}
		name = strings.ToLower(name)
		if _, twice := hosts[name]; twice {
			hosts[name] = -1 // two of a name, in two groups: neither is meant for certain
			continue
		}
		hosts[name] = int32(i)
	}
	if len(hosts) == 0 {
		return nil
	}
	var edges []store.GraphEdge
	for i, n := range g.Nodes {
		if !hasURL(n) {
			continue // most: their connections are ids, which are edges already
		}
		var p struct {
			Connections map[string]struct {
				Source string `json:"source"`
			} `json:"connections"`
			Routes []struct {
				Destination string `json:"destination"`
			} `json:"routes"`
		}
		if json.Unmarshal(n.Properties, &p) != nil {
			continue // properties of another shape under these names
		}
		type link struct {
			name string
			to   int32
		}
		seen := map[link]bool{}
		add := func(name, target string) {
			to, known := hosts[host(target)]
			if known && to >= 0 && to != int32(i) && !seen[link{name, to}] {
				seen[link{name, to}] = true
				edges = append(edges, store.GraphEdge{From: int32(i), To: to, Kind: core.EdgeConnection, Name: name})
			}
		}
		for name, c := range p.Connections {
			add(name, c.Source)
		}
		for _, route := range p.Routes {
			add("", route.Destination)
		}
	}
	return edges
}

func hasURL(n store.Node) bool { return bytes.Contains(n.Properties, []byte("://")) }

// host is the host of a URL in lower case, "" where there is none.
func host(target string) string {
	if !strings.Contains(target, "://") {
		return ""
	}
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}
