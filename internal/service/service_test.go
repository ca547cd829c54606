package service

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/internal/cloud"
	"github.com/radial-project/radial/provider/scripted"
)

// A service with object storage, from nothing to running, with a provider of
// its own process that is first not there and then slow with the bucket.
func TestServiceGetsItsBucket_C4_C6_C75_C76_C89_C107_C108_C110_C111(t *testing.T) {
	s := newStage(t, nil)
	start := s.provide()
	s.account.Script(s.project, scripted.Script{Op: scripted.OpEnsureBucket, Phase: v1alpha1.PhaseWaiting, Text: "the bucket is being made"})
	s.operate()
	s.describe("reports", storage)

	// C-75: identity and bucket at once. Nobody answers, so nothing runs.
	s.asked("reports-identity")
	bucket := s.asked("reports-bucket")
	st := s.service("reports", "waiting", func(st v1alpha1.AnkkaServiceStatus) bool { return st.ObjectStorage != nil }).Status
	if st.Lifecycle != v1alpha1.LifecycleUpdateInProgress || st.ObjectStorage.Phase != v1alpha1.PhaseWaiting || st.Detail != "object storage: waiting on the cloud provider for the bucket" {
		t.Errorf("C-111: status is %+v", st)
	}
	s.absent(&appsv1.Deployment{}, "reports")
	s.absent(&v1alpha1.CloudResource{}, "reports-storage-credential")
	if d := cmp.Diff(map[string]string{"purpose": "service", "location": "Nowhere-1", "versioning": "false", "softDeleteDays": "0", "corsOrigins": "", "kmsKey": "keys/wrap", "namePrefix": "acme", "noncurrentVersionDays": ""}, bucket.Spec.Parameters); d != "" {
		t.Error(d)
	}
	owner := metav1.GetControllerOf(bucket)
	if owner == nil || owner.Kind != v1alpha1.AnkkaServiceKind || owner.Name != "reports" || !*owner.BlockOwnerDeletion {
		t.Errorf("C-58: the request's owner is %+v", owner)
	}

	start()
	// C-108, C-111: the provider's words, under the part they are for.
	s.service("reports", "with the provider's words", func(st v1alpha1.AnkkaServiceStatus) bool {
		return st.ObjectStorage.Detail == "the bucket is being made" && st.Detail == "object storage: the bucket is being made" && st.Identity.Phase == v1alpha1.PhaseReady
	})
	// C-76: the identity is answered, the bucket is not.
	s.absent(&v1alpha1.CloudResource{}, "reports-storage-credential")
	s.absent(&appsv1.Deployment{}, "reports")
	account := until(s, &corev1.ServiceAccountList{}, "reports", "annotated", func(a *corev1.ServiceAccount) bool { return len(a.Annotations) > 0 })
	if d := cmp.Diff(map[string]string{"scripted.example/identity": "reports"}, account.Annotations); d != "" {
		t.Errorf("C-89: %s", d)
	}

	s.account.Script(s.project)
	service := s.ready("reports")
	credential := s.asked("reports-storage-credential")
	name, err := v1alpha1.BucketName("acme", s.project, "reports")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"bucket": name, "identity": service.Status.Identity.Identity, "secretName": "reports-cloud-storage"}
	if d := cmp.Diff(want, credential.Spec.Parameters); d != "" || credential.Spec.CredentialGeneration != 1 {
		t.Errorf("C-76: generation %d\n%s", credential.Spec.CredentialGeneration, d)
	}
	os := service.Status.ObjectStorage
	if os.Phase != v1alpha1.PhaseProvisioned || os.Bucket != name || os.Location != "Nowhere-1" || os.Endpoint != scripted.Endpoint || service.Status.Detail != "" {
		t.Errorf("C-107: status is %+v, %+v", service.Status, os)
	}
	// C-6: what the instances read is what the provider wrote.
	d := get(s, "reports", &appsv1.Deployment{})
	env := envOf(d)
	for v, value := range map[string]string{"ANKKA_S3_ENDPOINT": scripted.Endpoint, "ANKKA_S3_REGION": "Nowhere-1", "ANKKA_S3_BUCKET": name} {
		if env[v].Value != value {
			t.Errorf("%s is %q, not %q", v, env[v].Value, value)
		}
	}
	secret := get(s, "reports-cloud-storage", &corev1.Secret{})
	for _, v := range []string{"ANKKA_S3_ACCESS_KEY", "ANKKA_S3_SECRET_KEY"} {
		ref := env[v].ValueFrom.SecretKeyRef
		if ref.Name != secret.Name || len(secret.Data[ref.Key]) == 0 {
			t.Errorf("C-6: %s comes from %v", v, ref)
		}
	}
	if !s.account.Reaches(string(secret.Data["ANKKA_S3_ACCESS_KEY"]), string(secret.Data["ANKKA_S3_SECRET_KEY"]), name) {
		t.Error("C-6: the credential does not open the bucket")
	}
	for _, o := range []any{service, d, credential, bucket, account} {
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range secret.Data {
			if strings.Contains(string(raw), string(value)) {
				t.Errorf("%s is in %T", key, o)
			}
		}
	}
	// C-7: it is not the operator's to read.
	operator := ankkatest.Connect(t, s.w.As(t, ankkatest.Operator))
	if err := operator.Get(t.Context(), s.key(secret.Name), &corev1.Secret{}); !apierrors.IsForbidden(err) {
		t.Errorf("C-7: the operator gets the Secret: %v", err)
	}
	if d.Spec.Template.Annotations[v1alpha1.AnnotationCredentialGeneration] != "1" || d.Spec.Template.Spec.ServiceAccountName != "reports" {
		t.Errorf("template is %+v", d.Spec.Template)
	}
}

