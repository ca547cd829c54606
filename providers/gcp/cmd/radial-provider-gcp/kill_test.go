package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
		case <-s.died:
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
	s.arm(kill)
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
	s.must(s.in.admin.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(p), Name: v1alpha1.StorageSecretName(sub)}, sec))
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
		case <-s.died:
			<-restarted
		default:
			t.Errorf("the process was never killed: there is no point %d in %q", kill, s.points)
		}
	}
	s.clean(p)
	if t.Failed() {
		t.Logf("the provider said:\n%s", tail(s.output.String()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.points
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
		slots := make(chan struct{}, 4)
		for i := 0; i < len(points); i += step {
			t.Run(fmt.Sprintf("%02d %s", i, points[i]), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				play(t, i)
			})
		}
	})
	t.Logf("%d points, each %d", len(points), step)
}
