package v1alpha1

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func yes() *bool { b := true; return &b }

// asked is a request as the operator writes it.
func asked(s Subject, kind, secret string, parameters map[string]string) *CloudResource {
	name, _ := RequestName(s, kind, secret)
	owner := metav1.OwnerReference{APIVersion: GroupVersion.String(), Kind: AnkkaServiceKind, Name: s.Service, UID: "u", Controller: yes()}
	if s.Service == "" {
		owner.Kind, owner.Name = AnkkaProjectKind, s.Project
	}
	return &CloudResource{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace(s.Project), OwnerReferences: []metav1.OwnerReference{owner}},
		Spec:       CloudResourceSpec{Provider: "scripted", Kind: kind, Subject: s, Parameters: maps.Clone(parameters)},
	}
}

func TestCheckBelongs_C143(t *testing.T) {
	service, project := Subject{"shop", "reports"}, Subject{Project: "shop"}
	bucket := samples[KindBucket].parameters
	backup := maps.Clone(bucket)
	backup["purpose"] = PurposeBackup
	mine, err := BucketName("acme", "shop", "reports")
	if err != nil {
		t.Fatal(err)
	}
	backups, err := BackupBucketName("acme", "shop")
	if err != nil {
		t.Fatal(err)
	}
	good := map[string]*CloudResource{
		"a service's identity":       asked(service, KindIdentity, "", map[string]string{"serviceAccount": "reports"}),
		"a service's secret access":  asked(service, KindSecretAccess, "", map[string]string{"identity": "i", "own": "s_shop_reports_", "read": "p_shop_"}),
		"a service's bucket":         asked(service, KindBucket, "", bucket),
		"a service's credential":     asked(service, KindBucketCredential, "", map[string]string{"bucket": mine, "identity": "i", "secretName": "reports-cloud-storage"}),
		"a project's identity":       asked(project, KindIdentity, "", map[string]string{"serviceAccount": "shop.database"}),
		"a project's secret":         asked(project, KindSecretSync, "stripe", map[string]string{"secretName": "stripe-cloud-secret", "entries": "KEY=p_shop_stripe__KEY", "entryGeneration": "1"}),
		"a project's backup bucket":  asked(project, KindBucket, "", backup),
		"a project's credential":     asked(project, KindBucketCredential, "", map[string]string{"bucket": backups, "identity": "i", "secretName": "shop.backup-cloud-storage"}),
		"a project's key":            asked(project, KindWrappingKey, "", map[string]string{"identity": "i", "key": "k"}),
		"a Recipe's bucket":          asked(service, KindBucket, "", bucket),
		"a workload's identity":      asked(service, KindIdentity, "", map[string]string{"serviceAccount": "of-its-own"}),
		"a service called default's": asked(Subject{"shop", "default"}, KindIdentity, "", map[string]string{"serviceAccount": "default"}),
	}
	by := func(r *CloudResource, apiVersion, kind string) *CloudResource {
		r.OwnerReferences[0].APIVersion, r.OwnerReferences[0].Kind = apiVersion, kind
		return r
	}
	by(good["a Recipe's bucket"], "radapp.io/v1alpha3", "Recipe")
	by(good["a workload's identity"], "apps/v1", "Deployment")
	for name, r := range good {
		if err := CheckBelongs(r); err != nil {
			t.Errorf("C-143: %s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		of     string
		change func(*CloudResource)
		want   string
	}{
		"another namespace":               {"a service's bucket", func(r *CloudResource) { r.Namespace = "default" }, "is in namespace"},
		"another project's namespace":     {"a service's bucket", func(r *CloudResource) { r.Namespace = "ankka-other" }, "is in namespace"},
		"another project":                 {"a service's bucket", func(r *CloudResource) { r.Spec.Subject.Project = "other" }, "is in namespace"},
		"a reserved project":              {"a service's bucket", func(r *CloudResource) { r.Spec.Subject.Project, r.Namespace = "platform", "ankka-platform" }, "is the platform's"},
		"another service":                 {"a service's bucket", func(r *CloudResource) { r.Spec.Subject.Service = "other" }, "is owned by"},
		"no service":                      {"a service's bucket", func(r *CloudResource) { r.Spec.Subject.Service = "" }, "is owned by"},
		"no owner":                        {"a service's bucket", func(r *CloudResource) { r.OwnerReferences = nil }, "no owner"},
		"an owner that does not control":  {"a service's bucket", func(r *CloudResource) { r.OwnerReferences[0].Controller = nil }, "no owner"},
		"another service's owner":         {"a service's bucket", func(r *CloudResource) { r.OwnerReferences[0].Name = "other" }, "is owned by"},
		"a service of another group":      {"a service's bucket", func(r *CloudResource) { by(r, "example.test/v1", AnkkaServiceKind) }, "is owned by"},
		"a ConfigMap":                     {"a service's bucket", func(r *CloudResource) { by(r, "v1", "ConfigMap") }, "is owned by"},
		"a Pod":                           {"a service's bucket", func(r *CloudResource) { by(r, "v1", "Pod") }, "is owned by"},
		"a project's, owned by a Recipe":  {"a project's key", func(r *CloudResource) { by(r, "radapp.io/v1alpha3", "Recipe") }, "is owned by"},
		"a Recipe of another name":        {"a Recipe's bucket", func(r *CloudResource) { r.OwnerReferences[0].Name = "other" }, "is owned by"},
		"another name":                    {"a service's bucket", func(r *CloudResource) { r.Name = "other-bucket" }, "is named"},
		"another suffix":                  {"a service's bucket", func(r *CloudResource) { r.Name = "reports-identity" }, "is named"},
		"a service's wrapping key":        {"a service's bucket", func(r *CloudResource) { r.Spec.Kind = KindWrappingKey }, "no request of kind"},
		"an unknown kind":                 {"a service's bucket", func(r *CloudResource) { r.Spec.Kind = "queue" }, "no request of kind"},
		"another's ServiceAccount":        {"a service's identity", func(r *CloudResource) { r.Spec.Parameters["serviceAccount"] = "other" }, "serviceAccount is"},
		"a service's for the project":     {"a project's identity", func(r *CloudResource) { r.Spec.Parameters["serviceAccount"] = "reports" }, "serviceAccount is"},
		"everybody's ServiceAccount":      {"a workload's identity", func(r *CloudResource) { r.Spec.Parameters["serviceAccount"] = "default" }, "names none"},
		"another service's secrets":       {"a service's secret access", func(r *CloudResource) { r.Spec.Parameters["own"] = "s_shop_other_" }, "own has"},
		"a prefix that reaches further":   {"a service's secret access", func(r *CloudResource) { r.Spec.Parameters["own"] = "s_shop_" }, "own has"},
		"to keep its project's":           {"a service's secret access", func(r *CloudResource) { r.Spec.Parameters["own"] = "p_shop_" }, "own has"},
		"to read another project's":       {"a service's secret access", func(r *CloudResource) { r.Spec.Parameters["read"] = "p_other_" }, "read has"},
		"to read another service's":       {"a service's secret access", func(r *CloudResource) { r.Spec.Parameters["read"] = "s_shop_other_" }, "read has"},
		"to sync another's":               {"a project's secret", func(r *CloudResource) { r.Spec.Parameters["entries"] = "KEY=p_other_stripe__KEY" }, "entries have"},
		"to sync a service's":             {"a project's secret", func(r *CloudResource) { r.Spec.Parameters["entries"] = "KEY=s_shop_reports_KEY" }, "entries have"},
		"to sync into another Secret":     {"a project's secret", func(r *CloudResource) { r.Spec.Parameters["secretName"] = "other-cloud-secret" }, "secretName is"},
		"to sync into any Secret":         {"a project's secret", func(r *CloudResource) { r.Spec.Parameters["secretName"] = "tls" }, "secretName is"},
		"another service's bucket":        {"a service's credential", func(r *CloudResource) { r.Spec.Parameters["bucket"], _ = BucketName("acme", "shop", "other") }, "is not one of"},
		"a name without its digest":       {"a service's credential", func(r *CloudResource) { r.Spec.Parameters["bucket"] = "acme-shop-reports" }, "is not one of"},
		"its digest on another's":         {"a service's credential", func(r *CloudResource) { r.Spec.Parameters["bucket"] = "acme-shop-other-ae7cc739" }, "is not one of"},
		"the backups, for a service":      {"a service's credential", func(r *CloudResource) { r.Spec.Parameters["bucket"] = backups }, "is not one of"},
		"a service's, for the project":    {"a project's credential", func(r *CloudResource) { r.Spec.Parameters["bucket"] = mine }, "is not one of"},
		"into another service's Secret":   {"a service's credential", func(r *CloudResource) { r.Spec.Parameters["secretName"] = "other-cloud-storage" }, "secretName is"},
		"a backup bucket for a service":   {"a service's bucket", func(r *CloudResource) { r.Spec.Parameters["purpose"] = "backup" }, "is not one of"},
		"a service's bucket, the project": {"a project's backup bucket", func(r *CloudResource) { r.Spec.Parameters["purpose"] = "service" }, "is not one of"},
		"a parameter more":                {"a service's bucket", func(r *CloudResource) { r.Spec.Parameters["colour"] = "x" }, "is no parameter"},
		"a parameter less":                {"a project's key", func(r *CloudResource) { delete(r.Spec.Parameters, "key") }, "key is missing"},
	} {
		r := good[c.of].DeepCopy()
		c.change(r)
		err := CheckBelongs(r)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("C-143: %s with %s: %v; want %q", c.of, name, err, c.want)
		}
	}
}

// A bucket belongs to the one whom it was named for, whatever the prefix, and to
// no other whose names read alike.
func FuzzBucketBelongs_C143(f *testing.F) {
	f.Add("acme", "shop-a", "b", "shop", "a-b")
	f.Add("acme", "shop", "reports", "shop", "report")
	f.Add("acme-shop", "a", "b", "shop-a", "b")
	f.Fuzz(func(t *testing.T, prefix, p1, s1, p2, s2 string) {
		name, err := BucketName(prefix, p1, s1)
		if err != nil {
			return
		}
		if !BucketBelongs(name, Subject{p1, s1}) {
			t.Errorf("C-143: %s is not of %s/%s", name, p1, s1)
		}
		if (p1 != p2 || s1 != s2) && BucketBelongs(name, Subject{p2, s2}) {
			t.Errorf("C-143: %s is of %s/%s, and of %s/%s", name, p1, s1, p2, s2)
		}
		if BucketBelongs(name, Subject{Project: p1}) {
			t.Errorf("C-143: %s is of project %s", name, p1)
		}
	})
}
