package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/store"
)

const registered = "/planes/radius/local/providers/System.Resources/resourceProviders/Test.Things"

// manifestOf is the manifest of a namespace of the tests' own with one inert
// type, whose version 2025-01-01-preview has the schema.
func manifestOf(schema string) string {
	return `{"namespace":"Evolve.Things","types":{"one":{"capabilities":["ManualResourceProvisioning"],"apiVersions":{"2025-01-01-preview":{"schema":` + schema + `},"2026-01-01":{}}}}}`
}

const evolving = "/planes/radius/local/providers/System.Resources/resourceProviders/Evolve.Things"

func TestEvolution_D5(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	register := func(schema, query string) answer {
		return a.send("PUT", version(evolving+"/manifest"+query, ucp), manifestOf(schema))
	}
	const first = `{"type":"object","properties":{"size":{"type":"string"},"password":{"type":"string","x-radius-sensitive":true},"open":{"type":"string"}}}`
	a.want(register(first, ""), 200)
	one := func(name string) string { return version(group+"/providers/Evolve.Things/one/"+name, testVersion) }
	for i := range 12 {
		a.succeed(a.want(a.send("PUT", one(fmt.Sprintf("r%02d", i)), props(map[string]any{"size": "huge", "password": "needle-stored", "open": "x"})), 201))
	}
	a.succeed(a.want(a.send("PUT", version(group+"/providers/Evolve.Things/one/other", "2026-01-01"), props(map[string]any{})), 201))

	for name, c := range map[string]struct {
		schema string
		fits   bool
		says   string
	}{
		"another property":              {`{"type":"object","properties":{"size":{"type":"string"},"password":{"type":"string","x-radius-sensitive":true},"open":{"type":"string"},"more":{"type":"string"}}}`, true, ""},
		"a required one with a default": {`{"type":"object","required":["more"],"properties":{"size":{"type":"string"},"password":{"type":"string","x-radius-sensitive":true},"open":{"type":"string"},"more":{"type":"string","default":"m"}}}`, true, ""},
		"a required one without":        {`{"type":"object","required":["more"],"properties":{"size":{"type":"string"},"password":{"type":"string","x-radius-sensitive":true},"open":{"type":"string"},"more":{"type":"string"}}}`, false, "more"},
		"a narrower enum":               {`{"type":"object","properties":{"size":{"type":"string","enum":["S"]},"password":{"type":"string","x-radius-sensitive":true},"open":{"type":"string"}}}`, false, "size"},
		"a property that is gone":       {`{"type":"object","properties":{"size":{"type":"string"},"password":{"type":"string","x-radius-sensitive":true}}}`, false, "open"},
		"a rule for a sealed value":     {`{"type":"object","properties":{"size":{"type":"string"},"password":{"type":"string","x-radius-sensitive":true,"minLength":99},"open":{"type":"string"}}}`, false, "password"},
		"no longer sensitive":           {`{"type":"object","properties":{"size":{"type":"string"},"password":{"type":"string"},"open":{"type":"string"}}}`, false, "password"},
		"now sensitive":                 {`{"type":"object","properties":{"size":{"type":"string"},"password":{"type":"string","x-radius-sensitive":true},"open":{"type":"string","x-radius-sensitive":true}}}`, false, "open"},
	} {
		got := register(c.schema, "")
		if c.fits {
			a.want(got, 200)
			a.want(register(first, ""), 200)
			continue
		}
		if got.status != 409 || got.code() != "Conflict" {
			t.Errorf("D-5 %s: answered %d %s", name, got.status, got.raw)
			continue
		}
		info := dig(got.body["error"].(map[string]any)["additionalInfo"].([]any)[0], "info")
		ids, _ := dig(info, "ids").([]any)
		if dig(info, "count") != 12.0 || len(ids) != 10 || ids[0] != group+"/providers/Evolve.Things/one/r00" {
			t.Errorf("D-5 %s: the offending ids are %v", name, info)
		}
		if !strings.Contains(got.raw, c.says) || !strings.Contains(got.raw, "force=true") || strings.Contains(got.raw, "needle") || strings.Contains(got.raw, "huge") {
			t.Errorf("D-5 %s: the refusal is %s", name, got.raw)
		}
		if now := a.want(a.send("GET", version(evolving+"/manifest", ucp), nil), 200); !strings.Contains(now.raw, `"open"`) || strings.Contains(now.raw, "enum") {
			t.Errorf("D-5 %s: a refused registration changed %s", name, now.raw)
		}
	}
	// By the narrow route of one API version too, and forced.
	narrow := `{"properties":{"schema":{"type":"object","properties":{"size":{"type":"string","enum":["S"]},"password":{"type":"string","x-radius-sensitive":true},"open":{"type":"string"}}}}}`
	path := evolving + "/resourceTypes/one/apiVersions/" + testVersion
	a.want(a.send("PUT", version(path, ucp), narrow), 409)
	a.want(a.send("PUT", version(path+"?force=true", ucp), narrow), 200)
	if got := a.want(a.send("PATCH", one("r00"), props(map[string]any{"open": "y"})), 400); !strings.Contains(got.message(), "size") {
		t.Errorf("D-5: after a forced registration the stored value counts: %s", got.raw)
	}
	a.want(a.send("GET", one("r00"), nil), 200)
}

