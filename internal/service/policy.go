package service

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// Gate says whether a service's instances may be started, or replaced, as they
// are described now.
type Gate string

// The gates. Neither Waiting nor Failed stops what runs already.
const (
	GateOpen    Gate = "Open"
	GateWaiting Gate = "Waiting"
	GateFailed  Gate = "Failed"
)

// Answers are the verdicts on what a service asked for; nil is what it did not
// need. A request that cannot be written yet, since it names what others are
// still to answer, is a Verdict that waits.
type Answers struct {
	Identity, Bucket, Credential, Access *Verdict
	// Secrets are the synced project secrets that the descriptor takes entries
	// of.
	Secrets []SecretAnswer
	// Generation is the credential generation that is asked for.
	Generation int64
}

// SecretAnswer is the verdict on one synced project secret.
type SecretAnswer struct {
	Verdict
	Name string
	// EntryGeneration is the one that the instances wait for.
	EntryGeneration int64
}

// Storage is what instances get to reach their bucket.
type Storage struct {
	Bucket, Endpoint, Region, SecretName string
	// CredentialGeneration is the one in place.
	CredentialGeneration int64
}

// Folded is what the answers come to.
type Folded struct {
	// Parts of the status, each nil where not asked for.
	Identity          *v1alpha1.IdentityStatus
	ObjectStorage     *v1alpha1.ObjectStorageStatus
	StorageCredential *v1alpha1.StorageCredentialStatus
	SecretAccess      *v1alpha1.PartStatus
	ProjectSecrets    *v1alpha1.PartStatus

	Gate Gate
	// Detail is why the gate is not open, for a member.
	Detail string
	// Storage is there once the answers are and the gate is open.
	Storage *Storage
	// Annotations of the ServiceAccount, as answered; nil until they are.
	Annotations map[string]string
	// Next is when the same answers read differently.
	Next time.Time
}

// part is a verdict being folded. A Ready whose outputs are not an answer to
// its kind is Failed.
type part struct {
	Verdict
	asked bool
}

func newPart(v *Verdict) part {
	if v == nil {
		return part{}
	}
	return part{Verdict: *v, asked: true}
}

func (p *part) done() bool   { return p.asked && p.Phase.Done() }
func (p *part) failed() bool { return p.asked && p.Phase == v1alpha1.PhaseFailed }

func (p *part) fail(err error) {
	p.Phase, p.Detail, p.Answer = v1alpha1.PhaseFailed, v1alpha1.Clean(err.Error()), nil
}

// read takes the answer out of a part that is done.
func read[T any](p *part, f func(map[string]string) (T, error)) T {
	var zero T
	if !p.done() {
		return zero
	}
	v, err := f(p.Answer.Outputs)
	if err != nil {
		p.fail(err)
		return zero
	}
	return v
}

// inSecret takes no answer to a request for a credential that names another
// Secret than the one that was asked for: instances would be given what lies
// there.
func inSecret(v *Verdict, name string) *Verdict {
	p := newPart(v)
	if key := read(&p, v1alpha1.ParseCredentialAnswer); p.done() && key.SecretName != name {
		p.fail(fmt.Errorf("the answer is not one to kind %s: it names another Secret than %s", v1alpha1.KindBucketCredential, name))
	}
	return &p.Verdict
}

// Fold folds a service's answers into the parts of its status, and says whether
// its instances may start.
func Fold(a Answers) Folded {
	var f Folded
	identity, bucket, credential, access := newPart(a.Identity), newPart(a.Bucket), newPart(a.Credential), newPart(a.Access)

	id := read(&identity, v1alpha1.ParseIdentityAnswer)
	if identity.done() {
		f.Annotations = id.ServiceAccountAnnotations
		if f.Annotations == nil {
			f.Annotations = map[string]string{}
		}
	}
	if identity.asked {
		f.Identity = &v1alpha1.IdentityStatus{Phase: identity.Phase, Detail: identity.Detail, Identity: id.Identity}
	}
	made := read(&bucket, v1alpha1.ParseBucketAnswer)
	key := read(&credential, v1alpha1.ParseCredentialAnswer)
	if credential.done() && credential.Answer.CredentialGeneration < 1 {
		credential.fail(fmt.Errorf("the answer is not one to kind %s: it does not say which credential generation is in place", v1alpha1.KindBucketCredential))
	}
	if access.asked {
		f.SecretAccess = &v1alpha1.PartStatus{Phase: access.Phase, Detail: access.Detail}
	}
	if bucket.asked {
		f.ObjectStorage = foldStorage(identity, bucket, credential, made)
		f.StorageCredential = &v1alpha1.StorageCredentialStatus{Phase: credential.Phase, Detail: credential.Detail}
		if credential.done() {
			f.StorageCredential.SecretName, f.StorageCredential.Generation = key.SecretName, credential.Answer.CredentialGeneration
			f.StorageCredential.ReportedAt = credential.Answer.CredentialReportedAt
		}
	}
	f.ProjectSecrets = foldSecrets(a.Secrets)
	f.gate(identity)
	if f.Gate == GateOpen && bucket.asked {
		f.Storage = &Storage{Bucket: made.Bucket, Endpoint: made.Endpoint, Region: made.Region,
			SecretName: key.SecretName, CredentialGeneration: credential.Answer.CredentialGeneration}
	}
	for _, p := range []part{identity, bucket, credential, access} {
		f.Next = earliest(f.Next, p.Next)
	}
	for _, s := range a.Secrets {
		f.Next = earliest(f.Next, s.Next)
	}
	return f
}