// C-4: all that the operator ever does to requests is to write their spec, in
// the project's namespace; C-94: whatever is re-applied, touched and restarted,
// one credential is issued.
func TestFlood_C4_C94_C95(t *testing.T) {
	s := newStage(t, nil)
	start := s.provide()
	stop := start()
	s.operate()
	s.describe("reports", storage)
	s.ready("reports")
	for i := range 100 {
		s.describe("reports", func(spec *v1alpha1.AnkkaServiceSpec) {
			storage(spec)
			spec.Generation = int64(i + 2)
		})
		for _, suffix := range []string{"identity", "bucket", "storage-credential"} {
			touch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"touched":"`+strings.Repeat("x", i+1)+`"}}}`))
			if err := s.admin.Patch(t.Context(), &v1alpha1.CloudResource{ObjectMeta: metav1.ObjectMeta{Name: "reports-" + suffix, Namespace: s.ns}}, touch); err != nil {
				t.Fatal(err)
			}
		}
		if i%33 == 10 {
			s.stop()
			s.operate()
		}
		if i%50 == 30 {
			stop()
			stop = start()
		}
	}
	s.service("reports", "at the last description", func(st v1alpha1.AnkkaServiceStatus) bool {
		return st.Generation == 101 && st.Lifecycle == v1alpha1.LifecycleReady
	})
	if n := s.issued(); n != 1 {
		t.Errorf("%d credentials were issued", n)
	}
	if g := s.asked("reports-storage-credential").Generation; g != 1 {
		t.Errorf("the request is of generation %d though nothing else was asked", g)
	}
	if g := get(s, "reports", &appsv1.Deployment{}).Generation; g != 1 {
		t.Errorf("the Deployment is of generation %d though nothing of what runs changed", g)
	}
	for _, c := range s.audit.all() {
		method, path, _ := strings.Cut(c, " ")
		if !strings.Contains(path, "/cloudresources") || method == "GET" {
			continue
		}
		if method != "PATCH" || strings.HasSuffix(path, "/status") || !strings.Contains(path, "/namespaces/"+s.ns+"/") {
			t.Errorf("C-4: %s", c)
		}
	}
}

func TestUnanswered_C112_C113_C114_C146(t *testing.T) {
	const bound = 3 * time.Second
	s := newStage(t, func(c *cloud.Settings) { c.AcknowledgementBound = bound })
	start := s.provide()
	s.operate()
	s.describe("reports", storage)
	asked := s.asked("reports-bucket").CreationTimestamp.Time
	want := "no provider for " + s.settings.Provider + " has answered"
	said := s.service("reports", "said to be unanswered", func(st v1alpha1.AnkkaServiceStatus) bool {
		return st.ObjectStorage != nil && st.ObjectStorage.Detail == want
	})
	now := time.Now()
	if now.Before(asked.Add(bound)) {
		t.Errorf("C-113: said after %v", now.Sub(asked))
	}
	if now.After(asked.Add(coarse + bound + 3*time.Second)) {
		t.Errorf("C-112: said only after %v", now.Sub(asked))
	}
	if said.Status.Lifecycle != v1alpha1.LifecycleUpdateInProgress || said.Status.Detail != "object storage: "+want {
		t.Errorf("status is %+v", said.Status)
	}
	stop := start()
	s.ready("reports")

	// C-146: the bound holds for a later generation just so, and what runs goes
	// on.
	stop()
	before := get(s, "reports", &appsv1.Deployment{}).Generation
	s.describe("reports", func(spec *v1alpha1.AnkkaServiceSpec) {
		storage(spec)
		spec.ObjectStorageVersioning = true
	})
	s.service("reports", "waiting for generation 2", func(st v1alpha1.AnkkaServiceStatus) bool {
		return st.ObjectStorage.Detail == "waiting on the provider for generation 2"
	})
	raised := v1alpha1.AskedAt(s.asked("reports-bucket"))
	st := s.service("reports", "said to be unanswered again", func(st v1alpha1.AnkkaServiceStatus) bool { return st.ObjectStorage.Detail == want }).Status
	if now := time.Now(); now.Before(raised.Add(bound)) || st.ReadyInstances != 1 || get(s, "reports", &appsv1.Deployment{}).Generation != before {
		t.Errorf("C-146: said after %v, with %d instances", now.Sub(raised), st.ReadyInstances)
	}
	start()
	s.ready("reports")
}

// C-114: from the answer to the status is a watch's way: nothing else looks again
// within the hours that a resync takes. `make bench` measures it.
func TestRecoversAtOnce_C114(t *testing.T) {
	s := newStage(t, func(c *cloud.Settings) { c.AcknowledgementBound = time.Second })
	s.operate()
	s.describe("reports", storage)
	s.service("reports", "said to be unanswered", func(st v1alpha1.AnkkaServiceStatus) bool {
		return st.ObjectStorage != nil && strings.HasPrefix(st.ObjectStorage.Detail, "no provider")
	})
	for _, r := range []string{"reports-identity", "reports-bucket"} {
		s.answer(r, func(st *v1alpha1.CloudResourceStatus) {
			st.Phase, st.Detail = v1alpha1.PhaseWaiting, "it is being made"
		})
	}
	s.service("reports", "with the provider's words", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Detail == "object storage: it is being made" })
}

// C-92: a Ready at generation 1, while 2 is asked for, changes nothing.
func TestStaleAnswer_C92_C110(t *testing.T) {
	s := newStage(t, nil)
	s.operate()
	s.describe("reports", storage)
	s.answerAll("reports", 1)
	s.ready("reports")
	before := get(s, "reports", &appsv1.Deployment{})

	s.describe("reports", func(spec *v1alpha1.AnkkaServiceSpec) {
		storage(spec)
		spec.ObjectStorageVersioning, spec.Image = true, "registry.example.com/reports:2"
	})
	until(s, &v1alpha1.CloudResourceList{}, "reports-bucket", "asked anew", func(r *v1alpha1.CloudResource) bool { return r.Generation == 2 })
	st := s.service("reports", "waiting anew", func(st v1alpha1.AnkkaServiceStatus) bool {
		return st.ObjectStorage.Phase == v1alpha1.PhaseWaiting
	}).Status
	if st.ObjectStorage.Bucket != "" || st.Detail != "object storage: waiting on the provider for generation 2" {
		t.Errorf("status is %+v, %+v", st, st.ObjectStorage)
	}
	// An old answer is written once more: it is one to generation 1 still.
	s.answer("reports-bucket", func(st *v1alpha1.CloudResourceStatus) {
		st.ObservedGeneration, st.ProviderVersion = 1, "late 1"
		st.Outputs = map[string]string{"bucket": "another", "endpoint": "https://s3.example", "region": "r1"}
	})
	// The pass that this woke is over once a later one, of another field, is
	// seen.
	s.describe("reports", func(spec *v1alpha1.AnkkaServiceSpec) {
		storage(spec)
		spec.ObjectStorageVersioning, spec.Image, spec.Generation = true, "registry.example.com/reports:2", 3
	})
	s.service("reports", "seen", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Generation == 3 })
	if after := get(s, "reports", &appsv1.Deployment{}); after.Generation != before.Generation {
		t.Errorf("C-92, C-110: what runs was changed: %s", cmp.Diff(before.Spec, after.Spec))
	}
	if got := s.asked("reports-storage-credential").Spec.Parameters["bucket"]; got != "acme-reports" {
		t.Errorf("C-92: the credential is asked for bucket %q", got)
	}
	s.answer("reports-bucket", func(st *v1alpha1.CloudResourceStatus) {
		st.Outputs = map[string]string{"bucket": "acme-reports", "endpoint": "https://s3.example", "region": "r1"}
	})
	s.deployment("reports", "replaced", func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Spec.Containers[0].Image == "registry.example.com/reports:2"
	})
}

func TestRotation_C127_C128_C129_C130_C142(t *testing.T) {
	s := newStage(t, nil)
	start := s.provide()
	stop := start()
	s.operate()
	described := func(spec *v1alpha1.AnkkaServiceSpec) { storage(spec) }
	s.describe("reports", described)
	s.ready("reports")
	before := get(s, "reports", &appsv1.Deployment{})
	stop()

	raise := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"storageCredentialGeneration":2}}`))
	if err := s.admin.Patch(t.Context(), &v1alpha1.AnkkaService{ObjectMeta: metav1.ObjectMeta{Name: "reports", Namespace: s.ns}}, raise, client.FieldOwner("a-member")); err != nil {
		t.Fatal(err)
	}
	until(s, &v1alpha1.CloudResourceList{}, "reports-storage-credential", "asked for generation 2", func(r *v1alpha1.CloudResource) bool { return r.Spec.CredentialGeneration == 2 })
	s.service("reports", "waiting for generation 2", func(st v1alpha1.AnkkaServiceStatus) bool {
		return st.StorageCredential.Phase == v1alpha1.PhaseWaiting
	})
	// C-130, C-142: the control plane says again what it says, and the
	// generation stays.
	if got := s.describe("reports", described).Spec.StorageCredentialGeneration; got == nil || *got != 2 {
		t.Errorf("C-130: a re-projection made the generation %v", got)
	}
	// C-127: asked for, and not in place.
	if g := get(s, "reports", &appsv1.Deployment{}); g.Generation != before.Generation {
		t.Errorf("C-127: the template was changed before the credential was in place: %s", cmp.Diff(before.Spec.Template, g.Spec.Template))
	}
	start()
	s.service("reports", "running with generation 2", func(st v1alpha1.AnkkaServiceStatus) bool {
		return st.Lifecycle == v1alpha1.LifecycleReady && st.StorageCredential.Generation == 2 && st.StorageCredential.ReportedAt != nil
	})
	after := get(s, "reports", &appsv1.Deployment{})
	want := before.Spec.DeepCopy()
	want.Template.Annotations[v1alpha1.AnnotationCredentialGeneration] = "2"
	if d := cmp.Diff(*want, after.Spec); d != "" {
		t.Errorf("C-129: more than the generation changed: %s", d)
	}
	// C-128: other instances.
	var sets appsv1.ReplicaSetList
	if err := s.admin.List(t.Context(), &sets, client.InNamespace(s.ns)); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range sets.Items {
		seen[r.Spec.Template.Annotations[v1alpha1.AnnotationCredentialGeneration]] = true
	}
	if d := cmp.Diff(map[string]bool{"1": true, "2": true}, seen); d != "" {
		t.Errorf("C-128: ReplicaSets by generation: %s", d)
	}
	if live := s.account.Live(s.project); len(live) < 1 {
		t.Errorf("live credentials: %v", live)
	}
}

