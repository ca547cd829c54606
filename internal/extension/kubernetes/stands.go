package kubernetes

import (
	"encoding/json"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// stands reports whether an apply of asked by that manager would change nothing:
// the manager has exactly the fields that are asked for, and each has its value.
// Where that cannot be told from the two (the server filled something in, or writes
// a value in its own form) it answers false, and an apply tells.
func stands(asked, live *unstructured.Unstructured, manager string) bool {
	if asked.GroupVersionKind() != live.GroupVersionKind() || isSecret(asked) {
		return false
	}
	var mine []byte
	for _, f := range live.GetManagedFields() {
		if f.Manager != manager || f.Operation != metav1.ManagedFieldsOperationApply || f.Subresource != "" {
			continue
		}
		if mine != nil || f.FieldsV1 == nil || f.APIVersion != asked.GetAPIVersion() {
			return false
		}
		mine = f.FieldsV1.GetRawBytes()
	}
	var fields map[string]any
	if json.Unmarshal(mine, &fields) != nil {
		return false
	}
	body := runtime.DeepCopyJSON(asked.Object)
	delete(body, "apiVersion")
	delete(body, "kind")
	meta, _ := body["metadata"].(map[string]any)
	for _, name := range []string{"name", "namespace", "uid"} { // what no manager has
		delete(meta, name)
	}
	if len(meta) == 0 {
		delete(body, "metadata")
	}
	return has(fields, body, live.Object)
}

// has compares what a manager has (in the form of FieldsV1) with what is asked for
// and with what is there.
func has(fields map[string]any, asked, live any) bool {
	if len(fields) == 0 { // the whole value is one field
		return equal(asked, live)
	}
	switch asked := asked.(type) {
	case map[string]any:
		there, ok := live.(map[string]any)
		if !ok || len(asked) == 0 || count(fields) != len(asked) {
			return false
		}
		for name, value := range asked {
			of, ok := fields["f:"+name].(map[string]any)
			if !ok {
				return false
			}
			if at, ok := there[name]; !ok || !has(of, value, at) {
				return false
			}
		}
		return true
	case []any:
		there, ok := live.([]any)
		if !ok || len(there) != len(asked) || count(fields) != len(asked) {
			return false
		}
		return hasItems(fields, asked, there)
	}
	return false
}

// hasItems compares a list of which each item is a field of its own.
func hasItems(fields map[string]any, asked, live []any) bool {
	seen := make([]bool, len(asked))
	for name, of := range fields {
		if name == "." {
			continue
		}
		of, ok := of.(map[string]any)
		if !ok {
			return false
		}
		i := itemOf(name, asked)
		if i < 0 || seen[i] || !has(without(of), asked[i], live[i]) {
			return false
		}
		seen[i] = true
	}
	return true
}

// itemOf finds the item that a field of a list names, by its keys (k:{"name":"a"})
// or by its value (v:"a"); -1 if none has all of that.
func itemOf(field string, list []any) int {
	kind, text, _ := strings.Cut(field, ":")
	var named any
	if json.Unmarshal([]byte(text), &named) != nil {
		return -1
	}
	for i, item := range list {
		switch kind {
		case "v":
			if equal(named, item) {
				return i
			}
		case "k":
			keys, ok := named.(map[string]any)
			object, is := item.(map[string]any)
			if !ok || !is {
				return -1
			}
			matches := true
			for key, value := range keys {
				matches = matches && equal(value, object[key])
			}
			if matches {
				return i
			}
		}
	}
	return -1
}

// count is how many fields there are, besides the mark of the whole itself.
func count(fields map[string]any) int {
	n := len(fields)
	if _, ok := fields["."]; ok {
		n--
	}
	return n
}

// without takes the mark of an item itself away; a scalar has nothing else.
func without(fields map[string]any) map[string]any {
	if _, ok := fields["."]; !ok {
		return fields
	}
	rest := make(map[string]any, len(fields))
	for name, of := range fields {
		if name != "." {
			rest[name] = of
		}
	}
	return rest
}

// equal compares JSON values, numbers by what they are.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			if other, ok := b[name]; !ok || !equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	return reflect.DeepEqual(a, b)
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), v > -1<<53 && v < 1<<53
	case float64:
		return v, true
	}
	return 0, false
}
