package project

import (
	"context"
	"strings"

	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
)

// level is what somebody may do in an organization.
type level int

const (
	nothing level = iota
	member
	owner
)

// caller is who a request is from. A nil auth.Caller is developer mode, where
// everybody is the platform's administrator.
type caller struct{ *auth.Caller }

func callerOf(ctx context.Context) caller { return caller{auth.From(ctx)} }

// principal is the caller as a member would be named.
func (c caller) principal() auth.Principal {
	if c.Caller == nil {
		return auth.Principal{Kind: auth.KindUser, Name: "developer"}
	}
	return c.Principal()
}

// administers says whether the caller is an administrator of the platform, who
// acts as an owner everywhere: whoever may govern the plane.
func (c caller) administers(ctx context.Context) (bool, error) {
	if c.Caller == nil {
		return true, nil
	}
	d, err := c.May(ctx, auth.Access{Verb: auth.Govern, ID: plane()})
	return err == nil && d.Allowed, err
}

// in is the caller's level by membership alone.
func (c caller) in(o organization) level {
	at := nothing
	for _, m := range o.Members {
		if c.Caller == nil || !c.Is(m.Principal) {
			continue
		}
		if m.Role == RoleOwner {
			return owner
		}
		at = member
	}
	return at
}

func (c caller) decided(verb auth.Verb, id core.ID, allowed bool, reason string) {
	if c.Caller != nil {
		c.Decided(verb, id.String(), allowed, reason)
	}
}

// may asks whether the caller may do what takes a level in an organization. To
// whoever is no member the answer is that nothing is there: missing, which is
// also the answer where the organization does not exist.
func (s *Service) may(ctx context.Context, verb auth.Verb, id core.ID, name string, takes level, missing error) (organization, error) {
	c := callerOf(ctx)
	stored, _, err := s.o.Store.Get(ctx, OrganizationID(name))
	if err != nil && !core.IsCode(err, core.CodeNotFound) {
		return organization{}, err
	}
	there := err == nil && stored.ID.Name() == name // ids compare without case, these names do not
	var o organization
	if there {
		if o, err = read[organization](stored); err != nil {
			return o, err
		}
	}
	at, reason := c.in(o), "member of organization "+name
	if at == owner {
		reason = "owner of organization " + name
	}
	if at < takes || at == nothing {
		administers, err := c.administers(ctx)
		if err != nil {
			return o, err
		}
		if administers {
			at, reason = owner, "administrator of the platform"
		}
	}
	switch {
	case !there || at == nothing:
		c.decided(verb, id, false, "no member of organization "+name)
		return o, missing
	case at < takes:
		c.decided(verb, id, false, reason+", and this takes an owner")
		return o, core.Errorf(core.CodeForbidden, "this takes an owner of organization %s, and you are a member: its owners are %s", name, owners(o)).WithTarget(id.String())
	}
	c.decided(verb, id, true, reason)
	return o, nil
}

func owners(o organization) string {
	var names []string
	for _, m := range o.Members {
		if m.Role == RoleOwner {
			names = append(names, m.Principal.String())
		}
	}
	return strings.Join(names, ", ")
}

func noOrganization(name string) error {
	return core.Errorf(core.CodeNotFound, "organization %q does not exist, or you are no member of it", name).WithTarget(name)
}

func noProject(name string) error {
	return core.Errorf(core.CodeNotFound, "project %q does not exist, or you are no member of its organization", name).WithTarget(name)
}

// mayInProject is may for what is in a project.
func (s *Service) mayInProject(ctx context.Context, verb auth.Verb, id core.ID, name string, takes level) (core.Resource, project, error) {
	stored, _, err := s.o.Store.Get(ctx, ProjectID(name))
	if core.IsCode(err, core.CodeNotFound) || err == nil && stored.ID.Name() != name {
		callerOf(ctx).decided(verb, id, false, "there is no project "+name)
		return stored, project{}, noProject(name)
	}
	if err != nil {
		return stored, project{}, err
	}
	p, err := read[project](stored)
	if err != nil {
		return stored, p, err
	}
	_, err = s.may(ctx, verb, id, p.Organization, takes, noProject(name))
	return stored, p, err
}
