package server_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/recipe"
)

func TestSecrets(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	shapes := map[string]any{
		"password": "needle-password",
		"deep":     map[string]any{"pin": "needle-pin", "label": "open"},
		"keys":     map[string]any{"one": "needle-one", "two": "needle-two"},
		"list":     []any{[]any{map[string]any{"token": "needle-token", "open": "o"}}},
		"whole":    map[string]any{"a": "needle-whole"},
	}
	a.succeed(a.want(a.send("PUT", inert("s"), props(shapes)), 201))
	redacted := map[string]any{
		"password": nil, "size": "M", "provisioningState": "Succeeded",
		"deep":  map[string]any{"pin": nil, "label": "open"},
		"keys":  map[string]any{"one": nil, "two": nil},
		"list":  []any{[]any{map[string]any{"token": nil, "open": "o"}}},
		"whole": nil,
	}
	t.Run("D-25 GET redacts to null at every depth and shape", func(t *testing.T) {
		a := &api{a.Instance, t}
		got := a.want(a.send("GET", inert("s"), nil), 200)
		if diff := cmp.Diff(redacted, got.body["properties"]); diff != "" {
			t.Errorf("GET (-want +got):\n%s", diff)
		}
	})
	t.Run("D-25 list, and the answers of writes, redact too", func(t *testing.T) {
		a := &api{a.Instance, t}
		list := a.want(a.send("GET", version(group+"/providers/"+inertType, testVersion), nil), 200)
		put := a.want(a.send("PUT", inert("s"), props(shapes)), 201)
		a.succeed(put)
		patch := a.want(a.send("PATCH", inert("s"), props(map[string]any{"password": "needle-password"})), 202)
		a.succeed(patch)
		status := a.want(a.send("GET", put.header.Get("Azure-AsyncOperation"), nil), 200)
		for name, got := range map[string]answer{"list": list, "PUT": put, "PATCH": patch, "operation": status} {
			if strings.Contains(got.raw, "needle") || strings.Contains(got.raw, "$sealed") {
				t.Errorf("%s shows a secret: %s", name, got.raw)
			}
		}
	})
	t.Run("D-26 listSecrets answers them for every type", func(t *testing.T) {
		a := &api{a.Instance, t}
		got := a.want(a.send("POST", version(group+"/providers/"+inertType+"/s/LISTSECRETS", testVersion), `{}`), 200)
		want := map[string]any{
			"password": "needle-password", "deep": map[string]any{"pin": "needle-pin"},
			"keys": map[string]any{"one": "needle-one", "two": "needle-two"},
			"list": []any{[]any{map[string]any{"token": "needle-token"}}}, "whole": map[string]any{"a": "needle-whole"},
		}
		if diff := cmp.Diff(want, got.body); diff != "" {
			t.Errorf("listSecrets (-want +got):\n%s", diff)
		}
		if got.header.Get("Cache-Control") != "no-store" {
			t.Error("the answer may be cached")
		}
		empty := a.want(a.send("POST", version(envID+"/listSecrets", ucp), `{}`), 200)
		if len(empty.body) != 0 {
			t.Errorf("a type without secrets answered %s", empty.raw)
		}
		a.want(a.send("POST", version(group+"/providers/"+inertType+"/nobody/listSecrets", testVersion), `{}`), 404)
	})
}

// TestRecipeSecrets_D27 follows a recipe's secrets from the run to listSecrets,
// over a restart.
func TestRecipeSecrets_D27(t *testing.T) {
	t.Parallel()
	d := &driver{execute: func(_ context.Context, run recipe.Run) (recipe.Result, error) {
		return recipe.Result{
			Definition: run.Definition,
			Values:     map[string]any{"host": "db.example", "port": 5432, "token": "needle-token"},
			Secrets:    map[string]any{"password": "needle-generated", "uri": "needle-uri"},
		}, nil
	}}
	a := start(t, Options{Recipes: engine(d)})
	a.succeed(a.want(a.send("PUT", made("db"), props(map[string]any{"environment": envID, "password": "needle-given"})), 201))
	check := func(a *api) {
		a.t.Helper()
		got := a.want(a.send("GET", made("db"), nil), 200)
		if strings.Contains(got.raw, "needle") {
			a.t.Errorf("GET shows a secret: %s", got.raw)
		}
		if got.prop("host") != "db.example" || got.prop("password") != nil || got.prop("status", "computedValues", "token") != nil {
			a.t.Errorf("GET answered %s", got.raw)
		}
		secrets := a.want(a.send("POST", version(group+"/providers/"+madeType+"/db/listSecrets", testVersion), `{}`), 200)
		want := map[string]any{"password": "needle-generated", "uri": "needle-uri", "token": "needle-token"}
		if diff := cmp.Diff(want, secrets.body); diff != "" {
			a.t.Errorf("listSecrets (-want +got):\n%s", diff)
		}
	}
	check(a)
	if run := d.last(t); run.Context.Resource.Properties["password"] != "needle-given" {
		t.Errorf("the recipe got the password %v", run.Context.Resource.Properties["password"])
	}
	a.Stop()
	for _, file := range []string{"radial.db", "radial.db-wal"} {
		if raw, err := os.ReadFile(filepath.Join(a.Dir, file)); err == nil && strings.Contains(string(raw), "needle") {
			t.Errorf("%s holds a secret in plaintext", file)
		}
	}
	check(&api{startInstance(t, Options{Dir: a.Dir, Recipes: engine(d)}), t})
}

