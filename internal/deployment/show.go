package deployment

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/template"
)

// shownParameter is a parameter as GET answers it: a secure one without value.
type shownParameter struct {
	Type  string `json:"type"`
	Value any    `json:"value,omitempty"`
}

// shownOutput is an output as it is kept: a secure one without value.
type shownOutput struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value any    `json:"value,omitempty"`
}

type provider struct {
	Namespace     string         `json:"namespace"`
	ResourceTypes []providerType `json:"resourceTypes"`
}

type providerType struct {
	ResourceType string    `json:"resourceType"`
	Locations    []*string `json:"locations"`
}

type dependency struct {
	DependsOn []dependsOn `json:"dependsOn"`
	dependsOn
}

type dependsOn struct {
	ID           string `json:"id,omitempty"`
	ResourceType string `json:"resourceType"`
	ResourceName string `json:"resourceName"`
}

// shownExt is an extension of the template.
type shownExt struct {
	Alias   string `json:"alias"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

func showParameters(t *template.Template, given map[string]any) map[string]shownParameter {
	shown := map[string]shownParameter{}
	for _, p := range t.Parameters() {
		for name, v := range given {
			if !strings.EqualFold(name, p.Name) {
				continue
			}
			out := shownParameter{Type: p.Type, Value: v}
			if p.Secure {
				out.Value = nil
			}
			shown[p.Name] = out
		}
	}
	return shown
}

// drawn is what a plan is about.
func drawn(plan *template.Plan) (providers []provider, dependencies []dependency, extensions []shownExt) {
	types := map[string][]string{}
	name := func(r *template.Resource) dependsOn {
		d := dependsOn{ID: r.ResourceID, ResourceType: r.Type, ResourceName: r.Name}
		if r.Extension == nil {
			return d
		}
		d.ResourceName = r.Symbol
		if id, known, err := plan.ExtensionID(r, nil); err == nil && known {
			d.ID = id.String()
		}
		return d
	}
	for _, r := range plan.Resources {
		namespace, kind, ok := strings.Cut(r.Type, "/")
		if r.Extension == nil && ok && !r.Existing && !slices.ContainsFunc(types[namespace], func(t string) bool { return strings.EqualFold(t, kind) }) {
			types[namespace] = append(types[namespace], kind)
		}
		if len(r.DependsOn) == 0 || r.Existing {
			continue
		}
		d := dependency{dependsOn: name(r)}
		for _, needed := range r.DependsOn {
			d.DependsOn = append(d.DependsOn, name(needed))
		}
		dependencies = append(dependencies, d)
	}
	for namespace, kinds := range types {
		p := provider{Namespace: namespace}
		slices.Sort(kinds)
		for _, k := range kinds {
			p.ResourceTypes = append(p.ResourceTypes, providerType{k, []*string{nil}})
		}
		providers = append(providers, p)
	}
	slices.SortFunc(providers, func(a, b provider) int { return cmp.Compare(a.Namespace, b.Namespace) })
	for _, x := range plan.Extensions {
		extensions = append(extensions, shownExt{x.Alias, x.Provider, x.Version})
	}
	return providers, dependencies, extensions
}

// shown is a deployment on the wire.
type shown struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Location   string            `json:"location,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	SystemData json.RawMessage   `json:"systemData,omitempty"`
	Properties shownProperties   `json:"properties"`
}

type shownProperties struct {
	ProvisioningState string                    `json:"provisioningState"`
	CorrelationID     string                    `json:"correlationId,omitempty"`
	Timestamp         string                    `json:"timestamp,omitempty"`
	Duration          string                    `json:"duration,omitempty"`
	Mode              string                    `json:"mode"`
	TemplateHash      string                    `json:"templateHash,omitempty"`
	TemplateLink      *contentLink              `json:"templateLink,omitempty"`
	Parameters        map[string]shownParameter `json:"parameters,omitempty"`
	ParametersLink    *contentLink              `json:"parametersLink,omitempty"`
	Expressions       json.RawMessage           `json:"expressionEvaluationOptions,omitempty"`
	ProviderConfig    json.RawMessage           `json:"providerConfig,omitempty"`
	Providers         []provider                `json:"providers"`
	Dependencies      []dependency              `json:"dependencies"`
	Extensions        []shownExt                `json:"extensions,omitempty"`
	Outputs           map[string]shownValue     `json:"outputs,omitempty"`
	OutputResources   []shownResource           `json:"outputResources,omitempty"`
	DeletedResources  []shownResource           `json:"deletedResources,omitempty"`
	ValidatedResource []shownResource           `json:"validatedResources,omitempty"`
	Error             *core.Error               `json:"error,omitempty"`
	Diagnostics       []diagnostic              `json:"diagnostics,omitempty"`
	// Operation is the one to follow, at operationStatuses.
	Operation string `json:"operation,omitempty"`
}

type shownValue struct {
	Type  string `json:"type"`
	Value any    `json:"value,omitempty"`
}

