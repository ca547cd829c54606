package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/provider/conformance"
	"github.com/radial-project/radial/providers/gcp/fakegoogle"
)

// Google takes its time, though not minutes.
func unhurried() fakegoogle.Options {
	return fakegoogle.Options{AccountDelay: 300 * time.Millisecond, KeyDelay: 400 * time.Millisecond, EndDelay: 200 * time.Millisecond,
		DeleteDelay: 400 * time.Millisecond, GrantDelay: 300 * time.Millisecond}
}

// The suite against the provider's real process, under a minted token of the
// shipped grant, as it runs against a cluster of somebody's (C-136).
func TestConformance_C10_C136(t *testing.T) {
	s := newStage(t, "gcp", unhurried())
	s.start()
	w := &conformance.World{Client: s.in.Admin, NamePrefix: "acme", Limit: 120 * time.Second, Keep: true,
		Settings: provider.Settings{Provider: "gcp", Account: account, Location: location, KMSKey: wrapKey, RotationGrace: grace}}
	results := conformance.Run(t.Context(), w, conformance.Scenarios())
	text, err := conformance.Report(w, results)
	t.Log("\n" + text)
	if err != nil {
		t.Error(err)
	}
	for _, r := range results {
		t.Run(strings.Join(r.Rules, " ")+" "+r.Name, func(t *testing.T) {
			switch {
			case r.Verdict == conformance.Skipped && r.NeedsScript:
				t.Skip(strings.Join(r.Skips, "; "))
			case r.Verdict != conformance.Passed:
				t.Errorf("%s: %q %q", r.Verdict, r.Failures, r.Skips)
			}
		})
	}
	if t.Failed() {
		t.Log(tail(s.Output.String()))
	}
	for _, k := range s.fake.AllKeys() {
		if out := s.Output.String() + text; strings.Contains(out, k.Secret) || strings.Contains(out, k.Access) {
			t.Error("C-100: a key stands in the provider's logs")
		}
	}
}

// No request, no call; a request that goes, none either (C-105).
func TestNothingUnasked_C3_C105_C106(t *testing.T) {
	s := newStage(t, "gcp-idle", fakegoogle.Options{})
	s.start()
	p := s.project()
	idle := s.service(p, "idle")
	// One that another provider answers wakes nobody here.
	name := s.name
	s.name = "somebody-elses"
	s.identity(idle)
	s.name = name
	sub := s.service(p, "reports")
	s.eventually("the provider serves", func() bool { return strings.Contains(s.Output.String(), `"serving"`) })
	if calls := s.fake.Calls(); len(calls) != 0 {
		t.Fatalf("C-3: %v", calls)
	}
	params := s.storage(sub)
	key := s.apply(sub, v1alpha1.KindBucketCredential, "", params, 1)
	s.done(key)
	access, secret := s.pair(sub)
	s.fake.Forget()
	for _, k := range []string{"reports-identity", "reports-bucket", "reports-storage-credential"} {
		s.must(s.in.Admin.Delete(t.Context(), &v1alpha1.CloudResource{ObjectMeta: metav1.ObjectMeta{Name: k, Namespace: key.Namespace}}))
	}
	// What is asked after that is answered after that.
	other := s.done(s.identity(s.service(p, "other")))
	if other.Status.Phase != v1alpha1.PhaseReady {
		t.Errorf("phase %s", other.Status.Phase)
	}
	for _, c := range s.fake.Calls() {
		if !strings.HasPrefix(c.Op, "iam.serviceAccounts.") || strings.Contains(c.Path, params[v1alpha1.ParamIdentity]) {
			t.Errorf("C-105: %s %s", c.Op, c.Path)
		}
	}
	if a, k := s.pair(sub); a != access || k != secret || !s.reaches(a, k, params[v1alpha1.ParamBucket]) {
		t.Error("C-106: Secret, key or bucket went with the request")
	}
	s.clean(p)
}

