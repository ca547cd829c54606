// Package container gives meaning to containers and their two modes (K-39): a
// manual one stands for a workload that someone else made and renders nothing
// (K-8); for an internal one, which is what an absent mode means, Radial renders
// a Deployment and what belongs to it.
//
// [Render] is pure: from a container and what it is connected to, to objects of
// Kubernetes. A write is rendered before it is accepted ([Rules]), so that what
// cannot be rendered is refused by name and stored nowhere; a worker renders it
// again with the values of its connections and has the engine of deployments
// make the objects ([Renderer]), which records, re-applies and deletes them as it
// does a recipe's.
package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/application"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/store"
)

// Type is the type of containers.
const Type = "Applications.Core/containers"

// typeStores is the type of secrets that variables refer to by id.
const typeStores = "Applications.Core/secretStores"

// Modes of provisioning; absent means ModeInternal.
const (
	ModeInternal = "internal"
	ModeManual   = "manual"
)

// Rules decide which containers are accepted.
type Rules struct {
	store store.Reader
	// cluster is that of environments which name none, "" for local.
	cluster string
}

// New returns the rules over a store. cluster is that of environments that name
// none, "" for local.
func New(s store.Reader, cluster string) *Rules { return &Rules{s, cluster} }

// Kinds are what containers mean beyond their manifest, by type in lower case.
func (r *Rules) Kinds() map[string]dynamic.Kind {
	return map[string]dynamic.Kind{strings.ToLower(Type): {Check: r.check, Edges: stores, Renders: true}}
}

// manual reports whether a container stands for what somebody else made.
func manual(properties map[string]any) bool {
	return properties["resourceProvisioning"] == ModeManual
}

// check renders a container without the values of its connections, which are not
// known before it runs.
func (r *Rules) check(ctx context.Context, s dynamic.Subject) error {
	if manual(s.Properties) {
		return nil
	}
	in := Input{ID: s.ID, Properties: s.Properties, Draft: true}
	environment, _, err := r.store.Get(ctx, s.Place.Environment)
	if err != nil {
		return err
	}
	in.Environment = environment
	if !s.Place.Application.IsZero() {
		app, _, err := r.store.Get(ctx, s.Place.Application)
		switch {
		case err == nil:
			in.Application = &app
		case !core.IsCode(err, core.CodeNotFound) || !s.ImplicitParents:
			return err
		}
	}
	env, err := recipe.ReadEnvironment(ctx, environment, func(ctx context.Context, id core.ID) (core.Resource, error) {
		pack, _, err := r.store.Get(ctx, id)
		return pack, err
	})
	if err != nil {
		return err
	}
	if env.Simulated {
		return nil
	}
	scope, err := env.Scope(s.Owner, in.Application, recipe.NamespaceOf(s.Properties), r.cluster)
	if err != nil {
		return err
	}
	in.Namespace = scope.Namespace
	if _, err := Render(in); err != nil {
		return err
	}
	return mayUse(s.ID, environment, env, scope)
}

// mayUse refuses a namespace that the environment does not open: pods run with
// what their namespace may, so where they run is the environment's owner's to say
// (K-4). Its own namespace is open, and each that it lists by name.
func mayUse(id core.ID, environment core.Resource, env recipe.Environment, scope extension.Scope) error {
	if scope.Namespace == env.Namespace && (env.Cluster == "" || strings.EqualFold(scope.Cluster, env.Cluster)) {
		return nil
	}
	err := application.MayRun(environment, scope.Cluster, scope.Namespace)
	if err == nil {
		return nil
	}
	return core.Errorf(core.CodeOf(err), "container %s would run in namespace %s: %w", id, scope.Namespace, err).WithTarget("properties.extensions")
}

// stores are the secret stores that variables refer to.
func stores(id core.ID, props map[string]any) []core.Edge {
	if manual(props) {
		return nil
	}
	c, _ := props["container"].(map[string]any)
	variables, _ := c["env"].(map[string]any)
	var edges []core.Edge
	for _, v := range variables {
		variable, _ := v.(map[string]any)
		from, _ := variable["valueFrom"].(map[string]any)
		ref, _ := from["secretRef"].(map[string]any)
		source, _ := ref["source"].(string)
		to, err := core.ParseID(source)
		if err != nil || !to.IsResource() || slices.ContainsFunc(edges, func(e core.Edge) bool { return e.To.Equal(to) }) {
			continue
		}
		edges = append(edges, core.Edge{From: id, To: to, Kind: core.EdgeDependency})
	}
	return edges
}

// fault names the property at fault, by its path below properties, and says what
// to do. It quotes no value that may be a secret.
func fault(path, format string, args ...any) error {
	at := "properties." + path
	return core.Errorf(core.CodeInvalidContent, "%s: %s", at, fmt.Sprintf(format, args...)).WithTarget(at)
}

// decode reads properties of the wire's shape into out.
func decode(properties map[string]any, out any) error {
	raw, err := json.Marshal(properties)
	if err != nil {
		return core.Errorf(core.CodeInternal, "the properties of a container cannot be read: %w", err)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		var t *json.UnmarshalTypeError
		if errors.As(err, &t) {
			return fault(t.Field, "it must not be a %s", t.Value)
		}
		return core.Errorf(core.CodeInvalidContent, "the properties of the container do not have the shape of its type").WithTarget("properties")
	}
	return nil
}
