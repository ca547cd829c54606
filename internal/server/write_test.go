package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/store"
)

func TestRoutes_D3(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	a.succeed(a.want(a.send("PUT", inert("Blue"), props(map[string]any{"color": "blue"})), 201))

	t.Run("D-3 ids compare without case and keep the case first written", func(t *testing.T) {
		a := &api{a.Instance, t}
		other := strings.ToLower(group) + "/PROVIDERS/test.things/INERT/bLUE"
		got := a.want(a.send("GET", version(other, testVersion), nil), 200)
		if want := group + "/providers/Test.Things/inert/Blue"; got.body["id"] != want || got.body["name"] != "Blue" || got.body["type"] != inertType {
			t.Errorf("id %v, name %v, type %v; want %s", got.body["id"], got.body["name"], got.body["type"], want)
		}
		a.succeed(a.want(a.send("PUT", version(other, testVersion), props(map[string]any{"color": "red"})), 201))
		got = a.want(a.send("GET", inert("Blue"), nil), 200)
		if got.body["name"] != "Blue" || got.prop("color") != "red" {
			t.Errorf("an update by another case answered %s", got.raw)
		}
	})
	t.Run("D-3 lists at plane and group scope", func(t *testing.T) {
		a := &api{a.Instance, t}
		for _, path := range []string{"/planes/radius/local/providers/test.things/inert", group + "/providers/Test.Things/inert"} {
			got := a.want(a.send("GET", version(path, testVersion), nil), 200)
			list, _ := got.body["value"].([]any)
			if len(list) != 1 || dig(list[0], "name") != "Blue" {
				t.Errorf("GET %s answered %s", path, got.raw)
			}
		}
	})
	t.Run("D-3 the prefix of the aggregation layer is optional and kept in links", func(t *testing.T) {
		a := &api{a.Instance, t}
		got := a.want(a.send("PUT", "/APIS/api.ucp.dev/v1alpha3"+inert("Blue"), props(map[string]any{})), 201)
		if link := got.header.Get("Azure-AsyncOperation"); !strings.HasPrefix(link, a.URL+"/APIS/api.ucp.dev/v1alpha3/planes/radius/local/providers/Test.Things/locations/global/operationStatuses/") {
			t.Errorf("Azure-AsyncOperation is %s", link)
		}
		a.succeed(got)
		result := a.send("GET", got.header.Get("Location"), nil)
		a.want(result, http.StatusNoContent)
	})
	t.Run("D-3 PATCH is a JSON merge patch", func(t *testing.T) {
		a := &api{a.Instance, t}
		a.succeed(a.want(a.send("PUT", inert("p"), map[string]any{"tags": map[string]any{"a": "1", "b": "2"}, "properties": map[string]any{
			"color": "blue", "size": "L", "password": "correct horse", "deep": map[string]any{"pin": "1234", "label": "x"}}}), 201))
		a.succeed(a.want(a.send("PATCH", inert("p"), `{"tags":{"a":null,"c":"3"},"properties":{"color":null,"deep":{"label":"y"}}}`, "Content-Type", "application/merge-patch+json"), 202))
		got := a.want(a.send("GET", inert("p"), nil), 200)
		if _, there := got.body["properties"].(map[string]any)["color"]; there || got.prop("size") != "L" || got.prop("deep", "label") != "y" {
			t.Errorf("after the patch: %s", got.raw)
		}
		if mustJSON(got.body["tags"]) != `{"b":"2","c":"3"}` {
			t.Errorf("tags are %v", got.body["tags"])
		}
		secrets := a.want(a.send("POST", version(group+"/providers/"+inertType+"/p/listSecrets", testVersion), `{}`), 200)
		if secrets.body["password"] != "correct horse" || dig(secrets.body, "deep", "pin") != "1234" {
			t.Errorf("a patch that leaves secrets out lost them: %s", secrets.raw)
		}
		a.want(a.send("PATCH", inert("nobody"), `{}`), 404)
	})
	t.Run("D-3 what is not a route says so", func(t *testing.T) {
		a := &api{a.Instance, t}
		if got := a.want(a.send("GET", "/nothing/here", nil), 404); got.code() != "NotFound" {
			t.Errorf("answered %s", got.raw)
		}
		got := a.want(a.send("PATCH", version(group, ucp), `{}`), 405)
		if got.header.Get("Allow") != "GET, PUT, DELETE" || got.code() != "MethodNotAllowed" {
			t.Errorf("Allow %q, body %s", got.header.Get("Allow"), got.raw)
		}
		if got := a.want(a.send("POST", inert("Blue")[:strings.Index(inert("Blue"), "?")]+"/explode?api-version="+testVersion, `{}`), 404); got.code() != "NotFound" {
			t.Errorf("an unknown action answered %s", got.raw)
		}
		if got := a.want(a.send("GET", group+"/providers/"+inertType+"/Blue", nil), 400); got.code() != "InvalidApiVersionParameter" || !strings.Contains(got.message(), testVersion) {
			t.Errorf("without api-version: %s", got.raw)
		}
	})
}