// C-140: a refused bucket starts nothing and stops nothing.
func TestRefused_C140(t *testing.T) {
	s := newStage(t, nil)
	s.provide()()
	const words = "the name is held by another customer of the cloud"
	s.account.Script(s.project, scripted.Script{Op: scripted.OpEnsureBucket, Phase: v1alpha1.PhaseFailed, Text: words})
	s.operate()
	s.describe("reports", storage)
	st := s.service("reports", "Failed", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Lifecycle == v1alpha1.LifecycleFailed }).Status
	if st.Detail != "object storage: "+words || st.ObjectStorage.Phase != v1alpha1.PhaseFailed || st.ObjectStorage.Detail != words {
		t.Errorf("status is %+v, %+v", st, st.ObjectStorage)
	}
	for _, name := range []string{"reports-bucket", "reports-identity"} {
		if strings.Contains(st.Detail, name) {
			t.Errorf("C-109: %q names the request", st.Detail)
		}
	}
	s.absent(&appsv1.Deployment{}, "reports")
	// Something that its user can act on is an event too.
	until(s, &eventsv1.EventList{}, s.event("Failed"), "told", func(e *eventsv1.Event) bool {
		return e.Type == corev1.EventTypeWarning && e.Note == st.Detail && e.Regarding.Name == "reports"
	})

	// One that runs goes on running, as it is.
	s.account.Script(s.project)
	s.ready("reports")
	before := get(s, "reports", &appsv1.Deployment{})
	s.account.Script(s.project, scripted.Script{Op: scripted.OpEnsureBucket, Phase: v1alpha1.PhaseFailed, Text: words})
	s.describe("reports", func(spec *v1alpha1.AnkkaServiceSpec) {
		storage(spec)
		spec.ObjectStorageVersioning, spec.Image = true, "registry.example.com/reports:2"
	})
	st = s.service("reports", "Failed again", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Lifecycle == v1alpha1.LifecycleFailed }).Status
	after := get(s, "reports", &appsv1.Deployment{})
	if after.Generation != before.Generation || st.ReadyInstances != 1 {
		t.Errorf("C-140: what runs was changed, %d ready: %s", st.ReadyInstances, cmp.Diff(before.Spec, after.Spec))
	}
	// What its owner wants stopped is stopped all the same.
	s.describe("reports", func(spec *v1alpha1.AnkkaServiceSpec) {
		storage(spec)
		spec.ObjectStorageVersioning, spec.Paused, spec.Image = true, true, "registry.example.com/reports:2"
	})
	paused := s.deployment("reports", "paused", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 0 })
	if d := cmp.Diff(before.Spec.Template, paused.Spec.Template); d != "" {
		t.Errorf("pausing changed the template: %s", d)
	}
}

