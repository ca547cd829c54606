package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/schema"
)

// TypeVersion is one version of a registered type.
type TypeVersion struct {
	// Type is the canonical name, "Namespace/type", in the case it was
	// registered in.
	Type       string
	APIVersion string
	Schema     *schema.Schema
	// Capabilities are the version's, or the type's where it has none.
	Capabilities []string
}

// Has reports whether the type has a capability.
func (v *TypeVersion) Has(capability string) bool { return slices.Contains(v.Capabilities, capability) }

// Inert reports whether resources of the type are stored and run no recipe.
func (v *TypeVersion) Inert() bool { return v.Has(CapabilityManual) || v.Synchronous() }

// Synchronous reports whether a write of the type is complete in itself.
func (v *TypeVersion) Synchronous() bool { return v.Has(CapabilitySynchronous) }

// Registry holds the types that a process knows. Readers never wait: they see
// an immutable snapshot, the newest at the time of the call.
//
// Built-in types stay under what is registered: a registered type of the same
// name stands in their place until it is removed.
type Registry struct {
	mu       sync.Mutex // of writers
	builtin  []*Manifest
	added    map[string]*Manifest // by lower-case namespace
	snapshot atomic.Pointer[snapshot]
}

type snapshot struct {
	manifests []*Manifest            // merged, by namespace
	types     map[string]*registered // by lower-case name
	aliases   map[string]string      // lower-case alias → canonical name
	names     []string               // canonical names, sorted
	all       []string               // names and aliases, sorted
}

type registered struct {
	name     string
	versions map[string]*TypeVersion // by lower-case version
	list     []string
}

// NewRegistry returns a registry of the built-in manifests.
func NewRegistry(builtin ...*Manifest) *Registry {
	r := &Registry{builtin: builtin, added: map[string]*Manifest{}}
	r.publish()
	return r
}

// Set registers a manifest from [Parse], in the place of an earlier one of its
// namespace.
func (r *Registry) Set(m *Manifest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.added[strings.ToLower(m.Namespace)] = m
	r.publish()
}

// Remove takes a registered manifest away; built-in types of its namespace come
// back into their own.
func (r *Registry) Remove(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.added, strings.ToLower(namespace))
	r.publish()
}

// publish makes a new snapshot of what is registered.
func (r *Registry) publish() {
	merged := map[string]*Manifest{}
	layer := func(m *Manifest) {
		key := strings.ToLower(m.Namespace)
		below := merged[key]
		if below == nil {
			merged[key] = m
			return
		}
		c := *m
		c.Types = maps.Clone(below.Types)
		for name, t := range m.Types {
			maps.DeleteFunc(c.Types, func(n string, _ *Type) bool { return strings.EqualFold(n, name) })
			if old := below.Types[name]; old != nil && len(t.Aliases) == 0 && len(old.Aliases) > 0 {
				t2 := *t
				t2.Aliases = old.Aliases
				t = &t2
			}
			c.Types[name] = t
		}
		merged[key] = &c
	}
	for _, m := range r.builtin {
		layer(m)
	}
	for _, k := range keys(r.added) {
		layer(r.added[k])
	}
	s := &snapshot{types: map[string]*registered{}, aliases: map[string]string{}}
	for _, k := range keys(merged) {
		m := merged[k]
		s.manifests = append(s.manifests, m)
		for _, name := range keys(m.Types) {
			s.add(m.Namespace+"/"+name, m.Types[name])
		}
	}
	for alias := range s.aliases {
		if s.types[alias] != nil { // registered under that very name: no longer an alias
			delete(s.aliases, alias)
		}
	}
	slices.Sort(s.names)
	slices.Sort(s.all)
	r.snapshot.Store(s)
}

func (s *snapshot) add(name string, t *Type) {
	reg := &registered{name: name, versions: map[string]*TypeVersion{}, list: keys(t.APIVersions)}
	for v, a := range t.APIVersions {
		c := a.Capabilities
		if c == nil {
			c = t.Capabilities
		}
		reg.versions[strings.ToLower(v)] = &TypeVersion{Type: name, APIVersion: v, Schema: a.compiled, Capabilities: c}
	}
	s.types[strings.ToLower(name)] = reg
	s.names = append(s.names, name)
	s.all = append(s.all, name)
	for _, a := range t.Aliases {
		s.aliases[strings.ToLower(a)] = name
		s.all = append(s.all, a)
	}
}

