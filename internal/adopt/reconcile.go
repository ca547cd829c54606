package adopt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/connection"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
)

const (
	// patience is how long a Deployment may be unready before that is written
	// down and told: what is over sooner costs no write (K-28).
	patience = time.Second
	// stale is the pause after a write that met a newer object: the cache has
	// it by then.
	stale = 10 * time.Millisecond
	// again is when to look for ReplicaSets that were still to come.
	again = 10 * time.Second
)

// Reconcile brings one Deployment forward: adopted, handed back or let go.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	d := new(appsv1.Deployment)
	if err := r.Client.Get(ctx, req.NamespacedName, d); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, err
	}
	if radapp.Rendered(d.Annotations) { // whatever else its annotations ask for
		r.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	s := r.session(d)
	var wait time.Duration
	var err error
	switch in := ParseIntent(d.Annotations); {
	case d.DeletionTimestamp != nil:
		wait, err = r.letGo(ctx, d, s, in)
	case in.Adopted:
		wait, err = r.adopt(ctx, d, s, in)
	case !ours(d) && s.mem.Resource == "" && s.mem.Operation == nil:
		r.forget(req.NamespacedName)
	default:
		wait, err = r.handBack(ctx, d, s, in)
	}
	switch {
	case err == nil:
		return reconcile.Result{RequeueAfter: wait}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: stale}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil // gone meanwhile
	}
	return reconcile.Result{}, err
}

// adopt pairs the Deployment and brings its template to hold the data of its
// connections. What it waits for comes as a change of the object, of a Recipe
// or of the control plane; the duration it answers is a deadline, not a poll.
func (r *Reconciler) adopt(ctx context.Context, d *appsv1.Deployment, s *session, in Intent) (time.Duration, error) {
	key := kube.ObjectKeyFromObject(d)
	ref := r.reference(d, in)
	recipes, err := r.recipes(ctx, d, in)
	if err != nil {
		return 0, err
	}
	r.track(key, s, ref, recipes)

	if !slices.Contains(d.Finalizers, Finalizer) {
		// Before the first PUT, so that no deletion in between leaks it. What the
		// template holds of ours stays in the set.
		if d, err = r.apply(ctx, d, d.Spec.Template.Annotations[AnnotationHash], present(d)); err != nil {
			return 0, err
		}
	}
	rep := report{}
	rep.container(r.pair(ctx, d, s, in, ref, recipes))
	data := r.data(ctx, d, s, in, recipes)
	rep.data(data)
	var inj Injection
	if data.complete {
		inj = Plan(d.Name, in, &d.Spec.Template, data.variables, data.hash)
		rep.injection(inj)
	}
	for _, f := range in.Faults {
		rep.warn(ConditionAnnotation, f.Message)
	}

	waited := r.unreadyFor(s, rep)
	switch {
	case data.complete && !rep.blocked && !(rep.updating && waited < patience):
		var wait time.Duration
		if d, wait, err = r.inject(ctx, d, s, in, inj, data); err != nil {
			return 0, err
		}
		rep.sooner(wait)
	case PauseOf(d) == Free && len(in.Connections) > 0 && !injectedBefore(d.Name, in, &d.Spec.Template):
		if d, err = r.holdLate(ctx, d); err != nil {
			return 0, err
		}
	}
	r.track(key, s, ref, recipes) // in flight may have changed
	return r.conclude(ctx, d, s, in, inj, rep)
}

func (r *Reconciler) reference(d *appsv1.Deployment, in Intent) paired.Reference {
	return paired.Reference{Cluster: r.Cluster, Namespace: d.Namespace, Environment: in.Environment, Application: in.Application}
}

// track says what in the control plane concerns the Deployment, before it is
// asked after.
func (r *Reconciler) track(key types.NamespacedName, s *session, ref paired.Reference, recipes []recipeView) {
	ids := ref.Candidates()
	if group, err := ref.Scope(); err == nil {
		ids = append(ids, containerID(group, key.Name))
	}
	ids = append(ids, pairs(s.mem, core.ID{})...)
	for _, v := range recipes {
		ids = append(ids, v.id)
	}
	r.Waker.Track(object(key), s.mem.Operation != nil || !s.unready.IsZero(), ids...)
}