// TestLateSecrets_D25: what a schema comes to call sensitive is a secret from
// then on, also where a recipe answered it before.
func TestLateSecrets_D25(t *testing.T) {
	t.Parallel()
	d := &driver{execute: func(_ context.Context, run recipe.Run) (recipe.Result, error) {
		return recipe.Result{Definition: run.Definition, Values: map[string]any{"host": "needle-host", "port": 5432}}, nil
	}}
	a := start(t, Options{Recipes: engine(d)})
	a.succeed(a.want(a.send("PUT", made("db"), props(map[string]any{"environment": envID})), 201))
	if got := a.want(a.send("GET", made("db"), nil), 200); got.prop("host") != "needle-host" {
		t.Fatalf("GET answered %s", got.raw)
	}
	const host = "host: {type: string, readOnly: true"
	if strings.Count(testManifest, host) != 1 {
		t.Fatal("the tests' manifest has another host")
	}
	a.want(a.send("PUT", version("/planes/radius/local/providers/System.Resources/resourceproviders/Test.Things/manifest", ucp),
		strings.Replace(testManifest, host, host+", x-radius-sensitive: true", 1), "Content-Type", "application/yaml"), 200)
	got := a.want(a.send("GET", made("db"), nil), 200)
	if strings.Contains(got.raw, "needle") || got.prop("port") != 5432.0 {
		t.Errorf("D-25: GET answered %s", got.raw)
	}
	secrets := a.want(a.send("POST", version(group+"/providers/"+madeType+"/db/listSecrets", testVersion), `{}`), 200)
	if diff := cmp.Diff(map[string]any{"host": "needle-host"}, secrets.body); diff != "" {
		t.Errorf("D-26: listSecrets (-want +got):\n%s", diff)
	}
}

func TestDefaultController_D29(t *testing.T) {
	t.Parallel()
	d := &driver{}
	a := start(t, Options{Recipes: engine(d)})
	t.Run("D-29 a type with ManualResourceProvisioning is inert", func(t *testing.T) {
		a := &api{a.Instance, t}
		a.succeed(a.want(a.send("PUT", inert("i"), props(map[string]any{"environment": envID})), 201))
		if n := d.count(); n != 0 {
			t.Errorf("%d recipes ran", n)
		}
	})
	t.Run("D-29 so is a resource that says manual", func(t *testing.T) {
		a := &api{a.Instance, t}
		a.succeed(a.want(a.send("PUT", made("m"), props(map[string]any{"environment": envID, "resourceProvisioning": "manual"})), 201))
		if n := d.count(); n != 0 {
			t.Errorf("%d recipes ran", n)
		}
	})
	t.Run("D-29 any other runs its recipe", func(t *testing.T) {
		a := &api{a.Instance, t}
		a.succeed(a.want(a.send("PUT", made("r"), props(map[string]any{"environment": envID})), 201))
		if n := d.count(); n != 1 {
			t.Errorf("%d recipes ran, want 1", n)
		}
	})
	t.Run("D-29 one without an environment is refused at once", func(t *testing.T) {
		a := &api{a.Instance, t}
		a.want(a.send("PUT", made("none"), props(map[string]any{})), 400)
	})
	t.Run("D-29 without a registered recipe the operation fails and says what to do", func(t *testing.T) {
		a := &api{a.Instance, t}
		path := version(group+"/providers/Applications.Datastores/mongoDatabases/m", ucp)
		got := a.await(a.want(a.send("PUT", path, props(map[string]any{"environment": envID})), 201))
		if got.body["status"] != "Failed" || dig(got.body, "error", "code") != "RecipeNotFoundFailure" {
			t.Fatalf("it ended as %s", got.raw)
		}
		if m, _ := dig(got.body, "error", "message").(string); !strings.Contains(m, "default") || !strings.Contains(m, "Applications.Datastores/mongoDatabases") {
			t.Errorf("the message is %q", m)
		}
		res := a.want(a.send("GET", path, nil), 200)
		if res.prop("provisioningState") != "Failed" || res.prop("recipe", "recipeStatus") != "setupError" {
			t.Errorf("GET answered %s", res.raw)
		}
		a.succeed(a.want(a.send("DELETE", path, nil), 202))
		a.want(a.send("GET", path, nil), 404)
	})
}

