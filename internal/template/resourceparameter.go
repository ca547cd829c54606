package template

import (
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// fitsResource holds the value of a parameter that is declared by the type of a
// resource (metadata.resourceType) to be the id of one: whoever passes another
// resource is told before anything is done with it (S-6).
func fitsResource(q *parameter, v any) *core.Error {
	want := q.def.get("metadata").get("resourceType")
	text, ok := v.(string)
	if want == nil || want.kind != kindString || !ok {
		return nil
	}
	typ, _, _ := strings.Cut(want.text, "@")
	have, ok := typeOfResource(text)
	switch {
	case !ok:
		return core.Errorf(core.CodeRecipeInvalid, "parameter %q must be the id of a resource of type %s (/…/providers/%s/<name>), and is no id of a resource", q.name, typ, typ)
	case !strings.EqualFold(have, typ):
		return core.Errorf(core.CodeRecipeInvalid, "parameter %q must be the id of a resource of type %s, and is that of a %s", q.name, typ, have)
	}
	return nil
}

// typeOfResource is the type in the id of a resource of any plane: that after
// the last /providers/.
func typeOfResource(id string) (string, bool) {
	const mark = "/providers/"
	i := strings.LastIndex(strings.ToLower(id), mark)
	if i < 0 || !strings.HasPrefix(id, "/") {
		return "", false
	}
	parts := strings.Split(id[i+len(mark):], "/")
	if len(parts) < 3 || len(parts)%2 == 0 {
		return "", false
	}
	typ := parts[0]
	for j, p := range parts {
		if p == "" {
			return "", false
		}
		if j%2 == 1 {
			typ += "/" + p
		}
	}
	return typ, true
}
