package template

import (
	"fmt"
	"sort"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/recipe"
	lang "github.com/radial-project/radial/internal/template"
)

// answer reads what a template answers: by the mapping of its definition, if
// that has one; else its output "result" with values, secrets and resources;
// else all outputs: secure ones as secrets, the others as values.
func answer(outputs []lang.Output, def recipe.Definition) (recipe.Result, error) {
	res := recipe.Result{Values: map[string]any{}, Secrets: map[string]any{}}
	if len(def.Outputs) > 0 {
		err := mapOutputs(&res, outputs, def)
		return res, err
	}
	for _, o := range outputs {
		if strings.EqualFold(o.Name, resultOutput) {
			err := readResult(&res, o, def)
			return res, err
		}
	}
	for _, o := range outputs {
		if o.Secure {
			res.Secrets[o.Name] = o.Value
		} else {
			res.Values[o.Name] = o.Value
		}
	}
	return res, nil
}

func readResult(res *recipe.Result, o lang.Output, def recipe.Definition) error {
	fault := func(format string, args ...any) error {
		return core.Errorf(core.CodeRecipeOutputs, "recipe %q (%s): the output %q %s", def.Name, def.Path, o.Name, fmt.Sprintf(format, args...)).
			WithTarget("outputs." + o.Name)
	}
	fields, ok := o.Value.(map[string]any)
	if !ok {
		return fault("must be an object with values, secrets and resources")
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		v := fields[name]
		if v == nil {
			continue
		}
		switch name {
		case "values", "secrets":
			m, ok := v.(map[string]any)
			if !ok {
				return fault("has %s that are not an object", name)
			}
			if name == "values" {
				res.Values = m
			} else {
				res.Secrets = m
			}
		case "resources":
			list, ok := v.([]any)
			if !ok {
				return fault("has resources that are not an array")
			}
			for _, e := range list {
				text, ok := e.(string)
				if !ok {
					return fault("has resources that are not all strings")
				}
				if _, err := core.ParseID(text); err != nil {
					return fault("names a resource that is not a resource id")
				}
				res.Resources = append(res.Resources, text)
			}
		default:
			return fault("has a member %q: it may have values, secrets and resources", name)
		}
	}
	for name := range res.Secrets {
		if _, twice := res.Values[name]; twice {
			return fault("has %q both as a value and as a secret", name)
		}
	}
	return nil
}

// mapOutputs answers the outputs that a definition names, under the names that
// it gives them. A secure output stays a secret wherever it is mapped to.
func mapOutputs(res *recipe.Result, outputs []lang.Output, def recipe.Definition) error {
	take := func(name string, from any, secret bool) error {
		text, ok := from.(string)
		for _, o := range outputs {
			if !ok || !strings.EqualFold(o.Name, text) {
				continue
			}
			if secret || o.Secure {
				res.Secrets[name] = o.Value
			} else {
				res.Values[name] = o.Value
			}
			return nil
		}
		return core.Errorf(core.CodeRecipeOutputs, "recipe %q (%s): the pack maps %q to the output %v, which the template does not have",
			def.Name, def.Path, name, from).WithTarget("outputs." + name)
	}
	for name, from := range def.Outputs {
		secrets, nested := from.(map[string]any)
		if !nested || name != "secrets" {
			if err := take(name, from, false); err != nil {
				return err
			}
			continue
		}
		for name, from := range secrets {
			if err := take(name, from, true); err != nil {
				return err
			}
		}
	}
	return nil
}