// foldStorage is the object storage of three answers (C-108): what fails is
// said word for word, and otherwise the first thing that is said.
func foldStorage(identity, bucket, credential part, made v1alpha1.BucketAnswer) *v1alpha1.ObjectStorageStatus {
	s := &v1alpha1.ObjectStorageStatus{Phase: v1alpha1.PhaseProvisioned, Bucket: made.Bucket, Endpoint: made.Endpoint, Region: made.Region}
	if bucket.done() {
		s.Location, s.Recovered = bucket.Answer.Location, bucket.Phase == v1alpha1.PhaseRecovered
	}
	parts := []part{identity, bucket, credential}
	if i := slices.IndexFunc(parts, func(p part) bool { return p.failed() }); i >= 0 {
		s.Phase, s.Detail = v1alpha1.PhaseFailed, parts[i].Detail
		return s
	}
	for _, p := range parts {
		if !p.done() {
			s.Phase = v1alpha1.PhaseWaiting
			s.Detail = cmp.Or(s.Detail, p.Detail)
		}
	}
	if s.Phase == v1alpha1.PhaseProvisioned && s.Recovered {
		s.Phase = v1alpha1.PhaseRecovered
	}
	return s
}

// foldSecrets is one part for all synced secrets that the instances take
// entries of.
func foldSecrets(secrets []SecretAnswer) *v1alpha1.PartStatus {
	if len(secrets) == 0 {
		return nil
	}
	s := &v1alpha1.PartStatus{Phase: v1alpha1.PhaseReady}
	for _, a := range secrets {
		p := newPart(&a.Verdict)
		kept := read(&p, v1alpha1.ParseSecretSyncAnswer)
		switch {
		case p.failed():
			return &v1alpha1.PartStatus{Phase: v1alpha1.PhaseFailed, Detail: v1alpha1.Clean(fmt.Sprintf("the cloud provider could not sync the project secret '%s': %s", a.Name, p.Detail))}
		case !p.done() || kept.EntryGeneration < a.EntryGeneration:
			s.Phase = v1alpha1.PhaseWaiting
			s.Detail = cmp.Or(s.Detail, p.Detail, fmt.Sprintf("waiting on the cloud provider for the project secret '%s'", a.Name))
		}
	}
	return s
}

// gate judges the parts that instances need: failed before waiting, each with
// the part's name before the provider's words.
func (f *Folded) gate(identity part) {
	type need struct {
		name, waiting string
		phase         v1alpha1.Phase
		detail        string
	}
	var needs []need
	if s := f.ObjectStorage; s != nil {
		needs = append(needs, need{"object storage", "waiting on the cloud provider for the bucket", s.Phase, s.Detail})
	} else if identity.asked {
		needs = append(needs, need{"identity", "waiting on the cloud provider for the identity", identity.Phase, identity.Detail})
	}
	if s := f.SecretAccess; s != nil {
		needs = append(needs, need{"secrets", "waiting on the cloud provider for access to its secrets", s.Phase, s.Detail})
	}
	if s := f.ProjectSecrets; s != nil {
		needs = append(needs, need{"project secrets", "waiting on the cloud provider for the project's secrets", s.Phase, s.Detail})
	}
	f.Gate = GateOpen
	for _, n := range needs {
		switch {
		case n.phase == v1alpha1.PhaseFailed && f.Gate != GateFailed:
			f.Gate, f.Detail = GateFailed, n.name+": "+n.detail
		case n.phase == v1alpha1.PhaseWaiting && f.Gate == GateOpen:
			f.Gate, f.Detail = GateWaiting, n.name+": "+cmp.Or(n.detail, n.waiting)
		}
	}
}

// Running is how a service's instances stand.
type Running struct {
	Lifecycle      v1alpha1.Lifecycle
	Detail         string
	Ready, Desired int32
}

// Observe judges a Deployment as it is described: nil is none.
func Observe(d *appsv1.Deployment, paused bool) Running {
	if d == nil {
		return Running{Lifecycle: v1alpha1.LifecycleUpdateInProgress}
	}
	r := Running{Ready: d.Status.ReadyReplicas, Desired: 1}
	if d.Spec.Replicas != nil {
		r.Desired = *d.Spec.Replicas
	}
	var progressing, failing *appsv1.DeploymentCondition
	for i := range d.Status.Conditions {
		switch c := &d.Status.Conditions[i]; c.Type {
		case appsv1.DeploymentProgressing:
			progressing = c
		case appsv1.DeploymentReplicaFailure:
			failing = c
		}
	}
	s := d.Status
	complete := s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == r.Desired && s.Replicas == r.Desired
	switch {
	case failing != nil && failing.Status == corev1.ConditionTrue && r.Ready < r.Desired:
		r.Lifecycle, r.Detail = short(r), "the cluster makes no instances: "+v1alpha1.Clean(failing.Message)
	case s.ObservedGeneration < d.Generation:
		r.Lifecycle = v1alpha1.LifecycleUpdateInProgress
	case progressing != nil && progressing.Status == corev1.ConditionFalse:
		r.Lifecycle, r.Detail = short(r), "the new instances did not become ready in time"
	case paused && s.Replicas == 0 && r.Desired == 0:
		r.Lifecycle = v1alpha1.LifecyclePaused
	case complete && r.Ready == r.Desired && !paused:
		r.Lifecycle = v1alpha1.LifecycleReady
	case progressing != nil && progressing.Reason == "NewReplicaSetAvailable" && s.UpdatedReplicas >= min(r.Desired, s.Replicas) && !paused:
		// The rollout was done, and instances have gone since.
		r.Lifecycle = short(r)
	default:
		r.Lifecycle = v1alpha1.LifecycleUpdateInProgress
	}
	return r
}

func short(r Running) v1alpha1.Lifecycle {
	if r.Ready > 0 {
		return v1alpha1.LifecyclePartiallyReady
	}
	return v1alpha1.LifecycleUnavailable
}
