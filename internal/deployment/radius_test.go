package deployment_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/recipe/template"
)

const compiled = `"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","contentVersion":"1.0.0.0","languageVersion":"2.1-experimental","imports":{"radius":{"provider":"Radius","version":"latest"}}`

// S-49: what is compiled for Radius reads resources as its control plane answers
// them: properties beside their envelope, secrets by listSecrets(), those that
// exist by their name. Nobody waits for their operations at a worker's place: one
// worker is enough.
func TestRadiusImportReads_S49(t *testing.T) {
	t.Parallel()
	p := newPlane(t, func(p *plane) { p.workers = 1 })
	env := group + "/providers/Applications.Core/environments/default"
	got := p.deploy("reads", body(`{`+compiled+`,"resources":{
	 "db":{"import":"radius","type":"Applications.Datastores/redisCaches@2023-10-01-preview","properties":{"name":"db","properties":{"environment":"`+env+`"}}},
	 "env":{"existing":true,"import":"radius","type":"Applications.Core/environments@2023-10-01-preview","properties":{"name":"default"}},
	 "app":{"import":"radius","type":"Applications.Core/applications@2023-10-01-preview","dependsOn":["env"],"properties":{"name":"reads","properties":{"environment":"[reference('env').id]"}}}},
	 "outputs":{"beside":{"type":"string","value":"[reference('db').host]"},"within":{"type":"string","value":"[reference('db').properties.host]"},
	  "id":{"type":"string","value":"[reference('env').id]"},"namespace":{"type":"string","value":"[reference('env').compute.namespace]"},
	  "secret":{"type":"bool","value":"[equals(listSecrets('db','2023-10-01-preview').password,'made-for-db')]"}}}`), core.StateSucceeded)
	for name, want := range map[string]any{"beside": "db.example", "within": "db.example", "id": env, "namespace": p.namespace, "secret": true} {
		if v := at(got.body, "properties", "outputs", name, "value"); v != want {
			t.Errorf("the output %s is %v, want %v", name, v, want)
		}
	}
	p.recipes.mu.Lock()
	defer p.recipes.mu.Unlock()
	if len(p.recipes.ran) != 1 {
		t.Errorf("its recipe ran %d times", len(p.recipes.ran))
	}
	// A type of one namespace is imported by a name that is made of it.
	missing := p.deploy("missing", body(`{`+strings.Replace(compiled, `"provider":"Radius"`, `"provider":"radiusapplicationscore"`, 1)+`,"resources":{
	 "gone":{"existing":true,"import":"radius","type":"Applications.Core/applications@2023-10-01-preview","properties":{"name":"gone"}},
	 "app":{"import":"radius","type":"Applications.Core/applications@2023-10-01-preview","properties":{"name":"x","properties":{"environment":"[reference('gone').environment]"}}}}}`), core.StateFailed)
	if !strings.Contains(missing.raw, group+"/providers/Applications.Core/applications/gone") {
		t.Errorf("what is missing is not named: %s", missing.raw)
	}
}

// A recipe that is compiled for Radius makes resources of the control plane in
// the group of its own; they are its children, and go with it.
func TestRadiusImportInRecipes_S49(t *testing.T) {
	t.Parallel()
	p := newPlane(t, func(p *plane) {
		p.workers = 1
		driver := template.New(template.Options{Fetcher: oci.New(oci.Options{AllowFiles: true}), Resolver: p.resolver, Now: time.Now})
		p.engine = recipe.NewEngine(recipe.Options{
			Drivers:   map[string]recipe.Driver{"bicep": driver},
			Canonical: func(t string) (string, bool) { return t, true },
			Load: func(ctx context.Context, id core.ID) (core.Resource, error) {
				r, _, err := p.db.Get(ctx, id)
				return r, err
			},
		})
	})
	inner := p.file("inner.json", `{`+compiled+`,"resources":{},"outputs":{"host":{"type":"string","value":"inner-host"}}}`)
	outer := p.file("outer.json", `{`+compiled+`,"parameters":{"context":{"type":"object"}},"resources":{
	  "db":{"import":"radius","type":"Applications.Datastores/mongoDatabases@2023-10-01-preview","properties":{"name":"[format('{0}-db',parameters('context').resource.name)]","properties":{"environment":"[parameters('context').environment.id]"}}}},
	 "outputs":{"result":{"type":"object","value":{"values":{"host":"[reference('db').host]"}}}}}`)
	env := group + "/providers/Applications.Core/environments/default"
	p.must(200, "PUT", env+ucp, `{"properties":{"compute":{"kind":"kubernetes","namespace":"`+p.namespace+`"},"recipes":{
	 "Applications.Datastores/mongoDatabases":{"default":{"templateKind":"bicep","templatePath":"file://`+inner+`"}},
	 "Applications.Core/extenders":{"default":{"templateKind":"bicep","templatePath":"file://`+outer+`"}}}}}`)
	extender, db := group+"/providers/Applications.Core/extenders/outer", group+"/providers/Applications.Datastores/mongoDatabases/outer-db"
	put := p.must(201, "PUT", extender+ucp, `{"properties":{"environment":"`+env+`"}}`)
	if end := p.await(put.header.Get("Azure-AsyncOperation")); end.body["status"] != "Succeeded" {
		t.Fatalf("the recipe ended as %s", end.raw)
	}
	got := p.must(200, "GET", extender+ucp, "")
	if at(got.body, "properties", "host") != "inner-host" { // a property though none is declared: an extender takes any
		t.Errorf("D-30: it answered %s", got.raw)
	}
	if at(got.body, "properties", "status", "outputResources", 0, "id") != db {
		t.Errorf("its output resources are %s", got.raw)
	}
	if child := p.must(200, "GET", db+ucp, ""); at(child.body, "tags", "radapp.io/resource-id") != extender {
		t.Errorf("what it made carries no mark: %s", child.raw)
	}
	t.Run("what is another's is not taken over", func(t *testing.T) {
		theirs := strings.Replace(db, "outer", "taker", 1)
		p.await(p.must(201, "PUT", theirs+ucp, `{"properties":{"environment":"`+env+`"}}`).header.Get("Azure-AsyncOperation"))
		taker := strings.Replace(extender, "outer", "taker", 1)
		end := p.await(p.must(201, "PUT", taker+ucp, `{"properties":{"environment":"`+env+`"}}`).header.Get("Azure-AsyncOperation"))
		if end.body["status"] != "Failed" || !strings.Contains(end.raw, "not taken over") && !strings.Contains(end.raw, "belongs to") {
			t.Errorf("it ended as %s", end.raw)
		}
		p.await(p.must(202, "DELETE", taker+ucp, "").header.Get("Azure-AsyncOperation"))
		p.must(200, "GET", theirs+ucp, "")
	})
	p.await(p.must(202, "DELETE", extender+ucp, "").header.Get("Azure-AsyncOperation"))
	p.must(404, "GET", db+ucp, "")
}
