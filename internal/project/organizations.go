package project

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
)

type shownMember struct {
	Principal string `json:"principal"`
	Role      string `json:"role"`
}

type shownOrganization struct {
	ID          string `json:"id"`
	DisplayName string `json:"displayName,omitempty"`
	// Role is the caller's own; "" for an administrator who is no member.
	Role    string        `json:"role,omitempty"`
	Members []shownMember `json:"members"`
}

func showOrganization(name string, o organization, c caller) shownOrganization {
	out := shownOrganization{ID: name, DisplayName: o.DisplayName, Members: []shownMember{}}
	if at := c.in(o); at != nothing {
		out.Role = roleOf(at)
	}
	for _, m := range o.Members {
		out.Members = append(out.Members, shownMember{m.Principal.String(), m.Role})
	}
	return out
}

// parsePrincipal reads user:NAME, group:NAME or serviceAccount:NAMESPACE/NAME. In
// a path, where no segment holds a slash, the last may have a colon in its place.
func parsePrincipal(text string) (auth.Principal, error) {
	kind, name, ok := strings.Cut(text, ":")
	p := auth.Principal{Kind: auth.PrincipalKind(kind), Name: name}
	if strings.EqualFold(kind, string(auth.KindServiceAccount)) {
		p.Kind = auth.KindServiceAccount
		if !strings.Contains(name, "/") {
			p.Name = strings.Replace(name, ":", "/", 1)
		}
	}
	if !ok || p.Check() != nil {
		return p, core.Errorf(core.CodeInvalidContent, "%q is no principal: write user:NAME, group:NAME or serviceAccount:NAMESPACE/NAME", shortText(text)).WithTarget("principal")
	}
	return p, nil
}

func shortText(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}

func (s *Service) listOrganizations(w http.ResponseWriter, r *arm.Request) error {
	ctx, c := r.Context(), callerOf(r.Context())
	administers, err := c.administers(ctx)
	if err != nil {
		return err
	}
	found, err := s.all(ctx, plane(), TypeOrganization)
	if err != nil {
		return err
	}
	var out []shownOrganization
	for _, stored := range found {
		o, err := read[organization](stored)
		if err != nil {
			return err
		}
		if administers || c.in(o) != nothing {
			out = append(out, showOrganization(stored.ID.Name(), o, c))
		}
	}
	c.decided(auth.Discover, plane(), true, "lists are narrowed to what the caller is a member of")
	return list(w, out)
}

func (s *Service) getOrganization(w http.ResponseWriter, r *arm.Request) error {
	name := r.Vars["organization"]
	o, err := s.may(r.Context(), auth.Read, OrganizationID(name), name, member, noOrganization(name))
	if err != nil {
		return err
	}
	return arm.WriteJSON(w, http.StatusOK, showOrganization(name, o, callerOf(r.Context())))
}

// createOrganization is for administrators of the platform: whoever is in an
// organization may run programs in the cluster.
func (s *Service) createOrganization(w http.ResponseWriter, r *arm.Request) error {
	ctx, c, name := r.Context(), callerOf(r.Context()), r.Vars["organization"]
	id := OrganizationID(name)
	administers, err := c.administers(ctx)
	if err != nil {
		return err
	}
	if !administers {
		c.decided(auth.Govern, id, false, "no administrator of the platform")
		return core.Errorf(core.CodeForbidden, "organizations are made by an administrator of the platform, who is Owner of /planes/radius/local: ask one, and to be made its owner").WithTarget(id.String())
	}
	c.decided(auth.Govern, id, true, "administrator of the platform")
	var in struct {
		DisplayName string `json:"displayName"`
		Owner       string `json:"owner"`
	}
	if err := body(w, r, &in); err != nil {
		return err
	}
	first := c.principal()
	if in.Owner != "" {
		if first, err = parsePrincipal(in.Owner); err != nil {
			return err
		}
	}
	o := organization{DisplayName: in.DisplayName, Members: []Member{{first, RoleOwner}}}
	props, err := asProperties(o)
	if err != nil {
		return err
	}
	a, err := s.provider.Put(short(r), dynamic.Request{ID: id, APIVersion: APIVersion, SystemData: r.SystemData(), Preconditions: arm.Preconditions{IfNoneMatch: "*"}}, wire.Put{Resource: wire.Resource{Properties: props}})
	if core.IsCode(err, core.CodePrecondition) {
		return core.Errorf(core.CodeConflict, "organization %q exists already", name).WithTarget(name)
	}
	if err == nil {
		_, err = s.settled(ctx, a.Operation)
	}
	if err != nil {
		return err
	}
	return arm.WriteJSON(w, http.StatusCreated, showOrganization(name, o, c))
}

func asProperties(v any) (map[string]any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, arm.Decode(raw, &out)
}

