package project

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/graph"
	"github.com/radial-project/radial/internal/store"
)

type shownProject struct {
	ID           string                   `json:"id"`
	Organization string                   `json:"organization"`
	DisplayName  string                   `json:"displayName,omitempty"`
	Namespace    string                   `json:"namespace"`
	Backups      bool                     `json:"backups"`
	Keyring      bool                     `json:"keyring"`
	Secrets      []v1alpha1.ProjectSecret `json:"secrets"`
	State        string                   `json:"state"`
	Error        string                   `json:"error,omitempty"`
	Status       any                      `json:"status,omitempty"`
}

func (s *Service) showProject(ctx context.Context, r core.Resource) (shownProject, error) {
	p, err := read[project](r)
	if err != nil {
		return shownProject{}, err
	}
	st, err := values(r)
	out := shownProject{
		ID: r.ID.Name(), Organization: p.Organization, DisplayName: p.DisplayName, Namespace: v1alpha1.Namespace(r.ID.Name()),
		Backups: p.Backups, Keyring: p.Keyring, Secrets: p.Secrets, State: string(r.State), Status: st.ComputedValues[valueObserved],
	}
	if out.Secrets == nil {
		out.Secrets = []v1alpha1.ProjectSecret{}
	}
	if err == nil {
		out.Error, err = s.failure(ctx, r)
	}
	return out, err
}

// failure is why a resource is Failed or Canceled: how its last operation ended.
func (s *Service) failure(ctx context.Context, r core.Resource) (string, error) {
	if r.State != core.StateFailed && r.State != core.StateCanceled {
		return "", nil
	}
	page, err := s.o.Store.Operations(ctx, store.OperationQuery{Resource: r.ID, Limit: 1})
	if err != nil || len(page.Operations) == 0 || page.Operations[0].Error == nil {
		return "", err
	}
	return page.Operations[0].Error.Message, nil
}

func (s *Service) projectsOf(ctx context.Context, organization string) ([]string, error) {
	found, err := s.all(ctx, plane(), TypeProject)
	var names []string
	for _, stored := range found {
		if p, err := read[project](stored); err == nil && p.Organization == organization {
			names = append(names, stored.ID.Name())
		}
	}
	return names, err
}

// listProjects lists those of organizations that the caller is in;
// ?organization= names one.
func (s *Service) listProjects(w http.ResponseWriter, r *arm.Request) error {
	ctx, c := r.Context(), callerOf(r.Context())
	administers, err := c.administers(ctx)
	if err != nil {
		return err
	}
	organizations, err := s.all(ctx, plane(), TypeOrganization)
	if err != nil {
		return err
	}
	mine := map[string]bool{}
	for _, stored := range organizations {
		o, err := read[organization](stored)
		if err != nil {
			return err
		}
		mine[stored.ID.Name()] = administers || c.in(o) != nothing
	}
	only := r.Query("organization")
	if only != "" && !mine[only] {
		c.decided(auth.Read, OrganizationID(only), false, "no member of organization "+only)
		return noOrganization(only)
	}
	found, err := s.all(ctx, plane(), TypeProject)
	if err != nil {
		return err
	}
	c.decided(auth.Discover, plane(), true, "lists are narrowed to what the caller is a member of")
	var out []shownProject
	for _, stored := range found {
		p, err := s.showProject(ctx, stored)
		if err != nil {
			return err
		}
		if mine[p.Organization] && (only == "" || only == p.Organization) {
			out = append(out, p)
		}
	}
	return list(w, out)
}

func (s *Service) getProject(w http.ResponseWriter, r *arm.Request) error {
	name := r.Vars["project"]
	stored, _, err := s.mayInProject(r.Context(), auth.Read, ProjectID(name), name, member)
	if err != nil {
		return err
	}
	p, err := s.showProject(r.Context(), stored)
	if err != nil {
		return err
	}
	etag(w, stored)
	return arm.WriteJSON(w, http.StatusOK, p)
}

