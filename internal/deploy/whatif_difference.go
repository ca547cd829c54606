package deploy

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/radial-project/radial/internal/conceal"
)

// lastApplied is the annotation in which clients keep an object as they last
// applied it: that of a Secret holds its values.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// hide takes secrets out of a change.
func (c *Change) hide(ctx context.Context) {
	secret := func(path string) bool {
		return strings.EqualFold(strings.TrimSuffix(c.Type, "@"+c.APIVersion), "core/Secret") &&
			(strings.HasPrefix(path, "data.") || strings.HasPrefix(path, "stringData.") || path == "metadata.annotations."+lastApplied)
	}
	c.Before, c.After = hidden(ctx, "", c.Before, c.After, secret)
	for i := range c.Properties {
		c.Properties[i].hide(ctx, "", secret)
	}
	c.Reason = conceal.Text(ctx, c.Reason)
}

func (p *PropertyChange) hide(ctx context.Context, at string, secret func(string) bool) {
	path := join(at, p.Path)
	before, after := hiddenValues(ctx, path, p.Before, p.After, secret)
	p.Before, p.After = before, after
	for i := range p.Children {
		p.Children[i].hide(ctx, path, secret)
	}
}

func hidden(ctx context.Context, path string, before, after map[string]any, secret func(string) bool) (b, a map[string]any) {
	x, y := hiddenValues(ctx, path, any(before), any(after), secret)
	if before != nil {
		b, _ = x.(map[string]any)
	}
	if after != nil {
		a, _ = y.(map[string]any)
	}
	return b, a
}

// hiddenValues copies two values that stand at one place, with a mark for what is
// secret in either: the former value of a secret is one too.
func hiddenValues(ctx context.Context, path string, before, after any, secret func(string) bool) (any, any) {
	bm, bok := before.(map[string]any)
	am, aok := after.(map[string]any)
	if bok || aok {
		b, a := map[string]any{}, map[string]any{}
		for k := range bm {
			b[k], _ = hiddenValues(ctx, join(path, k), bm[k], am[k], secret)
		}
		for k := range am {
			_, a[k] = hiddenValues(ctx, join(path, k), bm[k], am[k], secret)
		}
		return either(bok, b, before), either(aok, a, after)
	}
	bl, bok := before.([]any)
	al, aok := after.([]any)
	if bok || aok {
		b, a := make([]any, len(bl)), make([]any, len(al))
		at := func(list []any, i int) any {
			if i < len(list) {
				return list[i]
			}
			return nil
		}
		for i := range max(len(bl), len(al)) {
			x, y := hiddenValues(ctx, join(path, "[]"), at(bl, i), at(al, i), secret)
			if i < len(bl) {
				b[i] = x
			}
			if i < len(al) {
				a[i] = y
			}
		}
		return either(bok, b, before), either(aok, a, after)
	}
	covered := func(v any) (string, bool) {
		text, ok := v.(string)
		if !ok {
			return "", false
		}
		shown := conceal.Text(ctx, text)
		return shown, shown != text
	}
	b, bs := covered(before)
	a, as := covered(after)
	if secret(path) || bs || as {
		mark := func(v any, text string) any {
			if v == nil {
				return nil
			}
			if strings.Contains(text, conceal.Mark) {
				return text
			}
			return conceal.Mark
		}
		return mark(before, b), mark(after, a)
	}
	return before, after
}

func either(is bool, v, other any) any {
	if is {
		return v
	}
	return other
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// difference lists what changes between two objects, by the paths of properties;
// a list is one change with its elements as children.
func difference(path string, before, after map[string]any) []PropertyChange {
	names := map[string]bool{}
	for k := range before {
		names[k] = true
	}
	for k := range after {
		names[k] = true
	}
	sorted := make([]string, 0, len(names))
	for k := range names {
		sorted = append(sorted, k)
	}
	slices.Sort(sorted)
	var out []PropertyChange
	for _, k := range sorted {
		out = append(out, differenceAt(join(path, k), before[k], after[k])...)
	}
	return out
}

func differenceAt(path string, before, after any) []PropertyChange {
	if b, ok := before.(map[string]any); ok {
		if a, ok := after.(map[string]any); ok {
			return difference(path, b, a)
		}
	}
	if b, ok := before.([]any); ok {
		if a, ok := after.([]any); ok {
			if children := elements(b, a); len(children) > 0 {
				return []PropertyChange{{Path: path, Kind: "Array", Before: before, After: after, Children: children}}
			}
			return nil
		}
	}
	switch {
	case isEmpty(before) && isEmpty(after), equalValues(before, after):
		return nil
	case before == nil:
		return []PropertyChange{{Path: path, Kind: ChangeCreate, After: after}}
	case after == nil:
		return []PropertyChange{{Path: path, Kind: ChangeDelete, Before: before}}
	}
	return []PropertyChange{{Path: path, Kind: ChangeModify, Before: before, After: after}}
}

// elements compares two lists: those of named objects by name, others by place.
func elements(before, after []any) []PropertyChange {
	var out []PropertyChange
	add := func(index string, b, a any) {
		for _, c := range differenceAt("", b, a) {
			switch {
			case c.Path == "":
				c.Path = index
				out = append(out, c)
			case len(out) > 0 && out[len(out)-1].Path == index:
				out[len(out)-1].Children = append(out[len(out)-1].Children, c)
			default:
				out = append(out, PropertyChange{Path: index, Kind: ChangeModify, Children: []PropertyChange{c}})
			}
		}
	}
	names, named := namesOf(before)
	others, all := namesOf(after)
	if !named || !all {
		for i := range max(len(before), len(after)) {
			var b, a any
			if i < len(before) {
				b = before[i]
			}
			if i < len(after) {
				a = after[i]
			}
			add(strconv.Itoa(i), b, a)
		}
		return out
	}
	for i, a := range after {
		var b any
		if j := slices.Index(names, others[i]); j >= 0 {
			b = before[j]
		}
		add(strconv.Itoa(i), b, a)
	}
	for j, b := range before {
		if !slices.Contains(others, names[j]) {
			add(strconv.Itoa(j), b, nil)
		}
	}
	return out
}

// namesOf are the names of a list of named objects.
func namesOf(list []any) ([]string, bool) {
	names := make([]string, len(list))
	for i, e := range list {
		object, _ := e.(map[string]any)
		name, ok := object["name"].(string)
		if !ok || slices.Contains(names[:i], name) {
			return nil, false
		}
		names[i] = name
	}
	return names, true
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// equalValues compares leaves: numbers by their value, whatever type they have.
func equalValues(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}