func (s *Service) deleteOrganization(w http.ResponseWriter, r *arm.Request) error {
	name := r.Vars["organization"]
	id := OrganizationID(name)
	if _, err := s.may(r.Context(), auth.Delete, id, name, owner, noOrganization(name)); err != nil {
		return err
	}
	held, err := s.projectsOf(r.Context(), name)
	if err != nil {
		return err
	}
	if len(held) > 0 {
		return core.Errorf(core.CodeConflict, "organization %q has projects (%s): delete them first", name, strings.Join(held, ", ")).WithTarget(name)
	}
	return s.remove(w, r, id, noOrganization(name))
}

func (s *Service) listMembers(w http.ResponseWriter, r *arm.Request) error {
	name := r.Vars["organization"]
	o, err := s.may(r.Context(), auth.Read, OrganizationID(name), name, member, noOrganization(name))
	if err != nil {
		return err
	}
	return list(w, showOrganization(name, o, callerOf(r.Context())).Members)
}

func roleNamed(role string) (string, error) {
	switch {
	case role == "", strings.EqualFold(role, RoleMember):
		return RoleMember, nil
	case strings.EqualFold(role, RoleOwner):
		return RoleOwner, nil
	}
	return "", core.Errorf(core.CodeInvalidContent, "role %q is neither owner nor member", shortText(role)).WithTarget("role")
}

func (s *Service) addMember(w http.ResponseWriter, r *arm.Request) error {
	var in struct {
		Principal string `json:"principal"`
		Role      string `json:"role"`
	}
	return s.members(w, r, http.StatusCreated, &in, func() (auth.Principal, string, error) {
		p, err := parsePrincipal(in.Principal)
		if err != nil {
			return p, "", err
		}
		role, err := roleNamed(in.Role)
		return p, role, err
	}, func(o *organization, p auth.Principal, role string) error {
		if slices.ContainsFunc(o.Members, func(m Member) bool { return m.Principal == p }) {
			return core.Errorf(core.CodeConflict, "%s is a member already: change the role instead", p).WithTarget(p.String())
		}
		o.Members = append(o.Members, Member{p, role})
		return nil
	})
}

func (s *Service) setMember(w http.ResponseWriter, r *arm.Request) error {
	var in struct {
		Role string `json:"role"`
	}
	return s.members(w, r, http.StatusOK, &in, func() (auth.Principal, string, error) {
		p, err := parsePrincipal(r.Vars["principal"])
		if err != nil {
			return p, "", err
		}
		if in.Role == "" {
			return p, "", core.Errorf(core.CodeInvalidContent, "role is required: owner or member").WithTarget("role")
		}
		role, err := roleNamed(in.Role)
		return p, role, err
	}, func(o *organization, p auth.Principal, role string) error {
		i := slices.IndexFunc(o.Members, func(m Member) bool { return m.Principal == p })
		if i < 0 {
			return notMember(p)
		}
		o.Members[i].Role = role
		return nil
	})
}

func notMember(p auth.Principal) error {
	return core.Errorf(core.CodeNotFound, "%s is no member of the organization", p).WithTarget(p.String())
}

func (s *Service) removeMember(w http.ResponseWriter, r *arm.Request) error {
	return s.members(w, r, http.StatusOK, nil, func() (auth.Principal, string, error) {
		p, err := parsePrincipal(r.Vars["principal"])
		return p, "", err
	}, func(o *organization, p auth.Principal, _ string) error {
		before := len(o.Members)
		o.Members = slices.DeleteFunc(o.Members, func(m Member) bool { return m.Principal == p })
		if len(o.Members) == before {
			return notMember(p)
		}
		return nil
	})
}

// members changes who is in an organization, which takes an owner. It is never
// left without one, whoever else changes it at the same moment.
func (s *Service) members(w http.ResponseWriter, r *arm.Request, status int, in any, ask func() (auth.Principal, string, error), change func(*organization, auth.Principal, string) error) error {
	name := r.Vars["organization"]
	id := OrganizationID(name)
	if _, err := s.may(r.Context(), auth.Govern, id, name, owner, noOrganization(name)); err != nil {
		return err
	}
	if in != nil {
		if err := body(w, r, in); err != nil {
			return err
		}
	}
	p, role, err := ask()
	if err != nil {
		return err
	}
	var o organization
	op, err := s.edit(short(r), id, r.SystemData(), func(stored core.Resource) (map[string]any, error) {
		if o, err = read[organization](stored); err != nil {
			return nil, err
		}
		if err := change(&o, p, role); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(o.Members, func(m Member) bool { return m.Role == RoleOwner }) {
			return nil, core.Errorf(core.CodeConflict, "organization %q would be left without an owner: make another member one first", name).WithTarget(name)
		}
		return asProperties(o)
	})
	if err == nil {
		_, err = s.settled(r.Context(), op)
	}
	if err != nil {
		return err
	}
	return arm.WriteJSON(w, status, showOrganization(name, o, callerOf(r.Context())))
}
