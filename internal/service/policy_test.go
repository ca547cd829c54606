package service

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

func done(phase v1alpha1.Phase, generation int64, outputs map[string]string) *Verdict {
	return &Verdict{Phase: phase, Answer: &v1alpha1.CloudResourceStatus{Phase: phase, Location: "Nowhere-1", CredentialGeneration: generation, Outputs: outputs}}
}

func waits(detail string) *Verdict { return &Verdict{Phase: v1alpha1.PhaseWaiting, Detail: detail} }
func fails(detail string) *Verdict { return &Verdict{Phase: v1alpha1.PhaseFailed, Detail: detail} }

var (
	anIdentity = map[string]string{"identity": "i", "serviceAccountAnnotations": "a=b,c=d=e"}
	aBucket    = map[string]string{"bucket": "b", "endpoint": "e", "region": "r"}
	aSecret    = map[string]string{"secretName": "s"}
	ready      = func(o map[string]string) *Verdict { return done(v1alpha1.PhaseReady, 0, o) }
)

func TestFold_C107_C108_C110_C111_C140(t *testing.T) {
	next := noon.Add(time.Minute)
	for name, tc := range map[string]struct {
		reason  string
		answers Answers
		gate    Gate
		detail  string
		storage *v1alpha1.ObjectStorageStatus
		given   *Storage
	}{
		"Nothing": {"a service that needs nothing starts", Answers{}, GateOpen, "", nil, nil},
		"AllReady": {"everything answered", Answers{Identity: ready(anIdentity), Bucket: ready(aBucket), Credential: done("Ready", 3, aSecret)},
			GateOpen, "", &v1alpha1.ObjectStorageStatus{Phase: v1alpha1.PhaseProvisioned, Bucket: "b", Endpoint: "e", Region: "r", Location: "Nowhere-1"},
			&Storage{Bucket: "b", Endpoint: "e", Region: "r", SecretName: "s", CredentialGeneration: 3}},
		"RecoveredBucket": {"recovered is the bucket's", Answers{Identity: ready(anIdentity), Bucket: done("Recovered", 0, aBucket), Credential: done("Ready", 1, aSecret)},
			GateOpen, "", &v1alpha1.ObjectStorageStatus{Phase: v1alpha1.PhaseRecovered, Bucket: "b", Endpoint: "e", Region: "r", Location: "Nowhere-1", Recovered: true},
			&Storage{Bucket: "b", Endpoint: "e", Region: "r", SecretName: "s", CredentialGeneration: 1}},
		"RecoveredIdentity": {"and of nothing else", Answers{Identity: done("Recovered", 0, anIdentity), Bucket: ready(aBucket), Credential: done("Recovered", 1, aSecret)},
			GateOpen, "", &v1alpha1.ObjectStorageStatus{Phase: v1alpha1.PhaseProvisioned, Bucket: "b", Endpoint: "e", Region: "r", Location: "Nowhere-1"},
			&Storage{Bucket: "b", Endpoint: "e", Region: "r", SecretName: "s", CredentialGeneration: 1}},
		"FirstWords": {"C-111: the first that is said", Answers{Identity: waits(""), Bucket: waits("making it"), Credential: waits("later")},
			GateWaiting, "object storage: making it", &v1alpha1.ObjectStorageStatus{Phase: v1alpha1.PhaseWaiting, Detail: "making it"}, nil},
		"NoWords": {"C-111: and something where nothing is", Answers{Identity: waits(""), Bucket: waits(""), Credential: waits("")},
			GateWaiting, "object storage: waiting on the cloud provider for the bucket", &v1alpha1.ObjectStorageStatus{Phase: v1alpha1.PhaseWaiting}, nil},
		"FailedOverWaiting": {"C-140: what fails is said before what waits", Answers{Identity: waits("first"), Bucket: fails("taken"), Credential: waits("")},
			GateFailed, "object storage: taken", &v1alpha1.ObjectStorageStatus{Phase: v1alpha1.PhaseFailed, Detail: "taken"}, nil},
		"FailedIdentity": {"each of the three fails it", Answers{Identity: fails("no quota"), Bucket: ready(aBucket), Credential: waits("")},
			GateFailed, "object storage: no quota", &v1alpha1.ObjectStorageStatus{Phase: v1alpha1.PhaseFailed, Detail: "no quota", Bucket: "b", Endpoint: "e", Region: "r", Location: "Nowhere-1"}, nil},
		"AnswerLacks": {"an answer that lacks something is Failed and says what", Answers{Identity: ready(anIdentity), Bucket: ready(map[string]string{"bucket": "b", "region": "r"}), Credential: waits("")},
			GateFailed, "object storage: the answer is not one to kind bucket: endpoint is missing",
			&v1alpha1.ObjectStorageStatus{Phase: v1alpha1.PhaseFailed, Detail: "the answer is not one to kind bucket: endpoint is missing"}, nil},
		"NoGeneration": {"C-127: without the generation in place nothing can be put on the pods", Answers{Identity: ready(anIdentity), Bucket: ready(aBucket), Credential: ready(aSecret)},
			GateFailed, "object storage: the answer is not one to kind bucket-credential: it does not say which credential generation is in place",
			&v1alpha1.ObjectStorageStatus{Phase: v1alpha1.PhaseFailed, Detail: "the answer is not one to kind bucket-credential: it does not say which credential generation is in place", Bucket: "b", Endpoint: "e", Region: "r", Location: "Nowhere-1"}, nil},
		"IdentityAlone": {"without storage the identity speaks for itself", Answers{Identity: waits(""), Access: waits("")},
			GateWaiting, "identity: waiting on the cloud provider for the identity", nil, nil},
		"Access": {"and then the access", Answers{Identity: ready(anIdentity), Access: waits("")},
			GateWaiting, "secrets: waiting on the cloud provider for access to its secrets", nil, nil},
		"SecretBehind": {"a synced secret of an earlier generation is waited for", Answers{Identity: ready(anIdentity), Access: ready(nil),
			Secrets: []SecretAnswer{{Verdict: *ready(map[string]string{"entryGeneration": "1"}), Name: "checkout", EntryGeneration: 2}}},
			GateWaiting, "project secrets: waiting on the cloud provider for the project secret 'checkout'", nil, nil},
		"SecretAhead": {"a later one does", Answers{Identity: ready(anIdentity), Access: ready(nil),
			Secrets: []SecretAnswer{{Verdict: *ready(map[string]string{"entryGeneration": "3"}), Name: "checkout", EntryGeneration: 2}}},
			GateOpen, "", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.answers.Identity != nil && tc.answers.Identity.Phase == v1alpha1.PhaseWaiting {
				tc.answers.Identity.Next = next
			}
			f := Fold(tc.answers)
			if f.Gate != tc.gate || f.Detail != tc.detail {
				t.Errorf("%s: gate %s, detail %q; want %s, %q", tc.reason, f.Gate, f.Detail, tc.gate, tc.detail)
			}
			if d := cmp.Diff(tc.storage, f.ObjectStorage); d != "" {
				t.Errorf("%s: status: %s", tc.reason, d)
			}
			if d := cmp.Diff(tc.given, f.Storage); d != "" {
				t.Errorf("%s: instances get: %s", tc.reason, d)
			}
			if i := tc.answers.Identity; i != nil && i.Phase.Done() {
				if d := cmp.Diff(map[string]string{"a": "b", "c": "d=e"}, f.Annotations); d != "" {
					t.Errorf("C-89: %s", d)
				}
			} else if f.Annotations != nil {
				t.Errorf("annotations that nobody answered: %v", f.Annotations)
			}
			if i := tc.answers.Identity; i != nil && !f.Next.Equal(i.Next) {
				t.Errorf("looked at again at %v, not %v", f.Next, i.Next)
			}
		})
	}
}

