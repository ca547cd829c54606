package dynamic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/seal"
)

// Properties that every type knows.
const (
	propProvisioningState = "provisioningState"
	propStatus            = "status"
	propRecipe            = "recipe"
	propRecipeStatus      = "recipeStatus"
	propProvisioning      = "resourceProvisioning"
	propConnections       = "connections"
	propResources         = "resources"
	propRoutes            = "routes"
)

// Values of resourceProvisioning.
const (
	provisioningManual   = "manual"
	provisioningRecipe   = "recipe"
	provisioningInternal = "internal"
)

func lower(s string) string { return strings.ToLower(s) }

// dropServers takes out what only the server writes (D-15).
func dropServers(props map[string]any) {
	delete(props, propProvisioningState)
	delete(props, propStatus)
	if recipe, ok := props[propRecipe].(map[string]any); ok {
		delete(recipe, propRecipeStatus)
	}
}

func checkProvisioning(props map[string]any) error {
	v, ok := props[propProvisioning]
	if !ok {
		return nil
	}
	mode, ok := v.(string)
	if ok && (mode == provisioningManual || mode == provisioningRecipe || mode == provisioningInternal) {
		return nil
	}
	return core.Errorf(core.CodeInvalidContent, "properties.resourceProvisioning must be %q or %q", provisioningRecipe, provisioningManual).WithTarget("properties.resourceProvisioning")
}

// runsRecipe reports whether a resource is provisioned by a recipe (D-29).
func runsRecipe(tv *manifest.TypeVersion, props map[string]any) bool {
	return !tv.Inert() && !tv.Synchronous() && props[propProvisioning] != provisioningManual
}

// edges are what a resource uses, as its properties say: connections, routes to
// other resources, and the resources that it stands for.
func (p *Provider) edges(id core.ID, props map[string]any) ([]core.Edge, error) {
	var edges []core.Edge
	seen := map[string]bool{}
	add := func(to core.ID, kind core.EdgeKind, name string) {
		to = p.present(to)
		key := string(kind) + "\x00" + name + "\x00" + to.Key()
		if !seen[key] {
			seen[key] = true
			edges = append(edges, core.Edge{From: id, To: to, Kind: kind, Name: name})
		}
	}
	connections, ok := props[propConnections].(map[string]any)
	if !ok && props[propConnections] != nil {
		return nil, core.Errorf(core.CodeInvalidContent, "properties.connections must be a JSON object of connections by their name").WithTarget("properties.connections")
	}
	for name, v := range connections {
		at := "properties.connections." + name + ".source"
		source, ok := member(v, "source")
		if !ok {
			return nil, core.Errorf(core.CodeInvalidContent, "%s must be the id of a resource or a URL", at).WithTarget(at)
		}
		to, err := parseSource(source)
		if err != nil {
			return nil, core.Errorf(core.CodeInvalidContent, "%s: %w", at, err).WithTarget(at)
		}
		if !to.IsZero() {
			add(to, core.EdgeConnection, name)
		}
	}
	routes, _ := props[propRoutes].([]any)
	for _, r := range routes {
		destination, _ := member(r, "destination")
		if to, err := parseSource(destination); err == nil && !to.IsZero() {
			add(to, core.EdgeConnection, "")
		}
	}
	stands, err := standsFor(props)
	if err != nil {
		return nil, err
	}
	for _, to := range stands {
		add(to, core.EdgeReference, "")
	}
	slices.SortFunc(edges, func(a, b core.Edge) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.To.Key(), b.To.Key()))
	})
	return edges, nil
}

// member is the string member of an object.
func member(v any, name string) (string, bool) {
	object, _ := v.(map[string]any)
	s, ok := object[name].(string)
	return s, ok
}

// ofAzure reports whether an id is one of Azure's resource manager, which has
// no planes: it is taken as it is, and leads to nothing that the store has.
func ofAzure(id string) bool {
	const scope = "/subscriptions/"
	return len(id) > len(scope) && strings.EqualFold(id[:len(scope)], scope)
}

