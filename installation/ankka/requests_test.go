package ankka_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
)

// owner makes the service that requests are for, as the control plane would.
func owner(t *testing.T, w *ankkatest.World, name string) *v1alpha1.AnkkaService {
	t.Helper()
	s := &v1alpha1.AnkkaService{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.Namespace(project)},
		Spec:       v1alpha1.AnkkaServiceSpec{ProjectID: project, ServiceName: name, Generation: 1, Image: "registry.test/" + name},
	}
	if err := w.Admin.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func ask(s *v1alpha1.AnkkaService, kind string) *unstructured.Unstructured {
	name, err := v1alpha1.RequestName(v1alpha1.Subject{Project: project, Service: s.Name}, kind, "")
	if err != nil {
		name = s.Name + "-" + kind
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.CloudResourceKind,
		"metadata": map[string]any{
			"name": name, "namespace": s.Namespace,
			"ownerReferences": []any{map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.AnkkaServiceKind,
				"name": s.Name, "uid": string(s.UID), "controller": true, "blockOwnerDeletion": true}},
		},
		"spec": map[string]any{
			"provider": "scripted", "kind": kind,
			"subject":    map[string]any{"project": project, "service": s.Name},
			"parameters": map[string]any{"serviceAccount": s.Name},
		},
	}}
	if kind == v1alpha1.KindBucketCredential {
		u.Object["spec"].(map[string]any)["credentialGeneration"] = int64(1)
	}
	return u
}

func apply(ctx context.Context, k client.Client, u *unstructured.Unstructured, opts ...client.ApplyOption) error {
	u = u.DeepCopy()
	return k.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), append([]client.ApplyOption{client.FieldOwner(v1alpha1.FieldManagerOperator), client.ForceOwnership}, opts...)...)
}

// What the API server itself refuses of a request, and what it leaves to the
// provider to refuse in words.
func TestRequests_Schema_C53_C54_C61_C101(t *testing.T) {
	w := cluster(t)
	operator := ankkatest.Connect(t, w.As(t, operatorUser))
	s := owner(t, w, "schema")
	set := func(kind string, at string, v any) *unstructured.Unstructured {
		u := ask(s, kind)
		if v == nil {
			unstructured.RemoveNestedField(u.Object, strings.Split(at, ".")...)
		} else if err := unstructured.SetNestedField(u.Object, v, strings.Split(at, ".")...); err != nil {
			t.Fatal(err)
		}
		return u
	}
	for _, c := range []struct {
		rule string
		u    *unstructured.Unstructured
		want string // in the refusal; empty is taken
	}{
		{"C-54", ask(s, v1alpha1.KindIdentity), ""},
		{"C-54", ask(s, v1alpha1.KindBucketCredential), ""},
		{"C-101", ask(s, "a-kind-of-tomorrow"), ""},
		{"C-74", set(v1alpha1.KindIdentity, "spec.parameters.colour", "blue"), ""},
		{"C-61", set(v1alpha1.KindIdentity, "spec.parameters.n", int64(1)), "string"},
		{"C-61", set(v1alpha1.KindIdentity, "spec.parameters.b", true), "string"},
		{"C-61", set(v1alpha1.KindIdentity, "spec.parameters.l", []any{"a"}), "string"},
		{"C-54", set(v1alpha1.KindIdentity, "spec.colour", "blue"), "colour"},
		{"C-54", set(v1alpha1.KindIdentity, "spec.provider", nil), "provider"},
		{"C-54", set(v1alpha1.KindIdentity, "spec.kind", nil), "kind"},
		{"C-54", set(v1alpha1.KindIdentity, "spec.subject", nil), "subject"},
		{"C-54", set(v1alpha1.KindIdentity, "spec.credentialGeneration", int64(1)), "credentialGeneration is for kind bucket-credential alone"},
		{"C-54", set(v1alpha1.KindBucketCredential, "spec.credentialGeneration", nil), "needs a credentialGeneration"},
		{"C-54", set(v1alpha1.KindBucketCredential, "spec.credentialGeneration", "1"), "numeric"},
		{"C-57", set(v1alpha1.KindIdentity, "metadata.name", "schema.identity"), "without a dot"},
		{"C-57", set(v1alpha1.KindIdentity, "spec.subject.service", nil), "without a dot"},
	} {
		err := apply(t.Context(), operator, c.u, client.DryRunAll)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", c.rule, err, c.want)
		}
	}
	// For good, and never falling.
	u := ask(s, v1alpha1.KindBucketCredential)
	u.Object["spec"].(map[string]any)["credentialGeneration"] = int64(3)
	if err := apply(t.Context(), operator, u); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(map[string]any){
		"one kind for good":                func(m map[string]any) { m["kind"] = "identity"; delete(m, "credentialGeneration") },
		"one subject for good":             func(m map[string]any) { m["subject"] = map[string]any{"project": project, "service": "other"} },
		"credentialGeneration never falls": func(m map[string]any) { m["credentialGeneration"] = int64(2) },
	} {
		c := u.DeepCopy()
		change(c.Object["spec"].(map[string]any))
		if err := apply(t.Context(), operator, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("C-54: %v; want %q", err, want)
		}
	}
	u.Object["spec"].(map[string]any)["provider"] = "other"
	if err := apply(t.Context(), operator, u); err != nil {
		t.Errorf("an installation that changes its provider: %v", err)
	}
}

