package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/conceal"
)

// everything implements all kinds; bare implements none.
type bare struct{}

func (bare) Version() string { return "test 1.2.3" }

type everything struct {
	bare
	Identities
	SecretAccess
	Buckets
	Credentials
	WrappingKeys
}

func (everything) SecretValues(context.Context, Request, []string) (map[string][]byte, error) {
	return nil, errors.New("not called")
}

var settings = Settings{Provider: "test", Account: "acme", Location: "Here", KMSKey: "k", RotationGrace: time.Hour, Installation: "id"}

func asked(kind string, s v1alpha1.Subject, params map[string]string) *v1alpha1.CloudResource {
	yes := true
	secret, _ := strings.CutSuffix(params[v1alpha1.ParamSecretName], v1alpha1.SyncedSecretEnding)
	name, _ := v1alpha1.RequestName(s, kind, secret)
	r := &v1alpha1.CloudResource{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.Namespace(s.Project), UID: "u", Generation: 1, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.AnkkaServiceKind, Name: s.Service, Controller: &yes}}},
		Spec: v1alpha1.CloudResourceSpec{Provider: "test", Kind: kind, Subject: s, Parameters: params},
	}
	if s.Service == "" {
		r.OwnerReferences[0].Kind, r.OwnerReferences[0].Name = v1alpha1.AnkkaProjectKind, s.Project
	}
	if kind == v1alpha1.KindBucketCredential {
		r.Spec.CredentialGeneration = 1
	}
	return r
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestCheck_C74_C78_C101_C102_C103_C143(t *testing.T) {
	service, project := v1alpha1.Subject{Project: "shop", Service: "reports"}, v1alpha1.Subject{Project: "shop"}
	mine := must(v1alpha1.BucketName("acme", "shop", "reports"))
	backup := must(v1alpha1.BackupBucketName("acme", "shop"))
	bucket := func() map[string]string {
		return must(v1alpha1.BucketAsk{Purpose: v1alpha1.PurposeService, Location: "Here", NamePrefix: "acme"}.Parameters())
	}
	credential := map[string]string{v1alpha1.ParamBucket: mine, v1alpha1.ParamIdentity: "i", v1alpha1.ParamSecretName: "reports-cloud-storage"}
	with := func(m map[string]string, k, v string) map[string]string { m = maps.Clone(m); m[k] = v; return m }
	owned := func(r *v1alpha1.CloudResource, apiVersion, kind, name string) *v1alpha1.CloudResource {
		r.OwnerReferences[0].APIVersion, r.OwnerReferences[0].Kind, r.OwnerReferences[0].Name = apiVersion, kind, name
		return r
	}
	identity := func(account string) *v1alpha1.CloudResource {
		return asked(v1alpha1.KindIdentity, service, map[string]string{v1alpha1.ParamServiceAccount: account})
	}
	changed := func(r *v1alpha1.CloudResource, f func(*v1alpha1.CloudResource)) *v1alpha1.CloudResource {
		f(r)
		return r
	}
	sync := func(secret, id string) *v1alpha1.CloudResource {
		return asked(v1alpha1.KindSecretSync, project, map[string]string{v1alpha1.ParamSecretName: secret + "-cloud-secret", v1alpha1.ParamEntries: "KEY=" + id, v1alpha1.ParamEntryGeneration: "1"})
	}
	for name, tc := range map[string]struct {
		r    *v1alpha1.CloudResource
		says string // empty is served
	}{
		"an identity":                 {identity("reports"), ""},
		"a bucket":                    {asked(v1alpha1.KindBucket, service, bucket()), ""},
		"a backup bucket":             {asked(v1alpha1.KindBucket, project, with(bucket(), v1alpha1.ParamPurpose, "backup")), ""},
		"a credential":                {asked(v1alpha1.KindBucketCredential, service, credential), ""},
		"a synced secret":             {sync("stripe", "p_shop_stripe__KEY"), ""},
		"a Recipe's":                  {owned(identity("reports"), "radapp.io/v1alpha3", "Recipe", "reports"), ""},
		"a workload's, another SA":    {owned(identity("web"), "apps/v1", "Deployment", "reports"), ""},
		"a workload's, default SA":    {owned(identity("default"), "apps/v1", "Deployment", "reports"), "ServiceAccount default"},
		"a service named default":     {asked(v1alpha1.KindIdentity, v1alpha1.Subject{Project: "shop", Service: "default"}, map[string]string{v1alpha1.ParamServiceAccount: "default"}), "ServiceAccount default"},
		"a kind of tomorrow":          {asked("tomorrow", service, nil), "kind tomorrow is not implemented by test 1.2.3"},
		"a service's other SA":        {identity("other"), "ServiceAccount"},
		"no owner":                    {changed(identity("reports"), func(r *v1alpha1.CloudResource) { r.OwnerReferences = nil }), "no owner"},
		"an owner that is none":       {changed(identity("reports"), func(r *v1alpha1.CloudResource) { r.OwnerReferences[0].Controller = nil }), "no owner"},
		"another service's":           {owned(identity("reports"), v1alpha1.GroupVersion.String(), v1alpha1.AnkkaServiceKind, "other"), "not controlled by"},
		"another project's":           {owned(asked(v1alpha1.KindIdentity, project, map[string]string{v1alpha1.ParamServiceAccount: "shop.database"}), v1alpha1.GroupVersion.String(), v1alpha1.AnkkaProjectKind, "other"), "not controlled by"},
		"a project's":                 {asked(v1alpha1.KindIdentity, project, map[string]string{v1alpha1.ParamServiceAccount: "shop.database"}), ""},
		"a ConfigMap's":               {owned(identity("reports"), "v1", "ConfigMap", "reports"), "not controlled by"},
		"another group's Recipe":      {owned(identity("reports"), "evil.test/v1", "Recipe", "reports"), "not controlled by"},
		"another project's namespace": {changed(identity("reports"), func(r *v1alpha1.CloudResource) { r.Namespace = "ankka-other" }), "namespace"},
		"the platform's namespace":    {asked(v1alpha1.KindIdentity, v1alpha1.Subject{Project: "platform", Service: "x"}, map[string]string{v1alpha1.ParamServiceAccount: "x"}), "platform"},
		"another name":                {changed(identity("reports"), func(r *v1alpha1.CloudResource) { r.Name = "reports-x-identity" }), "is named reports-identity"},
		"one parameter more":          {asked(v1alpha1.KindBucket, service, with(bucket(), "colour", "blue")), "colour"},
		"another location":            {asked(v1alpha1.KindBucket, service, with(bucket(), v1alpha1.ParamLocation, "There")), "another location"},
		"another key":                 {asked(v1alpha1.KindBucket, service, with(bucket(), v1alpha1.ParamKMSKey, "theirs")), "another key"},
		"a backup for a service":      {asked(v1alpha1.KindBucket, service, with(bucket(), v1alpha1.ParamPurpose, "backup")), "not one of"},
		"another prefix later": {changed(asked(v1alpha1.KindBucket, service, with(bucket(), v1alpha1.ParamNamePrefix, "other")), func(r *v1alpha1.CloudResource) {
			r.Status.Outputs = map[string]string{v1alpha1.OutputBucket: mine}
		}), "never made again"},
		"made in another account":      {changed(identity("reports"), func(r *v1alpha1.CloudResource) { r.Status.Account, r.Status.Location = "old", "Here" }), v1alpha1.DetailMoved},
		"made in another location":     {changed(identity("reports"), func(r *v1alpha1.CloudResource) { r.Status.Account, r.Status.Location = "acme", "There" }), v1alpha1.DetailMoved},
		"another's bucket":             {asked(v1alpha1.KindBucketCredential, service, with(credential, v1alpha1.ParamBucket, must(v1alpha1.BucketName("acme", "shop", "other")))), "bucket is not"},
		"another project's bucket":     {asked(v1alpha1.KindBucketCredential, service, with(credential, v1alpha1.ParamBucket, must(v1alpha1.BucketName("acme", "other", "reports")))), "bucket is not"},
		"the backup bucket":            {asked(v1alpha1.KindBucketCredential, service, with(credential, v1alpha1.ParamBucket, backup)), v1alpha1.DetailBackupIdentity},
		"another's Secret":             {asked(v1alpha1.KindBucketCredential, service, with(credential, v1alpha1.ParamSecretName, "other-cloud-storage")), "Secret"},
		"a synced secret of others":    {sync("stripe", "p_other_stripe__KEY"), "no secret of project"},
		"a synced secret of a service": {sync("stripe", "s_shop_reports_KEY"), "no secret of project"},
		"a service's sync":             {asked(v1alpha1.KindSecretSync, service, nil), "a service has no request of kind"},
	} {
		_, err := check(tc.r, settings, everything{})
		var o *outcome
		if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says) || !errors.As(err, &o) || !o.final) {
			t.Errorf("%s: %v; want %q", name, err, tc.says)
		}
	}
	for _, kind := range v1alpha1.Kinds() {
		if _, err := check(asked(kind, service, nil), settings, bare{}); err == nil || !strings.Contains(err.Error(), "is not implemented by test 1.2.3") {
			t.Errorf("C-101: %s: %v", kind, err)
		}
	}
	for n := 1; n <= v1alpha1.MaxNamePrefix; n++ {
		prefix := strings.Repeat("x", n)
		if !bucketOf(service, must(v1alpha1.BucketName(prefix, "shop", "reports"))) || !bucketOf(project, must(v1alpha1.BackupBucketName(prefix, "shop"))) {
			t.Errorf("C-143: with a prefix of %d the subject's own bucket is not taken for its own", n)
		}
	}
}

