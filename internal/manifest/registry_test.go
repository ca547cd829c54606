package manifest

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/radial-project/radial/internal/core"
)

func TestCanonical_K12(t *testing.T) {
	r := NewRegistry(Builtin()...)
	for in, want := range map[string]string{
		"Applications.Link/redisCaches":             "Applications.Datastores/redisCaches",
		"applications.link/REDISCACHES":             "Applications.Datastores/redisCaches",
		"applications.datastores/rediscaches":       "Applications.Datastores/redisCaches",
		"Applications.Link/mongoDatabases":          "Applications.Datastores/mongoDatabases",
		"Applications.Link/sqlDatabases":            "Applications.Datastores/sqlDatabases",
		"Applications.Link/rabbitMQMessageQueues":   "Applications.Messaging/rabbitMQQueues",
		"Applications.Link/rabbitMQQueues":          "Applications.Messaging/rabbitMQQueues",
		"Applications.Link/extenders":               "Applications.Core/extenders",
		"Applications.Link/daprStateStores":         "Applications.Dapr/stateStores",
		"Applications.Link/daprPubSubBrokers":       "Applications.Dapr/pubSubBrokers",
		"Applications.Link/daprSecretStores":        "Applications.Dapr/secretStores",
		"Applications.Link/daprConfigurationStores": "Applications.Dapr/configurationStores",
		"Radius.Data/postgresqldatabases":           "Radius.Data/postgreSqlDatabases",
	} {
		if got, ok := r.Canonical(in); !ok || got != want {
			t.Errorf("K-12 %s is %q, want %s", in, got, want)
		}
	}
	if got, ok := r.Canonical("Applications.Link/nothing"); ok {
		t.Errorf("an unknown type is %s", got)
	}
	v, err := r.Lookup("Applications.Link/redisCaches", "2023-10-01-PREVIEW")
	if err != nil || v.Type != "Applications.Datastores/redisCaches" || v.APIVersion != "2023-10-01-preview" {
		t.Errorf("lookup by another name: %+v, %v", v, err)
	}
}

func TestLookupFails_K12(t *testing.T) {
	r := NewRegistry(Builtin()...)
	_, err := r.Lookup("Applications.Datastores/redisCache", "2023-10-01-preview")
	if !core.IsCode(err, core.CodeInvalidResourceType) || !strings.Contains(err.Error(), "did you mean Applications.Datastores/redisCaches") {
		t.Errorf("K-12 a misspelt type: %v", err)
	}
	_, err = r.Lookup("Quite.Different/thingummies", "2023-10-01-preview")
	if !core.IsCode(err, core.CodeInvalidResourceType) || !strings.Contains(err.Error(), "radial resource-type") {
		t.Errorf("a type far from any: %v", err)
	}
	_, err = r.Lookup("applications.datastores/rediscaches", "2020-01-01")
	want := "API version '2020-01-01' for type 'Applications.Datastores/redisCaches' is not supported. The supported api-versions are '2023-10-01-preview'."
	if !core.IsCode(err, core.CodeInvalidAPIVersion) || err.Error() != want {
		t.Errorf("an unknown version: %v", err)
	}
	if got := r.Nearest("applications.link/rediscache"); len(got) == 0 || got[0] != "Applications.Link/redisCaches" {
		t.Errorf("Nearest: %q", got)
	}
}

// TestLayers_D1 registers, overrides and removes types while the process runs.
func TestLayers_D1(t *testing.T) {
	r := NewRegistry(Builtin()...)
	before := r.Types()
	set := func(text string) {
		t.Helper()
		m, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r.Set(m)
	}
	set(`{"namespace":"My.Types","types":{"things":{"capabilities":["ManualResourceProvisioning"],"apiVersions":{"2025-01-01":{},"2025-02-01":{"capabilities":[]}}}}}`)
	one, err := r.Lookup("my.types/THINGS", "2025-01-01")
	if err != nil || one.Type != "My.Types/things" || !one.Inert() || one.Synchronous() {
		t.Fatalf("%+v, %v", one, err)
	}
	two, err := r.Lookup("My.Types/things", "2025-02-01")
	if err != nil || two.Inert() {
		t.Fatalf("capabilities of a version do not replace the type's: %+v, %v", two, err)
	}
	if v, err := r.Default("My.Types/things"); err != nil || v.APIVersion != "2025-02-01" {
		t.Errorf("Default: %+v, %v", v, err)
	}
	// One type of a built-in namespace is registered anew: the others stay.
	set(`{"namespace":"Applications.Datastores","types":{"redisCaches":{"apiVersions":{"2025-01-01":{}}}}}`)
	if _, err := r.Lookup("Applications.Link/redisCaches", "2025-01-01"); err != nil {
		t.Errorf("the registered type by its other name: %v", err)
	}
	if _, err := r.Lookup("Applications.Datastores/mongoDatabases", "2023-10-01-preview"); err != nil {
		t.Errorf("its neighbour: %v", err)
	}
	r.Remove("applications.datastores")
	r.Remove("My.Types")
	if diff := cmp.Diff(before, r.Types()); diff != "" {
		t.Errorf("after removal (-before +after):\n%s", diff)
	}
	if _, err := r.Lookup("Applications.Link/redisCaches", "2023-10-01-preview"); err != nil {
		t.Errorf("the built-in type is not back: %v", err)
	}
	if !r.Builtin("applications.core/CONTAINERS") || r.Builtin("My.Types/things") {
		t.Error("Builtin is wrong")
	}
}

func TestConcurrent(t *testing.T) {
	r := NewRegistry(Builtin()...)
	m, err := Parse([]byte(`{"namespace":"My.Types","types":{"things":{"apiVersions":{"2025-01-01":{}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 200 {
				if i == 0 {
					r.Set(m)
					r.Remove("My.Types")
				}
				if _, err := r.Lookup("Applications.Core/containers", "2023-10-01-preview"); err != nil {
					t.Error(err)
					return
				}
				_, _ = r.Lookup("My.Types/things", "2025-01-01")
			}
		})
	}
	wg.Wait()
}

func TestBuiltinCapabilities(t *testing.T) {
	r := NewRegistry(Builtin()...)
	synchronous := []string{
		"Applications.Core/applications", "Applications.Core/environments", "Microsoft.Resources/deployments",
		"Radial.Services/buckets", "Radial.Services/credentials", "Radial.Services/retiredNames",
		"Radius.Core/applications", "Radius.Core/bicepSettings", "Radius.Core/environments", "Radius.Core/recipePacks", "Radius.Core/terraformSettings", "System.Authorization/roleAssignments",
	}
	inert := append([]string{"Microsoft.Resources/deploymentStacks", "Applications.Core/gateways", "Applications.Core/secretStores", "Applications.Core/volumes",
		"Radial.Services/organizations", "Radial.Services/projects", "Radial.Services/services"}, synchronous...)
	var gotSync, gotInert []string
	for _, name := range r.Types() {
		v, err := r.Default(name)
		if err != nil {
			t.Fatal(err)
		}
		if v.Synchronous() {
			gotSync = append(gotSync, name)
		}
		if v.Inert() {
			gotInert = append(gotInert, name)
		}
	}
	slices.Sort(inert)
	if diff := cmp.Diff(synchronous, gotSync); diff != "" {
		t.Error("synchronous:", diff)
	}
	if diff := cmp.Diff(inert, gotInert); diff != "" {
		t.Error("inert:", diff)
	}
}
