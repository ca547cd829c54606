package project

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/cloud"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/descriptor"
	"github.com/radial-project/radial/internal/dynamic"
)

// Roles in an organization.
const (
	RoleOwner  = "owner"
	RoleMember = "member"
)

// Member is one of an organization.
type Member struct {
	Principal auth.Principal `json:"principal"`
	Role      string         `json:"role"`
}

// organization, project and service are the properties of the types, as far as
// they are not the descriptor's.
type organization struct {
	DisplayName string   `json:"displayName,omitempty"`
	Members     []Member `json:"members"`
}

type project struct {
	Organization string                   `json:"organization"`
	DisplayName  string                   `json:"displayName,omitempty"`
	Secrets      []v1alpha1.ProjectSecret `json:"secrets,omitempty"`
	Backups      bool                     `json:"backups,omitempty"`
	Keyring      bool                     `json:"keyring,omitempty"`
}

// beside are the properties of a service that its descriptor does not say.
var beside = []string{"paused", "restarts", "generation", "observed", "application", "environment", "codeReference"}

func read[T any](r core.Resource) (T, error) {
	var v T
	if err := json.Unmarshal(r.Properties, &v); err != nil {
		return v, core.Errorf(core.CodeInternal, "the stored properties of %s cannot be read", r.ID)
	}
	return v, nil
}

func from[T any](properties map[string]any) (T, error) {
	var v T
	raw, err := json.Marshal(properties)
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	return v, err
}

// Kinds are the checks of the types, by type in lower case.
func (s *Service) Kinds() map[string]dynamic.Kind {
	kept := func(_ context.Context, w dynamic.Subject) error {
		return core.Errorf(core.CodeForbidden, "%s is kept by the control plane from what is reported to it, and written by nobody else", w.ID).WithTarget(w.ID.String())
	}
	kinds := map[string]dynamic.Kind{
		TypeOrganization: {Check: s.on(s.checkOrganization), Unused: true},
		TypeProject:      {Check: s.on(s.checkProject), Unused: true, Edges: s.projectEdges},
		TypeService:      {Check: s.on(s.checkService), Edges: serviceEdges},
		TypeBucket:       {Check: kept, Unused: true},
		TypeCredential:   {Check: kept, Unused: true},
		TypeRetired:      {Check: kept},
	}
	out := map[string]dynamic.Kind{}
	for t, k := range kinds {
		out[strings.ToLower(t)] = k
	}
	return out
}

func (s *Service) on(check func(context.Context, dynamic.Subject) error) func(context.Context, dynamic.Subject) error {
	return func(ctx context.Context, w dynamic.Subject) error {
		if s.o.Installation == nil {
			return errOff()
		}
		return check(ctx, w)
	}
}

// problems makes one error of many.
func problems(what string, list []core.Error) error {
	if len(list) == 0 {
		return nil
	}
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = p.Message
	}
	return core.Errorf(core.CodeInvalidContent, "%s is not taken: %s", what, strings.Join(texts, "; ")).WithDetails(list...)
}

func problem(at, format string, args ...any) core.Error {
	return core.Error{Code: core.CodeInvalidContent, Message: at + ": " + fmt.Sprintf(format, args...), Target: at}
}

// fresh refuses an id that another one had, when it is about to be given out.
func (s *Service) fresh(ctx context.Context, id core.ID, kind string) error {
	_, _, err := s.o.Store.Get(ctx, id)
	if err == nil || !core.IsCode(err, core.CodeNotFound) {
		return err
	}
	was, err := s.retired(ctx, kind, strings.ToLower(id.Name()))
	if err == nil && was {
		err = core.Errorf(core.CodeConflict, "%s %s was deleted, and its id is not given out again: choose another", kind, id.Name()).WithTarget(id.String())
	}
	return err
}

func (s *Service) checkOrganization(ctx context.Context, w dynamic.Subject) error {
	if len(w.ID.Scopes) > 0 {
		return core.Errorf(core.CodeInvalidContent, "an organization stands at the plane: its id is %s", OrganizationID(w.ID.Name())).WithTarget(w.ID.String())
	}
	o, err := from[organization](w.Properties)
	if err != nil {
		return core.Errorf(core.CodeInvalidContent, "the organization cannot be read")
	}
	var list []core.Error
	if err := v1alpha1.ValidateName("organization", w.ID.Name()); err != nil {
		list = append(list, problem("name", "%s", err))
	}
	owners := 0
	for i, m := range o.Members {
		at := fmt.Sprintf("members[%d]", i)
		if err := m.Principal.Check(); err != nil {
			list = append(list, problem(at, "%s", err))
		}
		switch m.Role {
		case RoleOwner:
			owners++
		case RoleMember:
		default:
			list = append(list, problem(at, "role must be owner or member"))
		}
		if slices.ContainsFunc(o.Members[:i], func(other Member) bool { return other.Principal == m.Principal }) {
			list = append(list, problem(at, "%s stands twice", m.Principal))
		}
	}
	if owners == 0 {
		list = append(list, problem("members", "an organization has at least one owner"))
	}
	if err := problems("the organization", list); err != nil {
		return err
	}
	return s.fresh(ctx, w.ID, "organization")
}

