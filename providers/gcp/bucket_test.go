package gcp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/providers/gcp/fakegoogle"
)

func TestBucket_C71_C148(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	r := b.request("shop", "reports")
	a := b.ask(r)
	days := int64(30)
	a.Versioning, a.SoftDeleteDays, a.CORSOrigins, a.KMSKey, a.NoncurrentVersionDays = true, 7, []string{"https://a.example", "https://b.example:8443"}, testKey, &days
	answer, thing, err := b.cloud.EnsureBucket(t.Context(), r, a)
	if err != nil {
		t.Fatal(err)
	}
	if want := (v1alpha1.BucketAnswer{Bucket: "acme-shop-reports-ae7cc739", Endpoint: b.url, Region: testLocation}); answer != want || !thing.Made {
		t.Errorf("%+v %+v", answer, thing)
	}
	check := func(want map[string]string) {
		t.Helper()
		d := b.fake.Bucket(a.Name)
		for path, value := range want {
			var v any = d
			for _, p := range strings.Split(path, ".") {
				m, _ := v.(map[string]any)
				v = m[p]
			}
			if got := fmt.Sprint(v); got != value {
				t.Errorf("%s is %s, not %s", path, got, value)
			}
		}
	}
	check(map[string]string{
		"labels.radial-installation": "inst-1", "labels.radial-project": "shop", "labels.radial-service": "reports", "labels.radial-purpose": "service",
		"iamConfiguration.uniformBucketLevelAccess.enabled": "true", "iamConfiguration.publicAccessPrevention": "enforced",
		"versioning.enabled": "true", "softDeletePolicy.retentionDurationSeconds": "604800", "encryption.defaultKmsKeyName": testKey, "location": "EUROPE-WEST2",
		"cors":           "[map[maxAgeSeconds:3600 method:[GET PUT HEAD] origin:[https://a.example https://b.example:8443] responseHeader:[* ETag]]]",
		"lifecycle.rule": "[map[action:map[type:Delete] condition:map[daysSinceNoncurrentTime:30]]]",
	})
	patches := func() int { return len(b.fake.Calls("storage.buckets.update")) }
	ensure := func() {
		t.Helper()
		if _, thing, err := b.cloud.EnsureBucket(t.Context(), r, a); err != nil || thing.Made {
			t.Fatalf("%+v %v", thing, err)
		}
	}
	ensure()
	if patches() != 0 {
		t.Error("what is as asked is patched")
	}
	// By hand it was opened; it comes back (C-151).
	b.fake.ChangeBucket(a.Name, map[string]any{"iamConfiguration": map[string]any{"publicAccessPrevention": "inherited"}, "cors": nil})
	ensure()
	check(map[string]string{"iamConfiguration.publicAccessPrevention": "enforced", "cors": "[map[maxAgeSeconds:3600 method:[GET PUT HEAD] origin:[https://a.example https://b.example:8443] responseHeader:[* ETag]]]"})
	// Less is asked: every part goes, others' labels stay.
	b.fake.ChangeBucket(a.Name, map[string]any{"labels": map[string]any{"cost-center": "7"}})
	a = b.ask(r)
	ensure()
	check(map[string]string{"versioning.enabled": "false", "softDeletePolicy.retentionDurationSeconds": "0", "encryption": "<nil>", "cors": "[]", "lifecycle.rule": "[]", "labels.cost-center": "7"})
	n := patches()
	ensure()
	if patches() != n {
		t.Error("what is as asked is patched")
	}
	for _, d := range []int64{1, 6, 91} {
		a.SoftDeleteDays = d
		_, _, err := b.cloud.EnsureBucket(t.Context(), r, a)
		b.want(err, v1alpha1.PhaseFailed, "softDeleteDays")
	}
	a.SoftDeleteDays = 0
	b.fake.ChangeBucket(a.Name, map[string]any{"retentionPolicy": map[string]any{"retentionPeriod": "3600"}})
	_, _, err = b.cloud.EnsureBucket(t.Context(), r, a)
	b.want(err, v1alpha1.PhaseFailed, "retention policy", a.Name)
}

