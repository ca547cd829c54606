package azure_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/scope/armtest"
)

// inner is a module that takes a cluster's id and puts a ConfigMap into it; with
// more it hands the id on to a module of its own.
func inner(depth int, namespace string) string {
	more := ""
	if depth > 0 {
		more = fmt.Sprintf(`,"deeper":{"type":"Microsoft.Resources/deployments","apiVersion":"2022-09-01","name":"[concat('deeper%d-', uniqueString(parameters('aks')))]",
			"properties":{"mode":"Incremental","expressionEvaluationOptions":{"scope":"inner"},"parameters":{"aks":{"value":"[parameters('aks')]"}},"template":%s}}`, depth, inner(depth-1, namespace))
	}
	return fmt.Sprintf(`{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","contentVersion":"1.0.0.0","languageVersion":"2.0",
		"parameters":{"aks":{"type":"string","metadata":{"resourceType":"Microsoft.ContainerService/managedClusters@2022-04-01"}}},
		"imports":{"k8s":{"provider":"Kubernetes","version":"1.0.0","config":{"scope":{"type":"AzureResourceManager","id":"[parameters('aks')]"},"namespace":"%s"}}},
		"resources":{"c":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"level%d"},"data":{"a":"b"}}}%s},
		"outputs":{"id":{"type":"string","value":"[parameters('aks')]"}}}`, namespace, depth, more)
}

// TestModules passes a cluster through modules by its id alone, to two clusters
// at once, and deletes what it made by what the result says of it.
func TestModules_S9_S23(t *testing.T) {
	b := newBench(t)
	second := clustertest.Second(t)
	clusters := []*armtest.Cluster{b.arm.AddFront(t, armtest.ClusterID("one"), clustertest.Start(t).Config), b.arm.AddFront(t, armtest.ClusterID("two"), second.Config)}
	namespace := second.Namespace(t, "modules") // the same name in both
	var kept bytes.Buffer                       // everything that is kept or said
	var mu sync.Mutex
	keep := func(v any) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if err := json.NewEncoder(&kept).Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	run := func(text string, owner core.ID) (*deploy.Result, error) {
		t.Helper()
		res, err := deploy.New(deploy.EngineOptions{Resolver: b.newResolver()}).Deploy(t.Context(), deploy.Request{
			Name: "d", Template: []byte(text), Run: "run", Scope: core.MustParseID("/planes/radius/local/resourceGroups/g"), Owner: owner,
			Record: func(_ context.Context, put []core.Output, _ []core.ID) error {
				keep(put)
				return nil
			},
			Progress: func(e deploy.Event) { keep(e) },
		})
		keep(res)
		if err != nil {
			keep(core.AsError(err))
		}
		return res, err
	}
	module := func(name, id string) string {
		return fmt.Sprintf(`"%s":{"type":"Microsoft.Resources/deployments","apiVersion":"2022-09-01","name":"%s","properties":{"mode":"Incremental",
			"expressionEvaluationOptions":{"scope":"inner"},"parameters":{"aks":{"value":"%s"}},"template":%s}}`, name, name, id, inner(1, namespace))
	}
	main := fmt.Sprintf(`{"languageVersion":"2.0","contentVersion":"1.0.0.0","imports":{"k8s":{"provider":"Kubernetes","config":{"scope":{"type":"AzureResourceManager","id":"%s"}}}},
		"resources":{"ns":{"import":"k8s","type":"core/Namespace@v1","properties":{"metadata":{"name":"%s"}}},%s,%s}}`,
		clusters[0].ID(), namespace, module("a", clusters[0].ID()), module("b", clusters[1].ID()))
	res, err := run(main, owner)
	if err != nil {
		t.Fatal(err)
	}
	if n := b.posts(); n != 2 {
		t.Errorf("ARM was asked %d times for two clusters in three levels of modules, want 2: %+v", n, b.arm.Calls())
	}
	if len(res.Resources) != 5 {
		t.Fatalf("%d resources: %+v", len(res.Resources), res.Resources)
	}
	for i, c := range []*clustertest.Cluster{clustertest.Start(t), second} {
		for _, level := range []string{"level0", "level1"} {
			if !exists(t, c.Config, namespace, level) {
				t.Errorf("S-9: %s is not in cluster %d", level, i+1)
			}
		}
	}

	// Long after: only what the result says, new credentials, another engine.
	imports, deleted := map[string]any{}, []any{}
	for _, c := range clusters {
		c.Rotate(t)
	}
	for i, r := range res.Resources {
		if r.Scope == nil || r.Scope.Type != "AzureResourceManager" || r.Identity == nil || r.Identity.UID == "" || r.Identity.ConfigID == "" {
			t.Fatalf("S-15: %+v", r)
		}
		alias := fmt.Sprintf("i%d", i)
		imports[alias] = map[string]any{"provider": "Kubernetes", "config": map[string]any{"scope": map[string]any{"type": r.Scope.Type, "id": r.Scope.ID}}}
		deleted = append(deleted, map[string]any{"import": alias, "id": r.ID, "identity": map[string]any{"uid": r.Identity.UID, "configId": r.Identity.ConfigID}})
	}
	text, err := json.Marshal(map[string]any{"languageVersion": "2.0", "contentVersion": "1.0.0.0", "imports": imports, "resources": map[string]any{}, "deletedResources": deleted})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(string(text), core.ID{}); err != nil {
		t.Fatalf("S-21: %v", err)
	}
	if exists(t, clustertest.Start(t).Config, namespace, "level0") || exists(t, second.Config, namespace, "level1") {
		t.Error("S-21: objects are there after their deletion")
	}

	// A run that fails says no more.
	b.arm.Fail(armtest.Fault{Status: 403, Code: "AuthorizationFailed", Message: "No."})
	if _, err := run(main, owner); err == nil || !strings.Contains(err.Error(), "listClusterAdminCredential") || !strings.Contains(err.Error(), clusters[0].ID()) {
		t.Errorf("S-24: %v", err)
	}
	b.clean("what is kept or said", kept.String())
	if !strings.Contains(kept.String(), clusters[0].ID()) {
		t.Error("nothing was looked at")
	}
}
