package deployment

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/stack"
)

type clock = func() time.Time

// stackState is the state in the words of stacks.
func stackState(r core.Resource) stack.State {
	switch r.State {
	case core.StateAccepted:
		return stack.StateCreating
	case core.StateUpdating:
		return stack.StateDeploying
	case core.StateDeleting:
		return stack.StateDeleting
	case core.StateCanceled:
		return stack.StateCanceled
	case core.StateFailed:
		return stack.StateFailed
	}
	return stack.StateSucceeded
}

func (s *Service) showStack(ctx context.Context, r core.Resource) (stack.Wire, error) {
	f, record, err := readStack(r)
	if err != nil {
		return stack.Wire{}, err
	}
	out := record.Wire()
	out.ID, out.Name, out.Location, out.Tags = r.ID.String(), r.ID.Name(), r.Location, r.Tags
	if out.SystemData, err = json.Marshal(r.SystemData); err != nil {
		return out, err
	}
	p := &out.Properties
	s.showAsked(p, r.ID, f)
	p.ProvisioningState, p.DeploymentID, p.Operation = string(stackState(r)), f.Deployment, f.Operation
	if !r.State.Terminal() && r.State != "" {
		p.Duration, p.Outputs, p.Error = ISODuration(s.o.Now().Sub(f.Started)), nil, nil
		return out, nil
	}
	if record.Run != f.Operation && r.State != core.StateSucceeded { // ended by nobody's hand
		if op, err := s.o.Store.Operation(ctx, f.Operation); err == nil && op.Error != nil {
			p.Error = op.Error
		}
	}
	if record.Ended.After(record.Started) { // an update that was canceled has no end, or that of the one before
		p.Duration = ISODuration(record.Ended.Sub(record.Started))
	}
	return out, nil
}

// showAsked fills in what the last request said.
func (s *Service) showAsked(p *stack.WireProperties, id core.ID, f stackFacts) {
	p.Description, p.CorrelationID, p.DeploymentScope = f.Description, f.Correlation, id.Scope().String()
	p.Unmanage, p.Deny = stack.WireUnmanage{Resources: f.Unmanage, ResourceGroups: stack.Detach, ManagementGroups: stack.Detach}, f.Deny
	if len(f.Parameters) > 0 {
		p.Parameters = f.Parameters
	}
	if f.TemplateLink != nil {
		p.TemplateLink = f.TemplateLink
	}
	if f.ParametersLink != nil {
		p.ParametersLink = f.ParametersLink
	}
}

func (s *Service) answerStack(w http.ResponseWriter, status int, r core.Resource) error {
	out, err := s.showStack(context.Background(), r)
	if err != nil {
		return err
	}
	if r.ETag != "" {
		w.Header().Set("ETag", strconv.Quote(r.ETag))
	}
	w.Header().Set("Cache-Control", "no-store")
	return arm.WriteJSON(w, status, out)
}

func (s *Service) getStack(w http.ResponseWriter, r *arm.Request) error {
	id, err := stackOf(r, 0)
	if err != nil {
		return err
	}
	stored, _, err := s.loadStack(r.Context(), id)
	if err != nil {
		return err
	}
	return s.answerStack(w, http.StatusOK, stored)
}

func (s *Service) listStacks(w http.ResponseWriter, r *arm.Request) error {
	id, err := r.ID()
	if err != nil {
		return err
	}
	return listShown(s, w, r, id.Scope(), stack.Type, func(core.Resource) bool { return true }, s.showStack)
}

// stackAction answers POST {stack}/{action}.
func (s *Service) stackAction(w http.ResponseWriter, r *arm.Request) error {
	id, err := stackOf(r, 1)
	if err != nil {
		return err
	}
	name := r.Vars["action"]
	switch strings.ToLower(name) {
	case "validate":
		return s.validateStack(w, r, id)
	case "whatif":
		return s.whatIfStack(w, r, id)
	case "exporttemplate":
		stored, _, err := s.loadStack(r.Context(), id)
		if err != nil {
			return err
		}
		f, _, err := readStack(stored)
		if err != nil {
			return err
		}
		text, err := s.template(stored)
		if err != nil {
			return err
		}
		out := map[string]any{"template": json.RawMessage(text)}
		if f.TemplateLink != nil {
			out["templateLink"] = f.TemplateLink
		}
		return arm.WriteJSON(w, http.StatusOK, out)
	}
	return core.Errorf(core.CodeNotFound, "The request 'POST %s' is invalid: a deployment stack has no action %q; it has validate, whatIf and exportTemplate.", r.URL.Path, name)
}