// Of 409s Google tells apart by words alone; the provider looks instead.
func TestTakenBucket_C87_C88_C148(t *testing.T) {
	mine := map[string]any{"radial-installation": "inst-1", "radial-project": "shop", "radial-service": "reports", "radial-purpose": "service"}
	with := func(key, value string) map[string]any {
		out := map[string]any{}
		for k, v := range mine {
			out[k] = v
		}
		if out[key] = value; value == "" {
			delete(out, key)
		}
		return map[string]any{"labels": out}
	}
	for name, c := range map[string]struct {
		project string
		doc     map[string]any
	}{
		"AnotherCustomer":          {"somebody-elses", nil},
		"AnotherCustomersOurWords": {"somebody-elses", map[string]any{"labels": mine}},
		"Unlabelled":               {testAccount, nil},
		"AnotherInstallation":      {testAccount, with("radial-installation", "inst-2")},
		"AnotherProject":           {testAccount, with("radial-project", "other")},
		"AnotherService":           {testAccount, with("radial-service", "other")},
		"NoService":                {testAccount, with("radial-service", "")},
		"AnotherPurpose":           {testAccount, with("radial-purpose", "backup")},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, fakegoogle.Options{})
			r := b.request("shop", "reports")
			a := b.ask(r)
			b.fake.PlantBucket(c.project, a.Name, c.doc)
			_, _, err := b.cloud.EnsureBucket(t.Context(), r, a)
			b.want(err, v1alpha1.PhaseFailed, a.Name, "held by someone else")
			if owns, err := b.cloud.OwnsBucket(t.Context(), r, a.Name); owns || provider.PhaseOf(err) != v1alpha1.PhaseFailed {
				t.Errorf("owned: %v, %v", owns, err)
			}
			if calls := b.fake.Calls("storage.buckets.update", "storage.buckets.setIamPolicy", "storage.buckets.create"); len(calls) > 0 {
				t.Errorf("C-88: %v", calls)
			}
		})
	}
}

// The name is taken between the look and the making.
func TestTakenMeanwhile_C87_C88(t *testing.T) {
	for owner, phase := range map[string]v1alpha1.Phase{"somebody-elses": v1alpha1.PhaseFailed, testAccount: v1alpha1.PhaseFailed, "": v1alpha1.PhaseWaiting} {
		t.Run(owner, func(t *testing.T) {
			b := newBench(t, fakegoogle.Options{})
			r := b.request("shop", "reports")
			a := b.ask(r)
			b.fake.Hook(func(c fakegoogle.Call, after bool) bool {
				if c.Op == "storage.buckets.create" && !after && owner != "" {
					b.fake.PlantBucket(owner, a.Name, nil)
				}
				return false
			})
			if owner == "" {
				// Removed a moment ago: taken, and not there.
				b.fake.Play(fakegoogle.Fault{Op: "storage.buckets.create", Code: 409, Reason: "conflict", Message: "you already own it", Times: 1})
			}
			_, _, err := b.cloud.EnsureBucket(t.Context(), r, a)
			b.want(err, phase, a.Name)
			if calls := b.fake.Calls("storage.buckets.update", "storage.buckets.setIamPolicy"); len(calls) > 0 {
				t.Errorf("C-88: %v", calls)
			}
		})
	}
}

// The answer to the making is lost: the bucket is ours, made for this request,
// and Ready, not Recovered.
func TestLostBucket_C147(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	r := b.request("shop", "reports")
	b.clock.add(3 * time.Second)
	b.fake.Play(fakegoogle.Fault{Op: "storage.buckets.create", Lost: true, Times: 1})
	_, _, err := b.cloud.EnsureBucket(t.Context(), r, b.ask(r))
	b.want(err, v1alpha1.PhaseWaiting)
	_, thing, err := b.cloud.EnsureBucket(t.Context(), r, b.ask(r))
	if err != nil || thing.CreatedAt.Before(r.CreatedAt) {
		t.Errorf("%+v, %v", thing, err)
	}
	r.CreatedAt = b.clock.Now()
	if _, thing, err = b.cloud.EnsureBucket(t.Context(), r, b.ask(r)); err != nil || !thing.CreatedAt.Before(r.CreatedAt) {
		t.Errorf("asked later: %+v, %v", thing, err)
	}
}

