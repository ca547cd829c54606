package deploy

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// Kinds of a [Change].
const (
	ChangeCreate = "Create"
	ChangeDelete = "Delete"
	ChangeModify = "Modify"
	ChangeNone   = "NoChange"
	// ChangeIgnore is what the deployment reads or leaves as it is.
	ChangeIgnore = "Ignore"
	// ChangeDeploy is what will be written, and how is known only then.
	ChangeDeploy      = "Deploy"
	ChangeUnsupported = "Unsupported"
)

// WhatIf answers what a deployment would do (S-46), from the live state of every
// target and of the control plane. It touches nothing: targets are asked by dry
// runs. What is in an owner that does not exist yet is a Create inside that owner
// (S-19), and no error. A fault that the deployment would find before it made
// anything is an error like that of Validate; one that it would find on its way, a
// namespace that nobody makes, is the reason of a Create.
//
// [Request].Previous are what an earlier deployment of the name made: what the
// template does not name any more stays, and is answered as Ignore.
//
// Secrets are left out: of a Kubernetes Secret and of values that come from secure
// parameters, the answer says that they change, not from and to what.
func (e *Engine) WhatIf(ctx context.Context, q Request) ([]Change, error) {
	p, err := e.plan(ctx, q, true)
	if err != nil {
		return nil, err
	}
	previous := q.Previous
	q.Preview, q.Previous = true, nil
	r := e.newRun(q)
	if r.root, err = r.newFrame(nil, p); err != nil {
		return nil, err
	}
	w := &whatIf{r: r, unsupported: map[*node]string{}}
	if err := w.foresee(ctx, r.root); err != nil {
		return nil, err
	}
	if err := r.root.failure(); err != nil {
		return nil, err
	}
	if w.homeless, err = r.homeless(ctx); err != nil {
		return nil, err
	}
	changes, err := w.changes(ctx)
	if err != nil {
		return nil, err
	}
	planned := map[string]bool{}
	for _, c := range changes {
		planned[c.Key()] = true
	}
	for _, a := range JournalAffected(previous) {
		if a.ID != "" && !planned[a.Key()] {
			changes = append(changes, Change{Affected: a, Kind: ChangeIgnore, Reason: "an earlier deployment of this name made it; the template does not name it any more, and it stays"})
		}
	}
	slices.SortStableFunc(changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.scopeKey(), b.scopeKey()), cmp.Compare(a.Symbol, b.Symbol))
	})
	for i := range changes {
		changes[i].hide(ctx)
	}
	return changes, nil
}

// whatIf is one call of WhatIf.
type whatIf struct {
	r *run
	// unsupported says of nodes why nothing can be foreseen of them.
	unsupported map[*node]string
	// homeless says of nodes that their namespace is not there and does not come.
	homeless map[*node]string
}