func TestRecipe_D30(t *testing.T) {
	t.Parallel()
	db, web := output("db"), output("web", output("db").ID)
	outputs := []core.Output{db, web}
	var fail error
	d := &driver{execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
		planned := make([]core.Output, len(outputs))
		for i, o := range outputs {
			o.State = core.OutputPlanned
			planned[i] = o
		}
		if err := run.Record(ctx, planned, nil); err != nil {
			return recipe.Result{}, err
		}
		if fail != nil {
			return recipe.Result{}, fail
		}
		return recipe.Result{
			Definition: run.Definition, Outputs: outputs,
			Values:    map[string]any{"host": "made.example", "port": 8443, "region": "north"},
			Resources: []string{"/planes/kubernetes/local/namespaces/default/providers/core/Secret/kept"},
		}, nil
	}}
	a := start(t, Options{Recipes: engine(d)})
	app := group + "/providers/Applications.Core/applications/shop"
	a.want(a.send("PUT", version(app, ucp), props(map[string]any{"environment": envID})), 200)
	a.succeed(a.want(a.send("PUT", inert("other"), props(map[string]any{"application": app, "color": "blue", "password": "correct horse"})), 201))
	body := props(map[string]any{
		"application": app, "environment": envID, "size": "L",
		"recipe":      map[string]any{"parameters": map[string]any{"replicas": 2}},
		"connections": map[string]any{"things": map[string]any{"source": strings.ToUpper(group) + "/providers/test.things/INERT/other"}},
		"host":        "a user may not set this",
	})
	a.succeed(a.want(a.send("PUT", made("db"), body), 201))

	t.Run("D-30 the recipe gets the context object", func(t *testing.T) {
		run := d.last(t)
		c := run.Context
		if c.Resource.Name != "db" || c.Resource.Type != madeType || c.Resource.ID != group+"/providers/Test.Things/made/db" ||
			c.Environment.ID != envID || c.Environment.Name != "default" || c.Application.ID != app || c.Application.Name != "shop" ||
			c.Runtime.Kubernetes == nil || c.Runtime.Kubernetes.Namespace != "default" || c.Resource.Properties["size"] != "L" {
			t.Errorf("context: %+v", c)
		}
		other := c.Resource.Connections["things"]
		if other.Name != "other" || other.Type != inertType || other.Properties["color"] != "blue" || other.Properties["password"] != "correct horse" {
			t.Errorf("connection: %+v", other)
		}
		if run.Parameters["replicas"] != int64(2) {
			t.Errorf("parameters: %#v", run.Parameters)
		}
	})
	t.Run("D-30 values land in declared read-only properties and in computedValues, resources in outputResources", func(t *testing.T) {
		a := &api{a.Instance, t}
		got := a.want(a.send("GET", made("db"), nil), 200)
		want := map[string]any{
			"computedValues": map[string]any{"host": "made.example", "port": 8443.0, "region": "north"},
			"outputResources": []any{
				map[string]any{"id": db.ID.String(), "localID": "db", "radiusManaged": true},
				map[string]any{"id": web.ID.String(), "localID": "web", "radiusManaged": true},
				map[string]any{"id": "/planes/kubernetes/local/namespaces/default/providers/core/Secret/kept", "localID": "", "radiusManaged": false},
			},
			"recipe": map[string]any{"templateKind": "bicep", "templatePath": "test/made:1"},
		}
		if diff := cmp.Diff(want, got.prop("status")); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		if got.prop("host") != "made.example" || got.prop("port") != 8443.0 || got.prop("region") != nil {
			t.Errorf("properties: %s", got.raw)
		}
		if diff := cmp.Diff(map[string]any{"name": "default", "recipeStatus": "success", "parameters": map[string]any{"replicas": 2.0}}, got.prop("recipe")); diff != "" {
			t.Errorf("recipe (-want +got):\n%s", diff)
		}
	})
	t.Run("D-30 a failed run keeps what was answered and forgets no output", func(t *testing.T) {
		a := &api{a.Instance, t}
		fail = core.Errorf(core.CodeRecipeDeployment, "the template test/made:1 failed at resource web: quota exceeded").WithTarget("web")
		got := a.await(a.want(a.send("PUT", made("db"), body), 201))
		fail = nil
		if got.body["status"] != "Failed" || dig(got.body, "error", "code") != "RecipeDeploymentFailed" || dig(got.body, "error", "target") != "web" {
			t.Fatalf("it ended as %s", got.raw)
		}
		res := a.want(a.send("GET", made("db"), nil), 200)
		list, _ := res.prop("status", "outputResources").([]any)
		if res.prop("provisioningState") != "Failed" || res.prop("recipe", "recipeStatus") != "executionError" || res.prop("status", "computedValues", "host") != "made.example" || len(list) != 3 {
			t.Errorf("GET answered %s", res.raw)
		}
	})
	t.Run("D-30 DELETE hands the engine all outputs and then the resource goes", func(t *testing.T) {
		a := &api{a.Instance, t}
		a.succeed(a.want(a.send("DELETE", made("db"), nil), 202))
		a.want(a.send("GET", made("db"), nil), 404)
		gone := map[string]bool{}
		for _, id := range d.gone {
			gone[id.String()] = true
		}
		if len(gone) != 2 || !gone[db.ID.String()] || !gone[web.ID.String()] {
			t.Errorf("deleted were %v", d.gone)
		}
	})
}

