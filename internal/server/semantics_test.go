package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/store"
)

// languageManifest has a type that uses the whole schema language, and one whose
// sensitive fields differ in what they allow.
const languageManifest = `
namespace: Test.Language
types:
  inert:
    capabilities: [ManualResourceProvisioning]
    apiVersions:
      2025-01-01-preview:
        schema:
          type: object
          required: [must]
          properties:
            must: {type: string, x-radius-sensitive: true}
            may: {type: string, x-radius-sensitive: true}
            nullable: {type: string, nullable: true, x-radius-sensitive: true}
            plain: {type: string}
            host: {type: string, readOnly: true}
  language:
    capabilities: [ManualResourceProvisioning]
    apiVersions:
      2025-01-01-preview:
        schema:
          type: object
          definitions:
            size: {type: object, properties: {cpu: {type: integer, minimum: 1, maximum: 8, default: 2}, unit: {type: string, enum: [m, c], default: c}}}
          properties:
            nested:
              type: object
              properties:
                level: {type: string, default: info}
                deeper: {type: object, properties: {on: {type: boolean, default: true}}}
            size: {$ref: '#/definitions/size'}
            name: {type: string, pattern: '^[a-z]+$', minLength: 2, maxLength: 5}
            when: {type: string, format: date-time}
            mail: {type: string, format: email}
            tags: {type: array, minItems: 1, maxItems: 3, uniqueItems: true, items: {type: string}}
            labels: {type: object, additionalProperties: {type: integer}}
            one: {oneOf: [{type: object, required: [kind], properties: {kind: {type: string, enum: [a]}, x: {type: integer}}}, {type: object, required: [kind], properties: {kind: {type: string, enum: [b]}, y: {type: integer}}}]}
            any: {anyOf: [{type: string}, {type: integer}]}
            all: {allOf: [{type: object, properties: {p: {type: string}}}, {type: object, properties: {q: {type: string}}}]}
            gone: {type: string, nullable: true}
            anyString: {type: string, x-radius-sensitive: true}
            anyNumber: {type: number, x-radius-sensitive: true}
            anyArray: {type: array, items: {type: string}, x-radius-sensitive: true}
            anyObject: {type: object, additionalProperties: {type: string}, x-radius-sensitive: true}
            platformOptions: {type: object, additionalProperties: {type: any}}
`

func startLanguage(t *testing.T) *api {
	t.Helper()
	a := start(t, Options{})
	a.want(a.send("PUT", version("/planes/radius/local/providers/System.Resources/resourceproviders/Test.Language/manifest", ucp), languageManifest, "Content-Type", "application/yaml"), 200)
	return a
}

func language(name string) string {
	return version(group+"/providers/Test.Language/language/"+name, testVersion)
}