// C-11, C-12: without a provider no request is written, nor even read.
func TestNoProvider_C11_C12(t *testing.T) {
	s := newStage(t, func(c *cloud.Settings) { *c = cloud.Settings{Provider: cloud.None} })
	s.operate()
	s.describeProject(func(p *v1alpha1.AnkkaProjectSpec) {
		p.Secrets = []v1alpha1.ProjectSecret{{Name: "checkout", Entries: []string{"KEY"}, EntryGeneration: 3}}
		p.Backups, p.Keyring = true, true
	})
	port := int32(9000)
	s.describe("plain", nil)
	s.describe("web", func(spec *v1alpha1.AnkkaServiceSpec) { spec.HTTP, spec.Port = true, &port })
	s.describe("secret", func(spec *v1alpha1.AnkkaServiceSpec) {
		spec.Env = []v1alpha1.EnvVar{{Name: "KEY", SecretName: "checkout", SecretKey: "KEY"}}
	})
	s.describe("own", func(spec *v1alpha1.AnkkaServiceSpec) {
		spec.Env = []v1alpha1.EnvVar{{Name: "ANKKA_S3_BUCKET", Value: "mine"}}
	})
	s.describe("bucket", storage)
	for _, name := range []string{"plain", "web", "secret", "own"} {
		st := s.ready(name).Status
		if st.Identity != nil || st.SecretAccess != nil || st.ProjectSecrets != nil || st.StorageCredential != nil {
			t.Errorf("%s: status is %+v", name, st)
		}
	}
	if got := get(s, "own", &v1alpha1.AnkkaService{}).Status.ObjectStorage; got == nil || got.Phase != v1alpha1.PhaseSupplied {
		t.Errorf("own: %+v", got)
	}
	refused := s.service("bucket", "refused", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Lifecycle == v1alpha1.LifecycleFailed })
	if !strings.Contains(refused.Status.Detail, "the installation has none") {
		t.Errorf("bucket: %q", refused.Status.Detail)
	}
	if ref := envOf(get(s, "secret", &appsv1.Deployment{}))["KEY"].ValueFrom.SecretKeyRef; ref.Name != "checkout" {
		t.Errorf("C-12: the project secret is taken from %s", ref.Name)
	}
	until(s, &v1alpha1.AnkkaProjectList{}, s.project, "Ready", func(p *v1alpha1.AnkkaProject) bool { return p.Status.Lifecycle == v1alpha1.LifecycleReady })
	var list v1alpha1.CloudResourceList
	if err := s.admin.List(t.Context(), &list, client.InNamespace(s.ns)); err != nil || len(list.Items) > 0 {
		t.Errorf("C-11: %d requests, %v", len(list.Items), err)
	}
	for _, c := range s.audit.all() {
		if strings.Contains(c, "cloudresources") {
			t.Errorf("C-11: %s", c)
		}
	}
}

