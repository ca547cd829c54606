package project

import (
	"context"
	"net/http"
	"time"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/descriptor"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/store"
)

type shownService struct {
	Name    string `json:"name"`
	Project string `json:"project"`
	// Generation is how often what the operator is to run has changed.
	Generation int64              `json:"generation"`
	Service    descriptor.Service `json:"service"`
	Paused     bool               `json:"paused"`
	Restarts   int64              `json:"restarts"`
	// State is of the last write: Succeeded once the cluster has taken it.
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	// Status is what the operator reports.
	Status any `json:"status,omitempty"`
}

func serviceOf(r core.Resource) (descriptor.Service, error) {
	props, err := properties(r)
	if err != nil {
		return descriptor.Service{}, err
	}
	return descriptor.FromProperties(props, beside...)
}

func (s *Service) showService(ctx context.Context, project string, r core.Resource) (shownService, error) {
	out := shownService{Name: r.ID.Name(), Project: project, State: string(r.State)}
	props, err := properties(r)
	if err != nil {
		return out, err
	}
	out.Paused, _ = props["paused"].(bool)
	out.Restarts = whole(props["restarts"])
	if out.Service, err = descriptor.FromProperties(props, beside...); err != nil {
		return out, err
	}
	st, err := values(r)
	if err != nil {
		return out, err
	}
	out.Generation, out.Status = whole(st.ComputedValues[valueGeneration]), st.ComputedValues[valueObserved]
	out.Error, err = s.failure(ctx, r)
	return out, err
}

func noService(project, name string) error {
	return core.Errorf(core.CodeNotFound, "service %q does not exist in project %q", name, project).WithTarget(name)
}

// service is what a request on a service names, once its caller may.
func (s *Service) service(r *arm.Request, verb auth.Verb) (project, name string, id core.ID, err error) {
	project, name = r.Vars["project"], r.Vars["service"]
	id = ServiceID(project, name)
	_, _, err = s.mayInProject(r.Context(), verb, id, project, member)
	return project, name, id, err
}

func (s *Service) load(ctx context.Context, project, name string) (core.Resource, error) {
	stored, _, err := s.o.Store.Get(ctx, ServiceID(project, name))
	if core.IsCode(err, core.CodeNotFound) || err == nil && stored.ID.Name() != name {
		return stored, noService(project, name)
	}
	return stored, err
}

func (s *Service) listServices(w http.ResponseWriter, r *arm.Request) error {
	project := r.Vars["project"]
	if _, _, err := s.mayInProject(r.Context(), auth.Read, ProjectID(project), project, member); err != nil {
		return err
	}
	found, err := s.all(r.Context(), GroupID(project), TypeService)
	if err != nil {
		return err
	}
	var out []shownService
	for _, stored := range found {
		one, err := s.showService(r.Context(), project, stored)
		if err != nil {
			return err
		}
		out = append(out, one)
	}
	return list(w, out)
}