type diagnostic struct {
	Level   string `json:"level"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// shownResource is one resource that a deployment made (S-15): of the control
// plane by its id alone, of an extension with its scope.
type shownResource struct {
	Scope        *deploy.Scope   `json:"scope,omitempty"`
	ID           string          `json:"id"`
	ExtensionID  string          `json:"extensionId,omitempty"`
	Extension    *shownExtension `json:"extension,omitempty"`
	ResourceType string          `json:"resourceType,omitempty"`
	APIVersion   string          `json:"apiVersion,omitempty"`
	Identifiers  json.RawMessage `json:"identifiers,omitempty"`
	Unverified   bool            `json:"unverified,omitempty"`
	Note         string          `json:"note,omitempty"`
	Error        *core.Error     `json:"error,omitempty"`
}

type shownExtension struct {
	Name     string `json:"name"`
	Version  string `json:"version,omitempty"`
	ConfigID string `json:"configId,omitempty"`
}

// showResource is a resource of a deployment on the wire. graph, for clients of
// Radius, names a cluster's objects as graphs and statuses do: they read every id
// as one of a plane.
func showResource(a deploy.Affected, graph bool) shownResource {
	out := shownResource{ID: a.ID, Unverified: a.Unverified, Note: a.Note, Error: a.Error}
	if a.Scope == nil {
		return out
	}
	out.Scope, out.ResourceType, out.APIVersion, out.Identifiers = a.Scope, a.Type, a.APIVersion, a.Identifiers
	out.Extension = &shownExtension{Name: a.Extension, Version: a.Version}
	if a.Identity != nil {
		out.Extension.ConfigID = a.Identity.ConfigID
	}
	if graph && a.Output != "" {
		out.ID, out.ExtensionID = a.Output, a.ID
	}
	return out
}

func showResources(list []deploy.Affected, graph bool) []shownResource {
	out := make([]shownResource, len(list))
	for i, a := range list {
		out[i] = showResource(a, graph)
	}
	return out
}

// radius reports whether a client of Radius sent the deployment.
func (f facts) radius() bool { return len(f.ProviderConfig) > 0 }

// stateOf is the state in the words of deployments.
func stateOf(s core.State) string {
	switch s {
	case core.StateUpdating, core.StateDeleting:
		return "Running"
	case "":
		return string(core.StateSucceeded)
	}
	return string(s)
}

// show is a deployment as GET answers it.
func (s *Service) show(ctx context.Context, r core.Resource) (shown, error) {
	f, err := readFacts(r)
	if err != nil {
		return shown{}, err
	}
	o, err := readOutcome(r)
	if err != nil {
		return shown{}, err
	}
	state := r.State
	if !state.Terminal() && f.Root != "" {
		if state, err = s.rootState(ctx, r, f); err != nil {
			return shown{}, err
		}
	}
	if o.Operation != f.Operation { // of an earlier run, or ended by nobody's hand
		o = outcome{}
		if state.Terminal() && state != core.StateSucceeded && f.Operation != "" {
			if op, err := s.o.Store.Operation(ctx, f.Operation); err == nil {
				o.Error, o.Ended = op.Error, op.Ended
			}
		}
	}
	out := shown{ID: r.ID.String(), Name: r.ID.Name(), Type: Type, Location: r.Location, Tags: r.Tags}
	if out.SystemData, err = json.Marshal(r.SystemData); err != nil {
		return out, err
	}
	p := &out.Properties
	p.ProvisioningState, p.CorrelationID, p.Mode, p.TemplateHash, p.TemplateLink = stateOf(state), f.Correlation, f.Mode, f.TemplateHash, f.TemplateLink
	p.Parameters, p.ParametersLink, p.Expressions, p.ProviderConfig = f.Parameters, f.ParametersLink, f.Expressions, f.ProviderConfig
	p.Providers, p.Dependencies, p.Extensions, p.Operation = f.Providers, f.Dependencies, f.Extensions, f.Operation
	if p.Providers == nil {
		p.Providers = []provider{}
	}
	if p.Dependencies == nil {
		p.Dependencies = []dependency{}
	}
	ended := o.Ended
	if ended.IsZero() && !state.Terminal() {
		ended = s.o.Now()
	}
	if !ended.IsZero() {
		p.Timestamp = ended.UTC().Format(time.RFC3339Nano)
		p.Duration = ISODuration(ended.Sub(f.Started))
	}
	if !state.Terminal() {
		return out, nil
	}
	if o.Outputs != nil {
		p.Outputs = map[string]shownValue{}
		for _, v := range o.Outputs {
			p.Outputs[v.Name] = shownValue{v.Type, v.Value}
		}
	}
	if state == core.StateSucceeded || len(o.Resources) > 0 {
		p.OutputResources = showResources(o.Resources, f.radius())
	}
	p.DeletedResources = showResources(o.Deleted, f.radius())
	p.Error = o.Error
	for _, w := range o.Warnings {
		p.Diagnostics = append(p.Diagnostics, diagnostic{"Warning", "DeploymentWarning", w})
	}
	return out, nil
}

// rootState is the state of a nested deployment that its row does not know: its
// root was stopped before it could be told.
func (s *Service) rootState(ctx context.Context, r core.Resource, f facts) (core.State, error) {
	op, err := s.o.Store.Operation(ctx, f.Operation)
	if core.IsCode(err, core.CodeNotFound) {
		return core.StateCanceled, nil
	}
	if err != nil || !op.State.Terminal() {
		return r.State, err
	}
	return op.State, nil
}

// ISODuration is a duration as ISO 8601 and the wire write it: PT1M2.5S, to the millisecond.
func ISODuration(d time.Duration) string {
	d = max(d, 0)
	out := "PT"
	if h := int(d.Hours()); h > 0 {
		out += fmt.Sprintf("%dH", h)
	}
	if m := int(d.Minutes()) % 60; m > 0 {
		out += fmt.Sprintf("%dM", m)
	}
	return out + fmt.Sprintf("%gS", (d%time.Minute).Round(time.Millisecond).Seconds())
}