// What has a service's name and is not the service's is left alone, and nothing
// is asked beside it.
func TestNameIsTaken_C143(t *testing.T) {
	s := newStage(t, nil)
	adopted := deploymentOf(s.ns, "reports", "its-own", map[string]string{"radapp.io/enabled": "true"})
	if err := s.admin.Create(t.Context(), adopted); err != nil {
		t.Fatal(err)
	}
	s.operate()
	s.describe("reports", storage)
	st := s.service("reports", "refused", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Lifecycle == v1alpha1.LifecycleFailed }).Status
	if !strings.Contains(st.Detail, "a Deployment of that name is there already") {
		t.Errorf("detail is %q", st.Detail)
	}
	s.absent(&v1alpha1.CloudResource{}, "reports-identity")
	s.absent(&corev1.ServiceAccount{}, "reports")
	if after := get(s, "reports", &appsv1.Deployment{}); after.Generation != adopted.Generation || len(after.Labels) != len(adopted.Labels) {
		t.Errorf("the Deployment was changed: %+v", after.ObjectMeta)
	}
	// Once it has gone the service is served: at once, since its end wakes.
	if err := s.admin.Delete(t.Context(), adopted); err != nil {
		t.Fatal(err)
	}
	s.asked("reports-identity")

	// A Recipe's request under the service's name is not the service's either.
	recipe := &v1alpha1.CloudResource{
		ObjectMeta: metav1.ObjectMeta{Name: "orders-bucket", Namespace: s.ns, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "radapp.io/v1alpha3", Kind: "Recipe", Name: "orders", UID: "11111111-2222-3333-4444-555555555555", Controller: new(true)}}},
		Spec: v1alpha1.CloudResourceSpec{Provider: s.settings.Provider, Kind: v1alpha1.KindBucket, Subject: v1alpha1.Subject{Project: s.project, Service: "orders"},
			Parameters: map[string]string{"purpose": "service"}},
	}
	// Its owner does not exist and the garbage collector would take it: held.
	recipe.Finalizers = []string{"example.com/held"}
	if err := s.admin.Create(t.Context(), recipe); err != nil {
		t.Fatal(err)
	}
	s.describe("orders", storage)
	st = s.service("orders", "refused", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Lifecycle == v1alpha1.LifecycleFailed }).Status
	if !strings.Contains(st.Detail, "is there already") {
		t.Errorf("detail is %q", st.Detail)
	}
	s.absent(&v1alpha1.CloudResource{}, "orders-identity")
}