// Each side writes its own half, and a status does not raise the generation.
func TestRequests_Halves_C49_C52_C65_C96(t *testing.T) {
	w := cluster(t)
	operator, provider := ankkatest.Connect(t, w.As(t, operatorUser)), ankkatest.Connect(t, w.As(t, providerUser))
	s := owner(t, w, "halves")
	u := ask(s, v1alpha1.KindBucketCredential)
	if err := apply(t.Context(), operator, u); err != nil {
		t.Fatal(err)
	}
	r := &v1alpha1.CloudResource{}
	key := client.ObjectKeyFromObject(u)
	if err := provider.Get(t.Context(), key, r); err != nil {
		t.Fatal(err)
	}
	at := v1alpha1.ReportTime(time.Now())
	full := v1alpha1.CloudResourceStatus{
		ObservedGeneration: 1, Phase: v1alpha1.PhaseReady, Detail: "done", Recovered: true, Account: "acme", Location: "Here", ProviderVersion: "scripted 0.1.0",
		CredentialGeneration: 1, CredentialReportedAt: &at, Outputs: map[string]string{"secretName": "halves-cloud-storage"}, ReportedAt: &at, CheckedAt: &at,
		Credentials: []v1alpha1.CredentialEntry{
			{ID: "k0", Generation: 1, State: v1alpha1.CredentialUnused, Since: at}, {ID: "k1", Generation: 1, State: v1alpha1.CredentialInPlace, Since: at},
			{ID: "k2", State: v1alpha1.CredentialOffered, Since: at}, {ID: "k3", State: v1alpha1.CredentialRetiring, Since: at}},
	}
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseWaiting, v1alpha1.PhaseRecovered, v1alpha1.PhaseFailed, v1alpha1.PhaseReady} {
		r.Status = *full.DeepCopy()
		r.Status.Phase = phase
		if err := provider.Status().Update(t.Context(), r); err != nil {
			t.Fatalf("C-96: %s: %v", phase, err)
		}
	}
	if r.Generation != 1 || r.Status.Phase != v1alpha1.PhaseReady {
		t.Errorf("C-65: generation %d after a status, phase %s", r.Generation, r.Status.Phase)
	}
	if err := operator.Get(t.Context(), key, r); err != nil || !equality.Semantic.DeepEqual(r.Status, full) {
		t.Errorf("C-65: read back %+v, %v; want %+v", r.Status, err, full)
	}
	for _, phase := range []v1alpha1.Phase{"Done", "ready", "Provisioned"} {
		c := r.DeepCopy()
		c.Status.Phase = phase
		if err := provider.Status().Update(t.Context(), c); !apierrors.IsInvalid(err) {
			t.Errorf("C-96: phase %q: %v", phase, err)
		}
	}
	// The claim: who has read an older object writes nothing.
	old := r.DeepCopy()
	r.Status.Detail = "newer"
	if err := provider.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := provider.Status().Update(t.Context(), old); !apierrors.IsConflict(err) {
		t.Errorf("C-93: a stale status is taken: %v", err)
	}
	for what, err := range map[string]error{
		"the operator writes a status":   operator.Status().Patch(t.Context(), r.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Ready"}}`))),
		"the operator deletes a request": operator.Delete(t.Context(), r.DeepCopy()),
		"the provider writes a spec":     provider.Patch(t.Context(), r.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"provider":"x"}}`))),
		"the provider deletes a request": provider.Delete(t.Context(), r.DeepCopy()),
		"the provider asks":              provider.Create(t.Context(), &v1alpha1.CloudResource{ObjectMeta: metav1.ObjectMeta{Name: "x-bucket", Namespace: r.Namespace}}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("C-49 C-50 C-52: %s: %v", what, err)
		}
	}
	// The operator's main path cannot carry a status in.
	c := u.DeepCopy()
	c.Object["status"] = map[string]any{"phase": "Failed"}
	if err := apply(t.Context(), operator, c); err != nil && !apierrors.IsInvalid(err) && !strings.Contains(err.Error(), "status") {
		t.Errorf("C-49: %v", err)
	}
	if err := operator.Get(t.Context(), key, r); err != nil || r.Status.Phase != v1alpha1.PhaseReady {
		t.Errorf("C-49: the operator wrote phase %s, %v", r.Status.Phase, err)
	}
}

// A request goes with its owner; the Secret that its answer is in does not.
func TestRequests_Owner_C58_C59_C106(t *testing.T) {
	w := cluster(t)
	operator, provider := ankkatest.Connect(t, w.As(t, operatorUser)), ankkatest.Connect(t, w.As(t, providerUser))
	s := owner(t, w, "owned")
	u := ask(s, v1alpha1.KindBucketCredential)
	if err := apply(t.Context(), operator, u); err != nil {
		t.Fatalf("C-58: the operator sets an owner that blocks its owner's deletion: %v", err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "owned-cloud-storage", Namespace: s.Namespace}, StringData: map[string]string{v1alpha1.EntryAccessKey: "a"}}
	if err := provider.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	watch, err := w.Admin.Watch(t.Context(), &v1alpha1.CloudResourceList{}, client.InNamespace(s.Namespace), client.MatchingFields{"metadata.name": u.GetName()})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if err := w.Admin.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for end := time.After(limit); ; {
		select {
		case e := <-watch.ResultChan():
			if e.Type == "DELETED" {
				if err := w.Admin.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
					t.Errorf("C-106: the Secret went with the request: %v", err)
				}
				return
			}
		case <-end:
			t.Fatal("C-59: the request outlives its owner")
		}
	}
}

// The generation of a credential is set by a member on the service; the control
// plane applies all else again and again and leaves it alone.
func TestService_CredentialGeneration_C130_C142(t *testing.T) {
	w := cluster(t)
	spec := map[string]any{"projectId": project, "serviceName": "rotated", "generation": int64(1), "image": "registry.test/a"}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.AnkkaServiceKind,
		"metadata": map[string]any{"name": "rotated", "namespace": v1alpha1.Namespace(project)}, "spec": spec}}
	project := func(generation int64) {
		t.Helper()
		spec["generation"] = generation
		err := w.Admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner(v1alpha1.FieldManagerControlPlane), client.ForceOwnership)
		if err != nil {
			t.Fatal(err)
		}
	}
	patch := func(n int) error {
		return w.Admin.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"storageCredentialGeneration":%d}}`, n)))
	}
	project(1)
	s := &v1alpha1.AnkkaService{}
	get := func() int64 {
		t.Helper()
		if err := w.Admin.Get(t.Context(), client.ObjectKeyFromObject(u), s); err != nil {
			t.Fatal(err)
		}
		return s.Spec.CredentialGeneration()
	}
	if got := get(); got != 1 || s.Spec.StorageCredentialGeneration != nil {
		t.Errorf("C-142: absent is %d", got)
	}
	if err := patch(2); err != nil {
		t.Fatal(err)
	}
	for n := range int64(3) {
		project(n + 2)
		if got := get(); got != 2 || s.Spec.Generation != n+2 {
			t.Errorf("C-130: the control plane's apply %d made it %d", s.Spec.Generation, got)
		}
	}
	if err := patch(1); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "never falls") {
		t.Errorf("C-142: falling: %v", err)
	}
}