// A resource that becomes manual gives up what its recipe made.
func TestManualAfterRecipe_D29(t *testing.T) {
	t.Parallel()
	made1 := output("one")
	d := &driver{execute: func(_ context.Context, run recipe.Run) (recipe.Result, error) {
		return recipe.Result{Definition: run.Definition, Outputs: []core.Output{made1}, Secrets: map[string]any{"uri": "x"}}, nil
	}}
	a := start(t, Options{Recipes: engine(d)})
	a.succeed(a.want(a.send("PUT", made("a"), props(map[string]any{"environment": envID})), 201))
	a.succeed(a.want(a.send("PUT", made("a"), props(map[string]any{"environment": envID, "resourceProvisioning": "manual"})), 201))
	if len(d.gone) != 1 || !d.gone[0].Equal(made1.ID) {
		t.Errorf("deleted were %v", d.gone)
	}
	got := a.want(a.send("GET", made("a"), nil), 200)
	if got.prop("status") != nil || got.prop("recipe") != nil {
		t.Errorf("GET answered %s", got.raw)
	}
	if secrets := a.want(a.send("POST", version(group+"/providers/"+madeType+"/a/listSecrets", testVersion), `{}`), 200); len(secrets.body) != 0 {
		t.Errorf("secrets of the recipe were left: %s", secrets.raw)
	}
}

// A restart takes up what a shutdown interrupted, with its secrets.
func TestRestart_D29(t *testing.T) {
	t.Parallel()
	running := make(chan struct{})
	first := &driver{execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
		close(running)
		<-ctx.Done()
		return recipe.Result{}, ctx.Err()
	}}
	a := start(t, Options{Recipes: engine(first)})
	started := a.want(a.send("PUT", made("a"), props(map[string]any{"environment": envID, "password": "correct horse"})), 201)
	within(t, "the recipe", 10*time.Second, running)
	a.Stop()

	second := &driver{execute: func(_ context.Context, run recipe.Run) (recipe.Result, error) {
		return recipe.Result{Definition: run.Definition, Values: map[string]any{"host": "second"}}, nil
	}}
	again := &api{startInstance(t, Options{Dir: a.Dir, Recipes: engine(second)}), t}
	link := strings.Replace(started.header.Get("Azure-AsyncOperation"), a.URL, again.URL, 1)
	got := again.want(again.send("GET", link, nil, "Prefer", "wait=20"), 200)
	if got.body["status"] != "Succeeded" {
		t.Fatalf("it ended as %s", got.raw)
	}
	if p := second.last(t).Context.Resource.Properties["password"]; p != "correct horse" {
		t.Errorf("the second run got the password %v", p)
	}
}

// TestGeneric_D1 reads the code of package dynamic for names of types.
func TestGeneric_D1(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range manifest.Builtin() {
		names[strings.ToLower(m.Namespace)] = true
		for name := range m.Types {
			names[strings.ToLower(name)] = true
			names[strings.ToLower(m.Namespace+"/"+name)] = true
		}
	}
	// Words of every type's schema, or of routes, which are also names of types.
	for _, word := range []string{"routes"} {
		delete(names, word)
	}
	files, err := filepath.Glob("../dynamic/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			s, _ := strconv.Unquote(lit.Value)
			for name := range names {
				if strings.EqualFold(s, name) || strings.Contains(name, "/") && strings.Contains(strings.ToLower(s), name) {
					t.Errorf("%s names the type %q", set.Position(lit.Pos()), s)
				}
			}
			return true
		})
	}
}