func TestRecovered_C147(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		thing    Thing
		first    bool
		answered bool
		said     bool
		want     bool
	}{
		"made now, by a clock that is behind":        {thing: Thing{Made: true, CreatedAt: created.Add(-time.Hour)}},
		"made before a crash, after the request":     {thing: Thing{CreatedAt: created.Add(time.Second)}},
		"in the request's second, perhaps for it":    {thing: Thing{CreatedAt: created}},
		"in the request's second, before any call":   {thing: Thing{CreatedAt: created.Add(300 * time.Millisecond)}, first: true, want: true},
		"by a first call, of which no answer came":   {thing: Thing{CreatedAt: created.Add(time.Second)}, first: true},
		"before the request":                         {thing: Thing{CreatedAt: created.Add(-time.Second)}, want: true},
		"the cloud does not tell":                    {thing: Thing{}, want: true},
		"said Ready before":                          {thing: Thing{CreatedAt: created.Add(-time.Hour)}, answered: true},
		"said Recovered before, of a later ask also": {thing: Thing{CreatedAt: created.Add(time.Hour)}, answered: true, said: true, want: true},
	} {
		n := &session{obj: &v1alpha1.CloudResource{}, req: Request{CreatedAt: created}, first: tc.first}
		if tc.answered {
			n.obj.Status.Outputs, n.obj.Status.Recovered = map[string]string{"bucket": "b"}, tc.said
		}
		if got := n.recovered(tc.thing); got != tc.want {
			t.Errorf("%s: recovered %v", name, got)
		}
	}
}

