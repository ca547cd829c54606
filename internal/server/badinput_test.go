package server_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/store"
)

// tenFaults is a manifest with ten faults, each at another place.
const tenFaults = `
namespace: bad
colour: blue
types:
  Upper:
    apiVersions: {2025-01-01: {}}
  one:
    capabilities: [ManualResourceProvisoning]
    defaultApiVersion: 2024-01-01
    apiVersions:
      yesterday: {}
      2025-01-01:
        schema:
          type: object
          properties:
            a: {type: strng}
            b: {type: array}
            c: {$ref: 'https://example.org/c.json'}
            status: {type: string}
          required: [d]
`

// TestBadInput_D22 is every 4xx that a client can get by what it sends: status,
// code, what the message has to say, and what it must not.
func TestBadInput_D22(t *testing.T) {
	t.Parallel()
	running, release := make(chan struct{}, 1), make(chan struct{})
	d := &driver{execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
		running <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return recipe.Result{Definition: run.Definition}, ctx.Err()
	}}
	a := start(t, Options{Recipes: engine(d)})
	a.succeed(a.want(a.send("PUT", inert("there"), props(map[string]any{"size": "S", "password": "stored-needle"})), 201))
	stale := a.want(a.send("GET", inert("there"), nil), 200).header.Get("ETag")
	a.succeed(a.want(a.send("PUT", inert("there"), props(map[string]any{"size": "L", "password": "stored-needle"})), 201))
	busy := a.want(a.send("PUT", made("busy"), withEnv(map[string]any{})), 201)
	<-running
	defer func() { close(release); a.await(busy) }()

	list := group + "/providers/" + inertType
	for i := range 4 {
		a.succeed(a.want(a.send("PUT", inert(fmt.Sprint("page", i)), props(map[string]any{})), 201))
	}
	first := a.want(a.send("GET", version(list+"?top=2", testVersion), nil), 200)
	link, err := url.Parse(first.body["nextLink"].(string))
	if err != nil {
		t.Fatal(err)
	}
	token := link.Query().Get("skipToken")
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	raw[len(raw)-1]++
	paged := func(path, token string) string { return path + "?top=2&skipToken=" + url.QueryEscape(token) }

	for name, c := range map[string]struct {
		method, path string
		body         any
		header       []string
		status       int
		code         string
		says         []string
	}{
		"malformed JSON":                  {"PUT", inert("x"), `{"properties":{"size":"needle`, nil, 400, "InvalidRequestContent", []string{"not valid JSON"}},
		"no JSON object":                  {"PUT", inert("x"), `["needle"]`, nil, 400, "InvalidRequestContent", []string{"JSON object"}},
		"two JSON values":                 {"PUT", inert("x"), `{} {}`, nil, 400, "InvalidRequestContent", []string{"more than one"}},
		"no body":                         {"PUT", inert("x"), ``, nil, 400, "InvalidRequestContent", []string{"no body"}},
		"properties of another kind":      {"PUT", inert("x"), `{"properties":"needle"}`, nil, 400, "InvalidRequestContent", []string{"properties"}},
		"wrong media type of PUT":         {"PUT", inert("x"), `{}`, []string{"Content-Type", "text/plain"}, 415, "UnsupportedMediaType", []string{"text/plain", "application/json"}},
		"wrong media type of PATCH":       {"PATCH", inert("there"), `{}`, []string{"Content-Type", "application/json-patch+json"}, 415, "UnsupportedMediaType", []string{"application/merge-patch+json"}},
		"wrong charset":                   {"PUT", inert("x"), `{}`, []string{"Content-Type", "application/json; charset=latin1"}, 415, "UnsupportedMediaType", []string{"UTF-8"}},
		"wrong media type of a manifest":  {"PUT", version(evolving+"/manifest", ucp), `a: 1`, []string{"Content-Type", "application/toml"}, 415, "UnsupportedMediaType", nil},
		"oversized body":                  {"PUT", inert("x"), `{"properties":{"color":"` + strings.Repeat("needle", 200_000) + `"}}`, nil, 413, "RequestEntityTooLarge", []string{"1048576"}},
		"unknown API version":             {"PUT", version(list+"/x", "1999-01-01"), `{}`, nil, 400, "InvalidApiVersionParameter", []string{"1999-01-01", testVersion}},
		"no API version":                  {"PUT", list + "/x", `{}`, nil, 400, "InvalidApiVersionParameter", []string{testVersion}},
		"unknown type":                    {"PUT", version(group+"/providers/Test.Things/innert/x", testVersion), `{}`, nil, 400, "InvalidResourceType", []string{"Test.Things/innert", "did you mean", inertType}},
		"bad id: an empty segment":        {"GET", version(group+"/providers//inert/x", testVersion), nil, nil, 400, "BadRequest", []string{"empty segment"}},
		"bad id: a control character":     {"GET", version(list+"/a%00b", testVersion), nil, nil, 400, "BadRequest", nil},
		"bad id: a slash in a name":       {"GET", version(list+"/a%2Fb", testVersion), nil, nil, 400, "BadRequest", nil},
		"bad id: a name too long":         {"GET", version(list+"/"+strings.Repeat("n", 300), testVersion), nil, nil, 400, "BadRequest", []string{"300"}},
		"bad plane type":                  {"PUT", version("/planes/gcp/local", ucp), `{}`, nil, 400, "InvalidPlaneType", []string{"gcp"}},
		"a collection is written":         {"PUT", version(list, testVersion), `{}`, nil, 405, "MethodNotAllowed", nil},
		"unknown property":                {"PUT", inert("x"), props(map[string]any{"colr": "needle"}), nil, 400, "InvalidRequestContent", []string{"colr", "color"}},
		"unknown property deeper":         {"PUT", inert("x"), props(map[string]any{"deep": map[string]any{"needle": "v"}}), nil, 400, "InvalidRequestContent", []string{"deep"}},
		"constraint on a sensitive field": {"PUT", inert("x"), props(map[string]any{"password": "needle"}), nil, 400, "InvalidRequestContent", []string{"password", "minLength"}},
		"wrong kind of a sensitive field": {"PUT", inert("x"), props(map[string]any{"keys": map[string]any{"needle-key": 7}}), nil, 400, "InvalidRequestContent", []string{"keys"}},
		"no value of an enum":             {"PUT", inert("x"), props(map[string]any{"size": "needle"}), nil, 400, "InvalidRequestContent", []string{"size", "enum"}},
		"stale ETag":                      {"PUT", inert("there"), props(map[string]any{}), []string{"If-Match", stale}, 412, "PreconditionFailed", []string{"read it again"}},
		"stale ETag of PATCH":             {"PATCH", inert("there"), props(map[string]any{}), []string{"If-Match", stale}, 412, "PreconditionFailed", nil},
		"stale ETag of DELETE":            {"DELETE", inert("there"), nil, []string{"If-Match", stale}, 412, "PreconditionFailed", nil},
		"If-None-Match of what is there":  {"PUT", inert("there"), props(map[string]any{}), []string{"If-None-Match", "*"}, 412, "PreconditionFailed", []string{"exists already"}},
		"If-Match of what is not":         {"PUT", inert("x"), props(map[string]any{}), []string{"If-Match", "*"}, 412, "PreconditionFailed", []string{"does not exist"}},
		"a write during an operation":     {"PUT", made("busy"), withEnv(map[string]any{}), nil, 409, "Conflict", []string{"The target resource is in progress state: Updating."}},
		"a patch during an operation":     {"PATCH", made("busy"), props(map[string]any{}), nil, 409, "Conflict", []string{"Updating"}},
		"a deletion during an operation":  {"DELETE", made("busy"), nil, nil, 409, "Conflict", []string{"Updating"}},
		"paging token tampered":           {"GET", version(paged(list, base64.RawURLEncoding.EncodeToString(raw)), testVersion), nil, nil, 400, "BadRequest", []string{"skipToken"}},
		"paging token cut":                {"GET", version(paged(list, token[:len(token)-2]), testVersion), nil, nil, 400, "BadRequest", []string{"skipToken"}},
		"paging token made up":            {"GET", version(paged(list, "needle"), testVersion), nil, nil, 400, "BadRequest", []string{"skipToken"}},
		"paging token of another list":    {"GET", version(paged(group+"/resources", token), ucp), nil, nil, 400, "BadRequest", []string{"skipToken"}},
		"paging token for operations":     {"GET", version(paged(statuses, token), ucp), nil, nil, 400, "BadRequest", []string{"skipToken"}},
		"a page of no size":               {"GET", version(list+"?top=0", testVersion), nil, nil, 400, "BadRequest", []string{"top"}},
		"a manifest with ten faults":      {"PUT", version(evolving+"/manifest", ucp), tenFaults, []string{"Content-Type", "application/yaml"}, 400, "InvalidRequestContent", nil},
		"a manifest of another namespace": {"PUT", version(evolving+"/manifest", ucp), manifestIn("Other.Things"), nil, 400, "InvalidRequestContent", []string{"Other.Things"}},
		"no such resource":                {"GET", inert("nobody"), nil, nil, 404, "NotFound", []string{"nobody"}},
		"no such group":                   {"PUT", version("/planes/radius/local/resourceGroups/none/providers/"+inertType+"/x", testVersion), props(map[string]any{}), nil, 404, "NotFound", []string{"resource group"}},
		"no such environment":             {"PUT", made("x"), props(map[string]any{"environment": group + "/providers/Applications.Core/environments/none"}), nil, 404, "NotFound", []string{"environments/none", "radial env create"}},
		"an environment that is none":     {"PUT", made("x"), props(map[string]any{"environment": "default"}), nil, 400, "InvalidRequestContent", []string{"properties.environment"}},
		"no environment for a recipe":     {"PUT", version(group+"/providers/Applications.Datastores/redisCaches/x", ucp), props(map[string]any{}), nil, 400, "InvalidRequestContent", []string{"environment"}},
		"a connection to nothing":         {"PUT", inert("x"), props(map[string]any{"connections": map[string]any{"db": map[string]any{"source": "nonsense"}}}), nil, 400, "InvalidRequestContent", []string{"connections"}},
		"no such operation":               {"GET", version(statuses+"/none", ucp), nil, nil, 404, "NotFound", []string{"none"}},
		"no such action":                  {"POST", version(group+"/providers/"+inertType+"/there/explode", testVersion), `{}`, nil, 404, "NotFound", []string{"explode"}},
		"no such route":                   {"GET", "/nothing", nil, nil, 404, "NotFound", nil},
		"another method":                  {"PATCH", version(group, ucp), `{}`, nil, 405, "MethodNotAllowed", []string{"PATCH"}},
		"a group that is not empty":       {"DELETE", version(group, ucp), nil, nil, 409, "Conflict", []string{"still holds"}},
		"a page of another site":          {"GET", inert("there"), nil, []string{"Origin", "https://evil.example"}, 403, "AuthorizationFailed", nil},
	} {
		t.Run("D-22 "+name, func(t *testing.T) {
			a := &api{a.Instance, t}
			got := a.send(c.method, c.path, c.body, c.header...)
			if got.status != c.status || got.code() != c.code || got.message() == "" {
				t.Fatalf("answered %d, want %d %s: %s", got.status, c.status, c.code, got.raw)
			}
			for _, s := range c.says {
				if !strings.Contains(got.raw, s) {
					t.Errorf("the answer does not say %q: %s", s, got.raw)
				}
			}
			if strings.Contains(got.raw, "needle") {
				t.Errorf("the answer shows what was sent: %s", got.raw)
			}
			if name == "a manifest with ten faults" {
				details, _ := dig(got.body, "error", "details").([]any)
				paths := map[string]bool{}
				for _, d := range details {
					path, _ := dig(d, "target").(string)
					paths[path] = true
				}
				if len(details) < 10 || len(paths) < 10 {
					t.Errorf("D-5: %d faults at %d paths are named: %s", len(details), len(paths), got.raw)
				}
			}
		})
	}
	// Nothing of all this left anything.
	if got := a.send("GET", inert("x"), nil); got.status != 404 {
		t.Errorf("D-8: a refused write left %s", got.raw)
	}
	if got := a.want(a.send("GET", inert("there"), nil), 200); got.prop("size") != "L" {
		t.Errorf("D-9: a refused write changed %s", got.raw)
	}
}

