package template

import (
	"fmt"
	"strings"
	"testing"
)

// What a stack writes into deletedResources: order, identifiers, resources of
// the control plane, and what is let go without a deletion.
func TestDeletedResources_order(t *testing.T) {
	const id = "/planes/Kubernetes/import.namespace/default/type/core%2FConfigMap/properties.metadata.name/"
	entry := func(name, more string) string { return `{"import":"k8s","id":"` + id + name + `"` + more + `}` }
	const cache = "/planes/radius/local/resourceGroups/g/providers/Applications.Datastores/redisCaches/cache"
	p, err := planOf(t, fmt.Sprintf(deletion, "", "", strings.Join([]string{
		entry("a", `,"apiVersion":"v1","dependsOn":["`+id+`b","k8s`+id+`C","`+cache+`"]`),
		entry("b", `,"unmanage":"detach","identifiers":{"x":1}`),
		entry("C", ""),
		`{"id":"` + cache + `","apiVersion":"2023-10-01-preview","dependsOn":["k8s` + id + `b"]}`,
	}, ",")), Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, b, c, r := p.Deleted[0], p.Deleted[1], p.Deleted[2], p.Deleted[3]
	if len(a.DependsOn) != 3 || a.DependsOn[0] != b || a.DependsOn[1] != c || a.DependsOn[2] != r || len(r.DependsOn) != 1 || r.DependsOn[0] != b {
		t.Errorf("dependsOn: %v, %v", a.DependsOn, r.DependsOn)
	}
	if a.Detach || !b.Detach || b.Identifiers["x"] != int64(1) || a.APIVersion != "v1" {
		t.Errorf("%+v, %+v", a, b)
	}
	if r.Extension != nil || r.Resource.Name() != "cache" || r.Type != "Applications.Datastores/redisCaches" || r.APIVersion != "2023-10-01-preview" || r.Text() != cache {
		t.Errorf("%+v", r)
	}
	for name, c := range map[string]struct{ text, want string }{
		"unknown need":      {entry("a", `,"dependsOn":["`+id+`x"]`), "is no entry of deletedResources"},
		"dependsOn a word":  {entry("a", `,"dependsOn":"b"`), "dependsOn must be an array"},
		"unmanage":          {entry("a", `,"unmanage":"keep"`), "unmanage is delete or detach"},
		"member":            {entry("a", `,"uid":"x"`), `has no member "uid"`},
		"no import":         {`{"id":"` + id + `a"}`, "an entry for another one names its import"},
		"twice":             {`{"id":"` + cache + `"},{"id":"` + strings.ToLower(cache) + `"}`, "stands twice"},
		"not an object":     {entry("a", `,"identifiers":"x"`), "identifiers must be an object"},
		"identity no array": {entry("a", `,"identity":[]`), "the identity must be an object"},
	} {
		if _, err := planOf(t, fmt.Sprintf(deletion, "", "", c.text), Options{}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "(line ") {
			t.Errorf("%s: got %v, want %q with a place", name, err, c.want)
		}
	}
}
