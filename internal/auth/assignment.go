package auth

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/store"
)

// TypeRoleAssignment is the type of the resources that keep assignments. They
// stand at a plane or in a group and cannot reach above where they stand.
const TypeRoleAssignment = "System.Authorization/roleAssignments"

type assignmentProperties struct {
	Principal Principal `json:"principal"`
	Role      Role      `json:"role"`
	Scope     string    `json:"scope"`
	Cluster   string    `json:"cluster"`
}

// ParseAssignment reads an assignment from its resource. The error says which
// property is wrong.
func ParseAssignment(id core.ID, properties json.RawMessage) (Assignment, error) {
	var p assignmentProperties
	if err := json.Unmarshal(properties, &p); err != nil {
		return Assignment{}, core.Errorf(core.CodeInvalidContent, "the properties of %s cannot be read as a role assignment", id)
	}
	bad := func(target, format string, args ...any) (Assignment, error) {
		return Assignment{}, core.Errorf(core.CodeInvalidContent, "properties."+target+" "+format, args...).WithTarget("properties." + target)
	}
	a := Assignment{ID: id, Principal: p.Principal, Role: p.Role, Scope: id.Scope(), Cluster: p.Cluster}
	if _, ok := roleVerbs[p.Role]; !ok {
		return bad("role", "is %q: it must be Reader, Contributor, Owner or Controller", p.Role)
	}
	switch p.Principal.Kind {
	case KindUser, KindGroup:
		if p.Principal.Name == "" || strings.TrimSpace(p.Principal.Name) != p.Principal.Name {
			return bad("principal.name", "must be the name of a %s", p.Principal.Kind)
		}
		if p.Principal.Name == "system:anonymous" || p.Principal.Name == "system:unauthenticated" {
			return bad("principal.name", "is %q: callers who do not say who they are have no roles", p.Principal.Name)
		}
	case KindServiceAccount:
		namespace, name, ok := strings.Cut(p.Principal.Name, "/")
		if !ok || namespace == "" || name == "" || strings.ContainsAny(name, "/:") || strings.Contains(namespace, ":") {
			return bad("principal.name", "is %q: a ServiceAccount is named as <namespace>/<name>", p.Principal.Name)
		}
	default:
		return bad("principal.kind", "is %q: it must be user, group or serviceAccount", p.Principal.Kind)
	}
	if p.Scope != "" {
		scope, err := core.ParseID(p.Scope)
		if err != nil {
			return bad("scope", "is no id: %w", err)
		}
		if scope.IsCollection() || !covers(id.Scope(), scope) {
			return bad("scope", "is %s: an assignment in %s gives roles there and below only", p.Scope, id.Scope())
		}
		a.Scope = scope
	}
	if (p.Role == Controller) != (p.Cluster != "") {
		return bad("cluster", "must be the name of the controller's cluster for the role Controller, and is for no other role")
	}
	return a, nil
}

// Kinds are the checks of role assignments, for [dynamic.Options].
func Kinds() map[string]dynamic.Kind {
	return map[string]dynamic.Kind{strings.ToLower(TypeRoleAssignment): {Check: func(_ context.Context, s dynamic.Subject) error {
		raw, err := json.Marshal(s.Properties)
		if err != nil {
			return err
		}
		_, err = ParseAssignment(s.ID, raw)
		return err
	}}}
}

// Lister is what is asked of the store.
type Lister interface {
	List(ctx context.Context, q store.Query) (store.Page, error)
}

// Assignments keeps the assignments of a store at hand. It looks at the feed at
// every request and reads them again when one has changed, so that a decision
// never rests on what the process already knows to be old.
type Assignments struct {
	store Lister
	fixed []Assignment
	odd   func(core.ID, error)

	mu     sync.Mutex
	feed   *feed.Subscription
	grants *Grants // nil: to be read
}

// NewAssignments returns the assignments of a store whose listener is the
// broker, with fixed ones beside them, which the server's configuration gives.
// odd, when not nil, is told of assignments that cannot be read; they give
// nothing.
func NewAssignments(s Lister, b *feed.Broker, odd func(core.ID, error), fixed ...Assignment) *Assignments {
	if odd == nil {
		odd = func(core.ID, error) {}
	}
	return &Assignments{store: s, feed: b.Subscribe(0), odd: odd, fixed: fixed}
}

var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Grants returns the assignments as they stand.
func (a *Assignments) Grants(ctx context.Context) (*Grants, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		batch, err := a.feed.Next(over) // never waits
		if err != nil {
			break
		}
		if batch.Reset || changes(batch.Changes) {
			a.grants = nil
		}
	}
	if a.grants != nil {
		return a.grants, nil
	}
	all := slices.Clone(a.fixed)
	for q := (store.Query{Type: TypeRoleAssignment, Limit: 500}); ; {
		page, err := a.store.List(ctx, q)
		if err != nil {
			return nil, core.Errorf(core.CodeUnavailable, "the role assignments cannot be read, so nothing can be allowed: %w", err)
		}
		for _, r := range page.Resources {
			as, err := ParseAssignment(r.ID, r.Properties)
			if err != nil {
				a.odd(r.ID, err)
				continue
			}
			all = append(all, as)
		}
		if page.Next == "" {
			break
		}
		q.After = page.Next
	}
	a.grants = NewGrants(all)
	return a.grants, nil
}

func changes(list []store.Change) bool {
	for _, c := range list {
		if strings.EqualFold(c.ID.Type(), TypeRoleAssignment) {
			return true
		}
	}
	return false
}
