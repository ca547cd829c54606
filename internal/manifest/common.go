package manifest

import "encoding/json"

// Capabilities of a type.
const (
	// CapabilityManual makes a type inert: its resources are stored and run no
	// recipe.
	CapabilityManual = "ManualResourceProvisioning"
	// CapabilitySynchronous makes writes of a type complete in themselves: PUT
	// answers 200, and nothing runs.
	CapabilitySynchronous = "SynchronousProvisioning"
)

var capabilities = []string{CapabilityManual, CapabilitySynchronous}

// common are the properties that every type knows (D-15), merged into every
// schema.
const common = `{
  "environment": {"type": "string", "description": "Id of the environment."},
  "application": {"type": "string", "description": "Id of the application, absent for a resource that belongs to the environment alone."},
  "connections": {
    "type": "object",
    "description": "What the resource uses, by the connection's name.",
    "additionalProperties": {
      "type": "object",
      "properties": {
        "source": {"type": "string", "description": "Id of the resource that is used."},
        "disableDefaultEnvVars": {"type": "boolean", "description": "Set no environment variables for this connection."}
      },
      "required": ["source"]
    }
  },
  "codeReference": {"type": "string", "description": "Where the code of the resource lies, as a URL."},
  "recipe": {
    "type": "object",
    "description": "The recipe that provisions the resource.",
    "properties": {
      "name": {"type": "string", "description": "Name of a recipe that the environment registers for the type, default when absent."},
      "parameters": {"type": "object", "description": "Parameters that go over those of the recipe and the environment."},
      "recipeStatus": {"type": "string", "readOnly": true}
    }
  },
  "resourceProvisioning": {
    "type": "string", "enum": ["recipe", "manual"],
    "description": "recipe (the default) runs the registered recipe; manual runs none and takes the values as given."
  },
  "resources": {
    "type": "array",
    "description": "What stands behind the resource when it is provisioned manually.",
    "items": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
  }
}`

// reserved are names that a schema may not declare, with the reason.
var reserved = map[string]string{
	"status":               "it is answered by the service",
	"provisioningState":    "it is answered by the service",
	"recipe":               "every type has it",
	"resourceProvisioning": "every type has it",
	"resources":            "every type has it",
}

// anyValue is the schema of any JSON value, for types that take whatever they
// are given.
const anyValue = `{
  "anyOf": [
    {"type": "string", "nullable": true}, {"type": "number"}, {"type": "boolean"}, {"type": "object"},
    {"type": "array", "items": {"$ref": "#/$defs/anyValue"}}
  ]
}`

// withoutSchema is the schema of a type that gives none: anything goes.
const withoutSchema = `{"type": "object", "additionalProperties": {"$ref": "#/$defs/anyValue"}, "$defs": {"anyValue": ` + anyValue + `}}`

// decoded returns a fresh copy of one of the texts above.
func decoded(text string) map[string]any {
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		panic(err) // a constant of this file
	}
	return m
}

// withCommon returns a schema with the common properties merged in, and the
// faults of what it declares itself, by the name of the property. Of a name
// that both declare, the schema's own declaration stands.
func withCommon(schema map[string]any, builtin bool) (map[string]any, map[string]string) {
	if len(schema) == 0 {
		schema = decoded(withoutSchema)
	}
	faults := map[string]string{}
	out := make(map[string]any, len(schema))
	for k, v := range schema {
		out[k] = v
	}
	own, ok := schema["properties"].(map[string]any)
	if !ok && schema["properties"] != nil {
		return out, faults // the schema's own fault
	}
	props := make(map[string]any, len(own)+7)
	for name, s := range own {
		props[name] = s
		if builtin {
			continue
		}
		if why, ok := reserved[name]; ok {
			faults[name] = "may not be declared: " + why
			continue
		}
		m, _ := s.(map[string]any)
		switch name {
		case "environment", "application", "codeReference":
			if m["type"] != "string" {
				faults[name] = "must be of type string, as in every type"
			}
		case "connections":
			if _, isMap := m["additionalProperties"].(map[string]any); m["type"] != "object" || !isMap {
				faults[name] = "must be a map (type object with additionalProperties), as in every type"
			}
		default:
			continue
		}
		if m["x-radius-sensitive"] == true || m["readOnly"] == true {
			faults[name] = "may be neither sensitive nor read-only: Radial works with it"
		}
	}
	for name, s := range decoded(common) {
		if _, declared := props[name]; !declared {
			props[name] = s
		}
	}
	out["properties"] = props
	return out, faults
}
