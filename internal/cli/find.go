package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/schema"
)

// plane is the id of the plane that resources live in.
var plane = core.ID{Plane: core.Segment{Type: "radius", Name: "local"}}

// resourceType is one type that the control plane knows.
type resourceType struct {
	Name string `json:"name"`
	client.ResourceType
}

func (t resourceType) versions() []string { return sortedKeys(t.APIVersions) }

// version is the api-version to speak: the default, else the newest.
func (t resourceType) version() string {
	if t.DefaultAPIVersion != "" {
		return t.DefaultAPIVersion
	}
	if all := t.versions(); len(all) > 0 {
		return all[len(all)-1]
	}
	return setup.CoreVersion
}

// types returns every type that the control plane knows, by name.
func (s *session) types(ctx context.Context) ([]resourceType, error) {
	if s.known != nil {
		return s.known, nil
	}
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	namespaces, err := c.Providers(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range namespaces {
		for name, t := range n.ResourceTypes {
			s.known = append(s.known, resourceType{Name: n.Name + "/" + name, ResourceType: t})
		}
	}
	slices.SortFunc(s.known, func(a, b resourceType) int { return cmp.Compare(a.Name, b.Name) })
	return s.known, nil
}

// typeNamed finds a type by its full name in any case, or by its last part where that is unique. Other names of
// types are listed beside them.
func (s *session) typeNamed(ctx context.Context, name string) (resourceType, error) {
	all, err := s.types(ctx)
	if err != nil {
		return resourceType{}, err
	}
	var found []resourceType
	for _, t := range all {
		if strings.EqualFold(t.Name, name) {
			return t, nil
		}
		// Applications.Link holds other names of types only: nobody means it by a last part.
		if ns, short, _ := strings.Cut(t.Name, "/"); strings.EqualFold(short, name) && ns != "Applications.Link" {
			found = append(found, t)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var names []string
		for _, t := range found {
			names = append(names, t.Name)
		}
		return resourceType{}, usagef("more than one resource type is called %q: say which of %s", name, strings.Join(names, ", "))
	}
	var near []string
	for _, t := range all {
		_, short, _ := strings.Cut(t.Name, "/")
		if strings.Contains(name, "/") {
			near = append(near, t.Name)
		} else if !slices.Contains(near, short) {
			near = append(near, short)
		}
	}
	return resourceType{}, notFound("resource type", name, near, "radial resource-type list")
}

// ofKind returns the types whose last part is kind: applications and environments live in two namespaces.
func (s *session) ofKind(ctx context.Context, kind string) ([]resourceType, error) {
	all, err := s.types(ctx)
	if err != nil {
		return nil, err
	}
	var of []resourceType
	for _, t := range all {
		if ns, short, _ := strings.Cut(t.Name, "/"); short == kind && (ns == "Applications.Core" || ns == "Radius.Core") {
			of = append(of, t)
		}
	}
	return of, nil
}

// scope is the group of -g, or the whole plane where none was said.
func (s *session) scope() core.ID {
	if s.group != "" {
		return core.GroupID(s.group)
	}
	return plane
}

// listKind lists the resources of a kind in the scope.
func (s *session) listKind(ctx context.Context, kind string) ([]arm.Resource, error) {
	types, err := s.ofKind(ctx, kind)
	if err != nil {
		return nil, err
	}
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	var all []arm.Resource
	for _, t := range types {
		list, err := c.List(ctx, s.scope().Resource(t.Name, "").String(), t.version())
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b arm.Resource) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// findKind finds one application or environment by name or id. A name that lives in several groups has to be
// told apart.
func (s *session) findKind(ctx context.Context, kind, one, name string) (*arm.Resource, core.ID, error) {
	all, err := s.listKind(ctx, kind)
	if err != nil {
		return nil, core.ID{}, err
	}
	var found []arm.Resource
	var names []string
	for _, r := range all {
		names = append(names, r.Name)
		if strings.EqualFold(r.Name, name) || strings.EqualFold(r.ID, name) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		if switched, _ := s.switchedTo(); kind == "environments" && switched != "" && strings.EqualFold(switched, name) {
			return nil, core.ID{}, core.Errorf(core.CodeNotFound, "environment %q of group %q, which radial env switch chose, does not exist any more: choose another one so, or none by radial env switch --unset",
				nameIn(name), groupIn(name))
		}
		where := ""
		if s.group != "" {
			where = " -g " + s.group
		}
		return nil, core.ID{}, notFound(one, name, names, "radial "+commandOf[kind]+" list"+where)
	case 1:
		id, err := core.ParseID(found[0].ID)
		return &found[0], id, err
	}
	var ids []string
	for _, r := range found {
		ids = append(ids, "  "+r.ID)
	}
	return nil, core.ID{}, usagef("more than one %s is called %q: say which by --group, or by its id:\n%s", one, name, strings.Join(ids, "\n"))
}

var commandOf = map[string]string{"applications": "app", "environments": "env"}

// notFound says that a name does not exist, which are close to it, and what lists them.
func notFound(what, name string, known []string, list string) error {
	msg := fmt.Sprintf("%s %q does not exist", what, name)
	if near := schema.Nearest(name, known); len(near) > 0 {
		msg += ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return core.Errorf(core.CodeNotFound, "%s (%s shows what there is)", msg, list)
}

// remove deletes a resource after asking, waits for its end, and says so.
func (s *session) remove(ctx context.Context, id core.ID, version, what string, yes bool) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	if err := s.confirm(yes, fmt.Sprintf("Delete %s?", what)); err != nil {
		return err
	}
	a, err := c.Delete(ctx, id, version, "")
	if err != nil {
		return err
	}
	if a.Missing {
		return s.done(deleted{ID: id.String()}, "%s was not there.", capital(what))
	}
	if err := s.wait(ctx, "deleting "+what, a.Token); err != nil {
		return err
	}
	return s.done(deleted{ID: id.String(), Deleted: true}, "%s deleted.", capital(what))
}

type deleted struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
	// With counts what a cascade took along.
	With int `json:"with,omitempty"`
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// write puts a resource, waits for its end, and returns it as it then is.
func (s *session) write(ctx context.Context, id core.ID, version string, body any, what string) (*arm.Resource, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	a, err := c.Put(ctx, id, version, body)
	if err != nil {
		return nil, err
	}
	if a.Token == "" {
		return a.Resource, nil
	}
	if err := s.wait(ctx, what, a.Token); err != nil {
		return nil, err
	}
	if a.Resource != nil && a.Resource.ID != "" {
		if own, err := core.ParseID(a.Resource.ID); err == nil {
			id = own // as the server spells it
		}
	}
	r, _, err := c.Get(ctx, id, version)
	return r, err
}

// text is the value at a path of properties, "" where there is none.
func text(properties map[string]any, path ...string) string {
	for i, p := range path {
		v, ok := properties[p]
		if !ok || v == nil {
			return ""
		}
		if i == len(path)-1 {
			return fmt.Sprint(v)
		}
		if properties, ok = v.(map[string]any); !ok {
			return ""
		}
	}
	return ""
}

// nameIn is the name of the resource that an id names, the text itself where it is none.
func nameIn(id string) string {
	if p, err := core.ParseID(id); err == nil {
		return p.Name()
	}
	return id
}

func groupIn(id string) string {
	p, err := core.ParseID(id)
	if err != nil {
		return ""
	}
	return p.Group()
}

func state(r arm.Resource) string { return string(client.State(&r)) }
