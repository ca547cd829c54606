package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// services answers what runs for an AnkkaService.
type services struct{ *kit }

// pass is one look at a service: what was found, and what came of it.
type pass struct {
	service *v1alpha1.AnkkaService
	key     types.NamespacedName
	owner   Owner

	deployment *appsv1.Deployment // nil for none
	account    *corev1.ServiceAccount
	front      *corev1.Service
	scaler     *autoscalingv2.HorizontalPodAutoscaler

	folded Folded
	// project secrets that are synced.
	synced []string
}

// Reconcile makes a service run as it is described, as far as the cloud has
// answered, and says where it stands.
func (r *services) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s := &v1alpha1.AnkkaService{}
	found, err := find(ctx, r.kit, req.Namespace, req.Name, s)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !found || s.DeletionTimestamp != nil {
		// What runs, and what was asked, goes with its owner.
		r.applier.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	p := &pass{service: s, key: req.NamespacedName, owner: ownerOf(v1alpha1.AnkkaServiceKind, s.ObjectMeta)}
	err = r.serve(ctx, p)
	if text := refused(err); text != "" {
		// It mends itself when whoever refuses changes their mind: said, and
		// tried again with back-off.
		p.folded.Gate, p.folded.Detail = GateFailed, text
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if werr := r.report(ctx, p); werr != nil {
		return reconcile.Result{}, errors.Join(err, werr)
	}
	return reconcile.Result{RequeueAfter: r.after(p.folded.Next)}, err
}

// serve asks, folds, and applies what may run.
func (r *services) serve(ctx context.Context, p *pass) error {
	if err := refusal(p.service, r.settings); err != nil {
		// What is there is only looked at, for the numbers of instances.
		p.folded.Gate, p.folded.Detail = GateFailed, v1alpha1.Clean(err.Error())
		_, err := r.look(ctx, p)
		return err
	}
	clear, err := r.look(ctx, p)
	if err != nil || !clear {
		return err
	}
	answers, err := r.asks(ctx, p)
	if err != nil {
		return err
	}
	p.folded = Fold(answers)
	if p.account == nil || p.folded.Annotations != nil || answers.Identity == nil {
		// An account that is there keeps what binds it while an identity is
		// being answered anew: what runs goes on as whom it runs.
		if err := r.applyAccount(ctx, p); err != nil {
			return err
		}
	}
	if p.folded.Gate != GateOpen {
		return r.pause(ctx, p)
	}
	return r.run(ctx, p)
}

// look finds what has the service's name already, and judges whose it is. What
// is not the service's is left alone, and nothing is made beside it: not even
// asked for, since a request serves whoever has its name (C-143).
func (r *services) look(ctx context.Context, p *pass) (clear bool, err error) {
	p.deployment, p.account, p.front, p.scaler = &appsv1.Deployment{}, &corev1.ServiceAccount{}, &corev1.Service{}, &autoscalingv2.HorizontalPodAutoscaler{}
	verdict := ours
	judge := func(kind, name string, o client.Object) (bool, error) {
		found, err := find(ctx, r.kit, p.key.Namespace, name, o)
		if err != nil || !found {
			return false, err
		}
		switch whose(o, p.owner) {
		case foreign:
			if verdict != foreign && p.folded.Gate != GateFailed {
				p.folded.Gate, p.folded.Detail = GateFailed, fmt.Sprintf("a %s of that name is there already and %v; give one of them another name", kind, errForeign)
			}
			verdict = foreign
			return false, nil
		case leaving:
			if verdict == ours && p.folded.Gate != GateFailed {
				p.folded.Gate, p.folded.Detail = GateWaiting, textLeaving
			}
			verdict = max(verdict, leaving)
			return false, nil
		case ours:
		}
		return true, nil
	}
	if ok, err := judge("Deployment", p.key.Name, p.deployment); err != nil {
		return false, err
	} else if !ok {
		p.deployment = nil
	}
	if ok, err := judge("ServiceAccount", p.key.Name, p.account); err != nil {
		return false, err
	} else if !ok {
		p.account = nil
	}
	if ok, err := judge("Service", p.key.Name, p.front); err != nil {
		return false, err
	} else if !ok {
		p.front = nil
	}
	if ok, err := judge("HorizontalPodAutoscaler", p.key.Name, p.scaler); err != nil {
		return false, err
	} else if !ok {
		p.scaler = nil
	}
	if !r.settings.HasProvider() {
		return verdict == ours, nil
	}
	for _, suffix := range v1alpha1.ServiceSuffixes() {
		if _, err := judge("workload", v1alpha1.ServiceRequestName(p.key.Name, suffix), &v1alpha1.CloudResource{}); err != nil {
			return false, err
		}
	}
	return verdict == ours, nil
}

// asks writes what the service needs of the cloud, in the order in which
// answers allow it (C-75, C-76).
func (r *services) asks(ctx context.Context, p *pass) (Answers, error) {
	spec := &p.service.Spec
	subject, w := subjectOf(spec), wants(spec, r.settings)
	a := Answers{Generation: spec.CredentialGeneration()}
	ask := func(build func() (Ask, error)) (*Verdict, error) { return r.ask(ctx, p.key, p.owner, build) }
	var err error
	var identity, bucket part
	var id v1alpha1.IdentityAnswer
	var made v1alpha1.BucketAnswer
	if w.Identity {
		if a.Identity, err = ask(func() (Ask, error) { return AskIdentity(subject, v1alpha1.ServiceAccountName(subject)) }); err != nil {
			return a, err
		}
		identity = newPart(a.Identity)
		id = read(&identity, v1alpha1.ParseIdentityAnswer)
	}
	if w.Storage {
		if a.Bucket, err = ask(func() (Ask, error) { return askBucket(spec, r.settings) }); err != nil {
			return a, err
		}
		bucket = newPart(a.Bucket)
		made = read(&bucket, v1alpha1.ParseBucketAnswer)
		a.Credential = &Verdict{Phase: v1alpha1.PhaseWaiting}
		if identity.done() && bucket.done() {
			if a.Credential, err = ask(func() (Ask, error) { return askCredential(subject, made.Bucket, id.Identity, a.Generation) }); err != nil {
				return a, err
			}
			a.Credential = inSecret(a.Credential, v1alpha1.StorageSecretName(subject))
		}
	}
	if w.Access {
		a.Access = &Verdict{Phase: v1alpha1.PhaseWaiting}
		if identity.done() {
			if a.Access, err = ask(func() (Ask, error) { return askAccess(subject, id.Identity) }); err != nil {
				return a, err
			}
		}
		if a.Secrets, err = r.secrets(ctx, p); err != nil {
			return a, err
		}
	}
	return a, nil
}

// secrets judges the synced project secrets that the descriptor takes entries
// of. The project asks for them; the service waits.
func (r *services) secrets(ctx context.Context, p *pass) ([]SecretAnswer, error) {
	spec := &p.service.Spec
	project := &v1alpha1.AnkkaProject{}
	found, err := find(ctx, r.kit, p.key.Namespace, spec.ProjectID, project)
	if err != nil || !found {
		return nil, err
	}
	var out []SecretAnswer
	for _, s := range project.Spec.Secrets {
		if !slices.ContainsFunc(spec.Env, func(e v1alpha1.EnvVar) bool { return e.SecretName == s.Name }) {
			continue
		}
		p.synced = append(p.synced, s.Name)
		answer := SecretAnswer{Name: s.Name, EntryGeneration: s.EntryGeneration, Verdict: Decide(nil, 0, time.Time{})}
		request := &v1alpha1.CloudResource{}
		found, err := find(ctx, r.kit, p.key.Namespace, v1alpha1.SecretSyncName(spec.ProjectID, s.Name), request)
		if err != nil {
			return nil, err
		}
		if found && whose(request, ownerOf(v1alpha1.AnkkaProjectKind, project.ObjectMeta)) == ours {
			answer.Verdict = Decide(request, r.settings.AcknowledgementBound, r.now())
		}
		out = append(out, answer)
	}
	return out, nil
}

func (r *services) applyAccount(ctx context.Context, p *pass) error {
	set := Rendering{Service: p.service}.Account(p.folded.Annotations)
	current, exists := p.account, p.account != nil
	if !exists {
		current = &corev1.ServiceAccount{}
	}
	var err error
	p.account, err = apply(ctx, r.applier, p.key, set, current, exists, true)
	return err
}

// pause carries out the one wish that needs no answer: that nothing runs.
// Everything else about what runs stays as it stands (C-110).
func (r *services) pause(ctx context.Context, p *pass) error {
	d := p.deployment
	if !p.service.Spec.Paused || d == nil || d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
		return nil
	}
	if err := r.dropScaler(ctx, p); err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"replicas":0}}`, d.UID))
	target := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: d.Namespace}}
	if err := r.Patch(ctx, target, patch, client.FieldOwner(v1alpha1.FieldManagerOperator)); err != nil {
		return fmt.Errorf("pause Deployment %s: %w", d.Name, err)
	}
	p.deployment = target
	return nil
}

// run applies what runs, and takes away what the descriptor no longer asks for.
func (r *services) run(ctx context.Context, p *pass) error {
	rendering := Rendering{Service: p.service, Storage: p.folded.Storage, Secrets: p.synced}
	if p.deployment != nil && p.deployment.Spec.Replicas != nil {
		rendering.Live = *p.deployment.Spec.Replicas
	}
	o := Render(rendering)
	// An autoscaler that is to go must not scale up again what is paused.
	if o.Autoscaler == nil {
		if err := r.dropScaler(ctx, p); err != nil {
			return err
		}
	}
	var err error
	current, exists := p.deployment, p.deployment != nil
	if !exists {
		current = &appsv1.Deployment{}
	}
	if p.deployment, err = apply(ctx, r.applier, p.key, o.Deployment, current, exists, true); err != nil {
		return err
	}
	if o.Autoscaler != nil {
		current, exists := p.scaler, p.scaler != nil
		if !exists {
			current = &autoscalingv2.HorizontalPodAutoscaler{}
		}
		if _, err := apply(ctx, r.applier, p.key, o.Autoscaler, current, exists, true); err != nil {
			return err
		}
	}
	if o.Service != nil {
		current, exists := p.front, p.front != nil
		if !exists {
			current = &corev1.Service{}
		}
		_, err = apply(ctx, r.applier, p.key, o.Service, current, exists, true)
		return err
	}
	if p.front != nil {
		return r.drop(ctx, p.front)
	}
	return nil
}

func (r *services) dropScaler(ctx context.Context, p *pass) error {
	if p.scaler == nil {
		return nil
	}
	o := p.scaler
	p.scaler = nil
	return r.drop(ctx, o)
}

func (r *services) drop(ctx context.Context, o client.Object) error {
	uid := o.GetUID()
	err := r.Delete(ctx, o, client.Preconditions{UID: &uid})
	return client.IgnoreNotFound(err)
}

// report writes the status where it differs.
func (r *services) report(ctx context.Context, p *pass) error {
	next := StatusOf(p.service, p.folded, Observe(p.deployment, p.service.Spec.Paused), r.now())
	if equality.Semantic.DeepEqual(p.service.Status, next) {
		return nil
	}
	before := p.service.DeepCopy()
	after := p.service.DeepCopy()
	after.Status = next
	if err := r.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldManagerOperator)); err != nil {
		return overtaken(err)
	}
	r.tell(p.service, before.Status.Lifecycle, next.Lifecycle, next.Detail)
	return nil
}

// StatusOf is a service's status: pure, of what it was, of the answers and of
// what runs.
func StatusOf(s *v1alpha1.AnkkaService, f Folded, run Running, now time.Time) v1alpha1.AnkkaServiceStatus {
	next := v1alpha1.AnkkaServiceStatus{
		Generation: s.Spec.Generation, ObservedGeneration: s.Generation,
		Lifecycle: run.Lifecycle, Detail: run.Detail, LastTransitionTime: s.Status.LastTransitionTime,
		ReadyInstances: run.Ready, DesiredInstances: run.Desired,
		Identity: f.Identity, ObjectStorage: f.ObjectStorage, StorageCredential: f.StorageCredential, SecretAccess: f.SecretAccess, ProjectSecrets: f.ProjectSecrets,
	}
	if next.ObjectStorage == nil && suppliesStorage(&s.Spec) && !s.Spec.ProvisionObjectStorage {
		next.ObjectStorage = &v1alpha1.ObjectStorageStatus{Phase: v1alpha1.PhaseSupplied}
	}
	switch f.Gate {
	case GateFailed:
		next.Lifecycle, next.Detail = v1alpha1.LifecycleFailed, f.Detail
	case GateWaiting:
		next.Lifecycle, next.Detail = v1alpha1.LifecycleUpdateInProgress, f.Detail
	case GateOpen:
	}
	if next.Lifecycle != s.Status.Lifecycle || next.LastTransitionTime == nil {
		t := metav1.NewTime(now.UTC().Truncate(time.Second))
		next.LastTransitionTime = &t
	}
	next.Conditions = conditions(s.Status.Conditions, s.Generation, next.Lifecycle, next.Detail, now.UTC().Truncate(time.Second))
	return next
}
