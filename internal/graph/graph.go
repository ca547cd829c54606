// Package graph draws the graph of an application or an environment: pure, from
// one snapshot of the store. It shows ids, types and states, never a property,
// so that no secret can be in it.
package graph

import (
	"cmp"
	"slices"

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
	out := wire.Graph{Resources: []wire.GraphResource{}}
	at := map[string]int{}
	for _, r := range g.Resources {
		if r.ID.Equal(root) || at[r.ID.Key()] > 0 {
			continue
		}
		state := r.State
		if state == "" {
			state = core.StateSucceeded
		}
		out.Resources = append(out.Resources, wire.GraphResource{
			ID: r.ID.String(), Name: r.ID.Name(), Type: r.ID.Type(), ProvisioningState: string(state),
			Connections: []wire.GraphConnection{}, OutputResources: outputs(g.Outputs[r.ID.Key()]),
		})
		at[r.ID.Key()] = len(out.Resources)
	}
	for _, e := range append(hostEdges(g), g.Edges...) {
		from, to := at[e.From.Key()], at[e.To.Key()]
		if from == 0 {
			continue
		}
		target := e.To.String()
		if to > 0 {
			target = out.Resources[to-1].ID // in the case it was first written
		}
		node := &out.Resources[from-1]
		if e.Kind == core.EdgeReference && to == 0 && stands(g.Outputs[e.From.Key()], e.To) {
			continue // shown among its output resources
		}
		node.Connections = append(node.Connections, wire.GraphConnection{ID: target, Direction: Outbound, Kind: string(e.Kind), Name: e.Name})
		if to > 0 {
			used := &out.Resources[to-1]
			used.Connections = append(used.Connections, wire.GraphConnection{ID: node.ID, Direction: Inbound, Kind: string(e.Kind), Name: e.Name})
		}
	}
	for i := range out.Resources {
		slices.SortFunc(out.Resources[i].Connections, func(a, b wire.GraphConnection) int {
			return cmp.Or(-cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
		})
	}
	slices.SortFunc(out.Resources, func(a, b wire.GraphResource) int { return cmp.Compare(key(a.ID), key(b.ID)) })
	return out
}

func key(id string) string {
	parsed, err := core.ParseID(id)
	if err != nil {
		return id
	}
	return parsed.Key()
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