// C-141: whoever writes an AnkkaService by hand gets no further than a
// descriptor does.
func TestReservedNames_C28_C141(t *testing.T) {
	s := newStage(t, nil)
	s.operate()
	for name, env := range map[string]v1alpha1.EnvVar{
		"storage": {Name: "KEY", SecretName: "reports-cloud-storage", SecretKey: "ANKKA_S3_SECRET_KEY"},
		"synced":  {Name: "KEY", SecretName: "checkout-cloud-secret", SecretKey: "KEY"},
		"cloud":   {Name: "ANKKA_CLOUD_ACCOUNT", Value: "mine"},
	} {
		s.describe(name, func(spec *v1alpha1.AnkkaServiceSpec) { spec.Env = []v1alpha1.EnvVar{env} })
		s.service(name, "refused", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Lifecycle == v1alpha1.LifecycleFailed })
		s.absent(&appsv1.Deployment{}, name)
	}
}

// What a descriptor stops asking for goes, and what others change comes back.
func TestWhatRunsFollowsTheDescriptor(t *testing.T) {
	s := newStage(t, func(c *cloud.Settings) { *c = cloud.Settings{Provider: cloud.None} })
	s.operate()
	two, four := int32(2), int32(4)
	s.describe("web", func(spec *v1alpha1.AnkkaServiceSpec) {
		spec.HTTP = true
		spec.Resources = &v1alpha1.ServiceResources{CPU: "100m", Memory: "64Mi", Autoscaling: &v1alpha1.Autoscaling{MinInstances: &two, MaxInstances: &four}}
	})
	st := s.ready("web").Status
	if st.ReadyInstances != 2 || st.DesiredInstances != 2 {
		t.Errorf("status is %+v", st)
	}
	until(s, &autoscalingv2.HorizontalPodAutoscalerList{}, "web", "there", func(h *autoscalingv2.HorizontalPodAutoscaler) bool {
		return *h.Spec.MinReplicas == 2 && h.Spec.MaxReplicas == 4
	})
	front := until(s, &corev1.ServiceList{}, "web", "there", func(*corev1.Service) bool { return true })
	if front.Spec.Ports[0].TargetPort.StrVal != "http" {
		t.Errorf("Service is %+v", front.Spec)
	}
	// Somebody's hand on the template is taken back.
	hand := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"labels":{"ankka.thinkmorestupidless.com/service":"web"}},"spec":{"serviceAccountName":"default"}}}}`))
	if err := s.admin.Patch(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: s.ns}}, hand); err != nil {
		t.Fatal(err)
	}
	s.deployment("web", "its own again", func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Spec.ServiceAccountName == "web" && d.Generation > 2
	})
	// The autoscaler's number is kept.
	scale := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`))
	if err := s.admin.Patch(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: s.ns}}, scale); err != nil {
		t.Fatal(err)
	}
	s.service("web", "at three", func(st v1alpha1.AnkkaServiceStatus) bool {
		return st.ReadyInstances == 3 && st.Lifecycle == v1alpha1.LifecycleReady
	})
	s.describe("web", nil)
	s.gone(&corev1.ServiceList{}, "web")
	s.gone(&autoscalingv2.HorizontalPodAutoscalerList{}, "web")
	s.deployment("web", "at one", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 1 })

	s.describe("web", func(spec *v1alpha1.AnkkaServiceSpec) { spec.Paused = true })
	st = s.service("web", "paused", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Lifecycle == v1alpha1.LifecyclePaused }).Status
	if st.ReadyInstances != 0 {
		t.Errorf("paused, with %d instances", st.ReadyInstances)
	}
	s.describe("web", func(spec *v1alpha1.AnkkaServiceSpec) { spec.Restarts = 1 })
	s.ready("web")
	first := get(s, "web", &appsv1.Deployment{}).Spec.Template.Annotations
	s.describe("web", func(spec *v1alpha1.AnkkaServiceSpec) { spec.Restarts = 2 })
	s.deployment("web", "restarted", func(d *appsv1.Deployment) bool { return !maps.Equal(first, d.Spec.Template.Annotations) })
}

