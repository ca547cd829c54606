package manifest

import (
	"encoding/json"
	"strings"
)

// OpenAPI returns the schema of a type version as an OpenAPI 3 document holds it
// at the pointer at, such as "#/components/schemas/Name": with the common
// properties, references led there, and what OpenAPI does not have said in its
// words.
func (a *APIVersion) OpenAPI(at string) map[string]any {
	var own map[string]any
	if len(a.Schema) > 0 && json.Unmarshal(a.Schema, &own) != nil {
		own = nil // it was checked when it was registered
	}
	merged, _ := withCommon(own, true)
	out, _ := openAPI(merged, at, false).(map[string]any)
	return out
}

// extensions are keywords that hold schemas and that OpenAPI does not know.
var extensions = map[string]string{"$defs": "x-defs", "definitions": "x-definitions"}

// openAPI rewrites a schema. names says that the keys of v are names of
// properties or definitions, not keywords.
func openAPI(v any, at string, names bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, e := range v {
			if names {
				out[key] = openAPI(e, at, false)
				continue
			}
			switch key {
			case "$ref":
				if ref, ok := e.(string); ok {
					out[key] = at + reroot(strings.TrimPrefix(ref, "#"))
					continue
				}
			case "type":
				if e == "any" {
					continue // no type is any
				}
			case "default", "enum", "example":
				out[key] = e // values, not schemas
				continue
			case "properties", "$defs", "definitions":
				if x := extensions[key]; x != "" {
					key = x
				}
				out[key] = openAPI(e, at, true)
				continue
			}
			out[key] = openAPI(e, at, false)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = openAPI(e, at, false)
		}
		return out
	}
	return v
}

// reroot renames the keywords in a pointer that openAPI renames.
func reroot(pointer string) string {
	parts := strings.Split(pointer, "/")
	for i, p := range parts {
		// The keyword stands where no name does: not right behind one of those
		// that hold names.
		if i > 0 && (parts[i-1] == "properties" || extensions[parts[i-1]] != "") {
			continue
		}
		if x := extensions[p]; x != "" {
			parts[i] = x
		}
	}
	return strings.Join(parts, "/")
}
