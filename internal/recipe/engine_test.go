package recipe

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// driver notes what it is asked; what it answers is the test's.
type driver struct {
	run     Run
	result  Result
	err     error
	deleted []string
}

func (d *driver) Execute(_ context.Context, run Run) (Result, error) {
	d.run = run
	d.result.Definition = run.Definition
	return d.result, d.err
}

func (d *driver) Delete(ctx context.Context, q Deletion) error {
	for _, o := range q.Outputs {
		d.deleted = append(d.deleted, o.ID.Name())
		if err := q.Record(ctx, nil, []core.ID{o.ID}); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) Parameters(context.Context, Definition) (map[string]json.RawMessage, error) {
	return map[string]json.RawMessage{"p": json.RawMessage(`{}`)}, nil
}

var (
	group = core.GroupID("g")
	redis = group.Resource("Applications.Datastores/redisCaches", "Cache")
	envID = group.Resource("Applications.Core/environments", "dev")
)

func environment(properties string) core.Resource {
	return core.Resource{ID: envID, Properties: json.RawMessage(properties)}
}

func canonical(t string) (string, bool) {
	if strings.EqualFold(t, "Applications.Link/redisCaches") {
		return "Applications.Datastores/redisCaches", true
	}
	return t, true
}

func request() Request {
	return Request{
		Resource:    core.Resource{ID: redis},
		Properties:  map[string]any{"size": "S"},
		Environment: environment(`{"compute":{"kind":"kubernetes","namespace":"env-ns"},"recipes":{"Applications.Datastores/redisCaches":{"default":{"templateKind":"bicep","templatePath":"r/x:1"}}}}`),
	}
}

func engine(d Driver) *Engine {
	return NewEngine(Options{Drivers: map[string]Driver{"bicep": d, "template": d}, Canonical: canonical})
}

func TestContext_D30(t *testing.T) {
	d := &driver{}
	r := request()
	app := core.Resource{ID: group.Resource("Applications.Core/applications", "shop"),
		Properties: json.RawMessage(`{"extensions":[{"kind":"kubernetesNamespace","namespace":"app-ns"}]}`)}
	r.Application = &app
	r.Connections = map[string]core.Resource{"db": {ID: group.Resource("Radius.Data/postgreSqlDatabases", "pg"), Properties: json.RawMessage(`{"host":"h"}`)}}
	if _, err := engine(d).Execute(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(d.run.Context, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const g = "/planes/radius/local/resourceGroups/g/providers/"
	want := `{
 "resource": {
  "id": "` + g + `Applications.Datastores/redisCaches/Cache",
  "name": "Cache",
  "type": "Applications.Datastores/redisCaches",
  "properties": {
   "size": "S"
  },
  "connections": {
   "db": {
    "id": "` + g + `Radius.Data/postgreSqlDatabases/pg",
    "name": "pg",
    "type": "Radius.Data/postgreSqlDatabases",
    "properties": {
     "host": "h"
    }
   }
  }
 },
 "application": {
  "id": "` + g + `Applications.Core/applications/shop",
  "name": "shop"
 },
 "environment": {
  "id": "` + g + `Applications.Core/environments/dev",
  "name": "dev"
 },
 "runtime": {
  "kubernetes": {
   "namespace": "app-ns",
   "environmentNamespace": "env-ns"
  }
 }
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("D-30: the context (-want +got):\n%s", diff)
	}
}

// A resource that stands for an object carries it as an owner reference.
func TestContextOwner_C143(t *testing.T) {
	for kind, want := range map[string]string{
		"Recipe":     `{"apiVersion":"radapp.io/v1alpha3","kind":"Recipe","name":"pictures","uid":"u","controller":true}`,
		"Deployment": `{"apiVersion":"apps/v1","kind":"Deployment","name":"pictures","uid":"u","controller":true}`,
		"Job":        `null`,
	} {
		d := &driver{}
		r := request()
		r.Resource.Owner = core.Owner{Cluster: "local", Namespace: "ankka-media", Kind: kind, Name: "pictures", UID: "u"}
		if _, err := engine(d).Execute(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(d.run.Context.Runtime.Kubernetes.Owner)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", kind, got, err, want)
		}
	}
}

func TestParameters_D33(t *testing.T) {
	d := &driver{}
	r := request()
	r.Environment = core.Resource{ID: group.Resource("Radius.Core/environments", "dev"), Properties: json.RawMessage(`{
	 "providers":{"kubernetes":{"namespace":"ns"}},"recipePacks":["pack"],
	 "recipeParameters":{"Applications.Link/redisCaches":{"b":"environment","c":"environment"}}}`)}
	r.Properties = map[string]any{"recipe": map[string]any{"parameters": map[string]any{"C": "developer", "d": map[string]any{"x": 1}}}}
	e := NewEngine(Options{Drivers: map[string]Driver{"bicep": d}, Canonical: canonical, Load: func(_ context.Context, id core.ID) (core.Resource, error) {
		if !id.Equal(group.Resource("Radius.Core/recipePacks", "pack")) {
			return core.Resource{}, core.Errorf(core.CodeNotFound, "%s does not exist", id)
		}
		return core.Resource{ID: id, Properties: json.RawMessage(`{"recipes":{"Applications.Datastores/redisCaches":{"kind":"bicep","source":"r/x:1",
		 "parameters":{"a":"definition","b":"definition","c":"definition","d":{"y":2}}}}}`)}, nil
	}})
	if _, err := e.Execute(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"a": "definition", "b": "environment", "C": "developer", "d": map[string]any{"x": 1}}
	if diff := cmp.Diff(want, d.run.Parameters); diff != "" {
		t.Errorf("D-33: definition < environment < developer, shallow (-want +got):\n%s", diff)
	}
}

func TestLookup(t *testing.T) {
	const recipes = `{"compute":{"namespace":"n"},"recipes":{"applications.link/RedisCaches":{"default":{"templateKind":"Bicep","templatePath":"r/x:1"},"big":{"templateKind":"bicep","templatePath":"r/big:1"}}}}`
	for name, c := range map[string]struct {
		properties map[string]any
		path       string
		want       string
	}{
		"K-12 a recipe registered under the alias": {nil, "r/x:1", ""},
		"another name": {map[string]any{"recipe": map[string]any{"name": "big"}}, "r/big:1", ""},
		"unknown name": {map[string]any{"recipe": map[string]any{"name": "huge"}}, "",
			`environment "dev" has no recipe "huge" for Applications.Datastores/redisCaches (it has: big, default); register one with: radial recipe register huge`},
	} {
		d := &driver{}
		r := request()
		r.Environment, r.Properties = environment(recipes), c.properties
		_, err := engine(d).Execute(t.Context(), r)
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || core.CodeOf(err) != core.CodeRecipeNotFound):
			t.Errorf("%s: got %v", name, err)
		case c.want == "" && (err != nil || d.run.Definition.Path != c.path):
			t.Errorf("%s: ran %q, %v", name, d.run.Definition.Path, err)
		}
	}
	// The other way round: the resource is known by the alias.
	d := &driver{}
	r := request()
	r.Resource.ID = redis.WithType("Applications.Link/redisCaches")
	if _, err := engine(d).Execute(t.Context(), r); err != nil || d.run.Definition.Path != "r/x:1" {
		t.Errorf("K-12: a resource of the alias ran %q, %v", d.run.Definition.Path, err)
	}
	r = request()
	r.Environment = environment(`{"compute":{"namespace":"n"},"recipes":{"Applications.Datastores/redisCaches":{"default":{"templateKind":"helm","templatePath":"r/x:1"}}}}`)
	if _, err := engine(d).Execute(t.Context(), r); err == nil || !strings.Contains(err.Error(), `no driver runs recipes of kind "helm" (known: bicep, template)`) {
		t.Errorf("unknown kind: %v", err)
	}
}

func TestScope_K38(t *testing.T) {
	app := &core.Resource{ID: group.Resource("Applications.Core/applications", "a"), Properties: json.RawMessage(`{"extensions":[{"kind":"kubernetesNamespace","namespace":"app-ns"}]}`)}
	bare := &core.Resource{ID: group.Resource("Applications.Core/applications", "a"), Properties: json.RawMessage(`{}`)}
	owner := core.Owner{Cluster: "edge", Namespace: "default", Kind: "Recipe", Name: "db", UID: "u"}
	const recipes = `"recipes":{"Applications.Datastores/redisCaches":{"default":{"templateKind":"bicep","templatePath":"x/y:1"}}}`
	for name, c := range map[string]struct {
		environment string
		app         *core.Resource
		owner       core.Owner
		want        extension.Scope
	}{
		"the environment's":               {`{"compute":{"namespace":"env-ns"},` + recipes + `}`, nil, core.Owner{}, extension.Scope{Extension: "Kubernetes", Cluster: "local", Namespace: "env-ns"}},
		"an application that says none":   {`{"compute":{"namespace":"env-ns"},` + recipes + `}`, bare, core.Owner{}, extension.Scope{Extension: "Kubernetes", Cluster: "local", Namespace: "env-ns"}},
		"the application's":               {`{"compute":{"namespace":"env-ns","cluster":"far"},` + recipes + `}`, app, core.Owner{}, extension.Scope{Extension: "Kubernetes", Cluster: "far", Namespace: "app-ns"}},
		"K-38 the object's, even default": {`{"compute":{"namespace":"env-ns"},` + recipes + `}`, app, owner, extension.Scope{Extension: "Kubernetes", Cluster: "edge", Namespace: "default"}},
		"K-38 without any of its own":     {`{` + recipes + `}`, nil, owner, extension.Scope{Extension: "Kubernetes", Cluster: "edge", Namespace: "default"}},
	} {
		d := &driver{}
		r := request()
		r.Environment, r.Application, r.Resource.Owner = environment(c.environment), c.app, c.owner
		if _, err := engine(d).Execute(t.Context(), r); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if d.run.Scope != c.want {
			t.Errorf("%s: %+v, want %+v", name, d.run.Scope, c.want)
		}
	}
	r := request()
	r.Environment = environment(`{` + recipes + `}`)
	if _, err := engine(&driver{}).Execute(t.Context(), r); err == nil || !strings.Contains(err.Error(), "names no namespace") {
		t.Errorf("no namespace anywhere: %v", err)
	}
}

func output(name, kind string, managed bool) core.Output {
	return core.Output{ID: core.KubernetesID("local", "ns", "", "Secret", name), State: core.OutputMade, Managed: managed,
		Handle: json.RawMessage(`{"kind":"` + kind + `"}`)}
}

func TestUpdate_D31(t *testing.T) {
	var dropped []string
	record := func(_ context.Context, _ []core.Output, drop []core.ID) error {
		for _, id := range drop {
			dropped = append(dropped, id.Name())
		}
		return nil
	}
	d := &driver{result: Result{Outputs: []core.Output{output("KEPT", "template", true), output("new", "template", true)}}}
	r := request()
	r.Record = record
	r.Previous = []core.Output{output("kept", "template", true), output("stale", "template", true), output("shown", "template", false)}
	if _, err := engine(d).Execute(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(d.deleted, " "); got != "stale" {
		t.Errorf("D-31: deleted %q, want what the run no longer returned (ids compare without case, unmanaged stay)", got)
	}
	if got := strings.Join(dropped, " "); got != "stale shown" {
		t.Errorf("dropped from the inventory: %q", got)
	}

	failing := &driver{err: core.Errorf(core.CodeRecipeDeployment, "no")}
	dropped = nil
	if _, err := engine(failing).Execute(t.Context(), r); core.CodeOf(err) != core.CodeRecipeDeployment {
		t.Errorf("got %v", err)
	}
	if len(failing.deleted)+len(dropped) > 0 {
		t.Errorf("D-31: a failed run forgets nothing; deleted %v, dropped %v", failing.deleted, dropped)
	}
}

// TestDelete_D32: the environment has another kind of recipe by now, and its
// registry is gone; what made the outputs deletes them.
func TestDelete_D32(t *testing.T) {
	made, current := &driver{}, &driver{}
	e := NewEngine(Options{Drivers: map[string]Driver{"template": made, "terraform": current}, Canonical: canonical})
	r := request()
	r.Environment = environment(`{"recipes":{"Applications.Datastores/redisCaches":{"default":{"templateKind":"terraform","templatePath":"gone"}}}}`)
	r.Previous = []core.Output{output("a", "template", true), {ID: core.KubernetesID("local", "ns", "", "Secret", "old"), Managed: true}}
	r.Recorded = &Definition{Name: "default", Kind: "template", Path: "r/x:1", Digest: "sha256:1"}
	r.Record = func(context.Context, []core.Output, []core.ID) error { return nil }
	if err := e.Delete(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if strings.Join(made.deleted, " ") != "a old" || len(current.deleted) > 0 {
		t.Errorf("D-32: deleted by what made it: %v, by what is registered now: %v", made.deleted, current.deleted)
	}
}

func TestSimulatedRunsNothing(t *testing.T) {
	d := &driver{err: core.Errorf(core.CodeInternal, "must not run")}
	r := request()
	r.Environment = environment(`{"simulated":true,"recipes":{"Applications.Datastores/redisCaches":{"default":{"templateKind":"bicep","templatePath":"x/y:1"}}}}`)
	if _, err := engine(d).Execute(t.Context(), r); err != nil {
		t.Error(err)
	}
	r.Environment = environment(`{"simulated":true}`) // and needs no recipe
	if _, err := engine(d).Execute(t.Context(), r); err != nil {
		t.Error(err)
	}
}

func TestTwoPacksForOneType(t *testing.T) {
	r := core.Resource{ID: group.Resource("Radius.Core/environments", "dev"), Properties: json.RawMessage(`{"recipePacks":["one","two"]}`)}
	_, err := ReadEnvironment(t.Context(), r, func(_ context.Context, id core.ID) (core.Resource, error) {
		return core.Resource{ID: id, Properties: json.RawMessage(`{"recipes":{"A.B/c":{"kind":"bicep","source":"x"}}}`)}, nil
	})
	if core.CodeOf(err) != core.CodeConflict || !strings.Contains(err.Error(), "from the packs one and two") {
		t.Errorf("got %v", err)
	}
}
