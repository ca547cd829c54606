// Package graph draws the graph of an application or an environment: pure, from
// one snapshot of the store. It shows ids, types and states, never a property,
// so that no secret can be in it.
package graph

import (
	"cmp"
	"slices"
	"strings"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// Directions of a connection.
const (
	Outbound = "Outbound"
	Inbound  = "Inbound"
)

// Each draws g, a snapshot taken at root, one node at a time, so that a graph
// of very many nodes is never in memory as it is answered. Nodes are ordered by
// id, connections by direction, kind, name and id, outputs as they were planned:
// the same snapshot is the same graph to the byte. Every edge stands at both of
// its ends; one that leads to nothing stored stands at its beginning only. root
// itself is no node. What a node holds is overwritten when yield has returned.
func Each(g store.Graph, root core.ID, yield func(wire.GraphResource) error) error {
	self, rootKey := int32(-1), root.Key()
	for i, n := range g.Nodes {
		if strings.EqualFold(n.ID, rootKey) {
			self = int32(i)
		}
	}
	edges := append(hostEdges(g), g.Edges...)
	leaving, arriving := ends(edges, len(g.Nodes), true), ends(edges, len(g.Nodes), false)
	connections, made := []wire.GraphConnection{}, []wire.GraphOutput{} // of one node after the other
	for i, n := range g.Nodes {
		if int32(i) == self {
			continue
		}
		name, kind, err := named(n.ID)
		if err != nil {
			return err
		}
		state := n.State
		if state == "" {
			state = core.StateSucceeded
		}
		node := wire.GraphResource{ID: n.ID, Name: name, Type: kind, ProvisioningState: string(state), Connections: connections[:0]}
		if made, err = outputs(made[:0], n.Outputs); err != nil {
			return err
		}
		node.OutputResources = made
		for _, at := range leaving.of(i) {
			e := edges[at]
			target := e.ToID
			if e.To >= 0 {
				target = g.Nodes[e.To].ID // in the case it was first written
			}
			if e.Kind == core.EdgeReference && e.To < 0 && stands(n.Outputs, target) {
				continue // shown among its output resources
			}
			node.Connections = append(node.Connections, wire.GraphConnection{ID: target, Direction: Outbound, Kind: string(e.Kind), Name: e.Name})
		}
		for _, at := range arriving.of(i) {
			if e := edges[at]; e.From != self {
				node.Connections = append(node.Connections, wire.GraphConnection{ID: g.Nodes[e.From].ID, Direction: Inbound, Kind: string(e.Kind), Name: e.Name})
			}
		}
		slices.SortFunc(node.Connections, func(a, b wire.GraphConnection) int {
			return cmp.Or(-cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
		})
		connections = node.Connections
		if err := yield(node); err != nil {
			return err
		}
	}
	return nil
}

// incidence holds the edges of each node: those of node i are
// list[first[i]:first[i+1]].
type incidence struct{ first, list []int32 }

func (in incidence) of(node int) []int32 { return in.list[in.first[node]:in.first[node+1]] }

// ends sorts edges by the node they leave, or by the one they arrive at.
func ends(edges []store.GraphEdge, nodes int, leaving bool) incidence {
	node := func(e store.GraphEdge) int32 {
		if leaving {
			return e.From
		}
		return e.To
	}
	in := incidence{first: make([]int32, nodes+1), list: make([]int32, len(edges))}
	for _, e := range edges {
		if n := node(e); n >= 0 {
			in.first[n+1]++
		}
	}
	for i := range nodes {
		in.first[i+1] += in.first[i]
	}
	next := slices.Clone(in.first)
	for i, e := range edges {
		if n := node(e); n >= 0 {
			in.list[next[n]] = int32(i)
			next[n]++
		}
	}
	return in
}

func stands(outputs []string, id string) bool {
	return slices.ContainsFunc(outputs, func(o string) bool { return strings.EqualFold(o, id) })
}

// outputs adds a node's outputs to out.
func outputs(out []wire.GraphOutput, list []string) ([]wire.GraphOutput, error) {
	for _, o := range list {
		name, kind, err := named(o)
		if err != nil {
			return nil, err
		}
		out = append(out, wire.GraphOutput{ID: o, Type: kind, Name: name})
	}
	return out, nil
}

// named is the name and the type of a stored id, as [core.ID] has them. Nearly
// all end in /providers/<namespace>/<type>/<name>, where both are parts of the
// text and nothing has to be made.
func named(id string) (name, kind string, err error) {
	const providers = "/providers/"
	// Names and types come in pairs after /planes, so that an odd number of
	// segments before it says that it is no name of one.
	if scope, rest, ok := strings.Cut(id, providers); ok && strings.Count(scope, "/") >= 3 && strings.Count(scope, "/")%2 == 1 {
		if last := strings.LastIndexByte(rest, '/'); last > 0 && last < len(rest)-1 && strings.Count(rest, "/") == 2 {
			return rest[last+1:], rest[:last], nil
		}
	}
	parsed, err := core.ParseID(id)
	return parsed.Name(), parsed.Type(), err
}