// Each service's key reaches its bucket and no other: what is in the Secrets is
// tried, against the S3 API.
func TestKeysReachTheirOwn_C78_C119_C126_C143(t *testing.T) {
	s := newStage(t, "gcp-keys", unhurried())
	s.start()
	p, q := s.project(), s.project()
	subjects := []v1alpha1.Subject{s.service(p, "reports"), s.service(p, "orders"), s.service(q, "reports"), {Project: p}}
	buckets := make([]string, len(subjects))
	var keys []client.ObjectKey
	var params []map[string]string
	for _, sub := range subjects {
		m := s.storage(sub)
		params = append(params, m)
		keys = append(keys, s.apply(sub, v1alpha1.KindBucketCredential, "", m, 1))
	}
	for i, k := range keys {
		s.done(k)
		buckets[i] = params[i][v1alpha1.ParamBucket]
	}
	for i, sub := range subjects {
		access, secret := s.pair(sub)
		for j, b := range buckets {
			if got := s.reaches(access, secret, b); got != (i == j) {
				t.Errorf("C-78: the key of %s reaches %s: %v", sub, b, got)
			}
		}
	}
	// Another's bucket is asked for: refused, and granted nothing.
	stolen := map[string]string{v1alpha1.ParamIdentity: params[1][v1alpha1.ParamIdentity], v1alpha1.ParamBucket: buckets[3], v1alpha1.ParamSecretName: params[1][v1alpha1.ParamSecretName]}
	k := s.apply(subjects[1], v1alpha1.KindBucketCredential, "", stolen, 1)
	r := s.await(k, "refused", func(r *v1alpha1.CloudResource) bool { return r.Status.Phase == v1alpha1.PhaseFailed })
	if r.Status.Detail != v1alpha1.DetailBackupIdentity {
		t.Errorf("C-78: %q", r.Status.Detail)
	}
	access, secret := s.pair(subjects[1])
	if s.reaches(access, secret, buckets[3]) {
		t.Error("C-78: a service reaches the backups")
	}
	// Deleted and asked for again: the Secret is there, so the second key is ended.
	first, firstKey := s.pair(subjects[0])
	s.must(s.in.Admin.Delete(t.Context(), &v1alpha1.CloudResource{ObjectMeta: metav1.ObjectMeta{Name: keys[0].Name, Namespace: keys[0].Namespace}}))
	s.done(s.apply(subjects[0], v1alpha1.KindBucketCredential, "", params[0], 1))
	identity := params[0][v1alpha1.ParamIdentity]
	s.eventually("the key without a place is ended", func() bool { return len(s.fake.Keys(identity)) == 1 })
	if a, k := s.pair(subjects[0]); a != first || k != firstKey || !s.reaches(a, k, buckets[0]) || s.fake.Issued(identity) != 2 {
		t.Errorf("C-119: the Secret changed or its key was ended; %d issued", s.fake.Issued(identity))
	}
	for _, k := range s.fake.AllKeys() {
		if k.Email == identity && k.Access != first && s.reaches(k.Access, k.Secret, buckets[0]) {
			t.Error("C-119: the key that was ended reaches the bucket")
		}
	}
	s.clean(p)
	s.clean(q)
}

// What somebody takes away by hand comes back, and no key is issued for it; a
// refusal of the cloud's passes when its cause does.
func TestRecheck_C147_C151(t *testing.T) {
	s := newStage(t, "gcp-recheck", fakegoogle.Options{}, "--recheck", "1s")
	s.start()
	p := s.project()
	sub := s.service(p, "reports")
	s.fake.Deny("storage.buckets.create", true)
	b := s.bucket(sub, nil)
	r := s.await(b, "refused", func(r *v1alpha1.CloudResource) bool { return r.Status.Phase == v1alpha1.PhaseFailed })
	if !strings.Contains(r.Status.Detail, "permission storage.buckets.create is missing in account "+account) {
		t.Errorf("C-100: %q", r.Status.Detail)
	}
	s.fake.Deny("storage.buckets.create", false)
	if r = s.done(b); r.Status.Phase != v1alpha1.PhaseReady {
		t.Errorf("C-147: %s", r.Status.Phase)
	}
	s.fake.Play(fakegoogle.Fault{Op: "iam.serviceAccounts.create", Lost: true, Times: 1}, fakegoogle.Fault{Op: "iam.serviceAccounts.setIamPolicy", Code: 503, Times: 1})
	if r := s.done(s.identity(sub)); r.Status.Phase != v1alpha1.PhaseReady {
		t.Errorf("C-147: after a lost answer the identity is %s", r.Status.Phase)
	}
	params := s.storage(sub)
	s.done(s.apply(sub, v1alpha1.KindBucketCredential, "", params, 1))
	access, secret := s.pair(sub)
	bucket, identity := params[v1alpha1.ParamBucket], params[v1alpha1.ParamIdentity]
	s.fake.Grant(bucket, "", "serviceAccount:"+identity)
	if s.reaches(access, secret, bucket) {
		t.Fatal("the grant is still there")
	}
	s.eventually("the grant comes back", func() bool { return s.reaches(access, secret, bucket) })
	if n := s.fake.Issued(identity); n != 1 {
		t.Errorf("C-151: %d keys were issued", n)
	}
	// The cloud does not answer: what is there is not taken back.
	s.fake.Play(fakegoogle.Fault{Op: "storage.buckets.get", Code: 503})
	n := len(s.fake.Calls("storage.buckets.get"))
	s.eventually("it is looked at", func() bool { return len(s.fake.Calls("storage.buckets.get")) > n+1 })
	if r := s.done(b); r.Status.Outputs[v1alpha1.OutputBucket] != bucket {
		t.Errorf("C-151: %s", r.Status.Phase)
	}
	s.clean(p)
}

