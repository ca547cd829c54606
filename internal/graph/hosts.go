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
func hostEdges(g store.Graph) []core.Edge {
	named := map[string]core.ID{}
	for _, r := range g.Resources {
		if slices.Contains(containers, strings.ToLower(r.ID.Type())) {
			name := strings.ToLower(r.ID.Name())
			if _, twice := named[name]; twice {
				named[name] = core.ID{} // two of a name, in two groups: neither is meant for certain
				continue
			}
			named[name] = r.ID
		}
	}
	if len(named) == 0 {
		return nil
	}
	var edges []core.Edge
	for _, r := range g.Resources {
		if !bytes.Contains(r.Properties, []byte("://")) {
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
		if json.Unmarshal(r.Properties, &p) != nil {
			continue // properties of another shape under these names
		}
		seen := map[string]bool{}
		add := func(name, target string) {
			to := named[host(target)]
			if key := name + "\x00" + to.Key(); !to.IsZero() && !to.Equal(r.ID) && !seen[key] {
				seen[key] = true
				edges = append(edges, core.Edge{From: r.ID, To: to, Kind: core.EdgeConnection, Name: name})
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
