package deploy

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// prepare reaches the targets that are known, names every resource that can be
// named, and records all of them in one commit: nothing is made before (D-31).
func (f *frame) prepare(ctx context.Context) error {
	for _, n := range f.nodes {
		for _, dep := range n.res.DependsOn {
			n.needs = append(n.needs, f.byResource[dep].at)
		}
		if err := n.possible(); err != nil {
			return err
		}
	}
	if err := f.reach(ctx); err != nil {
		return err
	}
	if err := f.nameAll(ctx); err != nil {
		return err
	}
	if slices.ContainsFunc(f.nodes, func(n *node) bool { return n.err != nil }) {
		return errBelow
	}
	var planned []*node
	for _, n := range f.nodes {
		if !n.makes() || n.res.Extension != nil && !n.bound {
			continue
		}
		if err := n.plan(); err != nil {
			return err
		}
		planned = append(planned, n)
	}
	if len(planned) == 0 {
		return nil
	}
	outs := make([]core.Output, len(planned))
	f.r.mu.Lock()
	for i, n := range planned {
		// Again, now that the rows of those after it are known too.
		n.row.out.DependsOn = outputsOf(n.requires())
		outs[i] = n.row.output()
	}
	f.r.mu.Unlock()
	return f.r.rec.commit(outs)
}

// nameAll binds the nodes that can be named, in parallel. One of a type that its
// target does not serve is asked for again after all others, which may bring it;
// when it needs something that is made first, that may be what brings it.
func (f *frame) nameAll(ctx context.Context) error {
	name := func(of func(n *node) bool) error {
		runGraph(ctx, make([][]int, len(f.nodes)), f.r.parallel(), func(ctx context.Context, i int) error {
			n := f.nodes[i]
			if !of(n) || n.res.Uncertain {
				return nil
			}
			if err := f.r.enter(ctx); err != nil {
				return err
			}
			defer f.r.leave()
			n.err = n.nameBefore(ctx)
			return nil
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	if err := name(func(n *node) bool { return n.err == nil }); err != nil {
		return err
	}
	if err := name(func(n *node) bool { return errors.Is(n.err, extension.ErrNotServed) }); err != nil {
		return err
	}
	for _, n := range f.nodes {
		if errors.Is(n.err, extension.ErrNotServed) && !n.onlyExisting() {
			n.err = nil
		}
		n.err = conceal.From(ctx).Error(n.err)
	}
	return nil
}

// possible refuses at once what this engine has nothing to make with.
func (n *node) possible() error {
	switch {
	case n.res.Extension != nil || n.res.Deployment && !n.res.Existing || n.res.Existing:
		return nil
	case n.f.r.api == nil:
		return n.res.Errorf("%v", noResources(n.title()))
	case n.res.ID.IsZero():
		return n.foreign()
	}
	return nil
}

// reach resolves the targets of the imports whose configuration is known, in
// parallel. One that is in what this run makes comes when it is made.
func (f *frame) reach(ctx context.Context) error {
	users := map[*template.Extension][]*node{}
	for _, n := range f.nodes {
		if x := n.res.Extension; x != nil {
			users[x] = append(users[x], n)
		}
	}
	var known []*template.Extension
	for _, x := range f.plan.Extensions {
		if len(users[x]) == 0 || len(x.Unknown) > 0 {
			continue
		}
		p, err := readPlace(&f.r.q, x, x.Config)
		if err != nil {
			return err
		}
		f.places[x].p = p
		if !f.owned(p.scope, users[x]) {
			known = append(known, x)
		}
	}
	errs, _ := runGraph(ctx, make([][]int, len(known)), f.r.parallel(), func(ctx context.Context, i int) error {
		x := known[i]
		p := f.places[x].p
		err := f.r.targets.resolve(ctx, p)
		if err == nil {
			return nil
		}
		if p.mayCome(err) && !slices.ContainsFunc(users[x], func(n *node) bool { return n.onlyExisting() }) {
			return nil // what they depend on may make it: asked again then
		}
		return ofImport(ctx, x, err)
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (r *run) parallel() int { return cap(r.slots) }

// onlyExisting reports whether nothing is made before the node.
func (n *node) onlyExisting() bool {
	for _, i := range n.needs {
		if !n.f.nodes[i].res.Existing {
			return false
		}
	}
	return true
}

// owned reports whether this run makes what a scope is in, and lets those that
// go there wait for it.
func (f *frame) owned(s extension.Scope, users []*node) bool {
	if s.ID == "" {
		return false
	}
	owned := false
	for _, owner := range f.nodes {
		if !owner.makes() || !strings.EqualFold(owner.res.ResourceID, s.ID) {
			continue
		}
		owned = true
		for _, n := range users {
			if n != owner && !slices.Contains(n.needs, owner.at) && !f.reaches(owner, n) {
				n.needs = append(n.needs, owner.at)
			}
		}
	}
	for in := f.in; in != nil && !owned; in = in.f.in {
		for _, owner := range in.f.nodes {
			owned = owned || owner.makes() && strings.EqualFold(owner.res.ResourceID, s.ID)
		}
	}
	return owned
}

// reaches reports whether from needs to, directly or not.
func (f *frame) reaches(from, to *node) bool {
	seen := map[int]bool{}
	var visit func(i int) bool
	visit = func(i int) bool {
		if i == to.at {
			return true
		}
		if seen[i] {
			return false
		}
		seen[i] = true
		return slices.ContainsFunc(f.nodes[i].needs, visit)
	}
	return visit(from.at)
}

// nameBefore binds what can be named before the deployment runs.
func (n *node) nameBefore(ctx context.Context) error {
	switch {
	case n.res.Existing, n.res.Deployment:
		return nil
	case n.res.Extension == nil:
		if !n.f.r.previews() {
			return nil
		}
		body, unknown, err := n.f.plan.KnownBody(n.res)
		if err != nil || len(unknown) > 0 || n.res.Patch {
			return err
		}
		n.preview, err = n.f.r.api.Preview(ctx, n.res.ID, n.res.APIVersion, body)
		return err
	}
	x := n.res.Extension
	p := n.f.places[x].p
	n.place = p
	if p == nil {
		return nil
	}
	id, known, props, unknown, err := n.f.plan.KnownExtension(n.res, p.namespace)
	if err != nil && p.target == nil {
		return nil // its scope may know the namespace, once it is there
	}
	if err != nil || !known {
		return err
	}
	n.id = id
	if p.target == nil {
		return nil
	}
	if len(unknown) == 0 {
		concealSecret(ctx, n.res.Type, props)
	}
	return n.bindTo(ctx, p, id, props, unknown, n.f.r.previews())
}

// previews reports whether targets are asked by dry runs first. They were, when
// an attempt of this run has recorded its plan.
func (r *run) previews() bool { return r.q.Preview && !r.resumed }
