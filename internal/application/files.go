package application

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
)

// RefuseFiles makes environments and recipe packs refuse recipes whose template
// is a file: it would be one of the server's own, which are for developer mode
// only. Without it the first to learn so would be whoever uses the recipe.
func RefuseFiles(kinds map[string]dynamic.Kind) {
	for _, t := range []string{TypeEnvironment, typePack} {
		key := strings.ToLower(t)
		kind := kinds[key]
		before := kind.Check
		kind.Check = func(ctx context.Context, s dynamic.Subject) error {
			if err := checkFiles(s); err != nil || before == nil {
				return err
			}
			return before(ctx, s)
		}
		kinds[key] = kind
	}
}

// checkFiles finds all templates that are files: in an environment recipes are
// kept by type and name, in a recipe pack by type.
func checkFiles(s dynamic.Subject) error {
	var faults []core.Error
	var walk func(at string, v map[string]any)
	walk = func(at string, v map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(v)) {
			entry, ok := v[name].(map[string]any)
			if !ok {
				continue
			}
			path, source := text(entry["templatePath"]), text(entry["source"])
			switch {
			case isFile(path):
				faults = append(faults, fileFault(at+"."+name+".templatePath", path))
			case isFile(source):
				faults = append(faults, fileFault(at+"."+name+".source", source))
			case path == "" && source == "":
				walk(at+"."+name, entry)
			}
		}
	}
	if all, ok := s.Properties["recipes"].(map[string]any); ok {
		walk("properties.recipes", all)
	}
	if len(faults) == 0 {
		return nil
	}
	return core.Errorf(core.CodeInvalidContent, "%s: %s", faults[0].Target, faults[0].Message).WithTarget(faults[0].Target).WithDetails(faults...)
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func isFile(path string) bool { return strings.HasPrefix(strings.ToLower(path), "file:") }

func fileFault(at, path string) core.Error {
	return *core.Errorf(core.CodeInvalidContent, "the template %s is a file, which this control plane reads in developer mode only: push it to a registry "+
		"(radial recipe publish, or radial init --recipe-registry for the recipes that come with Radial) and name it there", path).WithTarget(at)
}
