package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBadInput: what a developer or an operator gets wrong is said where they look for it, with what to do, and mends
// itself when the cause goes: nobody touches the Recipe again.
func TestBadInput(t *testing.T) {
	i := newInstallation(t)
	const redis = "Applications.Datastores/redisCaches"
	good := "file://" + filepath.Join(i.dir, "recipes", "redis.json")
	recipe := func(t *testing.T, name, spec string) {
		t.Helper()
		i.kubectl(t, fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: wrong}
---
apiVersion: radapp.io/v1alpha3
kind: Recipe
metadata: {name: %s, namespace: wrong}
spec: %s
`, name, spec), "apply", "-f", "-")
	}

	t.Run("an unknown type", func(t *testing.T) {
		recipe(t, "type", `{type: My.Company/queues}`)
		i.says(t, "wrong", "type", "False", "My.Company/queues")
		manifest := filepath.Join(t.TempDir(), "types.yaml")
		if err := os.WriteFile(manifest, []byte("namespace: My.Company\ntypes:\n  queues:\n    capabilities: [ManualResourceProvisioning]\n    apiVersions: {2026-01-01-preview: {schema: {type: object, properties: {}}}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		i.must(t, "resource-type", "create", "-f", manifest)
		i.ready(t, "wrong", "type")
	})

	t.Run("an environment that does not exist, then one that is closed", func(t *testing.T) {
		recipe(t, "environment", `{type: `+redis+`, environment: prod}`)
		i.says(t, "wrong", "environment", "False", "prod")
		i.must(t, "env", "create", "prod")
		i.must(t, "recipe", "register", "default", "-e", "prod", "--resource-type", redis, "--template-path", good)
		i.says(t, "wrong", "environment", "False", "wrong", "radial env update prod --allow-namespace wrong")
		i.must(t, "env", "update", "prod", "--allow-namespace", "wrong")
		i.ready(t, "wrong", "environment")
	})

	t.Run("a recipe that is not registered", func(t *testing.T) {
		recipe(t, "unregistered", `{type: `+redis+`, recipe: small}`)
		i.says(t, "wrong", "unregistered", "False", `"small"`, "radial recipe register")
		i.must(t, "recipe", "register", "small", "--resource-type", redis, "--template-path", good)
		i.ready(t, "wrong", "unregistered")
	})

	t.Run("a template with a fault", func(t *testing.T) {
		template := filepath.Join(t.TempDir(), "faulty.json")
		raw, err := os.ReadFile(strings.TrimPrefix(good, "file://"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(template, []byte(strings.ReplaceAll(string(raw), "variables('host')", "variables('hots')")), 0o600); err != nil {
			t.Fatal(err)
		}
		i.must(t, "recipe", "register", "faulty", "--resource-type", redis, "--template-path", "file://"+template)
		recipe(t, "template", `{type: `+redis+`, recipe: faulty}`)
		i.says(t, "wrong", "template", "False", "hots")
		if err := os.WriteFile(template, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		i.ready(t, "wrong", "template")
	})

	t.Run("a registry that cannot be reached", func(t *testing.T) {
		i.must(t, "recipe", "register", "remote", "--resource-type", redis, "--template-path", "127.0.0.1:1/recipes/redis:1", "--plain-http")
		recipe(t, "registry", `{type: `+redis+`, recipe: remote}`)
		i.says(t, "wrong", "registry", "False", "127.0.0.1:1")
		i.must(t, "recipe", "register", "remote", "--resource-type", redis, "--template-path", good)
		i.ready(t, "wrong", "registry")
	})

	t.Run("a misspelt annotation", i.misspelt)
	t.Run("K-28 a wait for what kubectl cannot see", i.waits)
}
