package server

import (
	"context"
	"net/http"
	"strings"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deployment"
	"github.com/radial-project/radial/internal/store"
)

// localPlane is the plane that every installation has.
var localPlane = core.MustParseID("/planes/radius/local")

// planeTypes are the types of planes that the wire knows. Clouds are reached by
// other ways than planes of their own; lists of them are empty.
var planeTypes = []string{"radius", "aws", "azure"}

func (s *Server) ensurePlane(ctx context.Context) error {
	_, _, err := s.o.Store.Get(ctx, localPlane)
	if !core.IsCode(err, core.CodeNotFound) {
		return err
	}
	_, err = s.o.Store.Accept(ctx, s.scopeWrite(localPlane, core.Resource{}, nil))
	if core.IsCode(err, store.Changed) { // another process did it
		return nil
	}
	return err
}

// scopeWrite is the row of a plane or a group.
func (s *Server) scopeWrite(id core.ID, stored core.Resource, tags map[string]string) store.Write {
	now := s.o.Now()
	r := core.Resource{
		ID: id, APIVersion: APIVersion, Location: "global", Tags: tags, Properties: []byte("{}"),
		State: core.StateSucceeded, Implicit: stored.Implicit, SystemData: stored.SystemData,
	}
	r.SystemData.LastModifiedAt = now.UTC()
	if r.SystemData.CreatedAt.IsZero() {
		r.SystemData.CreatedAt = now.UTC()
	}
	return store.Write{Resource: r, Expect: stored.ETag, Now: now}
}

// planeType refuses a type of plane that the wire does not know.
func planeType(r *arm.Request) error {
	for _, t := range planeTypes {
		if strings.EqualFold(t, r.Vars["planeType"]) {
			return nil
		}
	}
	return core.Errorf(core.CodeInvalidPlaneType, "plane type %q is not known: it may be one of %s", r.Vars["planeType"], strings.Join(planeTypes, ", "))
}

func (s *Server) listPlanes(w http.ResponseWriter, r *arm.Request) error {
	if t, ok := r.Vars["planeType"]; ok {
		if err := planeType(r); err != nil {
			return err
		}
		if !strings.EqualFold(t, localPlane.Plane.Type) {
			return arm.WriteJSON(w, http.StatusOK, wire.List{Value: []wire.Resource{}})
		}
	}
	return s.listRows(w, r, store.Query{Type: store.TypePlane})
}

func (s *Server) listGroups(w http.ResponseWriter, r *arm.Request) error {
	plane := core.ID{Plane: core.Segment{Type: r.Vars["planeType"], Name: r.Vars["plane"]}}
	if _, _, err := s.o.Store.Get(r.Context(), plane); err != nil {
		return err
	}
	return s.listRows(w, r, store.Query{Scope: plane, Type: store.TypeGroup})
}

func (s *Server) listRows(w http.ResponseWriter, r *arm.Request, q store.Query) error {
	page, err := r.Page()
	if err != nil {
		return err
	}
	q.Limit, q.After = page.Limit, page.After
	found, err := s.o.Store.List(r.Context(), q)
	if err != nil {
		return err
	}
	visible := auth.Viewer(r.Context())
	list := wire.List{Value: []wire.Resource{}, NextLink: r.NextLink(found.Next)}
	for _, res := range found.Resources {
		if q.Type == store.TypePlane || visible(res.ID) { // planes are there for whoever has a role below
			list.Value = append(list.Value, scopeResource(res))
		}
	}
	return arm.WriteJSON(w, http.StatusOK, list)
}

func scopeResource(r core.Resource) wire.Resource {
	out := wire.Resource{
		ID: r.ID.String(), Name: r.ID.Name(), Type: store.TypeOf(r.ID), Location: "global", Tags: orNone(r.Tags),
		Properties: map[string]any{"provisioningState": string(core.StateSucceeded)},
	}
	if out.Type == store.TypePlane {
		out.Type = "System." + strings.ToUpper(r.ID.Plane.Type[:1]) + r.ID.Plane.Type[1:] + "/planes"
		out.Properties["resourceProviders"] = map[string]any{}
	}
	return out
}

// orNone are tags as planes, groups and registrations show them: an empty
// object where there are none, which some clients read without asking.
func orNone(tags map[string]string) map[string]string {
	if tags == nil {
		return map[string]string{}
	}
	return tags
}

func (s *Server) getScope(w http.ResponseWriter, r *arm.Request) error {
	if err := planeType(r); err != nil {
		return err
	}
	id, err := r.ID()
	if err != nil {
		return err
	}
	res, _, err := s.o.Store.Get(r.Context(), id)
	if err != nil {
		return err
	}
	return arm.WriteResource(w, http.StatusOK, scopeResource(res), res.ETag)
}

