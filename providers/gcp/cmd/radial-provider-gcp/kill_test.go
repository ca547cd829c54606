package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/providers/gcp/fakegoogle"
)

// play has a credential issued and rotated, the process killed at point kill
// (none below 0) and started again, and judges what is left in the account, in
// the Secret and in the status. It answers the points that it passed.
func play(t *testing.T, kill int) []string {
	s := newStage(t, fmt.Sprintf("gcp-kill-%d", kill+1), fakegoogle.Options{}, "--key-settles", "100ms")
	s.start()
	p := s.project()
	sub := s.service(p, "reports")
	params := s.storage(sub)
	identity, bucket := params[v1alpha1.ParamIdentity], params[v1alpha1.ParamBucket]
	s.mu.Lock()
	s.watch = func(c fakegoogle.Call) {
		if c.Op != "storage.hmacKeys.update" && c.Op != "storage.hmacKeys.delete" {
			return
		}
		if access, _ := s.pair(sub); access != "" && strings.HasSuffix(c.Path, "/"+access) {
			s.Errorf("C-144: %s of the key that is in the Secret", c.Op)
		}
	}
	s.mu.Unlock()
	var mu sync.Mutex
	lost := 0
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		select {
		case <-s.Died():
			// An answer was lost if a key was made that the Secret does not hold.
			if keys := s.fake.Keys(identity); len(keys) > 0 {
				if access, _ := s.pair(sub); keys[len(keys)-1].Access != access {
					mu.Lock()
					lost++
					mu.Unlock()
				}
			}
			s.start()
		case <-t.Context().Done():
		}
	}()
	s.Arm(kill)
	key := s.apply(sub, v1alpha1.KindBucketCredential, "", params, 1)
	s.done(key)
	first, firstKey := s.pair(sub)
	if !s.reaches(first, firstKey, bucket) {
		t.Errorf("C-117: the first key does not reach the bucket")
	}
	s.apply(sub, v1alpha1.KindBucketCredential, "", params, 2)
	r := s.await(key, "at generation 2", func(r *v1alpha1.CloudResource) bool {
		return r.Status.Phase.Done() && r.Status.CredentialGeneration == 2
	})
	second, secondKey := s.pair(sub)
	if second == first || !s.reaches(second, secondKey, bucket) {
		t.Errorf("C-122: the second key is the first, or does not reach the bucket")
	}
	due := r.Status.CredentialReportedAt.Add(grace)
	if time.Now().Before(due.Add(-time.Second)) && !s.reaches(first, firstKey, bucket) {
		t.Errorf("C-124: the first key ended within the grace")
	}
	s.eventually("one key is left", func() bool { return len(s.fake.Keys(identity)) == 1 })
	if time.Now().Before(due) {
		t.Errorf("C-124: the first key ended before its grace was over")
	}
	s.await(key, "left with one key in its journal", func(r *v1alpha1.CloudResource) bool {
		return len(r.Status.Credentials) == 1 && r.Status.Credentials[0].State == v1alpha1.CredentialInPlace && r.Status.CredentialGeneration == 2
	})
	if access, secret := s.pair(sub); access != second || !s.reaches(access, secret, bucket) || s.reaches(first, firstKey, bucket) {
		t.Errorf("C-144: the key in the Secret was ended, or the one before was not")
	}
	sec := &corev1.Secret{}
	s.must(s.in.Admin.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(p), Name: v1alpha1.StorageSecretName(sub)}, sec))
	if id := sec.Annotations[v1alpha1.AnnotationCredentialID]; strings.Contains(id, second) || id == "" {
		t.Errorf("C-144: the Secret's annotation is %q", id)
	}
	mu.Lock()
	if want, got := 2+lost, s.fake.Issued(identity); got != want {
		t.Errorf("C-95: %d keys were issued for two generations, with %d answers lost", got, lost)
	}
	mu.Unlock()
	if kill >= 0 {
		select {
		case <-s.Died():
			<-restarted
		default:
			t.Errorf("the process was never killed: there is no point %d in %q", kill, s.Points())
		}
	}
	s.clean(p)
	if t.Failed() {
		t.Logf("the provider said:\n%s", tail(s.Output.String()))
	}
	return s.Points()
}