func manifestIn(namespace string) string {
	return `{"namespace":"` + namespace + `","types":{"one":{"apiVersions":{"2026-01-01":{}}}}}`
}

// away is a store that does not answer, for reads and writes alike.
type away struct {
	store.Store
	away atomic.Bool
}

func (o *away) wrap(s store.Store) store.Store { o.Store = s; return o }

func (o *away) err() error {
	if o.away.Load() {
		return core.Errorf(core.CodeUnavailable, "the store cannot be reached")
	}
	return nil
}

func (o *away) Get(ctx context.Context, id core.ID) (core.Resource, *core.Operation, error) {
	if err := o.err(); err != nil {
		return core.Resource{}, nil, err
	}
	return o.Store.Get(ctx, id)
}

func (o *away) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := o.err(); err != nil {
		return store.Page{}, err
	}
	return o.Store.List(ctx, q)
}

func (o *away) Operation(ctx context.Context, id string) (core.Operation, error) {
	if err := o.err(); err != nil {
		return core.Operation{}, err
	}
	return o.Store.Operation(ctx, id)
}

func (o *away) Lease(ctx context.Context, l store.Lease) ([]store.Leased, error) {
	if err := o.err(); err != nil {
		return nil, err
	}
	return o.Store.Lease(ctx, l)
}

