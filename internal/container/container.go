// Package container gives meaning to containers and their two modes (K-39): a
// manual one stands for a workload that someone else made and renders nothing
// (K-8); an internal one would be rendered by the control plane, which this
// release does not do yet and refuses.
package container

import (
	"context"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
)

// Type is the type of containers.
const Type = "Applications.Core/containers"

// Modes of provisioning; absent means ModeInternal.
const (
	ModeInternal = "internal"
	ModeManual   = "manual"
)

// Kinds are the checks of containers, by type in lower case.
func Kinds() map[string]dynamic.Kind {
	return map[string]dynamic.Kind{strings.ToLower(Type): {Check: check}}
}

func check(_ context.Context, s dynamic.Subject) error {
	mode, _ := s.Properties["resourceProvisioning"].(string)
	if mode == ModeManual {
		return nil
	}
	if mode == "" {
		mode = ModeInternal + " (which it is when absent)"
	}
	return core.Errorf(core.CodeInvalidContent, "properties.resourceProvisioning of container %s is %s: this release renders no containers. Deploy the workload with your own tools and annotate it (radapp.io/enabled: 'true'), or set resourceProvisioning to %q and name the workload in properties.resources",
		s.ID, mode, ModeManual).WithTarget("properties.resourceProvisioning")
}
