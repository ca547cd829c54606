package s3

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// What the suite shows with a scripted account only is shown here with the real
// store: it can be asked what it has.

// credential asks for one of a generation and waits until it is answered.
func (s *stage) credential(sub v1alpha1.Subject, by metav1.OwnerReference, ask v1alpha1.CredentialAsk, generation int64) *v1alpha1.CloudResource {
	s.t.Helper()
	params, err := ask.Parameters()
	name := s.apply(sub, by, v1alpha1.KindBucketCredential, generation, nil, params, err)
	return s.await(sub, name, "answered", func(o *v1alpha1.CloudResource) bool {
		return done(o) && o.Spec.CredentialGeneration == generation && o.Status.CredentialGeneration >= generation
	})
}

// eventually wants what the store has to become so: it has no watch.
func (s *stage) eventually(what string, in func() bool) {
	s.t.Helper()
	for end := time.Now().Add(60 * time.Second); !in(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("it does not come about that %s\n%s", what, s.Output.String())
		}
	}
}

func TestNothingUnasked_C3(t *testing.T) {
	s := newStage(t, "s3-unasked", -1)
	s.start()
	sub, by := s.service()
	// A request of another provider's is seen, and one of ours after it answered.
	p, err := v1alpha1.IdentityAsk{ServiceAccount: sub.Service}.Parameters()
	ours := s.name
	s.name = "somebody-elses"
	s.apply(sub, by, v1alpha1.KindIdentity, 0, nil, p, err)
	s.name = ours
	asked, byAsked := s.service()
	p, err = v1alpha1.IdentityAsk{ServiceAccount: asked.Service}.Parameters()
	s.await(asked, s.apply(asked, byAsked, v1alpha1.KindIdentity, 0, nil, p, err), "answered", done)
	for _, x := range []struct {
		sub   v1alpha1.Subject
		wants bool
	}{{sub, false}, {asked, true}} {
		r := newRequest("reports")
		r.Subject = x.sub
		_, err := s.store.IAM(s.store.root).GetUser(t.Context(), &iam.GetUserInput{UserName: aws.String(identityName(r))})
		if made := err == nil; made != x.wants {
			t.Errorf("C-3: %s: identity %v, %v", x.sub, made, err)
		}
		name, err := v1alpha1.BucketName(testPrefix, x.sub.Project, x.sub.Service)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.store.S3(s.store.root).HeadBucket(t.Context(), &s3.HeadBucketInput{Bucket: &name}); err == nil {
			t.Errorf("C-3: bucket %s is there", name)
		}
	}
}

func TestSecretThere_C118_C119_C120(t *testing.T) {
	s := newStage(t, "s3-there", -1)
	s.start()
	sub, by := s.service()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.StorageSecretName(sub), Namespace: v1alpha1.Namespace(sub.Project)},
		Data: map[string][]byte{v1alpha1.EntryAccessKey: []byte("of-before"), v1alpha1.EntrySecretKey: []byte("of-before-too")}}
	if err := s.k.Admin.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	ask := s.storage(sub, by)
	o := s.credential(sub, by, ask, 1)
	if o.Status.Outputs[v1alpha1.OutputSecretName] != secret.Name {
		t.Errorf("C-120: %+v", o.Status)
	}
	if _, access, key := s.secret(sub); access != "of-before" || key != "of-before-too" {
		t.Error("C-118: the Secret has changed")
	}
	s.eventually("C-119: the credential that came into no Secret has ended", func() bool { return len(s.issued(sub, ask.Identity)) == 0 })
	if s.keys != 1 {
		t.Errorf("C-95: %d keys were made", s.keys)
	}
}

func TestRecheck_C151(t *testing.T) {
	s := newStage(t, "s3-recheck", -1)
	s.start("--recheck", "1s")
	sub, by := s.service()
	ask := s.storage(sub, by)
	s.credential(sub, by, ask, 1)
	id, access, key := s.secret(sub)
	if _, err := s.store.IAM(s.store.root).DeleteUserPolicy(t.Context(), &iam.DeleteUserPolicyInput{UserName: &id, PolicyName: aws.String(policyName)}); err != nil {
		t.Fatal(err)
	}
	s.eventually("C-151: what was taken away by hand is back", func() bool { return s.store.reaches(t.Context(), access, key, ask.Bucket) == nil })
	if got := s.issued(sub, ask.Identity); s.keys != 1 || len(got) != 1 {
		t.Errorf("C-151: %d keys were made, and there are %v", s.keys, got)
	}
}

