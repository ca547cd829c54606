package provision

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
)

// This file is pure: from a Recipe and what was resolved to the resource that
// it asks for.

// ours are the properties that the spec's own fields set.
var ours = map[string]string{
	"application": "spec.application", "environment": "spec.environment", "recipe": "spec.recipe",
}

// goalOf returns the resource that a Recipe asks for (K-11). The error is a
// fault of the spec.
func goalOf(recipe *radapp.Recipe, cluster string, p paired.Parents, t client.Type) (paired.Goal, error) {
	properties := map[string]any{
		"application": p.Application.String(),
		"environment": p.Environment.String(),
	}
	given, err := parameters(recipe)
	if err != nil {
		return paired.Goal{}, err
	}
	extra := map[string]any{}
	var undeclared []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if field := ours[strings.ToLower(name)]; field != "" {
			return paired.Goal{}, fmt.Errorf("spec.parameters.%s cannot be set there; use %s", name, field)
		}
		switch {
		case t.Declared[name], t.Inert && t.Declared == nil:
			properties[name] = given[name]
		case t.Inert:
			undeclared = append(undeclared, name)
		default:
			extra[name] = given[name]
		}
	}
	if len(undeclared) > 0 {
		return paired.Goal{}, fmt.Errorf("spec.parameters has %s, which resource type %s does not declare, and the type runs no recipe that could take it; it declares: %s",
			strings.Join(undeclared, ", "), t.Name, strings.Join(slices.Sorted(maps.Keys(t.Declared)), ", "))
	}
	if t.Inert && recipe.Spec.Recipe != "" {
		return paired.Goal{}, fmt.Errorf("spec.recipe is %q, but resource type %s is inert and runs no recipe; remove the field", recipe.Spec.Recipe, t.Name)
	}
	chosen := map[string]any{}
	if recipe.Spec.Recipe != "" {
		chosen["name"] = recipe.Spec.Recipe
	}
	if len(extra) > 0 {
		chosen["parameters"] = extra
	}
	if len(chosen) > 0 {
		properties["recipe"] = chosen
	}
	owner := ownerOf(recipe, cluster)
	return paired.Goal{
		ID:         p.Group.Resource(recipe.Spec.Type, recipe.Name),
		APIVersion: t.APIVersion,
		RetryOn:    p.ETag,
		Body: arm.Put{
			Resource:        arm.Resource{Location: "global", Properties: properties, Owner: &owner},
			ImplicitParents: true,
		},
	}, nil
}

func parameters(recipe *radapp.Recipe) (map[string]any, error) {
	if recipe.Spec.Parameters == nil || len(recipe.Spec.Parameters.Raw) == 0 {
		return nil, nil
	}
	var given map[string]any
	if err := json.Unmarshal(recipe.Spec.Parameters.Raw, &given); err != nil {
		return nil, fmt.Errorf("spec.parameters is not a JSON object")
	}
	return given, nil
}

func ownerOf(recipe *radapp.Recipe, cluster string) arm.Owner {
	return arm.Owner{Cluster: cluster, Namespace: recipe.Namespace, Kind: Kind, Name: recipe.Name, UID: string(recipe.UID)}
}

func reference(recipe *radapp.Recipe, cluster string) paired.Reference {
	return paired.Reference{
		Cluster: cluster, Namespace: recipe.Namespace,
		Environment: recipe.Spec.Environment, Application: recipe.Spec.Application,
	}
}

// namespaceOf is the id under which the registration of a type's namespace
// changes.
func namespaceOf(resourceType string) core.ID {
	ns, _, _ := strings.Cut(resourceType, "/")
	id, err := core.ParseID("/planes/radius/local/providers/System.Resources/resourceProviders/" + ns)
	if err != nil {
		return core.ID{}
	}
	return id
}