// Nothing is moved or made again: one of the subject's in another location or
// account is said to be there.
func TestMoved_C102_C103_C104(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	r := b.request("shop", "reports")
	a := b.ask(r)
	if _, _, err := b.cloud.EnsureBucket(t.Context(), r, a); err != nil {
		t.Fatal(err)
	}
	writes := func() int {
		return len(b.fake.Calls("storage.buckets.create", "storage.buckets.update", "storage.buckets.delete", "storage.buckets.setIamPolicy"))
	}
	n := writes()
	a.Location = "europe-west3"
	_, _, err := b.cloud.EnsureBucket(t.Context(), r, a)
	b.want(err, v1alpha1.PhaseFailed)
	if err.Error() != v1alpha1.DetailMoved {
		t.Errorf("C-103: %q", err)
	}
	// The installation names another account, in which the provider has power too.
	b.fake.AddProject("acme-new", 222222222222, "radial-provider@acme-test.iam.gserviceaccount.com")
	second, cerr := Connect(t.Context(), provider.Settings{Account: "acme-new"}, "v", Options{Endpoint: b.url, Now: b.clock.Now})
	if cerr != nil {
		t.Fatal(cerr)
	}
	_, _, err = second.EnsureBucket(t.Context(), r, b.ask(r))
	if err == nil || err.Error() != v1alpha1.DetailMoved {
		t.Errorf("C-102: %v", err)
	}
	if writes() != n {
		t.Error("C-104: something was made or changed")
	}
}

// What Google does not take, and what the provider may not do, in words.
func TestRefusedBucket_C100_C149(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	r := b.request("shop", "reports")
	a := b.ask(r)
	a.Name, _ = v1alpha1.BucketName("google-x", "shop", "reports")
	_, _, err := b.cloud.EnsureBucket(t.Context(), r, a)
	b.want(err, v1alpha1.PhaseFailed, "Invalid bucket name")
	a = b.ask(r)
	a.Location = "Nowhere-1"
	_, _, err = b.cloud.EnsureBucket(t.Context(), r, a)
	b.want(err, v1alpha1.PhaseFailed, "location")
	// Ours, but the provider may not look: not taken, but a permission.
	a = b.ask(r)
	if _, _, err := b.cloud.EnsureBucket(t.Context(), r, a); err != nil {
		t.Fatal(err)
	}
	b.fake.Deny("storage.buckets.get", true)
	_, _, err = b.cloud.EnsureBucket(t.Context(), r, a)
	b.want(err, v1alpha1.PhaseFailed, "permission storage.buckets.get is missing")
	_, err = b.cloud.OwnsBucket(t.Context(), r, a.Name)
	b.want(err, v1alpha1.PhaseFailed, "permission storage.buckets.get is missing")
	b.fake.Deny("storage.buckets.list", true)
	_, _, err = b.cloud.EnsureBucket(t.Context(), r, a)
	b.want(err, v1alpha1.PhaseFailed, "permission storage.buckets.list is missing")
	b.fake.Deny("storage.buckets.get", false)
	b.fake.ChangeBucket(a.Name, map[string]any{"cors": []any{map[string]any{"origin": []any{"*"}}}})
	b.fake.Play(fakegoogle.Fault{Op: "storage.buckets.update", Code: 412, Reason: "conditionNotMet"})
	_, _, err = b.cloud.EnsureBucket(t.Context(), r, a)
	b.want(err, v1alpha1.PhaseWaiting, "changed by somebody else")
	if owns, err := b.cloud.OwnsBucket(t.Context(), r, "acme-none"); owns || err != nil {
		t.Errorf("none: %v %v", owns, err)
	}
}

// What somebody changes between the look and the change is not written over.
func TestChangedMeanwhile_G8(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	r := b.request("shop", "reports")
	a := b.ask(r)
	if _, _, err := b.cloud.EnsureBucket(t.Context(), r, a); err != nil {
		t.Fatal(err)
	}
	b.fake.Hook(func(c fakegoogle.Call, after bool) bool {
		if c.Op == "storage.buckets.update" && !after {
			b.fake.ChangeBucket(a.Name, map[string]any{"retentionPolicy": map[string]any{"retentionPeriod": "3600"}})
		}
		return false
	})
	a.Versioning = true
	_, _, err := b.cloud.EnsureBucket(t.Context(), r, a)
	b.want(err, v1alpha1.PhaseWaiting, "changed by somebody else")
	_, _, err = b.cloud.EnsureBucket(t.Context(), r, a)
	b.want(err, v1alpha1.PhaseFailed, "retention policy")
}

