package service

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// projects answers what an AnkkaProject has in the cloud: its synced secrets,
// its backups' bucket, its database's identity and its keyring's key.
type projects struct{ *kit }

// Reconcile asks for what a project needs and says where it stands.
func (r *projects) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	p := &v1alpha1.AnkkaProject{}
	found, err := find(ctx, r.kit, req.Namespace, req.Name, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !found || p.DeletionTimestamp != nil {
		r.applier.forget(projectKey(req.NamespacedName))
		return reconcile.Result{}, nil
	}
	f := FoldedProject{Lifecycle: v1alpha1.LifecycleFailed}
	if p.Namespace != v1alpha1.Namespace(p.Spec.ProjectID) || p.Name != p.Spec.ProjectID {
		f.Detail = "project " + p.Spec.ProjectID + " stands in namespace " + v1alpha1.Namespace(p.Spec.ProjectID) + " under its own name"
	} else if err := v1alpha1.ValidateProject(p.Spec.ProjectID); err != nil {
		f.Detail = v1alpha1.Clean(err.Error())
	} else {
		answers, err := r.asks(ctx, req.NamespacedName, p)
		if err != nil {
			return reconcile.Result{}, err
		}
		f = FoldProject(answers)
		err = r.account(ctx, req.NamespacedName, p, answers.Identity != nil, &f)
		if text := refused(err); text != "" {
			f.Lifecycle, f.Detail = v1alpha1.LifecycleFailed, text
		} else if err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := r.report(ctx, p, f); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: r.after(f.Next)}, nil
}

// projectKey keeps a project's writes apart from those of a service that has
// its name.
func projectKey(k types.NamespacedName) types.NamespacedName {
	k.Name += ".project"
	return k
}

// asks writes what the project needs, in the order in which answers allow it.
func (r *projects) asks(ctx context.Context, key types.NamespacedName, p *v1alpha1.AnkkaProject) (ProjectAnswers, error) {
	var a ProjectAnswers
	s := r.settings
	if !s.HasProvider() {
		return a, nil
	}
	id, subject := p.Spec.ProjectID, v1alpha1.Subject{Project: p.Spec.ProjectID}
	ask := func(build func() (Ask, error)) (*Verdict, error) {
		return r.ask(ctx, projectKey(key), ownerOf(v1alpha1.AnkkaProjectKind, p.ObjectMeta), build)
	}
	if s.ProjectSecrets {
		for _, secret := range p.Spec.Secrets {
			v, err := ask(func() (Ask, error) { return askSync(id, secret) })
			if err != nil {
				return a, err
			}
			a.Secrets = append(a.Secrets, SecretAnswer{Verdict: *v, Name: secret.Name, EntryGeneration: secret.EntryGeneration})
		}
	}
	backups, keyring := p.Spec.Backups && s.Backups, p.Spec.Keyring && s.Keyring
	if !backups && !keyring {
		return a, nil
	}
	var err error
	if a.Identity, err = ask(func() (Ask, error) { return AskIdentity(subject, v1alpha1.ServiceAccountName(subject)) }); err != nil {
		return a, err
	}
	identity := newPart(a.Identity)
	known := read(&identity, v1alpha1.ParseIdentityAnswer)
	if backups {
		if a.Bucket, err = ask(func() (Ask, error) { return askBackupBucket(id, s) }); err != nil {
			return a, err
		}
		bucket := newPart(a.Bucket)
		made := read(&bucket, v1alpha1.ParseBucketAnswer)
		a.Credential = &Verdict{Phase: v1alpha1.PhaseWaiting}
		if identity.done() && bucket.done() {
			// The identity is that of the project's database and no other (C-78).
			if a.Credential, err = ask(func() (Ask, error) {
				return askCredential(subject, made.Bucket, known.Identity, p.Spec.CredentialGeneration())
			}); err != nil {
				return a, err
			}
			a.Credential = inSecret(a.Credential, v1alpha1.StorageSecretName(subject))
		}
	}
	if keyring {
		a.Key = &Verdict{Phase: v1alpha1.PhaseWaiting}
		if identity.done() {
			if a.Key, err = ask(func() (Ask, error) { return askWrappingKey(id, known.Identity, s) }); err != nil {
				return a, err
			}
		}
	}
	return a, nil
}

// account applies the ServiceAccount of the project's database, which the
// identity is for. While the identity is not answered, one that is there stays
// as it is.
func (r *projects) account(ctx context.Context, key types.NamespacedName, p *v1alpha1.AnkkaProject, asked bool, f *FoldedProject) error {
	if !asked {
		return nil
	}
	subject, owner := v1alpha1.Subject{Project: p.Spec.ProjectID}, ownerOf(v1alpha1.AnkkaProjectKind, p.ObjectMeta)
	current := &corev1.ServiceAccount{}
	exists, err := find(ctx, r.kit, key.Namespace, v1alpha1.ServiceAccountName(subject), current)
	if err != nil {
		return err
	}
	if exists {
		switch whose(current, owner) {
		case foreign:
			f.Lifecycle, f.Detail = v1alpha1.LifecycleFailed, "identity: ServiceAccount "+current.Name+" is there already and is not the project's"
			return nil
		case leaving:
			f.Lifecycle, f.Detail = v1alpha1.LifecycleUpdateInProgress, "identity: "+textLeaving
			return nil
		case ours:
		}
		if f.Annotations == nil {
			return nil
		}
	}
	set := object("v1", "ServiceAccount", key.Namespace, v1alpha1.ServiceAccountName(subject), labels(subject), owner, map[string]any{"automountServiceAccountToken": false})
	if len(f.Annotations) > 0 {
		set.SetAnnotations(f.Annotations)
	}
	_, err = apply(ctx, r.applier, projectKey(key), set, current, exists, true)
	return err
}

// report writes the status where it differs.
func (r *projects) report(ctx context.Context, p *v1alpha1.AnkkaProject, f FoldedProject) error {
	next := ProjectStatusOf(p, f, r.now())
	if equality.Semantic.DeepEqual(p.Status, next) {
		return nil
	}
	after := p.DeepCopy()
	after.Status = next
	err := r.Status().Patch(ctx, after, client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldManagerOperator))
	if err != nil {
		return overtaken(err)
	}
	r.tell(p, p.Status.Lifecycle, next.Lifecycle, next.Detail)
	return nil
}

// ProjectStatusOf is a project's status: pure, of what it was and of the
// answers.
func ProjectStatusOf(p *v1alpha1.AnkkaProject, f FoldedProject, now time.Time) v1alpha1.AnkkaProjectStatus {
	now = now.UTC().Truncate(time.Second)
	next := v1alpha1.AnkkaProjectStatus{
		ObservedGeneration: p.Generation, Lifecycle: f.Lifecycle, Detail: f.Detail, LastTransitionTime: p.Status.LastTransitionTime,
		Identity: f.Identity, Secrets: f.Secrets, Backups: f.Backups, Keyring: f.Keyring,
	}
	if next.Lifecycle != p.Status.Lifecycle || next.LastTransitionTime == nil {
		t := metav1.NewTime(now)
		next.LastTransitionTime = &t
	}
	next.Conditions = conditions(p.Status.Conditions, p.Generation, next.Lifecycle, next.Detail, now)
	return next
}
