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
// stand beside a Bicep file. Paths have slashes and no ending.
func compiledUnder(t *testing.T, root, under string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(filepath.Join(root, under), func(p string, d fs.DirEntry, err error) error {
		bare, is := strings.CutSuffix(p, ".bicep")
		if err != nil || !is || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, bare)
		if err != nil {
			return err
		}
		if _, err := os.Stat(bare + ".json"); err != nil {
			t.Errorf("%s is not compiled", rel)
			return nil
		}
		files = append(files, filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

var slug = regexp.MustCompile(`[^a-z0-9]+`)

// TestCompiledRecipes_D30 runs each compiled recipe of the peer for a resource
// of its type, from a registry, in a cluster: once, again, and its end.
func TestCompiledRecipes_D30(t *testing.T) {
	root := checkout(t, "RADIUS_COMPILED", "the peer's repositories with their Bicep compiled")
	all := readCompiled(t)
	r := startReal(t, root)
	files := slices.Concat(compiledUnder(t, root, "recipes"), compiledUnder(t, root, "radius/test/testrecipes"))
	for _, f := range compiledUnder(t, root, "resource-types-contrib") {
		if strings.Contains(f, "/recipes/") {
			files = append(files, f)
		}
	}
	r.publishRecipes(root, files)
	listed := maps.Clone(all.Recipes)
	ran := 0
	for _, file := range files {
		spec, is := listed[file]
		delete(listed, file)
		if why := all.notRun(file); why != "" {
			if is {
				t.Errorf("%s is both run and not run", file)
			}
			t.Logf("not run: %s: %s", file, why)
			continue
		}
		if !is {
			t.Errorf("%s is not in compiled.yaml", file)
			continue
		}
		t.Run(file, func(t *testing.T) {
			r.on(t).recipe(root, file, spec)
			ran++
		})
	}
	for file := range listed {
		t.Errorf("compiled.yaml names %s, which is not there", file)
	}
	t.Logf("%d of %d recipes ran", ran, len(files))
}

// on is the plane as a subtest sees it.
func (r *real) on(t *testing.T) *real {
	sub := *r
	p := *r.plane
	p.t = t
	sub.plane = &p
	return &sub
}

// published is the repository that the peer publishes a recipe under.
func published(file string) string {
	switch {
	case strings.HasPrefix(file, "radius/"):
		return strings.TrimPrefix(file, "radius/")
	case strings.HasPrefix(file, "resource-types-contrib/"):
		return "kube-recipes/" + strings.ToLower(strings.Split(file, "/")[2])
	}
	return file
}

func (r *real) publishRecipes(root string, files []string) {
	r.t.Helper()
	for _, f := range files {
		if strings.HasPrefix(path.Base(f), "_") { // a module of another recipe
			continue
		}
		if strings.HasPrefix(f, "resource-types-contrib/") && !strings.Contains(f, "/recipes/kubernetes/") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f)+".json"))
		if err != nil {
			r.t.Fatal(err)
		}
		r.publish(strings.ToLower(published(f)), raw)
	}
}

