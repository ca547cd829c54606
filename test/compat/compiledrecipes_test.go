package compat

import (
	"encoding/json"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCompiledRecipes_D30 runs each compiled recipe of the peer for a resource
// of its type, from a registry, in a cluster: once, again, and its end.
func TestCompiledRecipes_D30(t *testing.T) {
	root := checkout(t, "RADIUS_COMPILED", "the peer's repositories with their Bicep compiled")
	all := readCompiled(t)
	r := startReal(t, root)
	files, _ := compiledFilesOf(t, root)
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
			continue // of one name with those for Kubernetes
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