func TestObserve(t *testing.T) {
	progressing := func(status corev1.ConditionStatus, reason string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: status, Reason: reason}
	}
	available := progressing(corev1.ConditionTrue, "NewReplicaSetAvailable")
	for name, tc := range map[string]struct {
		status   appsv1.DeploymentStatus
		replicas int32
		paused   bool
		want     v1alpha1.Lifecycle
	}{
		"NotSeen":         {appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, 2, false, v1alpha1.LifecycleUpdateInProgress},
		"Ready":           {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, 2, false, v1alpha1.LifecycleReady},
		"Rolling":         {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 1, ReadyReplicas: 2, Conditions: []appsv1.DeploymentCondition{progressing(corev1.ConditionTrue, "ReplicaSetUpdated")}}, 2, false, v1alpha1.LifecycleUpdateInProgress},
		"LostOne":         {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 1, Conditions: []appsv1.DeploymentCondition{available}}, 2, false, v1alpha1.LifecyclePartiallyReady},
		"LostAll":         {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, Conditions: []appsv1.DeploymentCondition{available}}, 2, false, v1alpha1.LifecycleUnavailable},
		"Stuck":           {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 1, ReadyReplicas: 2, Conditions: []appsv1.DeploymentCondition{progressing(corev1.ConditionFalse, "ProgressDeadlineExceeded")}}, 2, false, v1alpha1.LifecyclePartiallyReady},
		"Quota":           {appsv1.DeploymentStatus{ObservedGeneration: 2, Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"}}}, 2, false, v1alpha1.LifecycleUnavailable},
		"Paused":          {appsv1.DeploymentStatus{ObservedGeneration: 2}, 0, true, v1alpha1.LifecyclePaused},
		"Pausing":         {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, ReadyReplicas: 1, Conditions: []appsv1.DeploymentCondition{available}}, 0, true, v1alpha1.LifecycleUpdateInProgress},
		"PausedNotScaled": {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1}, 1, true, v1alpha1.LifecycleUpdateInProgress},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: appsv1.DeploymentSpec{Replicas: &tc.replicas}, Status: tc.status}
			got := Observe(d, tc.paused)
			if got.Lifecycle != tc.want || got.Ready != tc.status.ReadyReplicas || got.Desired != tc.replicas {
				t.Errorf("%+v, want %s", got, tc.want)
			}
		})
	}
}

