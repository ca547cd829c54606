// Package manifest reads what registers resource types: a manifest names a
// namespace, its types, their API versions, and the schema of each. The
// built-in types are manifests too, embedded in this package, so that nothing
// else knows a type by name.
//
// [Parse] checks a manifest whole (D-5): it returns one that is usable in
// every part, or every fault with its path. A [Registry] holds all manifests
// of a process and answers lookups.
package manifest

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/schema"
)

// Manifest is a checked manifest: it comes from [Parse] and is not changed
// afterwards. Its JSON is a manifest again.
type Manifest struct {
	Namespace   string            `json:"namespace"`
	Description string            `json:"description,omitempty"`
	Location    map[string]string `json:"location,omitempty"`
	Types       map[string]*Type  `json:"types"`
}

// Type is one type of a manifest.
type Type struct {
	Description       string                 `json:"description,omitempty"`
	Capabilities      []string               `json:"capabilities,omitempty"`
	DefaultAPIVersion string                 `json:"defaultApiVersion,omitempty"`
	APIVersions       map[string]*APIVersion `json:"apiVersions"`
	// Icon is an SVG document that interfaces may show.
	Icon string `json:"icon,omitempty"`
	// Aliases are other names of the type, as "Namespace/type". Only built-in
	// types have some: they keep what older releases called them.
	Aliases []string `json:"-"`
}

// APIVersion is one version of a type.
type APIVersion struct {
	// Schema is the schema as it was registered, without the common properties.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Capabilities replace the type's where they are given: nil for not given,
	// empty for none.
	Capabilities []string `json:"capabilities,omitzero"`

	compiled *schema.Schema
}

// Default is the version that a request without one means: the one the
// manifest names, or the newest, where a release is newer than its preview.
func (t *Type) Default() string {
	if t.DefaultAPIVersion != "" || len(t.APIVersions) == 0 {
		return t.DefaultAPIVersion
	}
	return slices.MaxFunc(keys(t.APIVersions), func(a, b string) int {
		return cmp.Or(cmp.Compare(a[:min(10, len(a))], b[:min(10, len(b))]), cmp.Compare(len(b), len(a)))
	})
}

const maxFaults = 100