// A Secret is kept in step with Secret Manager (C-69, C-70).
func TestSecretSync_C69_C70(t *testing.T) {
	s := newStage(t, "gcp-sync", fakegoogle.Options{}, "--sync-interval", "300ms")
	s.start()
	p := s.project()
	sub := v1alpha1.Subject{Project: p}
	id := v1alpha1.ProjectSecretID(p, "stripe", "KEY")
	ask := v1alpha1.SecretSyncAsk{SecretName: v1alpha1.SyncedSecretName("stripe"), Entries: map[string]string{"KEY": id}, EntryGeneration: 7}
	m, err := ask.Parameters()
	s.must(err)
	key := s.apply(sub, v1alpha1.KindSecretSync, "stripe", m, 0)
	s.await(key, "waiting for a value", func(r *v1alpha1.CloudResource) bool {
		return r.Status.Phase == v1alpha1.PhaseWaiting && strings.Contains(r.Status.Detail, "KEY")
	})
	value := func() string {
		sec := &corev1.Secret{}
		_ = s.in.Admin.Get(context.Background(), client.ObjectKey{Namespace: key.Namespace, Name: ask.SecretName}, sec)
		return string(sec.Data["KEY"])
	}
	s.fake.SetSecret(id, []byte("first-value-in-the-account"))
	if r := s.done(key); r.Status.Outputs[v1alpha1.OutputEntryGeneration] != "7" || value() != "first-value-in-the-account" {
		t.Errorf("C-69: %v", r.Status.Outputs)
	}
	s.fake.SetSecret(id, []byte("second-value-in-the-account"))
	s.eventually("the Secret follows", func() bool { return value() == "second-value-in-the-account" })
	s.clean(p)
	if out := s.Output.String(); strings.Contains(out, "value-in-the-account") {
		t.Error("C-100: a value stands in the logs")
	}
}

// The process does not start with a key file, whatever else it has.
func TestStart_C42_C148(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(path, []byte(`{"type":"service_account","private_key":"canary"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key, value, words string
		code              int
	}{
		"KeyFile":      {"GOOGLE_APPLICATION_CREDENTIALS", path, "GOOGLE_APPLICATION_CREDENTIALS is set", 2},
		"AnyVariable":  {"SOME_FILE", path, "SOME_FILE names a key file", 2},
		"Installation": {provider.EnvInstallation, "", provider.EnvInstallation, 2},
		"Account":      {"ANKKA_CLOUD_ACCOUNT", "", "ANKKA_CLOUD_ACCOUNT", 2},
	} {
		t.Run(name, func(t *testing.T) {
			vars := map[string]string{"ANKKA_CLOUD_PROVIDER": "gcp", "ANKKA_CLOUD_ACCOUNT": account, "ANKKA_CLOUD_LOCATION": location, "ANKKA_CLOUD_KMS_KEY": "",
				"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND": "2m", "ANKKA_CLOUD_ROTATION_GRACE": "1h", provider.EnvInstallation: "x", "HOME": t.TempDir()}
			vars[c.key] = c.value
			var env []string
			for k, v := range vars {
				t.Setenv(k, v)
				env = append(env, k+"="+v)
			}
			var out clustertest.Buffer
			code := run(t.Context(), "gcp", nil, env, &out, &out)
			if text := out.String(); code != c.code || !strings.Contains(text, c.words) || strings.Contains(text, "canary") {
				t.Errorf("exit %d: %s", code, text)
			}
		})
	}
}

// The suite by the command that docs/cloud/write-a-provider.md gives, as anybody
// runs it against a cluster: the same scenarios as above, from outside.
func TestExternalCommand_C136_C137_C138(t *testing.T) {
	if os.Getenv("RADIAL_FAULT") != "all" {
		t.Skip("the suite's scenarios run in TestConformance; RADIAL_FAULT=all runs them by the command too")
	}
	s := newStage(t, "gcp", unhurried())
	s.start()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", "TestExternal_", "./provider/conformance", "-args",
		"-external="+s.in.Kubeconfig, "-name-prefix=acme", "-keep")
	cmd.Dir = "../../../.."
	cmd.Env = append(os.Environ(), "ANKKA_CLOUD_PROVIDER=gcp", "ANKKA_CLOUD_ACCOUNT="+account, "ANKKA_CLOUD_LOCATION="+location, "ANKKA_CLOUD_KMS_KEY="+wrapKey)
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil || !strings.Contains(text, " passed, 0 failed, ") || !strings.Contains(text, "--- PASS: TestExternal_") {
		t.Errorf("%v\n%s\n%s", err, text, tail(s.Output.String()))
	}
	if !strings.Contains(text, "step skipped: needs a scripted account") || !strings.Contains(text, "step skipped: how many credentials were issued") {
		t.Error("C-137, C-138: the report does not say what was skipped")
	}
	if len(s.fake.Calls("storage.hmacKeys.create")) < 3 || len(s.fake.Calls("storage.buckets.create")) < 5 {
		t.Error("C-136: the suite passes without having asked the provider for anything")
	}
}