// inject makes the template hold the injection, for the object it was planned
// for. Secret first, reference second, and what is not referred to any more
// last.
func (r *Reconciler) inject(ctx context.Context, d *appsv1.Deployment, s *session, in Intent, inj Injection, data connectionData) (*appsv1.Deployment, time.Duration, error) {
	before := secretsOf(d.Name, &d.Spec.Template)
	if len(inj.Variables) > 0 {
		if err := r.ensureSecret(ctx, d, inj.Secret, data.variables); err != nil {
			return nil, 0, err
		}
	}
	settled := d.Spec.Paused || d.Status.ObservedGeneration == d.Generation
	if !inj.Holds(d.Name, &d.Spec.Template) {
		late := PauseOf(d) == Free && inj.Hash != "" && !injectedBefore(d.Name, in, &d.Spec.Template)
		var err error
		if d, err = r.bring(ctx, d, inj.Hash, inj.wanted()); err != nil {
			return nil, 0, err
		}
		if late {
			r.eventf(d, corev1.EventTypeWarning, ReasonHeldLate,
				"This Deployment was written while nothing held it (is the admission policy holding.radapp.io installed?): pods may have started without the variables of its connections. They are there now")
		}
		s.swept = false
	}
	if s.swept || len(before) == 0 && inj.Hash == "" {
		return d, 0, nil
	}
	all, err := r.retire(ctx, d, settled, before)
	if err != nil {
		return nil, 0, err
	}
	if s.swept = all; !all {
		return d, again, nil
	}
	return d, 0, nil
}

// holdLate pauses what admission did not (K-25).
func (r *Reconciler) holdLate(ctx context.Context, d *appsv1.Deployment) (*appsv1.Deployment, error) {
	held, err := r.patch(ctx, d, types.MergePatchType, marshal(map[string]any{
		"metadata": map[string]any{"uid": string(d.UID), "resourceVersion": d.ResourceVersion, "annotations": map[string]any{AnnotationHeld: "true"}},
		"spec":     map[string]any{"paused": true},
	}))
	if err == nil {
		r.eventf(held, corev1.EventTypeWarning, ReasonHeldLate,
			"This Deployment was written while nothing held it (is the admission policy holding.radapp.io installed?): pods may have started without the variables of its connections. It is held now until they are there")
	}
	return held, err
}

// conclude releases what may go and writes the status, in one patch where both
// are due.
func (r *Reconciler) conclude(ctx context.Context, d *appsv1.Deployment, s *session, in Intent, inj Injection, rep report) (time.Duration, error) {
	release := false
	if PauseOf(d) == Held && rep.complete && !rep.blocked && !rep.updatingFirst(r.unreadyFor(s, rep)) {
		live := new(appsv1.Deployment)
		if err := r.Reader.Get(ctx, kube.ObjectKeyFromObject(d), live); err != nil {
			return 0, err
		}
		// The facts of this very object decide, whatever the cache said.
		if live.UID != d.UID || ObservedHash(live) != ObservedHash(d) || PauseOf(live) != Held || !inj.Holds(live.Name, &live.Spec.Template) {
			return stale, nil
		}
		d, release = live, true
	}
	userPaused := PauseOf(d) == Users
	unready := r.unreadyFor(s, rep)

	before := ParseStatus(d)
	if rep.reason == ReasonServerUnavailable && PauseOf(d) != Held &&
		before.ready().Status == metav1.ConditionTrue && before.ObservedHash == ObservedHash(d) {
		// Ready stays Ready: what was injected stands, and a server's restart is
		// no reason to write to every Deployment of a cluster.
		return rep.wait, nil
	}
	status := rep.status(before, d, s, userPaused, r.now())
	if !rep.ready() && !release && unready < patience {
		return min(nonzero(rep.wait, patience), patience-unready), nil
	}
	annotations := map[string]any{}
	text := status.Text()
	if d.Annotations[AnnotationStatus] != text {
		annotations[AnnotationStatus] = text
	}
	if release {
		annotations[AnnotationHeld] = nil
	} else if _, stray := d.Annotations[AnnotationHeld]; stray && PauseOf(d) == Free {
		annotations[AnnotationHeld] = nil // a mark that stands for nothing
	}
	if len(annotations) > 0 {
		r.note(s, text)
		var err error
		if d, err = r.patch(ctx, d, types.MergePatchType, annotate(d, annotations, release)); err != nil {
			return 0, err
		}
	}
	r.tell(d, s, status)
	return rep.wait, nil
}

