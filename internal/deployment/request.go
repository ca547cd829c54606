package deployment

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/template"
)

// body is what PUT, validate and whatIf are sent.
type body struct {
	Location   string            `json:"location"`
	Tags       map[string]string `json:"tags"`
	Properties *struct {
		Mode           string          `json:"mode"`
		Template       json.RawMessage `json:"template"`
		TemplateLink   *contentLink    `json:"templateLink"`
		Parameters     json.RawMessage `json:"parameters"`
		ParametersLink *contentLink    `json:"parametersLink"`
		// ExtensionConfigs are {alias: {entry: {value}}}.
		ExtensionConfigs map[string]map[string]any  `json:"extensionConfigs"`
		ExternalInputs   map[string]json.RawMessage `json:"externalInputs"`
		Expressions      json.RawMessage            `json:"expressionEvaluationOptions"`
		ProviderConfig   json.RawMessage            `json:"providerConfig"`
		OnError          json.RawMessage            `json:"onErrorDeployment"`
		WhatIfSettings   *struct {
			ResultFormat string `json:"resultFormat"`
		} `json:"whatIfSettings"`
	} `json:"properties"`
}

// contentLink is templateLink or parametersLink.
type contentLink struct {
	URI            string `json:"uri,omitempty"`
	ID             string `json:"id,omitempty"`
	RelativePath   string `json:"relativePath,omitempty"`
	QueryString    string `json:"queryString,omitempty"`
	ContentVersion string `json:"contentVersion,omitempty"`
}

// shown is the link without its query, which is often a password to what it leads
// to: it is kept sealed, as long as linked templates may be relative to it.
func (l *contentLink) shown() *contentLink {
	c := *l
	c.URI, c.QueryString = shownURI(l.URI), ""
	return &c
}

// asked is a request that has been read: all of it, and nothing begun.
type asked struct {
	id       core.ID
	location string
	tags     map[string]string
	text     []byte
	template *template.Template
	in       inputs
	facts    facts
	started  time.Time
	// format is the resultFormat of a what-if.
	format string
}

var namePattern = regexp.MustCompile(`^[-\w.()]{1,64}$`)

func checkName(id core.ID) error {
	if !id.IsResource() || len(id.Types) != 1 || len(id.Scopes) != 1 {
		return core.Errorf(core.CodeBadRequest, "%s is no deployment: deployments stand in a resource group, as /planes/radius/local/resourceGroups/<group>/providers/%s/<name>", id, Type).WithTarget(id.String())
	}
	if !namePattern.MatchString(id.Name()) {
		return core.Errorf(core.CodeInvalidContent, "the deployment's name %q must have 1 to 64 letters, digits, dots, hyphens, underscores and parentheses", id.Name()).WithTarget("name")
	}
	return nil
}

// badContent is about one member of the body.
func badContent(at, format string, args ...any) *core.Error {
	return core.Errorf(core.CodeInvalidContent, at+" "+format, args...).WithTarget(at)
}

// badTemplate gives every fault of a template or its parameters the code that
// clients of deployments know.
func badTemplate(err error) error {
	if err == nil || !core.IsCode(err, core.CodeRecipeInvalid) {
		return err
	}
	e := core.AsError(err)
	return core.Errorf(core.CodeInvalidTemplate, "%w", err).WithTarget(e.Target).WithDetails(e.Details...)
}

