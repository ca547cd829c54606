package container

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/identity"
	"github.com/radial-project/radial/internal/recipe"
	lang "github.com/radial-project/radial/internal/template"
)

// RendererOptions make a Renderer.
type RendererOptions struct {
	Resolver extension.Resolver
	// Parallel bounds the objects of one container in flight; 0 is 16.
	Parallel int
}

// Renderer is the driver of containers: it stands where recipes are run, and has
// the same engine make, keep and delete the objects of a container.
type Renderer struct{ engine *deploy.Engine }

var _ recipe.Driver = (*Renderer)(nil)

// NewRenderer makes the driver.
func NewRenderer(o RendererOptions) *Renderer {
	return &Renderer{deploy.New(deploy.EngineOptions{Resolver: o.Resolver, Parallel: o.Parallel})}
}

// Drivers are those of what Radial renders itself, for [recipe.Options].
func Drivers(d recipe.Driver) map[string]recipe.Driver {
	return map[string]recipe.Driver{strings.ToLower(Type): d}
}

// Execute implements [recipe.Driver].
func (d *Renderer) Execute(ctx context.Context, run recipe.Run) (recipe.Result, error) {
	res := recipe.Result{Definition: run.Definition}
	q := run.Request
	env, err := recipe.ReadEnvironment(ctx, q.Environment, noPacks)
	if err != nil {
		return res, err
	}
	// The environment may have changed since the container was accepted.
	if err := mayUse(run.Owner, q.Environment, env, run.Scope); err != nil {
		return res, err
	}
	made, err := Render(Input{
		ID: run.Owner, Properties: q.Properties, Application: q.Application, Environment: q.Environment,
		Namespace: run.Scope.Namespace, Carried: q.Carried, Stores: q.Uses, HashKey: q.HashKey,
	})
	if err != nil {
		return res, err
	}
	t, parameters, err := made.template()
	if err != nil {
		return res, err
	}
	deployed, err := d.engine.Deploy(ctx, deploy.Request{
		Name: "container-" + run.Owner.Name(), Parsed: t, Parameters: parameters, Scope: run.Owner.Scope(), Base: run.Scope,
		Owner: run.Owner, Kind: recipe.KindRendered, Preview: true, Started: run.Started, Run: run.Attempt, Seed: run.Seed,
		Previous: run.Previous, Record: deploy.Record(run.Record), Progress: func(e deploy.Event) {
			if e.Text != "" {
				run.Progress(e.Text)
			}
		},
	})
	if err != nil {
		e := core.AsError(err)
		if !core.IsCode(err, deploy.CodeFailed) && !core.IsCode(err, core.CodeInvalidTemplate) {
			return res, err // a lost lease, an unreachable target: as it is
		}
		return res, core.Errorf(e.Code, "container %s: %w", run.Owner.Name(), err).WithTarget(e.Target).WithDetails(e.Details...)
	}
	res.Outputs, res.Resources = deployed.Journal, made.References
	res.Warnings = append(made.Warnings, deployed.Warnings...)
	if why := refused(deployed.Outputs); why != "" {
		res.Warnings = append(res.Warnings, "there is no identity: "+why)
	}
	return res, nil
}

// noPacks are the recipe packs of an environment that is read for its place
// alone.
func noPacks(_ context.Context, id core.ID) (core.Resource, error) { return core.Resource{ID: id}, nil }

// Delete implements [recipe.Driver].
func (d *Renderer) Delete(ctx context.Context, q recipe.Deletion) error {
	_, err := d.engine.Delete(ctx, deploy.DeleteRequest{Outputs: q.Outputs, Record: q.Record})
	return err
}

// Parameters implements [recipe.Driver]: a rendering has none.
func (d *Renderer) Parameters(context.Context, recipe.Definition) (map[string]json.RawMessage, error) {
	return nil, nil
}

// Names in the template that a rendering is deployed by.
const (
	parameterObjects = "objects"
	parameterSecrets = "secrets"
	outputIdentity   = "identity"
	alias            = "kubernetes"
)

// template is the rendering as the engine takes it. Its text names the objects;
// what they are comes by a parameter, so that nothing in them is read as an
// expression, and the data of Secrets by one that is secure.
func (r Rendering) template() (*lang.Template, map[string]any, error) {
	objects, secrets, resources := map[string]any{}, map[string]any{}, map[string]any{}
	outputs := map[string]any{}
	for _, o := range r.Objects {
		properties := map[string]any{}
		for key := range o.Body {
			parameter, values := parameterObjects, objects
			if o.Secret && (key == "data" || key == "stringData") {
				parameter, values = parameterSecrets, secrets
			}
			part, ok := values[o.Symbol].(map[string]any)
			if !ok {
				part = map[string]any{}
				values[o.Symbol] = part
			}
			part[key] = o.Body[key]
			properties[key] = "[parameters('" + parameter + "')['" + o.Symbol + "']." + key + "]"
		}
		resource := map[string]any{"import": alias, "type": o.Type, "properties": properties}
		if len(o.Needs) > 0 {
			resource["dependsOn"] = o.Needs
		}
		resources[o.Symbol] = resource
		if o.Symbol == symbolDeployment && asks(o.Body) {
			outputs[outputIdentity] = map[string]any{"type": "object", "value": "[reference('" + o.Symbol + "').metadata.annotations]"}
		}
	}
	text, err := json.Marshal(map[string]any{
		"contentVersion": "1.0.0.0", "languageVersion": "2.0",
		"imports": map[string]any{alias: map[string]any{"provider": "Kubernetes", "version": "1.0.0"}},
		"parameters": map[string]any{
			parameterObjects: map[string]any{"type": "object"}, parameterSecrets: map[string]any{"type": "secureObject"},
		},
		"resources": resources, "outputs": outputs,
	})
	if err != nil {
		return nil, nil, err
	}
	t, err := lang.Parse(text)
	return t, map[string]any{parameterObjects: objects, parameterSecrets: secrets}, err
}

// asks says whether a Deployment asks for an identity.
func asks(deployment map[string]any) bool {
	yes, _ := identity.Asks(annotationsOf(deployment))
	return yes
}

func annotationsOf(object map[string]any) map[string]string {
	meta, _ := object["metadata"].(map[string]any)
	return texts(meta["annotations"])
}

func texts(v any) map[string]string {
	m, _ := v.(map[string]any)
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k], _ = v.(string)
	}
	return out
}

// refused is what the operator has said against the identity by the time that
// the Deployment is ready; nothing waits for its word.
func refused(outputs []lang.Output) string {
	for _, o := range outputs {
		if o.Name == outputIdentity {
			return identity.ParseReport(texts(o.Value)).Refused()
		}
	}
	return ""
}