// getService answers a service. With If-None-Match and `Prefer: wait=<seconds>`
// the answer is held until the service is another than the one that has the tag,
// by the change feed; 304 when it stays the same.
func (s *Service) getService(w http.ResponseWriter, r *arm.Request) error {
	project, name, id, err := s.service(r, auth.Read)
	if err != nil {
		return err
	}
	known := r.Preconditions().IfNoneMatch
	stored, err := s.changed(r, id, project, name, known)
	if err != nil {
		return err
	}
	etag(w, stored)
	if known != "" && stored.ETag == known {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	out, err := s.showService(r.Context(), project, stored)
	if err != nil {
		return err
	}
	return arm.WriteJSON(w, http.StatusOK, out)
}

// changed reads a service, after it has become another than known for as long as
// the request waits.
func (s *Service) changed(r *arm.Request, id core.ID, project, name, known string) (core.Resource, error) {
	wait := r.Wait()
	if known == "" || wait == 0 {
		return s.load(r.Context(), project, name)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	go func() {
		select {
		case <-s.o.Stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	// Registered before the first look: nothing between is missed.
	changes := s.o.Feed.Subscribe(s.o.Feed.Seq())
	for {
		stored, err := s.load(context.WithoutCancel(ctx), project, name)
		if err != nil || stored.ETag != known {
			return stored, err
		}
		for touched := false; !touched; {
			batch, err := changes.Next(ctx)
			if err != nil {
				if r.Context().Err() != nil {
					return stored, r.Context().Err()
				}
				return stored, nil // as it was
			}
			touched = batch.Reset
			for _, c := range batch.Changes {
				touched = touched || c.ID.Equal(id)
			}
		}
	}
}

// applyService makes a service what its descriptor says. What the descriptor does
// not say (paused, restarts) stays.
func (s *Service) applyService(w http.ResponseWriter, r *arm.Request) error {
	project, name, id, err := s.service(r, auth.Write)
	if err != nil {
		return err
	}
	raw, err := arm.ReadLarge(w, r, descriptor.MaxSize, arm.MediaJSON, arm.MediaYAML, "application/x-yaml", "text/yaml")
	if err != nil {
		return err
	}
	d, err := descriptor.Parse(raw)
	if err != nil {
		return err
	}
	if d.Name != name {
		return core.Errorf(core.CodeInvalidContent, "the descriptor is of service %q, and the request is for %q", d.Name, name).WithTarget("name")
	}
	said, err := d.Service.Properties()
	if err != nil {
		return err
	}
	status := http.StatusOK
	op, err := s.edit(short(r), id, r.SystemData(), func(stored core.Resource) (map[string]any, error) {
		before, err := properties(stored)
		if err != nil {
			return nil, err
		}
		next := map[string]any{}
		for k, v := range said {
			next[k] = v
		}
		for _, k := range beside {
			if v, ok := before[k]; ok {
				next[k] = v
			}
		}
		return next, nil
	})
	if core.IsCode(err, core.CodeNotFound) {
		status = http.StatusCreated
		var a dynamic.Answer
		a, err = s.provider.Put(short(r), dynamic.Request{ID: id, APIVersion: APIVersion, SystemData: r.SystemData(), Preconditions: arm.Preconditions{IfNoneMatch: "*"}}, wire.Put{Resource: wire.Resource{Properties: said}})
		if core.IsCode(err, core.CodePrecondition) {
			err = core.Errorf(core.CodeConflict, "service %q was made by another request at the same moment: try again", name).WithTarget(name)
		}
		op = a.Operation
	}
	if err != nil {
		return err
	}
	return s.answerService(w, r, project, name, op, status)
}

func (s *Service) answerService(w http.ResponseWriter, r *arm.Request, project, name, operation string, status int) error {
	done, err := s.settled(r.Context(), operation)
	if err != nil {
		return err
	}
	if !done {
		status = http.StatusAccepted
	}
	stored, err := s.load(r.Context(), project, name)
	if err != nil {
		return err
	}
	out, err := s.showService(r.Context(), project, stored)
	if err != nil {
		return err
	}
	etag(w, stored)
	return arm.WriteJSON(w, status, out)
}

func (s *Service) deleteService(w http.ResponseWriter, r *arm.Request) error {
	project, name, id, err := s.service(r, auth.Delete)
	if err != nil {
		return err
	}
	return s.remove(w, r, id, noService(project, name))
}

func (s *Service) pause(paused bool) arm.Handler {
	return func(w http.ResponseWriter, r *arm.Request) error {
		return s.change(w, r, func(props map[string]any) {
			if props["paused"] = paused; !paused {
				delete(props, "paused")
			}
		})
	}
}

func (s *Service) restart(w http.ResponseWriter, r *arm.Request) error {
	return s.change(w, r, func(props map[string]any) { props["restarts"] = whole(props["restarts"]) + 1 })
}

func (s *Service) change(w http.ResponseWriter, r *arm.Request, change func(props map[string]any)) error {
	project, name, id, err := s.service(r, auth.Write)
	if err != nil {
		return err
	}
	op, err := s.edit(short(r), id, r.SystemData(), func(stored core.Resource) (map[string]any, error) {
		props, err := properties(stored)
		if err == nil {
			change(props)
		}
		return props, err
	})
	if core.IsCode(err, core.CodeNotFound) {
		return noService(project, name)
	}
	if err != nil {
		return err
	}
	return s.answerService(w, r, project, name, op, http.StatusOK)
}

// history lists what was done with a service, the latest first.
func (s *Service) history(w http.ResponseWriter, r *arm.Request) error {
	project, name, id, err := s.service(r, auth.Read)
	if err != nil {
		return err
	}
	if _, err := s.load(r.Context(), project, name); err != nil {
		return err
	}
	page, err := s.o.Store.Operations(r.Context(), store.OperationQuery{Resource: id, Limit: 50})
	if err != nil {
		return err
	}
	type done struct {
		Operation string     `json:"operation"`
		Verb      string     `json:"verb"`
		State     string     `json:"state"`
		Error     string     `json:"error,omitempty"`
		Began     time.Time  `json:"began"`
		Ended     *time.Time `json:"ended,omitempty"`
	}
	var out []done
	for _, op := range page.Operations {
		d := done{Operation: op.ID, Verb: string(op.Verb), State: string(op.State), Began: op.Created.UTC()}
		if op.Error != nil {
			d.Error = op.Error.Message
		}
		if !op.Ended.IsZero() {
			ended := op.Ended.UTC()
			d.Ended = &ended
		}
		out = append(out, d)
	}
	return list(w, out)
}