// The key reaches its bucket and no other, its bucket lets in nobody else, and
// after its end it reaches nothing.
func TestKey_C72_C78_C119_C126(t *testing.T) {
	b := newBench(t, fakegoogle.Options{KeyDelay: 30 * time.Second, EndDelay: 2 * time.Minute, DeleteDelay: 3 * time.Minute, GrantDelay: time.Minute})
	var keys []provider.Credential
	var asks []v1alpha1.CredentialAsk
	var requests []provider.Request
	for _, s := range [][2]string{{"shop", "reports"}, {"shop", "orders"}, {"other", "reports"}, {"shop", ""}} {
		r := b.request(s[0], s[1])
		ask := b.credential(r)
		if err := b.cloud.EnsureBucketAccess(t.Context(), r, ask); err != nil {
			t.Fatal(err)
		}
		k, err := b.cloud.IssueCredential(t.Context(), r, ask)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(k.ID, k.AccessKey) || strings.Contains(fmt.Sprintf("%v %+v %#v", k, k, k), k.SecretKey) {
			t.Error("C-100: the journal's id or the log's words hold a key")
		}
		b.want(b.cloud.CredentialUsable(t.Context(), r, ask, k, b.clock.Now()), v1alpha1.PhaseWaiting, "does not take it yet")
		keys, asks, requests = append(keys, k), append(asks, ask), append(requests, r)
	}
	b.clock.add(31 * time.Second)
	b.want(b.cloud.CredentialUsable(t.Context(), requests[0], asks[0], keys[0], b.clock.Now()), v1alpha1.PhaseWaiting) // the grant takes longer
	b.clock.add(30 * time.Second)
	for i, k := range keys {
		if err := b.cloud.CredentialUsable(t.Context(), requests[i], asks[i], k, b.clock.Now()); err != nil {
			t.Errorf("%v", err)
		}
		for j, ask := range asks {
			if got := fakegoogle.Reaches(b.url, k.AccessKey, k.SecretKey, ask.Bucket, b.clock.Now()); got != (i == j) {
				t.Errorf("C-78: the key of %s reaches the bucket of %s: %v", requests[i].Subject, requests[j].Subject, got)
			}
		}
		if fakegoogle.Reaches(b.url, k.AccessKey, k.SecretKey+"x", asks[i].Bucket, b.clock.Now()) {
			t.Error("a wrong secret reaches the bucket")
		}
	}
	// Its end: refused after Google's time, and gone from the account.
	list := func() []provider.Issued {
		l, err := b.cloud.ListCredentials(t.Context(), requests[0], asks[0])
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := list(); len(l) != 1 || l[0].ID != keys[0].ID || l[0].CreatedAt.IsZero() {
		t.Errorf("listed: %+v", l)
	}
	end := func() error { return b.cloud.EndCredential(t.Context(), requests[0], asks[0], keys[0].ID) }
	b.want(end(), v1alpha1.PhaseWaiting, "opens nothing")
	b.clock.add(2*time.Minute + time.Second)
	if fakegoogle.Reaches(b.url, keys[0].AccessKey, keys[0].SecretKey, asks[0].Bucket, b.clock.Now()) {
		t.Error("C-126: the ended key reaches the bucket")
	}
	b.clock.add(time.Minute)
	if err := end(); err != nil {
		t.Error(err)
	}
	if err := end(); err != nil || len(list()) != 0 {
		t.Errorf("again: %v; left %v", err, list())
	}
	if !fakegoogle.Reaches(b.url, keys[1].AccessKey, keys[1].SecretKey, asks[1].Bucket, b.clock.Now()) {
		t.Error("C-126: another's key ended")
	}
	b.want(b.cloud.CredentialUsable(t.Context(), requests[0], asks[0], provider.Credential{ID: keys[0].ID}, b.clock.Now()), v1alpha1.PhaseFailed, "raising the credential generation")
}

// After a restart the key itself is not there to be tried: its age decides.
func TestUsableAfterRestart_G14(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	r := b.request("shop", "reports")
	ask := b.credential(r)
	k, err := b.cloud.IssueCredential(t.Context(), r, ask)
	if err != nil {
		t.Fatal(err)
	}
	at := b.clock.Now()
	b.want(b.cloud.CredentialUsable(t.Context(), r, ask, provider.Credential{ID: k.ID}, at), v1alpha1.PhaseWaiting)
	b.clock.add(time.Minute)
	if err := b.cloud.CredentialUsable(t.Context(), r, ask, provider.Credential{ID: k.ID}, at); err != nil {
		t.Error(err)
	}
}

// A backup bucket lets in its project's database alone, even if somebody let in a
// service; people of the account stay. Grants removed by hand come back.
func TestBackupAccess_C78_C151(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	r, svc := b.request("shop", ""), b.request("shop", "reports")
	ask := b.credential(r)
	service := "serviceAccount:" + b.identity(svc)
	b.fake.Grant(ask.Bucket, "roles/storage.objectAdmin", service)
	b.fake.Grant(ask.Bucket, "roles/storage.admin", "serviceAccount:"+ask.Identity)
	b.fake.Grant(ask.Bucket, "roles/storage.objectViewer", "user:auditor@example.com")
	ensure := func() {
		t.Helper()
		if err := b.cloud.EnsureBucketAccess(t.Context(), r, ask); err != nil {
			t.Fatal(err)
		}
		g := b.fake.Granted(ask.Bucket)
		if len(g["roles/storage.objectAdmin"]) != 0 || len(g["roles/storage.admin"]) != 0 || !slices.Equal(g["roles/storage.objectUser"], []string{"serviceAccount:" + ask.Identity}) ||
			len(g["roles/storage.objectViewer"]) != 1 || len(g["roles/storage.legacyBucketOwner"]) != 2 {
			t.Errorf("granted: %v", g)
		}
	}
	ensure()
	b.fake.Grant(ask.Bucket, "", "serviceAccount:"+ask.Identity)
	ensure()
	n := len(b.fake.Calls("storage.buckets.setIamPolicy"))
	ensure()
	if len(b.fake.Calls("storage.buckets.setIamPolicy")) != n {
		t.Error("what stands is written again")
	}
	if b.fake.BlindWrites() != 0 {
		t.Error("a policy was written without its etag")
	}
	// Somebody writes the same policy in between, five times.
	b.fake.Grant(ask.Bucket, "", "serviceAccount:"+ask.Identity)
	b.fake.Play(fakegoogle.Fault{Op: "storage.buckets.setIamPolicy", Code: 412, Reason: "conditionNotMet", Times: 2})
	ensure()
	b.fake.Grant(ask.Bucket, "", "serviceAccount:"+ask.Identity)
	b.fake.Play(fakegoogle.Fault{Op: "storage.buckets.setIamPolicy", Code: 412, Reason: "conditionNotMet"})
	b.want(b.cloud.EnsureBucketAccess(t.Context(), r, ask), v1alpha1.PhaseWaiting, "others are changing")
}

func TestKeyLimits_C100(t *testing.T) {
	b := newBench(t, fakegoogle.Options{KeyLimit: 10})
	r := b.request("shop", "reports")
	ask := b.credential(r)
	issue := func() error { _, err := b.cloud.IssueCredential(t.Context(), r, ask); return err }
	b.fake.Play(fakegoogle.Fault{Op: "storage.hmacKeys.create", Code: 412, Reason: "conditionNotMet", Times: 1})
	b.want(issue(), v1alpha1.PhaseFailed, "constraints/iam.disableServiceAccountKeyCreation")
	for range 10 {
		if err := issue(); err != nil {
			t.Fatal(err)
		}
	}
	b.want(issue(), v1alpha1.PhaseFailed, "as many keys as Google allows")
	b.fake.Play(fakegoogle.Fault{Op: "storage.hmacKeys.create", Code: 403, Reason: "forbidden", Times: 1})
	b.want(issue(), v1alpha1.PhaseFailed, "as many keys as Google allows")
	// A call whose answer is lost is not made twice inside.
	n := b.fake.Issued(ask.Identity)
	l, _ := b.cloud.ListCredentials(t.Context(), r, ask)
	if err := b.cloud.EndCredential(t.Context(), r, ask, l[0].ID); err != nil {
		t.Fatal(err)
	}
	for _, f := range []fakegoogle.Fault{{Lost: true}, {Code: 503}} {
		f.Op, f.Times = "storage.hmacKeys.create", 1
		b.fake.Forget()
		b.fake.Play(f)
		b.want(issue(), v1alpha1.PhaseWaiting)
		if got := len(b.fake.Calls("storage.hmacKeys.create")); got != 1 {
			t.Errorf("%+v: %d calls", f, got)
		}
	}
	if got := b.fake.Issued(ask.Identity); got != n+1 {
		t.Errorf("%d issued for one lost answer", got-n)
	}
	// Of a service account that Google does not know yet.
	b.fake.Play(fakegoogle.Fault{Op: "storage.hmacKeys.create", Code: 404, Reason: "notFound", Times: 1})
	b.want(issue(), v1alpha1.PhaseWaiting, "needs time")
}
