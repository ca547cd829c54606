package application

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
)

// environmentProperties are those of an environment that mean something here.
type environmentProperties struct {
	AllowedNamespaces []string `json:"allowedNamespaces"`
}

func properties(environment core.Resource) (environmentProperties, error) {
	var p environmentProperties
	if len(environment.Properties) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(environment.Properties, &p); err != nil {
		return p, core.Errorf(core.CodeInternal, "the stored properties of environment %s cannot be read", environment.ID)
	}
	return p, nil
}

// typePack is the type of recipe packs, which environments refer to.
const typePack = "Radius.Core/recipePacks"

// Kinds are the checks of applications and environments, by type in lower case.
// All of them, and the recipe packs that environments name, stay while anything
// uses them.
func (r *Rules) Kinds() map[string]dynamic.Kind {
	return map[string]dynamic.Kind{
		strings.ToLower(TypeEnvironment):     {Check: checkEnvironment, Unused: true},
		strings.ToLower(TypeEnvironmentNext): {Check: checkEnvironment, Unused: true, Edges: packs},
		strings.ToLower(TypeApplication):     {Unused: true},
		strings.ToLower(TypeApplicationNext): {Unused: true},
		strings.ToLower(typePack):            {Unused: true},
	}
}

// packs are the recipe packs that an environment names: by id, or by name in its
// own group.
func packs(id core.ID, props map[string]any) []core.Edge {
	list, _ := props["recipePacks"].([]any)
	var edges []core.Edge
	for _, v := range list {
		ref, _ := v.(string)
		pack, err := core.ParseID(ref)
		if err != nil {
			pack = id.Resource(typePack, ref)
		}
		if ref != "" && pack.IsResource() && !slices.ContainsFunc(edges, func(e core.Edge) bool { return e.To.Equal(pack) }) {
			edges = append(edges, core.Edge{From: id, To: pack, Kind: core.EdgeDependency})
		}
	}
	return edges
}

func checkEnvironment(_ context.Context, s dynamic.Subject) error {
	v, ok := s.Properties["allowedNamespaces"]
	if !ok || v == nil {
		return nil
	}
	list, ok := v.([]any)
	at := "properties.allowedNamespaces"
	if !ok {
		return core.Errorf(core.CodeInvalidContent, "%s must be a list of namespaces", at).WithTarget(at)
	}
	for i, e := range list {
		if entry, ok := e.(string); !ok || !allowedEntry.MatchString(entry) {
			at := fmt.Sprintf("%s[%d]", at, i)
			return core.Errorf(core.CodeInvalidContent, `%s is %v: it must be "*", "<namespace>", "<cluster>/<namespace>" or "<cluster>/*"`, at, e).WithTarget(at)
		}
	}
	return nil
}