func (o *away) End(ctx context.Context, e store.Ending) error {
	if err := o.err(); err != nil {
		return err
	}
	return o.Store.End(ctx, e)
}

func TestStoreDown_D22(t *testing.T) {
	t.Parallel()
	running, release := make(chan struct{}, 1), make(chan struct{})
	d := &driver{execute: func(_ context.Context, run recipe.Run) (recipe.Result, error) {
		running <- struct{}{}
		<-release
		return recipe.Result{Definition: run.Definition}, nil
	}}
	kept := &away{}
	a := start(t, Options{Wrap: kept.wrap, Recipes: engine(d)})
	a.succeed(a.want(a.send("PUT", inert("a"), props(map[string]any{})), 201))
	under := a.want(a.send("PUT", made("b"), withEnv(map[string]any{})), 201)
	<-running

	kept.away.Store(true)
	for name, got := range map[string]answer{
		"GET": a.send("GET", inert("a"), nil), "PUT": a.send("PUT", inert("a"), props(map[string]any{})),
		"DELETE": a.send("DELETE", inert("a"), nil), "a list": a.send("GET", version(group+"/providers/"+inertType, testVersion), nil),
		"an operation": a.send("GET", under.header.Get("Azure-AsyncOperation"), nil), "readiness": a.send("GET", "/readyz", nil),
	} {
		if got.status != 503 || got.code() != "ServiceUnavailable" || got.header.Get("Retry-After") == "" {
			t.Errorf("D-22: with the store away %s answers %d %s", name, got.status, got.raw)
		}
	}
	a.want(a.send("GET", "/healthz", nil), 200) // the process is not at fault
	close(release)                              // the recipe ends while its end cannot be stored
	kept.away.Store(false)
	a.want(a.send("GET", "/readyz", nil), 200)
	a.succeed(under)
	a.succeed(a.want(a.send("PUT", inert("a"), props(map[string]any{"size": "L"})), 201))
}

