package recipe

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
)

func TestFill(t *testing.T) {
	t.Parallel()
	c := Context{
		Resource: ContextResource{ID: "/planes/x", Name: "db", Type: "Radius.Data/things", Properties: map[string]any{"port": 6379, "bytes": 4e6, "size": "M", "list": []any{1}, "none": nil},
			Connections: map[string]ContextConnection{"cache": {Name: "c", Properties: map[string]any{"host": "h"}}}},
		Application: ContextRef{Name: "app"},
		Runtime:     ContextRuntime{Kubernetes: &ContextKubernetes{Namespace: "ns"}},
	}
	for name, test := range map[string]struct{ value, want, fault string }{
		"a name":                        {value: `"{{context.resource.name}}"`, want: `"db"`},
		"keeps its type":                {value: `" {{ context.resource.properties.port }} "`, want: `6379`},
		"a list":                        {value: `"{{context.resource.properties.list}}"`, want: `[1]`},
		"within a text":                 {value: `"{{context.application.name}}-{{context.resource.properties.port}}!"`, want: `"app-6379!"`},
		"a number within a text":        {value: `"{{context.resource.properties.bytes}}B"`, want: `"4000000B"`},
		"nested":                        {value: `{"a":["{{context.runtime.kubernetes.namespace}}"],"b":1}`, want: `{"a":["ns"],"b":1}`},
		"of a connection":               {value: `"{{context.resource.connections.cache.properties.host}}"`, want: `"h"`},
		"a choice":                      {value: `"{{context.resource.properties.size == \"S\" ? \"small\" : context.resource.properties.size == \"M\" ? \"medium\" : \"large\"}}"`, want: `"medium"`},
		"a choice by what is not there": {value: `"{{context.resource.properties.tier == \"S\" ? \"small\" : \"large\"}}"`, want: `"large"`},
		"what is not there":             {value: `"{{context.resource.properties.tier}}"`},
		"what is null":                  {value: `"{{context.resource.properties.none}}"`},
		"below what is not there":       {value: `"{{context.resource.properties.tier.name}}"`},
		"no expression":                 {value: `"{{ is text"`, want: `"{{ is text"`},
		"a wrong name":                  {value: `"{{context.resource.nam}}"`, fault: `the parameter "p": {{context.resource.nam}}: there is no "nam" in "context.resource.nam": known here are connections, id, name, properties, type`},
		"a connection that is not":      {value: `"{{context.resource.connections.db.id}}"`, fault: `there is no "db"`},
		"nothing within a text":         {value: `"a-{{context.resource.properties.tier}}"`, fault: "it has no value, and stands within a text"},
		"below a value":                 {value: `"{{context.resource.name.x}}"`, fault: "is below a value"},
		"half a choice":                 {value: `"{{context.resource.name == \"x\" ? \"y\"}}"`, fault: `":" is missing`},
		"more than a path":              {value: `"{{context.resource.name context}}"`, fault: `unexpected "context"`},
	} {
		var v any
		if err := json.Unmarshal([]byte(test.value), &v); err != nil {
			t.Fatal(err)
		}
		got, err := Fill(map[string]any{"p": v}, c)
		switch {
		case test.fault != "":
			if core.CodeOf(err) != core.CodeRecipeInvalid || !strings.Contains(err.Error(), test.fault) {
				t.Errorf("%s: got %v, want an error with %q", name, err, test.fault)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want == "":
			if _, there := got["p"]; there {
				t.Errorf("%s: it is given as %v", name, got["p"])
			}
		default:
			if raw, _ := json.Marshal(got["p"]); string(raw) != test.want {
				t.Errorf("%s: got %s, want %s", name, raw, test.want)
			}
		}
	}
}