func TestSensitiveNulls_D12(t *testing.T) {
	t.Parallel()
	a := startLanguage(t)
	path := group + "/providers/Test.Language/inert/a"
	one := version(path, testVersion)
	secrets := func() map[string]any {
		t.Helper()
		return a.want(a.send("POST", version(path+"/listSecrets", testVersion), `{}`), 200).body
	}
	whole := map[string]any{"must": "secret-1", "may": "secret-2", "nullable": "secret-3", "plain": "p"}
	reset := func() { t.Helper(); a.succeed(a.want(a.send("PUT", one, props(whole)), 201)) }

	for name, c := range map[string]struct {
		method, body string
		status       int
		want         map[string]any // secrets afterwards
		says         string
	}{
		"D-12 PATCH without the fields keeps them": {"PATCH", `{"properties":{"plain":"q"}}`, 202,
			map[string]any{"must": "secret-1", "may": "secret-2", "nullable": "secret-3"}, ""},
		"D-12 PUT replaces: an optional one that is left out is gone": {"PUT", `{"properties":{"must":"new"}}`, 201,
			map[string]any{"must": "new"}, ""},
		"D-12 PUT without a required one fails": {"PUT", `{"properties":{"may":"new"}}`, 400,
			map[string]any{"must": "secret-1", "may": "secret-2", "nullable": "secret-3"}, "must: is required"},
		"D-12 a null sent back for one that is not nullable fails": {"PUT", `{"properties":{"must":null}}`, 400,
			map[string]any{"must": "secret-1", "may": "secret-2", "nullable": "secret-3"}, "must"},
		"D-12 and so for an optional one": {"PUT", `{"properties":{"must":"new","may":null}}`, 400,
			map[string]any{"must": "secret-1", "may": "secret-2", "nullable": "secret-3"}, "may"},
		"D-12 a null for a nullable one is null, not the old secret": {"PUT", `{"properties":{"must":"new","nullable":null}}`, 201,
			map[string]any{"must": "new"}, ""},
		"D-12 PATCH with null takes an optional one away": {"PATCH", `{"properties":{"may":null}}`, 202,
			map[string]any{"must": "secret-1", "nullable": "secret-3"}, ""},
		"D-12 PATCH with null of a required one fails": {"PATCH", `{"properties":{"must":null}}`, 400,
			map[string]any{"must": "secret-1", "may": "secret-2", "nullable": "secret-3"}, "must: is required"},
		"D-15 what only the server writes is ignored": {"PATCH", `{"properties":{"host":"mine","provisioningState":"Failed","status":{"computedValues":{"a":1}}}}`, 202,
			map[string]any{"must": "secret-1", "may": "secret-2", "nullable": "secret-3"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := &api{a.Instance, t}
			reset()
			got := a.want(a.send(c.method, one, c.body), c.status)
			if c.status < 400 {
				a.succeed(got)
			} else if !strings.Contains(got.message(), c.says) || strings.Contains(got.raw, "secret-") {
				t.Errorf("refused with %s", got.raw)
			}
			have := secrets()
			for k, v := range have {
				if v == nil {
					delete(have, k)
				}
			}
			if diff := cmp.Diff(c.want, have); diff != "" {
				t.Errorf("the secrets afterwards (-want +got):\n%s", diff)
			}
			now := a.want(a.send("GET", one, nil), 200)
			if now.prop("host") != nil || now.prop("provisioningState") != "Succeeded" || now.prop("status") != nil || strings.Contains(now.raw, "secret-") {
				t.Errorf("GET answers %s", now.raw)
			}
		})
	}
	t.Run("D-12 what GET answers, sent back as it is, is no request to keep", func(t *testing.T) {
		a := &api{a.Instance, t}
		reset()
		seen := a.want(a.send("GET", one, nil), 200)
		if got := a.send("PUT", one, map[string]any{"properties": seen.body["properties"]}); got.status != 400 || !strings.Contains(got.message(), "must") {
			t.Errorf("answered %d %s", got.status, got.raw)
		}
	})
}

func TestFaults_D13(t *testing.T) {
	t.Parallel()
	a := startLanguage(t)
	got := a.want(a.send("PUT", language("x"), props(map[string]any{
		"name": "NEEDLE1", "size": map[string]any{"cpu": 99, "needle2": 1}, "labels": map[string]any{"needle3": "x"},
		"anyArray": []any{7}, "unknownOne": "needle4", "unknownTwo": 1, "tags": []string{"s", "s"},
	})), 400)
	targets := map[string]bool{}
	for _, d := range dig(got.body, "error", "details").([]any) {
		target, _ := dig(d, "target").(string)
		if target == "" {
			target, _, _ = strings.Cut(dig(d, "message").(string), ":")
		}
		targets[strings.TrimPrefix(target, "properties.")] = true
	}
	for _, name := range []string{"name", "size", "labels", "anyArray", "unknownOne", "unknownTwo", "tags"} {
		if !targets[name] {
			t.Errorf("D-13: the fault of %s is not reported: %s", name, got.raw)
		}
	}
	if !strings.HasPrefix(got.message(), "Schema validation failed: ") || strings.Contains(strings.ToLower(got.raw), "needle") {
		t.Errorf("D-13: the message is %s", got.raw)
	}
}