// usedBy is what a refusal lists.
func usedBy(t *testing.T, got answer) (ids []string, count int) {
	t.Helper()
	infos, _ := dig(got.body, "error", "additionalInfo").([]any)
	if len(infos) == 0 {
		t.Fatalf("the refusal lists nothing: %s", got.raw)
	}
	for _, id := range dig(infos[0], "info", "ids").([]any) {
		ids = append(ids, id.(string))
	}
	return ids, int(dig(infos[0], "info", "count").(float64))
}

// TestDefect15_InUse_D6: what is in use is not deleted, and the refusal lists
// what uses it; lists of other types do not notice (defect 15).
func TestDefect15_InUse_D6(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	const (
		app     = group + "/providers/Applications.Core/applications/shop"
		pack    = group + "/providers/Radius.Core/recipePacks/pack"
		nextEnv = group + "/providers/Radius.Core/environments/next"
		radius  = "2025-08-01-preview"
	)
	a.want(a.send("PUT", version(app, ucp), withEnv(map[string]any{})), 200)
	for i := range 12 {
		a.succeed(a.want(a.send("PUT", inert(fmt.Sprintf("m%02d", i)), withEnv(map[string]any{"application": app})), 201))
	}
	a.want(a.send("PUT", version(pack, radius), props(map[string]any{"recipes": map[string]any{}})), 200)
	a.want(a.send("PUT", version(nextEnv, radius), props(map[string]any{"recipePacks": []string{pack}, "providers": map[string]any{"kubernetes": map[string]any{"namespace": "default"}}})), 200)

	before := a.want(a.send("GET", version(group+"/providers/"+inertType, testVersion), nil), 200).raw
	for name, c := range map[string]struct {
		path  string
		users int
		first string
	}{
		"D-6 a type":              {version(registered+"/resourceTypes/inert", ucp), 12, "inert/m00"},
		"D-6 an API version":      {version(registered+"/resourceTypes/inert/apiVersions/"+testVersion, ucp), 12, "inert/m00"},
		"D-6 a resource provider": {version(registered, ucp), 12, "inert/m00"},
		"D-6 a group":             {version(group, ucp), 16, "Applications.Core"},
		"D-6 an environment":      {version(envID, ucp), 13, "Applications.Core/applications/shop"},
		"D-6 an application":      {version(app, ucp), 12, "inert/m00"},
		"D-6 a recipe pack":       {version(pack, radius), 1, "environments/next"},
	} {
		got := a.send("DELETE", c.path, nil)
		if got.status != 409 || got.code() != "Conflict" {
			t.Errorf("%s: answered %d %s", name, got.status, got.raw)
			continue
		}
		ids, count := usedBy(t, got)
		if count != c.users || len(ids) != min(count, 10) || !strings.Contains(ids[0], c.first) || !strings.Contains(got.message(), ids[0]) {
			t.Errorf("%s: listed %d of %d: %s", name, len(ids), count, got.raw)
		}
	}
	if after := a.want(a.send("GET", version(group+"/providers/"+inertType, testVersion), nil), 200).raw; after != before {
		t.Errorf("D-6: refused deletions changed %s to %s", before, after)
	}

	// An API version that nothing was written with goes, and so does a type;
	// what is listed beside them stays as it is.
	a.want(a.send("DELETE", version(registered+"/resourceTypes/made", ucp), nil), 200)
	if after := a.want(a.send("GET", version(group+"/providers/"+inertType, testVersion), nil), 200).raw; after != before {
		t.Errorf("defect 15: the list of another type changed from %s to %s", before, after)
	}
	a.want(a.send("GET", version(group+"/resources", ucp), nil), 200)
	// Without its reference the pack goes.
	a.want(a.send("PUT", version(nextEnv, radius), props(map[string]any{"providers": map[string]any{"kubernetes": map[string]any{"namespace": "default"}}})), 200)
	a.want(a.send("DELETE", version(pack, radius), nil), 200)
}

