package server_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/recipe/template"
)

// What clients of the peer ask for beside resources. Package compat runs those
// clients themselves, where it has them.

const providers = "/planes/radius/local/providers/System.Resources/resourceProviders"

func TestPrefixItself(t *testing.T) {
	a := &api{startInstance(t, Options{}), t}
	for _, path := range []string{"/apis/api.ucp.dev/v1alpha3", "/APIS/api.ucp.dev/v1alpha3/"} {
		got := a.want(a.send("GET", path, nil), 200)
		if got.body["kind"] != "APIResourceList" || got.body["groupVersion"] != "api.ucp.dev/v1alpha3" {
			t.Errorf("GET %s: %s", path, got.raw)
		}
	}
	a.want(a.send("GET", "/", nil), 404)
	a.want(a.send("PUT", "/apis/api.ucp.dev/v1alpha3", nil), 405)
}

// Types that have another name beside their own are listed once, and answered
// under both.
func TestTypesAreListedOnce(t *testing.T) {
	a := &api{startInstance(t, Options{}), t}
	got := a.want(a.send("GET", "/planes/radius/local/providers?api-version="+ucp, nil), 200)
	if strings.Contains(got.raw, `"name":"Applications.Link"`) {
		t.Error("a namespace of other names is listed")
	}
	a.want(a.send("GET", "/planes/radius/local/providers/Applications.Link?api-version="+ucp, nil), 200)
}

func TestLocations_D3(t *testing.T) {
	a := &api{startInstance(t, Options{}), t}
	const p = providers + "/MyCompany.Data"
	q := "?api-version=" + ucp
	a.want(a.send("PUT", p+q, `{"location":"global"}`), 200)
	names := func() (out []string) {
		got := a.want(a.send("GET", p+"/locations"+q, nil), 200)
		list, _ := got.body["value"].([]any)
		for _, e := range list {
			name, _ := dig(e.(map[string]any), "name").(string)
			out = append(out, name)
		}
		return out
	}
	expect := func(want string) {
		t.Helper()
		if got := strings.Join(names(), ","); got != want {
			t.Errorf("D-3: the locations are %s, want %s", got, want)
		}
	}
	expect("global")
	a.want(a.send("PUT", p+"/locations/East"+q, `{"properties":{"address":"http://localhost:1"}}`), 200)
	expect("East")
	if got := a.want(a.send("GET", p+"/locations/EAST"+q, nil), 200); dig(got.body, "name") != "East" || dig(got.body, "properties", "address") != "http://localhost:1" {
		t.Errorf("D-3: %s", got.raw)
	}
	a.want(a.send("GET", p+"/locations/global"+q, nil), 200) // where resources are, whatever it is called
	a.want(a.send("PUT", p+"/locations/west"+q, `{}`), 400)  // one location at most
	a.want(a.send("DELETE", p+"/locations/east"+q, nil), 200)
	a.want(a.send("GET", p+"/locations/east"+q, nil), 404)
	a.want(a.send("DELETE", p+"/locations/east"+q, nil), 204)
	a.want(a.send("DELETE", p+"/locations/global"+q, nil), 409)
	expect("global")
}

// A type may be put into a built-in namespace step by step, as clients do that
// find the namespace there.
func TestTypeInBuiltinNamespace_D5(t *testing.T) {
	a := &api{startInstance(t, Options{}), t}
	q := "?api-version=" + ucp
	const typ = providers + "/radius.data/resourceTypes/ledgers"
	a.want(a.send("PUT", typ+q, `{"properties":{"description":"x"}}`), 200)
	a.want(a.send("PUT", typ+"/apiVersions/2025-01-01"+q, `{"properties":{"schema":{"type":"object","properties":{"a":{"type":"string"}}}}}`), 200)
	got := a.want(a.send("GET", "/planes/radius/local/providers/Radius.Data"+q, nil), 200)
	if dig(got.body, "name") != "Radius.Data" || dig(got.body, "resourceTypes", "ledgers") == nil || dig(got.body, "resourceTypes", "redisCaches") == nil {
		t.Errorf("D-5: %s", got.raw)
	}
	a.want(a.send("PUT", providers+"/No.Such/resourceTypes/ledgers"+q, `{"properties":{}}`), 404)
}

