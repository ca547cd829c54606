package v1alpha1

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestRequestNames_C55_C56(t *testing.T) {
	service, project := Subject{"shop", "reports"}, Subject{Project: "shop"}
	for _, c := range []struct {
		subject      Subject
		kind, secret string
		want         string
	}{
		{service, KindIdentity, "", "reports-identity"},
		{service, KindSecretAccess, "", "reports-secret-access"},
		{service, KindBucket, "", "reports-bucket"},
		{service, KindBucketCredential, "", "reports-storage-credential"},
		{project, KindIdentity, "", "shop.identity"},
		{project, KindSecretSync, "stripe", "shop.secret-sync.stripe"},
		{project, KindBucket, "", "shop.backup-bucket"},
		{project, KindBucketCredential, "", "shop.backup-credential"},
		{project, KindWrappingKey, "", "shop.wrapping-key"},
		{service, KindSecretSync, "stripe", ""},
		{service, KindWrappingKey, "", ""},
		{project, KindSecretAccess, "", ""},
		{project, KindSecretSync, "", ""},
		{project, KindSecretSync, "a.b", ""},
		{service, "queue", "", ""},
		{Subject{"shop", "a.b"}, KindBucket, "", ""},
		{Subject{"platform", ""}, KindBucket, "", ""},
	} {
		got, err := RequestName(c.subject, c.kind, c.secret)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("C-55/C-56: %s of %s: %q, %v; want %q", c.kind, c.subject, got, err, c.want)
		}
	}
	if s, ok := SyncedSecret("shop", "shop.secret-sync.stripe"); s != "stripe" || !ok {
		t.Errorf("C-56: synced secret %q, %v", s, ok)
	}
	for _, name := range []string{"shop.secret-sync", "shop.secret-sync.", "shop.secret-sync.a.b", "other.secret-sync.a", "reports-bucket"} {
		if s, ok := SyncedSecret("shop", name); ok {
			t.Errorf("C-56: %s is said to sync %q", name, s)
		}
	}
}

// No two subjects of one namespace have a request of one name.
func checkNames(t *testing.T, project, one, other string) {
	t.Helper()
	if (Subject{project, one}).Validate() != nil || (Subject{project, other}).Validate() != nil || one == "" || other == "" {
		return
	}
	project57 := []string{SecretSyncName(project, other)}
	for _, s := range []string{SuffixIdentity, SuffixBackupBucket, SuffixBackupCredential, SuffixWrappingKey} {
		project57 = append(project57, ProjectRequestName(project, s))
	}
	for _, a := range ServiceSuffixes() {
		name := ServiceRequestName(one, a)
		if slices.Contains(project57, name) {
			t.Errorf("C-57: %s is a project's request and a service's", name)
		}
		if strings.Contains(name, ".") {
			t.Errorf("C-57: a service's request %s has a dot", name)
		}
		for _, b := range ServiceSuffixes() {
			if one != other && name == ServiceRequestName(other, b) {
				t.Errorf("C-55: services %s and %s share request %s", one, other, name)
			}
		}
	}
	for _, name := range project57 {
		if !strings.Contains(name, ".") {
			t.Errorf("C-57: a project's request %s has no dot", name)
		}
	}
}

func FuzzRequestNames_C57(f *testing.F) {
	f.Add("shop", "reports", "reports-identity")
	f.Add("shop", "a", "a-storage")
	f.Add("a", "a-secret", "a")
	f.Add("backup-bucket", "backup-bucket", "identity")
	f.Fuzz(checkNames)
}

func TestRequestNames_C57(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 57))
	parts := append(ServiceSuffixes(), SuffixBackupBucket, SuffixWrappingKey, "a", "b", "storage", "secret", "credential")
	pick := func() string { return parts[r.IntN(len(parts))] }
	name := func() string {
		s := pick()
		for range r.IntN(3) {
			s += "-" + pick()
		}
		return s
	}
	for range 20000 {
		checkNames(t, name(), name(), name())
	}
}

func TestValidate(t *testing.T) {
	for id, ok := range map[string]bool{
		"shop": true, "a": true, "0": true, strings.Repeat("p", 57): true, "shop-a": true,
		strings.Repeat("p", 58): false, "": false, "Shop": false, "-a": false, "a-": false, "a.b": false, "a_b": false, "ä": false,
		"platform": false, "local": false, "cloud-provider": false, "a\n": false,
	} {
		if err := ValidateProject(id); (err == nil) != ok {
			t.Errorf("project %q: %v", id, err)
		}
	}
	for _, id := range ReservedProjects() {
		if ns := Namespace(id); id != "local" && ns != PlatformNamespace && ns != ProviderNamespace {
			t.Errorf("%s is reserved for namespace %s, which nothing has", id, ns)
		}
	}
	err := ValidateProject("x\x1b[2J" + strings.Repeat("y", 1<<20))
	if err == nil || len(err.Error()) > 500 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("a hostile name comes through: %.600q", err)
	}
}

func TestSecretNames_C141(t *testing.T) {
	if got := StorageSecretName(Subject{"shop", "reports"}); got != "reports-cloud-storage" {
		t.Errorf("C-141: %s", got)
	}
	if got := StorageSecretName(Subject{Project: "shop"}); got != "shop.backup-cloud-storage" {
		t.Errorf("C-141: %s", got)
	}
	for name, reserved := range map[string]bool{
		"reports-cloud-storage": true, "reports-storage": true, "shop.backup-cloud-storage": true, "stripe-cloud-secret": true,
		"-storage": true, "storage": false, "stripe": false, "reports-storage-x": false,
	} {
		if ReservedSecret(name) != reserved {
			t.Errorf("C-141: %s reserved: %v", name, !reserved)
		}
	}
	if a, b := ServiceAccountName(Subject{Project: "shop"}), ServiceAccountName(Subject{"shop", "database"}); a == b || !strings.Contains(a, ".") {
		t.Errorf("the database's ServiceAccount %s may be a service's", a)
	}
}

func TestSecretIDs(t *testing.T) {
	for got, want := range map[string]string{
		ProjectSecretID("shop", "checkout", "STRIPE_KEY"): "p_shop_checkout__STRIPE_uKEY",
		ServiceSecretID("shop", "reports", "a.b/c_d"):     "s_shop_reports_a_pb_sc_ud",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	long := strings.Repeat("x", 300)
	a, b := ServiceSecretID("shop", "reports", long+"1"), ServiceSecretID("shop", "reports", long+"2")
	if a == b || len(a) != maxSecretID || !strings.HasPrefix(a, ServiceSecretPrefix("shop", "reports")) {
		t.Errorf("long ids %s and %s", a, b)
	}
}

// No subject's prefix starts another subject's id.
func FuzzSecretIDs(f *testing.F) {
	f.Add("shop", "a", "shop-a", "b", "x_y")
	f.Add("a", "b", "a", "bb", "b_")
	f.Fuzz(func(t *testing.T, p1, s1, p2, s2, name string) {
		a, b := Subject{p1, s1}, Subject{p2, s2}
		if a == b || a.Validate() != nil || b.Validate() != nil || s1 == "" || s2 == "" {
			return
		}
		for _, id := range []string{ServiceSecretID(p2, s2, name), ProjectSecretID(p2, s2, name)} {
			if strings.HasPrefix(id, ServiceSecretPrefix(p1, s1)) {
				t.Errorf("%s is within reach of %s", id, a)
			}
			if p1 != p2 && strings.HasPrefix(id, ProjectSecretPrefix(p1)) {
				t.Errorf("%s is within reach of %s", id, p1)
			}
		}
	})
}