func TestTypes_D1(t *testing.T) {
	t.Parallel()
	t.Run("D-1 a type registered at run time is served at once", func(t *testing.T) {
		a := start(t, Options{})
		path := version(group+"/providers/Late.Comers/guests/g", "2026-01-01")
		if got := a.want(a.send("PUT", path, props(map[string]any{})), 400); got.code() != "InvalidResourceType" {
			t.Fatalf("before it is registered: %s", got.raw)
		}
		a.want(a.send("PUT", version("/planes/radius/local/providers/System.Resources/resourceproviders/Late.Comers/manifest", ucp),
			`{"namespace":"Late.Comers","types":{"guests":{"capabilities":["ManualResourceProvisioning"],"apiVersions":{"2026-01-01":{"schema":{"type":"object","properties":{"seat":{"type":"integer"}}}}}}}}`), 200)
		a.succeed(a.want(a.send("PUT", path, props(map[string]any{"seat": 7})), 201))
		if got := a.want(a.send("GET", path, nil), 200); got.prop("seat") != 7.0 {
			t.Errorf("answered %s", got.raw)
		}
		// It is still there for the next process.
		a.Stop()
		again := &api{startInstance(t, Options{Dir: a.Dir}), t}
		if got := again.want(again.send("GET", path, nil), 200); got.prop("seat") != 7.0 {
			t.Errorf("after a restart: %s", got.raw)
		}
	})
	t.Run("D-1 registration step by step, as the peer's clients do it", func(t *testing.T) {
		a := start(t, Options{})
		base := "/planes/radius/local/providers/System.Resources/resourceproviders/My.Company"
		a.want(a.send("PUT", version(base, ucp), `{"location":"global","properties":{}}`), 200)
		a.want(a.send("PUT", version(base+"/resourcetypes/plans", ucp), `{"properties":{"capabilities":["ManualResourceProvisioning"],"defaultApiVersion":"2026-02-01","description":"Plans."}}`), 200)
		a.want(a.send("PUT", version(base+"/resourcetypes/plans/apiversions/2026-02-01", ucp), `{"properties":{"schema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}`), 200)
		a.want(a.send("PUT", version(base+"/locations/global", ucp), `{"properties":{"resourceTypes":{"plans":{"apiVersions":{"2026-02-01":{}}}}}}`), 200)
		if got := a.want(a.send("GET", version("/planes/radius/local/providers/my.company", ucp), nil), 200); dig(got.body, "resourceTypes", "plans", "defaultApiVersion") != "2026-02-01" {
			t.Errorf("summary: %s", got.raw)
		}
		path := version(group+"/providers/My.Company/plans/x", "2026-02-01")
		a.want(a.send("PUT", path, props(map[string]any{})), 400)
		a.succeed(a.want(a.send("PUT", path, props(map[string]any{"name": "n"})), 201))
		if got := a.want(a.send("DELETE", version(base+"/resourcetypes/plans", ucp), nil), 409); !strings.Contains(got.message(), "/plans/x") {
			t.Errorf("deleting a type in use: %s", got.raw)
		}
		a.succeed(a.want(a.send("DELETE", path, nil), 202))
		a.want(a.send("DELETE", version(base, ucp), nil), 200)
		a.want(a.send("DELETE", version(base, ucp), nil), 204)
		a.want(a.send("GET", version("/planes/radius/local/providers/my.company", ucp), nil), 404)
	})
	t.Run("D-1 a type with a meaning of its own cannot be replaced", func(t *testing.T) {
		a := start(t, Options{})
		got := a.want(a.send("PUT", version("/planes/radius/local/providers/System.Resources/resourceproviders/Applications.Core/manifest", ucp),
			`{"namespace":"Applications.Core","types":{"environments":{"apiVersions":{"2026-01-01":{}}}}}`), 409)
		if !strings.Contains(got.message(), "Applications.Core/environments") {
			t.Errorf("answered %s", got.raw)
		}
	})
}

