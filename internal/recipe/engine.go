package recipe

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"sort"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// Options make an Engine.
type Options struct {
	// Drivers by kind of template, in lower case.
	Drivers map[string]Driver
	// Rendered are the drivers of types that Radial renders itself, by type in
	// lower case: no environment registers a recipe for them.
	Rendered map[string]Driver
	// Load reads a resource, for recipe packs.
	Load func(context.Context, core.ID) (core.Resource, error)
	// Canonical resolves the alias of a resource type.
	Canonical func(resourceType string) (string, bool)
	// Cluster is the cluster of environments that name none; "" is local.
	Cluster string
}

// Engine runs recipes. It is stateless and safe for concurrent use.
type Engine struct{ o Options }

// NewEngine makes an engine.
func NewEngine(o Options) *Engine {
	if o.Cluster == "" {
		o.Cluster = core.LocalCluster
	}
	return &Engine{o}
}

// Request asks for the recipe of one resource.
type Request struct {
	// Resource as stored; Properties its properties bag in plain text.
	Resource   core.Resource
	Properties map[string]any
	// Environment is the environment resource, Application the application's
	// if it belongs to one.
	Environment core.Resource
	Application *core.Resource
	// Connections are the resources that it connects to, by connection name.
	Connections map[string]core.Resource
	// Carried is what each connection carries to a workload ([connection.Values]);
	// one that may carry nothing is absent. Uses are the resources that it refers
	// to beside its connections, by [core.ID.Key], opened as far as it may. HashKey is a
	// secret of the resource, the same for its life. Only what Radial renders
	// itself gets the three.
	Carried map[string]map[string]any
	Uses    map[string]core.Resource
	HashKey []byte
	// Previous is the inventory.
	Previous []core.Output
	// Recorded is the definition that the last successful run used, nil if
	// there was none.
	Recorded *Definition
	// Record, Progress and what follows are as in Run.
	Record    func(ctx context.Context, put []core.Output, drop []core.ID) error
	Progress  func(message string)
	Resources extension.ResourceAPI
	Attempt   string
	Seed      []byte
	Started   time.Time
}

func (r *Request) progress(message string) {
	if r.Progress != nil {
		r.Progress(message)
	}
}

// Execute runs the recipe. After it succeeded, outputs of Previous that it did
// not return again are deleted, dependants first (D-31); when it fails, all
// recorded outputs stay recorded, and the result still has the definition that
// ran, once there was one.
func (e *Engine) Execute(ctx context.Context, r Request) (Result, error) {
	env, err := ReadEnvironment(ctx, r.Environment, e.o.Load)
	if err != nil {
		return Result{}, err
	}
	asked := chosen(r.Properties)
	def, err := e.definition(env, r.Resource.ID.Type(), asked.Name)
	if env.Simulated { // nothing runs, so that nothing needs to be registered
		return Result{Definition: def}, nil
	}
	if err != nil {
		return Result{}, err
	}
	ran := Result{Definition: def}
	driver, bad := e.driver(def.Kind, r.Resource.ID.Type())
	if bad != nil {
		return ran, bad.WithTarget(env.ID.String())
	}
	scope, err := e.scope(env, r)
	if err != nil {
		return ran, err
	}
	res, err := driver.Execute(ctx, Run{
		Definition: def,
		Context:    buildContext(env, scope, r),
		Parameters: mergeParameters(def.Parameters, env.parametersFor(r.Resource.ID.Type(), e.o.Canonical), asked.Parameters),
		Owner:      r.Resource.ID,
		Scope:      scope,
		Previous:   r.Previous,
		Record:     r.Record,
		Progress:   r.progress,
		Resources:  r.Resources, Attempt: r.Attempt, Seed: r.Seed, Started: r.Started,
		Request: &r,
	})
	if res.Definition.Path != "" {
		ran.Definition = res.Definition
	}
	if err != nil {
		return ran, err
	}
	if stale := without(r.Previous, res.Outputs); len(stale) > 0 {
		r.progress("deleting what is no longer made")
		if err := e.delete(ctx, stale, r); err != nil {
			return ran, err
		}
	}
	return res, nil
}

// Delete deletes all that the recipe made, dependants first. It needs neither
// the environment nor the template: each output knows who made it (D-32).
func (e *Engine) Delete(ctx context.Context, r Request) error { return e.delete(ctx, r.Previous, r) }

