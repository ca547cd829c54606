package compat

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/recipe"
)

// recordings are the values that a recorded test of the peer sends and expects.
// They stand in Go source, as literals; literals are all that is read of it.
type recordings struct {
	t      *testing.T
	consts map[string]string
	bodies map[string]map[string]any // by function, "." and variable
}

func readRecordings(t *testing.T, path string) *recordings {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	r := &recordings{t: t, consts: map[string]string{}, bodies: map[string]map[string]any{}}
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				for i, name := range v.Names {
					if i < len(v.Values) {
						if text, ok := r.value(v.Values[i]).(string); ok {
							r.consts[name.Name] = text
						}
					}
				}
			}
		}
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok || len(a.Lhs) != 1 || len(a.Rhs) != 1 {
				return true
			}
			name, named := a.Lhs[0].(*ast.Ident)
			if body, ok := r.value(a.Rhs[0]).(map[string]any); ok && named {
				r.bodies[f.Name.Name+"."+name.Name] = body
			}
			return true
		})
	}
	return r
}

// body is the map that a recorded test assigns to a variable.
func (r *recordings) body(function, variable string) map[string]any {
	r.t.Helper()
	b, ok := r.bodies[function+"."+variable]
	if !ok {
		r.t.Fatalf("the recordings have no %s in %s", variable, function)
	}
	return b
}

// value evaluates a literal of maps, lists, texts and numbers; nil for others.
func (r *recordings) value(e ast.Expr) any {
	switch e := e.(type) {
	case *ast.BasicLit:
		v := constant.MakeFromLiteral(e.Value, e.Kind, 0)
		if v.Kind() == constant.String {
			return constant.StringVal(v)
		}
		f, _ := constant.Float64Val(v)
		return f
	case *ast.Ident:
		switch e.Name {
		case "true", "false":
			return e.Name == "true"
		}
		if text, ok := r.consts[e.Name]; ok {
			return text
		}
		return nil
	case *ast.CallExpr: // a conversion, such as float64(8080)
		if len(e.Args) == 1 {
			return r.value(e.Args[0])
		}
	case *ast.BinaryExpr:
		x, _ := r.value(e.X).(string)
		y, _ := r.value(e.Y).(string)
		if e.Op == token.ADD {
			return x + y
		}
	case *ast.CompositeLit:
		switch kind := e.Type.(type) {
		case *ast.MapType:
			out := map[string]any{}
			for _, el := range e.Elts {
				kv := el.(*ast.KeyValueExpr)
				key, _ := r.value(kv.Key).(string)
				out[key] = r.value(kv.Value)
			}
			return out
		case *ast.ArrayType:
			_ = kind
			out := []any{}
			for _, el := range e.Elts {
				out = append(out, r.value(el))
			}
			return out
		}
	}
	return nil
}

// here turns a recorded body to the one plane that there is.
func here(t *testing.T, body map[string]any) map[string]any {
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return mustJSON(t, strings.ReplaceAll(string(raw), "/planes/radius/testing/", "/planes/radius/local/")).(map[string]any)
}

