package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// removal is one entry of deletedResources on its way.
type removal struct {
	f   *frame
	d   *template.Deletion
	out Affected
}

func newRemoval(f *frame, d *template.Deletion) *removal {
	m := &removal{f: f, d: d, out: Affected{ID: d.Text(), Type: d.Type, APIVersion: d.APIVersion}}
	if x := d.Extension; x != nil {
		m.out.Extension, m.out.Version = x.Provider, x.Version
		if p, err := readPlace(&f.r.q, x, x.Config); err == nil {
			m.out.Scope = p.answered()
		}
	}
	return m
}

// remove deletes what deletedResources of all deployments of the run name, after
// all that is to be made is made; an entry goes before those that it depends on.
func (r *run) remove(ctx context.Context) error {
	var list []*removal
	index := map[*template.Deletion]int{}
	var collect func(f *frame)
	collect = func(f *frame) {
		for _, d := range f.plan.Deleted {
			index[d] = len(list)
			list = append(list, newRemoval(f, d))
		}
		for _, n := range f.nodes {
			if n.child != nil {
				collect(n.child)
			}
		}
	}
	collect(r.root)
	if len(list) == 0 {
		return nil
	}
	needs := make([][]int, len(list)) // those that go before each
	for i, m := range list {
		for _, d := range m.d.DependsOn {
			needs[index[d]] = append(needs[index[d]], i)
		}
	}
	made := map[string]string{}
	r.root.walk(func(n *node) {
		if n.made {
			made[n.known().Key()] = n.name()
		}
	})
	errs, notRun := runGraph(ctx, needs, r.parallel(), func(ctx context.Context, i int) error {
		return list[i].run(ctx, made)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var details []core.Error
	var causes []error
	waiting := false
	for i, m := range list {
		err := errs[i]
		if slices.Contains(notRun, i) {
			err = core.Errorf(CodeDeleteFailed, "it was left, since what needs it was not deleted")
		}
		if errors.Is(err, errWaiting) {
			waiting = true
			continue
		}
		if err != nil {
			e := *core.AsError(err)
			e.Target = m.d.Text()
			m.out.Error = &e
			if !slices.Contains(notRun, i) {
				e.Message = fmt.Sprintf("%s was not deleted: %s", m.d.Text(), e.Message)
				details = append(details, e)
				causes = append(causes, err)
			}
		}
		if m.out.Unverified && err == nil {
			r.warn("%s was deleted by its name alone: nothing was known that tells it from another of that name", m.d.Text())
		}
		r.deleted = append(r.deleted, m.out)
	}
	sortAffected(r.deleted)
	if waiting {
		return errWaiting
	}
	if len(details) == 0 && len(notRun) > 0 {
		return list[notRun[0]].d.Errorf("entries of deletedResources depend on each other in a circle: %s is one of them", list[notRun[0]].d.Text())
	}
	if len(details) == 0 {
		return nil
	}
	message := details[0].Message
	if len(details) > 1 {
		message = fmt.Sprintf("%d of %d resources were not deleted; the first: %s", len(details), len(list), message)
	}
	return core.Errorf(CodeFailed, "%w", &joined{message, errors.Join(causes...)}).WithDetails(details...)
}

func (m *removal) run(ctx context.Context, made map[string]string) error {
	r := m.f.r
	begun := r.e.o.Now()
	e := Event{Deployment: m.f.path, Type: m.d.Type, ID: m.d.Text(), Operation: "Delete", State: "Running", Text: "deleting " + m.d.Text()}
	if m.d.Detach {
		e.Operation, e.Text = "Detach", "letting go of "+m.d.Text()
	}
	r.tell(e)
	var err error
	if m.d.Extension == nil {
		err = m.own(ctx)
	} else {
		err = m.extension(ctx, made)
	}
	if errors.Is(err, errWaiting) {
		return err
	}
	err = conceal.From(ctx).Error(err)
	e.State, e.Text, e.Duration = "Succeeded", m.out.Note, r.e.o.Now().Sub(begun)
	if err != nil {
		e.State, e.Error = "Failed", core.AsError(err)
		if ctx.Err() != nil {
			e.State = "Canceled"
		}
	}
	r.tell(e)
	return err
}

// own deletes a resource of the control plane.
func (m *removal) own(ctx context.Context) error {
	r := m.f.r
	if r.api == nil {
		return noResources(m.d.Text())
	}
	if m.d.Detach {
		return nil // nothing on it says whose it is
	}
	if err := r.enter(ctx); err != nil {
		return err
	}
	operation := m.begun()
	var err error
	if operation == "" {
		operation, err = r.deleteOwn(ctx, m.d.Resource, m.d.APIVersion)
		if err == nil && operation != "" {
			m.begin(operation)
		}
	}
	r.leave()
	if err != nil || operation == "" {
		return err
	}
	return r.end(ctx, operation)
}

// deleteOwn begins the deletion of a resource of the control plane. One that is
// gone is no error; nor is one whose type is not known, of which nothing can be
// stored, and a version that is not is no reason to keep a resource (D-6).
func (r *run) deleteOwn(ctx context.Context, id core.ID, version string) (operation string, err error) {
	operation, err = r.api.Delete(ctx, id, version)
	if core.IsCode(err, core.CodeInvalidAPIVersion) && version != "" {
		operation, err = r.api.Delete(ctx, id, "")
	}
	if core.IsCode(err, core.CodeNotFound) || core.IsCode(err, core.CodeInvalidResourceType) {
		return "", nil
	}
	return operation, err
}

// begun is the operation that an attempt of this run before began for an entry,
// "" for none: it is waited for, not begun anew, also when it failed.
func (m *removal) begun() string {
	r := m.f.r
	before, ok := r.previous[m.d.Resource.Key()]
	if !ok || r.q.Run == "" {
		return ""
	}
	if h, err := readHandle(before); err == nil && h.Run == r.q.Run {
		return h.Operation
	}
	return ""
}

// begin keeps the operation that deletes an entry.
func (m *removal) begin(operation string) {
	r := m.f.r
	out, ok := r.previous[m.d.Resource.Key()]
	h, err := readHandle(out)
	if !ok || err != nil {
		out = core.Output{ID: m.d.Resource, State: core.OutputMade, Managed: !r.q.Owner.IsZero()}
		h = Handle{Ref: extension.Ref{ID: m.d.Resource, Type: m.d.Type, APIVersion: m.d.APIVersion}}
	}
	h.Run, h.Operation, h.Done, h.Error = r.q.Run, operation, false, nil
	w := &row{out: out, handle: h}
	r.rec.put(w.output())
}

// end waits for an operation of the control plane that deletes.
func (r *run) end(ctx context.Context, operation string) error {
	op, err := r.api.Operation(ctx, operation)
	if err == nil && !op.State.Terminal() {
		if r.q.Park {
			return errWaiting
		}
		op, err = r.api.Await(ctx, operation)
	}
	switch {
	case core.IsCode(err, core.CodeNotFound):
		return nil // gone with the resource
	case err != nil:
		return err
	}
	return op.Failure("its deletion")
}

// extension deletes an extension's resource at its target.
func (m *removal) extension(ctx context.Context, made map[string]string) error {
	r, x := m.f.r, m.d.Extension
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer r.leave()
	ref := m.ref()
	m.out.Identifiers = ref.Identifiers
	if ref.UID != "" || ref.ConfigID != "" {
		m.out.Identity = &Identity{ConfigID: ref.ConfigID, UID: ref.UID}
	}
	m.out.Unverified = ref.Unverified
	p, err := m.f.placeOf(ctx, x)
	if core.IsCode(err, extension.CodeScopeGone) {
		m.gone()
		return nil
	}
	if err != nil {
		return err
	}
	m.out.Scope = p.answered()
	if _, config := p.kept(); len(config) > 0 {
		m.out.Config = config
	}
	if !strings.EqualFold(x.Provider, providerKubernetes) && !extension.IsControlPlane(p.scope) && len(ref.Identifiers) > 0 {
		m.out.Output = extension.ResourceID(x.Provider, ref.ConfigID, m.d.Type, ref.Identifiers).String()
	}
	if name := made[m.out.Key()]; name != "" {
		return m.d.Errorf("%s is deployed too, by %s: a resource is deployed or deleted, not both", m.d.Text(), name)
	}
	if strings.EqualFold(x.Provider, providerKubernetes) {
		if text, err := Translate(m.d.Text(), p.scope.Cluster); err == nil {
			m.out.Output = text
		}
	}
	err = erase(ctx, p.target, p.configID, ref, m.d.Detach)
	if core.IsCode(err, extension.CodeScopeGone) {
		m.gone()
		return nil
	}
	return err
}

// gone notes that what the resource was in is gone, and it with that (S-31).
func (m *removal) gone() {
	m.out.Unverified = false
	m.out.Note = "what it was in is gone, and it went with that"
}

// ref is the reference of an entry.
func (m *removal) ref() extension.Ref {
	text := func(name string) string {
		for k, v := range m.d.Identity {
			if s, ok := v.(string); ok && strings.EqualFold(k, name) {
				return s
			}
		}
		return ""
	}
	ref := extension.Ref{Type: m.d.Type, APIVersion: m.d.APIVersion, Identifiers: identifiersOf(m.d.ID), UID: text("uid"), ConfigID: text("configId")}
	if len(m.d.Identifiers) > 0 {
		ref.Identifiers = mustJSON(m.d.Identifiers)
	}
	if id, err := core.ParseID(text("owner")); err == nil {
		ref.Owner = id
	} else if len(m.d.Identity) > 0 {
		ref.Owner = m.f.r.q.Owner
	}
	ref.Unverified = ref.UID == "" && ref.Owner.IsZero()
	return ref
}

// erase deletes a resource at its target, or lets go of it, unless the target is
// not the place where it was made (S-32).
func erase(ctx context.Context, t extension.Target, configID string, ref extension.Ref, detach bool) error {
	if configID != "" && ref.ConfigID != "" && configID != ref.ConfigID {
		return core.Errorf(extension.CodeWrongTarget, "its scope leads to another place (%s) than where it was made (%s): nothing was deleted; bring the former back, or take the resource out of the record", configID, ref.ConfigID)
	}
	if detach {
		d, ok := t.(extension.Releaser)
		if !ok {
			return nil // it marks nothing
		}
		return d.Release(ctx, ref)
	}
	return t.Delete(ctx, ref)
}

// DeleteRequest asks for the end of what an inventory names.
type DeleteRequest struct {
	// Outputs go dependants first, and leave the inventory as they are gone.
	Outputs []core.Output
	Record  Record
	// Resources are the control plane's own, as in [Request].
	Resources ResourceAPI
	// Secrets and Park are as in [Request].
	Secrets map[string]extension.Secrets
	Park    bool
	// Parallel bounds the resources in flight; 0 is the engine's.
	Parallel int
}

// Delete deletes outputs, dependants first, and drops each from the inventory
// when it is gone. An output that cannot be deleted keeps what it depends on;
// the rest goes. A resource that is missing already counts as deleted. waiting
// says that operations of the control plane are left to wait for: it is called
// again when they have ended.
func (e *Engine) Delete(ctx context.Context, q DeleteRequest) (waiting bool, err error) {
	ctx = begin(ctx)
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := e.newRun(Request{Park: q.Park, Parallel: q.Parallel, Resources: q.Resources, Secrets: q.Secrets})
	r.rec = startRecorder(ctx, q.Record, cancel)
	index := map[string]int{}
	for i, o := range q.Outputs {
		index[o.ID.Key()] = i
	}
	needs := make([][]int, len(q.Outputs)) // the dependants of each
	for i, o := range q.Outputs {
		for _, dep := range o.DependsOn {
			if j, ok := index[dep.Key()]; ok && j != i {
				needs[j] = append(needs[j], i)
			}
		}
	}
	errs, notRun := runGraph(runCtx, needs, r.parallel(), func(ctx context.Context, i int) error {
		if err := r.deleteOutput(ctx, q, q.Outputs[i]); err != nil {
			return err
		}
		r.rec.drop(q.Outputs[i].ID)
		return nil
	})
	if err := r.rec.close(); err != nil {
		return false, err
	}
	var details []core.Error
	var causes []error
	for i, err := range errs {
		switch {
		case errors.Is(err, errWaiting):
			waiting = true
		case err != nil:
			e := *core.AsError(err)
			e.Target = q.Outputs[i].ID.String()
			details = append(details, e)
			causes = append(causes, err)
		}
	}
	switch {
	case ctx.Err() == nil && waiting:
		return true, nil
	case len(details) == 0 && len(notRun) == 0:
		return false, nil
	case len(details) == 0 && ctx.Err() != nil:
		return false, context.Cause(ctx)
	case len(details) == 0:
		return false, core.Errorf(core.CodeInternal, "the recorded outputs depend on each other in a circle: %s is one of them", q.Outputs[notRun[0]].ID)
	}
	message := fmt.Sprintf("output %s was not deleted: %s", details[0].Target, details[0].Message)
	if len(details) > 1 {
		message = fmt.Sprintf("%d of %d outputs were not deleted; the first: %s", len(details), len(q.Outputs), message)
	}
	return false, core.Errorf(CodeDeleteFailed, "%w", &joined{message, errors.Join(causes...)}).WithDetails(details...)
}

func (r *run) deleteOutput(ctx context.Context, q DeleteRequest, o core.Output) error {
	h, err := readHandle(o)
	if err != nil {
		return err
	}
	if h.own() || extension.IsControlPlane(h.Scope) {
		if r.api == nil {
			return noResources(o.ID.String())
		}
		operation, err := r.api.Delete(ctx, h.Ref.ID, h.Ref.APIVersion)
		if core.IsCode(err, core.CodeNotFound) || err == nil && operation == "" {
			return nil
		}
		if err != nil {
			return err
		}
		return r.end(ctx, operation)
	}
	p := &place{scope: h.Scope}
	switch {
	case h.Scope.Type == template.ScopeUserOwned:
		p.secrets = r.q.secretsOf(h.Scope)
	case !strings.EqualFold(h.Scope.Extension, providerKubernetes):
		p.secrets = r.q.secretsFor(h.Scope.Extension)
	}
	err = r.targets.resolve(ctx, p)
	if err == nil {
		err = erase(ctx, p.target, p.configID, h.Ref, false)
	}
	if core.IsCode(err, extension.CodeScopeGone) {
		return nil // what it was in is gone, and it with that
	}
	return err
}