// note remembers the status that is about to be written, so that its own event
// wakes nobody.
func (r *Reconciler) note(s *session, text string) {
	r.mu.Lock()
	s.written = text
	r.mu.Unlock()
}

// unreadyFor answers how long the Deployment has not been Ready for the same
// cause, and keeps count of it.
func (r *Reconciler) unreadyFor(s *session, rep report) time.Duration {
	now := r.now()
	switch {
	case rep.ready():
		s.unready, s.cause = time.Time{}, ""
		return 0
	case s.unready.IsZero(), s.cause != rep.cause():
		s.unready, s.cause = now, rep.cause()
	}
	return now.Sub(s.unready)
}

// pair takes one step towards the container resource (K-27).
func (r *Reconciler) pair(ctx context.Context, d *appsv1.Deployment, s *session, in Intent, ref paired.Reference, recipes []recipeView) pairing {
	var p pairing
	parents, err := paired.FindParents(ctx, r.API, ref)
	if err != nil {
		return r.unanswered(s, p, err)
	}
	p.parents = parents
	goal, ok := r.goal(d, in, parents, recipes, s.mem.Resource != "")
	if !ok {
		p.state = paired.InProgress // the ids of its Recipes come first
		return p
	}
	paired.Intend(goal, &s.mem)
	if !s.asked && s.mem.AppliedHash == "" {
		// After a start: what is there already as wanted, or is on its way, is not
		// PUT again.
		live, _, err := r.API.Get(ctx, goal.ID, goal.APIVersion)
		if err == nil && covers(goal, live) {
			switch op := s.mem.Operation; {
			case op != nil && op.OperationKind == paired.PUT && op.Hash == "":
				op.Hash = goal.Hash()
			case op == nil && client.State(live) == core.StateSucceeded:
				s.mem.AppliedHash = goal.Hash()
			}
		}
		s.asked = err == nil || core.IsCode(err, core.CodeNotFound)
	}
	out, err := r.Runner.Apply(ctx, goal, &s.mem)
	if err == nil && out.State == paired.Done && out.Cleaning {
		out, err = r.Runner.Clean(ctx, string(d.UID), &s.mem)
	}
	if err != nil {
		return r.unanswered(s, p, err)
	}
	s.down, s.attempts = time.Time{}, 0
	p.state, p.wait = out.State, out.RetryAfter
	if out.Err != nil {
		p.reason, p.message = containerReason(out.Err), out.Err.Message
	}
	return p
}

// unanswered sorts the errors that are not the outcome of an operation.
func (r *Reconciler) unanswered(s *session, p pairing, err error) pairing {
	p.state, p.message = paired.Failed, core.AsError(err).Message
	switch core.CodeOf(err) {
	case core.CodeNotFound:
		p.reason = ReasonEnvironment // woken when it appears
		p.waiting = true
	case core.CodeConflict:
		p.reason = ReasonAmbiguous
	case core.CodeBadRequest:
		p.reason = ReasonInvalid
	case core.CodeForbidden:
		p.reason = ReasonRefused
		p.wait = time.Minute
	default:
		p.reason, p.waiting = ReasonServerUnavailable, true
		p.message = unavailable(err)
		p.wait = r.backoff(s)
	}
	return p
}

