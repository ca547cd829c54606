package project

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/store"
)

// settle is how long a plain route waits for the operation that it began. The
// work is done within moments, unless the cluster is away.
const settle = 10 * time.Second

// Routes adds the plain routes. Their errors are flat ([arm.WriteFlatError]).
func (s *Service) Routes(add func(pattern string, methods map[string]arm.Handler)) {
	type methods = map[string]arm.Handler
	on := func(h arm.Handler) arm.Handler {
		return func(w http.ResponseWriter, r *arm.Request) error {
			if s.o.Installation == nil {
				return errOff()
			}
			w.Header().Set("Cache-Control", "no-store")
			return h(w, r)
		}
	}
	add("installation", methods{"GET": on(s.getInstallation)})
	add("auth/whoami", methods{"GET": on(s.whoami)})

	add("organizations", methods{"GET": on(s.listOrganizations)})
	add("organizations/{organization}", methods{"GET": on(s.getOrganization), "POST": on(s.createOrganization), "DELETE": on(s.deleteOrganization)})
	add("organizations/{organization}/members", methods{"GET": on(s.listMembers), "POST": on(s.addMember)})
	add("organizations/{organization}/members/{principal}", methods{"PUT": on(s.setMember), "DELETE": on(s.removeMember)})

	add("projects", methods{"GET": on(s.listProjects)})
	add("projects/{project}", methods{"GET": on(s.getProject), "POST": on(s.createProject), "DELETE": on(s.deleteProject)})
	add("projects/{project}/graph", methods{"GET": on(s.projectGraph)})
	add("projects/{project}/secrets/{secret}", methods{"PUT": on(s.setSecret), "DELETE": on(s.deleteSecret)})

	add("services/{project}", methods{"GET": on(s.listServices)})
	add("services/{project}/{service}", methods{"GET": on(s.getService), "PUT": on(s.applyService), "DELETE": on(s.deleteService)})
	add("services/{project}/{service}/pause", methods{"POST": on(s.pause(true))})
	add("services/{project}/{service}/resume", methods{"POST": on(s.pause(false))})
	add("services/{project}/{service}/restart", methods{"POST": on(s.restart)})
	add("services/{project}/{service}/history", methods{"GET": on(s.history)})
}

// short is the context of a write: what is begun is finished, also for a client
// that went away.
func short(r *arm.Request) context.Context { return context.WithoutCancel(r.Context()) }

// body reads a JSON object into v, of which nothing may be unknown.
func body(w http.ResponseWriter, r *arm.Request, v any) error {
	raw, err := arm.ReadBody(w, r, arm.MediaJSON)
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(raw))) == 0 {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		text := strings.TrimPrefix(err.Error(), "json: ")
		return core.Errorf(core.CodeInvalidContent, "the body cannot be read: %s", text)
	}
	if d.More() {
		return core.Errorf(core.CodeInvalidContent, "the body holds more than one JSON value")
	}
	return nil
}

// edit computes the properties of a resource anew and writes them, again when
// they changed meanwhile, and waits for an operation that holds the resource. The
// function may be called more than once; it returns nil to write nothing.
func (s *Service) edit(ctx context.Context, id core.ID, d core.SystemData, change func(core.Resource) (map[string]any, error)) (string, error) {
	deadline, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	for attempt := 0; ; {
		stored, live, err := s.o.Store.Get(ctx, id)
		if err != nil {
			return "", err
		}
		if live != nil {
			if err := s.o.Feed.WaitOperation(deadline, live.ID); err != nil {
				return "", core.Errorf(core.CodeConflict, "%s %q is being changed (operation %s) and has not come to an end within %s: try again, or cancel that", kindOf(id), id.Name(), live.ID, settle).WithTarget(id.String())
			}
			continue
		}
		properties, err := change(stored)
		if err != nil || properties == nil {
			return "", err
		}
		a, err := s.provider.Put(ctx, dynamic.Request{ID: id, APIVersion: APIVersion, SystemData: d, Preconditions: arm.Preconditions{IfMatch: stored.ETag}},
			wire.Put{Resource: wire.Resource{Location: stored.Location, Tags: stored.Tags, Properties: properties}})
		if attempt++; (core.IsCode(err, core.CodePrecondition) || core.IsCode(err, core.CodeConflict)) && attempt < 16 {
			continue
		}
		return a.Operation, err
	}
}

// properties are those that are stored.
func properties(r core.Resource) (map[string]any, error) {
	out := map[string]any{}
	return out, arm.Decode(r.Properties, &out)
}

func kindOf(id core.ID) string {
	for t, word := range map[string]string{TypeOrganization: "organization", TypeProject: "project", TypeService: "service"} {
		if strings.EqualFold(id.Type(), t) {
			return word
		}
	}
	return "resource"
}