// TestDynamicRecordings_D3_D10_D25 plays the recorded lives of resources of
// registered types: one that is inert, one that a schema refuses, and one that
// a recipe makes, whose secret is never shown.
func TestDynamicRecordings_D3_D10_D25(t *testing.T) {
	rec := readRecordings(t, filepath.Join(radius(t), "pkg", "dynamicrp", "integrationtest", "dynamic", "resource_test.go"))
	ledger := openLedger(t, "dynamic")
	const version, group = "2024-01-01", "/planes/radius/local/resourceGroups/test-group"
	q := "?api-version=" + version
	register := func(p *plane, typ string, properties, schema map[string]any) {
		p.must("PUT", testProvider+ucpVersion, map[string]any{"location": "global", "properties": map[string]any{}})
		p.must("PUT", testProvider+"/resourcetypes/"+typ+ucpVersion, map[string]any{"properties": properties})
		v := map[string]any{}
		if schema != nil {
			v["schema"] = schema
		}
		p.must("PUT", testProvider+"/resourcetypes/"+typ+"/apiversions/"+version+ucpVersion, map[string]any{"properties": v})
		p.must("PUT", testProvider+"/locations/global"+ucpVersion, map[string]any{"properties": map[string]any{
			"resourceTypes": map[string]any{typ: map[string]any{"apiVersions": map[string]any{version: map[string]any{}}}}}})
		p.must("PUT", group+ucpVersion, map[string]any{"location": "global", "properties": map[string]any{}})
	}
	// live plays PUT, GET, both lists, DELETE and GET, as all recordings do.
	live := func(t *testing.T, p *plane, function, typ, name, secret string) {
		pair := "dynamic/" + function
		var found []difference
		report := func(d difference) { found = append(found, d) }
		want := here(t, rec.body(function, "expectedResource"))
		if e := rec.body(function, "resource")["properties"].(map[string]any)["environment"]; e != nil {
			want["properties"].(map[string]any)["environment"] = e
		}
		id := group + "/providers/Applications.Test/" + typ + "/" + name
		a := p.request("PUT", id+q, rec.body(function, "resource"))
		if a.status != 201 || a.header.Get("Location") == "" || a.header.Get("Azure-AsyncOperation") == "" {
			t.Fatalf("D-10: PUT: %d %s %v", a.status, a.raw, a.header)
		}
		if end := p.finish(a); end != "Succeeded" {
			t.Fatalf("D-10: the operation ended as %s: %s", end, p.request("GET", a.header.Get("Azure-AsyncOperation"), nil).raw)
		}
		if r := p.request("GET", a.header.Get("Location"), nil); r.status != 204 {
			t.Errorf("D-10: operationResults of an ended operation: %d", r.status)
		}
		for _, target := range []string{id, strings.TrimSuffix(id, "/"+name), "/planes/radius/local/providers/Applications.Test/" + typ} {
			g := p.request("GET", target+q, nil)
			if g.status != 200 {
				t.Fatalf("D-3: GET %s: %d %s", target, g.status, g.raw)
			}
			if secret != "" && strings.Contains(g.raw, secret) {
				t.Errorf("D-25: GET %s shows the recipe's secret", target)
			}
			if target == id {
				compare(pair, "$", want, withoutSystemData(g.body), report)
			} else {
				compare(pair, "$", map[string]any{"value": []any{want}}, withoutSystemData(g.body), report)
			}
		}
		d := p.request("DELETE", id+q, nil)
		if d.status != 202 || p.finish(d) != "Succeeded" {
			t.Fatalf("D-10: DELETE: %d %s", d.status, d.raw)
		}
		if g := p.request("GET", id+q, nil); g.status != 404 || g.errorCode() != "NotFound" {
			t.Errorf("D-10: GET of a deleted resource: %d %s", g.status, g.raw)
		}
		ledger.judge(t, found)
	}

	t.Run("inert", func(t *testing.T) {
		p := bare(t)
		register(p, "exampleInertResources", map[string]any{"capabilities": []string{"ManualResourceProvisioning"}}, nil)
		live(t, p, "Test_Dynamic_Resource_Inert_Lifecycle", "exampleInertResources", "my-inert-example", "")
	})
	t.Run("recipe", func(t *testing.T) {
		const function = "Test_Dynamic_Resource_Recipe_Lifecycle"
		p := start(t)
		status := here(t, rec.body(function, "expectedResource"))["properties"].(map[string]any)["status"].(map[string]any)
		values, _ := status["computedValues"].(map[string]any)
		output := status["outputResources"].([]any)[0].(map[string]any)["id"].(string)
		p.Recipes.OnExecute(func(context.Context, recipe.Request) (recipe.Result, error) {
			return recipe.Result{
				Values: values, Secrets: map[string]any{"password": "v3ryS3cr3t"},
				Outputs:    []core.Output{{ID: core.MustParseID(output), Managed: true, State: core.OutputMade}},
				Definition: recipe.Definition{Name: "default", Kind: "test", Path: "test-path", Version: "test-version"},
			}, nil
		})
		register(p, "exampleRecipeResources", map[string]any{}, rec.body(function, "schema"))
		// The recording replaces the peer's reading of environments; ours is real.
		withEnvironment := rec.body(function, "resource")
		withEnvironment["properties"].(map[string]any)["environment"] = "/planes/radius/local/resourceGroups/default/providers/Applications.Core/environments/default"
		live(t, p, function, "exampleRecipeResources", "my-recipe-example", "v3ryS3cr3t")
	})
	t.Run("refused", func(t *testing.T) {
		const function = "Test_Dynamic_Resource_Inert_Schema_Validation_Failure"
		p := bare(t)
		register(p, "exampleInertResources", map[string]any{"capabilities": []string{"ManualResourceProvisioning"}}, rec.body(function, "schema"))
		id := group + "/providers/Applications.Test/exampleInertResources/my-inert-example"
		a := p.request("PUT", id+q, rec.body(function, "invalidResource"))
		// Recorded: 201, and an operation that fails with the same code and text.
		var found []difference
		if a.status != 201 {
			found = append(found, difference{"dynamic/" + function, "status", "differs: recorded is 201, ours is " + itoa(a.status)})
		}
		if a.errorCode() != "InvalidRequestContent" || !strings.Contains(a.raw, "Schema validation failed") {
			t.Errorf("D-8: %d %s", a.status, a.raw)
		}
		ledger.judge(t, found)
		if g := p.request("GET", id+q, nil); g.status != 404 {
			t.Errorf("D-8: the refused resource is there: %d %s", g.status, g.raw)
		}
	})
	ledger.close(t)
}