// Whose an object is that has a name of ours: nothing of others is ours, and
// nothing of a predecessor.
func TestWhose_C58_C59_C143(t *testing.T) {
	us := Owner{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.AnkkaServiceKind, Name: "reports", UID: "now"}
	controller := func(apiVersion, kind, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, Controller: new(true)}}}
	}
	gone := metav1.NewTime(noon)
	for name, tc := range map[string]struct {
		meta metav1.ObjectMeta
		uid  string
		want ownership
	}{
		"Nobody":       {metav1.ObjectMeta{}, "", foreign},
		"Ours":         {controller(us.APIVersion, us.Kind, us.Name), "now", ours},
		"OurOtherTime": {controller(v1alpha1.Group+"/v2", us.Kind, us.Name), "now", ours},
		"Predecessor":  {controller(us.APIVersion, us.Kind, us.Name), "before", leaving},
		"OtherService": {controller(us.APIVersion, us.Kind, "orders"), "now", foreign},
		"OtherKind":    {controller(us.APIVersion, v1alpha1.AnkkaProjectKind, us.Name), "now", foreign},
		"OtherGroup":   {controller("example.com/v1", us.Kind, us.Name), "now", foreign},
		"Recipe":       {controller("radapp.io/v1alpha3", "Recipe", us.Name), "now", foreign},
	} {
		t.Run(name, func(t *testing.T) {
			if len(tc.meta.OwnerReferences) > 0 {
				tc.meta.OwnerReferences[0].UID = "now"
				if tc.uid != "now" {
					tc.meta.OwnerReferences[0].UID = "before"
				}
			}
			if got := whose(&corev1.ServiceAccount{ObjectMeta: tc.meta}, us); got != tc.want {
				t.Errorf("whose = %v, want %v", got, tc.want)
			}
		})
	}
	m := controller(us.APIVersion, us.Kind, us.Name)
	m.OwnerReferences[0].UID, m.DeletionTimestamp = "now", &gone
	if got := whose(&corev1.ServiceAccount{ObjectMeta: m}, us); got != leaving {
		t.Errorf("of one that is being deleted: %v", got)
	}
}