// The process is killed at every call to Google and at every write to the API
// server of a key's issue, rotation and end, before it is carried out and after.
// A plain run takes every fifth point, RADIAL_FAULT=all every one.
func TestKilled_C95_C124_C125_C126_C144(t *testing.T) {
	step := 5
	if os.Getenv("RADIAL_FAULT") == "all" {
		step = 1
	}
	var points []string
	t.Run("undisturbed", func(t *testing.T) { points = play(t, -1) })
	if t.Failed() {
		return
	}
	if len(points) < 40 {
		t.Fatalf("%d points: %q", len(points), points)
	}
	t.Run("killed", func(t *testing.T) {
		slots := newSlots()
		for i := 0; i < len(points); i += step {
			t.Run(fmt.Sprintf("%02d %s", i, points[i]), func(t *testing.T) {
				t.Parallel()
				defer slots()()
				play(t, i)
			})
		}
	})
	t.Logf("%d points, each %d", len(points), step)
}

// The process is killed at every call of making identity and bucket, granting
// secrets and the key: what comes of it is made once, and Ready, not Recovered.
func TestKilledMaking_C99_C147(t *testing.T) {
	play := func(t *testing.T, kill int) []string {
		s := newStage(t, fmt.Sprintf("gcp-make-%d", kill+1), fakegoogle.Options{})
		s.start()
		p := s.project()
		sub, db := s.service(p, "reports"), v1alpha1.Subject{Project: p}
		// The one thing that is there before: what its request finds is Recovered.
		found := s.service(p, "found")
		name, err := v1alpha1.BucketName("acme", p, "found")
		s.must(err)
		s.fake.PlantBucket(account, name, map[string]any{"timeCreated": "2020-01-01T00:00:00Z", "labels": map[string]any{
			"radial-installation": "under-test", "radial-project": p, "radial-service": "found", "radial-purpose": "service"}})
		restarted := make(chan struct{})
		go func() {
			defer close(restarted)
			select {
			case <-s.Died():
				s.start()
			case <-t.Context().Done():
			}
		}()
		s.Arm(kill)
		id := s.identity(sub)
		buckets := s.bucket(sub, func(a *v1alpha1.BucketAsk) { a.KMSKey, a.CORSOrigins = wrapKey, []string{"*"} })
		old := s.bucket(found, nil)
		dbID := s.identity(db)
		identity, database := s.done(id), s.done(dbID)
		access := s.apply(sub, v1alpha1.KindSecretAccess, "", map[string]string{v1alpha1.ParamIdentity: identity.Status.Outputs[v1alpha1.OutputIdentity],
			v1alpha1.ParamOwn: v1alpha1.ServiceSecretPrefix(p, "reports"), v1alpha1.ParamRead: v1alpha1.ProjectSecretPrefix(p)}, 0)
		wrap := s.apply(db, v1alpha1.KindWrappingKey, "", map[string]string{v1alpha1.ParamIdentity: database.Status.Outputs[v1alpha1.OutputIdentity], v1alpha1.ParamKey: wrapKey}, 0)
		for _, r := range []*v1alpha1.CloudResource{identity, database, s.done(buckets), s.done(access), s.done(wrap)} {
			if r.Status.Phase != v1alpha1.PhaseReady || r.Status.Recovered {
				t.Errorf("C-147: %s is %s", r.Name, r.Status.Phase)
			}
		}
		if r := s.done(old); r.Status.Phase != v1alpha1.PhaseRecovered || !r.Status.Recovered {
			t.Errorf("C-99: what was there is %s", r.Status.Phase)
		}
		email := identity.Status.Outputs[v1alpha1.OutputIdentity]
		if !s.fake.May(email, "secretmanager.versions.add", v1alpha1.ServiceSecretPrefix(p, "reports")+"x") || !s.fake.MayWrap(wrapKey, database.Status.Outputs[v1alpha1.OutputIdentity]) || len(s.fake.ActsAs(email)) != 1 {
			t.Error("what is Ready is not granted")
		}
		// Each was made once, whatever was lost.
		for _, op := range []string{"storage.buckets.create", "iam.serviceAccounts.create"} {
			made := map[string]int{}
			for _, c := range s.fake.Calls(op) {
				if c.Code == 200 {
					made[c.Body]++
				}
			}
			for _, n := range made {
				if n > 1 {
					t.Errorf("%s succeeded %d times", op, n)
				}
			}
		}
		if kill >= 0 {
			select {
			case <-s.Died():
				<-restarted
			default:
				t.Logf("not killed: there was no point %d this time", kill)
			}
		}
		s.clean(p)
		return s.Points()
	}
	step := 6
	if os.Getenv("RADIAL_FAULT") == "all" {
		step = 1
	}
	var points []string
	t.Run("undisturbed", func(t *testing.T) { points = play(t, -1) })
	if t.Failed() || len(points) < 30 {
		t.Fatalf("%d points", len(points))
	}
	t.Run("killed", func(t *testing.T) {
		slots := newSlots()
		for i := 0; i < len(points); i += step {
			t.Run(fmt.Sprintf("%02d", i), func(t *testing.T) {
				t.Parallel()
				defer slots()()
				play(t, i)
			})
		}
	})
	t.Logf("%d points, each %d", len(points), step)
}

