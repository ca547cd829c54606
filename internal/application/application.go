// Package application gives meaning to applications and environments: what
// belongs to them, who may use an environment, and how an application comes
// into being with its first member.
package application

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/store"
)

// Types of applications and environments, each of two generations.
const (
	TypeApplication     = "Applications.Core/applications"
	TypeEnvironment     = "Applications.Core/environments"
	TypeApplicationNext = "Radius.Core/applications"
	TypeEnvironmentNext = "Radius.Core/environments"
)

// IsApplication reports whether a type is one of an application.
func IsApplication(resourceType string) bool {
	return strings.EqualFold(resourceType, TypeApplication) || strings.EqualFold(resourceType, TypeApplicationNext)
}

// IsEnvironment reports whether a type is one of an environment.
func IsEnvironment(resourceType string) bool {
	return strings.EqualFold(resourceType, TypeEnvironment) || strings.EqualFold(resourceType, TypeEnvironmentNext)
}

// Rules implements [dynamic.Membership] and the kinds of both types.
type Rules struct {
	store store.Reader
	types *manifest.Registry
}

// New returns the rules over a store.
func New(s store.Reader, types *manifest.Registry) *Rules { return &Rules{store: s, types: types} }

// Place finds the application and the environment of a resource. Both must
// exist, but for an application that is to be made implicitly; an object of a
// cluster may only use an environment that lists its namespace (K-4).
func (r *Rules) Place(ctx context.Context, s dynamic.Subject) (dynamic.Place, error) {
	var place dynamic.Place
	environment, err := r.reference(s, "environment", IsEnvironment)
	if err != nil {
		return place, err
	}
	application, err := r.reference(s, "application", IsApplication)
	if err != nil {
		return place, err
	}
	place.Application, place.Environment = application, environment
	if s.ImplicitParents {
		if place.Parents, err = r.parents(s, application, environment); err != nil {
			return place, err
		}
	}
	if !application.IsZero() {
		stored, _, err := r.store.Get(ctx, application)
		switch {
		case err == nil:
			place.Application = stored.ID
			if environment.IsZero() {
				environment = stored.Environment
			}
		case !core.IsCode(err, core.CodeNotFound):
			return place, err
		case !s.ImplicitParents:
			return place, core.Errorf(core.CodeNotFound, "application %s of %s does not exist: create it first", application, s.ID).WithTarget(application.String())
		}
	}
	if environment.IsZero() {
		return place, nil
	}
	stored, _, err := r.store.Get(ctx, environment)
	if core.IsCode(err, core.CodeNotFound) {
		return place, core.Errorf(core.CodeNotFound, "environment %s of %s does not exist: create it (`radial env create %s`), or name another in properties.environment", environment, s.ID, environment.Name()).WithTarget(environment.String())
	}
	if err != nil {
		return place, err
	}
	place.Environment = stored.ID
	return place, MayUse(stored, s.Owner)
}

// reference reads an id among the properties, under the present name of its
// type.
func (r *Rules) reference(s dynamic.Subject, name string, is func(string) bool) (core.ID, error) {
	v, ok := s.Properties[name]
	if !ok || v == nil || v == "" {
		return core.ID{}, nil
	}
	at := "properties." + name
	text, ok := v.(string)
	if !ok {
		return core.ID{}, core.Errorf(core.CodeInvalidContent, "%s must be the id of an %s", at, name).WithTarget(at)
	}
	id, err := core.ParseID(text)
	if err != nil {
		return core.ID{}, core.Errorf(core.CodeInvalidContent, "%s: %w", at, err).WithTarget(at)
	}
	if t, ok := r.types.Canonical(id.Type()); ok {
		id = id.WithType(t)
	}
	if !id.IsResource() || !is(id.Type()) {
		return core.ID{}, core.Errorf(core.CodeInvalidContent, "%s is %s, which is not the id of an %s", at, id, name).WithTarget(at)
	}
	return id, nil
}

