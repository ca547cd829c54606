package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/recipe/template"
)

// texts are templates by path.
type texts map[string]string

func (t texts) Fetch(_ context.Context, r oci.Reference) (oci.Content, error) {
	return oci.Content{Data: []byte(t[r.Path]), Digest: "sha256:" + r.Path}, nil
}

// nowhere is for recipes that make nothing in a cluster.
type nowhere struct{}

func (nowhere) Resolve(context.Context, extension.Scope, extension.Secrets) (extension.Target, error) {
	return nil, core.Errorf(core.CodeTarget, "there is no cluster here")
}

// TestRecipeHoldsResources_S49: a recipe's template makes resources of the control
// plane, directly and in a nested deployment, one of which has a recipe itself. The
// only worker does all: the recipe waits without it. What it made goes with it.
func TestRecipeHoldsResources_S49(t *testing.T) {
	t.Parallel()
	driver := template.New(template.Options{Resolver: nowhere{}, Now: time.Now, NewGUID: uuid.NewString, Fetcher: texts{
		"test/made:1": `{"contentVersion":"1.0.0.0","languageVersion":"2.0","parameters":{"context":{"type":"object"},"pw":{"type":"securestring","defaultValue":"[newGuid()]"}},"resources":{
			"cache":{"type":"Applications.Datastores/redisCaches","apiVersion":"2023-10-01-preview","name":"[concat(parameters('context').resource.name,'-cache')]",
			 "properties":{"environment":"[parameters('context').environment.id]"}},
			"inner":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"inner","properties":{"expressionEvaluationOptions":{"scope":"inner"},
			 "parameters":{"host":{"value":"[reference('cache').host]"},"pw":{"value":"[parameters('pw')]"}},"template":{"contentVersion":"1.0.0.0","languageVersion":"2.0","parameters":{"host":{"type":"string"},"pw":{"type":"securestring"}},
			  "resources":{"note":{"type":"Test.Things/inert","apiVersion":"2025-01-01-preview","name":"note","properties":{"color":"[parameters('host')]","password":"[parameters('pw')]"}}},
			  "outputs":{"color":{"type":"string","value":"[reference('note').color]"}}}}}},
			"outputs":{"result":{"type":"secureObject","value":{"values":{"host":"[reference('inner').outputs.color.value]"},"secrets":{"password":"[parameters('pw')]"}}}}}`,
		"test/redis:1": `{"contentVersion":"1.0.0.0","resources":[],"outputs":{"host":{"type":"string","value":"cache.example"},"port":{"type":"int","value":6379}}}`,
	}})
	types := manifest.NewRegistry(manifest.Builtin()...)
	a := start(t, Options{Workers: 1, Recipes: recipe.NewEngine(recipe.Options{Drivers: map[string]recipe.Driver{"bicep": driver}, Canonical: types.Canonical})})

	a.succeed(a.want(a.send("PUT", made("db"), props(map[string]any{"environment": envID})), 201))
	got := a.want(a.send("GET", made("db"), nil), 200)
	if got.prop("host") != "cache.example" {
		t.Errorf("S-49: it answers %s", got.raw)
	}
	cache := version(group+"/providers/Applications.Datastores/redisCaches/db-cache", ucp)
	if r := a.want(a.send("GET", cache, nil), 200); r.prop("host") != "cache.example" || r.prop("provisioningState") != "Succeeded" {
		t.Errorf("S-49: the cache is %s", r.raw)
	}
	a.want(a.send("GET", inert("note"), nil), 200)
	// What was made up before the recipe waited is what it answers afterwards.
	outer := a.want(a.send("POST", version(group+"/providers/"+madeType+"/db/listSecrets", testVersion), `{}`), 200)
	note := a.want(a.send("POST", version(group+"/providers/"+inertType+"/note/listSecrets", testVersion), `{}`), 200)
	if pw, _ := outer.body["password"].(string); len(pw) != 36 || note.body["password"] != pw {
		t.Errorf("S-45: the recipe answers another password than it gave")
	}
	outputs := got.raw[max(0, strings.Index(got.raw, `"outputResources"`)):]
	for _, name := range []string{"redisCaches/db-cache", "inert/note"} {
		if !strings.Contains(outputs, name) {
			t.Errorf("S-49: %s is not among its outputs: %s", name, got.raw)
		}
	}

	a.succeed(a.want(a.send("DELETE", made("db"), nil), 202))
	a.want(a.send("GET", cache, nil), 404)
	a.want(a.send("GET", inert("note"), nil), 404)
}