func TestScrub_C100(t *testing.T) {
	const canary = "wJalrXUtnFEMIbK7MDENGbPxRfiCYzEXAMPLEKEY99"
	known := new(conceal.Values)
	known.Add("short-known")
	for _, text := range []string{
		"secret=" + canary, `{"secretKey": "` + canary + `"}`, "Authorization: Bearer " + canary, "https://u:" + canary + "@h/", "X-Amz-Signature=" + canary,
		"-----BEGIN RSA PRIVATE KEY-----\n" + canary + "\n-----END RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n" + canary, "password: 'p " + canary + "'", "it was " + canary + ", it was",
	} {
		if got := scrub(text); strings.Contains(got, canary) || !strings.Contains(got, conceal.Mark) {
			t.Errorf("%q is left of %q", got, text)
		}
	}
	if got := scrub(known.Text("it was short-known")); strings.Contains(got, "short-known") {
		t.Errorf("%q", got)
	}
	for _, text := range []string{"permission storage.buckets.create is missing on projects/acme-production", "bucket acme-shop-reports-ae7cc739 is held by someone else; a provider never adopts it",
		"service account reports-0123456789abcdef0123456789@acme-production.iam.gserviceaccount.com has 10 keys"} {
		if got := scrub(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	c := Credential{ID: "id", AccessKey: canary, SecretKey: canary}
	if got := fmt.Sprintf("%v %+v %#v %s", c, c, c, c); strings.Contains(got, canary) {
		t.Errorf("a credential shows its keys: %s", got)
	}
	var b strings.Builder
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "credential", c)
	if strings.Contains(b.String(), canary) {
		t.Errorf("a credential shows its keys in a log: %s", b.String())
	}
	b.Reset()
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "credential", c)
	if strings.Contains(b.String(), canary) {
		t.Errorf("a credential shows its keys in a JSON log: %s", b.String())
	}
}

