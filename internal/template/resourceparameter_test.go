package template

import (
	"strings"
	"testing"
)

// TestResourceParameter_S6: the id of another type, or of nothing, is refused
// when the template is planned; so is one that a module is passed.
func TestResourceParameter_S6(t *testing.T) {
	const cluster = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c"
	root := `{"contentVersion":"1.0.0.0","languageVersion":"2.0","parameters":{"aks":{"type":"string"%s,"metadata":{"resourceType":"Microsoft.ContainerService/managedClusters@2022-04-01"}}},"resources":{}}`
	nested := `{"contentVersion":"1.0.0.0","languageVersion":"2.0","parameters":{"id":{"type":"string"}},"resources":{"m":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"m",
	 "properties":{"expressionEvaluationOptions":{"scope":"inner"},"parameters":{"aks":{"value":"[parameters('id')]"}},"template":` + strings.Replace(root, "%s", "", 1) + `}}}}`
	for name, c := range map[string]struct{ text, value, want string }{
		"the type":              {root, cluster, ""},
		"in another case":       {root, strings.ToLower(cluster), ""},
		"another type":          {root, "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/x", `of type Microsoft.ContainerService/managedClusters, and is that of a Microsoft.Storage/storageAccounts`},
		"a child of it":         {root, cluster + "/agentPools/p", "and is that of a Microsoft.ContainerService/managedClusters/agentPools"},
		"no id":                 {root, "c", "and is no id of a resource"},
		"half an id":            {root, "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters", "and is no id of a resource"},
		"through a module":      {nested, "/subscriptions/s/providers/A.B/c/d", "and is that of a A.B/c"},
		"through a module, too": {nested, cluster, ""},
	} {
		parsed, err := Parse([]byte(strings.Replace(c.text, "%s", "", 1)))
		if err != nil {
			t.Fatal(err)
		}
		params := map[string]any{"aks": c.value}
		if c.text == nested {
			params = map[string]any{"id": c.value}
		}
		p, err := parsed.Plan(Options{Parameters: params})
		if err == nil && c.text == nested {
			_, err = p.Nested(p.Resources[0], nil)
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("S-6 %s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("S-6 %s: got %v, want an error with %q", name, err, c.want)
		}
	}
}