// settled waits for the end of an operation, as long as a route waits. done is
// false when it goes on.
func (s *Service) settled(ctx context.Context, operation string) (done bool, err error) {
	if operation == "" {
		return true, nil
	}
	ended, stop := s.o.Feed.Operation(operation)
	defer stop()
	timer := time.NewTimer(settle)
	defer timer.Stop()
	for waiting := true; ; {
		op, err := s.o.Store.Operation(ctx, operation)
		switch {
		case err != nil:
			return false, err
		case op.State.Terminal():
			return true, op.Failure("the operation")
		case !waiting:
			return false, nil
		}
		select {
		case <-ended:
		case <-timer.C:
			waiting = false
		case <-s.o.Stopping:
			waiting = false
		}
	}
}

// remove deletes a resource and waits for the end of that.
func (s *Service) remove(w http.ResponseWriter, r *arm.Request, id core.ID, missing error) error {
	ctx := short(r)
	a, err := s.provider.Delete(ctx, dynamic.Request{ID: id, APIVersion: APIVersion, SystemData: r.SystemData()}, "")
	switch {
	case err != nil:
		return err
	case a.Missing:
		return missing
	}
	done, err := s.settled(ctx, a.Operation)
	if err != nil {
		return err
	}
	if !done {
		return arm.WriteJSON(w, http.StatusAccepted, map[string]string{"state": string(core.StateDeleting), "operation": a.Operation})
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// all lists resources of a type at and below a scope.
func (s *Service) all(ctx context.Context, scope core.ID, resourceType string) ([]core.Resource, error) {
	var out []core.Resource
	for q := (store.Query{Scope: scope, Type: resourceType, Limit: 500}); ; {
		page, err := s.o.Store.List(ctx, q)
		if err != nil {
			return nil, err
		}
		out = append(out, page.Resources...)
		if q.After = page.Next; q.After == "" {
			return out, nil
		}
	}
}

// list answers {"value": [...]}.
func list[T any](w http.ResponseWriter, items []T) error {
	if items == nil {
		items = []T{}
	}
	return arm.WriteJSON(w, http.StatusOK, map[string]any{"value": items})
}

// getInstallation answers what the installation names. Whoever is a member of
// any organization may see it, and the name of the key an owner of one.
func (s *Service) getInstallation(w http.ResponseWriter, r *arm.Request) error {
	ctx, c := r.Context(), callerOf(r.Context())
	at, err := s.highest(ctx, c)
	if err != nil {
		return err
	}
	id := plane().Resource(Namespace+"/installation", "installation")
	if at == nothing {
		c.decided(auth.Read, id, false, "member of no organization")
		return core.Errorf(core.CodeForbidden, "what the installation names is shown to members of its organizations, and you are of none: ask an owner for membership")
	}
	c.decided(auth.Read, id, true, "member of an organization")
	type named struct {
		Provider string  `json:"provider"`
		Account  string  `json:"account"`
		Location string  `json:"location"`
		KMSKey   *string `json:"kmsKey,omitempty"`
	}
	out := struct {
		PlatformVersion string `json:"platformVersion"`
		Cloud           *named `json:"cloud,omitempty"`
	}{PlatformVersion: core.Version}
	if set := s.o.Installation.Settings; set.HasProvider() {
		out.Cloud = &named{Provider: set.Provider, Account: set.Account, Location: set.Location}
		if at == owner {
			out.Cloud.KMSKey = &set.KMSKey
		}
	}
	return arm.WriteJSON(w, http.StatusOK, out)
}

// highest is the caller's level in the organization where it is highest.
func (s *Service) highest(ctx context.Context, c caller) (level, error) {
	administers, err := c.administers(ctx)
	if err != nil || administers {
		return owner, err
	}
	found, err := s.all(ctx, plane(), TypeOrganization)
	if err != nil {
		return nothing, err
	}
	at := nothing
	for _, stored := range found {
		o, err := read[organization](stored)
		if err != nil {
			return nothing, err
		}
		at = max(at, c.in(o))
	}
	return at, nil
}

func (s *Service) whoami(w http.ResponseWriter, r *arm.Request) error {
	ctx, c := r.Context(), callerOf(r.Context())
	administers, err := c.administers(ctx)
	if err != nil {
		return err
	}
	c.decided(auth.Discover, plane(), true, "everybody may know who they are")
	found, err := s.all(ctx, plane(), TypeOrganization)
	if err != nil {
		return err
	}
	type in struct {
		Organization string `json:"organization"`
		Role         string `json:"role"`
	}
	of := []in{}
	for _, stored := range found {
		o, err := read[organization](stored)
		if err != nil {
			return err
		}
		if at := c.in(o); at != nothing {
			of = append(of, in{stored.ID.Name(), roleOf(at)})
		}
	}
	return arm.WriteJSON(w, http.StatusOK, map[string]any{"principal": c.principal().String(), "administrator": administers, "organizations": of})
}

func roleOf(at level) string {
	if at == owner {
		return RoleOwner
	}
	return RoleMember
}

func etag(w http.ResponseWriter, r core.Resource) {
	if r.ETag != "" {
		w.Header().Set("ETag", strconv.Quote(r.ETag))
	}
}