// A service that is deleted and described again under its name finds what it
// had: its bucket, and the Secret that stayed.
func TestDescribedAgain_C59_C60_C99_C106_C118_C119(t *testing.T) {
	s := newStage(t, nil)
	s.provide()()
	s.operate()
	first := s.describe("reports", storage)
	s.ready("reports")
	bucket := s.asked("reports-bucket").Status.Outputs["bucket"]
	secret := get(s, "reports-cloud-storage", &corev1.Secret{})
	if err := s.admin.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	again := s.describe("reports", storage)
	if again.UID == first.UID {
		t.Fatal("it is the same object")
	}
	s.service("reports", "waiting for its predecessor", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Lifecycle == v1alpha1.LifecycleUpdateInProgress })
	st := s.ready("reports").Status
	if o := st.ObjectStorage; o.Phase != v1alpha1.PhaseRecovered || !o.Recovered || o.Bucket != bucket {
		t.Errorf("C-99: object storage is %+v, and was %s", o, bucket)
	}
	for _, suffix := range []string{"identity", "bucket", "storage-credential"} {
		if c := metav1.GetControllerOf(s.asked("reports-" + suffix)); c.UID != again.UID {
			t.Errorf("C-59: %s is still the predecessor's", suffix)
		}
	}
	if now := get(s, "reports-cloud-storage", &corev1.Secret{}); now.UID != secret.UID || !maps.EqualFunc(now.Data, secret.Data, func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Error("C-106, C-118: the Secret is another")
	}
	if !s.account.Reaches(string(secret.Data["ANKKA_S3_ACCESS_KEY"]), string(secret.Data["ANKKA_S3_SECRET_KEY"]), bucket) {
		t.Error("C-60: the credential in the Secret was ended")
	}
}

