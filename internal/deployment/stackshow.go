package deployment

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/store"
)

type clock = func() time.Time

// shownStack is a stack on the wire.
type shownStack struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Location   string            `json:"location,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	SystemData json.RawMessage   `json:"systemData,omitempty"`
	Properties stackProperties   `json:"properties"`
}

type stackProperties struct {
	ProvisioningState string                    `json:"provisioningState"`
	Description       string                    `json:"description,omitempty"`
	CorrelationID     string                    `json:"correlationId,omitempty"`
	DeploymentID      string                    `json:"deploymentId,omitempty"`
	DeploymentScope   string                    `json:"deploymentScope,omitempty"`
	Duration          string                    `json:"duration,omitempty"`
	Unmanage          shownUnmanage             `json:"actionOnUnmanage"`
	Deny              stack.DenySettings        `json:"denySettings"`
	TemplateLink      *contentLink              `json:"templateLink,omitempty"`
	Parameters        map[string]shownParameter `json:"parameters,omitempty"`
	ParametersLink    *contentLink              `json:"parametersLink,omitempty"`
	Outputs           map[string]shownValue     `json:"outputs,omitempty"`
	Resources         []stackResource           `json:"resources"`
	Detached          []stackResource           `json:"detachedResources"`
	Deleted           []stackResource           `json:"deletedResources"`
	Failed            []stackResource           `json:"failedResources"`
	Validated         []stackResource           `json:"validatedResources,omitempty"`
	Extensions        []stackExtension          `json:"deploymentExtensions,omitempty"`
	Error             *core.Error               `json:"error,omitempty"`
	// Operation is the one to follow, at operationStatuses.
	Operation string `json:"operation,omitempty"`
}

type shownUnmanage struct {
	Resources        stack.Action `json:"resources"`
	ResourceGroups   stack.Action `json:"resourceGroups"`
	ManagementGroups stack.Action `json:"managementGroups"`
}

// stackResource is one resource of a stack: of the control plane by its id alone,
// of an extension with all that finds it again.
type stackResource struct {
	ID          string          `json:"id"`
	Scope       *deploy.Scope   `json:"scope,omitempty"`
	Extension   *stackExtension `json:"extension,omitempty"`
	Type        string          `json:"type,omitempty"`
	APIVersion  string          `json:"apiVersion,omitempty"`
	Identifiers json.RawMessage `json:"identifiers,omitempty"`
	Status      string          `json:"status,omitempty"`
	DenyStatus  string          `json:"denyStatus,omitempty"`
	Unverified  bool            `json:"unverified,omitempty"`
	Note        string          `json:"note,omitempty"`
	Error       *core.Error     `json:"error,omitempty"`
}

type stackExtension struct {
	Name     string         `json:"name"`
	Version  string         `json:"version,omitempty"`
	ConfigID string         `json:"configId,omitempty"`
	Config   map[string]any `json:"config,omitempty"`
}

func showStackResource(a deploy.Affected) stackResource {
	out := stackResource{ID: a.ID, Type: a.Type, APIVersion: a.APIVersion, Unverified: a.Unverified, Note: a.Note, Error: a.Error}
	if a.Scope == nil {
		return out
	}
	out.Scope, out.Identifiers = a.Scope, a.Identifiers
	out.Extension = extensionOf(a)
	return out
}

func extensionOf(a deploy.Affected) *stackExtension {
	x := &stackExtension{Name: a.Extension, Version: a.Version, Config: a.Config}
	if a.Identity != nil {
		x.ConfigID = a.Identity.ConfigID
	}
	return x
}

func showStackResources(list []deploy.Affected) []stackResource {
	out := make([]stackResource, len(list))
	for i, a := range list {
		out[i] = showStackResource(a)
	}
	return out
}

// stackState is the state in the words of stacks.
func stackState(r core.Resource, record stack.Record) stack.State {
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

func (s *Service) showStack(ctx context.Context, r core.Resource) (shownStack, error) {
	f, record, err := readStack(r)
	if err != nil {
		return shownStack{}, err
	}
	out := shownStack{ID: r.ID.String(), Name: r.ID.Name(), Type: stack.Type, Location: r.Location, Tags: r.Tags}
	if out.SystemData, err = json.Marshal(r.SystemData); err != nil {
		return out, err
	}
	p := &out.Properties
	p.ProvisioningState, p.Description, p.CorrelationID, p.DeploymentScope = string(stackState(r, record)), f.Description, f.Correlation, r.ID.Scope().String()
	p.DeploymentID, p.Operation = f.Deployment, f.Operation
	p.Unmanage = shownUnmanage{f.Unmanage, stack.Detach, stack.Detach}
	p.Deny, p.TemplateLink, p.Parameters, p.ParametersLink = f.Deny, f.TemplateLink, f.Parameters, f.ParametersLink
	p.Resources, p.Detached, p.Deleted, p.Failed = []stackResource{}, showStackResources(record.Detached), showStackResources(record.Deleted), showStackResources(record.Failed)
	seen := map[string]bool{}
	for _, m := range record.Resources {
		shown := showStackResource(m.Affected)
		shown.Status, shown.DenyStatus = m.Status, m.DenyStatus
		p.Resources = append(p.Resources, shown)
		if m.Scope != nil {
			x := *extensionOf(m.Affected)
			raw, err := json.Marshal(x)
			if err == nil && !seen[string(raw)] {
				seen[string(raw)] = true
				p.Extensions = append(p.Extensions, x)
			}
		}
	}
	if !r.State.Terminal() && r.State != "" {
		p.Duration = isoDuration(s.o.Now().Sub(f.Started))
		return out, nil
	}
	p.Error = record.Error
	if record.Run != f.Operation && r.State != core.StateSucceeded { // ended by nobody's hand
		if op, err := s.o.Store.Operation(ctx, f.Operation); err == nil && op.Error != nil {
			p.Error = op.Error
		}
	}
	if !record.Ended.IsZero() {
		p.Duration = isoDuration(record.Ended.Sub(record.Started))
	}
	if len(record.Outputs) > 0 {
		p.Outputs = map[string]shownValue{}
		for _, o := range record.Outputs {
			p.Outputs[o.Name] = shownValue{o.Type, o.Value}
		}
	}
	return out, nil
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
	page, err := r.Page()
	if err != nil {
		return err
	}
	if _, _, err := s.o.Store.Get(r.Context(), id.Scope()); err != nil {
		return err
	}
	found, err := s.o.Store.List(r.Context(), store.Query{Scope: id.Scope(), Type: stack.Type, Limit: page.Limit, After: page.After})
	if err != nil {
		return err
	}
	list := struct {
		Value    []shownStack `json:"value"`
		NextLink string       `json:"nextLink,omitempty"`
	}{Value: []shownStack{}, NextLink: r.NextLink(found.Next)}
	visible := auth.Viewer(r.Context())
	for _, stored := range found.Resources {
		if !visible(stored.ID) {
			continue
		}
		out, err := s.showStack(r.Context(), stored)
		if err != nil {
			return err
		}
		list.Value = append(list.Value, out)
	}
	return arm.WriteJSON(w, http.StatusOK, list)
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
	concealInputs(ctx, a.template, a.in)
	a.facts.Started, a.facts.Correlation = a.started, s.o.NewID()
	as := As{Caller: caller(r.Context()), Group: id.Scope()}
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
	out := shownStack{ID: id.String(), Name: id.Name(), Type: stack.Type}
	p := &out.Properties
	p.ProvisioningState, p.CorrelationID, p.Description, p.DeploymentScope = string(stack.StateSucceeded), a.facts.Correlation, a.facts.Description, id.Scope().String()
	p.Unmanage, p.Deny, p.Parameters, p.TemplateLink = shownUnmanage{a.facts.Unmanage, stack.Detach, stack.Detach}, a.facts.Deny, a.facts.Parameters, a.facts.TemplateLink
	p.Resources, p.Detached, p.Deleted, p.Failed = []stackResource{}, []stackResource{}, []stackResource{}, []stackResource{}
	p.Validated = showStackResources(found.Resources)
	return arm.WriteJSON(w, http.StatusOK, out)
}

// shownStackChange is one change of a stack's what-if on the wire.
type shownStackChange struct {
	stackResource
	ChangeType string                  `json:"changeType"`
	Certainty  string                  `json:"changeCertainty"`
	Management string                  `json:"managementStatusChange,omitempty"`
	Deny       string                  `json:"denyStatusChange,omitempty"`
	Symbol     string                  `json:"symbolicName,omitempty"`
	Before     map[string]any          `json:"before,omitempty"`
	After      map[string]any          `json:"after,omitempty"`
	Delta      []deploy.PropertyChange `json:"delta,omitempty"`
	Reason     string                  `json:"unsupportedReason,omitempty"`
}

// ShowStackChanges are the changes of a stack's what-if as the wire has them.
func ShowStackChanges(changes []stack.Change) any {
	list := make([]shownStackChange, len(changes))
	for i, c := range changes {
		list[i] = shownStackChange{
			stackResource: showStackResource(c.Affected), ChangeType: c.Kind, Certainty: c.Certainty, Management: c.Management, Deny: c.Deny,
			Symbol: c.Symbol, Before: c.Before, After: c.After, Delta: c.Properties, Reason: c.Reason,
		}
	}
	return list
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
			"actionOnUnmanage": shownUnmanage{a.facts.Unmanage, stack.Detach, stack.Detach}, "changes": map[string]any{"resourceChanges": ShowStackChanges(changes)},
		},
	})
}