// parseSource reads what a connection leads to: the id of a resource, or a URL
// or an id of Azure, for which the id is zero.
func parseSource(source string) (core.ID, error) {
	if ofAzure(source) {
		return core.ID{}, nil
	}
	if strings.HasPrefix(source, "/") {
		id, err := core.ParseID(source)
		if err == nil && !id.IsResource() {
			err = core.Errorf(core.CodeBadRequest, "%q names no resource, but a scope or a collection", source)
		}
		return id, err
	}
	if u, err := url.Parse(source); err == nil && u.Scheme != "" && (u.Host != "" || u.Opaque != "") {
		return core.ID{}, nil
	}
	return core.ID{}, core.Errorf(core.CodeBadRequest, "%q is neither the id of a resource (/planes/…) nor a URL", source)
}

// standsFor returns the ids in properties.resources: what a manual resource
// stands for.
func standsFor(props map[string]any) ([]core.ID, error) {
	list, ok := props[propResources].([]any)
	if !ok {
		return nil, nil // what the schema lets through otherwise is no such list
	}
	var ids []core.ID
	for i, v := range list {
		at := fmt.Sprintf("properties.resources[%d].id", i)
		s, ok := member(v, "id")
		if !ok {
			return nil, core.Errorf(core.CodeInvalidContent, "%s must be the id of a resource", at).WithTarget(at)
		}
		if ofAzure(s) {
			continue
		}
		id, err := core.ParseID(s)
		if err == nil && !id.IsResource() {
			err = core.Errorf(core.CodeBadRequest, "%q names no resource", s)
		}
		if err != nil {
			return nil, core.Errorf(core.CodeInvalidContent, "%s: %w", at, err).WithTarget(at)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// present returns an id under the present name of its type, where that is one
// of ours.
func (p *Provider) present(id core.ID) core.ID {
	if !strings.EqualFold(id.Plane.Type, "radius") {
		return id
	}
	if t, ok := p.o.Types.Canonical(id.Type()); ok {
		return id.WithType(t)
	}
	return id
}

// seal replaces the sensitive values in props by sealed ones and encodes the
// result. The path in a value's bound data is the schema's.
func (p *Provider) seal(id core.ID, tv *manifest.TypeVersion, props map[string]any) (json.RawMessage, error) {
	if tv.Schema != nil {
		err := tv.Schema.WalkSensitive(props, func(path string, v any) (any, error) {
			if v == nil {
				return nil, nil
			}
			return p.o.Sealer.Seal(id, path, v)
		})
		if err != nil {
			return nil, err
		}
	}
	return encode(props)
}

// plaintext decodes the stored properties of a resource and opens what is
// sealed in them. The result never leaves the process unredacted, but to
// recipes and by listSecrets.
func (p *Provider) plaintext(r core.Resource, tv *manifest.TypeVersion) (map[string]any, error) {
	props, err := decode(r.Properties)
	if err != nil || tv == nil || tv.Schema == nil {
		return props, err
	}
	err = tv.Schema.WalkSensitive(props, func(path string, v any) (any, error) {
		if !seal.IsSealed(v) {
			return v, nil // written before the schema called it sensitive
		}
		return p.o.Sealer.Open(r.ID, path, v)
	})
	return props, err
}

// redact puts null in the place of every sensitive value (D-25), and of
// whatever else is sealed: what a schema that is gone called sensitive.
func redact(props map[string]any, tv *manifest.TypeVersion) {
	if tv != nil && tv.Schema != nil {
		_ = tv.Schema.WalkSensitive(props, func(string, any) (any, error) { return nil, nil })
	}
	for name, v := range props {
		props[name] = withoutSealed(v)
	}
}

func withoutSealed(v any) any {
	if seal.IsSealed(v) {
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = withoutSealed(e)
		}
	case []any:
		for i, e := range v {
			v[i] = withoutSealed(e)
		}
	}
	return v
}

func encode(v any) (json.RawMessage, error) { return json.Marshal(v) }