// read reads a request's body: template and parameters are there, complete and
// of the right types after it.
func (s *Service) read(ctx context.Context, id core.ID, raw []byte) (*asked, error) {
	var b body
	if err := arm.Decode(raw, &b); err != nil {
		return nil, err
	}
	p := b.Properties
	if p == nil {
		return nil, badContent("properties", "is required: it holds template, parameters and mode")
	}
	a := &asked{id: id, location: b.Location, tags: b.Tags, started: s.o.Now().UTC()}
	switch {
	case p.Mode == "", strings.EqualFold(p.Mode, "Incremental"):
		a.facts.Mode = "Incremental"
	case strings.EqualFold(p.Mode, "Complete"):
		return nil, badContent("properties.mode", "is Complete, which deletes what the template does not name, whoever made it: that is not offered. A deployment stack deletes what it made itself and no longer names; or use Incremental")
	default:
		return nil, badContent("properties.mode", "is %q: it must be Incremental", p.Mode)
	}
	if len(p.OnError) > 0 && string(p.OnError) != "null" {
		return nil, badContent("properties.onErrorDeployment", "is not offered: send the deployment that shall follow when this one has failed")
	}
	if err := s.readTemplate(ctx, a, p.Template, p.TemplateLink); err != nil {
		return nil, err
	}
	if err := s.readParameters(ctx, a, p.Parameters, p.ParametersLink); err != nil {
		return nil, err
	}
	a.in.ExtensionConfigs = p.ExtensionConfigs
	if one, other, ok := twice(maps.Keys(p.ExtensionConfigs)); ok {
		return nil, badContent("properties.extensionConfigs."+one, "differs from %q by case only, and both are the same import: send one of the two", other)
	}
	if err := a.readInputs(p.ExternalInputs); err != nil {
		return nil, err
	}
	a.facts.Expressions = p.Expressions
	if err := a.readProviders(p.ProviderConfig); err != nil {
		return nil, err
	}
	if p.WhatIfSettings != nil {
		a.format = p.WhatIfSettings.ResultFormat
	}
	a.facts.Withheld = a.bringsKubeConfig()
	if err := a.refuseOpenSecrets(); err != nil {
		return nil, err
	}
	a.in.Seed = make([]byte, 32)
	_, _ = rand.Read(a.in.Seed) // never fails
	a.in.Mark = markOf(a.in.Seed, a.facts.TemplateHash, a.in)
	a.facts.Parameters = showParameters(a.template, a.in.Parameters)
	return a, s.draw(ctx, a)
}

func (s *Service) readTemplate(ctx context.Context, a *asked, raw json.RawMessage, link *contentLink) error {
	given := len(raw) > 0 && string(raw) != "null"
	switch {
	case given && link != nil:
		return badContent("properties.templateLink", "stands beside template: send one of the two")
	case link != nil:
		text, err := s.fetch(ctx, "properties.templateLink", *link)
		if err != nil {
			return err
		}
		a.text, a.in.URI, a.facts.TemplateLink = text, link.URI, link.shown()
	case !given:
		return badContent("properties.template", "is required: the template as a JSON object, or templateLink with its uri")
	case raw[0] == '"': // a JSON string that holds the template
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return badContent("properties.template", "is no JSON string")
		}
		a.text = []byte(text)
	default:
		a.text = raw
	}
	if len(a.text) > maxTemplate {
		return core.Errorf(core.CodeTooLarge, "the template has %d bytes; at most %d can be deployed: split it into linked or nested templates", len(a.text), maxTemplate).WithTarget("properties.template")
	}
	t, err := template.Parse(a.text)
	if err != nil {
		return badTemplate(err)
	}
	if t.Level() != template.LevelGroup {
		return core.Errorf(core.CodeInvalidTemplate, "the template's $schema is for a deployment to a %s, and this one is to a resource group", t.Level()).WithTarget("$schema")
	}
	if link != nil && link.ContentVersion != "" && link.ContentVersion != t.ContentVersion() {
		return core.Errorf(core.CodeInvalidLink, "the template at %s has contentVersion %q, and the link asks for %q", link.URI, t.ContentVersion(), link.ContentVersion).WithTarget("properties.templateLink.contentVersion")
	}
	a.template, a.facts.TemplateHash = t, templateHash(a.text)
	return nil
}

// fetch reads what a link names.
func (s *Service) fetch(ctx context.Context, at string, l contentLink) ([]byte, error) {
	switch {
	case l.RelativePath != "" && l.URI == "":
		return nil, badContent(at+".relativePath", "needs the uri of the template that it is relative to: send uri")
	case l.ID != "":
		return nil, badContent(at+".id", "names a template spec, which is not offered: send uri, or the template itself")
	case l.URI == "":
		return nil, badContent(at+".uri", "is required")
	case s.o.Link == nil:
		return nil, core.Errorf(core.CodeInvalidLink, "this server fetches no templates: send the template itself").WithTarget(at + ".uri")
	}
	return s.o.Link(ctx, template.Link{URI: l.URI, QueryString: l.QueryString})
}