func TestWrite_D7(t *testing.T) {
	t.Parallel()
	t.Run("D-7 defaults come before validation and plaintext is validated before it is sealed", func(t *testing.T) {
		a := start(t, Options{})
		const secret = "plaintext-needle-7731"
		if got := a.want(a.send("PUT", inert("a"), props(map[string]any{"password": "q7q"})), 400); strings.Contains(got.raw, "q7q") {
			t.Errorf("the refusal shows the value: %s", got.raw)
		}
		a.succeed(a.want(a.send("PUT", inert("a"), props(map[string]any{"password": secret})), 201))
		if got := a.want(a.send("GET", inert("a"), nil), 200); got.prop("size") != "M" {
			t.Errorf("the default was not filled in: %s", got.raw)
		}
		// Every record of the store, and where it is a file, every byte.
		err := a.Store.Export(t.Context(), func(map[store.Kind]int) error { return nil }, func(r store.Record) error {
			raw, err := json.Marshal(r)
			if bytes.Contains(raw, []byte(secret)) {
				t.Errorf("a record of kind %s holds the plaintext", r.Kind())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		a.Stop()
		if onPostgres {
			return
		}
		files, err := filepath.Glob(filepath.Join(a.Dir, "radial.db*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no store in %s: %v", a.Dir, err)
		}
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(raw, []byte(secret)) {
				t.Errorf("%s holds the plaintext", filepath.Base(f))
			}
		}
	})
	t.Run("D-7 resource, operation and job are one transaction", func(t *testing.T) {
		outage := &outage{}
		a := start(t, Options{NoWorkers: true, Wrap: outage.wrap})
		outage.set(true)
		if got := a.want(a.send("PUT", inert("a"), props(map[string]any{})), 503); got.code() != "ServiceUnavailable" || got.header.Get("Retry-After") == "" {
			t.Errorf("answered %s", got.raw)
		}
		outage.set(false)
		a.want(a.send("GET", inert("a"), nil), 404)
		if n, _, err := a.Store.Pending(context.Background()); err != nil || n != 0 {
			t.Errorf("%d operations wait (%v), want none", n, err)
		}
		a.want(a.send("PUT", inert("a"), props(map[string]any{})), 201)
		if n, _, err := a.Store.Pending(context.Background()); err != nil || n != 1 {
			t.Errorf("%d operations wait (%v), want one", n, err)
		}
		r, live, err := a.Store.Get(context.Background(), core.MustParseID(group+"/providers/Test.Things/inert/a"))
		if err != nil || live == nil || live.Verb != core.VerbPut || r.State != core.StateAccepted {
			t.Errorf("stored: %+v with operation %+v, %v", r.State, live, err)
		}
	})
}

// outage stands before a store and answers as one that is away.
type outage struct {
	store.Store
	mu   sync.Mutex
	away bool
}

func (o *outage) wrap(s store.Store) store.Store { o.Store = s; return o }

func (o *outage) set(away bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = away
}

func (o *outage) Accept(ctx context.Context, w store.Write) (core.Resource, error) {
	o.mu.Lock()
	away := o.away
	o.mu.Unlock()
	if away {
		return core.Resource{}, core.Errorf(core.CodeUnavailable, "the store cannot be written: the disk is full")
	}
	return o.Store.Accept(ctx, w)
}

// race lets two creates of "raced" see nothing before either is committed, and
// commits the second one after the operation of the first has ended.
type race struct {
	store.Store
	mu      sync.Mutex
	arrived int
	both    chan struct{}
	after   chan struct{}
}

func (r *race) wrap(s store.Store) store.Store { r.Store = s; return r }

func (r *race) Accept(ctx context.Context, w store.Write) (core.Resource, error) {
	if w.Resource.ID.Name() == "raced" {
		r.mu.Lock()
		r.arrived++
		place := r.arrived
		r.mu.Unlock()
		switch place {
		case 1:
			<-r.both
		case 2:
			close(r.both)
			<-r.after
		}
	}
	return r.Store.Accept(ctx, w)
}

func TestRefusedCreate_D8(t *testing.T) {
	t.Parallel()
	a := start(t, Options{NoWorkers: true})
	for name, body := range map[string]any{
		"a value outside the enum":   props(map[string]any{"size": "XXL"}),
		"a wrong type":               props(map[string]any{"count": "many"}),
		"an unknown property":        props(map[string]any{"colour": "blue"}),
		"a sensitive field too weak": props(map[string]any{"password": "1"}),
		"properties that are a list": `{"properties":[]}`,
		"a body that is no JSON":     `{"properties":`,
		"no body":                    ``,
	} {
		t.Run("D-8 "+name, func(t *testing.T) {
			a := &api{a.Instance, t}
			got := a.want(a.send("PUT", inert("bad"), body), 400)
			if got.code() != "InvalidRequestContent" {
				t.Errorf("code %s: %s", got.code(), got.raw)
			}
			a.want(a.send("GET", inert("bad"), nil), 404)
			if n, _, err := a.Store.Pending(context.Background()); err != nil || n != 0 {
				t.Errorf("%d operations were left (%v)", n, err)
			}
		})
	}
}

func TestRefusedUpdate_D9(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	a.succeed(a.want(a.send("PUT", inert("a"), map[string]any{"tags": map[string]any{"k": "v"}, "properties": map[string]any{"color": "blue", "password": "correct horse"}}), 201))
	before := a.want(a.send("GET", inert("a"), nil), 200)
	refusals := []struct {
		name, method string
		body         any
		header       []string
		status       int
	}{
		{"bad enum", "PUT", props(map[string]any{"size": "XXL"}), nil, 400},
		{"bad secret", "PUT", props(map[string]any{"password": "1"}), nil, 400},
		{"secret sent back as null", "PUT", props(map[string]any{"password": nil}), nil, 400},
		{"bad patch", "PATCH", props(map[string]any{"count": "x"}), nil, 400},
		{"media type", "PUT", "a: b", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
		{"too large", "PUT", `{"properties":{"color":"` + strings.Repeat("x", 1<<20) + `"}}`, nil, 413},
		{"stale tag", "PUT", props(map[string]any{}), []string{"If-Match", `"nonsense"`}, 412},
		{"only if new", "PUT", props(map[string]any{}), []string{"If-None-Match", "*"}, 412},
		{"missing environment", "PUT", props(map[string]any{"environment": group + "/providers/Applications.Core/environments/nowhere"}), nil, 404},
		{"bad connection", "PUT", props(map[string]any{"connections": map[string]any{"db": map[string]any{"source": "not an id"}}}), nil, 400},
		{"someone else's object", "PUT", map[string]any{"owner": owner("default", "one", "u1"), "properties": map[string]any{}}, nil, 409},
	}
	for _, r := range refusals {
		t.Run("D-9 "+r.name, func(t *testing.T) {
			a := &api{a.Instance, t}
			a.want(a.send(r.method, inert("a"), r.body, r.header...), r.status)
			after := a.want(a.send("GET", inert("a"), nil), 200)
			if after.raw != before.raw || after.header.Get("ETag") != before.header.Get("ETag") {
				t.Errorf("changed:\n before %s %s\n after  %s %s", before.header.Get("ETag"), before.raw, after.header.Get("ETag"), after.raw)
			}
		})
	}
	secrets := a.want(a.send("POST", version(group+"/providers/"+inertType+"/a/listSecrets", testVersion), `{}`), 200)
	if secrets.body["password"] != "correct horse" {
		t.Errorf("the secret changed: %s", secrets.raw)
	}
}

func owner(namespace, name, uid string) map[string]any {
	return map[string]any{"cluster": "local", "namespace": namespace, "kind": "Deployment", "name": name, "uid": uid}
}

func TestAnswers_D10(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	follow := func(got answer) {
		t.Helper()
		for _, h := range []string{"Azure-AsyncOperation", "Location", "Retry-After"} {
			if got.header.Get(h) == "" {
				t.Errorf("%s is missing", h)
			}
		}
		if got.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After is %s", got.header.Get("Retry-After"))
		}
		a.succeed(got)
		if after := a.send("GET", got.header.Get("Location"), nil); after.status != 204 {
			t.Errorf("operationResults answered %d after the end", after.status)
		}
	}
	created := a.want(a.send("PUT", inert("a"), props(map[string]any{})), 201)
	if created.prop("provisioningState") != "Accepted" {
		t.Errorf("PUT answered %s", created.raw)
	}
	follow(created)
	follow(a.want(a.send("PUT", inert("a"), props(map[string]any{"color": "red"})), 201))
	follow(a.want(a.send("PATCH", inert("a"), props(map[string]any{"color": "green"})), 202))
	if got := a.want(a.send("GET", inert("a"), nil), 200); got.prop("provisioningState") != "Succeeded" || got.header.Get("ETag") == "" {
		t.Errorf("GET answered %s", got.raw)
	}
	follow(a.want(a.send("DELETE", inert("a"), nil), 202))
	a.want(a.send("GET", inert("a"), nil), 404)
	a.want(a.send("DELETE", inert("a"), nil), 204)

	sync := a.want(a.send("PUT", version(group+"/providers/Applications.Core/applications/app", ucp), props(map[string]any{"environment": envID})), 200)
	if sync.header.Get("Azure-AsyncOperation") != "" || sync.header.Get("ETag") == "" || sync.prop("provisioningState") != "Succeeded" {
		t.Errorf("a synchronous type answered %v %s", sync.header, sync.raw)
	}
	a.want(a.send("DELETE", version(group+"/providers/Applications.Core/applications/app", ucp), nil), 200)
}

// TestDefect9_ConcurrentWriters_D17: of many writers at once one is accepted, one
// recipe runs, and nothing is a 500 (defect 9).
func TestDefect9_ConcurrentWriters_D17(t *testing.T) {
	t.Parallel()
	t.Run("D-17 of fifty first PUTs at once one is accepted and one recipe runs", func(t *testing.T) {
		release := make(chan struct{})
		d := &driver{execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return recipe.Result{Definition: run.Definition, Values: map[string]any{"host": run.Context.Resource.Properties["size"]}}, ctx.Err()
		}}
		a := start(t, Options{Recipes: engine(d)})
		const writers = 50
		answers := make([]answer, writers)
		var begin, ready, wait sync.WaitGroup
		begin.Add(1)
		for i := range writers {
			ready.Add(1)
			wait.Go(func() {
				ready.Done()
				begin.Wait()
				got, err := a.try("PUT", made("one"), props(map[string]any{"environment": envID, "size": fmt.Sprint(i)}))
				if err != nil {
					t.Error(err)
				}
				answers[i] = got
			})
		}
		ready.Wait()
		begin.Done()
		wait.Wait()
		winner := -1
		for i, got := range answers {
			switch {
			case got.status == 201 && winner < 0:
				winner = i
			case got.status == 409 && got.code() == "Conflict" && strings.Contains(got.message(), "The target resource is in progress state: "):
			default:
				t.Errorf("writer %d: %d %s", i, got.status, got.raw)
			}
		}
		if winner < 0 {
			t.Fatal("none was accepted")
		}
		close(release)
		a.succeed(answers[winner])
		if n := d.count(); n != 1 {
			t.Errorf("%d recipes ran, want 1", n)
		}
		if got := a.want(a.send("GET", made("one"), nil), 200); got.prop("size") != fmt.Sprint(winner) || got.prop("host") != fmt.Sprint(winner) {
			t.Errorf("the winner wrote %d, stored is %s", winner, got.raw)
		}
	})
	t.Run("D-17 a first PUT that lost is refused even when the winner has ended", func(t *testing.T) {
		race := &race{both: make(chan struct{}), after: make(chan struct{})}
		a := start(t, Options{Wrap: race.wrap})
		answers := make(chan answer, 2)
		for _, color := range []string{"red", "blue"} {
			go func() {
				got, err := a.try("PUT", inert("raced"), props(map[string]any{"color": color}))
				if err != nil {
					t.Error(err)
				}
				answers <- got
			}()
		}
		winner := <-answers
		a.succeed(a.want(winner, 201))
		close(race.after)
		if got := a.want(<-answers, 409); got.code() != "Conflict" {
			t.Errorf("the loser was answered %s", got.raw)
		}
		if got := a.want(a.send("GET", inert("raced"), nil), 200); got.prop("color") != winner.prop("color") {
			t.Errorf("the winner wrote %v, stored is %s", winner.prop("color"), got.raw)
		}
	})
	t.Run("D-17 a second write meanwhile names the state", func(t *testing.T) {
		a := start(t, Options{NoWorkers: true})
		a.want(a.send("PUT", inert("a"), props(map[string]any{})), 201)
		for _, method := range []string{"PUT", "PATCH", "DELETE"} {
			var body any
			if method != "DELETE" {
				body = props(map[string]any{"color": "red"})
			}
			got := a.want(a.send(method, inert("a"), body), 409)
			if got.code() != "Conflict" || got.message() != "The target resource is in progress state: Accepted." {
				t.Errorf("%s answered %s", method, got.raw)
			}
		}
	})
	t.Run("no update is lost between writers of one resource", func(t *testing.T) {
		a := start(t, Options{})
		const writers = 20
		var wait sync.WaitGroup
		for i := range writers {
			wait.Go(func() {
				got, err := a.try("PATCH", version(envID, ucp), props(map[string]any{"recipes": map[string]any{
					madeType: map[string]any{fmt.Sprintf("r%d", i): map[string]any{"templateKind": "bicep", "templatePath": "x/y:1"}}}}))
				if err != nil || got.status != 200 {
					t.Errorf("writer %d: %v %d %s", i, err, got.status, got.raw)
				}
			})
		}
		wait.Wait()
		got := a.want(a.send("GET", version(envID, ucp), nil), 200)
		recipes, _ := got.prop("recipes", madeType).(map[string]any)
		if len(recipes) != writers+1 {
			t.Errorf("%d recipes are registered, want %d", len(recipes), writers+1)
		}
	})
	t.Run("If-Match lets one of two writers through", func(t *testing.T) {
		a := start(t, Options{})
		tag := a.want(a.send("GET", version(envID, ucp), nil), 200).header.Get("ETag")
		first := a.send("PATCH", version(envID, ucp), props(map[string]any{"simulated": true}), "If-Match", tag)
		second := a.send("PATCH", version(envID, ucp), props(map[string]any{"simulated": false}), "If-Match", tag)
		a.want(first, 200)
		if got := a.want(second, 412); got.code() != "PreconditionFailed" {
			t.Errorf("answered %s", got.raw)
		}
	})
}