// find resolves case and aliases.
func (s *snapshot) find(resourceType string) *registered {
	key := strings.ToLower(resourceType)
	if canonical, ok := s.aliases[key]; ok {
		key = strings.ToLower(canonical)
	}
	return s.types[key]
}

// Canonical returns the registered name of a type given in any case or by an
// alias, false when there is no such type.
func (r *Registry) Canonical(resourceType string) (string, bool) {
	t := r.snapshot.Load().find(resourceType)
	if t == nil {
		return "", false
	}
	return t.name, true
}

// Lookup returns one version of a type. InvalidResourceType names the nearest
// registered types, InvalidApiVersionParameter the supported versions.
func (r *Registry) Lookup(resourceType, apiVersion string) (*TypeVersion, error) {
	s := r.snapshot.Load()
	t := s.find(resourceType)
	if t == nil {
		hint := "register it with radial resource-type create, or see radial resource-type list"
		if near := schema.Nearest(resourceType, s.all); len(near) > 0 {
			hint = "did you mean " + strings.Join(near, " or ") + "?"
		}
		return nil, core.Errorf(core.CodeInvalidResourceType, "resource type %q is not registered: %s", resourceType, hint).WithTarget(resourceType)
	}
	v := t.versions[strings.ToLower(apiVersion)]
	if v == nil {
		return nil, core.Errorf(core.CodeInvalidAPIVersion, "API version '%s' for type '%s' is not supported. The supported api-versions are '%s'.", apiVersion, t.name, strings.Join(t.list, ", ")).WithTarget(t.name)
	}
	return v, nil
}

// Default returns the version of a type that a request without one means.
func (r *Registry) Default(resourceType string) (*TypeVersion, error) {
	s := r.snapshot.Load()
	if t := s.find(resourceType); t != nil {
		for _, m := range s.manifests {
			namespace, name, _ := strings.Cut(t.name, "/")
			if mt := m.Types[name]; m.Namespace == namespace && mt != nil {
				return r.Lookup(t.name, mt.Default())
			}
		}
	}
	return r.Lookup(resourceType, "")
}

// Types returns the names of all registered types, sorted, aliases left out.
func (r *Registry) Types() []string { return slices.Clone(r.snapshot.Load().names) }

// Aliases returns the other names of types, by alias in the case it is written.
func (r *Registry) Aliases() map[string]string {
	out := map[string]string{}
	for _, m := range r.snapshot.Load().manifests {
		for name, t := range m.Types {
			for _, a := range t.Aliases {
				out[a] = m.Namespace + "/" + name
			}
		}
	}
	return out
}

// Nearest returns the registered names, aliases included, that a misspelt type
// most likely meant, the closest first.
func (r *Registry) Nearest(resourceType string) []string {
	return schema.Nearest(resourceType, r.snapshot.Load().all)
}

// Manifests returns all manifests by namespace, registered types over built-in
// ones. They are not to be changed.
func (r *Registry) Manifests() []*Manifest { return slices.Clone(r.snapshot.Load().manifests) }

// Manifest returns the manifest of a namespace, in any case.
func (r *Registry) Manifest(namespace string) (*Manifest, bool) {
	s := r.snapshot.Load()
	i, ok := slices.BinarySearchFunc(s.manifests, strings.ToLower(namespace), func(m *Manifest, n string) int {
		return cmp.Compare(strings.ToLower(m.Namespace), n)
	})
	if !ok {
		return nil, false
	}
	return s.manifests[i], true
}

// Builtin reports whether the process brings a type with it.
func (r *Registry) Builtin(resourceType string) bool {
	for _, m := range r.builtin {
		for name := range m.Types {
			if strings.EqualFold(fmt.Sprintf("%s/%s", m.Namespace, name), resourceType) {
				return true
			}
		}
	}
	return false
}
