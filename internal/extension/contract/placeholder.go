package contract

import (
	"strconv"
	"strings"
)

// placeholder stands where a value is not known yet: the contract wants an
// expression there, and says by a pointer that it is one.
const placeholder = "[unevaluated()]"

// place puts a placeholder at a JSON pointer, and makes the objects on the way.
// In a list only what is there can be replaced: a list of unknown length has
// the pointer of the list itself.
func place(properties map[string]any, pointer string) {
	parts := strings.Split(pointer, "/")
	if len(parts) < 2 {
		return // the whole body: there is nothing to stand in for
	}
	var at any = properties
	for i, part := range parts[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		last := i == len(parts)-2
		switch v := at.(type) {
		case map[string]any:
			if last {
				v[part] = placeholder
				return
			}
			if v[part] == nil {
				v[part] = map[string]any{}
			}
			at = v[part]
		case []any:
			n, err := strconv.Atoi(part)
			if err != nil || n < 0 || n >= len(v) {
				return
			}
			if last {
				v[n] = placeholder
				return
			}
			if v[n] == nil {
				v[n] = map[string]any{}
			}
			at = v[n]
		default:
			return
		}
	}
}

// withoutPlaceholders takes the echoed ones out again.
func withoutPlaceholders(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e == placeholder {
				delete(v, k)
				continue
			}
			withoutPlaceholders(e)
		}
	case []any:
		for i, e := range v {
			if e == placeholder {
				v[i] = nil
				continue
			}
			withoutPlaceholders(e)
		}
	}
}

func deepCopy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = deepCopy(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = deepCopy(e)
		}
		return out
	}
	return v
}