func (s *Service) createProject(w http.ResponseWriter, r *arm.Request) error {
	ctx, name := r.Context(), r.Vars["project"]
	id := ProjectID(name)
	var in struct {
		Organization string `json:"organization"`
		DisplayName  string `json:"displayName"`
		Backups      bool   `json:"backups"`
		Keyring      bool   `json:"keyring"`
	}
	if err := body(w, r, &in); err != nil {
		return err
	}
	if in.Organization == "" {
		callerOf(ctx).decided(auth.Write, id, false, "names no organization")
		return core.Errorf(core.CodeInvalidContent, "organization is required: the one that the project belongs to").WithTarget("organization")
	}
	if _, err := s.may(ctx, auth.Write, id, in.Organization, member, noOrganization(in.Organization)); err != nil {
		return err
	}
	if err := v1alpha1.ValidateProject(name); err != nil {
		return core.Errorf(core.CodeInvalidContent, "%w", err).WithTarget("name")
	}
	props, err := asProperties(project{Organization: in.Organization, DisplayName: in.DisplayName, Backups: in.Backups, Keyring: in.Keyring})
	if err != nil {
		return err
	}
	a, err := s.provider.Put(short(r), dynamic.Request{ID: id, APIVersion: APIVersion, SystemData: r.SystemData(), Preconditions: arm.Preconditions{IfNoneMatch: "*"}},
		wire.Put{Resource: wire.Resource{Properties: props}, ImplicitParents: true})
	if core.IsCode(err, core.CodePrecondition) {
		return core.Errorf(core.CodeConflict, "project id %q is taken: choose another", name).WithTarget(name)
	}
	if err != nil {
		return err
	}
	return s.answerProject(w, r, id, a.Operation, http.StatusCreated)
}

// answerProject answers a project once what was begun with it has ended, or 202
// while that goes on.
func (s *Service) answerProject(w http.ResponseWriter, r *arm.Request, id core.ID, operation string, status int) error {
	done, err := s.settled(r.Context(), operation)
	if err != nil {
		return err
	}
	if !done {
		status = http.StatusAccepted
	}
	stored, _, err := s.o.Store.Get(r.Context(), id)
	if err != nil {
		return err
	}
	p, err := s.showProject(r.Context(), stored)
	if err != nil {
		return err
	}
	etag(w, stored)
	return arm.WriteJSON(w, status, p)
}

// deleteProject takes an owner: the id is not given out again.
func (s *Service) deleteProject(w http.ResponseWriter, r *arm.Request) error {
	name := r.Vars["project"]
	id := ProjectID(name)
	if _, _, err := s.mayInProject(r.Context(), auth.Delete, id, name, owner); err != nil {
		return err
	}
	held, err := s.all(r.Context(), GroupID(name), TypeService)
	if err != nil {
		return err
	}
	if len(held) > 0 {
		names := make([]string, len(held))
		for i, h := range held {
			names[i] = h.ID.Name()
		}
		return core.Errorf(core.CodeConflict, "project %q has services (%s): delete them first", name, strings.Join(names, ", ")).WithTarget(name)
	}
	return s.remove(w, r, id, noProject(name))
}

