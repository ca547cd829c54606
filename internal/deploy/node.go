package deploy

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// node is one resource of a plan on its way.
type node struct {
	f     *frame
	res   *template.Resource
	at    int
	needs []int // nodes of the frame

	binding, reading sync.Mutex
	// place, id and ref say what an extension's resource is, once that is known.
	bound bool
	place *place
	id    template.ExtensionID
	ref   extension.Ref
	// preview is what a target says that it would make, nil where none was asked,
	// and about what it says of that; unsupported is why it cannot say.
	preview     map[string]any
	about       *extension.About
	unsupported error
	// row is what the journal has of it, nil for what is only read.
	row *row
	// child is the frame of a nested deployment.
	child *frame

	// These are guarded by the run.
	done   bool
	state  map[string]any
	absent error
	made   bool // by this run or an attempt before

	err    error
	notRun bool
}

// makes reports whether the node makes a resource of its own.
func (n *node) makes() bool { return !n.res.Existing && !n.res.Deployment }

// name is the node's symbol with the path of the nested deployment.
func (n *node) name() string {
	if n.f.path == "" {
		return n.res.Symbol
	}
	return n.f.path + "/" + n.res.Symbol
}

// title is the name with the type, for people.
func (n *node) title() string { return fmt.Sprintf("%s (%s)", n.name(), n.res.Type) }

func (n *node) event(operation, state, text string) Event {
	e := Event{Deployment: n.f.path, Symbol: n.res.Symbol, Type: n.res.Type, Operation: operation, State: state, Text: text}
	switch {
	case n.res.Extension == nil:
		e.ID = n.res.ResourceID
	case n.bound:
		e.ID = n.id.String()
	}
	return e
}

// do brings the node to its end.
func (n *node) do(ctx context.Context) (err error) {
	r := n.f.r
	if n.res.Existing {
		return nil // read when something asks for it
	}
	begun := r.e.o.Now()
	text := "making " + n.title()
	work := n.makeResource
	if n.res.Deployment {
		text, work = "deploying "+n.title(), n.deploy
	}
	if n.res.Deployment && r.q.Begin != nil && !n.res.ID.IsZero() {
		err = r.q.Begin(ctx, n.res.ID)
	}
	if err != nil {
		text = "" // it does not begin
	} else if n.row != nil && n.row.taken(r) {
		text = "" // made in an attempt before: nothing is done
	} else {
		r.tell(n.event("Create", "Running", text))
	}
	if err == nil {
		err = work(ctx)
	}
	if err == errWaiting {
		return err
	}
	if err != errBelow {
		err = conceal.From(ctx).Error(err) // a target may quote what it was given
	}
	end := n.event("Create", "Succeeded", "")
	end.Duration = r.e.o.Now().Sub(begun)
	switch {
	case err != nil && ctx.Err() != nil:
		end.State = "Canceled"
	case err != nil:
		end.State = "Failed"
		end.Error = core.AsError(err)
		if err == errBelow {
			end.Error = core.Errorf(CodeFailed, "a resource of %s failed", n.name())
		}
	}
	r.tell(end)
	if err == nil {
		r.mu.Lock()
		n.done = true
		r.mu.Unlock()
	}
	return err
}

