package core

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Segment is one "type/name" pair of an id: a scope (resourceGroups/default)
// or a resource (containers/web). Name is empty in the id of a collection.
type Segment struct {
	Type string
	Name string
}

// ID is a parsed resource id of the ARM wire:
//
//	/planes/<planeType>/<planeName>[/<scopeType>/<scopeName>…][/providers/<namespace>/<type>/<name>[/<type>/<name>…]]
//
// An id without a provider part names a scope (a plane or a resource group).
// The zero ID is empty and valid as "no id". IDs are values; none of the
// methods changes its receiver.
type ID struct {
	// Plane is the plane's type and name, such as {radius local}.
	Plane Segment
	// Scopes are the scopes below the plane, outermost first.
	Scopes []Segment
	// Provider is the namespace of the resource type, such as
	// Applications.Core; for Kubernetes ids the API group ("core" for the
	// legacy group).
	Provider string
	// Types are the type/name pairs below the provider, outermost first.
	Types []Segment
}

// ParseID parses an id of a scope, a resource or a collection. The error
// quotes the id and names what is missing.
func ParseID(s string) (ID, error) {
	var id ID
	if !isText(s) {
		return ID{}, Errorf(CodeBadRequest, "%q is not a resource id: it has bytes that are no text", s)
	}
	rest, ok := strings.CutPrefix(s, "/")
	if !ok {
		return ID{}, Errorf(CodeBadRequest, "%q is not a resource id: it must start with /planes/", s)
	}
	parts := strings.Split(strings.TrimSuffix(rest, "/"), "/")
	for _, p := range parts {
		if p == "" {
			return ID{}, Errorf(CodeBadRequest, "%q is not a resource id: it has an empty segment", s)
		}
	}
	if len(parts) < 3 || !strings.EqualFold(parts[0], "planes") {
		return ID{}, Errorf(CodeBadRequest, "%q is not a resource id: it must start with /planes/<type>/<name>", s)
	}
	id.Plane = Segment{parts[1], parts[2]}
	parts = parts[3:]
	for len(parts) > 0 && !strings.EqualFold(parts[0], "providers") {
		if len(parts) < 2 {
			return ID{}, Errorf(CodeBadRequest, "%q is not a resource id: scope %q has no name", s, parts[0])
		}
		id.Scopes = append(id.Scopes, Segment{parts[0], parts[1]})
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return id, nil
	}
	if len(parts) < 3 {
		return ID{}, Errorf(CodeBadRequest, "%q is not a resource id: /providers/ must be followed by a namespace and a type", s)
	}
	id.Provider = parts[1]
	for parts = parts[2:]; len(parts) > 0; {
		seg := Segment{Type: parts[0]}
		if len(parts) > 1 {
			seg.Name = parts[1]
			parts = parts[2:]
		} else {
			parts = nil
		}
		id.Types = append(id.Types, seg)
	}
	return id, nil
}

// isText reports whether s is valid UTF-8 without control characters and
// without look-alikes; most ids are ASCII.
func isText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' {
			return utf8.ValidString(s) && !strings.ContainsFunc(s, func(c rune) bool { return unicode.IsControl(c) || PosesAsASCII(c) })
		}
	}
	return true
}

// PosesAsASCII reports whether c is a letter beyond ASCII that some comparison
// without case takes for one of ASCII and another does not: the long s, the
// Kelvin sign and the dotted capital I. Ids compare without case in many places,
// and all of them must agree on what a request names, so no id has one.
func PosesAsASCII(c rune) bool { return c == 'ſ' || c == '\u212a' || c == 'İ' }

// MustParseID is ParseID for ids written in code; it panics on a malformed one.
func MustParseID(s string) ID {
	id, err := ParseID(s)
	if err != nil {
		panic(err)
	}
	return id
}

// String returns the id in the case it was written in.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	size := len("/planes/") + len(id.Plane.Type) + 1 + len(id.Plane.Name)
	for _, s := range id.Scopes {
		size += 2 + len(s.Type) + len(s.Name)
	}
	if id.Provider != "" {
		size += len("/providers/") + len(id.Provider)
		for _, t := range id.Types {
			size += 2 + len(t.Type) + len(t.Name)
		}
	}
	// Every key of every index is made of this: one allocation.
	var b strings.Builder
	b.Grow(size)
	write := func(parts ...string) {
		for _, p := range parts {
			b.WriteString(p)
		}
	}
	write("/planes/", id.Plane.Type, "/", id.Plane.Name)
	for _, s := range id.Scopes {
		write("/", s.Type, "/", s.Name)
	}
	if id.Provider != "" {
		write("/providers/", id.Provider)
		for _, t := range id.Types {
			write("/", t.Type)
			if t.Name != "" {
				write("/", t.Name)
			}
		}
	}
	return b.String()
}

