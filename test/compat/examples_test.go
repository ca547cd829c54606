package compat

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/servertest"
)

// example is one recorded example of an API description: an operation, what is
// sent, and what is answered.
type example struct {
	OperationID string         `json:"operationId"`
	Parameters  map[string]any `json:"parameters"`
	Responses   map[string]struct {
		Body any `json:"body"`
	} `json:"responses"`

	method, path string // of the API description
	pair         string
	// made is a resource of the same type, as another example shows it.
	made map[string]any
}

// readExamples reads the examples beside every API description below dir.
func readExamples(t *testing.T, dir string) []example {
	t.Helper()
	specs, err := filepath.Glob(filepath.Join(dir, "*", "resource-manager", "*", "*", "*", "openapi.json"))
	if err != nil || len(specs) == 0 {
		t.Fatalf("no API descriptions below %s: %v", dir, err)
	}
	var all []example
	for _, spec := range specs {
		var doc struct {
			Paths map[string]map[string]struct {
				OperationID string `json:"operationId"`
			} `json:"paths"`
		}
		raw, err := os.ReadFile(spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &doc); err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		type route struct{ method, path string }
		routes := map[string]route{}
		for path, methods := range doc.Paths {
			for method, op := range methods {
				routes[strings.ToLower(op.OperationID)] = route{strings.ToUpper(method), path}
			}
		}
		version := filepath.Dir(spec)
		namespace := filepath.Base(filepath.Dir(filepath.Dir(version)))
		files, err := filepath.Glob(filepath.Join(version, "examples", "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			var e example
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(raw, &e); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			r := routes[strings.ToLower(e.OperationID)]
			e.method, e.path = r.method, r.path
			e.pair = "examples/" + namespace + "/" + filepath.Base(version) + "/" + strings.TrimSuffix(filepath.Base(file), ".json")
			all = append(all, e)
		}
	}
	for i := range all {
		e := &all[i]
		_, of, _ := strings.Cut(e.path, "/providers/")
		of, _, _ = strings.Cut(of, "/{")
		for _, other := range all {
			_, body := other.best()
			if r := resources(body); len(r) > 0 && e.made == nil && of != "" && (other.method == "PUT" || other.method == "GET") && strings.Contains(other.path+"/", "/providers/"+of+"/") {
				e.made = r[0]
			}
		}
	}
	return all
}

var placeholder = regexp.MustCompile(`\{([^}]+)\}`)

// target is the path and query of the example's request.
func (e example) target() string {
	path := placeholder.ReplaceAllStringFunc(e.path, func(p string) string {
		for name, v := range e.Parameters {
			if text, ok := v.(string); ok && strings.EqualFold(name, p[1:len(p)-1]) {
				return text
			}
		}
		return p
	})
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return strings.ReplaceAll(path, "//", "/") + "?api-version=" + e.version()
}

func (e example) version() string {
	v, _ := e.Parameters["api-version"].(string)
	return v
}

// sent is the body: the one parameter that is an object.
func (e example) sent() map[string]any {
	for _, name := range sorted(e.Parameters) {
		if body, ok := e.Parameters[name].(map[string]any); ok {
			return body
		}
	}
	return nil
}

// best is the recorded answer of success: the first that has a body.
func (e example) best() (int, any) {
	status := 0
	for _, code := range slices.Sorted(maps.Keys(e.Responses)) {
		n, err := strconv.Atoi(code)
		if err != nil || n >= 300 {
			continue
		}
		if body := e.Responses[code].Body; body != nil {
			return n, body
		}
		if status == 0 {
			status = n
		}
	}
	return status, nil
}

// resources are the resources in a recorded body: the body itself, or a list's.
func resources(body any) []map[string]any {
	object, _ := body.(map[string]any)
	if list, ok := object["value"].([]any); ok {
		var out []map[string]any
		for _, e := range list {
			if r, ok := e.(map[string]any); ok {
				out = append(out, r)
			}
		}
		return out
	}
	if _, ok := object["id"].(string); ok {
		return []map[string]any{object}
	}
	return nil
}

var (
	groupID  = regexp.MustCompile(`(?i)^(/planes/radius/local/resourcegroups/[^/]+)`)
	parentID = regexp.MustCompile(`(?i)^(/planes/radius/local/resourcegroups/[^/]+)/providers/(Applications\.Core|Radius\.Core)/(environments|applications)/([^/]+)$`)
)

// prepare makes what an example takes for granted: the groups, environments and
// applications that it names, but the one that the request itself makes.
func (p *plane) prepare(e example, own string) {
	p.t.Helper()
	if strings.Contains(e.pair, "/Test.Resource/") {
		version := strings.Split(e.pair, "/")[2] // of the API description
		m := `{"namespace":"Test.Resource","types":{` +
			`"testAsyncResources":{"capabilities":["ManualResourceProvisioning"],"apiVersions":{"` + version + `":{}}},` +
			`"testSyncResources":{"capabilities":["SynchronousProvisioning"],"apiVersions":{"` + version + `":{}}}}}`
		p.must("PUT", "/planes/radius/local/providers/System.Resources/resourceProviders/Test.Resource/manifest"+ucpVersion, []byte(m))
	}
	switch {
	case strings.HasSuffix(e.pair, "Summary"), strings.HasSuffix(e.pair, "Summaries"):
		p.must("PUT", testProvider+ucpVersion, map[string]any{"location": "global", "properties": map[string]any{}})
		p.must("PUT", testType+ucpVersion, map[string]any{"properties": map[string]any{"defaultApiVersion": "2025-01-01"}})
		p.must("PUT", testLocation+ucpVersion, map[string]any{"properties": map[string]any{}})
	case strings.Contains(e.pair, "/UCP/") && e.Parameters["resourceProviderName"] == "Applications.Test" && !strings.HasSuffix(strings.ToLower(own), "/applications.test"):
		p.must("PUT", testProvider+ucpVersion, map[string]any{"location": "global", "properties": map[string]any{}})
		if !strings.HasSuffix(own, "/testResources") && !strings.Contains(e.pair, "/Locations_") {
			p.must("PUT", testType+ucpVersion, map[string]any{"properties": map[string]any{"defaultApiVersion": "2025-01-01"}})
		}
	}
	ids := map[string]bool{}
	var collect func(v any)
	collect = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, k := range sorted(v) {
				collect(v[k])
			}
		case []any:
			for _, x := range v {
				collect(x)
			}
		case string:
			ids[v] = true
		}
	}
	collect(e.Parameters)
	_, body := e.best()
	collect(body)
	if e.method == http.MethodDelete || e.method == http.MethodPost {
		collect(e.made)
	}
	ids[own] = true
	var environments, applications []string
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if g := groupID.FindString(id); g != "" && !strings.EqualFold(g, own) && !strings.Contains(e.pair, "/ResourceGroups_") {
			p.must("PUT", g+ucpVersion, map[string]any{"location": "global"})
		}
		m := parentID.FindStringSubmatch(id)
		switch {
		case m == nil || strings.EqualFold(id, own):
		case strings.EqualFold(m[3], "environments"):
			environments = append(environments, id)
		default:
			applications = append(applications, id)
		}
	}
	for _, id := range environments {
		body := map[string]any{"location": "global", "properties": map[string]any{}}
		if strings.Contains(strings.ToLower(id), "applications.core") {
			body["properties"] = map[string]any{"compute": map[string]any{"kind": "kubernetes", "namespace": "default"}}
		}
		p.must("PUT", id+versionOf(id), body)
	}
	for _, id := range applications {
		environment := servertest.EnvironmentID("default")
		if len(environments) > 0 {
			environment = environments[0]
		}
		p.must("PUT", id+versionOf(id), map[string]any{"location": "global", "properties": map[string]any{"environment": environment}})
	}
}