// readParameters reads {name: {value}}, or the file that a link names.
func (s *Service) readParameters(ctx context.Context, a *asked, raw json.RawMessage, link *contentLink) error {
	if len(raw) > 0 && raw[0] == '"' { // a JSON string that holds them
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return badContent("properties.parameters", "is no JSON string")
		}
		raw = json.RawMessage(text)
	}
	given := map[string]any{}
	if len(raw) > 0 && string(raw) != "null" {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if d.Decode(&given) != nil {
			return badContent("properties.parameters", `must be a JSON object of {"value": …} by name`)
		}
	}
	if link != nil {
		if len(given) > 0 {
			return badContent("properties.parametersLink", "stands beside parameters: send one of the two")
		}
		text, err := s.fetch(ctx, "properties.parametersLink", *link)
		if err != nil {
			return err
		}
		f, err := template.ParseParameters(text)
		if err != nil {
			return badTemplate(err)
		}
		values, configs, err := f.Values(template.ParameterSources{})
		if err != nil {
			return badTemplate(err)
		}
		a.in.Parameters, a.facts.ParametersLink = values, link.shown()
		if len(configs) > 0 {
			a.in.ExtensionConfigs = configs
		}
		return nil
	}
	a.in.Parameters = make(map[string]any, len(given))
	if one, other, ok := twice(maps.Keys(given)); ok {
		return badContent("properties.parameters."+one, "differs from %q by case only, and both are the same parameter: send one of the two", other)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		at := "properties.parameters." + name
		entry, ok := given[name].(map[string]any)
		if !ok {
			return badContent(at, `must be {"value": …}`)
		}
		for member := range entry {
			switch member {
			case "value", "type", "metadata":
			case "reference":
				return badContent(at+".reference", "refers to a secret of a key vault, and this server has no access to one: read the secret where the deployment is sent from, and send its value to a secure parameter")
			case "expression":
				return badContent(at+".expression", "is of a parameters file: what it stands for is evaluated where the file is, and its value is sent (radial deploy does so)")
			default:
				return badContent(at+"."+member, `is not known: a parameter is {"value": …}`)
			}
		}
		v, ok := entry["value"]
		if !ok {
			return badContent(at, `has no value: a parameter is {"value": …}`)
		}
		a.in.Parameters[name] = v
	}
	return nil
}

// twice finds two names that differ by case only.
func twice(names iter.Seq[string]) (one, other string, ok bool) {
	seen := map[string]string{}
	for _, name := range slices.Sorted(names) {
		key := strings.ToLower(name)
		if before, ok := seen[key]; ok {
			return before, name, true
		}
		seen[key] = name
	}
	return "", "", false
}

