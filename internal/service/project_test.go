package service

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/cloud"
	"github.com/radial-project/radial/provider/scripted"
)

// A project's own requests: its secrets in step, its backups' bucket and
// credential for its database alone, its keyring's key.
func TestProject_C56_C58_C69_C73_C78_C89_C107_C108(t *testing.T) {
	s := newStage(t, func(c *cloud.Settings) { c.ProjectSecrets, c.Backups, c.Keyring = true, true, true })
	start := s.provide()
	s.account.SetSecret(v1alpha1.ProjectSecretID(s.project, "checkout", "STRIPE_KEY"), []byte("of-the-account"))
	s.operate()
	s.describeProject(func(p *v1alpha1.AnkkaProjectSpec) {
		p.Secrets = []v1alpha1.ProjectSecret{{Name: "checkout", Entries: []string{"STRIPE_KEY"}, EntryGeneration: 3}}
		p.Backups, p.Keyring = true, true
	})
	status := func(what string, ok func(v1alpha1.AnkkaProjectStatus) bool) v1alpha1.AnkkaProjectStatus {
		t.Helper()
		return until(s, &v1alpha1.AnkkaProjectList{}, s.project, what, func(p *v1alpha1.AnkkaProject) bool {
			return p.Status.ObservedGeneration == p.Generation && ok(p.Status)
		}).Status
	}
	st := status("waiting", func(st v1alpha1.AnkkaProjectStatus) bool { return st.Backups != nil })
	if st.Lifecycle != v1alpha1.LifecycleUpdateInProgress || st.Backups.Phase != v1alpha1.PhaseWaiting || st.Secrets[0].Phase != v1alpha1.PhaseWaiting || st.Keyring.Phase != v1alpha1.PhaseWaiting {
		t.Errorf("status is %+v", st)
	}
	s.absent(&v1alpha1.CloudResource{}, s.project+".backup-credential")
	s.absent(&v1alpha1.CloudResource{}, s.project+".wrapping-key")
	start()
	st = status("Ready", func(st v1alpha1.AnkkaProjectStatus) bool { return st.Lifecycle == v1alpha1.LifecycleReady })
	bucket, err := v1alpha1.BackupBucketName("acme", s.project)
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.AnkkaProjectStatus{
		Identity: &v1alpha1.IdentityStatus{Phase: "Ready", Identity: scripted.IdentityOf("acme-test", v1alpha1.Subject{Project: s.project})},
		Secrets:  []v1alpha1.ProjectSecretStatus{{Name: "checkout", Phase: "Ready", SecretName: "checkout-cloud-secret", EntryGeneration: 3}},
		Backups: &v1alpha1.BackupStatus{Phase: v1alpha1.PhaseProvisioned, Bucket: bucket, Endpoint: scripted.Endpoint, Region: "Nowhere-1",
			SecretName: s.project + ".backup-cloud-storage", CredentialGeneration: 1},
		Keyring: &v1alpha1.KeyringStatus{Phase: "Ready", Key: "keys/wrap"},
	}
	got := v1alpha1.AnkkaProjectStatus{Identity: st.Identity, Secrets: st.Secrets, Backups: st.Backups, Keyring: st.Keyring}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("C-107: %s", d)
	}
	for suffix, parameters := range map[string]map[string]string{
		"identity":             {"serviceAccount": s.project + ".database"},
		"secret-sync.checkout": {"secretName": "checkout-cloud-secret", "entries": "STRIPE_KEY=p_" + s.project + "_checkout__STRIPE_uKEY", "entryGeneration": "3"},
		"backup-bucket":        {"purpose": "backup", "location": "Nowhere-1", "versioning": "false", "softDeleteDays": "0", "corsOrigins": "", "kmsKey": "keys/wrap", "namePrefix": "acme", "noncurrentVersionDays": ""},
		"backup-credential":    {"bucket": bucket, "identity": st.Identity.Identity, "secretName": s.project + ".backup-cloud-storage"},
		"wrapping-key":         {"identity": st.Identity.Identity, "key": "keys/wrap"},
	} {
		r := s.asked(s.project + "." + suffix)
		if d := cmp.Diff(parameters, r.Spec.Parameters); d != "" {
			t.Errorf("C-56: %s: %s", suffix, d)
		}
		if o := metav1.GetControllerOf(r); o == nil || o.Kind != v1alpha1.AnkkaProjectKind || o.Name != s.project {
			t.Errorf("C-58: %s is %+v's", suffix, o)
		}
		if d := cmp.Diff(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelProject: s.project}, r.Labels); d != "" {
			t.Errorf("%s: %s", suffix, d)
		}
	}
	// C-78: the one who is let in is the project's database.
	if d := cmp.Diff([]string{st.Identity.Identity}, s.account.Granted(bucket)); d != "" {
		t.Errorf("C-78: %s", d)
	}
	database := get(s, s.project+".database", &corev1.ServiceAccount{})
	if database.Annotations["scripted.example/identity"] != database.Name {
		t.Errorf("C-89: %v", database.Annotations)
	}
	if v := string(get(s, "checkout-cloud-secret", &corev1.Secret{}).Data["STRIPE_KEY"]); v != "of-the-account" {
		t.Errorf("the synced Secret holds %q", v)
	}
}