// Every third write of the operator is refused before it is carried out and
// every third loses its answer: it comes to the same, once.
func TestLostWrites_C94_C95(t *testing.T) {
	s := newStage(t, func(c *cloud.Settings) { c.ProjectSecrets = true })
	s.provide()()
	s.audit.faulty = true
	s.operate()
	s.describeProject(func(p *v1alpha1.AnkkaProjectSpec) {
		p.Secrets = []v1alpha1.ProjectSecret{{Name: "checkout", Entries: []string{"KEY"}, EntryGeneration: 1}}
	})
	s.describe("reports", func(spec *v1alpha1.AnkkaServiceSpec) {
		storage(spec)
		spec.HTTP = true
		spec.Env = []v1alpha1.EnvVar{{Name: "KEY", SecretName: "checkout", SecretKey: "KEY"}}
	})
	s.ready("reports")
	if n := s.issued(); n != 1 {
		t.Errorf("%d credentials were issued", n)
	}
	for _, suffix := range []string{"identity", "bucket", "storage-credential", "secret-access"} {
		if g := s.asked("reports-" + suffix).Generation; g != 1 {
			t.Errorf("%s is of generation %d", suffix, g)
		}
	}
	if g := get(s, "reports", &appsv1.Deployment{}).Generation; g != 1 {
		t.Errorf("the Deployment is of generation %d", g)
	}
	if s.audit.faults == 0 {
		t.Error("no write was lost")
	}
}
