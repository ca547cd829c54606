package setup

import (
	"context"
	"errors"
	"reflect"
	"strings"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
)

// What a new installation has: one group and one environment, which every namespace may use.
const (
	DefaultName     = "default"
	EnvironmentType = "Applications.Core/environments"
	CoreVersion     = "2023-10-01-preview"
	GroupVersion    = "2023-10-01-preview"
)

// DefaultEnvironment is the environment that a workload uses unless it names another.
var DefaultEnvironment = core.GroupID(DefaultName).Resource(EnvironmentType, DefaultName)

// Template is what an environment keeps of a recipe.
type Template struct {
	Kind       string         `json:"templateKind"`
	Path       string         `json:"templatePath"`
	Version    string         `json:"templateVersion,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
	PlainHTTP  bool           `json:"plainHttp,omitempty"`
}

// TemplateOf reads a template from an environment's properties.
func TemplateOf(entry map[string]any) Template {
	var t Template
	t.Kind, _ = entry["templateKind"].(string)
	t.Path, _ = entry["templatePath"].(string)
	t.Version, _ = entry["templateVersion"].(string)
	t.Parameters, _ = entry["parameters"].(map[string]any)
	t.PlainHTTP, _ = entry["plainHttp"].(bool)
	return t
}

// entry is the template as an environment's properties have it.
func (t Template) entry() map[string]any {
	e := map[string]any{"templateKind": t.Kind, "templatePath": t.Path}
	if t.Version != "" {
		e["templateVersion"] = t.Version
	}
	if len(t.Parameters) > 0 {
		e["parameters"] = t.Parameters
	}
	if t.PlainHTTP {
		e["plainHttp"] = true
	}
	return e
}

// Registration is one recipe to register in an environment.
type Registration struct {
	ResourceType string `json:"resourceType"`
	Name         string `json:"name"`
	Template
}

// Made says what Defaults found and made.
type Made struct {
	Group       bool           `json:"groupCreated"`
	Environment bool           `json:"environmentCreated"`
	Recipes     []Registration `json:"recipesRegistered"`
}

// Defaults makes the default group and environment where they are missing and registers the recipes there. A
// recipe that has been registered under its type and name, by whomever, stays as it is.
func Defaults(ctx context.Context, c *client.Client, recipes []Registration) (Made, error) {
	var made Made
	created, err := EnsureGroup(ctx, c, DefaultName)
	if err != nil {
		return made, err
	}
	made.Group = created
	err = retry(ctx, func() error {
		made.Recipes, made.Environment = nil, false
		env, etag, err := c.Get(ctx, DefaultEnvironment, CoreVersion)
		condition := client.Precondition{IfMatch: etag}
		if core.IsCode(err, core.CodeNotFound) {
			made.Environment = true
			condition = client.Precondition{IfNoneMatch: "*"}
			env, err = &arm.Resource{Location: "global", Properties: map[string]any{
				"compute":           map[string]any{"kind": "kubernetes", "namespace": "default"},
				"allowedNamespaces": []any{"*"},
			}}, nil
		}
		if err != nil {
			return err
		}
		for _, r := range recipes {
			if Register(env, r, false) {
				made.Recipes = append(made.Recipes, r)
			}
		}
		if !made.Environment && len(made.Recipes) == 0 {
			return nil
		}
		return put(ctx, c, DefaultEnvironment, CoreVersion, env, condition)
	})
	return made, err
}

// EnsureGroup makes a resource group if it is missing.
func EnsureGroup(ctx context.Context, c *client.Client, name string) (created bool, err error) {
	id := core.GroupID(name)
	if _, _, err = c.Get(ctx, id, GroupVersion); !core.IsCode(err, core.CodeNotFound) {
		return false, err
	}
	_, err = c.Put(ctx, id, GroupVersion, arm.Resource{Location: "global", Properties: map[string]any{}})
	return err == nil, err
}

// put writes an environment as it was read, without what only the server may say.
func put(ctx context.Context, c *client.Client, id core.ID, version string, env *arm.Resource, p client.Precondition) error {
	body := arm.Resource{Location: env.Location, Tags: env.Tags, Properties: map[string]any{}}
	for k, v := range env.Properties {
		if k != "provisioningState" && k != "status" {
			body.Properties[k] = v
		}
	}
	a, err := c.Put(ctx, id, version, body, p)
	if err == nil && a.Token != "" {
		err = c.Wait(ctx, a.Token)
	}
	return err
}

// Change reads an environment, lets f change it, and writes it back, again when another writer came between. f
// says whether there is anything to write.
func Change(ctx context.Context, c *client.Client, id core.ID, version string, f func(env *arm.Resource) (bool, error)) error {
	return retry(ctx, func() error {
		env, etag, err := c.Get(ctx, id, version)
		if err != nil {
			return err
		}
		if write, err := f(env); err != nil || !write {
			return err
		}
		return put(ctx, c, id, version, env, client.Precondition{IfMatch: etag})
	})
}

// retry repeats what lost a race against another writer.
func retry(ctx context.Context, f func() error) error {
	for range 10 {
		err := f()
		if !core.IsCode(err, core.CodePrecondition) || ctx.Err() != nil {
			return err
		}
	}
	return errors.New("other writers keep changing the environment: try again")
}

// Register puts a recipe into an environment's properties; false when nothing changes: the place is taken and
// replace is not set, or what is there is the same.
func Register(env *arm.Resource, r Registration, replace bool) bool {
	all := object(env.Properties, "recipes")
	ofType := object(all, keyOf(all, r.ResourceType))
	have, taken := ofType[r.Name].(map[string]any)
	if taken && (!replace || reflect.DeepEqual(TemplateOf(have), TemplateOf(r.entry()))) {
		return false
	}
	ofType[r.Name] = r.entry()
	return true
}

// Unregister takes a recipe out; false when it was not there.
func Unregister(env *arm.Resource, resourceType, name string) bool {
	all := object(env.Properties, "recipes")
	key := keyOf(all, resourceType)
	ofType := object(all, key)
	_, there := ofType[name]
	delete(ofType, name)
	if len(ofType) == 0 {
		delete(all, key)
	}
	return there
}

// keyOf is the spelling under which a type has its recipes.
func keyOf(recipes map[string]any, resourceType string) string {
	for k := range recipes {
		if strings.EqualFold(k, resourceType) {
			return k
		}
	}
	return resourceType
}

// object returns the object under key, which it makes when it is missing.
func object(in map[string]any, key string) map[string]any {
	if o, ok := in[key].(map[string]any); ok {
		return o
	}
	o := map[string]any{}
	in[key] = o
	return o
}
