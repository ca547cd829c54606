package server

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
)

// Registration is answered at once: 200 with provisioningState Succeeded, which
// the pollers of ARM clients take as done.

func registeredResource(kind, id, name string, properties map[string]any) wire.Resource {
	properties["provisioningState"] = string(core.StateSucceeded)
	return wire.Resource{ID: id, Name: name, Type: "System.Resources/" + kind, Properties: properties}
}

func writeList[T any](w http.ResponseWriter, items []T) error {
	if items == nil {
		items = []T{}
	}
	return arm.WriteJSON(w, http.StatusOK, map[string]any{"value": items})
}

// Summaries.

func (s *Server) listSummaries(w http.ResponseWriter, _ *arm.Request) error {
	var out []summary
	for _, m := range s.types.Manifests() {
		out = append(out, summarise(m))
	}
	// Namespaces of nothing but other names are answered when asked for, but not
	// listed: a client that lists the resources of every type would see each twice.
	slices.SortFunc(out, func(a, b summary) int { return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) })
	return writeList(w, out)
}

func (s *Server) getSummary(w http.ResponseWriter, r *arm.Request) error {
	m, err := s.find(r.Vars["namespace"])
	if err == nil {
		return arm.WriteJSON(w, http.StatusOK, summarise(m))
	}
	if a := s.aliasSummary(r.Vars["namespace"]); a != nil {
		return arm.WriteJSON(w, http.StatusOK, a)
	}
	return err
}

// Providers.

func providerResource(m *manifest.Manifest) wire.Resource {
	properties := map[string]any{}
	if m.Description != "" {
		properties["description"] = m.Description
	}
	r := registeredResource("resourceProviders", providerID(m.Namespace), m.Namespace, properties)
	r.Location, r.Tags = "global", orNone(nil)
	return r
}

func (s *Server) listProviders(w http.ResponseWriter, _ *arm.Request) error {
	var out []wire.Resource
	for _, m := range s.types.Manifests() {
		out = append(out, providerResource(m))
	}
	return writeList(w, out)
}

func (s *Server) getProvider(w http.ResponseWriter, r *arm.Request) error {
	m, err := s.find(r.Vars["namespace"])
	if err != nil {
		return err
	}
	return arm.WriteJSON(w, http.StatusOK, providerResource(m))
}

func (s *Server) putProvider(w http.ResponseWriter, r *arm.Request) error {
	body, err := arm.ReadPut(w, r)
	if err != nil {
		return err
	}
	namespace := r.Vars["namespace"]
	if m, ok := s.types.Manifest(namespace); ok {
		namespace = m.Namespace
	}
	err = s.edit(r.Context(), namespace, false, func(m *manifest.Manifest) (*manifest.Manifest, error) {
		if m == nil {
			m = emptyManifest(namespace)
		}
		if d, ok := body.Properties["description"].(string); ok {
			m.Description = d
		}
		return m, nil
	})
	if err != nil {
		return err
	}
	return s.getProvider(w, r)
}

func emptyManifest(namespace string) *manifest.Manifest {
	return &manifest.Manifest{Namespace: namespace, Types: map[string]*manifest.Type{}}
}

func (s *Server) deleteProvider(w http.ResponseWriter, r *arm.Request) error {
	if cascades(r) {
		if m, stored, err := s.registered(r.Context(), r.Vars["namespace"]); err != nil || stored != nil {
			if err != nil {
				return err
			}
			return s.startCascade(w, r, target{Namespace: m.Namespace})
		}
	}
	found := false
	err := s.edit(r.Context(), r.Vars["namespace"], forced(r), func(m *manifest.Manifest) (*manifest.Manifest, error) {
		found = m != nil
		return nil, nil
	})
	return deleted(w, found, err)
}

