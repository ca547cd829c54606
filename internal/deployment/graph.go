package deployment

import (
	"net/http"
	"strings"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/graph"
)

// graph answers getGraph of a deployment: itself with the objects that it made as
// output resources, and the resources of the control plane that it made, with
// theirs. In the graphs of applications these stand by themselves: a deployment
// belongs to none, so that its history keeps none from being deleted.
func (s *Service) graph(w http.ResponseWriter, r *arm.Request, stored core.Resource) error {
	ctx := r.Context()
	outputs, err := s.o.Store.Outputs(ctx, stored.ID)
	if err != nil {
		return err
	}
	visible := auth.Viewer(ctx)
	own := graphNode(stored)
	own.ProvisioningState = stateOf(stored.State)
	var made []core.ID
	for _, o := range outputs {
		switch {
		case o.State != core.OutputMade:
		case !strings.EqualFold(o.ID.Plane.Type, "radius"):
			own.OutputResources = append(own.OutputResources, graphOutput(o.ID))
		case visible(o.ID):
			made = append(made, o.ID)
		}
	}
	below, err := s.o.Store.OutputsOf(ctx, made)
	if err != nil {
		return err
	}
	nodes := []wire.GraphResource{}
	for _, id := range made {
		res, _, err := s.o.Store.Get(ctx, id)
		if core.IsCode(err, core.CodeNotFound) {
			continue // deleted since
		}
		if err != nil {
			return err
		}
		node := graphNode(res)
		node.Connections = append(node.Connections, wire.GraphConnection{ID: own.ID, Direction: graph.Inbound, Kind: string(core.EdgeDependency)})
		for _, o := range below[id.Key()] {
			node.OutputResources = append(node.OutputResources, graphOutput(o.ID))
		}
		own.Connections = append(own.Connections, wire.GraphConnection{ID: node.ID, Direction: graph.Outbound, Kind: string(core.EdgeDependency)})
		nodes = append(nodes, node)
	}
	return arm.WriteJSON(w, http.StatusOK, wire.Graph{Resources: append([]wire.GraphResource{own}, nodes...)})
}

func graphNode(r core.Resource) wire.GraphResource {
	state := r.State
	if state == "" {
		state = core.StateSucceeded
	}
	return wire.GraphResource{ID: r.ID.String(), Name: r.ID.Name(), Type: r.ID.Type(), ProvisioningState: string(state),
		Connections: []wire.GraphConnection{}, OutputResources: []wire.GraphOutput{}}
}

func graphOutput(id core.ID) wire.GraphOutput {
	return wire.GraphOutput{ID: id.String(), Type: id.Type(), Name: id.Name()}
}