// What the API server refuses of a service or a project.
func TestServicesAndProjects_Schema(t *testing.T) {
	w := cluster(t)
	ns := v1alpha1.Namespace(project)
	service := func(change map[string]any) *unstructured.Unstructured {
		spec := map[string]any{"projectId": project, "serviceName": "good", "generation": int64(1), "image": "i"}
		maps.Copy(spec, change)
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.AnkkaServiceKind,
			"metadata": map[string]any{"name": "good", "namespace": ns}, "spec": spec}}
	}
	proj := func(id string, change map[string]any) *unstructured.Unstructured {
		spec := map[string]any{"projectId": id}
		maps.Copy(spec, change)
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.AnkkaProjectKind,
			"metadata": map[string]any{"name": id, "namespace": ns}, "spec": spec}}
	}
	env := func(e map[string]any) map[string]any { return map[string]any{"env": []any{e}} }
	for _, c := range []struct {
		u    *unstructured.Unstructured
		want string
	}{
		{service(nil), ""},
		{service(map[string]any{"http": true, "port": int64(8080), "paused": true, "database": "none", "provisionObjectStorage": true, "exposeObjectStorage": true,
			"objectStorageOrigins": []any{"https://a.test"}, "objectStorageVersionAgeDays": int64(30), "objectStorageVersioning": true, "objectStorageSoftDeleteDays": int64(7),
			"storageCredentialGeneration": int64(2), "resources": map[string]any{"cpu": "100m", "memory": "128Mi", "autoscaling": map[string]any{"minInstances": int64(1), "maxInstances": int64(3)}},
			"env": []any{map[string]any{"name": "A", "value": ""}, map[string]any{"name": "B", "secretName": "s", "secretKey": "k"}}}), ""},
		{service(map[string]any{"serviceName": "other"}), "named for its service"},
		{service(map[string]any{"exposeObjectStorage": true}), "needs provisionObjectStorage"},
		{service(map[string]any{"account": "x"}), "account"},
		{service(map[string]any{"storageCredentialGeneration": int64(0)}), "greater than or equal to 1"},
		{service(env(map[string]any{"name": "A", "value": "v", "secretName": "s", "secretKey": "k"})), "a variable has a value, or"},
		{service(env(map[string]any{"name": "A", "secretName": "s"})), "a variable has a value, or"},
		{service(map[string]any{"resources": map[string]any{"autoscaling": map[string]any{"minInstances": int64(3), "maxInstances": int64(2)}}}), "at least minInstances"},
		{proj("good", map[string]any{"organization": "acme", "displayName": "Good", "backups": true, "keyring": true, "backupCredentialGeneration": int64(1),
			"secrets": []any{map[string]any{"name": "stripe", "entries": []any{"KEY"}, "entryGeneration": int64(1)}}}), ""},
		{proj("cloud-provider", nil), "is the platform's"},
		{proj("platform", nil), "is the platform's"},
		{proj(strings.Repeat("p", 58), nil), "57"},
		{proj("good", map[string]any{"secrets": []any{map[string]any{"name": "x-storage"}}}), "are the platform's"},
		{proj("good", map[string]any{"cloudAccount": "x"}), "cloudAccount"},
	} {
		err := w.Admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(c.u), client.FieldOwner("test"), client.DryRunAll)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v; want %q", c.u.Object["spec"], err, c.want)
		}
	}
}

