package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/application"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/graph"
	"github.com/radial-project/radial/internal/project"
	"github.com/radial-project/radial/internal/recipe"
)

// request is a request on one resource, with its preconditions.
func request(r *arm.Request) (dynamic.Request, error) {
	id, err := r.ID()
	if err != nil {
		return dynamic.Request{}, err
	}
	if !id.IsResource() {
		return dynamic.Request{}, core.Errorf(core.CodeMethodNotAllowed, "The request method '%s' is invalid: %s names a collection, and only a resource can be written.", r.Method, id)
	}
	return dynamic.Request{ID: id, APIVersion: r.APIVersion, Preconditions: r.Preconditions(), SystemData: r.SystemData()}, nil
}

// short is the context of the few statements on one row that a request makes.
// They end by themselves within moments, and a write that has begun is finished
// also for a client that went away; watching for that costs more than they do.
func short(r *arm.Request) context.Context { return context.WithoutCancel(r.Context()) }

func (s *Server) get(w http.ResponseWriter, r *arm.Request) error {
	id, err := r.ID()
	if err != nil {
		return err
	}
	if id.IsCollection() {
		return s.list(w, r, id)
	}
	a, err := s.provider.Get(short(r), dynamic.Request{ID: id, APIVersion: r.APIVersion})
	if err != nil {
		return err
	}
	return arm.WriteResource(w, http.StatusOK, a.Resource, a.ETag)
}

func (s *Server) list(w http.ResponseWriter, r *arm.Request, collection core.ID) error {
	page, err := r.Page()
	if err != nil {
		return err
	}
	found, next, err := s.provider.List(r.Context(), collection, r.APIVersion, page)
	if err != nil {
		return err
	}
	visible := auth.Viewer(r.Context())
	found = slices.DeleteFunc(found, func(res wire.Resource) bool {
		id, err := core.ParseID(res.ID)
		return err != nil || !visible(id)
	})
	return arm.WriteJSON(w, http.StatusOK, wire.List{Value: found, NextLink: r.NextLink(next)})
}

func (s *Server) put(w http.ResponseWriter, r *arm.Request) error {
	req, err := request(r)
	if err != nil {
		return err
	}
	body, err := arm.ReadPut(w, r)
	if err != nil {
		return err
	}
	a, err := s.provider.Put(short(r), req, body)
	if err != nil {
		return err
	}
	return s.written(w, r, req.ID, a, http.StatusCreated)
}

func (s *Server) patch(w http.ResponseWriter, r *arm.Request) error {
	req, err := request(r)
	if err != nil {
		return err
	}
	change, err := arm.ReadObject(w, r, arm.MediaMergePatch, arm.MediaJSON)
	if err != nil {
		return err
	}
	a, err := s.provider.Patch(short(r), req, change)
	if err != nil {
		return err
	}
	return s.written(w, r, req.ID, a, http.StatusAccepted)
}

// written answers a write: status with the headers to follow where an operation
// runs, 200 where the write is complete.
func (s *Server) written(w http.ResponseWriter, r *arm.Request, id core.ID, a dynamic.Answer, status int) error {
	if a.Operation == "" {
		return arm.WriteResource(w, http.StatusOK, a.Resource, a.ETag)
	}
	arm.SetAsync(w, r, id, a.Operation)
	return arm.WriteResource(w, status, a.Resource, a.ETag)
}

func (s *Server) delete(w http.ResponseWriter, r *arm.Request) error {
	req, err := request(r)
	if err != nil {
		return err
	}
	if cascades(r) && s.provider.Unused(req.ID.Type()) {
		current, err := s.provider.Get(short(r), dynamic.Request{ID: req.ID, APIVersion: req.APIVersion})
		if err == nil {
			if err := req.Preconditions.Check(req.ID, current.ETag); err != nil {
				return err
			}
			return s.startCascade(w, r, target{ID: current.Resource.ID})
		}
		if !core.IsCode(err, core.CodeNotFound) {
			return err
		}
	}
	a, err := s.provider.Delete(short(r), req, r.Header.Get(wire.HeaderOwnerUID))
	switch {
	case err != nil:
		return err
	case a.Missing:
		w.WriteHeader(http.StatusNoContent)
	case a.Operation == "":
		w.WriteHeader(http.StatusOK)
	default:
		arm.SetAsync(w, r, req.ID, a.Operation)
		w.WriteHeader(http.StatusAccepted)
	}
	return nil
}