// TestDefect15_Cascade_D6: on request what uses a thing goes before it, each by
// its own deletion, with one worker.
func TestDefect15_Cascade_D6(t *testing.T) {
	t.Parallel()
	const (
		app   = group + "/providers/Applications.Core/applications/shop"
		other = "/planes/radius/local/resourceGroups/other"
	)
	for name, c := range map[string]struct {
		path string
		gone []string
		kept []string
	}{
		"a type": {version(registered+"/resourceTypes/made?cascade=true", ucp),
			[]string{made("a"), made("b"), version(registered+"/resourceTypes/made", ucp)}, []string{inert("i"), version(app, ucp)}},
		"an API version": {version(registered+"/resourceTypes/made/apiVersions/"+testVersion+"?cascade=true", ucp),
			[]string{made("a"), made("b"), version(registered+"/resourceTypes/made/apiVersions/"+testVersion, ucp)}, []string{inert("i"), version(registered+"/resourceTypes/made", ucp)}},
		"a resource provider": {version(registered+"?cascade=true", ucp),
			[]string{made("a"), inert("i"), version(registered, ucp)}, []string{version(app, ucp), version(other+"/providers/Applications.Core/applications/far", ucp)}},
		"a group": {version(group+"?cascade=true", ucp),
			[]string{made("a"), made("b"), inert("i"), version(app, ucp), version(envID, ucp), version(group, ucp)}, []string{version(other, ucp)}},
		"an environment": {version(envID+"?cascade=true", ucp),
			[]string{made("a"), version(app, ucp), version(envID, ucp), version(other+"/providers/Applications.Core/applications/far", ucp)}, []string{version(group, ucp)}},
		"an application": {version(app+"?cascade=true", ucp), []string{made("a"), version(app, ucp)}, []string{made("b"), version(envID, ucp)}},
	} {
		t.Run("D-6 "+name, func(t *testing.T) {
			t.Parallel()
			d := &driver{execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
				o := output(run.Owner.Name())
				return recipe.Result{Definition: run.Definition, Outputs: []core.Output{o}}, run.Record(ctx, []core.Output{o}, nil)
			}}
			a := start(t, Options{Recipes: engine(d), Workers: 1})
			a.want(a.send("PUT", version(other, ucp), `{}`), 200)
			a.want(a.send("PUT", version(app, ucp), withEnv(map[string]any{})), 200)
			if name != "a group" { // nothing outside uses the environment then
				a.want(a.send("PUT", version(other+"/providers/Applications.Core/applications/far", ucp), withEnv(map[string]any{})), 200)
			}
			a.succeed(a.want(a.send("PUT", made("a"), withEnv(map[string]any{"application": app})), 201))
			a.succeed(a.want(a.send("PUT", made("b"), withEnv(map[string]any{})), 201))
			a.succeed(a.want(a.send("PUT", inert("i"), props(map[string]any{})), 201))

			a.succeed(a.want(a.send("DELETE", c.path, nil), 202))
			for _, path := range c.gone {
				if name == "a group" && path != version(group, ucp) {
					continue // answered by the group's absence
				}
				if got := a.send("GET", path, nil); got.status != 404 && got.status != 400 {
					t.Errorf("%s is still there: %d %s", path, got.status, got.raw)
				}
			}
			for _, path := range c.kept {
				if got := a.send("GET", path, nil); got.status != 200 {
					t.Errorf("%s went too: %d %s", path, got.status, got.raw)
				}
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			if len(d.gone) == 0 || len(d.gone) != len(uniqueIDs(d.gone)) {
				t.Errorf("the outputs that were deleted are %v", d.gone)
			}
			if left, err := a.Store.Dependents(t.Context(), useOfDeletions); err != nil || left.Count != 0 {
				t.Errorf("rows of the cascade are left: %v, %v", left, err)
			}
		})
	}
}