// TestGraphRecordings plays the recorded inputs and outputs of the application
// graph: the resources are made, and the graph is asked for.
func TestGraphRecordings(t *testing.T) {
	dir := filepath.Join(radius(t), "pkg", "corerp", "frontend", "controller", "applications", "testdata")
	ledger := openLedger(t, "graph")
	for _, name := range []string{"graph-app-directroute", "graph-app-gw"} {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			in, want := readJSON(t, dir, name+"-in.json").([]any), readJSON(t, dir, name+"-out.json").([]any)
			const application = "/planes/radius/local/resourcegroups/default/providers/Applications.Core/Applications/myapp"
			p.must("PUT", application+ucpVersion, map[string]any{"location": "global", "properties": map[string]any{
				"environment": "/planes/radius/local/resourceGroups/default/providers/Applications.Core/environments/default"}})
			for _, r := range in {
				r := r.(map[string]any)
				props := r["properties"].(map[string]any)
				// The recordings are of what the store of the peer holds. What its API
				// would not take is left out, what it requires is put in.
				delete(props, "status")
				if !strings.Contains(r["id"].(string), "/containers/") {
					delete(props, "container")
				} else if props["resourceProvisioning"] = "manual"; props["container"] == nil {
					props["container"] = map[string]any{}
				}
				if c, ok := props["container"].(map[string]any); ok {
					if c["image"] == nil {
						c["image"] = "x" // the recordings leave out what the API requires
					}
					for _, port := range entries(c["ports"]) {
						if port["containerPort"] == nil {
							port["containerPort"] = port["port"]
						}
					}
				}
				if a := p.request("PUT", r["id"].(string)+ucpVersion, map[string]any{"location": "global", "properties": props}); a.status >= 300 {
					t.Fatalf("PUT %s: %d %s", r["id"], a.status, a.raw)
				} else {
					p.finish(a)
				}
			}
			a := p.request("POST", application+"/getGraph"+ucpVersion, map[string]any{})
			if a.status != 200 {
				t.Fatalf("getGraph: %d %s", a.status, a.raw)
			}
			var found []difference
			got := a.body.(map[string]any)["resources"].([]any)
			byID(want)
			byID(got)
			compare("graph/"+name, "$", want, got, func(d difference) { found = append(found, d) })
			ledger.judge(t, found)
		})
	}
	ledger.close(t)
}

// byID orders the connections of every node, whose order is nobody's promise.
func byID(nodes []any) {
	for _, n := range nodes {
		list, _ := n.(map[string]any)["connections"].([]any)
		slices.SortFunc(list, func(a, b any) int {
			x, _ := a.(map[string]any)["id"].(string)
			y, _ := b.(map[string]any)["id"].(string)
			return strings.Compare(strings.ToLower(x), strings.ToLower(y))
		})
	}
}

func entries(v any) []map[string]any {
	var out []map[string]any
	m, _ := v.(map[string]any)
	for _, e := range m {
		if object, ok := e.(map[string]any); ok {
			out = append(out, object)
		}
	}
	return out
}