// Parameters returns the parameters that a registered recipe declares.
func (e *Engine) Parameters(ctx context.Context, environment core.Resource, resourceType, name string) (Definition, map[string]json.RawMessage, error) {
	env, err := ReadEnvironment(ctx, environment, e.o.Load)
	if err != nil {
		return Definition{}, nil, err
	}
	def, err := env.Lookup(resourceType, name, e.o.Canonical)
	if err != nil {
		return Definition{}, nil, err
	}
	driver, bad := e.driver(def.Kind, resourceType)
	if bad != nil {
		return def, nil, bad.WithTarget(env.ID.String())
	}
	params, err := driver.Parameters(ctx, def)
	return def, params, err
}

// KindRendered is the kind of what Radial renders itself. It leads to the drivers
// of [Options].Rendered alone, by the type of the resource: a recipe that is
// registered with it finds none.
const KindRendered = "rendered"

// rendered is the driver of a type that Radial renders itself, nil for others.
func (e *Engine) rendered(resourceType string) Driver {
	return e.o.Rendered[strings.ToLower(resourceType)]
}

// definition is that of the recipe which a resource asks for, or of the
// rendering of its type.
func (e *Engine) definition(env Environment, resourceType, name string) (Definition, error) {
	if e.rendered(resourceType) != nil {
		return Definition{Name: DefaultName, Kind: KindRendered}, nil
	}
	return env.Lookup(resourceType, name, e.o.Canonical)
}

func (e *Engine) driver(kind, resourceType string) (Driver, *core.Error) {
	if strings.EqualFold(kind, KindRendered) {
		if d := e.rendered(resourceType); d != nil {
			return d, nil
		}
	}
	if d := e.o.Drivers[strings.ToLower(kind)]; d != nil {
		return d, nil
	}
	kinds := make([]string, 0, len(e.o.Drivers))
	for k := range e.o.Drivers {
		kinds = append(kinds, k)
	}
	sort.Strings(kinds)
	return nil, core.Errorf(core.CodeRecipeInvalid, "no driver runs recipes of kind %q (known: %s): register the recipe again with one of them",
		kind, strings.Join(kinds, ", "))
}

// Handle is what every driver keeps in an output's handle.
type Handle struct {
	// Kind is the kind of the recipe that made the output: its driver deletes
	// it, whatever the environment says by then.
	Kind string `json:"kind"`
}

// delete groups outputs by the driver that made them.
func (e *Engine) delete(ctx context.Context, outputs []core.Output, r Request) error {
	groups := map[string][]core.Output{}
	var drop []core.ID
	for _, o := range outputs {
		if !o.Managed {
			drop = append(drop, o.ID) // never ours to delete
			continue
		}
		var h Handle
		if err := json.Unmarshal(o.Handle, &h); err != nil || h.Kind == "" {
			if r.Recorded == nil {
				return core.Errorf(core.CodeRecipeDeletion, "the record of output %s does not say what made it, so it cannot be deleted", o.ID).WithTarget(o.ID.String())
			}
			h.Kind = r.Recorded.Kind
		}
		kind := strings.ToLower(h.Kind)
		groups[kind] = append(groups[kind], o)
	}
	kinds := make([]string, 0, len(groups))
	for k := range groups {
		kinds = append(kinds, k)
	}
	sort.Strings(kinds)
	for _, kind := range kinds {
		driver, err := e.driver(kind, r.Resource.ID.Type())
		if err != nil {
			return err.WithTarget(r.Resource.ID.String())
		}
		if err := driver.Delete(ctx, Deletion{Outputs: groups[kind], Record: r.Record, Resources: r.Resources}); err != nil {
			return err
		}
	}
	if len(drop) > 0 && r.Record != nil {
		return r.Record(ctx, nil, drop)
	}
	return nil
}

// without returns the outputs of previous that current does not have.
func without(previous, current []core.Output) []core.Output {
	keep := make(map[string]bool, len(current))
	for _, o := range current {
		keep[o.ID.Key()] = true
	}
	var stale []core.Output
	for _, o := range previous {
		if !keep[o.ID.Key()] {
			stale = append(stale, o)
		}
	}
	return stale
}

// choice is what the developer says under properties.recipe.
type choice struct {
	Name       string
	Parameters map[string]any
}

