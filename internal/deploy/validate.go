package deploy

import (
	"context"
	"slices"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// Validate plans a deployment and asks every target that can be asked before,
// by dry runs, without making anything. It names each resource with the id that
// the deployment will report (S-13), as far as that is known; a fault is an error
// like that of a deployment.
func (e *Engine) Validate(ctx context.Context, q Request) (*Validation, error) {
	r, err := e.survey(ctx, q)
	if err != nil {
		return nil, err
	}
	v := &Validation{}
	r.root.walk(func(n *node) {
		switch {
		case n.res.Existing:
		case n.res.Deployment:
			if n.child == nil {
				v.Unknown = append(v.Unknown, n.name())
			}
		case n.res.Extension == nil && n.res.ResourceID == "", n.res.Extension != nil && n.id.Provider == "", n.res.Uncertain:
			v.Unknown = append(v.Unknown, n.name())
		default:
			v.Resources = append(v.Resources, n.planned())
		}
	})
	sortAffected(v.Resources)
	slices.Sort(v.Unknown)
	v.Credentials = r.credentials()
	if err := r.root.failure(); err != nil {
		return v, err
	}
	homeless, err := r.homeless(ctx)
	for n, reason := range homeless {
		v.Warnings = append(v.Warnings, n.title()+": "+reason)
	}
	slices.Sort(v.Warnings)
	return v, err
}

// survey plans a deployment and all nested ones as far as they are known, and
// previews what is known of each resource. The nodes have what came of it: id,
// place and ref where they are known, preview where a target answered, err where
// one refused.
func (e *Engine) survey(ctx context.Context, q Request) (*run, error) {
	ctx = begin(ctx)
	p, err := e.plan(ctx, q, true)
	if err != nil {
		return nil, err
	}
	q.Preview, q.Previous = true, nil
	r := e.newRun(q)
	if r.root, err = r.newFrame(nil, p); err != nil {
		return nil, err
	}
	return r, r.root.survey(ctx)
}

func (f *frame) survey(ctx context.Context) error {
	for _, n := range f.nodes {
		for _, dep := range n.res.DependsOn {
			n.needs = append(n.needs, f.byResource[dep].at)
		}
		if err := n.possible(); err != nil && !n.res.Uncertain {
			n.err = err
		}
	}
	if err := f.reach(ctx); err != nil {
		return err
	}
	if err := f.nameAll(ctx); err != nil {
		return err
	}
	for _, n := range f.nodes {
		switch {
		case n.err != nil || n.res.Existing || n.res.Uncertain:
		case n.res.Deployment:
			if err := n.surveyNested(ctx); err != nil {
				if ctx.Err() != nil {
					return err
				}
				n.err = err
			}
		case n.res.Extension == nil:
			n.err = f.r.claim(n.res.ID, n)
		case n.bound:
			n.err = f.r.claim(n.ref.ID, n)
		}
	}
	return nil
}

// surveyNested surveys a nested deployment of which enough is known.
func (n *node) surveyNested(ctx context.Context) error {
	p, err := n.f.plan.Nested(n.res, nil)
	if template.NeedsRuntime(err) {
		return nil
	}
	if err != nil {
		return err
	}
	child, err := n.f.r.newFrame(n, p)
	if err != nil {
		return err
	}
	n.child = child
	return child.survey(ctx)
}

// credentials are the parameters whose value is the kubeConfig of a scope: what
// is not kept, not even sealed (S-45).
func (r *run) credentials() []string {
	carried := map[string]bool{}
	var collect func(f *frame)
	collect = func(f *frame) {
		for _, x := range f.plan.Extensions {
			if s, err := x.Scope(x.Config); err == nil && s != nil && s.KubeConfig != "" {
				carried[s.KubeConfig] = true
			}
		}
		for _, n := range f.nodes {
			if n.child != nil {
				collect(n.child)
			}
		}
	}
	collect(r.root)
	var names []string
	for name, v := range r.q.Parameters {
		if text, ok := v.(string); ok && carried[text] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// missingOwner reports whether an error says that what a scope is in does not
// exist.
func missingOwner(err error) bool {
	return core.IsCode(err, core.CodeNotFound) || core.IsCode(err, extension.CodeScopeGone)
}

// mayCome reports whether a place that cannot be reached may be made by what its
// resources depend on.
func (p *place) mayCome(err error) bool {
	return missingOwner(err) || p.scope.Type == template.ScopeRadial && core.IsCode(err, core.CodeTarget)
}