func versionOf(id string) string {
	if strings.Contains(strings.ToLower(id), "/radius.core/") {
		return "?api-version=2025-08-01-preview"
	}
	return ucpVersion
}

// seed makes a resource as a recorded answer shows it, so that it can be read,
// changed or deleted. What its type declares read-only is what its recipe
// returned. It returns the answer of a refused PUT.
func (p *plane) seed(e example, r map[string]any, version string) (answer, bool) {
	p.t.Helper()
	id, _ := r["id"].(string)
	if !strings.HasPrefix(strings.ToLower(id), "/planes/radius/local/") {
		return answer{}, true
	}
	body := map[string]any{"location": "global"}
	for _, name := range []string{"location", "tags", "properties"} {
		if v, ok := r[name]; ok {
			body[name] = v
		}
	}
	a := p.request("PUT", id+"?api-version="+version, body)
	if a.status >= 300 {
		return a, false
	}
	p.finish(a)
	return a, true
}

// TestRecordedExamples_D3_D10 plays every example of the API descriptions.
//
// A PUT or PATCH is sent as recorded; the status must be a recorded one, and
// the resource that is read once the operation has ended must be the recorded
// one. For a GET, a list, an action or a DELETE the recorded resource is made
// first. Recipes return what the recorded answer shows and the request does
// not give.
func TestRecordedExamples_D3_D10(t *testing.T) {
	examples := readExamples(t, filepath.Join(radius(t), "swagger", "specification"))
	t.Logf("%d examples", len(examples))
	ledger := openLedger(t, "examples")
	t.Run("D-3 D-10", func(t *testing.T) {
		for _, e := range examples {
			t.Run(strings.TrimPrefix(e.pair, "examples/"), func(t *testing.T) {
				t.Parallel()
				if e.method == "" {
					t.Fatalf("operation %s is not in the API description", e.OperationID)
				}
				ledger.judge(t, e.play(start(t)))
			})
		}
	})
	ledger.close(t)
}