// putPlane keeps what a client says of the local plane. There is no other: a
// plane stands for another control plane behind this one, which is not offered.
func (s *Server) putPlane(w http.ResponseWriter, r *arm.Request) error {
	if err := planeType(r); err != nil {
		return err
	}
	id, err := r.ID()
	if err != nil {
		return err
	}
	if !id.Equal(localPlane) {
		return core.Errorf(core.CodeBadRequest, "%s cannot be made: the one plane of this server is %s", id, localPlane).WithTarget(id.String())
	}
	return s.putScope(w, r, localPlane)
}

func (s *Server) putGroup(w http.ResponseWriter, r *arm.Request) error {
	if err := planeType(r); err != nil {
		return err
	}
	id, err := r.ID()
	if err != nil {
		return err
	}
	return s.putScope(w, r, id)
}

func (s *Server) putScope(w http.ResponseWriter, r *arm.Request, id core.ID) error {
	body, err := arm.ReadPut(w, r)
	if err != nil {
		return err
	}
	for {
		stored, _, err := s.o.Store.Get(r.Context(), id)
		if err != nil && !core.IsCode(err, core.CodeNotFound) {
			return err
		}
		if err := r.Preconditions().Check(id, stored.ETag); err != nil {
			return err
		}
		res, err := s.o.Store.Accept(r.Context(), s.scopeWrite(id, stored, body.Tags))
		if core.IsCode(err, store.Changed) {
			continue // someone else's write came between: theirs first, then ours
		}
		if err != nil {
			return err
		}
		return arm.WriteResource(w, http.StatusOK, scopeResource(res), res.ETag)
	}
}

func (s *Server) deleteScope(w http.ResponseWriter, r *arm.Request) error {
	if err := planeType(r); err != nil {
		return err
	}
	id, err := r.ID()
	if err != nil {
		return err
	}
	if id.Equal(localPlane) {
		return core.Errorf(core.CodeConflict, "%s is the server's own plane and stays", localPlane).WithTarget(localPlane.String())
	}
	stored, _, err := s.o.Store.Get(r.Context(), id)
	if core.IsCode(err, core.CodeNotFound) {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.Preconditions().Check(id, stored.ETag); err != nil {
		return err
	}
	if cascades(r) {
		return s.startCascade(w, r, target{ID: stored.ID.String()})
	}
	if err := s.forgetDeployments(r.Context(), stored.ID); err != nil {
		return err
	}
	_, err = s.o.Store.AcceptDelete(r.Context(), store.Delete{ID: stored.ID, Expect: "*", Now: s.o.Now()})
	if core.IsCode(err, core.CodeNotFound) {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// forgetDeployments forgets those of a group that holds nothing else: their
// history is nothing that a group could be in use for. A running one keeps it.
func (s *Server) forgetDeployments(ctx context.Context, group core.ID) error {
	const most = deployment.DefaultKeep + 200
	used, err := s.o.Store.Dependents(ctx, store.Use{Of: group, Limit: most})
	if err != nil || used.Count != len(used.IDs) {
		return err
	}
	for _, id := range used.IDs {
		if !deployment.IsDeployment(id) {
			return nil
		}
	}
	for _, id := range used.IDs {
		if err := s.deployments.Forget(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// listResources answers id, name and type of everything in a group or in the
// plane; `application` and `environment` narrow it to what belongs to one.
func (s *Server) listResources(w http.ResponseWriter, r *arm.Request) error {
	path := *r
	path.Segments = r.Segments[:len(r.Segments)-1]
	scope, err := path.ID()
	if err != nil {
		return err
	}
	if _, _, err := s.o.Store.Get(r.Context(), scope); err != nil {
		return err
	}
	q := store.Query{Scope: scope}
	for name, into := range map[string]*core.ID{"application": &q.Application, "environment": &q.Environment} {
		if v := r.Query(name); v != "" {
			if *into, err = core.ParseID(v); err != nil {
				return err
			}
		}
	}
	page, err := r.Page()
	if err != nil {
		return err
	}
	q.Limit, q.After = page.Limit, page.After
	found, err := s.o.Store.List(r.Context(), q)
	if err != nil {
		return err
	}
	type tracked struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Type string `json:"type"`
	}
	list := struct {
		Value    []tracked `json:"value"`
		NextLink string    `json:"nextLink,omitempty"`
	}{Value: []tracked{}, NextLink: r.NextLink(found.Next)}
	visible := auth.Viewer(r.Context())
	for _, res := range found.Resources {
		if !res.ID.IsScope() && !strings.EqualFold(res.ID.Type(), typeCascade) && visible(res.ID) {
			list.Value = append(list.Value, tracked{res.ID.String(), res.ID.Name(), res.ID.Type()})
		}
	}
	return arm.WriteJSON(w, http.StatusOK, list)
}