// setSecret merges entries into a project secret. A string is a value, null
// removes the entry, and true declares one whose value is kept in the cloud
// account. Values go to the cluster and are kept nowhere here.
func (s *Service) setSecret(w http.ResponseWriter, r *arm.Request) error {
	ctx, name, secret := r.Context(), r.Vars["project"], r.Vars["secret"]
	id := ProjectID(name)
	if _, _, err := s.mayInProject(ctx, auth.Write, id, name, member); err != nil {
		return err
	}
	var in struct {
		Entries map[string]json.RawMessage `json:"entries"`
	}
	raw, err := arm.ReadBody(w, r, arm.MediaJSON, arm.MediaMergePatch)
	if err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if d.Decode(&in) != nil || d.More() {
		// What the decoder says could repeat a value.
		return core.Errorf(core.CodeInvalidContent, `the body cannot be read: it is {"entries": {"<NAME>": "<value>" or null}}`)
	}
	change, err := s.entries(secret, in.Entries)
	if err != nil {
		return err
	}
	if !s.o.Installation.Settings.ProjectSecrets {
		if err := s.writeSecret(short(r), name, secret, change); err != nil {
			return err
		}
	}
	op, err := s.editSecrets(r, id, func(list []v1alpha1.ProjectSecret) []v1alpha1.ProjectSecret {
		i := slices.IndexFunc(list, func(e v1alpha1.ProjectSecret) bool { return e.Name == secret })
		if i < 0 {
			list, i = append(list, v1alpha1.ProjectSecret{Name: secret}), len(list)
		}
		have := map[string]bool{}
		for _, e := range list[i].Entries {
			have[e] = true
		}
		for e, v := range change {
			have[e] = !v.gone
			if v.gone {
				delete(have, e)
			}
		}
		list[i].Entries = slices.Sorted(maps.Keys(have))
		list[i].EntryGeneration++
		return list
	})
	if err != nil {
		return err
	}
	return s.answerProject(w, r, id, op, http.StatusOK)
}

// editSecrets changes the list of a project's secrets; change may be called more
// than once, each time with the list as it is then.
func (s *Service) editSecrets(r *arm.Request, id core.ID, change func([]v1alpha1.ProjectSecret) []v1alpha1.ProjectSecret) (string, error) {
	return s.edit(short(r), id, r.SystemData(), func(stored core.Resource) (map[string]any, error) {
		props, err := properties(stored)
		if err != nil {
			return nil, err
		}
		p, err := read[project](stored)
		if err != nil {
			return nil, err
		}
		list := change(p.Secrets)
		m, err := asProperties(project{Secrets: list})
		if err != nil {
			return nil, err
		}
		if props["secrets"] = m["secrets"]; len(list) == 0 {
			delete(props, "secrets")
		}
		return props, nil
	})
}

// entry is a change of one entry of a secret.
type entryChange struct {
	value *string
	gone  bool
}

// entries reads what is to become of entries, all problems at once and no value
// in any.
func (s *Service) entries(secret string, in map[string]json.RawMessage) (map[string]entryChange, error) {
	var list []core.Error
	if err := checkSecretName(secret); err != nil {
		list = append(list, problem("name", "%s", err))
	}
	if len(in) == 0 {
		list = append(list, problem("entries", `at least one is needed, such as {"API_KEY": "…"}`))
	}
	inCloud := s.o.Installation.Settings.ProjectSecrets
	out := map[string]entryChange{}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		at := "entries." + shortText(name)
		if !entryName.MatchString(name) {
			list = append(list, problem(at, "is no entry's name: letters, digits, hyphens, underscores and dots"))
			continue
		}
		var v any
		_ = json.Unmarshal(in[name], &v) // it was read before
		switch v := v.(type) {
		case nil:
			out[name] = entryChange{gone: true}
		case string:
			if inCloud {
				list = append(list, problem(at, "the installation keeps project secrets in its cloud account: declare the entry (true), and set its value there"))
			}
			out[name] = entryChange{value: &v}
		case bool:
			switch {
			case !v:
				list = append(list, problem(at, "must be a string, or null to remove the entry"))
			case !inCloud:
				list = append(list, problem(at, "the installation keeps project secrets in its cluster: give the entry its value, here, instead of declaring it"))
			}
			out[name] = entryChange{}
		default:
			list = append(list, problem(at, "must be a string, or null to remove the entry"))
		}
	}
	return out, problems("the secret", list)
}

