package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/recipe"
)

const (
	ucp   = "2023-10-01-preview"
	group = "/planes/radius/local/resourceGroups/default"
	envID = group + "/providers/Applications.Core/environments/default"
)

// api speaks plain HTTP to a control plane, as a client that is not ours would.
type api struct {
	*Instance
	t *testing.T
}

type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

// send sends one request; body is a string as it is, or a value as JSON.
func (a *api) send(method, path string, body any, header ...string) answer {
	a.t.Helper()
	got, err := a.try(method, path, body, header...)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

func (a *api) try(method, path string, body any, header ...string) (answer, error) {
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		content = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		content = bytes.NewReader(raw)
	}
	target := path
	if strings.HasPrefix(path, "/") {
		target = a.URL + path
	}
	r, err := http.NewRequest(method, target, content)
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	out := answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	if len(raw) > 0 {
		_ = json.Unmarshal(raw, &out.body)
	}
	return out, nil
}

// want fails the test unless the answer has the status.
func (a *api) want(got answer, status int) answer {
	a.t.Helper()
	if got.status != status {
		a.t.Fatalf("status %d, want %d: %s", got.status, status, got.raw)
	}
	return got
}

// code is the error code of an answer.
func (g answer) code() string { s, _ := dig(g.body, "error", "code").(string); return s }

func (g answer) message() string { s, _ := dig(g.body, "error", "message").(string); return s }

func (g answer) prop(path ...string) any {
	return dig(g.body, append([]string{"properties"}, path...)...)
}

func dig(v any, path ...string) any {
	for _, name := range path {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[name]
	}
	return v
}

// await waits for the end of the operation that an answer started, by the
// server's long poll, and returns its status.
func (a *api) await(started answer) answer {
	a.t.Helper()
	link := started.header.Get("Azure-AsyncOperation")
	if link == "" {
		a.t.Fatalf("no operation to follow: %d %s", started.status, started.raw)
	}
	for {
		got := a.want(a.send("GET", link, nil, "Prefer", "wait=30"), 200)
		if core.State(got.body["status"].(string)).Terminal() {
			return got
		}
	}
}

// succeed waits for success.
func (a *api) succeed(started answer) {
	a.t.Helper()
	if got := a.await(started); got.body["status"] != "Succeeded" {
		a.t.Fatalf("the operation ended as %s", got.raw)
	}
}

// version adds the api-version.
func version(path, v string) string {
	if strings.Contains(path, "?") {
		return path + "&api-version=" + url.QueryEscape(v)
	}
	return path + "?api-version=" + url.QueryEscape(v)
}

// Types of the tests' own.
const (
	testVersion = "2025-01-01-preview"
	inertType   = "Test.Things/inert"
	madeType    = "Test.Things/made"
)

const testManifest = `
namespace: Test.Things
types:
  inert:
    capabilities: [ManualResourceProvisioning]
    apiVersions:
      2025-01-01-preview:
        schema:
          type: object
          properties:
            size: {type: string, enum: [S, M, L], default: M}
            color: {type: string}
            count: {type: integer}
            password: {type: string, minLength: 8, x-radius-sensitive: true}
            deep:
              type: object
              properties:
                pin: {type: string, x-radius-sensitive: true}
                label: {type: string}
            keys: {type: object, additionalProperties: {type: string, x-radius-sensitive: true}}
            list: {type: array, items: {type: array, items: {type: object, properties: {token: {type: string, x-radius-sensitive: true}, open: {type: string}}}}}
            whole: {type: object, x-radius-sensitive: true, additionalProperties: {type: string}}
  made:
    apiVersions:
      2025-01-01-preview:
        schema:
          type: object
          properties:
            size: {type: string}
            host: {type: string, readOnly: true}
            port: {type: integer, readOnly: true}
            password: {type: string, x-radius-sensitive: true}
            token: {type: string, readOnly: true, x-radius-sensitive: true}
          required: [environment]
`

// start runs a control plane with the group default, the environment default
// (open to all namespaces, with a recipe for the made type) and the tests' types.
func start(t *testing.T, o Options) *api {
	t.Helper()
	a := &api{Instance: startInstance(t, o), t: t}
	a.want(a.send("PUT", version(group, ucp), `{"location":"global"}`), 200)
	a.want(a.send("PUT", version("/planes/radius/local/providers/System.Resources/resourceproviders/Test.Things/manifest", ucp), testManifest, "Content-Type", "application/yaml"), 200)
	a.want(a.send("PUT", version(envID, ucp), map[string]any{"properties": map[string]any{
		"compute":           map[string]any{"kind": "kubernetes", "namespace": "default"},
		"allowedNamespaces": []string{"*"},
		"recipes": map[string]any{
			madeType:                              map[string]any{"default": map[string]any{"templateKind": "bicep", "templatePath": "test/made:1"}},
			"Applications.Datastores/redisCaches": map[string]any{"default": map[string]any{"templateKind": "bicep", "templatePath": "test/redis:1"}},
		},
	}}), 200)
	return a
}

func inert(name string) string { return version(group+"/providers/"+inertType+"/"+name, testVersion) }
func made(name string) string  { return version(group+"/providers/"+madeType+"/"+name, testVersion) }

func props(v map[string]any) map[string]any { return map[string]any{"properties": v} }

// driver is what a recipe does to the outside, as the test says; everything in
// front of it is real.
type driver struct {
	execute func(context.Context, recipe.Run) (recipe.Result, error)
	remove  func(context.Context, []core.Output) error

	mu   sync.Mutex
	runs []recipe.Run
	gone []core.ID
}

func (d *driver) Execute(ctx context.Context, run recipe.Run) (recipe.Result, error) {
	d.mu.Lock()
	d.runs = append(d.runs, run)
	d.mu.Unlock()
	if d.execute == nil {
		return recipe.Result{Definition: run.Definition}, nil
	}
	return d.execute(ctx, run)
}

func (d *driver) Delete(ctx context.Context, q recipe.Deletion) error {
	if d.remove != nil {
		if err := d.remove(ctx, q.Outputs); err != nil {
			return err
		}
	}
	var drop []core.ID
	for _, o := range q.Outputs {
		drop = append(drop, o.ID)
	}
	d.mu.Lock()
	d.gone = append(d.gone, drop...)
	d.mu.Unlock()
	return q.Record(ctx, nil, drop)
}

func (d *driver) Parameters(context.Context, recipe.Definition) (map[string]json.RawMessage, error) {
	return nil, nil
}

func (d *driver) last(t *testing.T) recipe.Run {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.runs) == 0 {
		t.Fatal("no recipe ran")
	}
	return d.runs[len(d.runs)-1]
}

func (d *driver) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.runs)
}

// engine is the real engine in front of a driver.
func engine(d *driver) *recipe.Engine {
	types := manifest.NewRegistry(manifest.Builtin()...)
	return recipe.NewEngine(recipe.Options{Drivers: map[string]recipe.Driver{"bicep": d}, Canonical: types.Canonical})
}

// output is an output that the scripted driver made.
func output(name string, dependsOn ...core.ID) core.Output {
	return core.Output{
		ID: core.KubernetesID("local", "default", "apps", "Deployment", name), LocalID: name, State: core.OutputMade,
		Managed: true, DependsOn: dependsOn, Handle: json.RawMessage(`{"kind":"bicep"}`),
	}
}

func within(t *testing.T, what string, d time.Duration, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(d):
		t.Fatalf("%s did not happen within %s", what, d)
	}
}

func mustJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprint(err))
	}
	return string(raw)
}