// Key returns the form to compare and index by: the id in lower case.
// Kubernetes names are lower case already; kinds are not, and compare without
// case like every other part.
func (id ID) Key() string { return strings.ToLower(id.String()) }

// Equal compares without case.
func (id ID) Equal(other ID) bool {
	if id.Plane == other.Plane && id.Provider == other.Provider && slices.Equal(id.Scopes, other.Scopes) && slices.Equal(id.Types, other.Types) {
		return true // most are written in one case
	}
	return id.Key() == other.Key()
}

// IsZero reports whether this is the empty id.
func (id ID) IsZero() bool { return id.Plane.Type == "" }

// IsScope reports whether the id names a plane or a group.
func (id ID) IsScope() bool { return !id.IsZero() && id.Provider == "" }

// IsCollection reports whether the id ends in a type without a name.
func (id ID) IsCollection() bool {
	return len(id.Types) > 0 && id.Types[len(id.Types)-1].Name == ""
}

// IsResource reports whether the id names one resource.
func (id ID) IsResource() bool { return len(id.Types) > 0 && !id.IsCollection() }

// Type returns "Namespace/type[/type…]", or "" for a scope.
func (id ID) Type() string {
	if id.Provider == "" {
		return ""
	}
	t := id.Provider
	for _, s := range id.Types {
		t += "/" + s.Type
	}
	return t
}

// Name returns the last name: the resource's, the group's or the plane's.
func (id ID) Name() string {
	switch {
	case len(id.Types) > 0:
		return id.Types[len(id.Types)-1].Name
	case len(id.Scopes) > 0:
		return id.Scopes[len(id.Scopes)-1].Name
	default:
		return id.Plane.Name
	}
}

// Scope returns the id without its provider part.
func (id ID) Scope() ID { return ID{Plane: id.Plane, Scopes: id.Scopes} }

// Group returns the name of the innermost resource group, or "".
func (id ID) Group() string {
	for i := len(id.Scopes) - 1; i >= 0; i-- {
		if strings.EqualFold(id.Scopes[i].Type, "resourcegroups") {
			return id.Scopes[i].Name
		}
	}
	return ""
}

// Resource returns the id of a resource of the given type ("Namespace/type")
// and name in the scope of id.
func (id ID) Resource(resourceType, name string) ID {
	r := id.Scope()
	ns, types, _ := strings.Cut(resourceType, "/")
	r.Provider = ns
	for t := range strings.SplitSeq(types, "/") {
		r.Types = append(r.Types, Segment{Type: t})
	}
	r.Types[len(r.Types)-1].Name = name
	return r
}

// WithType returns the id with its provider and types renamed to
// "Namespace/type", its names kept. It is how an alias becomes today's name.
func (id ID) WithType(resourceType string) ID {
	ns, types, _ := strings.Cut(resourceType, "/")
	names := strings.Split(types, "/")
	r := id.Scope()
	r.Provider = ns
	for i, s := range id.Types {
		if i < len(names) {
			s.Type = names[i]
		}
		r.Types = append(r.Types, s)
	}
	return r
}

// GroupID returns the id of a resource group of the local Radius plane.
func GroupID(name string) ID {
	return ID{Plane: Segment{"radius", "local"}, Scopes: []Segment{{"resourceGroups", name}}}
}

// KubernetesID returns the id of a Kubernetes object. It always carries the
// cluster's name as the plane's name (K-36). group is the API group, "" for the
// legacy one; namespace is "" for cluster-scoped objects.
//
//	/planes/kubernetes/local/namespaces/demo/providers/apps/Deployment/web
func KubernetesID(cluster, namespace, group, kind, name string) ID {
	id := ID{Plane: Segment{"kubernetes", cluster}}
	if namespace != "" {
		id.Scopes = []Segment{{"namespaces", namespace}}
	}
	if group == "" {
		group = "core"
	}
	id.Provider = group
	id.Types = []Segment{{kind, name}}
	return id
}

// MarshalText writes the id as shown; the zero ID is the empty text.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses the id; empty text is the zero ID.
func (id *ID) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*id = ID{}
		return nil
	}
	v, err := ParseID(string(b))
	if err != nil {
		return err
	}
	*id = v
	return nil
}
