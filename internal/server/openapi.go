package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
)

// openAPIPath is where the document of the aggregated group lies.
const openAPIPath = "/openapi/v3" + arm.Prefix

// openAPIIndex answers /openapi/v3: the document; to the Kubernetes API server,
// which reads such an index of every API behind it, where that lies.
func (s *Server) openAPIIndex(w http.ResponseWriter, r *arm.Request) error {
	doc, sum, err := s.openAPI()
	if err != nil {
		return err
	}
	if aggregator(r) {
		return arm.WriteJSON(w, http.StatusOK, map[string]any{"paths": map[string]any{
			strings.TrimPrefix(arm.Prefix, "/"): map[string]string{"serverRelativeURL": openAPIPath + "?hash=" + sum},
		}})
	}
	return writeOpenAPI(w, r, doc, sum)
}

// aggregator reports whether the Kubernetes API server asks on its own behalf.
func aggregator(r *arm.Request) bool {
	const name = "system:aggregator"
	if caller := auth.From(r.Context()); caller != nil {
		return caller.Name == name
	}
	return r.Header.Get("X-Remote-User") == name
}

func (s *Server) openAPIDocument(w http.ResponseWriter, r *arm.Request) error {
	doc, sum, err := s.openAPI()
	if err != nil {
		return err
	}
	return writeOpenAPI(w, r, doc, sum)
}

func writeOpenAPI(w http.ResponseWriter, r *arm.Request, doc json.RawMessage, sum string) error {
	w.Header().Set("ETag", `"`+sum+`"`)
	if strings.Contains(r.Header.Get("If-None-Match"), sum) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return arm.WriteJSON(w, http.StatusOK, doc)
}

// openAPI is the OpenAPI 3 document of every registered type, its sum beside it.
func (s *Server) openAPI() (json.RawMessage, string, error) {
	schemas := map[string]any{
		"Error": object(map[string]any{"error": object(map[string]any{
			"code": text(), "message": text(), "target": text(),
			"details":        map[string]any{"type": "array", "items": map[string]any{"type": "object"}},
			"additionalInfo": map[string]any{"type": "array", "items": object(map[string]any{"type": text(), "info": map[string]any{}})},
		})}),
	}
	paths := map[string]any{}
	for _, m := range s.types.Manifests() {
		for _, name := range slices.Sorted(maps.Keys(m.Types)) {
			t := m.Types[name]
			var bodies []any
			versions := slices.Sorted(maps.Keys(t.APIVersions))
			for _, v := range versions {
				component := m.Namespace + "." + name + "." + v
				at := "#/components/schemas/" + component
				properties := component + ".properties"
				schemas[properties] = t.APIVersions[v].OpenAPI(at + ".properties")
				schemas[component] = map[string]any{
					"type": "object", "description": t.Description, "required": []string{"properties"},
					"x-radial-type": m.Namespace + "/" + name, "x-radial-api-version": v,
					"properties": map[string]any{
						"id": readOnly(), "name": readOnly(), "type": readOnly(), "location": text(),
						"tags":       map[string]any{"type": "object", "additionalProperties": text()},
						"systemData": map[string]any{"type": "object", "readOnly": true},
						"properties": map[string]any{"$ref": at + ".properties"},
					},
				}
				bodies = append(bodies, map[string]any{"$ref": at})
			}
			if len(bodies) == 0 {
				continue
			}
			addPaths(paths, m.Namespace+"/"+name, versions, oneOf(bodies), t.Description)
		}
	}
	doc, err := json.Marshal(map[string]any{
		"openapi":    "3.0.3",
		"info":       map[string]any{"title": "Radial", "version": core.Version},
		"paths":      paths,
		"components": map[string]any{"schemas": schemas},
	})
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(doc)
	return doc, strings.ToUpper(hex.EncodeToString(sum[:16])), nil
}

func oneOf(schemas []any) any {
	if len(schemas) == 1 {
		return schemas[0]
	}
	return map[string]any{"oneOf": schemas}
}

func text() map[string]any     { return map[string]any{"type": "string"} }
func readOnly() map[string]any { return map[string]any{"type": "string", "readOnly": true} }

func object(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": properties}
}

// addPaths adds the collection and the resources of a type.
func addPaths(paths map[string]any, resourceType string, versions []string, body any, description string) {
	const scope = "/planes/radius/{plane}/resourceGroups/{group}/providers/"
	parameter := func(name, in string, schema any) map[string]any {
		return map[string]any{"name": name, "in": in, "required": true, "schema": schema}
	}
	shared := []any{
		parameter("plane", "path", text()), parameter("group", "path", text()),
		parameter("api-version", "query", map[string]any{"type": "string", "enum": versions}),
	}
	content := func(schema any) map[string]any {
		return map[string]any{"application/json": map[string]any{"schema": schema}}
	}
	answer := func(what string, schema any) map[string]any {
		a := map[string]any{"description": what}
		if schema != nil {
			a["content"] = content(schema)
		}
		return a
	}
	failed := answer("The request was refused.", map[string]any{"$ref": "#/components/schemas/Error"})
	call := func(verb string, answers map[string]any, media string) map[string]any {
		answers["default"] = failed
		c := map[string]any{
			"operationId": verb + "_" + strings.NewReplacer("/", "_", ".", "_").Replace(resourceType),
			"tags":        []string{resourceType}, "responses": answers,
		}
		if description != "" {
			c["description"] = description
		}
		if media != "" {
			c["requestBody"] = map[string]any{"required": true, "content": map[string]any{media: map[string]any{"schema": body}}}
		}
		return c
	}
	list := object(map[string]any{"value": map[string]any{"type": "array", "items": body}, "nextLink": text()})
	paths[scope+resourceType] = map[string]any{
		"parameters": shared,
		"get":        call("list", map[string]any{"200": answer("A page of resources.", list)}, ""),
	}
	accepted := answer("Accepted: Azure-AsyncOperation says where to follow it.", body)
	put := call("put", map[string]any{"200": answer("Written.", body), "201": accepted}, arm.MediaJSON)
	patch := call("patch", map[string]any{"200": answer("Written.", body), "202": accepted}, "")
	patch["requestBody"] = map[string]any{"required": true, "content": map[string]any{arm.MediaMergePatch: map[string]any{"schema": map[string]any{"type": "object"}}}}
	paths[scope+resourceType+"/{name}"] = map[string]any{
		"parameters": append(slices.Clone(shared), parameter("name", "path", text())),
		"get":        call("get", map[string]any{"200": answer("The resource.", body)}, ""),
		"put":        put,
		"patch":      patch,
		"delete": call("delete", map[string]any{
			"200": answer("Deleted.", nil), "202": answer("Accepted: Azure-AsyncOperation says where to follow it.", nil), "204": answer("There was nothing to delete.", nil),
		}, ""),
	}
}