// A service that takes a project's secret waits until it has come so far, and
// until it may reach its own.
func TestSecretsHoldInstances_C67_C69_C110_C111(t *testing.T) {
	s := newStage(t, func(c *cloud.Settings) { c.ProjectSecrets = true })
	start := s.provide()
	s.operate()
	secrets := func(generation int64) {
		s.describeProject(func(p *v1alpha1.AnkkaProjectSpec) {
			p.Secrets = []v1alpha1.ProjectSecret{{Name: "checkout", Entries: []string{"STRIPE_KEY"}, EntryGeneration: generation}}
		})
	}
	secrets(1)
	takes := func(image string) func(*v1alpha1.AnkkaServiceSpec) {
		return func(spec *v1alpha1.AnkkaServiceSpec) {
			spec.Image = image
			spec.Env = []v1alpha1.EnvVar{{Name: "STRIPE", SecretName: "checkout", SecretKey: "STRIPE_KEY"}}
		}
	}
	s.describe("reports", takes("registry.example.com/reports:1"))
	s.asked("reports-identity")
	st := s.service("reports", "waiting", func(st v1alpha1.AnkkaServiceStatus) bool { return st.SecretAccess != nil }).Status
	if st.Lifecycle != v1alpha1.LifecycleUpdateInProgress || st.ObjectStorage != nil || st.ProjectSecrets.Phase != v1alpha1.PhaseWaiting {
		t.Errorf("status is %+v", st)
	}
	s.absent(&appsv1.Deployment{}, "reports")
	start()
	st = s.ready("reports").Status
	if st.SecretAccess.Phase != v1alpha1.PhaseReady || st.ProjectSecrets.Phase != v1alpha1.PhaseReady {
		t.Errorf("status is %+v", st)
	}
	access := s.asked("reports-secret-access")
	if d := cmp.Diff(map[string]string{"identity": st.Identity.Identity, "own": "s_" + s.project + "_reports_", "read": "p_" + s.project + "_"}, access.Spec.Parameters); d != "" {
		t.Errorf("C-67: %s", d)
	}
	d := get(s, "reports", &appsv1.Deployment{})
	if ref := envOf(d)["STRIPE"].ValueFrom.SecretKeyRef; ref.Name != "checkout-cloud-secret" || ref.Key != "STRIPE_KEY" {
		t.Errorf("the variable is taken from %+v", ref)
	}
	// A later generation that the account refuses: said, and what runs stays.
	const words = "the secret is disabled in the account"
	s.account.Script(s.project, scripted.Script{Op: scripted.OpSecretValues, Phase: v1alpha1.PhaseFailed, Text: words})
	secrets(2)
	st = s.service("reports", "Failed", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Lifecycle == v1alpha1.LifecycleFailed }).Status
	if want := "the cloud provider could not sync the project secret 'checkout': " + words; st.ProjectSecrets.Detail != want || st.Detail != "project secrets: "+want {
		t.Errorf("status is %q, %+v", st.Detail, st.ProjectSecrets)
	}
	s.describe("reports", takes("registry.example.com/reports:2"))
	s.service("reports", "Failed still", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Lifecycle == v1alpha1.LifecycleFailed })
	if after := get(s, "reports", &appsv1.Deployment{}); after.Generation != d.Generation {
		t.Errorf("what runs was changed: %s", cmp.Diff(d.Spec, after.Spec))
	}
	s.account.Script(s.project)
	s.deployment("reports", "replaced", func(d *appsv1.Deployment) bool {
		return strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, ":2")
	})
}