// Which Secrets a provider may write, and that nobody else is held to it.
func TestSecretsPolicy_C145(t *testing.T) {
	w := cluster(t)
	ns := v1alpha1.Namespace(project)
	c := w.As(t, providerUser)
	provider := ankkatest.Connect(t, c)
	both := map[string][]byte{v1alpha1.EntryAccessKey: []byte("a"), v1alpha1.EntrySecretKey: []byte("canary-value")}
	secret := func(namespace, name string, change func(*corev1.Secret)) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: maps.Clone(both)}
		if change != nil {
			change(s)
		}
		return s
	}
	always := true
	for _, tc := range []struct {
		name string
		s    *corev1.Secret
		ok   bool
	}{
		{"a storage credential", secret(ns, "reports-cloud-storage", nil), true},
		{"a backup's credential", secret(ns, "shop.backup-cloud-storage", nil), true},
		{"a synced secret", secret(ns, "stripe-cloud-secret", func(s *corev1.Secret) { s.Data["ANY"] = nil }), true},
		{"annotated with the credential's id", secret(ns, "a-cloud-storage", func(s *corev1.Secret) { s.Annotations = map[string]string{v1alpha1.AnnotationCredentialID: "k"} }), true},
		{"any other name", secret(ns, "reports", nil), false},
		{"a project secret kept in the cluster", secret(ns, "stripe", nil), false},
		{"a name that only starts so", secret(ns, "x-cloud-storage-x", nil), false},
		{"a made-up name", secret(ns, "", func(s *corev1.Secret) { s.GenerateName = "x-cloud-storage" }), false},
		{"in the platform's namespace", secret(v1alpha1.PlatformNamespace, "x-cloud-storage", nil), false},
		{"in its own namespace", secret(v1alpha1.ProviderNamespace, "x-cloud-storage", nil), false},
		{"in no project's namespace", secret("kube-system", "x-cloud-storage", nil), false},
		{"in the default namespace", secret("default", "x-cloud-storage", nil), false},
		{"a ServiceAccount's token", secret(ns, "x-cloud-storage", func(s *corev1.Secret) {
			s.Type, s.Annotations = corev1.SecretTypeServiceAccountToken, map[string]string{corev1.ServiceAccountNameKey: "default"}
		}), false},
		{"another type", secret(ns, "x-cloud-storage", func(s *corev1.Secret) { s.Type = "example.test/other" }), false},
		{"another entry", secret(ns, "x-cloud-storage", func(s *corev1.Secret) { s.Data["OTHER"] = []byte("x") }), false},
		{"owned", secret(ns, "x-cloud-storage", func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}}
		}), false},
		{"with a finalizer", secret(ns, "x-cloud-storage", func(s *corev1.Secret) { s.Finalizers = []string{"example.test/x"} }), false},
		{"immutable", secret(ns, "x-cloud-storage", func(s *corev1.Secret) { s.Immutable = &always }), false},
	} {
		err := provider.Create(t.Context(), tc.s.DeepCopy(), client.DryRunAll)
		if tc.ok && err != nil || !tc.ok && (!apierrors.IsForbidden(err) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("C-145: %s: %v", tc.name, err)
		}
		if !tc.ok && tc.s.Name != "" && tc.s.Type == "" && tc.s.OwnerReferences == nil {
			if err := w.Admin.Create(t.Context(), tc.s.DeepCopy(), client.DryRunAll); err != nil {
				t.Errorf("C-145: %s is refused to an administrator too: %v", tc.name, err)
			}
		}
	}

	// What is there already, with something of somebody else's in it.
	there := secret(ns, "there-cloud-storage", func(s *corev1.Secret) {
		s.Data = map[string][]byte{v1alpha1.EntryAccessKey: []byte("old"), "THEIRS": []byte("canary-theirs")}
		s.Labels = map[string]string{"theirs": "yes"}
	})
	other := secret(ns, "database", nil)
	for _, s := range []*corev1.Secret{there, other} {
		if err := w.Admin.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		secret, patch string
		ok            bool
	}{
		"both entries":        {"there-cloud-storage", `{"data":{"ANKKA_S3_ACCESS_KEY":"Yg==","ANKKA_S3_SECRET_KEY":"Yw=="}}`, true},
		"and the id":          {"there-cloud-storage", `{"metadata":{"annotations":{"ankka.thinkmorestupidless.com/credential-id":"k2"}},"data":{"ANKKA_S3_ACCESS_KEY":"Yg=="}}`, true},
		"theirs":              {"there-cloud-storage", `{"data":{"THEIRS":"Yg=="}}`, false},
		"theirs away":         {"there-cloud-storage", `{"data":{"THEIRS":null}}`, false},
		"all away":            {"there-cloud-storage", `{"data":null}`, false},
		"one more":            {"there-cloud-storage", `{"data":{"MORE":"Yg=="}}`, false},
		"one more as text":    {"there-cloud-storage", `{"stringData":{"MORE":"x"}}`, false},
		"an owner":            {"there-cloud-storage", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`, false},
		"a finalizer":         {"there-cloud-storage", `{"metadata":{"finalizers":["example.test/x"]}}`, false},
		"immutable":           {"there-cloud-storage", `{"immutable":true}`, false},
		"another's Secret":    {"database", `{"data":{"ANKKA_S3_ACCESS_KEY":"Yg=="}}`, false},
		"another's, unharmed": {"database", `{}`, false},
	} {
		code, text := request(t, c, http.MethodPatch, "/api/v1/namespaces/"+ns+"/secrets/"+tc.secret+"?dryRun=All", "application/merge-patch+json",
			"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", tc.patch)
		if tc.ok && code != http.StatusOK || !tc.ok && code != http.StatusForbidden || strings.Contains(text, "canary") {
			t.Errorf("C-145: patch %s: %d %s", name, code, text)
		}
	}
	// An apply is a create where there is nothing, and held to the same.
	code, text := request(t, c, http.MethodPatch, "/api/v1/namespaces/"+ns+"/secrets/applied?fieldManager=x", "application/apply-patch+yaml", "", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"applied"}}`)
	if code != http.StatusForbidden {
		t.Errorf("C-145: apply: %d %s", code, text)
	}
}

