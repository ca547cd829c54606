package compat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/template"
)

// compiledFiles is testdata/compiled.yaml: how the peer's compiled recipes and
// templates are run, and which are not.
type compiledFiles struct {
	// Recipes by path. One that is not listed is not run, and fails the test.
	Recipes map[string]compiledRecipe `json:"recipes"`
	// Scenarios deploy templates one after another into one group. A template
	// that is in none is a scenario of its own, without parameters but those
	// that the peer's tests give to all.
	Scenarios []struct {
		Environment string         `json:"environment"`
		Steps       []compiledStep `json:"steps"`
	} `json:"scenarios"`
	// NotRun are patterns of paths, and why what fits them is not run.
	NotRun []struct{ Files, Why string } `json:"notRun"`
}

// compiledRecipe says for which resource a recipe runs.
type compiledRecipe struct {
	Type        string         `json:"type"`
	APIVersion  string         `json:"apiVersion"`
	Properties  map[string]any `json:"properties"`
	Parameters  map[string]any `json:"parameters"`
	Application bool           `json:"application"`
	// Fails is a part of the error of one that must not run.
	Fails string `json:"fails"`
	// Answers and Secrets are what the resource has afterwards; without, they
	// are what the template's output names.
	Answers []string `json:"answers"`
	Secrets []string `json:"secrets"`
	// Objects is how many the recipe makes.
	Objects int `json:"objects"`
}

type compiledStep struct {
	File       string         `json:"file"`
	Parameters map[string]any `json:"parameters"`
	// Objects are put into the cluster before, as the peer's test does.
	Objects []map[string]any `json:"objects"`
	// Remakes says that it makes up a password at every run, so that what carries
	// it is another object then.
	Remakes bool `json:"remakes"`
	// Fails is a part of the error of one that is refused; Why says whether it
	// is so with the peer, too ("as the peer"), or why not.
	Fails string `json:"fails"`
	Why   string `json:"why"`
}

func readCompiled(t *testing.T) compiledFiles {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "compiled.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all compiledFiles
	raw = bytes.ReplaceAll(raw, []byte("T/"), []byte("radius/test/functional-portable/"))
	if err := yaml.UnmarshalStrict(raw, &all); err != nil {
		t.Fatalf("compiled.yaml: %v", err)
	}
	return all
}

func (c compiledFiles) notRun(file string) string {
	for _, n := range c.NotRun {
		if regexp.MustCompile("^(" + n.Files + ")$").MatchString(file) {
			return n.Why
		}
	}
	return ""
}