func deleted(w http.ResponseWriter, found bool, err error) error {
	switch {
	case err != nil:
		return err
	case found:
		w.WriteHeader(http.StatusOK)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
	return nil
}

// forced reads `force=true`: the schema is replaced although stored resources do
// not fit it (D-5).
func forced(r *arm.Request) bool { return strings.EqualFold(r.Query("force"), "true") }

// Manifests, whole: our own addition to the wire.

func (s *Server) getManifest(w http.ResponseWriter, r *arm.Request) error {
	m, err := s.find(r.Vars["namespace"])
	if err != nil {
		return err
	}
	return arm.WriteJSON(w, http.StatusOK, m)
}

func (s *Server) putManifest(w http.ResponseWriter, r *arm.Request) error {
	body, err := arm.ReadBody(w, r, arm.MediaJSON, arm.MediaYAML)
	if err != nil {
		return err
	}
	next, err := manifest.Parse(body)
	if err != nil {
		return err
	}
	if !strings.EqualFold(next.Namespace, r.Vars["namespace"]) {
		return core.Errorf(core.CodeInvalidContent, "the manifest is of namespace %s, but was sent to %s", next.Namespace, r.Vars["namespace"]).WithTarget("namespace")
	}
	err = s.edit(r.Context(), next.Namespace, forced(r), func(*manifest.Manifest) (*manifest.Manifest, error) { return next, nil })
	if err != nil {
		return err
	}
	return s.getSummary(w, r)
}

// Types.

func typeResource(m *manifest.Manifest, name string, t *manifest.Type) wire.Resource {
	properties := map[string]any{"capabilities": orEmpty(t.Capabilities), "defaultApiVersion": t.Default()}
	if t.Description != "" {
		properties["description"] = t.Description
	}
	if hash := iconHash(t); hash != "" {
		properties["iconHash"] = hash
	}
	return registeredResource("resourceProviders/resourceTypes", providerID(m.Namespace, "resourceTypes", name), name, properties)
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// findType is the type that a request names, with its namespace.
func (s *Server) findType(r *arm.Request) (m *manifest.Manifest, name string, t *manifest.Type, err error) {
	if m, err = s.find(r.Vars["namespace"]); err != nil {
		return nil, "", nil, err
	}
	name, t, err = findType(m, r.Vars["type"])
	return m, name, t, err
}

func (s *Server) listTypes(w http.ResponseWriter, r *arm.Request) error {
	m, err := s.find(r.Vars["namespace"])
	if err != nil {
		return err
	}
	var out []wire.Resource
	for _, name := range slices.Sorted(maps.Keys(m.Types)) {
		out = append(out, typeResource(m, name, m.Types[name]))
	}
	return writeList(w, out)
}

func (s *Server) getType(w http.ResponseWriter, r *arm.Request) error {
	m, name, t, err := s.findType(r)
	if err != nil {
		return err
	}
	return arm.WriteJSON(w, http.StatusOK, typeResource(m, name, t))
}

// editType changes one type of a registered namespace.
func (s *Server) editType(r *arm.Request, change func(m *manifest.Manifest) error) error {
	return s.edit(r.Context(), r.Vars["namespace"], forced(r), func(m *manifest.Manifest) (*manifest.Manifest, error) {
		if m == nil {
			// Of a built-in namespace nothing is registered until its first own type.
			builtin, err := s.find(r.Vars["namespace"])
			if err != nil {
				return nil, notRegistered("resource provider", r.Vars["namespace"], ": register it before its types")
			}
			m = emptyManifest(builtin.Namespace)
		}
		return m, change(m)
	})
}

// readInto reads the body of a registration.
func readInto(w http.ResponseWriter, r *arm.Request, body any) error {
	raw, err := arm.ReadBody(w, r, arm.MediaJSON)
	if err != nil {
		return err
	}
	return arm.Decode(raw, body)
}

func (s *Server) putType(w http.ResponseWriter, r *arm.Request) error {
	var body struct {
		Properties struct {
			Capabilities      []string `json:"capabilities"`
			DefaultAPIVersion string   `json:"defaultApiVersion"`
			Description       string   `json:"description"`
			Icon              string   `json:"icon"`
		} `json:"properties"`
	}
	if err := readInto(w, r, &body); err != nil {
		return err
	}
	p := body.Properties
	err := s.editType(r, func(m *manifest.Manifest) error {
		_, t, err := findType(m, r.Vars["type"])
		if err != nil {
			t = &manifest.Type{APIVersions: map[string]*manifest.APIVersion{}}
			m.Types[r.Vars["type"]] = t
		}
		t.Capabilities, t.DefaultAPIVersion, t.Description, t.Icon = p.Capabilities, p.DefaultAPIVersion, p.Description, p.Icon
		// Clients register a type before its versions: the default one is there
		// without a schema until it comes.
		if d := p.DefaultAPIVersion; d != "" && t.APIVersions[d] == nil {
			t.APIVersions[d] = &manifest.APIVersion{}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.getType(w, r)
}

// deleteOf deletes a type or an API version that is registered, with its
// resources if the request says so; remove tells whether it was there.
func (s *Server) deleteOf(w http.ResponseWriter, r *arm.Request, remove func(m *manifest.Manifest) bool) error {
	if cascades(r) {
		t, err := s.registeredTarget(r)
		if err != nil {
			return err
		}
		if t != nil {
			return s.startCascade(w, r, *t)
		}
	}
	found := false
	err := s.edit(r.Context(), r.Vars["namespace"], forced(r), func(m *manifest.Manifest) (*manifest.Manifest, error) {
		found = m != nil && remove(m)
		return m, nil
	})
	return deleted(w, found, err)
}

func (s *Server) deleteType(w http.ResponseWriter, r *arm.Request) error {
	return s.deleteOf(w, r, func(m *manifest.Manifest) bool {
		name, _, err := findType(m, r.Vars["type"])
		if err != nil {
			return false
		}
		delete(m.Types, name)
		return true
	})
}

// registeredTarget is the registered type or API version that a request names,
// nil when there is none.
func (s *Server) registeredTarget(r *arm.Request) (*target, error) {
	m, stored, err := s.registered(r.Context(), r.Vars["namespace"])
	if err != nil || stored == nil {
		return nil, err
	}
	name, t, err := findType(m, r.Vars["type"])
	if err != nil {
		return nil, nil
	}
	out := &target{Namespace: m.Namespace, Type: name}
	if wanted := r.Vars["version"]; wanted != "" {
		if out.Version, _, err = findVersion(m, name, t, wanted); err != nil {
			return nil, nil
		}
	}
	return out, nil
}

// API versions.

func versionResource(m *manifest.Manifest, typeName, version string, a *manifest.APIVersion) wire.Resource {
	properties := map[string]any{}
	if len(a.Schema) > 0 {
		properties["schema"] = a.Schema
	}
	if len(a.Capabilities) > 0 {
		properties["capabilities"] = a.Capabilities
	}
	return registeredResource("resourceProviders/resourceTypes/apiVersions", providerID(m.Namespace, "resourceTypes", typeName, "apiVersions", version), version, properties)
}

func (s *Server) listVersions(w http.ResponseWriter, r *arm.Request) error {
	m, name, t, err := s.findType(r)
	if err != nil {
		return err
	}
	var out []wire.Resource
	for _, v := range slices.Sorted(maps.Keys(t.APIVersions)) {
		out = append(out, versionResource(m, name, v, t.APIVersions[v]))
	}
	return writeList(w, out)
}

func (s *Server) getVersion(w http.ResponseWriter, r *arm.Request) error {
	m, name, t, err := s.findType(r)
	if err != nil {
		return err
	}
	version, a, err := findVersion(m, name, t, r.Vars["version"])
	if err != nil {
		return err
	}
	return arm.WriteJSON(w, http.StatusOK, versionResource(m, name, version, a))
}

func (s *Server) putVersion(w http.ResponseWriter, r *arm.Request) error {
	var body struct {
		Properties struct {
			Schema       json.RawMessage `json:"schema"`
			Capabilities []string        `json:"capabilities"`
		} `json:"properties"`
	}
	if err := readInto(w, r, &body); err != nil {
		return err
	}
	if string(body.Properties.Schema) == "null" {
		body.Properties.Schema = nil
	}
	err := s.editType(r, func(m *manifest.Manifest) error {
		_, t, err := findType(m, r.Vars["type"])
		if err != nil {
			return err
		}
		version, _, err := findVersion(m, r.Vars["type"], t, r.Vars["version"])
		if err != nil {
			version = r.Vars["version"]
		}
		t.APIVersions[version] = &manifest.APIVersion{Schema: body.Properties.Schema, Capabilities: body.Properties.Capabilities}
		return nil
	})
	if err != nil {
		return err
	}
	return s.getVersion(w, r)
}

func (s *Server) deleteVersion(w http.ResponseWriter, r *arm.Request) error {
	return s.deleteOf(w, r, func(m *manifest.Manifest) bool {
		name, t, err := findType(m, r.Vars["type"])
		if err != nil {
			return false
		}
		version, _, err := findVersion(m, name, t, r.Vars["version"])
		if err != nil {
			return false
		}
		delete(t.APIVersions, version)
		if t.DefaultAPIVersion == version {
			t.DefaultAPIVersion = ""
		}
		return true
	})
}

// Locations. Every type is served everywhere, whatever the place is called:
// there is "global", or the one location that a manifest names. What a client
// says of one is checked against the types and kept by its name.

func locations(m *manifest.Manifest) []string {
	if len(m.Location) == 0 {
		return []string{globalLocation}
	}
	return slices.Sorted(maps.Keys(m.Location))
}

const globalLocation = "global"

// findLocation returns the name of a location as it was first written.
func findLocation(m *manifest.Manifest, name string) (string, bool) {
	for _, known := range append(locations(m), globalLocation) {
		if strings.EqualFold(known, name) {
			return known, true
		}
	}
	return "", false
}

func locationResource(m *manifest.Manifest, name string) wire.Resource {
	types := map[string]any{}
	for name, t := range m.Types {
		versions := map[string]any{}
		for v := range t.APIVersions {
			versions[v] = map[string]any{}
		}
		types[name] = map[string]any{"apiVersions": versions}
	}
	properties := map[string]any{"resourceTypes": types}
	if address := m.Location[name]; address != "" {
		properties["address"] = address
	}
	return registeredResource("resourceProviders/locations", providerID(m.Namespace, "locations", name), name, properties)
}

func (s *Server) listLocations(w http.ResponseWriter, r *arm.Request) error {
	m, err := s.find(r.Vars["namespace"])
	if err != nil {
		return err
	}
	var out []wire.Resource
	for _, name := range locations(m) {
		out = append(out, locationResource(m, name))
	}
	return writeList(w, out)
}

func (s *Server) getLocation(w http.ResponseWriter, r *arm.Request) error {
	m, err := s.find(r.Vars["namespace"])
	if err != nil {
		return err
	}
	name, ok := findLocation(m, r.Vars["location"])
	if !ok {
		return notRegistered("location", r.Vars["location"], ": there are "+strings.Join(locations(m), ", "))
	}
	return arm.WriteJSON(w, http.StatusOK, locationResource(m, name))
}

func (s *Server) putLocation(w http.ResponseWriter, r *arm.Request) error {
	body, err := arm.ReadPut(w, r)
	if err != nil {
		return err
	}
	m, err := s.find(r.Vars["namespace"])
	if err != nil {
		return err
	}
	types, _ := body.Properties["resourceTypes"].(map[string]any)
	for name, v := range types {
		found, t, err := findType(m, name)
		if err != nil {
			return err
		}
		listed, _ := v.(map[string]any)
		versions, _ := listed["apiVersions"].(map[string]any)
		for version := range versions {
			if _, _, err := findVersion(m, found, t, version); err != nil {
				return err
			}
		}
	}
	if _, known := findLocation(m, r.Vars["location"]); !known {
		address, _ := body.Properties["address"].(string)
		builtin := m.Namespace
		err := s.edit(r.Context(), m.Namespace, false, func(m *manifest.Manifest) (*manifest.Manifest, error) {
			if m == nil {
				m = emptyManifest(builtin)
			}
			if m.Location == nil {
				m.Location = map[string]string{}
			}
			m.Location[r.Vars["location"]] = address
			return m, nil
		})
		if err != nil {
			return err
		}
	}
	return s.getLocation(w, r)
}

func (s *Server) deleteLocation(w http.ResponseWriter, r *arm.Request) error {
	m, err := s.find(r.Vars["namespace"])
	if err != nil {
		return deleted(w, false, nil)
	}
	name, ok := findLocation(m, r.Vars["location"])
	switch {
	case !ok:
		return deleted(w, false, nil)
	case len(m.Location) == 0 || !slices.Contains(locations(m), name):
		return core.Errorf(core.CodeConflict, "location %q is where all types are served and stays: delete the types themselves", name)
	}
	err = s.edit(r.Context(), m.Namespace, false, func(m *manifest.Manifest) (*manifest.Manifest, error) {
		if m != nil {
			delete(m.Location, name)
		}
		return m, nil
	})
	return deleted(w, true, err)
}