// getMetadata reads a registered recipe's parameters from its template.
func TestRecipeMetadataFromItsTemplate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "recipe.json")
	text := `{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","contentVersion":"1.0.0.0",
		"parameters":{"size":{"type":"string","defaultValue":"S"},"context":{"type":"object"}},"resources":[]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var a *api
	driver := template.New(template.Options{Fetcher: oci.New(oci.Options{AllowFiles: true})})
	engine := recipe.NewEngine(recipe.Options{
		Drivers: map[string]recipe.Driver{"bicep": driver},
		Load: func(ctx context.Context, id core.ID) (core.Resource, error) {
			r, _, err := a.Store.Get(ctx, id)
			return r, err
		},
	})
	a = &api{startInstance(t, Options{Recipes: engine}), t}
	q := "?api-version=" + ucp
	a.want(a.send("PUT", group+q, `{}`), 200)
	recipes, _ := json.Marshal(map[string]any{"properties": map[string]any{
		"compute": map[string]any{"kind": "kubernetes", "namespace": "n"},
		"recipes": map[string]any{"Applications.Datastores/redisCaches": map[string]any{
			"small": map[string]any{"templateKind": "bicep", "templatePath": "file://" + path, "parameters": map[string]any{"size": "L"}},
			"lost":  map[string]any{"templateKind": "bicep", "templatePath": "file://" + path + ".none"},
		}},
	}})
	a.want(a.send("PUT", envID+q, string(recipes)), 200)
	ask := func(resourceType, name string) answer {
		return a.send("POST", envID+"/getMetadata"+q, map[string]any{"resourceType": resourceType, "name": name})
	}
	got := a.want(ask("Applications.Datastores/redisCaches", "small"), 200)
	if dig(got.body, "parameters", "size", "defaultValue") != "S" || dig(got.body, "parameters", "context") != nil ||
		dig(got.body, "templatePath") != "file://"+path || dig(got.body, "templateKind") != "bicep" {
		t.Errorf("the recipe is %s", got.raw)
	}
	if got := ask("Applications.Datastores/redisCaches", "other"); got.status < 400 || got.status >= 500 || !strings.Contains(got.message(), "small") {
		t.Errorf("a recipe that is not registered: %d %s", got.status, got.raw)
	}
	if got := ask("Applications.Datastores/redisCaches", "lost"); got.status < 400 || !strings.Contains(got.message(), "recipe.json.none") {
		t.Errorf("a recipe whose template is not there: %d %s", got.status, got.raw)
	}
	if got := ask("", "small"); got.status != 400 || got.code() != "InvalidRequestContent" {
		t.Errorf("no type: %d %s", got.status, got.raw)
	}
	a.want(a.send("POST", group+"/providers/Applications.Core/applications/x/getMetadata"+q, `{}`), 404)
}

// What stands behind a resource may be of Azure, whose ids have no plane.
func TestResourcesOfAzure_D3(t *testing.T) {
	a := &api{startInstance(t, Options{}), t}
	q := "?api-version=" + ucp
	a.want(a.send("PUT", group+q, `{}`), 200)
	a.want(a.send("PUT", envID+q, `{"properties":{"compute":{"kind":"kubernetes","namespace":"n"}}}`), 200)
	const azure = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Cache/redis/r"
	id := group + "/providers/Applications.Datastores/redisCaches/r"
	a.want(a.send("PUT", id+q, `{"properties":{"environment":"`+envID+`","resourceProvisioning":"manual","host":"h","resources":[{"id":"`+azure+`"}]}}`), 201)
	if got := a.want(a.send("GET", id+q, nil), 200); !strings.Contains(got.raw, azure) {
		t.Errorf("D-3: %s", got.raw)
	}
	id += "2"
	if got := a.want(a.send("PUT", id+q, `{"properties":{"environment":"`+envID+`","resourceProvisioning":"manual","host":"h","resources":[{"id":"/nowhere"}]}}`), 400); !strings.Contains(got.message(), "/nowhere") {
		t.Errorf("D-3: %s", got.raw)
	}
}