// A cascade in which one deletion fails keeps the target and says which.
func TestCascadeFails_D6(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	d := &driver{
		execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
			o := output(run.Owner.Name())
			return recipe.Result{Definition: run.Definition, Outputs: []core.Output{o}}, run.Record(ctx, []core.Output{o}, nil)
		},
		remove: func(_ context.Context, outputs []core.Output) error {
			if outputs[0].ID.Name() == "stuck" && !mended.Load() {
				return core.Errorf(core.CodeRecipeDeletion, "a finalizer holds it")
			}
			return nil
		},
	}
	a := start(t, Options{Recipes: engine(d)})
	a.succeed(a.want(a.send("PUT", made("stuck"), withEnv(map[string]any{})), 201))
	a.succeed(a.want(a.send("PUT", made("free"), withEnv(map[string]any{})), 201))
	end := a.await(a.want(a.send("DELETE", version(envID+"?cascade=true", ucp), nil), 202))
	if end.body["status"] != "Failed" || !strings.Contains(end.raw, "made/stuck") || !strings.Contains(end.raw, "a finalizer holds it") || strings.Contains(end.raw, "made/free") {
		t.Errorf("the cascade ended as %s", end.raw)
	}
	a.want(a.send("GET", version(envID, ucp), nil), 200)
	a.want(a.send("GET", made("stuck"), nil), 200)
	a.want(a.send("GET", made("free"), nil), 404)
	// Mended, the same request goes through.
	mended.Store(true)
	a.succeed(a.want(a.send("DELETE", version(envID+"?cascade=true", ucp), nil), 202))
	a.want(a.send("GET", version(envID, ucp), nil), 404)
}

// A cascade ends although what uses its target is made again each time.
func TestCascadeEnds_D6(t *testing.T) {
	t.Parallel()
	var a *api
	var count atomic.Int32
	d := &driver{
		execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
			o := output(run.Owner.Name())
			return recipe.Result{Definition: run.Definition, Outputs: []core.Output{o}}, run.Record(ctx, []core.Output{o}, nil)
		},
		remove: func(context.Context, []core.Output) error {
			a.await(a.send("PUT", made(fmt.Sprint("again", count.Add(1))), withEnv(map[string]any{})))
			return nil
		},
	}
	a = start(t, Options{Recipes: engine(d)})
	a.succeed(a.want(a.send("PUT", made("first"), withEnv(map[string]any{})), 201))
	end := a.await(a.want(a.send("DELETE", version(envID+"?cascade=true", ucp), nil), 202))
	if n := count.Load(); end.body["status"] != "Failed" || !strings.Contains(end.raw, "made again as fast as it is deleted") || n > 30 {
		t.Errorf("D-6: after %d deletions the cascade is %s", n, end.raw)
	}
	a.want(a.send("GET", version(envID, ucp), nil), 200)
}

var useOfDeletions = store.Use{Type: "System.Resources/deletions"}

func uniqueIDs(ids []core.ID) map[string]bool {
	out := map[string]bool{}
	for _, id := range ids {
		out[id.Key()] = true
	}
	return out
}
