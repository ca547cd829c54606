package recipe

import (
	"cmp"
	"context"
	"encoding/json"
	"sort"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// Environment is what recipes need to know of an environment resource, of
// either kind (Applications.Core/environments or Radius.Core/environments).
type Environment struct {
	ID   core.ID
	Name string
	// Cluster and Namespace are where what belongs to no application and to no
	// object of a cluster goes; "" where the environment does not say.
	Cluster   string
	Namespace string
	// Simulated environments run no recipe.
	Simulated bool
	// Recipes by resource type, as the operator spelled it, and name.
	Recipes map[string]map[string]Definition
	// Parameters by resource type apply to every recipe of the type; they come
	// between the definition's and the developer's (D-33).
	Parameters map[string]map[string]any
}

// registered is a recipe on the wire of Applications.Core.
type registered struct {
	Kind       string         `json:"templateKind"`
	Path       string         `json:"templatePath"`
	Version    string         `json:"templateVersion"`
	Parameters map[string]any `json:"parameters"`
	PlainHTTP  bool           `json:"plainHttp"`
}

// packed is a recipe on the wire of Radius.Core/recipePacks. Older packs say
// recipeKind and recipeLocation.
type packed struct {
	Kind           string         `json:"kind"`
	Source         string         `json:"source"`
	RecipeKind     string         `json:"recipeKind"`
	RecipeLocation string         `json:"recipeLocation"`
	Parameters     map[string]any `json:"parameters"`
	PlainHTTP      bool           `json:"plainHttp"`
	Outputs        map[string]any `json:"outputs"`
}

// ReadEnvironment decodes an environment. load reads recipe packs; it is not
// called for environments of Applications.Core and may be nil for them.
func ReadEnvironment(ctx context.Context, r core.Resource, load func(context.Context, core.ID) (core.Resource, error)) (Environment, error) {
	e := Environment{ID: r.ID, Name: r.ID.Name(), Recipes: map[string]map[string]Definition{}}
	if strings.EqualFold(r.ID.Provider, "Radius.Core") {
		return e, e.readRadius(ctx, r, load)
	}
	var props struct {
		Simulated bool `json:"simulated"`
		Compute   struct {
			Namespace string `json:"namespace"`
			Cluster   string `json:"cluster"`
		} `json:"compute"`
		Recipes map[string]map[string]registered `json:"recipes"`
	}
	if err := decode(r, &props); err != nil {
		return e, err
	}
	e.Namespace, e.Cluster, e.Simulated = props.Compute.Namespace, props.Compute.Cluster, props.Simulated
	for typ, byName := range props.Recipes {
		e.Recipes[typ] = map[string]Definition{}
		for name, d := range byName {
			e.Recipes[typ][name] = Definition{Name: name, Kind: d.Kind, Path: d.Path, Version: d.Version,
				Parameters: d.Parameters, PlainHTTP: d.PlainHTTP}
		}
	}
	return e, nil
}

func (e *Environment) readRadius(ctx context.Context, r core.Resource, load func(context.Context, core.ID) (core.Resource, error)) error {
	var props struct {
		Simulated bool `json:"simulated"`
		Providers struct {
			Kubernetes struct {
				Namespace string `json:"namespace"`
				Cluster   string `json:"cluster"`
			} `json:"kubernetes"`
		} `json:"providers"`
		Compute struct {
			Cluster string `json:"cluster"`
		} `json:"compute"`
		RecipePacks      []string                  `json:"recipePacks"`
		RecipeParameters map[string]map[string]any `json:"recipeParameters"`
	}
	if err := decode(r, &props); err != nil {
		return err
	}
	e.Namespace, e.Simulated = props.Providers.Kubernetes.Namespace, props.Simulated
	e.Cluster = cmp.Or(props.Providers.Kubernetes.Cluster, props.Compute.Cluster)
	e.Parameters = props.RecipeParameters
	from := map[string]string{} // lower type → pack, to name both of a conflict
	for _, ref := range props.RecipePacks {
		id, err := core.ParseID(ref)
		if err != nil { // a bare name: a pack of the environment's group
			id = r.ID.Resource("Radius.Core/recipePacks", ref)
		}
		pack, err := load(ctx, id)
		if err != nil {
			return core.Errorf(core.CodeRecipeNotFound, "environment %q refers to the recipe pack %s: %w", e.Name, id, err).WithTarget(id.String())
		}
		var body struct {
			Recipes map[string]packed `json:"recipes"`
		}
		if err := decode(pack, &body); err != nil {
			return err
		}
		for typ, d := range body.Recipes {
			if other := from[strings.ToLower(typ)]; other != "" {
				return core.Errorf(core.CodeConflict, "environment %q has two recipes for %s, from the packs %s and %s: take it out of one of them",
					e.Name, typ, other, id.Name()).WithTarget(r.ID.String())
			}
			from[strings.ToLower(typ)] = id.Name()
			def := Definition{Name: DefaultName, Kind: d.Kind, Path: d.Source, Parameters: d.Parameters, PlainHTTP: d.PlainHTTP, Outputs: d.Outputs}
			if def.Kind == "" {
				def.Kind = d.RecipeKind
			}
			if def.Path == "" {
				def.Path = d.RecipeLocation
			}
			e.Recipes[typ] = map[string]Definition{DefaultName: def}
		}
	}
	return nil
}

func decode(r core.Resource, into any) error {
	if len(r.Properties) == 0 {
		return nil
	}
	if err := json.Unmarshal(r.Properties, into); err != nil {
		return core.Errorf(core.CodeInvalidContent, "the properties of %s do not have the shape of its type: %w", r.ID, err).WithTarget(r.ID.String())
	}
	return nil
}

// DefaultName is the recipe that is run when the developer names none.
const DefaultName = "default"

// Lookup finds the recipe of a type by name. Types compare by their canonical
// names, so that a recipe registered under an alias is found (K-12). The error
// names the environment, the type, what is registered, and what to do.
func (e Environment) Lookup(resourceType, name string, canonical func(string) (string, bool)) (Definition, error) {
	if name == "" {
		name = DefaultName
	}
	want := canonicalType(resourceType, canonical)
	var names []string
	for typ, byName := range e.Recipes {
		if !strings.EqualFold(canonicalType(typ, canonical), want) {
			continue
		}
		for n, d := range byName {
			if n == name {
				return d, nil
			}
			names = append(names, n)
		}
	}
	sort.Strings(names)
	has := "it has no recipe for this type"
	if len(names) > 0 {
		has = "it has: " + strings.Join(names, ", ")
	}
	return Definition{}, core.Errorf(core.CodeRecipeNotFound,
		"environment %q has no recipe %q for %s (%s); register one with: radial recipe register %s --environment %s --resource-type %s --template-kind template --template-path <registry>/<repository>:<tag>",
		e.Name, name, resourceType, has, name, e.Name, resourceType).WithTarget(e.ID.String())
}

// parametersFor returns the environment's parameters for a type.
func (e Environment) parametersFor(resourceType string, canonical func(string) (string, bool)) map[string]any {
	want := canonicalType(resourceType, canonical)
	for typ, params := range e.Parameters {
		if strings.EqualFold(canonicalType(typ, canonical), want) {
			return params
		}
	}
	return nil
}

func canonicalType(t string, canonical func(string) (string, bool)) string {
	if canonical != nil {
		if c, ok := canonical(t); ok {
			return c
		}
	}
	return t
}