var (
	namespacePattern  = regexp.MustCompile(`^[A-Z][A-Za-z0-9]+\.[A-Z][A-Za-z0-9]+$`)
	typePattern       = regexp.MustCompile(`^[a-z][A-Za-z0-9]+$`)
	apiVersionPattern = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}(-preview)?$`)
)

// maxName bounds a namespace's and a type's name, in bytes.
const maxName = 63

// Parse reads a manifest from YAML or JSON. The error is a core.Error with one
// detail for each fault; its Target is the fault's path in the manifest.
func Parse(data []byte) (*Manifest, error) { return parse(data, false) }

func parse(data []byte, builtin bool) (*Manifest, error) {
	doc, faults := decode(data)
	p := &parser{builtin: builtin, decoder: decoder{faults: faults}}
	if len(faults) > 0 && doc == nil {
		return nil, p.err("")
	}
	m := p.manifest(doc)
	if len(p.faults) > 0 {
		return nil, p.err(m.Namespace)
	}
	return m, nil
}

type parser struct {
	decoder
	builtin bool
}

func (p *parser) err(namespace string) error {
	name := "the manifest"
	if namespace != "" {
		name += " of " + namespace
	}
	texts := make([]string, len(p.faults))
	for i, f := range p.faults {
		texts[i] = f.Message
		if f.Target != "" {
			texts[i] = f.Target + ": " + f.Message
		}
	}
	return core.Errorf(p.faults[0].Code, "%s is not valid and nothing was changed: %s", name, strings.Join(texts, "; ")).WithDetails(p.faults...)
}

// object returns v as an object and refuses keys that are not among known.
func (p *parser) object(path string, v any, known ...string) map[string]any {
	m, ok := v.(map[string]any)
	if !ok {
		if v == nil {
			p.fault(path, "must be an object, but is empty")
		} else {
			p.fault(path, "must be an object")
		}
		return nil
	}
	for _, k := range keys(m) {
		if slices.Contains(known, k) {
			continue
		}
		if near := schema.Nearest(k, known); len(near) > 0 {
			p.fault(join(path, k), "unknown key: did you mean %s?", near[0])
		} else {
			p.fault(join(path, k), "unknown key: known here are %s", strings.Join(known, ", "))
		}
	}
	return m
}

// text returns the string at a key, "" where there is none.
func (p *parser) text(path string, m map[string]any, key string) string {
	v, ok := m[key]
	if !ok {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		p.fault(join(path, key), "must be a string")
	}
	return s
}

func (p *parser) manifest(doc any) *Manifest {
	m := &Manifest{Types: map[string]*Type{}}
	o := p.object("", doc, "namespace", "description", "location", "types")
	if o == nil {
		return m
	}
	m.Namespace = p.text("", o, "namespace")
	m.Description = p.text("", o, "description")
	switch {
	case o["namespace"] == nil:
		p.fault("namespace", "is required, such as MyCompany.Data")
	case m.Namespace != "" && (!namespacePattern.MatchString(m.Namespace) || len(m.Namespace) > maxName):
		p.fault("namespace", "%q is not a namespace: it must be two words in upper camel case with a dot between, such as MyCompany.Data", m.Namespace)
		m.Namespace = ""
	case strings.EqualFold(m.Namespace, "System.Resources"):
		p.fault("namespace", "%s is the service's own", m.Namespace)
	}
	if l, ok := o["location"]; ok && l != nil {
		loc := p.object("location", l, keysOf(l)...)
		if len(loc) > 1 {
			p.fault("location", "at most one location can be named")
		}
		for name := range loc {
			if m.Location == nil {
				m.Location = map[string]string{}
			}
			m.Location[name] = p.text("location", loc, name)
		}
	}
	types, ok := o["types"]
	if !ok {
		p.fault("types", "is required")
		return m
	}
	seen := map[string]string{}
	for _, name := range keys(p.object("types", types, keysOf(types)...)) {
		path := join("types", name)
		if !typePattern.MatchString(name) || len(name) > maxName {
			p.fault(path, "%q is not the name of a type: it must be a word in lower camel case, such as redisCaches", name)
		}
		if other, twice := seen[strings.ToLower(name)]; twice {
			p.fault(path, "differs from %q in case only, which does not count", other)
		}
		seen[strings.ToLower(name)] = name
		m.Types[name] = p.oneType(path, types.(map[string]any)[name])
	}
	return m
}

func (p *parser) oneType(path string, v any) *Type {
	t := &Type{APIVersions: map[string]*APIVersion{}}
	known := []string{"description", "capabilities", "defaultApiVersion", "apiVersions", "icon"}
	if p.builtin {
		known = append(known, "aliases")
	}
	o := p.object(path, v, known...)
	if o == nil {
		return t
	}
	t.Description = p.text(path, o, "description")
	t.DefaultAPIVersion = p.text(path, o, "defaultApiVersion")
	t.Icon = p.text(path, o, "icon")
	t.Capabilities = p.capabilities(join(path, "capabilities"), o["capabilities"])
	if aliases, ok := o["aliases"].([]any); ok && p.builtin {
		for _, a := range aliases {
			t.Aliases = append(t.Aliases, a.(string))
		}
	}
	if len(t.Icon) > 32<<10 {
		p.fault(join(path, "icon"), "has %d bytes; at most %d are kept", len(t.Icon), 32<<10)
	}
	versions, ok := o["apiVersions"]
	if !ok {
		p.fault(join(path, "apiVersions"), "is required: name at least one version, such as 2025-01-01-preview")
		return t
	}
	path = join(path, "apiVersions")
	for _, name := range keys(p.object(path, versions, keysOf(versions)...)) {
		if !apiVersionPattern.MatchString(name) {
			p.fault(join(path, name), "%q is not an API version: it must be a date, as in 2025-01-01 or 2025-01-01-preview", name)
		}
		t.APIVersions[name] = p.version(join(path, name), versions.(map[string]any)[name])
	}
	if d := t.DefaultAPIVersion; d != "" && t.APIVersions[d] == nil {
		p.fault(strings.TrimSuffix(path, ".apiVersions")+".defaultApiVersion", "%q is not among the API versions of the type: %s", d, strings.Join(keys(t.APIVersions), ", "))
	}
	return t
}

func (p *parser) version(path string, v any) *APIVersion {
	a := &APIVersion{}
	if v == nil {
		v = map[string]any{}
	}
	o := p.object(path, v, "schema", "capabilities")
	if o == nil {
		return a
	}
	a.Capabilities = p.capabilities(join(path, "capabilities"), o["capabilities"])
	path = join(path, "schema")
	own, ok := o["schema"].(map[string]any)
	if !ok && o["schema"] != nil {
		p.fault(path, "must be an object")
		return a
	}
	if own != nil {
		raw, err := json.Marshal(own)
		if err != nil {
			p.fault(path, "cannot be written as JSON")
			return a
		}
		a.Schema = raw
	}
	merged, faults := withCommon(own, p.builtin)
	for _, name := range keys(faults) {
		p.fault(join(join(path, "properties"), name), "%s", faults[name])
	}
	raw, err := json.Marshal(merged)
	if err != nil {
		p.fault(path, "cannot be written as JSON")
		return a
	}
	a.compiled, err = schema.Compile(raw)
	if err == nil {
		for _, name := range keys(decoded(common)) {
			if a.compiled.Sensitive(name) && faults[name] == "" {
				p.fault(path, "property %s would be sensitive, by the additionalProperties of a branch or by its own declaration: every type has it, and Radial works with it", name)
			}
		}
		return a
	}
	e := core.AsError(err)
	if len(e.Details) == 0 {
		p.fault(path, "%s", e.Message)
	}
	for _, d := range e.Details {
		at := path
		if d.Target != "" {
			at += "." + strings.TrimPrefix(d.Target, ".")
		}
		p.fault(at, "%s", d.Message)
	}
	return a
}

func (p *parser) capabilities(path string, v any) []string {
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		p.fault(path, "must be a list")
		return nil
	}
	out := []string{}
	for i, e := range list {
		c, _ := e.(string)
		switch {
		case slices.Contains(out, c):
			p.fault(index(path, i), "%q stands twice", c)
		case slices.Contains(capabilities, c):
			out = append(out, c)
		default:
			near := schema.Nearest(c, capabilities)
			if len(near) == 0 {
				near = capabilities
			}
			p.fault(index(path, i), "unknown capability %q: did you mean %s?", c, strings.Join(near, " or "))
		}
	}
	return out
}

func keys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func keysOf(v any) []string {
	m, _ := v.(map[string]any)
	return keys(m)
}