// A detail is bounded by whoever reads it, not here: that a provider's words
// are long must not keep them from being written.
func TestRequests_LongDetail_C152(t *testing.T) {
	w := cluster(t)
	operator, provider := ankkatest.Connect(t, w.As(t, operatorUser)), ankkatest.Connect(t, w.As(t, providerUser))
	u := ask(owner(t, w, "long"), v1alpha1.KindIdentity)
	if err := apply(t.Context(), operator, u); err != nil {
		t.Fatal(err)
	}
	r := &v1alpha1.CloudResource{}
	if err := provider.Get(t.Context(), client.ObjectKeyFromObject(u), r); err != nil {
		t.Fatal(err)
	}
	r.Status = v1alpha1.CloudResourceStatus{ObservedGeneration: 1, Phase: v1alpha1.PhaseFailed, Detail: "\x1b[2J\u202e" + strings.Repeat("x", 1<<20)}
	if err := provider.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := v1alpha1.Clean(r.Status.Detail); len(got) > v1alpha1.MaxDetail || strings.ContainsAny(got, "\x1b\u202e") {
		t.Errorf("C-152: %d bytes are left", len(got))
	}
}

// Since when the present spec stands is what the API server notes of it: an
// apply that changes nothing, a word on the object and the provider's status
// leave it, a new generation moves it.
func TestRequests_AskedAt_C146(t *testing.T) {
	w := cluster(t)
	operator, provider := ankkatest.Connect(t, w.As(t, operatorUser)), ankkatest.Connect(t, w.As(t, providerUser))
	u := ask(owner(t, w, "asked"), v1alpha1.KindBucketCredential)
	r := &v1alpha1.CloudResource{}
	get := func() time.Time {
		t.Helper()
		if err := provider.Get(t.Context(), client.ObjectKeyFromObject(u), r); err != nil {
			t.Fatal(err)
		}
		return v1alpha1.AskedAt(r)
	}
	// The notes have whole seconds: only in another one can they differ.
	nextSecond := func() { <-time.After(time.Until(time.Now().Truncate(time.Second).Add(1100 * time.Millisecond))) }
	if err := apply(t.Context(), operator, u); err != nil {
		t.Fatal(err)
	}
	first := get()
	if !first.Equal(r.CreationTimestamp.Time) || !v1alpha1.SaidAt(r).IsZero() {
		t.Errorf("C-146: asked at %v, made at %v, said at %v", first, r.CreationTimestamp, v1alpha1.SaidAt(r))
	}
	nextSecond()
	if err := apply(t.Context(), operator, u); err != nil {
		t.Fatal(err)
	}
	if err := w.Admin.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"a":"b"}}}`))); err != nil {
		t.Fatal(err)
	}
	get()
	r.Status = v1alpha1.CloudResourceStatus{ObservedGeneration: 1, Phase: v1alpha1.PhaseWaiting, Detail: "working"}
	if err := provider.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if again := get(); !again.Equal(first) {
		t.Errorf("C-146: asked at %v, and nothing was asked since %v", again, first)
	}
	if said := v1alpha1.SaidAt(r); !said.After(first) {
		t.Errorf("C-146: said at %v, asked at %v", said, first)
	}
	u.Object["spec"].(map[string]any)["credentialGeneration"] = int64(2)
	if err := apply(t.Context(), operator, u); err != nil {
		t.Fatal(err)
	}
	if second := get(); !second.After(first) || r.Generation != 2 {
		t.Errorf("C-146: generation %d was asked for at %v, the first at %v", r.Generation, second, first)
	}
}
