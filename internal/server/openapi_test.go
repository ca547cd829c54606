package server_test

import (
	"strings"
	"testing"
)

// pointer follows a reference inside a document.
func pointer(doc any, ref string) any {
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		doc = dig(doc, strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
	}
	return doc
}

// TestOpenAPI: /openapi/v3 lists every registered type with its schema.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	a := startLanguage(t)
	got := a.want(a.send("GET", "/openapi/v3", nil), 200)
	if got.body["openapi"] != "3.0.3" {
		t.Fatalf("the document is of version %v", got.body["openapi"])
	}
	found := map[string]bool{}
	for name, s := range dig(got.body, "components", "schemas").(map[string]any) {
		if typ, ok := dig(s, "x-radial-type").(string); ok {
			found[typ] = true
			if dig(pointer(got.body, dig(s, "properties", "properties", "$ref").(string)), "type") != "object" {
				t.Errorf("%s has no schema of its properties", name)
			}
			path := "/planes/radius/{plane}/resourceGroups/{group}/providers/" + typ + "/{name}"
			if dig(got.body, "paths", path, "put", "requestBody") == nil {
				t.Errorf("%s has no path", typ)
			}
		}
	}
	for _, typ := range a.Server.Types().Types() {
		if !found[typ] {
			t.Errorf("type %s is not listed", typ)
		}
	}
	properties := dig(got.body, "components", "schemas", "Test.Things.inert.2025-01-01-preview.properties", "properties")
	if dig(properties, "password", "x-radius-sensitive") != true || dig(properties, "size", "default") != "M" || dig(properties, "connections", "type") != "object" {
		t.Errorf("the schema of Test.Things/inert is %v", properties)
	}
	// Every reference leads somewhere, and nothing is said that OpenAPI does not know.
	refs := 0
	var walk func(v any, at string)
	walk = func(v any, at string) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				refs++
				if pointer(got.body, ref) == nil {
					t.Errorf("%s refers to %s, which is not there", at, ref)
				}
			}
			if v["type"] == "any" {
				t.Errorf("%s is of type any", at)
			}
			for k, e := range v {
				walk(e, at+"/"+k)
			}
		case []any:
			for _, e := range v {
				walk(e, at+"[]")
			}
		}
	}
	walk(got.body, "#")
	if refs < 50 {
		t.Errorf("only %d references were found", refs)
	}

	// It follows registrations, and says so by its tag.
	tag := got.header.Get("ETag")
	if same := a.send("GET", "/openapi/v3", nil, "If-None-Match", tag); same.status != 304 {
		t.Errorf("an unchanged document answers %d", same.status)
	}
	a.want(a.send("PUT", version(evolving+"/manifest", ucp), manifestIn("Evolve.Things")), 200)
	if now := a.want(a.send("GET", "/openapi/v3", nil, "If-None-Match", tag), 200); !strings.Contains(now.raw, "Evolve.Things/one") {
		t.Error("a type that was just registered is not listed")
	}

	// The Kubernetes API server reads an index.
	index := a.want(a.send("GET", "/openapi/v3", nil, "X-Remote-User", "system:aggregator"), 200)
	link, _ := dig(index.body, "paths", "apis/api.ucp.dev/v1alpha3", "serverRelativeURL").(string)
	if doc := a.want(a.send("GET", link, nil), 200); doc.body["openapi"] != "3.0.3" {
		t.Errorf("the index leads to %s", doc.raw[:100])
	}
}

// getMetadata of an environment tells what a registered recipe takes.
func TestRecipeMetadata(t *testing.T) {
	t.Parallel()
	a := start(t, Options{Recipes: engine(&driver{})})
	ask := func(body any) answer { return a.send("POST", version(envID+"/getMetadata", ucp), body) }
	got := a.want(ask(map[string]any{"resourceType": madeType, "name": "default"}), 200)
	if got.body["templatePath"] != "test/made:1" || got.body["templateKind"] != "bicep" || dig(got.body, "parameters") == nil {
		t.Errorf("answered %s", got.raw)
	}
	if got := a.want(ask(map[string]any{"resourceType": madeType, "name": "none"}), 400); got.code() != "RecipeNotFoundFailure" || !strings.Contains(got.message(), "default") {
		t.Errorf("an unknown recipe: %s", got.raw)
	}
	a.want(ask(map[string]any{}), 400)
	a.want(a.send("POST", version(group+"/providers/Applications.Core/environments/none/getMetadata", ucp), map[string]any{"resourceType": madeType}), 404)
}