// parents are the groups and the application that a resource brings along.
func (r *Rules) parents(s dynamic.Subject, application, environment core.ID) ([]core.Resource, error) {
	var parents []core.Resource
	group := func(scope core.ID) {
		if len(scope.Scopes) == 0 {
			return
		}
		for _, p := range parents {
			if p.ID.Equal(scope) {
				return
			}
		}
		parents = append(parents, core.Resource{ID: scope, Location: "global", Properties: []byte("{}"), State: core.StateSucceeded, SystemData: s.SystemData})
	}
	group(s.ID.Scope())
	if application.IsZero() {
		return parents, nil
	}
	if environment.IsZero() {
		return nil, core.Errorf(core.CodeInvalidContent, "implicitParents makes application %s, which needs properties.environment", application).WithTarget("properties.environment")
	}
	group(application.Scope())
	version, err := r.version(application)
	if err != nil {
		return nil, err
	}
	properties := map[string]any{"environment": environment.String()}
	if ns := s.Owner.Namespace; ns != "" {
		properties["extensions"] = []any{map[string]any{"kind": "kubernetesNamespace", "namespace": ns}}
	}
	raw, err := json.Marshal(properties)
	if err != nil {
		return nil, err
	}
	return append(parents, core.Resource{
		ID: application, APIVersion: version, Location: "global", Properties: raw,
		State: core.StateSucceeded, Environment: environment, SystemData: s.SystemData,
	}), nil
}

// versions of applications that are made implicitly.
var versions = map[string]string{
	strings.ToLower(TypeApplication):     "2023-10-01-preview",
	strings.ToLower(TypeApplicationNext): "2025-08-01-preview",
}

func (r *Rules) version(application core.ID) (string, error) {
	version := versions[strings.ToLower(application.Type())]
	if _, err := r.types.Lookup(application.Type(), version); err != nil {
		return "", err
	}
	return version, nil
}

// cluster and namespace of an entry of allowedNamespaces.
var allowedEntry = regexp.MustCompile(`^(\*|([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([a-z0-9]([-a-z0-9]*[a-z0-9])?|\*))$`)

// Allowed reports whether an environment's allowedNamespaces let objects of a
// namespace of a cluster use it: "*" is every namespace, "name" one of the
// local cluster, "cluster/name" and "cluster/*" those of another.
func Allowed(entries []string, cluster, namespace string) bool {
	if cluster == "" {
		cluster = core.LocalCluster
	}
	for _, e := range entries {
		if e == "*" {
			return true
		}
		c, ns, ok := strings.Cut(e, "/")
		if !ok {
			c, ns = core.LocalCluster, e
		}
		if strings.EqualFold(c, cluster) && (ns == "*" || ns == namespace) {
			return true
		}
	}
	return false
}

// MayUse refuses an environment to an object of a namespace that it does not
// list (K-4).
func MayUse(environment core.Resource, owner core.Owner) error {
	if owner.IsZero() {
		return nil // written through the API by someone who may write there
	}
	return listed(environment, owner.Cluster, owner.Namespace, "do not list it", true)
}

// MayRun refuses to run in a namespace that the environment does not list by its
// name. Who writes an object into a namespace may write there, so every one can
// be let use an environment; who writes through the API has shown nothing of the
// kind.
func MayRun(environment core.Resource, cluster, namespace string) error {
	return listed(environment, cluster, namespace, "do not name it (* is for objects that stand in their namespace already)", false)
}

// listed holds a namespace to an environment's allowedNamespaces, those with * or
// without.
func listed(environment core.Resource, cluster, namespace, why string, all bool) error {
	props, err := properties(environment)
	if err != nil {
		return err
	}
	entries := props.AllowedNamespaces
	if !all {
		entries = slices.DeleteFunc(slices.Clone(entries), func(e string) bool { return strings.HasSuffix(e, "*") })
	}
	if Allowed(entries, cluster, namespace) {
		return nil
	}
	entry := namespace
	if cluster != "" && !strings.EqualFold(cluster, core.LocalCluster) {
		entry = cluster + "/" + namespace
	}
	return core.Errorf(core.CodeForbidden, "namespace %s may not use environment %s: its allowedNamespaces %s. Whoever is responsible for the environment can allow it with `radial env update %s --allow-namespace %s`",
		entry, environment.ID, why, environment.ID.Name(), entry).WithTarget(environment.ID.String())
}