// TestPagesUnderWrites_D23 pages while others create and delete: what was there
// all the time comes once, and nothing comes twice.
func TestPagesUnderWrites_D23(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	const still = 40
	for i := range still {
		a.succeed(a.want(a.send("PUT", inert(fmt.Sprintf("m%03d-still", i)), props(map[string]any{})), 201))
	}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	var writes atomic.Int64
	for w := range 3 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := inert(fmt.Sprintf("m%03d-w%d", (i*7)%still, w))
				for _, method := range []string{"PUT", "DELETE"} {
					got, err := a.try(method, name, props(map[string]any{}))
					if err != nil || got.status >= 500 {
						t.Errorf("D-22: %s: %v %d %s", method, err, got.status, got.raw)
						return
					}
					if link := got.header.Get("Azure-AsyncOperation"); link != "" {
						_, _ = a.try("GET", link, nil, "Prefer", "wait=10")
					}
					writes.Add(1)
				}
			}
		})
	}
	for round := 0; round < 6 || writes.Load() < 20 && round < 2000; round++ {
		seen := map[string]int{}
		for link := version(group+"/providers/"+inertType+"?top=3", testVersion); link != ""; {
			got := a.want(a.send("GET", link, nil), 200)
			for _, r := range got.body["value"].([]any) {
				seen[dig(r, "name").(string)]++
			}
			link, _ = got.body["nextLink"].(string)
		}
		kept := 0
		for name, n := range seen {
			if n != 1 {
				t.Errorf("D-23 round %d: %s came %d times", round, name, n)
			}
			if strings.HasSuffix(name, "still") {
				kept++
			}
		}
		if kept != still {
			t.Errorf("D-23 round %d: %d of %d came", round, kept, still)
		}
	}
	close(stop)
	writers.Wait()
	if writes.Load() < 20 {
		t.Errorf("only %d writes went on beside the pages", writes.Load())
	}
}