func (s *Service) writeSecret(ctx context.Context, project, secret string, change map[string]entryChange) error {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	data := map[string]*string{}
	for name, c := range change {
		data[name] = c.value
	}
	err := persist(ctx, func(string) {}, func(ctx context.Context) error {
		if err := s.cluster.ensureNamespace(ctx, project); err != nil {
			return err
		}
		return s.cluster.setSecret(ctx, project, secret, data)
	})
	if ctx.Err() != nil {
		return core.Errorf(core.CodeUnavailable, "the cluster does not answer, so the secret was not set: try again")
	}
	return err
}

// deleteSecret forgets a secret and takes its entries out of the cluster, where
// nobody may delete Secrets.
func (s *Service) deleteSecret(w http.ResponseWriter, r *arm.Request) error {
	ctx, name, secret := r.Context(), r.Vars["project"], r.Vars["secret"]
	id := ProjectID(name)
	_, p, err := s.mayInProject(ctx, auth.Delete, id, name, member)
	if err != nil {
		return err
	}
	missing := core.Errorf(core.CodeNotFound, "project %q has no secret %q", name, shortText(secret)).WithTarget(secret)
	i := slices.IndexFunc(p.Secrets, func(e v1alpha1.ProjectSecret) bool { return e.Name == secret })
	if i < 0 {
		return missing
	}
	users, err := s.usersOf(ctx, name, secret)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return core.Errorf(core.CodeConflict, "secret %q is used by services (%s): apply them without it first", secret, strings.Join(users, ", ")).WithTarget(secret)
	}
	if !s.o.Installation.Settings.ProjectSecrets {
		change := map[string]entryChange{}
		for _, e := range p.Secrets[i].Entries {
			change[e] = entryChange{gone: true}
		}
		// In a Secret that is somebody else's by now is nothing of the project's.
		if err := s.writeSecret(short(r), name, secret, change); err != nil && !core.IsCode(err, core.CodeConflict) {
			return err
		}
	}
	op, err := s.editSecrets(r, id, func(list []v1alpha1.ProjectSecret) []v1alpha1.ProjectSecret {
		return slices.DeleteFunc(list, func(e v1alpha1.ProjectSecret) bool { return e.Name == secret })
	})
	if err != nil {
		return err
	}
	return s.answerProject(w, r, id, op, http.StatusOK)
}

// usersOf are the services that take an entry of a secret.
func (s *Service) usersOf(ctx context.Context, project, secret string) ([]string, error) {
	found, err := s.all(ctx, GroupID(project), TypeService)
	var names []string
	for _, stored := range found {
		d, err := serviceOf(stored)
		if err != nil {
			return nil, err
		}
		for _, e := range d.Env {
			if e.SecretKeyRef != nil && e.SecretKeyRef.Name == secret {
				names = append(names, stored.ID.Name())
				break
			}
		}
	}
	return names, err
}

// projectGraph answers the graph of a project: its services, their buckets and
// credentials, and what else stands in its group (C-154).
func (s *Service) projectGraph(w http.ResponseWriter, r *arm.Request) error {
	name := r.Vars["project"]
	if _, _, err := s.mayInProject(r.Context(), auth.Read, ProjectID(name), name, member); err != nil {
		return err
	}
	g, err := s.o.Store.Graph(r.Context(), GroupID(name))
	if err != nil {
		return err
	}
	// What stands elsewhere is not the project's to show, but that it is used.
	inside := GroupID(name).Key() + "/"
	return arm.WriteEach(w, http.StatusOK, "resources", func(yield func(any) error) error {
		return graph.Each(g, GroupID(name), func(node wire.GraphResource) error {
			if !strings.HasPrefix(strings.ToLower(node.ID), inside) {
				return nil
			}
			node.Connections = slices.DeleteFunc(node.Connections, func(c wire.GraphConnection) bool {
				return c.Direction == graph.Inbound && !strings.HasPrefix(strings.ToLower(c.ID), inside)
			})
			return yield(node)
		})
	})
}