// compiledUnder are the compiled templates below a folder: the JSON files that
// stand beside a Bicep file, and those that the peer keeps without one. Paths
// have slashes and no ending.
func compiledUnder(t *testing.T, root, under string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(filepath.Join(root, under), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		bare := strings.TrimSuffix(p, filepath.Ext(p))
		rel, err := filepath.Rel(root, bare)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch filepath.Ext(p) {
		case ".bicep":
			if _, err := os.Stat(bare + ".json"); err != nil {
				t.Errorf("%s is not compiled", rel)
				return nil
			}
			files = append(files, rel)
		case ".json":
			if _, err := os.Stat(bare + ".bicep"); err == nil {
				return nil
			}
			raw, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			if bytes.Contains(raw, []byte("/deploymentTemplate.json#")) {
				files = append(files, rel)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// compiledFilesOf are the peer's recipes, and all else that is compiled beside
// its tests.
func compiledFilesOf(t *testing.T, root string) (recipes, templates []string) {
	t.Helper()
	for _, under := range []string{"recipes", "radius/test/testrecipes", "radius/test/functional-portable", "radius/pkg", "samples", "resource-types-contrib"} {
		for _, f := range compiledUnder(t, root, under) {
			contributed := strings.HasPrefix(f, "resource-types-contrib/")
			if contributed && strings.Contains(f, "/recipes/") || !contributed && strings.Contains(f, "recipes/") && !strings.Contains(f, "/tests/") {
				recipes = append(recipes, f)
			} else {
				templates = append(templates, f)
			}
		}
	}
	return recipes, templates
}

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

var slug = regexp.MustCompile(`[^a-z0-9]+`)

// TestCompiledTemplates_S13 deploys the templates of the peer's functional
// tests, with what these give them.
func TestCompiledTemplates_S13(t *testing.T) {
	root := checkout(t, "RADIUS_COMPILED", "the peer's repositories with their Bicep compiled")
	all := readCompiled(t)
	r := startReal(t, root)
	recipes, files := compiledFilesOf(t, root)
	r.publishRecipes(root, recipes)
	inScenario := map[string]bool{}
	for _, s := range all.Scenarios {
		for _, step := range s.Steps {
			inScenario[step.File] = true
			if !slices.Contains(files, step.File) {
				t.Errorf("compiled.yaml names %s, which is not there", step.File)
			}
		}
	}
	outcome := map[string]int{}
	run := func(name, environment string, steps []compiledStep) {
		t.Run(name, func(t *testing.T) { r.on(t).scenario(root, name, environment, steps, outcome) })
	}
	for i, s := range all.Scenarios {
		run(fmt.Sprintf("%02d %s", i+1, path.Base(s.Steps[0].File)), s.Environment, s.Steps)
	}
	for _, f := range files {
		if why := all.notRun(f); why != "" {
			outcome["not run"]++
			t.Logf("not run: %s: %s", f, why)
		} else if !inScenario[f] {
			run(f, "", []compiledStep{{File: f}})
		}
	}
	t.Logf("of %d templates: %v", len(files), outcome)
}

// scenario deploys templates one after another into a group of their own.
func (r *real) scenario(root, name, environment string, steps []compiledStep, outcome map[string]int) {
	t := r.t
	group := "/planes/radius/local/resourceGroups/" + strings.Trim(slug.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if len(group) > 100 {
		group = group[:40] + group[len(group)-50:]
	}
	before := r.owned()
	r.must("PUT", group+"?api-version=2023-10-01-preview", map[string]any{})
	for _, step := range steps {
		raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(step.File)+".json"))
		if err != nil {
			t.Fatal(err)
		}
		r.put(step.Objects)
		parameters := r.parameters(raw, group, environment, step.Parameters)
		used := r.spaces(raw, group, parameters)
		raw = r.amended(raw, group, used)
		r.surroundings(group, parameters, used)
		ended, failure := r.deployed(group, raw, parameters)
		switch {
		case step.Fails == "" && ended != "Succeeded":
			t.Errorf("%s ended as %s: %s", step.File, ended, failure)
		case step.Fails != "" && ended == "Succeeded":
			t.Errorf("%s runs: take it out of compiled.yaml (%s)", step.File, step.Why)
		case step.Fails != "" && !strings.Contains(failure, step.Fails):
			t.Errorf("%s is refused, but not by %q: %s", step.File, step.Fails, failure)
		case step.Fails != "":
			outcome["refused ("+step.Why+")"]++
			t.Logf("refused: %s: %s", step.File, step.Why)
		default:
			outcome["ran"]++
			made := r.owned()
			if ended, failure := r.deployed(group, raw, parameters); ended != "Succeeded" {
				t.Errorf("%s ended as %s when it was deployed again: %s", step.File, ended, failure)
			} else if now := r.owned(); !step.Remakes && !maps.Equal(now, made) {
				t.Errorf("%s, deployed again, changed the objects from\n%v to\n%v", step.File, made, now)
			}
		}
	}
	r.clear(group)
	if left := r.owned(); !maps.Equal(left, before) {
		t.Errorf("left in the cluster: %v, before: %v", slices.Sorted(maps.Keys(left)), slices.Sorted(maps.Keys(before)))
	}
}

// clear deletes all that a group holds, and then the group.
func (r *real) clear(group string) {
	r.t.Helper()
	var left string
	for range 6 { // what others need is refused until these are gone
		list := r.request("GET", group+"/resources?api-version=2023-10-01-preview", nil)
		m, _ := list.body.(map[string]any)
		items, _ := m["value"].([]any)
		if list.status != 200 {
			r.t.Fatalf("list %s: %s", group, list.raw)
		}
		if len(items) == 0 {
			r.must("DELETE", group+"?api-version=2023-10-01-preview", nil)
			return
		}
		left = ""
		for _, item := range items {
			o, _ := item.(map[string]any)
			id, _ := o["id"].(string)
			a := r.request("DELETE", id+"?api-version="+r.version(id), nil)
			if a.status >= 300 {
				left += fmt.Sprintf("%s: %d %s\n", id, a.status, a.raw)
			} else if end := r.finish(a); end != "" && end != "Succeeded" {
				left += fmt.Sprintf("%s: %s: %s\n", id, end, r.fetchAbsolute(a.header.Get("Azure-AsyncOperation")))
			}
		}
	}
	r.t.Errorf("not deleted: %s", left)
}

// version is an API version of a resource's type.
func (r *real) version(id string) string {
	parsed, err := core.ParseID(id)
	if err != nil {
		r.t.Fatal(err)
	}
	namespace, name, _ := strings.Cut(parsed.Type(), "/")
	a := r.request("GET", "/planes/radius/local/providers/System.Resources/resourceProviders/"+namespace+"/resourceTypes/"+name+"/apiVersions?api-version=2023-10-01-preview", nil)
	m, _ := a.body.(map[string]any)
	items, _ := m["value"].([]any)
	for _, item := range items {
		o, _ := item.(map[string]any)
		if v, _ := o["name"].(string); v != "" {
			return v
		}
	}
	return "2023-10-01-preview"
}

// put applies objects that a template expects to be there.
func (r *real) put(objects []map[string]any) {
	r.t.Helper()
	for _, o := range objects {
		r.apply(o)
	}
}

// parameters are those that a scenario gives, and those that the peer's tests
// give to every template that declares them.
func (r *real) parameters(raw []byte, group, environment string, given map[string]any) map[string]any {
	r.t.Helper()
	tmpl, err := template.Parse(raw)
	if err != nil {
		return given // the deployment says what is wrong with it
	}
	values := map[string]any{"magpieimage": peerRegistry + "/magpiego:latest", "magpietag": "latest", "registry": peerRegistry, "version": "latest"}
	if tmpl.Declares("environment") && given["environment"] == nil {
		values["environment"] = group + newer
		if environment != "newer" && strings.Contains(string(raw), "@2023-10-01-preview") {
			values["environment"] = group + older
		}
	}
	if tmpl.Declares("application") && given["application"] == nil {
		values["application"] = group + "/providers/Applications.Core/applications/app"
	}
	maps.Copy(values, given)
	out := map[string]any{}
	for name, v := range values {
		if tmpl.Declares(name) {
			out[name] = v
		}
	}
	return out
}

// The environments that scenarios deploy into, of either kind, in their group.
const (
	older = "/providers/Applications.Core/environments/env"
	newer = "/providers/Radius.Core/environments/env"
)

// surroundings makes the environment and the application that a template is
// given, as the peer's command line does, for objects in the namespaces that the
// template uses.
func (r *real) surroundings(group string, parameters map[string]any, used []string) {
	r.t.Helper()
	space := path.Base(group)
	space = strings.Trim(space[max(0, len(space)-50):], "-")
	r.namespace(space)
	application := parameters["application"] == group+"/providers/Applications.Core/applications/app"
	if parameters["environment"] == group+newer {
		r.must("PUT", group+newer+"?api-version=2025-08-01-preview", map[string]any{"properties": map[string]any{
			"providers": map[string]any{"kubernetes": map[string]any{"namespace": space}}, "recipePacks": []any{r.pack(group)}}})
	} else if parameters["environment"] == group+older || application {
		recipes := map[string]any{}
		for typ, file := range map[string]string{"Applications.Datastores/redisCaches": "rediscaches", "Applications.Datastores/mongoDatabases": "mongodatabases",
			"Applications.Datastores/sqlDatabases": "sqldatabases", "Applications.Messaging/rabbitMQQueues": "rabbitmqqueues", "Applications.Dapr/stateStores": "statestores",
			"Applications.Dapr/pubSubBrokers": "pubsubbrokers", "Applications.Dapr/secretStores": "secretstores", "Applications.Dapr/configurationStores": "configurationstores"} {
			recipes[typ] = map[string]any{"default": map[string]any{"templateKind": "bicep", "templatePath": peerRegistry + "/recipes/local-dev/" + file + ":latest"}}
		}
		r.must("PUT", group+older+"?api-version=2023-10-01-preview", map[string]any{"properties": map[string]any{
			"compute": map[string]any{"kind": "kubernetes", "resourceId": "self", "namespace": space}, "recipes": recipes, "allowedNamespaces": used}})
	}
	if application {
		environment := group + older
		if parameters["environment"] == group+newer {
			environment = group + newer
		}
		r.must("PUT", group+"/providers/Applications.Core/applications/app?api-version=2023-10-01-preview", map[string]any{"properties": map[string]any{"environment": environment}})
	}
}

// pack makes the recipe pack that the peer gives to environments without one.
func (r *real) pack(group string) string {
	r.t.Helper()
	recipes := map[string]any{}
	for _, typ := range []string{"Radius.Compute/containers", "Radius.Compute/persistentVolumes", "Radius.Security/secrets", "Radius.Data/mySqlDatabases",
		"Radius.Data/postgreSqlDatabases", "Radius.Data/neo4jDatabases", "Radius.Data/redisCaches", "Radius.Messaging/rabbitMQ", "Radius.Compute/routes"} {
		_, name, _ := strings.Cut(typ, "/")
		recipes[typ] = map[string]any{"kind": "bicep", "source": peerRegistry + "/kube-recipes/" + strings.ToLower(name) + ":latest"}
		if name == "routes" {
			recipes[typ].(map[string]any)["parameters"] = map[string]any{"gatewayName": "radius", "gatewayNamespace": "default"}
		}
	}
	for typ, file := range map[string]string{"Test.Resources/postgres": "dynamicrp_postgress_recipe", "Test.Resources/userTypeAlpha": "dynamicrp_recipe"} {
		recipes[typ] = map[string]any{"kind": "bicep", "source": peerRegistry + "/test/testrecipes/test-bicep-recipes/" + file + ":latest"}
	}
	recipes["Test.Resources/userTypeAlpha"].(map[string]any)["parameters"] = map[string]any{"port": 3000}
	pack := group + "/providers/Radius.Core/recipePacks/pack"
	r.must("PUT", pack+"?api-version=2025-08-01-preview", map[string]any{"properties": map[string]any{"recipes": recipes}})
	return pack
}

// amended gives the environments of a template what the peer gives them: the
// default recipe pack where they name none, as its command line does, and their
// use by the namespaces of the template, of which it does not ask.
func (r *real) amended(raw []byte, group string, used []string) []byte {
	r.t.Helper()
	var whole map[string]any
	if err := json.Unmarshal(raw, &whole); err != nil {
		r.t.Fatal(err)
	}
	changed := false
	var walk func(v any)
	walk = func(v any) {
		m, _ := v.(map[string]any)
		body, _ := m["properties"].(map[string]any)
		properties, _ := body["properties"].(map[string]any)
		switch typ, _ := m["type"].(string); {
		case m["existing"] == true || properties == nil:
		case strings.HasPrefix(typ, "Applications.Core/environments@"):
			properties["allowedNamespaces"], changed = used, true
		case strings.HasPrefix(typ, "Radius.Core/environments@") && properties["recipePacks"] == nil:
			properties["recipePacks"], changed = []any{r.pack(group)}, true
		}
		for _, inner := range m {
			walk(inner)
		}
	}
	walk(whole)
	if !changed {
		return raw
	}
	out, err := json.Marshal(whole)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// spaces makes and answers the namespaces that a template names, as far as they
// are known before it runs.
func (r *real) spaces(raw []byte, group string, parameters map[string]any) []string {
	r.t.Helper()
	used := map[string]bool{}
	tmpl, err := template.Parse(raw)
	if err != nil {
		return []string{}
	}
	p, err := tmpl.Plan(template.Options{Parameters: parameters, Deployment: "spaces", At: group, Now: time.Now(), NewGUID: func() string { return "spaces" }})
	if err != nil {
		return []string{}
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if n, is := v["namespace"].(string); is && label.MatchString(n) {
				r.namespace(n)
				used[n] = true
			}
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	for _, res := range p.Resources {
		if body, _, err := p.KnownBody(res); err == nil {
			walk(template.Export(body))
		}
		if nested, err := p.Nested(res, nil); res.Deployment && err == nil {
			for _, inner := range nested.Resources {
				if body, _, err := nested.KnownBody(inner); err == nil {
					walk(template.Export(body))
				}
			}
		}
	}
	return append([]string{}, slices.Sorted(maps.Keys(used))...)
}

// deployed sends a template as the peer's client does, and returns how it ended
// and what it failed by.
func (r *real) deployed(group string, raw []byte, parameters map[string]any) (state, failure string) {
	r.t.Helper()
	values := map[string]any{}
	for n, v := range parameters {
		values[n] = map[string]any{"value": v}
	}
	target := group + "/providers/Microsoft.Resources/deployments/rad-deploy?api-version=2020-10-01"
	a := r.request("PUT", target, map[string]any{"properties": map[string]any{
		"mode": "Incremental", "template": json.RawMessage(raw), "parameters": values,
		"providerConfig": map[string]any{
			"radius":      map[string]any{"type": "Radius", "value": map[string]any{"scope": group}},
			"deployments": map[string]any{"type": "Microsoft.Resources", "value": map[string]any{"scope": group}},
		}}})
	if a.status >= 300 {
		return "refused", a.raw
	}
	return r.finish(a), r.fetchAbsolute(a.header.Get("Azure-AsyncOperation"))
}

// TestCompiledReasons: what of the peer's compiled files is not run, or refused
// otherwise than by the peer, is explained to readers, too.
func TestCompiledReasons(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	all := readCompiled(t)
	var reasons []string
	for _, n := range all.NotRun {
		reasons = append(reasons, n.Why)
	}
	for _, s := range all.Scenarios {
		for _, step := range s.Steps {
			if step.Fails != "" && step.Why != "as the peer" {
				reasons = append(reasons, step.Why)
			}
		}
	}
	for _, why := range reasons {
		if !strings.Contains(text, why) {
			t.Errorf("docs/compatibility.md does not say %q", why)
		}
	}
}
