package stack_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/template"
)

var update = flag.Bool("update", false, "write the golden files anew")

// twelve are the resources of two providers in two scopes each.
func twelve() []stack.Managed {
	var list []stack.Managed
	for _, scope := range []string{"/subscriptions/1/c1", "/subscriptions/1/c2"} {
		for _, name := range []string{"a", "b", "c"} {
			list = append(list,
				stack.Managed{Affected: deploy.Affected{
					Scope: &deploy.Scope{Type: "AzureResourceManager", ID: scope}, Extension: "Kubernetes", Version: "1.0.0", Symbol: name, Type: "apps/Deployment", APIVersion: "v1",
					ID:     "/planes/Kubernetes/import.namespace/default/type/apps%2FDeployment/properties.metadata.name/" + name,
					Config: map[string]any{"namespace": "default"}, Identity: &deploy.Identity{ConfigID: "mark of " + scope, UID: "uid of " + name},
				}},
				stack.Managed{Affected: deploy.Affected{
					Scope: &deploy.Scope{Type: "AzureResourceManager", ID: scope}, Extension: "Shop Articles", Version: "2.1", Type: "Article",
					ID:       "/planes/Shop%20Articles/type/Article/properties.name/" + name,
					Identity: &deploy.Identity{ConfigID: "shop"}, Identifiers: json.RawMessage(`{"name":"` + name + `"}`),
				}})
		}
	}
	// b needs a, within its scope; a resource of the control plane needs c.
	key := list[0].Key()
	list[2].DependsOn = []string{key}
	return append(list, stack.Managed{Affected: deploy.Affected{
		ID: "/planes/radius/local/resourceGroups/g/providers/Applications.Datastores/redisCaches/cache", APIVersion: "2023-10-01-preview", DependsOn: []string{list[4].Key()},
	}})
}

func TestReconstruct_S27(t *testing.T) {
	list := twelve()
	got, err := stack.Reconstruct(stackID, list, stack.Delete)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "reconstructed.json")
	if *update {
		if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(want)) {
		t.Errorf("S-27: the template is\n%s\nwant\n%s", got, want)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		again, err := stack.Reconstruct(stackID, list, stack.Delete)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("S-27: in another order the template is another one: %v\n%s", err, again)
		}
	}
	// The language reads it back as what it stands for.
	parsed, err := template.Parse(got)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := parsed.Plan(template.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Extensions) != 4 || len(plan.Resources) != 0 || len(plan.Deleted) != 13 {
		t.Fatalf("S-27: %d imports, %d resources, %d deletions", len(plan.Extensions), len(plan.Resources), len(plan.Deleted))
	}
	needs := 0
	for _, d := range plan.Deleted {
		needs += len(d.DependsOn)
	}
	if needs != 2 {
		t.Errorf("%d dependencies, want 2", needs)
	}
}