func (e example) play(p *plane) (found []difference) {
	report := func(d difference) { found = append(found, d) }
	status := func(what string, a answer, recorded string) []difference {
		return append(found, difference{e.pair, "status", "differs at " + what + ": recorded is " + recorded + ", ours is " + itoa(a.status) + " " + a.errorCode() + " " + brief(a.raw)})
	}
	target := e.target()
	own := strings.TrimSuffix(target, query(target))
	before := map[string]bool{}
	if e.method == http.MethodGet && !strings.HasPrefix(target, "/planes/radius?") && !strings.HasPrefix(target, "/planes?") {
		before = p.present(target)
	}
	p.prepare(e, own)
	_, want := e.best()
	want = withoutSystemData(want)
	values := given(want, e.sent())
	p.Recipes.OnExecute(func(_ context.Context, r recipe.Request) (recipe.Result, error) {
		return recipe.Result{Values: values[r.Resource.ID.Key()]}, nil
	})
	sent := e.sent()
	if e.method != http.MethodPut {
		var made []map[string]any
		switch {
		case e.method == http.MethodGet:
			made = resources(want)
		case e.method == http.MethodPatch:
			made = resources(want)
		default: // DELETE and actions: a resource as another example shows it
			id := own
			if e.method == http.MethodPost {
				id = strings.TrimSuffix(own, "/"+lastSegment(own))
			}
			if e.made != nil {
				r := maps.Clone(e.made)
				r["id"] = id
				if secrets, ok := want.(map[string]any); ok && e.method == http.MethodPost {
					props, _ := r["properties"].(map[string]any)
					props = maps.Clone(props)
					if _, manual := props["resources"]; manual && props["recipe"] == nil {
						props["secrets"] = secrets
					}
					r["properties"] = props
				}
				made = []map[string]any{r}
			}
			if secrets, ok := want.(map[string]any); ok && e.method == http.MethodPost {
				p.Recipes.OnExecute(func(context.Context, recipe.Request) (recipe.Result, error) {
					return recipe.Result{Secrets: secrets}, nil
				})
			}
		}
		for _, r := range made {
			if a, ok := p.seed(e, r, e.version()); !ok {
				return status("PUT that makes it", a, "success")
			}
		}
	}
	var body any
	if sent != nil {
		body = sent
	} else if e.method == http.MethodPost {
		body = map[string]any{}
	}
	a := p.request(e.method, target, body)
	if _, ok := e.Responses[itoa(a.status)]; !ok && !(a.status < 300 && len(e.Responses) == 0) {
		return status(e.method, a, strings.Join(slices.Sorted(maps.Keys(e.Responses)), ", "))
	}
	if end := p.finish(a); end != "" && end != "Succeeded" {
		return append(found, difference{e.pair, "operation", "differs, recorded is Succeeded, ours is " + end})
	}
	if want == nil {
		return found
	}
	got := a.body
	if e.method == http.MethodPut || e.method == http.MethodPatch {
		got = p.request("GET", target, nil).body
	}
	compare(e.pair, "$", want, without(withoutSystemData(got), before), report)
	return found
}

func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func brief(s string) string {
	if len(s) > 300 {
		return s[:300] + "…"
	}
	return s
}

// given are, by resource, the properties that a recorded answer shows and its
// request does not give: what the recipe returned.
func given(want any, sent map[string]any) map[string]map[string]any {
	out := map[string]map[string]any{}
	sentProps, _ := sent["properties"].(map[string]any)
	for _, r := range resources(want) {
		props, _ := r["properties"].(map[string]any)
		id, _ := r["id"].(string)
		values := map[string]any{}
		for name, v := range props {
			if _, ok := sentProps[name]; ok || slices.Contains([]string{"status", "provisioningState", "recipe", "environment", "application", "connections", "resourceProvisioning", "resources", "secrets"}, name) {
				continue
			}
			values[name] = v
		}
		out[strings.ToLower(id)] = values
	}
	return out
}
