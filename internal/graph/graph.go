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

// Build draws g, a snapshot taken at root. Nodes are ordered by id, connections
// by direction, kind, name and id, outputs as they were planned: the same
// snapshot is the same graph to the byte. Every edge stands at both of its
// ends; one that leads to nothing stored stands at its beginning only. root
// itself is no node.
func Build(g store.Graph, root core.ID) wire.Graph {
	// A node and its key, which everything is found and ordered by: keys are
	// made once for each id.
	type node struct {
		wire.GraphResource
		key string
	}
	nodes := make([]node, 0, len(g.Resources))
	at := make(map[string]int, len(g.Resources)) // by key, counted from 1
	rootKey := root.Key()
	for _, r := range g.Resources {
		key := r.ID.Key()
		if key == rootKey || at[key] > 0 {
			continue
		}
		state := r.State
		if state == "" {
			state = core.StateSucceeded
		}
		nodes = append(nodes, node{key: key, GraphResource: wire.GraphResource{
			ID: r.ID.String(), Name: r.ID.Name(), Type: r.ID.Type(), ProvisioningState: string(state),
			Connections: []wire.GraphConnection{}, OutputResources: outputs(g.Outputs[key]),
		}})
		at[key] = len(nodes)
	}
	for _, e := range append(hostEdges(g), g.Edges...) {
		fromKey, target := e.From.Key(), e.To.String()
		from, to := at[fromKey], at[strings.ToLower(target)]
		if from == 0 {
			continue
		}
		if to > 0 {
			target = nodes[to-1].ID // in the case it was first written
		}
		user := &nodes[from-1]
		if e.Kind == core.EdgeReference && to == 0 && stands(g.Outputs[fromKey], e.To) {
			continue // shown among its output resources
		}
		user.Connections = append(user.Connections, wire.GraphConnection{ID: target, Direction: Outbound, Kind: string(e.Kind), Name: e.Name})
		if to > 0 {
			used := &nodes[to-1]
			used.Connections = append(used.Connections, wire.GraphConnection{ID: user.ID, Direction: Inbound, Kind: string(e.Kind), Name: e.Name})
		}
	}
	slices.SortFunc(nodes, func(a, b node) int { return cmp.Compare(a.key, b.key) })
	out := wire.Graph{Resources: make([]wire.GraphResource, len(nodes))}
	for i, n := range nodes {
		slices.SortFunc(n.Connections, func(a, b wire.GraphConnection) int {
			return cmp.Or(-cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
		})
		out.Resources[i] = n.GraphResource
	}
	return out
}

func stands(outputs []core.Output, id core.ID) bool {
	return slices.ContainsFunc(outputs, func(o core.Output) bool { return o.ID.Equal(id) })
}

func outputs(list []core.Output) []wire.GraphOutput {
	out := make([]wire.GraphOutput, len(list))
	for i, o := range list {
		out[i] = wire.GraphOutput{ID: o.ID.String(), Type: o.ID.Type(), Name: o.ID.Name()}
	}
	return out
}
