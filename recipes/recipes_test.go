package recipes

import (
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/template"
)

// TestLocal checks each recipe as far as that needs no cluster: it parses,
// plans with the context alone, and every object's name is known beforehand.
func TestLocal(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Local() {
		key := r.Type + "/" + r.Name
		if seen[key] {
			t.Errorf("%s stands twice", key)
		}
		seen[key] = true
		tpl, err := template.Parse(r.Content)
		if err != nil {
			t.Errorf("%s: %v", r.File, err)
			continue
		}
		context := map[string]any{
			"resource":    map[string]any{"id": "/planes/radius/local/resourceGroups/g/providers/" + r.Type + "/Db", "name": "Db", "type": r.Type},
			"application": map[string]any{"id": "", "name": ""},
			"environment": map[string]any{"id": "/e", "name": "e"},
			"runtime":     map[string]any{"kubernetes": map[string]any{"namespace": "ns", "environmentNamespace": "env"}},
		}
		for _, p := range tpl.Parameters() {
			if p.Name != "context" && p.Required {
				t.Errorf("%s: the parameter %q has no default", r.File, p.Name)
			}
			if !strings.Contains(string(p.Definition), `"description"`) {
				t.Errorf("%s: the parameter %q has no description", r.File, p.Name)
			}
		}
		plan, err := tpl.Plan(template.Options{Parameters: map[string]any{"context": context}, NewGUID: func() string { return "guid" }})
		if err != nil {
			t.Errorf("%s: %v", r.File, err)
			continue
		}
		for _, res := range plan.Resources {
			props, unknown, err := plan.Known(res)
			if err != nil || len(unknown) > 0 {
				t.Errorf("%s: %s is not known before the deployment: %v, %v", r.File, res.Symbol, unknown, err)
				continue
			}
			if name := props["metadata"].(map[string]any)["name"]; name != plan.Resources[0].Symbol && !strings.Contains(name.(string), "-") {
				t.Errorf("%s: %s has the name %v", r.File, res.Symbol, name)
			}
		}
	}
}
