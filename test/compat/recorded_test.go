package compat

import (
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

func query(target string) string {
	if i := strings.IndexByte(target, '?'); i >= 0 {
		return target[i:]
	}
	return ""
}

// withoutSystemData takes out who wrote when, which the recordings leave out.
func withoutSystemData(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "systemData")
		if list, ok := v["value"].([]any); ok {
			for _, e := range list {
				withoutSystemData(e)
			}
		}
	case []any:
		for _, e := range v {
			withoutSystemData(e)
		}
	}
	return v
}

// without takes out of a list what stood there before the pair began: types
// that are built in, and what every control plane has.
func without(body any, before map[string]bool) any {
	object, _ := body.(map[string]any)
	list, ok := object["value"].([]any)
	if !ok {
		return body
	}
	kept := []any{}
	for _, e := range list {
		r, _ := e.(map[string]any)
		if name, ok := r["name"].(string); !ok || !before[name] {
			kept = append(kept, e)
		}
	}
	object["value"] = kept
	return object
}

// present are the names in the list at a path, none where it is no list.
func (p *plane) present(target string) map[string]bool {
	p.t.Helper()
	out := map[string]bool{}
	body, _ := p.request("GET", target, nil).body.(map[string]any)
	list, _ := body["value"].([]any)
	for _, e := range list {
		r, _ := e.(map[string]any)
		if name, ok := r["name"].(string); ok {
			out[name] = true
		}
	}
	return out
}