func TestDefaults_D15(t *testing.T) {
	t.Parallel()
	a := startLanguage(t)
	a.succeed(a.want(a.send("PUT", language("d"), props(map[string]any{"size": map[string]any{"unit": "m"}})), 201))
	got := a.want(a.send("GET", language("d"), nil), 200)
	want := map[string]any{
		"nested": map[string]any{"level": "info", "deeper": map[string]any{"on": true}},
		"size":   map[string]any{"cpu": 2.0, "unit": "m"}, "provisioningState": "Succeeded",
	}
	if diff := cmp.Diff(want, got.body["properties"]); diff != "" {
		t.Errorf("D-15: defaults fill nested objects (-want +got):\n%s", diff)
	}
	// Every type knows the common properties, and no others.
	app := group + "/providers/Applications.Core/applications/app"
	a.want(a.send("PUT", version(app, ucp), withEnv(map[string]any{})), 200)
	a.succeed(a.want(a.send("PUT", language("c"), props(map[string]any{
		"environment": envID, "application": app, "codeReference": "https://example.org/code", "recipe": map[string]any{"name": "default"},
		"resourceProvisioning": "manual", "connections": map[string]any{"u": map[string]any{"source": "https://example.org"}},
		"resources": []any{map[string]any{"id": "/planes/kubernetes/local/namespaces/n/providers/core/Secret/s"}},
	})), 201))
	if got := a.want(a.send("PUT", language("c"), props(map[string]any{"environmnt": envID})), 400); !strings.Contains(got.message(), "environment") {
		t.Errorf("D-15: an unknown property is refused with %s", got.raw)
	}
}

func TestLanguage_D16(t *testing.T) {
	t.Parallel()
	a := startLanguage(t)
	for name, c := range map[string]struct{ good, bad string }{
		"$ref":      {`{"size":{"cpu":8}}`, `{"size":{"cpu":9}}`},
		"pattern":   {`{"name":"abc"}`, `{"name":"a1c"}`},
		"minLength": {`{"name":"ab"}`, `{"name":"a"}`},
		"maxLength": {`{"name":"abcde"}`, `{"name":"abcdef"}`},
		"date-time": {`{"when":"2026-01-02T03:04:05Z"}`, `{"when":"tomorrow"}`},
		"email":     {`{"mail":"a@example.org"}`, `{"mail":"nobody"}`},
		"minItems":  {`{"tags":["a"]}`, `{"tags":[]}`},
		"maxItems":  {`{"tags":["a","b","c"]}`, `{"tags":["a","b","c","d"]}`},
		"unique":    {`{"tags":["a","b"]}`, `{"tags":["a","a"]}`},
		"maps":      {`{"labels":{"x":1}}`, `{"labels":{"x":"1"}}`},
		"oneOf":     {`{"one":{"kind":"b","y":1}}`, `{"one":{"kind":"b","x":1}}`},
		"anyOf":     {`{"any":7}`, `{"any":true}`},
		"allOf":     {`{"all":{"p":"1","q":"2"}}`, `{"all":{"p":"1","r":"2"}}`},
		"nullable":  {`{"gone":null}`, `{"name":null}`},
		"type any":  {`{"platformOptions":{"x":[1,{"y":null}]}}`, `{"platformOptions":7}`},
		"sensitive": {`{"anyString":"s","anyNumber":1.5,"anyArray":["s"],"anyObject":{"k":"s"}}`, `{"anyNumber":"s"}`},
	} {
		t.Run("D-16 "+name, func(t *testing.T) {
			a := &api{a.Instance, t}
			a.succeed(a.want(a.send("PUT", language("l"), `{"properties":`+c.good+`}`), 201))
			a.want(a.send("PUT", language("l"), `{"properties":`+c.bad+`}`), 400)
		})
	}
	got := a.want(a.send("POST", version(group+"/providers/Test.Language/language/s/listSecrets", testVersion), `{}`), 404)
	_ = got
	a.succeed(a.want(a.send("PUT", language("s"), `{"properties":{"anyString":"s","anyNumber":1.5,"anyArray":["s"],"anyObject":{"k":"s"}}}`), 201))
	secrets := a.want(a.send("POST", version(group+"/providers/Test.Language/language/s/listSecrets", testVersion), `{}`), 200)
	if diff := cmp.Diff(map[string]any{"anyString": "s", "anyNumber": 1.5, "anyArray": []any{"s"}, "anyObject": map[string]any{"k": "s"}}, secrets.body); diff != "" {
		t.Errorf("D-16: what sensitive values of every kind come back as (-want +got):\n%s", diff)
	}
	if got := a.want(a.send("PUT", version("/planes/radius/local/providers/System.Resources/resourceproviders/Test.Any/manifest", ucp),
		`{"namespace":"Test.Any","types":{"one":{"apiVersions":{"2026-01-01":{"schema":{"type":"object","properties":{"x":{"type":"any"}}}}}}}}`), 400); !strings.Contains(got.message(), "any") {
		t.Errorf("D-16: type any elsewhere is refused with %s", got.raw)
	}
}

