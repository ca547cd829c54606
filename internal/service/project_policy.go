package service

import (
	"cmp"
	"fmt"
	"time"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// ProjectAnswers are the verdicts on what a project asked for; nil is what it
// did not need.
type ProjectAnswers struct {
	Identity, Bucket, Credential, Key *Verdict
	Secrets                           []SecretAnswer
}

// FoldedProject is what a project's answers come to.
type FoldedProject struct {
	Identity *v1alpha1.IdentityStatus
	Secrets  []v1alpha1.ProjectSecretStatus
	Backups  *v1alpha1.BackupStatus
	Keyring  *v1alpha1.KeyringStatus

	Lifecycle v1alpha1.Lifecycle
	Detail    string
	// Annotations of the database's ServiceAccount; nil until answered.
	Annotations map[string]string
	Next        time.Time
}

// FoldProject folds a project's answers into the parts of its status.
func FoldProject(a ProjectAnswers) FoldedProject {
	f := FoldedProject{Lifecycle: v1alpha1.LifecycleReady}
	identity, bucket, credential, wrap := newPart(a.Identity), newPart(a.Bucket), newPart(a.Credential), newPart(a.Key)
	id := read(&identity, v1alpha1.ParseIdentityAnswer)
	if identity.done() {
		f.Annotations = id.ServiceAccountAnnotations
		if f.Annotations == nil {
			f.Annotations = map[string]string{}
		}
	}
	made := read(&bucket, v1alpha1.ParseBucketAnswer)
	key := read(&credential, v1alpha1.ParseCredentialAnswer)
	wrapped := read(&wrap, v1alpha1.ParseWrappingKeyAnswer)

	for _, s := range a.Secrets {
		p := newPart(&s.Verdict)
		kept := read(&p, v1alpha1.ParseSecretSyncAnswer)
		st := v1alpha1.ProjectSecretStatus{Name: s.Name, Phase: p.Phase, Detail: p.Detail, SecretName: v1alpha1.SyncedSecretName(s.Name), EntryGeneration: kept.EntryGeneration}
		if p.done() && kept.EntryGeneration < s.EntryGeneration {
			st.Phase = v1alpha1.PhaseWaiting
		}
		f.Secrets = append(f.Secrets, st)
		f.need(fmt.Sprintf("project secret '%s'", s.Name), st.Phase, st.Detail)
		f.Next = earliest(f.Next, s.Next)
	}
	if identity.asked {
		f.Identity = &v1alpha1.IdentityStatus{Phase: identity.Phase, Detail: identity.Detail, Identity: id.Identity}
	}
	if bucket.asked {
		s := foldStorage(identity, bucket, credential, made)
		f.Backups = &v1alpha1.BackupStatus{Phase: s.Phase, Detail: s.Detail, Bucket: s.Bucket, Endpoint: s.Endpoint, Region: s.Region, Recovered: s.Recovered, SecretName: key.SecretName}
		if credential.done() {
			f.Backups.CredentialGeneration = credential.Answer.CredentialGeneration
		}
		f.need("backups", s.Phase, s.Detail)
	}
	if wrap.asked {
		s := &v1alpha1.KeyringStatus{Phase: wrap.Phase, Detail: wrap.Detail, Key: wrapped.Key}
		// The key is asked for the identity, whose words come first.
		if !wrap.failed() && !identity.done() {
			s.Phase, s.Detail = identity.Phase, identity.Detail
		}
		f.Keyring = s
		f.need("keyring", s.Phase, s.Detail)
	}
	for _, p := range []part{identity, bucket, credential, wrap} {
		f.Next = earliest(f.Next, p.Next)
	}
	return f
}

// need takes one part into the whole: failed before waiting, the first of each.
func (f *FoldedProject) need(name string, phase v1alpha1.Phase, detail string) {
	switch {
	case phase == v1alpha1.PhaseFailed && f.Lifecycle != v1alpha1.LifecycleFailed:
		f.Lifecycle, f.Detail = v1alpha1.LifecycleFailed, name+": "+detail
	case phase == v1alpha1.PhaseWaiting && f.Lifecycle == v1alpha1.LifecycleReady:
		f.Lifecycle, f.Detail = v1alpha1.LifecycleUpdateInProgress, name+": "+cmp.Or(detail, "waiting on the cloud provider")
	}
}