// recipe runs one recipe.
func (r *real) recipe(root, file string, spec compiledRecipe) {
	t := r.t
	t.Helper()
	name := strings.Trim(slug.ReplaceAllString(strings.ToLower(path.Base(file)), "-"), "-")
	space := "r-" + name
	group := "/planes/radius/local/resourceGroups/" + space
	r.namespace(space)
	version := spec.APIVersion
	if version == "" {
		version = "2023-10-01-preview"
	}
	r.must("PUT", group+"?api-version=2023-10-01-preview", map[string]any{})
	env := group + "/providers/Applications.Core/environments/env"
	if spec.Parameters == nil {
		spec.Parameters = map[string]any{}
	}
	r.must("PUT", env+"?api-version=2023-10-01-preview", map[string]any{"properties": map[string]any{
		"compute": map[string]any{"kind": "kubernetes", "resourceId": "self", "namespace": space},
		"recipes": map[string]any{spec.Type: map[string]any{"default": map[string]any{
			"templateKind": "bicep", "templatePath": peerRegistry + "/" + strings.ToLower(published(file)) + ":latest", "parameters": spec.Parameters}}},
	}})
	properties := map[string]any{"environment": env}
	app := group + "/providers/Applications.Core/applications/app"
	r.must("PUT", app+"?api-version=2023-10-01-preview", map[string]any{"properties": map[string]any{"environment": env}})
	properties["application"] = app
	maps.Copy(properties, spec.Properties)
	id := group + "/providers/" + spec.Type + "/" + name
	target := id + "?api-version=" + version
	before := r.owned()
	put := r.request("PUT", target, map[string]any{"properties": properties})
	if put.status >= 300 {
		t.Fatalf("PUT %s: %d %s", id, put.status, put.raw)
	}
	end := r.finish(put)
	got := r.request("GET", target, nil)
	if spec.Fails != "" {
		ended := r.fetchAbsolute(put.header.Get("Azure-AsyncOperation"))
		if end != "Failed" || !strings.Contains(ended, spec.Fails) {
			t.Errorf("it ended as %s, want an error with %q: %s", end, spec.Fails, ended)
		}
	} else if end != "Succeeded" {
		t.Fatalf("the recipe ended as %s: %s", end, r.fetchAbsolute(put.header.Get("Azure-AsyncOperation")))
	}
	made := r.owned()
	if spec.Fails == "" {
		r.answered(root, file, spec, id, version, got)
		if n := len(made) - len(before); n != spec.Objects {
			t.Errorf("it made %d objects, want %d: %v", n, spec.Objects, slices.Sorted(maps.Keys(made)))
		}
		again := r.request("PUT", target, map[string]any{"properties": properties})
		if end := r.finish(again); end != "Succeeded" {
			t.Errorf("the second run ended as %s: %s", end, r.fetchAbsolute(again.header.Get("Azure-AsyncOperation")))
		}
		if now := r.owned(); !maps.Equal(now, made) {
			t.Errorf("the second run changed the objects from\n%v to\n%v", made, now)
		}
	}
	if end := r.finish(r.must("DELETE", target, nil)); end != "" && end != "Succeeded" {
		t.Errorf("the deletion ended as %s", end)
	}
	if gone := r.request("GET", target, nil); gone.status != 404 {
		t.Errorf("after the deletion: %d %s", gone.status, gone.raw)
	}
	if left := r.owned(); !maps.Equal(left, before) {
		t.Errorf("left in the cluster: %v, before: %v", slices.Sorted(maps.Keys(left)), slices.Sorted(maps.Keys(before)))
	}
}

// fetchAbsolute gets a link that an answer gave.
func (r *real) fetchAbsolute(link string) string {
	if link == "" {
		return "(no operation)"
	}
	return strings.ReplaceAll(r.request("GET", link, nil).raw, `\"`, `"`)
}

// answered holds a resource against the output of its recipe: values are
// properties, secrets are answered by listSecrets alone, resources are recorded.
func (r *real) answered(root, file string, spec compiledRecipe, id, version string, got answer) {
	t := r.t
	t.Helper()
	var tmpl struct {
		Outputs map[string]struct {
			Value any `json:"value"`
		} `json:"outputs"`
	}
	raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)+".json"))
	if err == nil {
		err = json.Unmarshal(raw, &tmpl)
	}
	if err != nil {
		t.Fatal(err)
	}
	result, _ := tmpl.Outputs["result"].Value.(map[string]any)
	names := func(listed []string, member string) []string {
		if listed != nil {
			return listed
		}
		m, _ := result[member].(map[string]any)
		return slices.Sorted(maps.Keys(m))
	}
	body, _ := got.body.(map[string]any)
	properties, _ := body["properties"].(map[string]any)
	for _, n := range names(spec.Answers, "values") {
		if properties[n] == nil {
			t.Errorf("D-30: the value %q is no property of the resource: %s", n, got.raw)
		}
	}
	secrets := r.request("POST", id+"/listSecrets?api-version="+version, map[string]any{})
	m, _ := secrets.body.(map[string]any)
	for _, n := range names(spec.Secrets, "secrets") {
		if m[n] == nil {
			t.Errorf("D-30: listSecrets does not have the secret %q: %s", n, secrets.raw)
		}
		if properties[n] != nil {
			t.Errorf("D-30: the secret %q shows in a GET", n)
		}
	}
	status, _ := properties["status"].(map[string]any)
	outputs, _ := status["outputResources"].([]any)
	resources, _ := result["resources"].([]any)
	if len(resources) > len(outputs) {
		t.Errorf("the template names %d resources, %d are recorded: %s", len(resources), len(outputs), got.raw)
	}
}