// action answers POST {id}/{action}.
func (s *Server) action(w http.ResponseWriter, r *arm.Request) error {
	path := *r
	path.Segments = r.Segments[:len(r.Segments)-1]
	id, err := path.ID()
	if err != nil {
		return err
	}
	name := r.Segments[len(r.Segments)-1]
	unknown := core.Errorf(core.CodeNotFound, "The request 'POST %s' is invalid: %s has no action %q.", r.URL.Path, id, name)
	if !id.IsResource() {
		return unknown
	}
	body, err := arm.ReadObject(w, r, arm.MediaJSON)
	if err != nil {
		return err
	}
	switch {
	case strings.EqualFold(name, "listSecrets"):
		secrets, err := s.provider.Secrets(r.Context(), dynamic.Request{ID: id, APIVersion: r.APIVersion})
		if err != nil {
			return err
		}
		w.Header().Set("Cache-Control", "no-store")
		return arm.WriteJSON(w, http.StatusOK, secrets)
	case strings.EqualFold(name, "getGraph"):
		tv, err := s.types.Lookup(id.Type(), r.APIVersion)
		if err != nil {
			return err
		}
		if tv.Type == project.TypeProject { // its group holds its services
			return s.graph(w, r, id.Scope())
		}
		if !application.IsApplication(tv.Type) && !application.IsEnvironment(tv.Type) {
			return unknown
		}
		return s.graph(w, r, id.WithType(tv.Type))
	case strings.EqualFold(name, "getMetadata"):
		tv, err := s.types.Lookup(id.Type(), r.APIVersion)
		if err != nil {
			return err
		}
		if !application.IsEnvironment(tv.Type) {
			return unknown
		}
		return s.recipe(w, r, id.WithType(tv.Type), body)
	}
	return unknown
}

// describer tells what a registered recipe takes; [recipe.Engine] does.
type describer interface {
	Parameters(ctx context.Context, environment core.Resource, resourceType, name string) (recipe.Definition, map[string]json.RawMessage, error)
}

// recipe answers getMetadata of an environment: one of its recipes, with the
// parameters that the template declares, which is fetched for it.
func (s *Server) recipe(w http.ResponseWriter, r *arm.Request, id core.ID, body map[string]any) error {
	engine, ok := s.o.Recipes.(describer)
	if !ok {
		return core.Errorf(core.CodeNotFound, "this server runs no recipes, so it cannot tell their parameters: ask one that has workers")
	}
	resourceType, _ := body["resourceType"].(string)
	name, _ := body["name"].(string)
	if resourceType == "" {
		return core.Errorf(core.CodeInvalidContent, "resourceType is required: the type that the recipe is registered for").WithTarget("resourceType")
	}
	environment, _, err := s.o.Store.Get(r.Context(), id)
	if err != nil {
		return err
	}
	def, parameters, err := engine.Parameters(r.Context(), environment, resourceType, name)
	if err != nil {
		return err
	}
	if parameters == nil {
		parameters = map[string]json.RawMessage{}
	}
	return arm.WriteJSON(w, http.StatusOK, map[string]any{
		"name": def.Name, "resourceType": resourceType, "templateKind": def.Kind, "templatePath": def.Path,
		"templateVersion": def.Version, "plainHttp": def.PlainHTTP, "parameters": parameters,
	})
}

func (s *Server) graph(w http.ResponseWriter, r *arm.Request, id core.ID) error {
	root, _, err := s.o.Store.Get(r.Context(), id)
	if err != nil {
		return err
	}
	g, err := s.o.Store.Graph(r.Context(), root.ID)
	if err != nil {
		return err
	}
	return arm.WriteEach(w, http.StatusOK, "resources", func(yield func(any) error) error {
		if auth.From(r.Context()) == nil {
			return graph.Each(g, root.ID, func(node wire.GraphResource) error { return yield(node) })
		}
		// Members may stand in groups of others, which lists do not show either. To
		// what a resource itself connects, it says in its properties.
		visible := auth.Viewer(r.Context())
		hidden := func(id string) bool {
			parsed, err := core.ParseID(id)
			return err != nil || !visible(parsed)
		}
		return graph.Each(g, root.ID, func(node wire.GraphResource) error {
			if hidden(node.ID) {
				return nil
			}
			node.Connections = slices.DeleteFunc(node.Connections, func(c wire.GraphConnection) bool {
				return c.Direction == graph.Inbound && hidden(c.ID)
			})
			return yield(node)
		})
	})
}
