package scope

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// Radial finds clusters by ids of the control plane's own: an environment, whose
// cluster and namespace are taken as they are now, or a member cluster
// (/planes/kubernetes/<name>). Only the id is stored.
type Radial struct {
	// Load reads an environment as who asked may; NotFound if there is none.
	Load func(ctx context.Context, id core.ID) (core.Resource, error)
}

// Find implements [Finder].
func (f Radial) Find(ctx context.Context, s extension.Scope, _ extension.Secrets) (Place, error) {
	id, err := core.ParseID(s.ID)
	if err != nil {
		return Place{}, core.Errorf(core.CodeInvalidTemplate, "the id of the scope of type %s: %w", TypeRadial, err)
	}
	if strings.EqualFold(id.Plane.Type, "kubernetes") && len(id.Scopes) == 0 && id.Provider == "" {
		return Place{Member: id.Plane.Name}, nil
	}
	typ := strings.ToLower(id.Type())
	if !id.IsResource() || typ != "applications.core/environments" && typ != "radius.core/environments" {
		return Place{}, core.Errorf(core.CodeInvalidTemplate,
			"%s is no scope of type %s: its id is an environment's (…/providers/Applications.Core/environments/<name>) or a cluster's (/planes/kubernetes/<name>)", s.ID, TypeRadial).WithTarget(s.ID)
	}
	if f.Load == nil {
		return Place{}, core.Errorf(core.CodeTarget, "the environment %s cannot be read: there is no control plane here", s.ID).WithTarget(s.ID)
	}
	r, err := f.Load(ctx, id)
	if core.IsCode(err, core.CodeNotFound) {
		return Place{}, core.Errorf(core.CodeTarget,
			"the environment %s does not exist, so where its resources are is not known: make it again, or lead the scope to their cluster (/planes/kubernetes/<name>); nothing was changed", s.ID).WithTarget(s.ID)
	}
	if err != nil {
		return Place{}, core.Errorf(core.CodeTarget, "the environment %s cannot be read: %w", s.ID, err).WithTarget(s.ID)
	}
	var props struct {
		Simulated bool `json:"simulated"`
		Compute   struct {
			Namespace string `json:"namespace"`
			Cluster   string `json:"cluster"`
		} `json:"compute"`
		Providers struct {
			Kubernetes struct {
				Namespace string `json:"namespace"`
				Cluster   string `json:"cluster"`
			} `json:"kubernetes"`
		} `json:"providers"`
	}
	if err := json.Unmarshal(r.Properties, &props); err != nil {
		return Place{}, core.Errorf(core.CodeTarget, "the environment %s has properties that cannot be read", s.ID).WithTarget(s.ID)
	}
	if props.Simulated {
		return Place{}, core.Errorf(core.CodeTarget, "the environment %s is simulated: nothing is made in it", s.ID).WithTarget(s.ID)
	}
	return Place{
		Member:    cmp.Or(props.Providers.Kubernetes.Cluster, props.Compute.Cluster, core.LocalCluster),
		Namespace: cmp.Or(props.Providers.Kubernetes.Namespace, props.Compute.Namespace),
	}, nil
}