// TestCompiledTemplates_S13 deploys the templates of the peer's functional
// tests, with what these give them.
func TestCompiledTemplates_S13(t *testing.T) {
	root := checkout(t, "RADIUS_COMPILED", "the peer's repositories with their Bicep compiled")
	all := readCompiled(t)
	r := startReal(t, root)
	recipes := slices.Concat(compiledUnder(t, root, "recipes"), compiledUnder(t, root, "radius/test/testrecipes"))
	for _, f := range compiledUnder(t, root, "resource-types-contrib") {
		if strings.Contains(f, "/recipes/kubernetes/") {
			recipes = append(recipes, f)
		}
	}
	r.publishRecipes(root, recipes)
	files := slices.Concat(compiledUnder(t, root, "radius/test/functional-portable"), compiledUnder(t, root, "radius/pkg"), compiledUnder(t, root, "samples"))
	for _, f := range compiledUnder(t, root, "resource-types-contrib") {
		if !strings.Contains(f, "/recipes/") {
			files = append(files, f)
		}
	}
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
		raw = r.amended(raw, group)
		parameters := r.parameters(raw, group, environment, step.Parameters)
		r.spaces(raw, group, parameters)
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
		values["environment"] = r.environment(group, environment, strings.Contains(string(raw), "@2023-10-01-preview"))
	}
	if tmpl.Declares("application") && given["application"] == nil {
		values["application"] = r.application(group, values["environment"])
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

// application makes the one that the peer's command line makes for a template.
func (r *real) application(group string, environment any) string {
	r.t.Helper()
	if environment == nil {
		environment = r.environment(group, "older", true)
	}
	app := group + "/providers/Applications.Core/applications/app"
	r.must("PUT", app+"?api-version=2023-10-01-preview", map[string]any{"properties": map[string]any{"environment": environment}})
	return app
}

// environment makes the environment that a scenario deploys into.
func (r *real) environment(group, kind string, older bool) string {
	r.t.Helper()
	space := path.Base(group)
	space = strings.Trim(space[max(0, len(space)-50):], "-")
	r.namespace(space)
	if kind == "older" || kind == "" && older {
		recipes := map[string]any{}
		for typ, file := range map[string]string{"Applications.Datastores/redisCaches": "rediscaches", "Applications.Datastores/mongoDatabases": "mongodatabases",
			"Applications.Datastores/sqlDatabases": "sqldatabases", "Applications.Messaging/rabbitMQQueues": "rabbitmqqueues", "Applications.Dapr/stateStores": "statestores",
			"Applications.Dapr/pubSubBrokers": "pubsubbrokers", "Applications.Dapr/secretStores": "secretstores", "Applications.Dapr/configurationStores": "configurationstores"} {
			recipes[typ] = map[string]any{"default": map[string]any{"templateKind": "bicep", "templatePath": peerRegistry + "/recipes/local-dev/" + file + ":latest"}}
		}
		env := group + "/providers/Applications.Core/environments/env"
		r.must("PUT", env+"?api-version=2023-10-01-preview", map[string]any{"properties": map[string]any{
			"compute": map[string]any{"kind": "kubernetes", "resourceId": "self", "namespace": space}, "recipes": recipes, "allowedNamespaces": []any{"*"}}})
		return env
	}
	env := group + "/providers/Radius.Core/environments/env"
	r.must("PUT", env+"?api-version=2025-08-01-preview", map[string]any{"properties": map[string]any{
		"providers": map[string]any{"kubernetes": map[string]any{"namespace": space}}, "recipePacks": []any{r.pack(group)}}})
	return env
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
// use by every namespace, of which it does not ask.
func (r *real) amended(raw []byte, group string) []byte {
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
			properties["allowedNamespaces"], changed = []any{"*"}, true
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

// spaces makes the namespaces that a template names, as far as they are known
// before it runs.
func (r *real) spaces(raw []byte, group string, parameters map[string]any) {
	r.t.Helper()
	tmpl, err := template.Parse(raw)
	if err != nil {
		return
	}
	p, err := tmpl.Plan(template.Options{Parameters: parameters, Deployment: "spaces", At: group, Now: time.Now(), NewGUID: func() string { return "spaces" }})
	if err != nil {
		return
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if n, is := v["namespace"].(string); is && label.MatchString(n) {
				r.namespace(n)
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