// makeResource makes a resource, of the control plane or of an extension.
func (n *node) makeResource(ctx context.Context) error {
	r := n.f.r
	if err := r.enter(ctx); err != nil {
		return err
	}
	slot := true
	leave := func() {
		if slot {
			slot = false
			r.leave()
		}
	}
	defer leave()
	if n.res.Extension != nil {
		if err := n.bind(ctx); err != nil {
			return err
		}
	}
	if n.row == nil {
		if err := n.planLate(); err != nil {
			return err
		}
	}
	r.mu.Lock()
	n.row.out.DependsOn = outputsOf(n.requires())
	before := n.row.handle
	taken := n.row.taken(r)
	n.made = n.made || taken && n.row.out.State == core.OutputMade
	r.mu.Unlock()
	if before.Error != nil && before.Run == r.q.Run && r.q.Run != "" {
		return before.Error // as an attempt before found; it is said once
	}
	if taken {
		return nil
	}
	options, err := n.f.plan.Options(n.res)
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		if n.res.Extension == nil {
			err = n.put(ctx, options, leave)
		} else {
			err = n.apply(ctx, options, leave)
		}
		if err == nil || ctx.Err() != nil || err == errWaiting || attempt >= options.RetryCount || !isOneOf(err, options.RetryOn) {
			break
		}
		r.tell(n.event("Create", "Running", fmt.Sprintf("trying %s again: %s", n.title(), core.CodeOf(err))))
		r.mu.Lock()
		n.row.handle.Operation = ""
		r.mu.Unlock()
		if err := r.e.o.Pause(ctx, pauseAfter(attempt)); err != nil {
			return err
		}
	}
	if err == nil && options.WaitUntil {
		n.record()
		err = n.waitUntil(ctx, options)
	}
	if err != errWaiting && ctx.Err() == nil {
		// Only now it is done, or has failed for good.
		r.mu.Lock()
		n.row.handle.Done, n.row.handle.Error = err == nil, nil
		if err != nil {
			n.row.handle.Error = core.AsError(conceal.From(ctx).Error(err))
		}
		r.mu.Unlock()
	}
	n.record()
	return err
}

// record keeps how far the resource came.
func (n *node) record() {
	n.f.r.mu.Lock()
	out := n.row.output()
	n.f.r.mu.Unlock()
	n.f.r.rec.put(out)
}

// isOneOf reports whether an error, or what stands in its details, has one of
// the codes.
func isOneOf(err error, codes []string) bool {
	e := core.AsError(err)
	if slices.ContainsFunc(codes, func(c string) bool { return strings.EqualFold(c, string(e.Code)) }) {
		return true
	}
	return slices.ContainsFunc(e.Details, func(d core.Error) bool { return isOneOf(&d, codes) })
}

// planLate records a resource whose id needed a running deployment, before it
// is made.
func (n *node) planLate() error {
	if err := n.plan(); err != nil {
		return err
	}
	return n.f.r.rec.commit([]core.Output{n.row.output()})
}