func chosen(properties map[string]any) choice {
	m, _ := properties["recipe"].(map[string]any)
	c := choice{}
	c.Name, _ = m["name"].(string)
	c.Parameters, _ = m["parameters"].(map[string]any)
	return c
}

// mergeParameters merges from weakest to strongest, shallow (D-33). Names
// compare without case, as templates do.
func mergeParameters(layers ...map[string]any) map[string]any {
	merged := map[string]any{}
	for _, layer := range layers {
		for name := range layer {
			for old := range merged {
				if strings.EqualFold(old, name) && old != name {
					delete(merged, old)
				}
			}
		}
		maps.Copy(merged, layer)
	}
	return merged
}

// scope says where what the recipe makes goes.
func (e *Engine) scope(env Environment, r Request) (extension.Scope, error) {
	own := ""
	if e.rendered(r.Resource.ID.Type()) != nil {
		own = NamespaceOf(r.Properties)
	}
	return env.Scope(r.Resource.Owner, r.Application, own, e.o.Cluster)
}

// Scope says where what is made for a resource goes (K-38): to the object that
// it stands for, else to the namespace that it names itself (own), else to the
// application's, else to the environment's. cluster is that of environments
// which name none.
func (e Environment) Scope(owner core.Owner, application *core.Resource, own, cluster string) (extension.Scope, error) {
	s := extension.Scope{Extension: "Kubernetes", Cluster: e.Cluster, Namespace: e.Namespace}
	if application != nil {
		var props map[string]any
		if len(application.Properties) > 0 && json.Unmarshal(application.Properties, &props) == nil {
			s.Namespace = cmp.Or(NamespaceOf(props), s.Namespace)
		}
	}
	s.Namespace = cmp.Or(own, s.Namespace)
	if owner.Namespace != "" {
		s.Namespace = owner.Namespace
		s.Cluster = cmp.Or(owner.Cluster, s.Cluster)
	}
	s.Cluster = cmp.Or(s.Cluster, cluster, core.LocalCluster)
	if s.Namespace == "" {
		return s, core.Errorf(core.CodeRecipeInvalid, "environment %q names no namespace for what its recipes make: set one with: radial env update %s --namespace <namespace>",
			e.Name, e.Name).WithTarget(e.ID.String())
	}
	return s, nil
}

// NamespaceOf reads the kubernetesNamespace extension among the properties of an
// application or a container; "" for none.
func NamespaceOf(properties map[string]any) string {
	list, _ := properties["extensions"].([]any)
	for _, v := range list {
		x, _ := v.(map[string]any)
		kind, _ := x["kind"].(string)
		if ns, ok := x["namespace"].(string); ok && strings.EqualFold(kind, "kubernetesNamespace") {
			return ns
		}
	}
	return ""
}

// ownerVersions are the kinds of objects that resources stand for.
var ownerVersions = map[string]string{"Recipe": "radapp.io/v1alpha3", "Deployment": "apps/v1"}

// buildContext makes the object of D-30.
func buildContext(env Environment, scope extension.Scope, r Request) Context {
	c := Context{
		Resource: ContextResource{
			ID: r.Resource.ID.String(), Name: r.Resource.ID.Name(), Type: r.Resource.ID.Type(), Properties: r.Properties,
		},
		Environment: ContextRef{ID: env.ID.String(), Name: env.Name},
		Runtime: ContextRuntime{Kubernetes: &ContextKubernetes{
			Namespace: scope.Namespace, EnvironmentNamespace: env.Namespace,
		}},
	}
	if version := ownerVersions[r.Resource.Owner.Kind]; version != "" && r.Resource.Owner.UID != "" {
		o := r.Resource.Owner
		c.Runtime.Kubernetes.Owner = &ContextOwner{APIVersion: version, Kind: o.Kind, Name: o.Name, UID: o.UID, Controller: true}
	}
	if r.Application != nil {
		c.Application = ContextRef{ID: r.Application.ID.String(), Name: r.Application.ID.Name()}
	}
	for name, res := range r.Connections {
		if c.Resource.Connections == nil {
			c.Resource.Connections = map[string]ContextConnection{}
		}
		var props map[string]any
		if len(res.Properties) > 0 {
			_ = json.Unmarshal(res.Properties, &props) // the store keeps only objects
		}
		c.Resource.Connections[name] = ContextConnection{ID: res.ID.String(), Name: res.ID.Name(), Type: res.ID.Type(), Properties: props}
	}
	return c
}