// reader answers one live object and refuses everything else: no cloud call and
// no write may follow a stale event.
type liveReader struct {
	client.Client
	live *v1alpha1.CloudResource
	gets int
}

func (l *liveReader) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	l.gets++
	l.live.DeepCopyInto(o.(*v1alpha1.CloudResource))
	return nil
}

// A stale, unanswered copy that a watch delivers wakes the provider; what it
// then does is decided from what the API server says, which is that all is
// answered: no call of the cloud (whose methods are nil here), no write.
func TestStaleCopy_C93_C94(t *testing.T) {
	stale := asked(v1alpha1.KindBucketCredential, v1alpha1.Subject{Project: "shop", Service: "reports"}, map[string]string{
		v1alpha1.ParamBucket: must(v1alpha1.BucketName("acme", "shop", "reports")), v1alpha1.ParamIdentity: "i", v1alpha1.ParamSecretName: "reports-cloud-storage"})
	stale.ResourceVersion = "1"
	live := stale.DeepCopy()
	now := metav1.Now()
	live.ResourceVersion = "5"
	live.Status = v1alpha1.CloudResourceStatus{ObservedGeneration: 1, Phase: v1alpha1.PhaseReady, Account: "acme", Location: "Here", CredentialGeneration: 1, CheckedAt: &now,
		Credentials: []v1alpha1.CredentialEntry{{ID: "k", Generation: 1, State: v1alpha1.CredentialInPlace, Since: now}}}
	reads := &liveReader{live: live}
	o := Options{Cloud: everything{}, Settings: settings}
	_ = o.complete()
	s := &server{Options: o, live: reads, metrics: processMetrics(), retry: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second, time.Minute),
		stale: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second, time.Minute)}
	wakes := s.wakes()
	for range 100 {
		if !wakes.Create(event.CreateEvent{Object: stale}) {
			t.Fatal("the event is dropped, so nothing is tried")
		}
		if r, err := s.Reconcile(t.Context(), reqFor(stale)); err != nil || r.RequeueAfter <= 0 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if reads.gets != 100 {
		t.Errorf("%d reads of the API server for 100 events", reads.gets)
	}
	// What this process has written itself wakes nobody; a re-apply does.
	next := live.DeepCopy()
	next.ResourceVersion, next.Status.Detail = "6", "x"
	if wakes.Update(event.UpdateEvent{ObjectOld: live, ObjectNew: next}) {
		t.Error("the status' own change is looked at")
	}
	next.Labels = map[string]string{"a": "b"}
	if !wakes.Update(event.UpdateEvent{ObjectOld: live, ObjectNew: next}) {
		t.Error("a re-apply is not looked at")
	}
	next.Spec.Provider = "other"
	if wakes.Update(event.UpdateEvent{ObjectOld: live, ObjectNew: next}) {
		t.Error("another provider's request is looked at")
	}
}

func reqFor(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}