// plan makes the node's row.
func (n *node) plan() error {
	r := n.f.r
	h := Handle{Ref: n.ref}
	id := n.ref.ID
	if n.res.Extension == nil {
		if id = n.res.ID; id.IsZero() {
			return n.foreign()
		}
		h.Ref = extension.Ref{ID: id, Type: n.res.Type, APIVersion: n.res.APIVersion, Owner: r.q.Owner}
	} else {
		h.Scope, _ = n.place.kept()
		h.ID = n.id.String()
		if id.IsZero() { // its target knows only when it is made
			id = extension.ResourceID(h.Scope.Extension, answeredScope(h.Scope).Key(), n.res.Type, mustJSON(map[string]string{"id": h.ID, "at": n.name()}))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n.row = r.planRow(id, n.name(), h, outputsOf(n.requires()))
	if n.res.Extension == nil {
		r.byID[strings.ToLower(n.res.ResourceID)] = n
	}
	return r.claim(n.row.out.ID, n)
}

// foreign refuses what no plane of ours holds.
func (n *node) foreign() error {
	at := n.res.ResourceID
	if at == "" {
		at = n.res.At + " " + n.res.Type
	}
	return n.res.Errorf("%s (%s): this control plane holds no such resource: deploy into a resource group of a plane of Radial, or use an import", n.res.Symbol, strings.TrimSpace(at))
}

func outputsOf(nodes []*node) []core.ID {
	var ids []core.ID
	for _, n := range nodes {
		if n.row != nil {
			ids = append(ids, n.row.out.ID)
		}
	}
	return ids
}

// bind finds out what an extension's resource is: its target and its id. What
// is known before the deployment is bound then, the rest when its turn comes.
func (n *node) bind(ctx context.Context) error {
	n.binding.Lock()
	defer n.binding.Unlock()
	if n.bound {
		return nil
	}
	place, err := n.f.placeOf(ctx, n.res.Extension)
	if err != nil {
		return err
	}
	var props map[string]any
	var id template.ExtensionID
	err = n.f.eval(ctx, func(rt template.Runtime) (err error) {
		if id, _, err = n.f.plan.ExtensionIDIn(n.res, rt, place.namespace); err == nil {
			props, err = n.f.plan.Properties(n.res, rt)
		}
		return err
	})
	if err != nil {
		return err
	}
	if n.res.Existing && !strings.EqualFold(id.Provider, providerKubernetes) {
		// What it would become means nothing: what the template says of a
		// resource that is only read are its identifiers.
		n.place, n.id, n.bound = place, id, true
		n.ref = extension.Ref{Type: n.res.Type, APIVersion: n.res.APIVersion, Identifiers: mustJSON(props)}
		n.ref.ID = extension.ResourceID(id.Provider, place.configID, n.res.Type, n.ref.Identifiers)
		if c, ok := place.target.(extension.ControlPlane); ok {
			n.ref.ID, _, err = c.Address(extension.Resource{Type: n.res.Type, Properties: props})
		}
		return err
	}
	return n.bindTo(ctx, place, id, props, nil, false)
}

// bindTo names the resource at its target, and with preview asks it what it
// would make. unknown are what of its properties is not known.
func (n *node) bindTo(ctx context.Context, p *place, id template.ExtensionID, props map[string]any, unknown []string, preview bool) error {
	if !preview && len(unknown) == 0 && strings.EqualFold(p.scope.Extension, providerKubernetes) {
		unknown = []string{"/"} // only its name counts, which needs no call
	}
	s, err := p.target.Preview(ctx, extension.Resource{
		Type: n.res.Type, APIVersion: n.res.APIVersion, Properties: props, Unevaluated: unknown, Owner: n.f.r.q.Owner, Existing: n.res.Existing,
	})
	p.hide(s.Secret)
	switch {
	case core.IsCode(err, extension.CodePreviewNotSupported):
		s = extension.State{Ref: extension.Ref{Type: n.res.Type, APIVersion: n.res.APIVersion, Owner: n.f.r.q.Owner}}
		n.unsupported = err
		if len(unknown) > 0 {
			return nil // when its turn comes, all is known: it is asked again
		}
	case err != nil:
		return err
	case len(unknown) == 0:
		n.preview, n.about = s.Properties, s.About
	}
	n.place, n.id, n.ref, n.bound = p, id, s.Ref, true
	if n.ref.ConfigID == "" {
		n.ref.ConfigID = p.configID
	}
	if len(n.ref.Identifiers) == 0 {
		n.ref.Identifiers = identifiersOf(id)
	}
	return nil
}

// placeOf is where an import's resources go. A target that could not be reached
// before the start, because what it is in was not made, is resolved now.
func (f *frame) placeOf(ctx context.Context, x *template.Extension) (*place, error) {
	at := f.places[x]
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.p != nil && at.p.target != nil {
		return at.p, nil
	}
	var config map[string]any
	err := f.eval(ctx, func(rt template.Runtime) (err error) {
		config, err = f.plan.Configuration(x, rt)
		return err
	})
	if err != nil {
		return nil, err
	}
	p, err := readPlace(&f.r.q, x, config)
	if err != nil {
		return nil, err
	}
	if err := f.r.targets.resolve(ctx, p); err != nil {
		return nil, ofImport(ctx, x, err)
	}
	at.p = p
	return p, nil
}

// ofImport says whose target could not be reached, and keeps what it was.
func ofImport(ctx context.Context, x *template.Extension, err error) error {
	if ctx.Err() != nil {
		return err
	}
	e := core.AsError(err)
	return core.Errorf(e.Code, "import %q: %w", x.Alias, err).WithTarget(x.Alias).WithDetails(e.Details...)
}

// apply makes an extension's resource.
func (n *node) apply(ctx context.Context, o template.ResourceOptions, leave func()) error {
	r := n.f.r
	if n.res.Patch {
		return n.res.Errorf("%s: PATCH is for resources of the control plane; one of the import %q is always merged by its fields", n.res.Symbol, n.res.Extension.Alias)
	}
	if o.OnlyIfNotExists {
		s, err := n.place.target.Get(ctx, n.reference())
		if err == nil {
			n.keep(s.Properties, false)
			if r.isOurs(n, s) {
				n.settle(s.Ref)
			}
			r.warn("%s exists and was left as it is", n.title())
			return nil
		}
		if !core.IsCode(err, core.CodeNotFound) {
			return err
		}
	}
	var props map[string]any
	err := n.f.eval(ctx, func(rt template.Runtime) (err error) {
		props, err = n.f.plan.Properties(n.res, rt)
		return err
	})
	if err != nil {
		return err
	}
	concealSecret(ctx, n.res.Type, props)
	res := extension.Resource{Type: n.res.Type, APIVersion: n.res.APIVersion, Properties: props, Owner: r.q.Owner, UID: n.reference().UID}
	if c, ok := n.place.target.(extension.ControlPlane); ok {
		return n.putImported(ctx, c, res, leave)
	}
	s, err := n.place.target.Apply(extension.WithSlot(ctx, r.leave, r.enter), res)
	n.place.hide(s.Secret)
	if err == nil || s.Ref.UID != "" {
		n.settle(s.Ref)
	}
	if err != nil {
		return err
	}
	n.keep(s.Properties, false)
	return nil
}

// isOurs reports whether a resource that exists was made by this owner, or by
// this run in an attempt before.
func (r *run) isOurs(n *node, s extension.State) bool {
	r.mu.Lock()
	uid, state := n.row.handle.Ref.UID, n.row.out.State
	r.mu.Unlock()
	if state == core.OutputMade && uid != "" && uid == s.Ref.UID {
		return true
	}
	if r.q.Owner.IsZero() {
		return false
	}
	meta, _ := s.Properties["metadata"].(map[string]any)
	notes, _ := meta["annotations"].(map[string]any)
	stamp, _ := notes[ownerAnnotation].(string)
	return strings.EqualFold(stamp, r.q.Owner.String())
}

// ownerAnnotation is where objects of Kubernetes carry their owner's id.
const ownerAnnotation = radapp.AnnotationOwner

// settle notes the very object that was made.
func (n *node) settle(ref extension.Ref) {
	r := n.f.r
	r.mu.Lock()
	defer r.mu.Unlock()
	n.made = true
	if n.place != nil {
		if ref.ConfigID == "" {
			ref.ConfigID = n.place.configID
		}
		n.row.handle.Scope, _ = n.place.kept()
	}
	if ref.Owner.IsZero() {
		ref.Owner = r.q.Owner
	}
	n.row.handle.Ref = ref
	n.row.out.State = core.OutputMade
}

// concealSecret registers what a Kubernetes Secret is about to hold: a template
// may have made it up, so that nobody else knows that it is one.
func concealSecret(ctx context.Context, kind string, props map[string]any) {
	if !strings.EqualFold(kind, "core/Secret") {
		return
	}
	conceal.Add(ctx, props["stringData"])
	data, _ := props["data"].(map[string]any)
	for _, v := range data {
		conceal.Add(ctx, v)
		if text, ok := v.(string); ok {
			if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
				conceal.Add(ctx, string(plain))
			}
		}
	}
}

// maxWait bounds waitUntil where the template does not.
const maxWait = 30 * time.Minute

// waitUntil looks at the live resource until the template's lambda is content.
func (n *node) waitUntil(ctx context.Context, o template.ResourceOptions) error {
	r := n.f.r
	if o.MaxWait == 0 {
		o.MaxWait = maxWait
	}
	begun := r.e.o.Now()
	for attempt := 0; ; attempt++ {
		live, err := n.live(ctx)
		if err != nil {
			return err
		}
		ready := false
		err = n.f.eval(ctx, func(rt template.Runtime) (err error) {
			ready, err = n.f.plan.Ready(n.res, o, live, rt)
			return err
		})
		if err != nil {
			return err
		}
		if ready {
			n.keep(live, false)
			return nil
		}
		if r.e.o.Now().Sub(begun) >= o.MaxWait {
			return core.Errorf(extension.CodeNotReady, "what it waits for (waitUntil) did not come within %s", o.MaxWait)
		}
		if err := r.e.o.Pause(ctx, min(200*time.Millisecond<<min(attempt, 5), 5*time.Second)); err != nil {
			return err
		}
	}
}