var entryName = regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`)

func (s *Service) checkProject(ctx context.Context, w dynamic.Subject) error {
	name := w.ID.Name()
	if !w.ID.Equal(ProjectID(name)) {
		return core.Errorf(core.CodeInvalidContent, "a project stands in the resource group of its namespace: its id is %s", ProjectID(name)).WithTarget(w.ID.String())
	}
	p, err := from[project](w.Properties)
	if err != nil {
		return core.Errorf(core.CodeInvalidContent, "the project cannot be read")
	}
	var list []core.Error
	if err := v1alpha1.ValidateProject(name); err != nil {
		list = append(list, problem("name", "%s", err))
	}
	for _, other := range []string{"application", "environment", "connections", "recipe", "resources", "resourceProvisioning"} {
		if w.Properties[other] != nil {
			list = append(list, problem(other, "a project has none"))
		}
	}
	list = append(list, checkSecrets(p.Secrets)...)
	stored, _, err := s.o.Store.Get(ctx, w.ID)
	switch {
	case core.IsCode(err, core.CodeNotFound):
	case err != nil:
		return err
	default:
		before, err := read[project](stored)
		if err != nil {
			return err
		}
		if before.Organization != p.Organization {
			list = append(list, problem("organization", "a project stays in the organization that it was made in, which is %q", before.Organization))
		}
		for i, sec := range p.Secrets {
			for _, old := range before.Secrets {
				if old.Name == sec.Name && sec.EntryGeneration < old.EntryGeneration {
					list = append(list, problem(fmt.Sprintf("secrets[%d].entryGeneration", i), "never falls, and is %d", old.EntryGeneration))
				}
			}
		}
	}
	if err := problems("the project", list); err != nil {
		return err
	}
	if _, _, err := s.o.Store.Get(ctx, OrganizationID(p.Organization)); core.IsCode(err, core.CodeNotFound) {
		return core.Errorf(core.CodeInvalidContent, "organization %q of project %s does not exist", p.Organization, name).WithTarget("organization")
	} else if err != nil {
		return err
	}
	return s.fresh(ctx, w.ID, "project")
}

func checkSecrets(secrets []v1alpha1.ProjectSecret) (list []core.Error) {
	for i, sec := range secrets {
		at := fmt.Sprintf("secrets[%d]", i)
		if err := checkSecretName(sec.Name); err != nil {
			list = append(list, problem(at+".name", "%s", err))
		}
		for j, e := range sec.Entries {
			if !entryName.MatchString(e) {
				list = append(list, problem(fmt.Sprintf("%s.entries[%d]", at, j), "is no entry's name: letters, digits, hyphens, underscores and dots"))
			}
			if slices.Contains(sec.Entries[:j], e) {
				list = append(list, problem(fmt.Sprintf("%s.entries[%d]", at, j), "stands twice"))
			}
		}
		if slices.ContainsFunc(secrets[:i], func(other v1alpha1.ProjectSecret) bool { return other.Name == sec.Name }) {
			list = append(list, problem(at+".name", "stands twice"))
		}
	}
	return list
}

func checkSecretName(name string) error {
	if err := v1alpha1.ValidateName("secret", name); err != nil {
		return err
	}
	return cloud.CheckSecretReference(name)
}

func (s *Service) checkService(ctx context.Context, w dynamic.Subject) error {
	name := w.ID.Name()
	in, ok := projectOf(w.ID)
	if !ok {
		return core.Errorf(core.CodeInvalidContent, "a service stands in the resource group of its project, ankka-<project>: %s does not", w.ID).WithTarget(w.ID.String())
	}
	if err := v1alpha1.ValidateName("service", name); err != nil {
		return core.Errorf(core.CodeInvalidContent, "%w", err).WithTarget("name")
	}
	if _, err := descriptor.FromProperties(w.Properties, beside...); err != nil {
		return err
	}
	p, _, err := s.o.Store.Get(ctx, ProjectID(in))
	switch {
	case core.IsCode(err, core.CodeNotFound):
		return core.Errorf(core.CodeNotFound, "project %q of service %s does not exist", in, name).WithTarget(ProjectID(in).String())
	case err != nil:
		return err
	case p.State == core.StateDeleting:
		return core.Errorf(core.CodeConflict, "project %q of service %s is being deleted", in, name).WithTarget(p.ID.String())
	}
	return nil
}

func (s *Service) projectEdges(id core.ID, props map[string]any) []core.Edge {
	name, _ := props["organization"].(string)
	edges := []core.Edge{{From: id, To: OrganizationID(name), Kind: core.EdgeDependency}}
	if wants, _ := props["backups"].(bool); wants && s.o.Installation != nil && s.o.Installation.Settings.Backups {
		edges = append(edges, core.Edge{From: id, To: bucketID(v1alpha1.Subject{Project: id.Name()}), Kind: core.EdgeDependency, Name: "backups"})
	}
	return edges
}

func serviceEdges(id core.ID, props map[string]any) []core.Edge {
	in, _ := projectOf(id)
	edges := []core.Edge{{From: id, To: ProjectID(in), Kind: core.EdgeDependency}}
	if asks, _ := props["provisionObjectStorage"].(bool); asks {
		edges = append(edges, core.Edge{From: id, To: bucketID(v1alpha1.Subject{Project: in, Service: id.Name()}), Kind: core.EdgeConnection, Name: "objectStorage"})
	}
	return edges
}
