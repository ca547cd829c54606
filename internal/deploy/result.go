package deploy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/template"
)

// Codes of failed deployments.
const (
	// CodeFailed is the code of a deployment of which a resource failed; Details
	// has one error for each.
	CodeFailed core.Code = "DeploymentFailed"
	// CodeDeleteFailed is the code of a deletion of which an output failed.
	CodeDeleteFailed core.Code = "DeletionFailed"
	// CodeAssertion is that of an assert that does not hold.
	CodeAssertion core.Code = "AssertionFailed"
)

// defaultParallel bounds how many resources are made or deleted at a time.
const defaultParallel = 16

// outputsError says that all was made and the template's outputs, or what it
// asserts, failed.
type outputsError struct{ error }

func (e *outputsError) Unwrap() error { return e.error }

// IsOutputs reports whether a deployment failed only after all its resources
// were made: in its outputs.
func IsOutputs(err error) bool {
	var o *outputsError
	return errors.As(err, &o)
}

// joined has its own text and keeps the causes reachable.
type joined struct {
	text  string
	cause error
}

func (j *joined) Error() string { return j.text }
func (j *joined) Unwrap() error { return j.cause }

// failure sums up what went wrong, once for each resource, those of nested
// deployments by their path; nil if nothing did.
func (f *frame) failure() error {
	var details []core.Error
	var causes []error
	var notMade []string
	total := 0
	f.walk(func(n *node) {
		total++
		switch {
		case n.notRun:
			notMade = append(notMade, n.name())
		case n.err == nil, errors.Is(n.err, errBelow), errors.Is(n.err, errWaiting):
		default:
			e := *core.AsError(n.err)
			e.Target = n.name()
			what := "resource"
			if n.res.Deployment {
				what = "deployment"
			}
			e.Message = fmt.Sprintf("%s %s: %s", what, n.title(), e.Message)
			details = append(details, e)
			causes = append(causes, n.err)
		}
	})
	if len(details) == 0 {
		return nil
	}
	message := details[0].Message
	if len(details) > 1 {
		message = fmt.Sprintf("%d of %d resources failed; the first: %s", len(details), total, message)
	}
	if len(notMade) > 0 {
		message += "; not made because of it: " + strings.Join(notMade, ", ")
	}
	return core.Errorf(CodeFailed, "%w", &joined{message, errors.Join(causes...)}).WithDetails(details...)
}

// result gathers what came of a run.
func (r *run) result(ctx context.Context, err error) (*Result, error) {
	res := &Result{Outputs: r.root.outputs, Warnings: r.warnings, Deployments: r.nested, Deleted: r.deleted, Secrets: r.targets.used}
	slices.Sort(res.Warnings)
	slices.SortFunc(res.Deployments, func(a, b Nested) int { return cmp.Compare(a.Path, b.Path) })
	r.root.walk(func(n *node) {
		if n.row != nil {
			res.Journal = append(res.Journal, n.row.output())
		}
		if n.made {
			res.Resources = append(res.Resources, n.affected())
		}
	})
	sortAffected(res.Resources)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = fmt.Errorf("the deployment was stopped: %w", context.Cause(ctx))
	case errors.Is(err, errWaiting):
		res.Waiting, err = true, nil
	case errors.Is(err, errBelow):
		err = r.root.failure()
	case IsOutputs(err):
		err = &outputsError{conceal.From(ctx).Error(err)}
	default:
		err = conceal.From(ctx).Error(err)
	}
	if err != nil {
		res.Outputs = nil
	}
	return res, err
}

// sortAffected puts a list into its order: by id, then by scope (S-16).
func sortAffected(list []Affected) {
	slices.SortFunc(list, func(a, b Affected) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.scopeKey(), b.scopeKey()))
	})
}

func (a Affected) scopeKey() string {
	if a.Scope == nil {
		return ""
	}
	return a.Scope.Key()
}

// affected is the node as results have it.
func (n *node) affected() Affected {
	a := n.known()
	h := n.row.handle
	a.Identifiers = h.Ref.Identifiers
	if n.res.Extension != nil {
		a.Identity = &Identity{ConfigID: h.Ref.ConfigID, UID: h.Ref.UID}
		a.Scope = answeredScope(h.Scope)
	}
	for _, m := range n.requires() {
		if m.made {
			a.DependsOn = append(a.DependsOn, m.known().Key())
		}
	}
	slices.Sort(a.DependsOn)
	a.DependsOn = slices.Compact(a.DependsOn)
	return a
}

// known is planned with the id in the graph that the resource has by now, which
// of some extensions is known only when it is made.
func (n *node) known() Affected {
	a := n.planned()
	if n.row == nil {
		return a
	}
	if a.Output = n.row.handle.Ref.ID.String(); a.Output == "" {
		a.Output = n.row.out.ID.String()
	}
	return a
}

// planned is what is known of a resource once it has a name.
func (n *node) planned() Affected {
	a := Affected{ID: n.res.ResourceID, Type: n.res.Type, APIVersion: n.res.APIVersion, Symbol: n.name()}
	if x := n.res.Extension; x != nil {
		a.ID, a.Extension, a.Version = n.id.String(), x.Provider, x.Version
		if n.place != nil {
			scope, config := n.place.kept()
			a.Scope = answeredScope(scope)
			if len(config) > 0 {
				a.Config = config
			}
		}
		a.Output = n.ref.ID.String()
		a.Identifiers = n.ref.Identifiers
	}
	return a
}

// requires is needed, and what the scope is in where this run has made that
// before (S-18): the inner goes before its owner. The run's lock is held, or the
// run has ended.
func (n *node) requires() []*node {
	list := n.needed()
	if n.place == nil || n.place.scope.ID == "" {
		return list
	}
	if owner := n.f.r.byID[strings.ToLower(n.place.scope.ID)]; owner != nil && owner != n && owner.made && !slices.Contains(list, owner) {
		list = append(list, owner)
	}
	return list
}

// identifiersOf are the identifiers that an id says.
func identifiersOf(id template.ExtensionID) json.RawMessage {
	if strings.EqualFold(id.Provider, providerKubernetes) {
		meta := map[string]string{"name": id.Get(template.KeyName)}
		if ns := id.Get(template.KeyNamespace); ns != "" {
			meta["namespace"] = ns
		}
		return mustJSON(map[string]any{"metadata": meta})
	}
	whole := map[string]any{}
	for _, p := range id.Parts {
		path, ok := strings.CutPrefix(p.Key, "properties.")
		if !ok {
			continue
		}
		at := whole
		names := strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			next, ok := at[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[name] = next
			}
			at = next
		}
		at[names[len(names)-1]] = p.Value
	}
	return mustJSON(whole)
}