func TestReconstruct_faults(t *testing.T) {
	// A record may hold what looks like an expression, a circle, or an unknown
	// resource to depend on: the template is good all the same.
	m := func(name, on string) stack.Managed {
		return stack.Managed{Affected: deploy.Affected{Scope: &deploy.Scope{Type: "Radial", ID: "[x]"}, Extension: "Kubernetes", DependsOn: []string{on},
			ID: "/planes/Kubernetes/import.namespace/default/type/core%2FConfigMap/properties.metadata.name/" + name, Config: map[string]any{"namespace": "[default]"}}}
	}
	a, b := m("a", ""), m("b", "")
	a.DependsOn, b.DependsOn = []string{b.Key(), "nothing"}, []string{a.Key()}
	text, err := stack.Reconstruct(stackID, []stack.Managed{a, b}, stack.Detach)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := template.Parse(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	plan, err := parsed.Plan(template.Options{})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if scope, err := plan.Extensions[0].Scope(plan.Extensions[0].Config); err != nil || scope.ID != "[x]" || plan.Extensions[0].Config["namespace"] != "[default]" {
		t.Errorf("%+v, %v", scope, err)
	}
	if len(plan.Deleted[0].DependsOn)+len(plan.Deleted[1].DependsOn) != 1 || !plan.Deleted[0].Detach || plan.Deleted[0].Identity["owner"] != stackID.String() {
		t.Errorf("%+v", plan.Deleted[0])
	}
}

// The record alone suffices to delete: to a fresh engine, with nothing beside.
func TestRecord_S26(t *testing.T) {
	b := newBench(t)
	b.must(under("k", scoped, "a", "b:a"))
	raw, err := json.Marshal(b.s.record)
	if err != nil {
		t.Fatal(err)
	}
	var copied stack.Record
	if err := json.Unmarshal(raw, &copied); err != nil {
		t.Fatal(err)
	}
	for _, m := range copied.Resources {
		if m.Scope.ID != "/c/1" || m.Identity.ConfigID != "cluster-1" || m.Identity.UID == "" {
			t.Errorf("S-26: %+v", m)
		}
	}
	fresh := newBench(t)
	fresh.w, fresh.s = b.w, &session{record: copied}
	fresh.m = stack.New(stack.Options{Engine: deploy.New(deploy.EngineOptions{Resolver: b.w})})
	out, err := fresh.m.Remove(t.Context(), fresh.s, stack.Removal{Request: fresh.request(""), Unmanage: stack.Delete})
	if err != nil || !out.Removed || fresh.objects() != "" || fresh.calls("delete") != "b a" {
		t.Errorf("S-26: %+v, %v; there %q", out, err, fresh.objects())
	}
}

// The owner of a scope goes after what is inside it.
func TestOrder_S18(t *testing.T) {
	inside := stack.Managed{Affected: deploy.Affected{Scope: &deploy.Scope{Type: "Radial", ID: "/planes/radius/local/resourceGroups/g/providers/Applications.Core/environments/Dev"}, Extension: "Kubernetes",
		ID: "/planes/Kubernetes/import.namespace/z/type/core%2FConfigMap/properties.metadata.name/a"}}
	owner := stack.Managed{Affected: deploy.Affected{ID: "/planes/radius/local/resourceGroups/g/providers/Applications.Core/environments/dev", APIVersion: "2023-10-01-preview"}}
	space := inside
	space.ID = "/planes/Kubernetes/type/core%2FNamespace/properties.metadata.name/z"
	text, err := stack.Reconstruct(stackID, []stack.Managed{owner, inside, space}, stack.Delete)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := template.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := parsed.Plan(template.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	for _, d := range plan.Deleted {
		var on []string
		for _, n := range d.DependsOn {
			on = append(on, n.Name)
		}
		before[d.Name] = strings.Join(on, " ")
	}
	if before["a"] != "dev z" && before["a"] != "z dev" || before["z"] != "dev" || before["dev"] != "" {
		t.Errorf("S-18: %v", before)
	}
}

// userOwned is a template in a cluster whose credentials are a parameter.
func userOwned(resources ...string) string {
	t := under("k", `"namespace":"default","scope":{"type":"UserOwned","kubeConfig":"[parameters('config')]"}`, resources...)
	return strings.Replace(t, `"imports"`, `"parameters":{"config":{"type":"secureString"}},"imports"`, 1)
}

func with(config string) func(*stack.Update) {
	return func(u *stack.Update) { u.Request.Parameters = map[string]any{"config": config} }
}

func supplied(config string) func(*stack.Update) {
	return func(u *stack.Update) {
		u.Request.Secrets = map[string]extension.Secrets{"": {"kubeConfig": config}}
	}
}

func TestUserOwned_S37(t *testing.T) {
	b := newBench(t)
	r := b.must(userOwned("a", "b"), with("config-of-mine"))
	if raw, _ := json.Marshal([]any{b.s.record, b.s.journal}); bytes.Contains(raw, []byte("config-of")) {
		t.Fatalf("S-37: the kubeConfig is kept: %s", raw)
	}
	if raw, _ := json.Marshal(r); bytes.Contains(raw, []byte("config-of")) || !bytes.Contains(raw, []byte(`"fingerprint":"mine"`)) {
		t.Fatalf("S-37: the record is %s", raw)
	}
	// Dropped from a template that still has the cluster: the same parameter serves.
	if b.must(userOwned("a"), with("config-of-mine")); b.objects() != "mine/a" {
		t.Fatalf("S-37: there %q", b.objects())
	}
	out := b.update(of())
	if out.Failure == nil || !strings.Contains(out.Failure.Error(), "kubeConfig") || b.objects() != "mine/a" || managed(out.Record) != "a" || out.Record.Resources[0].Error.Code != extension.CodeCredentialsNeeded {
		t.Fatalf("S-37: not supplied: %v, there %q", out.Failure, b.objects())
	}
	b.w.objects["other/a"] = object{uid: "theirs"}
	out = b.update(of(), supplied("config-of-other"))
	if out.Failure == nil || out.Record.Resources[0].Error.Code != extension.CodeWrongTarget || b.objects() != "mine/a other/a" {
		t.Fatalf("S-38: another cluster's: %v, there %q", out.Failure, b.objects())
	}
	if b.must(of(), supplied("config-of-mine")); b.objects() != "other/a" {
		t.Errorf("S-37: there %q", b.objects())
	}
}

func TestUserOwned_literal_S39(t *testing.T) {
	b := newBench(t)
	out := b.update(under("k", `"namespace":"default","scope":{"type":"UserOwned","kubeConfig":"config-of-mine"}`, "a"))
	if out.Failure == nil || !strings.Contains(out.Failure.Error(), "securestring") || b.objects() != "" || strings.Contains(out.Failure.Error(), "config-of") {
		t.Errorf("S-39: %v", out.Failure)
	}
}