// backoff is the pause until the control plane is asked again when the change
// stream does not wake the Deployment sooner: half a second doubling to a
// minute.
func (r *Reconciler) backoff(s *session) time.Duration {
	if s.down.IsZero() {
		s.down = r.now()
	}
	s.attempts++
	if s.attempts > 7 {
		return time.Minute
	}
	return 500 * time.Millisecond << (s.attempts - 1)
}

// unavailable says the same of every way in which no answer comes, so that it
// is one cause.
func unavailable(err error) string {
	where := ""
	if target := core.AsError(err).Target; target != "" {
		where = " at " + target
	}
	return "the Radial server" + where + " gives no answer; is it running? This is tried again by itself"
}

func containerReason(err *core.Error) string {
	switch err.Code {
	case core.CodeNameConflict:
		return ReasonNameConflict
	case core.CodeForbidden:
		return ReasonRefused
	}
	return ReasonContainerFailed
}

// connectionData is what the connections of a Deployment carry.
type connectionData struct {
	// complete says that all of it is there.
	complete   bool
	variables  map[string]string
	hash       string
	collisions []connection.Collision
	reason     string
	message    string
	wait       time.Duration
}

// data gathers the values of all connections. One that is missing makes the
// whole incomplete; the message names every one.
func (r *Reconciler) data(ctx context.Context, d *appsv1.Deployment, s *session, in Intent, recipes []recipeView) connectionData {
	if len(in.Connections) == 0 {
		return connectionData{complete: true}
	}
	var out connectionData
	var missing []string
	for _, v := range recipes {
		if v.cause != "" {
			missing = append(missing, v.cause)
			if out.reason == "" || v.reason != ReasonRecipeNotReady {
				out.reason = v.reason
			}
		}
	}
	if len(missing) > 0 {
		out.message = strings.Join(missing, "; ")
		return out
	}
	values := make(map[string]map[string]any, len(recipes))
	for _, v := range recipes {
		carried, err := r.values(ctx, v)
		if err != nil {
			out.reason, out.message = ReasonConnectionFailed, fmt.Sprintf("connection %s: %s", v.Name, core.AsError(err).Message)
			if core.IsCode(err, core.CodeUnavailable) {
				out.reason, out.message = ReasonServerUnavailable, unavailable(err)
			}
			out.wait = r.backoff(s)
			return out
		}
		values[v.Name] = carried
	}
	key, err := r.hashKey(ctx)
	if err != nil {
		out.reason, out.message, out.wait = ReasonConnectionFailed, core.AsError(err).Message, r.backoff(s)
		return out
	}
	out.variables, out.collisions = connection.Merge(values)
	out.hash = connection.Hash(key, d.Namespace+"/"+d.Name, out.variables)
	out.complete = true
	return out
}

func nonzero(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

func (r *Reconciler) eventf(d *appsv1.Deployment, kind, reason, format string, args ...any) {
	r.Events.Eventf(d, nil, kind, reason, reason, format, args...)
}

// tell sends one event for each distinct cause: a reason and message that the
// status did not have yet. Ready is told where something else was told before.
func (r *Reconciler) tell(d *appsv1.Deployment, s *session, status Status) {
	told := make(map[string]bool)
	for _, c := range status.Conditions {
		cause := c.Reason + "\x00" + c.Message
		told[cause] = true
		kind := corev1.EventTypeWarning
		if c.Type == ConditionReady {
			fine := c.Status == metav1.ConditionTrue
			if fine || status.Phrase != PhraseFailed {
				kind = corev1.EventTypeNormal
			}
			was := s.troubled
			s.troubled = !fine
			if fine && !was {
				continue
			}
		}
		if !s.told[cause] {
			r.eventf(d, kind, c.Reason, "%s", c.Message)
		}
	}
	s.told = told
}
