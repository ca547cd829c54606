package auth

import (
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// Verb is what a request wants of an id.
type Verb string

// The verbs.
const (
	// Discover sees that planes, groups and types are there; lists are narrowed
	// to what the caller may read.
	Discover Verb = "discover"
	// Read sees resources, operations and graphs.
	Read Verb = "read"
	// Secrets sees the sensitive values of a resource, by listSecrets or by
	// connecting to it.
	Secrets Verb = "secrets"
	// Write creates and changes, and steers operations.
	Write Verb = "write"
	// Delete removes.
	Delete Verb = "delete"
	// Govern changes what decides over others: role assignments, registered
	// types, and the environments and recipe packs that say with whose rights
	// recipes run. It reads the audit log, too.
	Govern Verb = "govern"
	// Administer looks inside the process (profiles, metrics). Root only.
	Administer Verb = "administer"
)

// Role is a set of verbs.
type Role string

// The roles.
const (
	Reader      Role = "Reader"
	Contributor Role = "Contributor"
	Owner       Role = "Owner"
	// Controller is for the controller of one cluster: it writes and deletes
	// only what stands for objects of that cluster.
	Controller Role = "Controller"
)

var roleVerbs = map[Role][]Verb{
	Reader:      {Discover, Read},
	Contributor: {Discover, Read, Secrets, Write, Delete},
	Owner:       {Discover, Read, Secrets, Write, Delete, Govern},
	Controller:  {Discover, Read, Secrets, Write, Delete},
}

// Allows reports whether the role holds the verb.
func (r Role) Allows(v Verb) bool { return slices.Contains(roleVerbs[r], v) }

// Least is the smallest role that holds the verb, "" for none.
func Least(v Verb) Role {
	for _, r := range []Role{Reader, Contributor, Owner} {
		if r.Allows(v) {
			return r
		}
	}
	return ""
}

// PrincipalKind says what a principal's name means.
type PrincipalKind string

// The kinds.
const (
	KindUser           PrincipalKind = "user"
	KindGroup          PrincipalKind = "group"
	KindServiceAccount PrincipalKind = "serviceAccount"
)

// Principal is to whom a role is given. Name is a user's or a group's name, or
// "namespace/name" of a ServiceAccount.
type Principal struct {
	Kind PrincipalKind `json:"kind"`
	Name string        `json:"name"`
}

// String is "kind:name".
func (p Principal) String() string { return string(p.Kind) + ":" + p.Name }

// Check says what is wrong with a principal, if anything is.
func (p Principal) Check() error {
	switch p.Kind {
	case KindUser, KindGroup:
		if p.Name == "" || strings.TrimSpace(p.Name) != p.Name {
			return core.Errorf(core.CodeInvalidContent, "the name of a %s is empty or has white space around it", p.Kind)
		}
		if p.Name == "system:anonymous" || p.Name == "system:unauthenticated" {
			return core.Errorf(core.CodeInvalidContent, "%q stands for callers who do not say who they are", p.Name)
		}
	case KindServiceAccount:
		namespace, name, ok := strings.Cut(p.Name, "/")
		if !ok || namespace == "" || name == "" || strings.ContainsAny(name, "/:") || strings.Contains(namespace, ":") {
			return core.Errorf(core.CodeInvalidContent, "a ServiceAccount is named as <namespace>/<name>, and %q is not", p.Name)
		}
	default:
		return core.Errorf(core.CodeInvalidContent, "a principal is a user, a group or a serviceAccount, and %q is none", p.Kind)
	}
	return nil
}

// key is the principal in the words of the cluster: a ServiceAccount is the
// user that its tokens name.
func (p Principal) key() string {
	if p.Kind == KindServiceAccount {
		namespace, name, _ := strings.Cut(p.Name, "/")
		return string(KindUser) + ":" + serviceAccountPrefix + namespace + ":" + name
	}
	return p.String()
}

// keys are those of all principals that the caller is.
func (i Identity) keys() []string {
	keys := make([]string, 0, 1+len(i.Groups))
	keys = append(keys, string(KindUser)+":"+i.Name)
	for _, g := range i.Groups {
		keys = append(keys, string(KindGroup)+":"+g)
	}
	return keys
}

// Assignment gives a principal a role at and below a scope.
type Assignment struct {
	// ID is the assignment's own.
	ID        core.ID
	Principal Principal
	Role      Role
	// Scope is a plane, a group or a resource.
	Scope core.ID
	// Cluster is the one that a Controller speaks for.
	Cluster string
}

// covers reports whether scope is id or stands above it.
func covers(scope, id core.ID) bool { return above(scope.Key(), id.Key()) }

func above(scope, id string) bool {
	return scope != "" && strings.HasPrefix(id, scope) && (len(id) == len(scope) || id[len(scope)] == '/')
}

// Access is one thing that a request wants.
type Access struct {
	Verb Verb
	// ID is a scope, a resource or a collection; zero for what stands above
	// all planes.
	ID core.ID
}

// Decision is the answer, and why.
type Decision struct {
	Allowed bool
	// Role and Scope are those that allowed it; Role is Root for root.
	Role  Role
	Scope core.ID
	// Clusters are those whose owners the caller may write when only a
	// Controller's role allowed it; nil where writing is not bound to owners.
	Clusters []string
	// Reason is for people: the assignment that allowed it, or what to ask for.
	Reason string
}

// Root is the role that only the cluster's review gives.
const Root Role = "Root"

// Grants are assignments by principal, a snapshot that never changes.
type Grants struct{ byKey map[string][]grant }

// grant is an assignment with its scope's key, which every decision compares.
type grant struct {
	Assignment
	scope string
}

// NewGrants indexes assignments.
func NewGrants(assignments []Assignment) *Grants {
	g := &Grants{byKey: make(map[string][]grant, len(assignments))}
	for _, a := range assignments {
		k := a.Principal.key()
		g.byKey[k] = append(g.byKey[k], grant{a, a.Scope.Key()})
	}
	return g
}

// Decide says whether the caller's roles allow an access. It is a pure function
// of its arguments: who is root is not asked here.
func (g *Grants) Decide(who Identity, a Access) Decision {
	var bound Decision
	id := a.ID.Key()
	for _, key := range who.keys() {
		for _, as := range g.byKey[key] {
			if !as.Role.Allows(a.Verb) || !reaches(as.scope, id, a.Verb) {
				continue
			}
			d := Decision{Allowed: true, Role: as.Role, Scope: as.Scope,
				Reason: string(as.Role) + " of " + as.Principal.String() + " at " + as.Scope.String()}
			if as.Role != Controller || a.Verb != Write && a.Verb != Delete {
				return d
			}
			// Another assignment may allow the same without being bound.
			d.Clusters = append(bound.Clusters, as.Cluster)
			bound = d
		}
	}
	if bound.Allowed {
		return bound
	}
	return denied(who, a)
}

// reaches reports whether a role at scope counts for a verb at id. What is there
// may be discovered from above and from below: who has a role in one group sees
// that the plane exists.
func reaches(scope, id string, v Verb) bool {
	if v == Discover && (id == "" || above(id, scope)) {
		return true
	}
	return above(scope, id)
}

func denied(who Identity, a Access) Decision {
	role := Least(a.Verb)
	at := askAt(a)
	if role == "" {
		return Decision{Reason: who.Principal().String() + " is not root, and only root may " + string(a.Verb)}
	}
	return Decision{Scope: at, Reason: who.Principal().String() + " has no role that may " + string(a.Verb) + " at " + shown(a.ID) +
		": ask an owner for the role " + string(role) + " at scope " + shown(at)}
}

// askAt is the scope at which to ask for a role: the group, or the plane.
func askAt(a Access) core.ID {
	if a.ID.IsZero() {
		return core.ID{Plane: core.Segment{Type: "radius", Name: "local"}}
	}
	return a.ID.Scope()
}

func shown(id core.ID) string {
	if id.IsZero() {
		return "/planes"
	}
	return id.String()
}