// lookStack reads a request that only asks what would be.
func (s *Service) lookStack(w http.ResponseWriter, r *arm.Request, id core.ID) (context.Context, *askedStack, *deploy.Engine, deploy.Request, error) {
	raw, err := arm.ReadLarge(w, r, maxBody, arm.MediaJSON)
	if err != nil {
		return nil, nil, nil, deploy.Request{}, err
	}
	ctx, _ := conceal.With(r.Context())
	a, err := s.readStackRequest(ctx, id, raw)
	if err != nil {
		return nil, nil, nil, deploy.Request{}, err
	}
	if _, _, err := s.o.Store.Get(ctx, id.Scope()); err != nil {
		return nil, nil, nil, deploy.Request{}, err
	}
	ctx = concealInputs(ctx, a.template, a.in)
	a.facts.Started, a.facts.Correlation = a.started, s.o.NewID()
	as := As{Caller: caller(r.Context()), Stack: id, Group: id.Scope()}
	engine := deploy.New(deploy.EngineOptions{Resolver: s.Resolver(as), Resources: s.Resources(as), Link: s.o.Link, Parallel: s.o.Parallel, Now: s.o.Now})
	req := s.request(id, a.text, a.in, a.facts.facts)
	req.ID, req.Owner, req.Secrets = deploymentOf(id, a.started), id, a.in.Credentials
	req.Name = req.ID.Name()
	return ctx, a, engine, req, nil
}

func (s *Service) validateStack(w http.ResponseWriter, r *arm.Request, id core.ID) error {
	ctx, a, engine, req, err := s.lookStack(w, r, id)
	if err != nil {
		return err
	}
	found, err := engine.Validate(ctx, req)
	if err != nil {
		return invalid(ctx, err)
	}
	out := stack.Record{ID: id, State: stack.StateSucceeded}.Wire()
	s.showAsked(&out.Properties, id, a.facts)
	out.Properties.Validated = stack.WireResources(found.Resources)
	return arm.WriteJSON(w, http.StatusOK, out)
}

func (s *Service) whatIfStack(w http.ResponseWriter, r *arm.Request, id core.ID) error {
	ctx, a, engine, req, err := s.lookStack(w, r, id)
	if err != nil {
		return err
	}
	record := stack.Record{ID: id}
	var journal []core.Output
	stored, _, err := s.o.Store.Get(ctx, id)
	switch {
	case err == nil:
		if _, record, err = readStack(stored); err != nil {
			return err
		}
		if journal, err = s.o.Store.Outputs(ctx, id); err != nil {
			return err
		}
	case !core.IsCode(err, core.CodeNotFound):
		return err
	}
	changes, err := stack.New(stack.Options{Engine: engine, Now: s.o.Now}).WhatIf(ctx, record, journal, stack.Update{Request: req, Unmanage: a.facts.Unmanage, Deny: a.facts.Deny})
	if err != nil {
		return invalid(ctx, err)
	}
	w.Header().Set("Cache-Control", "no-store")
	return arm.WriteJSON(w, http.StatusOK, map[string]any{
		"status": string(core.StateSucceeded),
		"properties": map[string]any{
			"correlationId": a.facts.Correlation, "provisioningState": "succeeded", "deploymentStackResourceId": id.String(),
			"actionOnUnmanage": stack.WireUnmanage{Resources: a.facts.Unmanage, ResourceGroups: stack.Detach, ManagementGroups: stack.Detach},
			"changes":          map[string]any{"resourceChanges": stack.WireChanges(changes)},
		},
	})
}