// invalidate changes a stored row behind the server's back, as a forced schema or
// a restored backup may.
func invalidate(t *testing.T, a *api, id core.ID, properties string) (operation string) {
	t.Helper()
	r, _, err := a.Store.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	r.Properties = json.RawMessage(properties)
	op := &core.Operation{ID: "invalidates-" + id.Name(), ResourceID: id, Verb: core.VerbPut, APIVersion: testVersion,
		State: core.StateAccepted, Group: id.Scope().Key(), Created: r.SystemData.LastModifiedAt}
	r.State = core.StateAccepted
	if _, err := a.Store.Accept(t.Context(), store.Write{Resource: r, Operation: op, Expect: "*", Now: r.SystemData.LastModifiedAt}); err != nil {
		t.Fatal(err)
	}
	return op.ID
}

func TestWorkerValidates_D14(t *testing.T) {
	t.Parallel()
	d := &driver{}
	a := start(t, Options{Recipes: engine(d)})
	for name, c := range map[string]struct{ put, path, broken, says string }{
		"a recipe does not run": {made("w"), group + "/providers/" + madeType + "/w", `{"environment":"` + envID + `","size":7,"password":"needle-clear"}`, "size"},
		"an inert one neither":  {inert("v"), group + "/providers/" + inertType + "/v", `{"size":"needle-size"}`, "size"},
	} {
		body := withEnv(map[string]any{"size": "S", "password": "correct horse"})
		a.succeed(a.want(a.send("PUT", c.put, body), 201))
		before := d.count()
		id := core.MustParseID(c.path)
		op := invalidate(t, a, id, c.broken)
		end := a.want(a.send("GET", version(statuses+"/"+op, ucp), nil, "Prefer", "wait=20"), 200)
		message, _ := dig(end.body, "error", "message").(string)
		if end.body["status"] != "Failed" || dig(end.body, "error", "code") != "InvalidRequestContent" || !strings.HasPrefix(message, "Schema validation failed: ") || !strings.Contains(message, c.says) {
			t.Errorf("D-14 %s: %s", name, end.raw)
		}
		if strings.Contains(end.raw, "needle") || d.count() != before {
			t.Errorf("D-14 %s: %d runs more, %s", name, d.count()-before, end.raw)
		}
		r, _, err := a.Store.Get(t.Context(), id)
		if err != nil || string(r.Properties) != c.broken || r.State != core.StateFailed {
			t.Errorf("D-14 %s: the stored data was changed to %s, state %s, %v", name, r.Properties, r.State, err)
		}
	}
}

func TestStates_D19(t *testing.T) {
	t.Parallel()
	step, seen := make(chan struct{}), make(chan struct{})
	d := &driver{execute: func(_ context.Context, run recipe.Run) (recipe.Result, error) {
		seen <- struct{}{}
		<-step
		if run.Context.Resource.Properties["size"] == "bad" {
			return recipe.Result{}, core.Errorf(core.CodeRecipeDeployment, "no quota")
		}
		o := output("o")
		return recipe.Result{Definition: run.Definition, Outputs: []core.Output{o}}, run.Record(context.Background(), []core.Output{o}, nil)
	}, remove: func(context.Context, []core.Output) error { seen <- struct{}{}; <-step; return nil }}
	a := start(t, Options{Recipes: engine(d)})
	both := func(started answer, want string) {
		t.Helper()
		op := a.want(a.send("GET", started.header.Get("Azure-AsyncOperation"), nil), 200)
		res := a.want(a.send("GET", made("a"), nil), 200)
		if op.body["status"] != want || res.prop("provisioningState") != want {
			t.Errorf("D-19: operation %v, resource %v, want %s", op.body["status"], res.prop("provisioningState"), want)
		}
	}
	put := a.want(a.send("PUT", made("a"), withEnv(map[string]any{"size": "good"})), 201)
	if put.prop("provisioningState") != "Accepted" {
		t.Errorf("D-19: accepted as %s", put.raw)
	}
	<-seen
	both(put, "Updating")
	step <- struct{}{}
	a.succeed(put)
	both(put, "Succeeded")
	failed := a.want(a.send("PATCH", made("a"), props(map[string]any{"size": "bad"})), 202)
	<-seen
	step <- struct{}{}
	a.await(failed)
	both(failed, "Failed")
	gone := a.want(a.send("DELETE", made("a"), nil), 202)
	<-seen
	if got := a.want(a.send("GET", made("a"), nil), 200); got.prop("provisioningState") != "Deleting" {
		t.Errorf("D-19: while it is deleted it is %s", got.raw)
	}
	step <- struct{}{}
	a.succeed(gone)
	a.want(a.send("GET", made("a"), nil), 404)
}