// foresee surveys a deployment as Validate does, and takes an owner that does not
// exist for one that is still to come.
func (w *whatIf) foresee(ctx context.Context, f *frame) error {
	for _, n := range f.nodes {
		for _, dep := range n.res.DependsOn {
			n.needs = append(n.needs, f.byResource[dep].at)
		}
		switch {
		case n.res.Uncertain:
			w.unsupported[n] = "whether, how often or under which name it is made is known only while it is deployed"
		case n.possible() != nil:
			w.unsupported[n] = n.possible().Error()
		}
	}
	if err := w.reach(ctx, f); err != nil {
		return err
	}
	runGraph(ctx, make([][]int, len(f.nodes)), f.r.parallel(), func(ctx context.Context, i int) error {
		if n := f.nodes[i]; w.unsupported[n] == "" {
			n.err = n.nameBefore(ctx)
		}
		return nil
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, n := range f.nodes {
		switch {
		case n.res.Extension == nil && core.IsCode(n.err, core.CodeInvalidResourceType):
			w.unsupported[n], n.err = n.err.Error(), nil
		case n.err != nil || w.unsupported[n] != "" || n.res.Existing:
		case n.res.Deployment:
			if err := w.nested(ctx, n); err != nil {
				return err
			}
		case n.res.Extension == nil:
			n.err = f.r.claim(n.res.ID, n)
		case n.bound:
			n.err = f.r.claim(n.ref.ID, n)
		}
	}
	return nil
}

// reach resolves the targets that are known.
func (w *whatIf) reach(ctx context.Context, f *frame) error {
	used := map[*template.Extension]bool{}
	for _, n := range f.nodes {
		used[n.res.Extension] = true
	}
	for _, d := range f.plan.Deleted {
		used[d.Extension] = true
	}
	var known []*template.Extension
	for _, x := range f.plan.Extensions {
		if !used[x] || len(x.Unknown) > 0 {
			continue
		}
		p, err := readPlace(&f.r.q, x, x.Config)
		if err != nil {
			return err
		}
		f.places[x].p = p
		known = append(known, x)
	}
	errs, _ := runGraph(ctx, make([][]int, len(known)), f.r.parallel(), func(ctx context.Context, i int) error {
		if err := f.r.targets.resolve(ctx, f.places[known[i]].p); err != nil && !isToCome(err) {
			return ofImport(ctx, known[i], err)
		}
		return nil
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (w *whatIf) nested(ctx context.Context, n *node) error {
	p, err := n.f.plan.Nested(n.res, nil)
	if template.NeedsRuntime(err) {
		w.unsupported[n] = "what the nested deployment makes is known only while it is deployed"
		return nil
	}
	if err != nil {
		n.err = err
		return nil
	}
	if n.child, err = n.f.r.newFrame(n, p); err != nil {
		return err
	}
	return w.foresee(ctx, n.child)
}

// changes compares what was foreseen with what is there.
func (w *whatIf) changes(ctx context.Context) ([]Change, error) {
	var jobs []func(ctx context.Context) (*Change, error)
	var collect func(f *frame)
	collect = func(f *frame) {
		for _, n := range f.nodes {
			jobs = append(jobs, func(ctx context.Context) (*Change, error) { return w.change(ctx, n) })
			if n.child != nil {
				collect(n.child)
			}
		}
		for _, d := range f.plan.Deleted {
			m := &removal{f: f, d: d}
			jobs = append(jobs, func(ctx context.Context) (*Change, error) { return m.foresee(ctx) })
		}
	}
	collect(w.r.root)
	found := make([]*Change, len(jobs))
	errs, _ := runGraph(ctx, make([][]int, len(jobs)), w.r.parallel(), func(ctx context.Context, i int) (err error) {
		found[i], err = jobs[i](ctx)
		return err
	})
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	changes := []Change{}
	for _, c := range found {
		if c != nil {
			changes = append(changes, *c)
		}
	}
	return changes, nil
}

// change is what becomes of one resource; nil for a nested deployment whose
// resources are answered themselves.
func (w *whatIf) change(ctx context.Context, n *node) (*Change, error) {
	c := &Change{Affected: n.planned()}
	if reason := w.unsupported[n]; reason != "" {
		c.Kind, c.Reason = ChangeUnsupported, reason
		return c, nil
	}
	if n.res.Deployment {
		return nil, nil
	}
	if n.res.Existing {
		return w.existing(n, c), nil
	}
	if n.res.Extension == nil {
		return c, w.own(ctx, n, c)
	}
	err := w.extension(ctx, n, c)
	if c.Kind == ChangeCreate {
		c.Reason = w.homeless[n]
	}
	return c, err
}

// existing is a resource that is only read; nil when it has no name yet.
func (w *whatIf) existing(n *node, c *Change) *Change {
	c.Kind, c.Reason = ChangeIgnore, "it is read, never written (existing)"
	if n.res.Extension == nil {
		if c.ID == "" {
			return nil
		}
		return c
	}
	id, known, err := n.f.plan.ExtensionID(n.res, nil)
	if err != nil || !known {
		return nil
	}
	n.id, n.place = id, n.f.places[n.res.Extension].p
	affected := n.planned()
	c.Affected = affected
	return c
}

// own compares a resource of the control plane.
func (w *whatIf) own(ctx context.Context, n *node, c *Change) error {
	live, err := w.r.api.Get(ctx, n.res.ID, n.res.APIVersion)
	missing := core.IsCode(err, core.CodeNotFound)
	if err != nil && !missing {
		return ofNode(n, err)
	}
	options, err := n.f.plan.Options(n.res)
	if err != nil {
		return err
	}
	body, unknown, err := n.f.plan.KnownBody(n.res)
	if err != nil {
		return err
	}
	switch {
	case missing && n.res.Patch:
		c.Kind, c.Reason = ChangeUnsupported, "it is merged into (PATCH) what does not exist"
	case missing:
		c.Kind, c.After = ChangeCreate, ownPart(body)
		if n.preview != nil {
			c.After = ownPart(n.preview)
		}
	case options.OnlyIfNotExists:
		c.Kind, c.Reason = ChangeIgnore, "it exists, and is only made when it does not"
	case n.preview != nil:
		c.compare(ownPart(live), ownPart(n.preview))
	default:
		c.overlay(ownPart(live), ownPart(body), unknown)
	}
	return nil
}

// extension compares a resource of an extension.
func (w *whatIf) extension(ctx context.Context, n *node, c *Change) error {
	if n.id.Provider == "" {
		c.Kind, c.Reason = ChangeUnsupported, "its id is known only while it is deployed"
		return nil
	}
	if n.unsupported != nil {
		c.Kind, c.Reason = ChangeUnsupported, n.unsupported.Error()
		return nil
	}
	props, unknown, err := n.f.plan.Known(n.res)
	if err != nil {
		return err
	}
	ref, at := n.ref, n.place
	if !n.bound {
		if at = n.f.places[n.res.Extension].p; at == nil {
			c.Kind, c.Reason = ChangeUnsupported, "where it goes is known only while it is deployed"
			return nil
		}
		if at.target == nil { // what it is in does not exist
			c.Kind, c.After = ChangeCreate, props
			return nil
		}
		ref = extension.Ref{Type: n.res.Type, APIVersion: n.res.APIVersion, Identifiers: identifiersOf(n.id)}
	}
	options, err := n.f.plan.Options(n.res)
	if err != nil {
		return err
	}
	// Previews of other extensions do not tell whether there is one already.
	if n.preview != nil && n.ref.UID == "" && strings.EqualFold(n.id.Provider, providerKubernetes) {
		c.Kind, c.After = ChangeCreate, clean(n.preview)
		return nil
	}
	s, err := at.target.Get(ctx, ref)
	switch {
	case core.IsCode(err, core.CodeNotFound), core.IsCode(err, core.CodeInvalidTemplate): // the latter: its kind is still to come
		c.Kind, c.After = ChangeCreate, props
		if n.preview != nil {
			c.After = clean(n.preview)
		}
	case err != nil:
		return ofNode(n, err)
	case options.OnlyIfNotExists:
		c.Kind, c.Reason = ChangeIgnore, "it exists, and is only made when it does not"
	case n.preview != nil:
		before, after := clean(s.Properties), clean(n.preview)
		if a := n.about; a != nil {
			for _, pointer := range slices.Concat(a.ReadOnly, a.Unknown, a.Calculated, a.Unevaluated) {
				before, after = lacking(before, pointer), lacking(after, pointer)
			}
		}
		c.compare(before, after)
	default:
		c.overlay(clean(s.Properties), clean(props), unknown)
		if n.unsupported != nil && c.Kind == ChangeNone {
			c.Kind, c.Reason = ChangeDeploy, "the extension cannot say what it would do: "+n.unsupported.Error()
		}
	}
	if c.Identity == nil && s.Ref.UID != "" {
		c.Identity = &Identity{ConfigID: at.configID, UID: s.Ref.UID}
	}
	return nil
}

func ofNode(n *node, err error) error {
	e := core.AsError(err)
	return core.Errorf(e.Code, "resource %s: %w", n.title(), err).WithTarget(n.name()).WithDetails(e.Details...)
}

// foresee is what becomes of an entry of deletedResources.
func (m *removal) foresee(ctx context.Context) (*Change, error) {
	r := m.f.r
	c := &Change{Affected: Affected{ID: m.d.Text(), Type: m.d.Type, APIVersion: m.d.APIVersion}}
	gone := func() (*Change, error) {
		c.Kind, c.Reason = ChangeNone, "it is gone already"
		return c, nil
	}
	if m.d.Extension == nil {
		if r.api == nil {
			return nil, noResources(m.d.Text())
		}
		live, err := r.api.Get(ctx, m.d.Resource, m.d.APIVersion)
		if core.IsCode(err, core.CodeNotFound) {
			return gone()
		}
		if err != nil {
			return nil, err
		}
		c.Before = ownPart(live)
	} else {
		x := m.d.Extension
		ref := m.ref()
		c.Extension, c.Version, c.Identifiers, c.Unverified = x.Provider, x.Version, ref.Identifiers, ref.Unverified
		p := m.f.places[x].p
		if p == nil {
			c.Kind, c.Reason = ChangeUnsupported, "where it is, is known only while it is deployed"
			return c, nil
		}
		c.Scope = p.answered()
		if p.target == nil {
			c.Kind, c.Reason = ChangeNone, "what it was in is gone, and it with that"
			return c, nil
		}
		if p.configID != "" && ref.ConfigID != "" && p.configID != ref.ConfigID {
			return nil, core.Errorf(extension.CodeWrongTarget, "%s: its scope leads to another place (%s) than where it was made (%s): nothing would be deleted", m.d.Text(), p.configID, ref.ConfigID)
		}
		s, err := p.target.Get(ctx, ref)
		if core.IsCode(err, core.CodeNotFound) || core.IsCode(err, core.CodeInvalidTemplate) {
			return gone()
		}
		if err != nil {
			return nil, err
		}
		if ref.UID != "" && s.Ref.UID != ref.UID {
			c.Kind, c.Reason = ChangeIgnore, "another object has its name now; the one that was made is gone"
			return c, nil
		}
		c.Identity = &Identity{ConfigID: p.configID, UID: s.Ref.UID}
		c.Before = clean(s.Properties)
	}
	if c.Kind = ChangeDelete; m.d.Detach {
		c.Kind, c.Reason = ChangeIgnore, "it is let go of, and stays"
	}
	return c, nil
}

// compare sets the kind by what is there and what would be.
func (c *Change) compare(before, after map[string]any) {
	c.Before, c.After = before, after
	if c.Properties = difference("", before, after); len(c.Properties) > 0 {
		c.Kind = ChangeModify
		return
	}
	c.Kind = ChangeNone
}

// overlay compares only what is known of a resource: what the template says laid
// over what is there.
func (c *Change) overlay(live, known map[string]any, unknown []string) {
	after, _ := laid(live, known).(map[string]any)
	c.compare(live, after)
	if len(unknown) == 0 {
		return
	}
	c.Reason = "known only while it is deployed: " + strings.Join(unknown, ", ")
	if c.Kind == ChangeNone {
		c.Kind = ChangeDeploy
	}
}

// laid is over with what only under has.
func laid(under, over any) any {
	a, ok := under.(map[string]any)
	b, both := over.(map[string]any)
	if !ok || !both {
		return over
	}
	out := make(map[string]any, len(a))
	for k, v := range a {
		out[k] = v
	}
	for k, v := range b {
		out[k] = laid(a[k], v)
	}
	return out
}

// ownPart is a resource of the control plane without what only the server writes.
func ownPart(whole map[string]any) map[string]any {
	out := map[string]any{}
	for _, name := range []string{"location", "tags", "properties"} {
		if v, ok := whole[name]; ok && v != nil {
			out[name] = v
		}
	}
	if out["location"] == "global" { // what it is without one
		delete(out, "location")
	}
	if tags, ok := out["tags"].(map[string]any); ok && len(tags) == 0 {
		delete(out, "tags")
	}
	props, ok := out["properties"].(map[string]any)
	if !ok {
		return out
	}
	kept := make(map[string]any, len(props))
	for k, v := range props {
		if k != "provisioningState" && k != "status" {
			kept[k] = v
		}
	}
	if recipe, ok := kept["recipe"].(map[string]any); ok {
		mine := map[string]any{}
		for k, v := range recipe {
			if k != "recipeStatus" && !(k == "name" && v == "default") {
				mine[k] = v
			}
		}
		if kept["recipe"] = mine; len(mine) == 0 {
			delete(kept, "recipe")
		}
	}
	out["properties"] = kept
	return out
}

// clean is an object of a cluster without what only the cluster writes; of other
// extensions nothing of that kind is there.
func clean(object map[string]any) map[string]any {
	out := make(map[string]any, len(object))
	for k, v := range object {
		if k != "status" {
			out[k] = v
		}
	}
	meta, ok := out["metadata"].(map[string]any)
	if !ok {
		return out
	}
	kept := make(map[string]any, len(meta))
	for k, v := range meta {
		switch k {
		case "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink":
			continue
		}
		kept[k] = v
	}
	out["metadata"] = kept
	return out
}

// lacking is an object without the value at a JSON pointer.
func lacking(object map[string]any, pointer string) map[string]any {
	name, rest, deeper := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	v, ok := object[name]
	if !ok {
		return object
	}
	out := maps.Clone(object)
	inner, isObject := v.(map[string]any)
	switch {
	case !deeper:
		delete(out, name)
	case isObject:
		out[name] = lacking(inner, "/"+rest)
	}
	return out
}

// isToCome reports whether an error says that what a scope is in does not exist:
// in a preview it is still to come.
func isToCome(err error) bool {
	return core.IsCode(err, core.CodeNotFound) || core.IsCode(err, extension.CodeScopeGone)
}