// Three rotations within one grace: four credentials are alive at once, more than
// one user can have keys, and each before the last ends when it is due.
func TestRotationsWithinGrace_C121_C124_C125_C126(t *testing.T) {
	s := newStage(t, "s3-rotations", -1)
	s.grace = 6 * time.Second
	s.start()
	sub, by := s.service()
	ask := s.storage(sub, by)
	type pair struct{ id, access, key string }
	var all []pair
	due := map[string]time.Time{}
	for g := int64(1); g <= 4; g++ {
		o := s.credential(sub, by, ask, g)
		if g > 1 {
			due[all[g-2].id] = o.Status.CredentialReportedAt.Add(s.grace)
		}
		var p pair
		p.id, p.access, p.key = s.secret(sub)
		all = append(all, p)
	}
	for i, p := range all {
		if err := s.store.reaches(t.Context(), p.access, p.key, ask.Bucket); err != nil && time.Now().Before(due[p.id]) {
			t.Errorf("C-124: credential %d within its grace: %v", i+1, err)
		}
	}
	// C-125: by another process than the one that retired them.
	s.Stop(t)
	s.start()
	s.eventually("one credential is left", func() bool { return len(s.issued(sub, ask.Identity)) == 1 })
	s.mu.Lock()
	for id, at := range due {
		if ended := s.ended[id]; ended.IsZero() || ended.Before(at) {
			t.Errorf("C-124: credential %s was due at %v and ended at %v", id, at, ended)
		}
	}
	s.mu.Unlock()
	for i, p := range all {
		err := s.store.reaches(t.Context(), p.access, p.key, ask.Bucket)
		if last := i == len(all)-1; last && err != nil || !last && !is(err, "InvalidAccessKeyId") {
			t.Errorf("C-126: credential %d: %v", i+1, err)
		}
	}
	s.silent(all[0].key, all[3].key)
}

func TestLostAnswers_C95_C144(t *testing.T) {
	for _, action := range []string{"CreateUser", "PutUserPolicy", "CreateAccessKey"} {
		t.Run(action, func(t *testing.T) {
			s := newStage(t, "s3-lost-"+map[string]string{"CreateUser": "user", "PutUserPolicy": "policy", "CreateAccessKey": "key"}[action], -1)
			s.start()
			sub, by := s.service()
			ask := s.storage(sub, by)
			s.mu.Lock()
			s.lose = map[string]int{action: 1}
			s.mu.Unlock()
			s.credential(sub, by, ask, 1)
			id, access, key := s.secret(sub)
			s.eventually("C-144: one credential is left, the one in the Secret", func() bool {
				got := s.issued(sub, ask.Identity)
				return len(got) == 1 && got[id] == 1
			})
			want := 1
			if action == "CreateAccessKey" {
				want = 2
			}
			s.mu.Lock()
			if s.lose[action] != 0 || s.keys != want {
				t.Errorf("C-95: %d keys were made, not %d; %d answers are still to be lost", s.keys, want, s.lose[action])
			}
			s.mu.Unlock()
			if err := s.store.reaches(t.Context(), access, key, ask.Bucket); err != nil {
				t.Error(err)
			}
		})
	}
}

// The store is away: that is said, in words, and what was asked is done when it
// is back.
func TestStoreAway_C97_C100(t *testing.T) {
	s := newStage(t, "s3-away", -1)
	away := freePort()
	s.s3 = "http://" + away
	s.start("--retry-max", "300ms")
	sub, by := s.service()
	p, err := v1alpha1.BucketAsk{Purpose: v1alpha1.PurposeService, Location: "Rack 4, Cellar", NamePrefix: testPrefix}.Parameters()
	name := s.apply(sub, by, v1alpha1.KindBucket, 0, nil, p, err)
	o := s.await(sub, name, "waiting, in words", func(o *v1alpha1.CloudResource) bool {
		return o.Status.Phase == v1alpha1.PhaseWaiting && o.Status.Detail == "the object store at "+away+" cannot be reached"
	})
	if o.Status.ObservedGeneration != o.Generation {
		t.Error("C-91: the request is not acknowledged")
	}
	// The same address, with the store behind it now.
	target, err := url.Parse(s.store.s3URL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", away)
	if err != nil {
		t.Fatal(err)
	}
	back := &http.Server{ReadHeaderTimeout: time.Second, Handler: &httputil.ReverseProxy{Transport: s.store.transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}}}
	go func() { _ = back.Serve(l) }()
	t.Cleanup(func() { _ = back.Close() })
	s.await(sub, name, "done once the store is back", done)
}