// TestConnected: a recipe gets the secrets of what its resource connects to in
// the clear, and nobody else does.
func TestConnected_D30(t *testing.T) {
	t.Parallel()
	d := &driver{}
	a := start(t, Options{Recipes: engine(d)})
	d.execute = func(_ context.Context, run recipe.Run) (recipe.Result, error) {
		r := recipe.Result{Definition: run.Definition}
		if run.Owner.Name() == "db" {
			r.Values, r.Secrets = map[string]any{"host": "h", "size": "computed", "undeclared": "u"}, map[string]any{"token": "needle-token"}
		}
		return r, nil
	}
	a.succeed(a.want(a.send("PUT", made("db"), withEnv(map[string]any{"password": "needle-password"})), 201))
	db := group + "/providers/" + madeType + "/db"
	a.succeed(a.want(a.send("PUT", made("user"), withEnv(map[string]any{"connections": map[string]any{"db": map[string]any{"source": db}}})), 201))
	got := d.last(t).Context.Resource.Connections["db"].Properties
	for name, want := range map[string]any{"password": "needle-password", "token": "needle-token", "host": "h", "size": "computed"} {
		if got[name] != want {
			t.Errorf("D-30: the recipe got %s = %v, want %v", name, got[name], want)
		}
	}
	if strings.Contains(fmt.Sprint(got), "$sealed") {
		t.Errorf("D-30: the recipe got something sealed: %v", got)
	}
	shown := a.want(a.send("GET", made("db"), nil), 200)
	if shown.prop("size") != "computed" || shown.prop("host") != "h" || shown.prop("undeclared") != nil || strings.Contains(shown.raw, "needle") {
		t.Errorf("D-30: computed values land in declared properties that the user left out: %s", shown.raw)
	}
	// A type that is gone meanwhile leaves nothing sealed behind either.
	for _, path := range []string{made("user"), version(db, testVersion)} {
		if got := a.want(a.send("GET", path, nil), 200); strings.Contains(got.raw, "needle") || strings.Contains(got.raw, "$sealed") {
			t.Errorf("D-25: %s", got.raw)
		}
	}
}

// A first run that failed is remembered by its definition: what it made is
// deleted by that.
func TestFailedFirstRun_D32(t *testing.T) {
	t.Parallel()
	d := &driver{execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
		if err := run.Record(ctx, []core.Output{output("half")}, nil); err != nil {
			return recipe.Result{}, err
		}
		return recipe.Result{}, core.Errorf(core.CodeRecipeDeployment, "no quota")
	}}
	a := start(t, Options{Recipes: engine(d)})
	a.await(a.want(a.send("PUT", made("a"), withEnv(map[string]any{})), 201))
	got := a.want(a.send("GET", made("a"), nil), 200)
	if got.prop("status", "recipe", "templatePath") != "test/made:1" || got.prop("recipe", "recipeStatus") != "executionError" {
		t.Errorf("D-32: after a failed first run: %s", got.raw)
	}
	a.want(a.send("PUT", version(envID, ucp), props(map[string]any{"compute": map[string]any{"kind": "kubernetes", "namespace": "default"}})), 200)
	a.succeed(a.want(a.send("DELETE", made("a"), nil), 202))
	if len(d.gone) != 1 || d.gone[0].Name() != "half" {
		t.Errorf("D-31: what a failed run made was not deleted: %v", d.gone)
	}
}