// newSlots lets four go on at a time.
func newSlots() func() func() {
	slots := make(chan struct{}, 4)
	return func() func() {
		slots <- struct{}{}
		return func() { <-slots }
	}
}

// A request is applied a hundred times while the provider is restarted: one key.
func TestGracefulRestarts_C94_C95(t *testing.T) {
	s := newStage(t, "gcp-restarts", fakegoogle.Options{}, "--key-settles", "100ms")
	s.start()
	sub := s.service(s.project(), "reports")
	params := s.storage(sub)
	key := s.apply(sub, v1alpha1.KindBucketCredential, "", params, 1)
	for i := range 100 {
		s.must(s.in.Admin.Patch(t.Context(), &v1alpha1.CloudResource{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace}},
			client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"test.radapp.io/applied":"%d"}}}`, i))))
		if i%10 == 5 {
			s.Stop(s.T)
			s.start()
		}
	}
	s.done(key)
	// Asked after all of it, and so answered after.
	s.done(s.identity(s.service(sub.Project, "after")))
	if n := s.fake.Issued(params[v1alpha1.ParamIdentity]); n != 1 {
		t.Errorf("C-95: %d keys were issued", n)
	}
	access, secret := s.pair(sub)
	if !s.reaches(access, secret, params[v1alpha1.ParamBucket]) {
		t.Error("the key does not reach the bucket")
	}
}

// What Google says, however long and whatever it holds, is bounded and clean
// before a member reads it.
func TestHostileGoogle_C100_C152(t *testing.T) {
	s := newStage(t, "gcp-hostile", fakegoogle.Options{})
	s.fake.AddHMACKey("GOOG1EHOSTILEHOSTILEHOSTILEHOSTILE", "unused", "nobody@example.com")
	canary := "Canary" + strings.Repeat("x7Q", 20)
	s.fake.Play(fakegoogle.Fault{Op: "storage.buckets.create", Code: 400, Reason: "invalid", Message: "Invalid argument \x1b[2J\u202e GOOG1EHOSTILEHOSTILEHOSTILEHOSTILE " + canary +
		" -----BEGIN PRIVATE KEY-----\n" + canary + "\n-----END PRIVATE KEY----- " + strings.Repeat("hostile ", 1<<17)})
	s.start()
	sub := s.service(s.project(), "reports")
	r := s.await(s.bucket(sub, nil), "refused", func(r *v1alpha1.CloudResource) bool { return r.Status.Phase == v1alpha1.PhaseFailed })
	if d := r.Status.Detail; len(d) > v1alpha1.MaxDetail || v1alpha1.Clean(d) != d || !strings.Contains(d, "Invalid argument") {
		t.Errorf("C-152: %d bytes: %.200q", len(d), d)
	}
	if text := r.Status.Detail + s.Output.String(); strings.Contains(text, canary) {
		t.Error("C-100: what looks like a key is shown")
	}
	s.clean(sub.Project)
}
