package gcp

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/providers/gcp/fakegoogle"
)

const (
	testAccount  = "acme-test"
	testLocation = "europe-west2"
	testKey      = "projects/acme-test/locations/europe-west2/keyRings/radial/cryptoKeys/wrap"
)

// clock is one that stands until it is moved.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// bench is a cloud on a fake Google.
type bench struct {
	*testing.T
	cloud *Cloud
	fake  *fakegoogle.Fake
	clock *clock
	url   string
}

func newBench(t *testing.T, o fakegoogle.Options) *bench {
	t.Helper()
	b := &bench{T: t, clock: &clock{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}}
	o.Now = b.clock.Now
	b.fake = fakegoogle.New(o)
	b.fake.AddKey(testKey)
	s := httptest.NewServer(b.fake)
	t.Cleanup(s.Close)
	b.url = s.URL
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(s.URL, "http://"))
	var err error
	b.cloud, err = Connect(t.Context(), provider.Settings{Provider: "gcp", Account: testAccount, Location: testLocation}, "radial-provider-gcp test", Options{Endpoint: s.URL, Now: b.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) request(project, service string) provider.Request {
	return provider.Request{Installation: "inst-1", Subject: v1alpha1.Subject{Project: project, Service: service}, Namespace: v1alpha1.Namespace(project),
		Account: testAccount, Location: testLocation, KMSKey: testKey, CreatedAt: b.clock.Now()}
}

func (b *bench) ask(r provider.Request) provider.BucketAsk {
	b.Helper()
	a := v1alpha1.BucketAsk{Purpose: v1alpha1.PurposeService, Location: testLocation, NamePrefix: "acme"}
	if r.Subject.Service == "" {
		a.Purpose = v1alpha1.PurposeBackup
	}
	name, err := v1alpha1.BucketNameFor("acme", r.Subject, a.Purpose)
	if err != nil {
		b.Fatal(err)
	}
	return provider.BucketAsk{BucketAsk: a, Name: name}
}

func (b *bench) identity(r provider.Request) string {
	b.Helper()
	a, _, err := b.cloud.EnsureIdentity(b.Context(), r, v1alpha1.IdentityAsk{ServiceAccount: v1alpha1.ServiceAccountName(r.Subject)})
	if err != nil {
		b.Fatal(err)
	}
	return a.Identity
}

// credential makes identity and bucket, and answers what to ask for a key.
func (b *bench) credential(r provider.Request) v1alpha1.CredentialAsk {
	b.Helper()
	a := b.ask(r)
	if _, _, err := b.cloud.EnsureBucket(b.Context(), r, a); err != nil {
		b.Fatal(err)
	}
	return v1alpha1.CredentialAsk{Bucket: a.Name, Identity: b.identity(r), SecretName: v1alpha1.StorageSecretName(r.Subject)}
}

func (b *bench) want(err error, phase v1alpha1.Phase, words ...string) {
	b.Helper()
	if got := provider.PhaseOf(err); got != phase {
		b.Errorf("phase %q (%v), not %s", got, err, phase)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			b.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestNothingUnasked_C3(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	if calls := b.fake.Calls(); len(calls) != 0 {
		t.Errorf("C-3: %v before a request", calls)
	}
	// And what is asked makes that alone.
	b.identity(b.request("shop", "reports"))
	for _, c := range b.fake.Calls() {
		if !strings.HasPrefix(c.Op, "iam.serviceAccounts.") {
			t.Errorf("C-3: an identity took %s", c.Op)
		}
	}
}

func TestToken_C41(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	b.identity(b.request("shop", "reports"))
	if n := b.fake.Tokens(); n != 1 {
		t.Errorf("%d tokens of the metadata server", n)
	}
	b.fake.EndTokens()
	_, _, err := b.cloud.EnsureIdentity(t.Context(), b.request("shop", "other"), v1alpha1.IdentityAsk{ServiceAccount: "other"})
	b.want(err, v1alpha1.PhaseWaiting, "token")
}

func TestNoToken_C41(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	b.fake.Disable("metadata", true)
	_, _, err := b.cloud.EnsureIdentity(t.Context(), b.request("shop", "reports"), v1alpha1.IdentityAsk{ServiceAccount: "reports"})
	b.want(err, v1alpha1.PhaseWaiting, "metadata server")
}

// The machine's own account, and none, are no Workload Identity.
func TestConnect_C41(t *testing.T) {
	for email, words := range map[string]string{"123456789012-compute@developer.gserviceaccount.com": "runs as the machine", "acme-cluster.svc.id.goog": "annotate"} {
		f := httptest.NewServer(fakegoogle.New(fakegoogle.Options{Provider: email}))
		t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(f.URL, "http://"))
		_, err := Connect(t.Context(), provider.Settings{Account: testAccount}, "v", Options{Endpoint: f.URL})
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", email, err)
		}
		f.Close()
	}
	for _, e := range []string{"http://google.example", "ftp://127.0.0.1", "https://user@google.example", "nothing"} {
		if _, err := Connect(t.Context(), provider.Settings{Account: testAccount}, "v", Options{Endpoint: e}); err == nil || !strings.Contains(err.Error(), "--endpoint") {
			t.Errorf("endpoint %s: %v", e, err)
		}
	}
}

func TestIdentity_C66(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	r := b.request("shop", "reports")
	a, thing, err := b.cloud.EnsureIdentity(t.Context(), r, v1alpha1.IdentityAsk{ServiceAccount: "reports"})
	if err != nil {
		t.Fatal(err)
	}
	if !thing.Made || a.ServiceAccountAnnotations["iam.gke.io/gcp-service-account"] != a.Identity {
		t.Errorf("%+v %+v", a, thing)
	}
	// The pool is of the cluster's project, not of the account (G17).
	if got := b.fake.ActsAs(a.Identity); !slices.Equal(got, []string{"serviceAccount:acme-cluster.svc.id.goog[ankka-shop/reports]"}) {
		t.Errorf("acts as it: %v", got)
	}
	calls := len(b.fake.Calls("iam.serviceAccounts.create", "iam.serviceAccounts.setIamPolicy"))
	again, thing, err := b.cloud.EnsureIdentity(t.Context(), r, v1alpha1.IdentityAsk{ServiceAccount: "reports"})
	if err != nil || again.Identity != a.Identity || thing.Made || !thing.CreatedAt.Equal(r.CreatedAt) {
		t.Errorf("again: %+v %+v %v", again, thing, err)
	}
	if n := len(b.fake.Calls("iam.serviceAccounts.create", "iam.serviceAccounts.setIamPolicy")); n != calls {
		t.Errorf("again it wrote %d times", n-calls)
	}
	// Another ServiceAccount takes the place of the first.
	if _, _, err := b.cloud.EnsureIdentity(t.Context(), r, v1alpha1.IdentityAsk{ServiceAccount: "moved"}); err != nil {
		t.Fatal(err)
	}
	if got := b.fake.ActsAs(a.Identity); len(got) != 1 || !strings.HasSuffix(got[0], "/moved]") {
		t.Errorf("acts as it: %v", got)
	}
	owns := func(r provider.Request, identity string) bool {
		ok, err := b.cloud.OwnsIdentity(t.Context(), r, identity)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	other := b.request("shop", "other")
	if !owns(r, a.Identity) || owns(other, a.Identity) || owns(r, b.identity(other)) || owns(b.request("shop", "none"), "nobody") {
		t.Error("identities are not told apart")
	}
	if b.fake.BlindWrites() != 0 {
		t.Error("a policy was written without its etag")
	}
}

func TestIdentityIDs_G16(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	seen := map[string]string{}
	long := strings.Repeat("x", 57)
	for _, inst := range []string{"a", "inst-1", strings.Repeat("i", 63)} {
		for _, s := range [][2]string{{"a", "b"}, {"shop-a", "b"}, {"shop", "a-b"}, {"shop", ""}, {"1", "2"}, {long, strings.Repeat("s", 63)}, {long, strings.Repeat("s", 62) + "t"}, {"abcdefghijklmnop", "q"}} {
			r := b.request(s[0], s[1])
			r.Installation = inst
			key := fmt.Sprint(inst, s)
			email := b.identity(r) // the fake refuses what Google would
			if other, ok := seen[email]; ok {
				t.Errorf("%s and %s are both %s", key, other, email)
			}
			seen[email] = key
			id, display, desc, _ := b.fake.Account(email)
			if len(id) < 6 || len(id) > 30 || len(display) > 100 || len(desc) > 256 || !b.cloud.anIdentity("serviceAccount:"+email) {
				t.Errorf("id %s, display name %q, description %q", id, display, desc)
			}
		}
	}
	if got := accountDomain("example.com:shop"); got != "shop.example.com.iam.gserviceaccount.com" {
		t.Error(got)
	}
}

// A service account that is not the subject's, by its description, is not
// adopted: the same name in another's hands.
func TestForeignIdentity_C148(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	for i, desc := range []string{"", "made by hand", "radial installation=other project=shop service=reports purpose=identity asked=1"} {
		r := b.request("shop", fmt.Sprintf("reports%d", i))
		b.fake.PlantAccount(identityID(r), desc, false)
		b.fake.Forget()
		_, _, err := b.cloud.EnsureIdentity(t.Context(), r, v1alpha1.IdentityAsk{ServiceAccount: "x"})
		b.want(err, v1alpha1.PhaseFailed, "never adopts")
		if n := len(b.fake.Calls("iam.serviceAccounts.setIamPolicy", "iam.serviceAccounts.create")); n != 0 {
			t.Errorf("%q: it wrote %d times", desc, n)
		}
		if owns, err := b.cloud.OwnsIdentity(t.Context(), r, b.cloud.identityEmail(r)); owns || err != nil {
			t.Errorf("%q is owned (%v)", desc, err)
		}
	}
	r := b.request("shop", "off")
	b.fake.PlantAccount(identityID(r), description(r, r.CreatedAt), true)
	_, _, err := b.cloud.EnsureIdentity(t.Context(), r, v1alpha1.IdentityAsk{ServiceAccount: "x"})
	b.want(err, v1alpha1.PhaseFailed, "disabled")
}

// What Google has only just made it does not yet know: that is Waiting, and comes
// right without anything being made again.
func TestFreshIdentity_C97_C147(t *testing.T) {
	b := newBench(t, fakegoogle.Options{AccountDelay: 40 * time.Second})
	r := b.request("shop", "reports")
	ensure := func() (provider.Thing, error) {
		_, thing, err := b.cloud.EnsureIdentity(t.Context(), r, v1alpha1.IdentityAsk{ServiceAccount: "reports"})
		return thing, err
	}
	_, err := ensure()
	b.want(err, v1alpha1.PhaseWaiting, "needs time")
	_, err = ensure()
	b.want(err, v1alpha1.PhaseWaiting, "does not show it yet")
	b.clock.add(41 * time.Second)
	thing, err := ensure()
	if err != nil || thing.Made || thing.CreatedAt.Before(r.CreatedAt) {
		t.Errorf("%+v %v: it would be Recovered", thing, err)
	}
	// One that asks later finds it there from before.
	r.CreatedAt = b.clock.Now()
	if thing, err = ensure(); err != nil || !thing.CreatedAt.Before(r.CreatedAt) {
		t.Errorf("%+v %v: it would be Ready", thing, err)
	}
}

func TestSecretAccess_C67_C68(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	r := b.request("shop", "reports")
	id := b.identity(r)
	other := b.identity(b.request("shop", "other"))
	b.fake.AddBinding("roles/secretmanager.secretAccessor", "user:somebody@example.com", "theirs", `resource.name.startsWith("projects/111111111111/secrets/theirs_")`)
	before := b.fake.Bindings()
	own, read := v1alpha1.ServiceSecretPrefix("shop", "reports"), v1alpha1.ProjectSecretPrefix("shop")
	ensure := func(r provider.Request, id string, own, read []string) {
		t.Helper()
		if err := b.cloud.EnsureSecretAccess(t.Context(), r, v1alpha1.SecretAccessAsk{Identity: id, Own: own, Read: read}); err != nil {
			t.Fatal(err)
		}
	}
	ensure(r, id, []string{own}, []string{read})
	ensure(b.request("shop", "other"), other, nil, []string{read})
	const access, add, remove, create = "secretmanager.versions.access", "secretmanager.versions.add", "secretmanager.secrets.delete", "secretmanager.secrets.create"
	for _, c := range []struct {
		id, permission, secret string
		may                    bool
	}{
		{id, access, own + "key", true}, {id, add, own + "key", true}, {id, remove, own + "key", true}, {id, create, own + "key", true},
		{id, access, read + "stripe__KEY", true}, {id, add, read + "stripe__KEY", false}, {id, remove, read + "stripe__KEY", false},
		{id, access, "s_shop_other_key", false}, {id, access, "p_other_x", false}, {id, add, "s_shop_reports2_key", false},
		{other, access, own + "key", false}, {other, access, read + "stripe__KEY", true}, {other, create, "s_shop_other_key", false},
	} {
		if got := b.fake.May(c.id, c.permission, c.secret); got != c.may {
			t.Errorf("C-68: %s %s on %s: %v", c.id, c.permission, c.secret, got)
		}
	}
	n := len(b.fake.Calls("resourcemanager.projects.setIamPolicy"))
	ensure(r, id, []string{own}, []string{read})
	if got := len(b.fake.Calls("resourcemanager.projects.setIamPolicy")); got != n {
		t.Error("what stands is written again")
	}
	// Less is asked: the rest is taken away; and nobody else's is touched.
	ensure(r, id, nil, []string{read})
	if b.fake.May(id, access, own+"key") || b.fake.May(id, create, own+"key") || !b.fake.May(id, access, read+"x") {
		t.Error("C-67: what is no longer asked is still granted")
	}
	ensure(r, id, nil, nil)
	ensure(b.request("shop", "other"), other, nil, nil)
	if got := b.fake.Bindings(); !slices.Equal(got, before) {
		t.Errorf("left over:\n%s\nbefore:\n%s", strings.Join(got, "\n"), strings.Join(before, "\n"))
	}
	if b.fake.BlindWrites() != 0 {
		t.Error("a policy was written without its etag")
	}
	err := b.cloud.EnsureSecretAccess(t.Context(), r, v1alpha1.SecretAccessAsk{Identity: id, Own: slices.Repeat([]string{own}, 13)})
	b.want(err, v1alpha1.PhaseFailed, "12 prefixes")
	b.cloud.options.KeeperRole = "projects/acme-test/roles/none"
	b.clock.add(time.Hour)
	err = b.cloud.EnsureSecretAccess(t.Context(), r, v1alpha1.SecretAccessAsk{Identity: id, Own: []string{own}})
	b.want(err, v1alpha1.PhaseFailed, "roles/none does not exist")
}

// Twenty services' access is written at once into the one policy: nobody's is
// lost (G18).
func TestSecretAccessAtOnce_G18(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	second, err := Connect(t.Context(), provider.Settings{Account: testAccount}, "v", Options{Endpoint: b.url, Now: b.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		r := b.request("shop", fmt.Sprintf("s%d", i))
		id := b.identity(r)
		ask := v1alpha1.SecretAccessAsk{Identity: id, Own: []string{v1alpha1.ServiceSecretPrefix("shop", r.Subject.Service)}}
		wg.Go(func() {
			c := []*Cloud{b.cloud, second}[i%2]
			for tries := 0; ; tries++ {
				err := c.EnsureSecretAccess(t.Context(), r, ask)
				if err == nil {
					return
				}
				if provider.PhaseOf(err) != v1alpha1.PhaseWaiting || tries > 50 {
					t.Error(err)
					return
				}
			}
		})
		defer func() {
			if !b.fake.May(id, "secretmanager.versions.access", ask.Own[0]+"key") {
				t.Errorf("%s lost its access", r.Subject)
			}
		}()
	}
	wg.Wait()
}

func TestSecretValues_C69(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	b.fake.SetSecret("p_shop_stripe__KEY", []byte("a\x00binary value"))
	got, err := b.cloud.SecretValues(t.Context(), b.request("shop", ""), []string{"p_shop_stripe__KEY", "p_shop_stripe__NONE"})
	if err != nil || len(got) != 1 || string(got["p_shop_stripe__KEY"]) != "a\x00binary value" {
		t.Errorf("%d values, %v", len(got), err)
	}
	b.fake.Damage("p_shop_stripe__KEY")
	if got, err := b.cloud.SecretValues(t.Context(), b.request("shop", ""), []string{"p_shop_stripe__KEY"}); err == nil || provider.PhaseOf(err) != "" || strings.Contains(err.Error(), "binary value") {
		t.Errorf("a value that was damaged on its way: %q, %v", got, err)
	}
	b.fake.Deny("secretmanager.versions.access", true)
	_, err = b.cloud.SecretValues(t.Context(), b.request("shop", ""), []string{"p_shop_stripe__KEY"})
	b.want(err, v1alpha1.PhaseFailed, "secretmanager.versions.access", testAccount)
}

func TestWrappingKey_C73(t *testing.T) {
	b := newBench(t, fakegoogle.Options{})
	r := b.request("shop", "")
	id := b.identity(r)
	ensure := func(key string) error {
		return b.cloud.EnsureWrappingKey(t.Context(), r, v1alpha1.WrappingKeyAsk{Identity: id, Key: key})
	}
	if err := ensure(testKey); err != nil || !b.fake.MayWrap(testKey, id) {
		t.Errorf("%v", err)
	}
	b.want(ensure("a-key"), v1alpha1.PhaseFailed, "form")
	b.want(ensure(strings.Replace(testKey, "wrap", "none", 1)), v1alpha1.PhaseFailed, "not there")
	b.fake.Deny("cloudkms.cryptoKeys.setIamPolicy", true)
	id = b.identity(b.request("shop", "other"))
	b.want(ensure(testKey), v1alpha1.PhaseFailed, "cloudkms.cryptoKeys.setIamPolicy")
}

// Every error of every API becomes words for a member, with the permission that
// is missing.
func TestErrors_C97_C100(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		op  string
		run func(*bench) error
	}{
		{"iam.serviceAccounts.get", func(b *bench) error {
			_, _, err := b.cloud.EnsureIdentity(ctx, b.request("shop", "r"), v1alpha1.IdentityAsk{ServiceAccount: "r"})
			return err
		}},
		{"iam.serviceAccounts.create", func(b *bench) error {
			_, _, err := b.cloud.EnsureIdentity(ctx, b.request("shop", "r"), v1alpha1.IdentityAsk{ServiceAccount: "r"})
			return err
		}},
		{"storage.buckets.create", func(b *bench) error {
			r := b.request("shop", "r")
			_, _, err := b.cloud.EnsureBucket(ctx, r, b.ask(r))
			return err
		}},
		{"storage.hmacKeys.create", func(b *bench) error {
			r := b.request("shop", "r")
			ask := b.credential(r)
			_, err := b.cloud.IssueCredential(ctx, r, ask)
			return err
		}},
		{"storage.buckets.setIamPolicy", func(b *bench) error {
			r := b.request("shop", "r")
			return b.cloud.EnsureBucketAccess(ctx, r, b.credential(r))
		}},
		{"secretmanager.versions.access", func(b *bench) error {
			_, err := b.cloud.SecretValues(ctx, b.request("shop", ""), []string{"p_shop_x"})
			return err
		}},
		{"cloudkms.cryptoKeys.getIamPolicy", func(b *bench) error {
			r := b.request("shop", "r")
			return b.cloud.EnsureWrappingKey(ctx, r, v1alpha1.WrappingKeyAsk{Identity: b.identity(r), Key: testKey})
		}},
		{"resourcemanager.projects.setIamPolicy", func(b *bench) error {
			r := b.request("shop", "r")
			return b.cloud.EnsureSecretAccess(ctx, r, v1alpha1.SecretAccessAsk{Identity: b.identity(r), Read: []string{"p_shop_"}})
		}},
	} {
		t.Run(c.op, func(t *testing.T) {
			b := newBench(t, fakegoogle.Options{})
			for _, f := range []struct {
				fault fakegoogle.Fault
				phase v1alpha1.Phase
				words string
			}{
				{fakegoogle.Fault{Code: 503}, v1alpha1.PhaseWaiting, "503"},
				{fakegoogle.Fault{Code: 500}, v1alpha1.PhaseWaiting, "500"},
				{fakegoogle.Fault{Code: 429}, v1alpha1.PhaseWaiting, "limits how often"},
				{fakegoogle.Fault{Code: 403, Reason: "rateLimitExceeded"}, v1alpha1.PhaseWaiting, "limits how often"},
				{fakegoogle.Fault{Code: 401}, v1alpha1.PhaseWaiting, "token"},
				{fakegoogle.Fault{Code: 403, Reason: "SERVICE_DISABLED"}, v1alpha1.PhaseFailed, "is not enabled in account acme-test"},
				{fakegoogle.Fault{Code: 403, Reason: "forbidden"}, v1alpha1.PhaseFailed, c.op},
				{fakegoogle.Fault{Dropped: true}, v1alpha1.PhaseWaiting, "cannot be reached"},
			} {
				f.fault.Op = c.op
				b.fake.Play(f.fault)
				err := c.run(b)
				if c.op == "iam.serviceAccounts.create" && f.fault.Code == 429 {
					// Google says so of the limit of service accounts, too.
					f.phase, f.words = v1alpha1.PhaseFailed, "as many service accounts"
				}
				if got := provider.PhaseOf(err); got != f.phase || !strings.Contains(fmt.Sprint(err), f.words) {
					t.Errorf("%+v: %q %v, not %s with %q", f.fault, got, err, f.phase, f.words)
				}
				b.fake.Heal()
			}
			// The cause goes: nothing is left in the way.
			if err := c.run(b); err != nil {
				t.Errorf("healed: %v", err)
			}
		})
	}
}