func (a *asked) readInputs(given map[string]json.RawMessage) error {
	for name, raw := range given {
		var entry struct {
			Value any `json:"value"`
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if d.Decode(&entry) != nil {
			return badContent("properties.externalInputs."+name, `must be {"value": …}`)
		}
		if a.in.ExternalInputs == nil {
			a.in.ExternalInputs = map[string]any{}
		}
		a.in.ExternalInputs[name] = entry.Value
	}
	return nil
}

// readProviders reads the scopes that clients of Radius send. That of its own
// resources may be another group; where deployments are is this one.
func (a *asked) readProviders(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	type config struct {
		Value struct {
			Scope string `json:"scope"`
		} `json:"value"`
	}
	var c struct {
		Radius      *config `json:"radius"`
		Deployments *config `json:"deployments"`
	}
	if json.Unmarshal(raw, &c) != nil {
		return badContent("properties.providerConfig", `must be a JSON object of {"type", "value": {"scope"}} by provider`)
	}
	a.facts.ProviderConfig = raw
	if c.Radius != nil && c.Radius.Value.Scope != "" {
		scope, err := core.ParseID(c.Radius.Value.Scope)
		if err != nil || !scope.IsScope() || len(scope.Scopes) != 1 {
			return badContent("properties.providerConfig.radius.value.scope", "is %q: it must be the id of a resource group", c.Radius.Value.Scope)
		}
		if !scope.Equal(a.id.Scope()) {
			a.facts.Scope = scope.String()
		}
	}
	if c.Deployments != nil && c.Deployments.Value.Scope != "" {
		if scope, err := core.ParseID(c.Deployments.Value.Scope); err != nil || !scope.Equal(a.id.Scope()) {
			return badContent("properties.providerConfig.deployments.value.scope", "is %q, and the deployment is in %s", c.Deployments.Value.Scope, a.id.Scope())
		}
	}
	return nil
}

// bringsKubeConfig reports whether a secret of the request is, or may be, the
// credentials of a cluster: they are stored nowhere.
func (a *asked) bringsKubeConfig() bool {
	var v any
	if json.Unmarshal(a.text, &v) == nil && asksKubeConfig(v) {
		return true
	}
	for _, value := range a.in.Parameters {
		if findKubeConfig("value", value) != "" {
			return true
		}
	}
	for _, entries := range a.in.ExtensionConfigs {
		for name, value := range entries {
			if strings.EqualFold(name, "kubeConfig") || findKubeConfig("value", value) != "" {
				return true
			}
		}
	}
	return false
}

// refuseOpenSecrets refuses a kubeConfig where it would be shown and stored: in
// the template, or as a parameter that is not secure (S-39).
func (a *asked) refuseOpenSecrets() error {
	var v any
	if json.Unmarshal(a.text, &v) == nil {
		if at := findKubeConfig("template", v); at != "" {
			return core.Errorf(core.CodeInvalidTemplate, "%s is a kubeConfig: a template is stored and shown. Declare a parameter of type securestring, and send the kubeConfig as its value", at).WithTarget("properties." + at)
		}
	}
	for _, p := range a.template.Parameters() {
		for name, value := range a.in.Parameters {
			if !p.Secure && strings.EqualFold(name, p.Name) && findKubeConfig("value", value) != "" {
				return core.Errorf(core.CodeInvalidTemplate, "the value of parameter %q is a kubeConfig, and the parameter is not secure, so that it would be stored and shown: declare it with type securestring", p.Name).WithTarget("properties.parameters." + name)
			}
		}
	}
	return nil
}

// sealable are the inputs as they may be stored: with a kubeConfig among the
// secret ones, none of those.
func (a *asked) sealable() inputs {
	in := a.in
	if !a.facts.Withheld {
		return in
	}
	in.Parameters = maps.Clone(in.Parameters)
	for _, p := range a.template.Parameters() {
		if p.Secure {
			maps.DeleteFunc(in.Parameters, func(name string, _ any) bool { return strings.EqualFold(name, p.Name) })
		}
	}
	in.ExtensionConfigs = nil
	return in
}

// scope is the group that the control plane's own resources are made in.
func (f facts) scope(id core.ID) core.ID {
	if f.Scope == "" {
		return id.Scope()
	}
	scope, err := core.ParseID(f.Scope)
	if err != nil {
		return id.Scope()
	}
	return scope
}

// request is what the engine is asked.
func (s *Service) request(id core.ID, text []byte, in inputs, f facts) deploy.Request {
	return deploy.Request{
		ID: id, Name: id.Name(), Template: text, Parameters: in.Parameters, ExtensionConfigs: in.ExtensionConfigs, ExternalInputs: in.ExternalInputs,
		Scope: f.scope(id), Location: "global", Base: s.o.Base, Run: f.Run, Started: f.Started, Seed: in.Seed, Parallel: s.o.Parallel,
	}
}

// draw plans what is known before, so that a fault is said at once, and keeps
// what the plan is about: its providers, dependencies and extensions.
func (s *Service) draw(ctx context.Context, a *asked) error {
	n := 0
	plan, err := a.template.Plan(template.Options{
		Parameters: a.in.Parameters, ExtensionConfigs: a.in.ExtensionConfigs, ExternalInputs: a.in.ExternalInputs,
		Deployment: a.id.Name(), Scope: a.facts.scope(a.id), Location: "global", Namespace: s.o.Base.Namespace, Now: a.started,
		NewGUID: func() string { n++; return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) },
		URI:     a.in.URI, Partial: true,
	})
	if err != nil {
		return badTemplate(err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	a.facts.Providers, a.facts.Dependencies, a.facts.Extensions = drawn(plan)
	return nil
}
