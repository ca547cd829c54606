package application

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/store"
)

// environmentProperties are those of an environment that mean something here.
type environmentProperties struct {
	AllowedNamespaces []string `json:"allowedNamespaces"`
}

func properties(environment core.Resource) (environmentProperties, error) {
	var p environmentProperties
	if len(environment.Properties) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(environment.Properties, &p); err != nil {
		return p, core.Errorf(core.CodeInternal, "the stored properties of environment %s cannot be read", environment.ID)
	}
	return p, nil
}

// Kinds are the checks of applications and environments, by type in lower case.
func (r *Rules) Kinds() map[string]dynamic.Kind {
	environment := dynamic.Kind{Check: checkEnvironment, CheckDelete: r.unused("environment", func(id core.ID) store.Query { return store.Query{Environment: id} })}
	application := dynamic.Kind{CheckDelete: r.unused("application", func(id core.ID) store.Query { return store.Query{Application: id} })}
	return map[string]dynamic.Kind{
		strings.ToLower(TypeEnvironment):     environment,
		strings.ToLower(TypeEnvironmentNext): environment,
		strings.ToLower(TypeApplication):     application,
		strings.ToLower(TypeApplicationNext): application,
	}
}

func checkEnvironment(_ context.Context, s dynamic.Subject) error {
	v, ok := s.Properties["allowedNamespaces"]
	if !ok || v == nil {
		return nil
	}
	list, ok := v.([]any)
	at := "properties.allowedNamespaces"
	if !ok {
		return core.Errorf(core.CodeInvalidContent, "%s must be a list of namespaces", at).WithTarget(at)
	}
	for i, e := range list {
		if entry, ok := e.(string); !ok || !allowedEntry.MatchString(entry) {
			at := fmt.Sprintf("%s[%d]", at, i)
			return core.Errorf(core.CodeInvalidContent, `%s is %v: it must be "*", "<namespace>", "<cluster>/<namespace>" or "<cluster>/*"`, at, e).WithTarget(at)
		}
	}
	return nil
}

// shownMembers is how many members a refused deletion lists.
const shownMembers = 10

// unused refuses the deletion of what still has members.
func (r *Rules) unused(what string, query func(core.ID) store.Query) func(context.Context, core.Resource) error {
	return func(ctx context.Context, res core.Resource) error {
		page, err := r.store.List(ctx, query(res.ID))
		if err != nil {
			return err
		}
		members := map[string]bool{}
		for _, m := range page.Resources {
			if !m.ID.Equal(res.ID) {
				members[m.ID.String()] = true
			}
		}
		if len(members) == 0 {
			return nil
		}
		names := slices.Sorted(maps.Keys(members))
		more := ""
		if n := len(names) - shownMembers; n > 0 {
			names, more = names[:shownMembers], fmt.Sprintf(" and %d more", n)
		}
		return core.Errorf(core.CodeConflict, "%s %s is still used by %s%s: delete them first", what, res.ID, strings.Join(names, ", "), more).WithTarget(res.ID.String())
	}
}
