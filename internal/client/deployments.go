package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/radial-project/radial/internal/core"
)

// APIVersionDeployments is the version by which deployments are asked for.
const APIVersionDeployments = "2025-04-01"

// lookTimeout bounds questions that the server answers by asking every target.
const lookTimeout = 10 * time.Minute

// Deployment is a deployment of a template.
type Deployment struct {
	ID         string               `json:"id"`
	Name       string               `json:"name"`
	Properties DeploymentProperties `json:"properties"`
}

// DeploymentProperties are what came of it.
type DeploymentProperties struct {
	ProvisioningState  string                      `json:"provisioningState"`
	Duration           string                      `json:"duration,omitempty"`
	CorrelationID      string                      `json:"correlationId,omitempty"`
	Outputs            map[string]DeploymentOutput `json:"outputs,omitempty"`
	OutputResources    []DeploymentResource        `json:"outputResources,omitempty"`
	DeletedResources   []DeploymentResource        `json:"deletedResources,omitempty"`
	ValidatedResources []DeploymentResource        `json:"validatedResources,omitempty"`
	Diagnostics        []DeploymentNote            `json:"diagnostics,omitempty"`
	Error              *core.Error                 `json:"error,omitempty"`
	// Operation is the one to follow.
	Operation string `json:"operation,omitempty"`
}

// DeploymentOutput is an output; a secure one has no value.
type DeploymentOutput struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value,omitempty"`
}

// DeploymentResource is a resource that a deployment makes.
type DeploymentResource struct {
	Scope        *DeploymentScope `json:"scope,omitempty"`
	ID           string           `json:"id"`
	ResourceType string           `json:"resourceType,omitempty"`
	Note         string           `json:"note,omitempty"`
}

// DeploymentScope is where an extension's resource lives.
type DeploymentScope struct {
	Type        string `json:"type"`
	ID          string `json:"id,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
}

// DeploymentNote is a warning, or what is worth knowing.
type DeploymentNote struct {
	Level   string `json:"level"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Change is one change of a what-if.
type Change struct {
	ResourceID   string           `json:"resourceId"`
	ChangeType   string           `json:"changeType"`
	Scope        *DeploymentScope `json:"scope,omitempty"`
	ResourceType string           `json:"resourceType,omitempty"`
	SymbolicName string           `json:"symbolicName,omitempty"`
	Reason       string           `json:"unsupportedReason,omitempty"`
	Before       json.RawMessage  `json:"before,omitempty"`
	After        json.RawMessage  `json:"after,omitempty"`
	Delta        []PropertyChange `json:"delta,omitempty"`
}

// PropertyChange is one property of a change.
type PropertyChange struct {
	Path     string           `json:"path"`
	Kind     string           `json:"propertyChangeType"`
	Before   any              `json:"before,omitempty"`
	After    any              `json:"after,omitempty"`
	Children []PropertyChange `json:"children,omitempty"`
}

func (c *Client) deployment(ctx context.Context, method string, id core.ID, action string, body any) (*Deployment, error) {
	path := id.String()
	if action != "" {
		path += "/" + action
	}
	a, err := c.call(ctx, method, path, deploymentVersion(), nil, body)
	if err != nil {
		return nil, err
	}
	var d Deployment
	if err := json.Unmarshal(a.body, &d); err != nil {
		return nil, core.Errorf(core.CodeInternal, "deployment %s cannot be read: its JSON has another shape than expected", id)
	}
	return &d, nil
}

func deploymentVersion() url.Values { return version(APIVersionDeployments) }

// Deploy begins a deployment; its Operation is what to follow.
func (c *Client) Deploy(ctx context.Context, id core.ID, body json.RawMessage) (*Deployment, error) {
	return c.deployment(ctx, http.MethodPut, id, "", body)
}

// Deployment reads a deployment. NotFound if there is none.
func (c *Client) Deployment(ctx context.Context, id core.ID) (*Deployment, error) {
	return c.deployment(ctx, http.MethodGet, id, "", nil)
}

// ValidateDeployment asks whether a template can be deployed, and what it would
// make.
func (c *Client) ValidateDeployment(ctx context.Context, id core.ID, body json.RawMessage) (*Deployment, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookTimeout, errTimeout)
	defer cancel()
	return c.deployment(ctx, http.MethodPost, id, "validate", body)
}

// WhatIf asks what a deployment would change.
func (c *Client) WhatIf(ctx context.Context, id core.ID, body json.RawMessage) ([]Change, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookTimeout, errTimeout)
	defer cancel()
	a, err := c.call(ctx, http.MethodPost, id.String()+"/whatIf", deploymentVersion(), nil, body)
	if err != nil {
		return nil, err
	}
	var out struct {
		Properties struct {
			Changes []Change `json:"changes"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(a.body, &out); err != nil {
		return nil, core.Errorf(core.CodeInternal, "the what-if of %s cannot be read: its JSON has another shape than expected", id)
	}
	return out.Properties.Changes, nil
}
