package dynamic

import (
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
)

// Fits says why a stored resource, written by a type version as it is, does not
// fit that version as it shall be (D-5); nil when it does. Defaults count as
// given, as the next write fills them in. Whether a stored value is sensitive
// must not change: it would stay in the clear, or sealed where nothing opens it.
//
// The error names places of the schema and no value.
func (p *Provider) Fits(r core.Resource, current, next *manifest.TypeVersion) error {
	props, err := p.plaintext(r, current)
	if err != nil {
		return err
	}
	was, err := sensitivePaths(props, current)
	if err != nil {
		return err
	}
	is, err := sensitivePaths(props, next)
	if err != nil {
		return err
	}
	if moved := unshared(was, is); len(moved) > 0 {
		return core.Errorf(core.CodeInvalidContent, "Schema validation failed: whether properties.%s is sensitive would change under a stored value", strings.Join(moved, ", properties."))
	}
	if next.Schema == nil {
		return nil
	}
	next.Schema.ApplyDefaults(props)
	return next.Schema.Validate(props)
}

// sensitivePaths are the places of the schema that hold a sensitive value.
func sensitivePaths(props map[string]any, tv *manifest.TypeVersion) (map[string]bool, error) {
	paths := map[string]bool{}
	if tv == nil || tv.Schema == nil {
		return paths, nil
	}
	err := tv.Schema.WalkSensitive(props, func(path string, v any) (any, error) {
		if v != nil {
			paths[path] = true
		}
		return v, nil
	})
	return paths, err
}

// unshared are the members of exactly one of two sets, sorted.
func unshared(a, b map[string]bool) []string {
	var out []string
	for k := range a {
		if !b[k] {
			out = append(out, k)
		}
	}
	for k := range b {
		if !a[k] {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}
