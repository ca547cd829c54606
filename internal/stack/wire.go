package stack

import (
	"encoding/json"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
)

// Wire is a stack as the REST API answers it, and as the command line shows it.
type Wire struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Location   string            `json:"location,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	SystemData json.RawMessage   `json:"systemData,omitempty"`
	Properties WireProperties    `json:"properties"`
}

// WireProperties are the properties of a [Wire].
type WireProperties struct {
	ProvisioningState string               `json:"provisioningState"`
	Description       string               `json:"description,omitempty"`
	CorrelationID     string               `json:"correlationId,omitempty"`
	DeploymentID      string               `json:"deploymentId,omitempty"`
	DeploymentScope   string               `json:"deploymentScope,omitempty"`
	Duration          string               `json:"duration,omitempty"`
	Unmanage          WireUnmanage         `json:"actionOnUnmanage"`
	Deny              DenySettings         `json:"denySettings"`
	TemplateLink      any                  `json:"templateLink,omitempty"`
	Parameters        any                  `json:"parameters,omitempty"`
	ParametersLink    any                  `json:"parametersLink,omitempty"`
	Outputs           map[string]WireValue `json:"outputs,omitempty"`
	Resources         []WireResource       `json:"resources"`
	// Detached, Deleted and Failed are of the last update only.
	Detached   []WireResource  `json:"detachedResources"`
	Deleted    []WireResource  `json:"deletedResources"`
	Failed     []WireResource  `json:"failedResources"`
	Validated  []WireResource  `json:"validatedResources,omitempty"`
	Extensions []WireExtension `json:"deploymentExtensions,omitempty"`
	Error      *core.Error     `json:"error,omitempty"`
	// Operation is the one to follow, at operationStatuses.
	Operation string `json:"operation,omitempty"`
}

// WireUnmanage is actionOnUnmanage.
type WireUnmanage struct {
	Resources        Action `json:"resources"`
	ResourceGroups   Action `json:"resourceGroups"`
	ManagementGroups Action `json:"managementGroups"`
}

// WireValue is an output: a secure one without value.
type WireValue struct {
	Type  string `json:"type"`
	Value any    `json:"value,omitempty"`
}

// WireResource is one resource of a stack: of the control plane by its id alone,
// of an extension with all that finds it again.
type WireResource struct {
	ID          string          `json:"id"`
	Scope       *deploy.Scope   `json:"scope,omitempty"`
	Extension   *WireExtension  `json:"extension,omitempty"`
	Type        string          `json:"type,omitempty"`
	APIVersion  string          `json:"apiVersion,omitempty"`
	Identifiers json.RawMessage `json:"identifiers,omitempty"`
	Status      string          `json:"status,omitempty"`
	DenyStatus  string          `json:"denyStatus,omitempty"`
	Unverified  bool            `json:"unverified,omitempty"`
	Note        string          `json:"note,omitempty"`
	Error       *core.Error     `json:"error,omitempty"`
}

// WireExtension is the extension that a resource is of, and its place.
type WireExtension struct {
	Name     string         `json:"name"`
	Version  string         `json:"version,omitempty"`
	ConfigID string         `json:"configId,omitempty"`
	Config   map[string]any `json:"config,omitempty"`
}

// WireChange is one change of a stack's what-if.
type WireChange struct {
	WireResource
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

// Wire is the record as the wire has it; what it does not know is the caller's to
// add.
func (r Record) Wire() Wire {
	w := Wire{ID: r.ID.String(), Name: r.ID.Name(), Type: Type}
	p := &w.Properties
	p.ProvisioningState, p.Description, p.DeploymentID, p.Error = string(r.State), r.Description, r.Deployment, r.Error
	p.Unmanage, p.Deny = WireUnmanage{r.Unmanage, Detach, Detach}, r.Deny
	p.Resources, p.Detached, p.Deleted, p.Failed = []WireResource{}, WireResources(r.Detached), WireResources(r.Deleted), WireResources(r.Failed)
	seen := map[string]bool{}
	for _, m := range r.Resources {
		shown := wireResource(m.Affected)
		shown.Status, shown.DenyStatus = m.Status, m.DenyStatus
		p.Resources = append(p.Resources, shown)
		if shown.Extension == nil {
			continue
		}
		if raw, err := json.Marshal(shown.Extension); err == nil && !seen[string(raw)] {
			seen[string(raw)] = true
			p.Extensions = append(p.Extensions, *shown.Extension)
		}
	}
	if len(r.Outputs) > 0 {
		p.Outputs = map[string]WireValue{}
		for _, o := range r.Outputs {
			p.Outputs[o.Name] = WireValue{o.Type, o.Value}
		}
	}
	return w
}

func wireResource(a deploy.Affected) WireResource {
	out := WireResource{ID: a.ID, Type: a.Type, APIVersion: a.APIVersion, Unverified: a.Unverified, Note: a.Note, Error: a.Error}
	if a.Scope == nil {
		return out
	}
	out.Scope, out.Identifiers = a.Scope, a.Identifiers
	out.Extension = &WireExtension{Name: a.Extension, Version: a.Version, Config: a.Config}
	if a.Identity != nil {
		out.Extension.ConfigID = a.Identity.ConfigID
	}
	return out
}

// WireResources is a list as the wire has it.
func WireResources(list []deploy.Affected) []WireResource {
	out := make([]WireResource, len(list))
	for i, a := range list {
		out[i] = wireResource(a)
	}
	return out
}

// WireChanges are the changes of a what-if as the wire has them.
func WireChanges(changes []Change) []WireChange {
	list := make([]WireChange, len(changes))
	for i, c := range changes {
		list[i] = WireChange{
			WireResource: wireResource(c.Affected), ChangeType: c.Kind, Certainty: c.Certainty, Management: c.Management, Deny: c.Deny,
			Symbol: c.Symbol, Before: c.Before, After: c.After, Delta: c.Properties, Reason: c.Reason,
		}
	}
	return list
}
