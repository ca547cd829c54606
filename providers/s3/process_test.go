package s3

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/provider/conformance"
)

// unimplemented are the kinds that the provider says it does not serve (C-153).
var unimplemented = []string{v1alpha1.KindSecretAccess, v1alpha1.KindSecretSync, v1alpha1.KindWrappingKey}

// The suite, from outside, against the provider's real process, the real store
// and the real API server under the shipped grant.
func TestConformance_C10_C101_C136_C137_C138_C153(t *testing.T) {
	s := newStage(t, Name, -1)
	// Straight to the store, over TLS.
	s.start("--recheck", "2s", "--endpoint", s.store.s3URL, "--iam-endpoint", s.store.iamURL, "--ca-file", s.store.ca)
	w := &conformance.World{Client: s.k.Admin, NamePrefix: testPrefix, Unimplemented: unimplemented, Limit: 60 * time.Second, Keep: true,
		Settings: provider.Settings{Provider: Name, Account: "cellar", Location: "Rack 4, Cellar", RotationGrace: s.grace}}
	results := conformance.Run(t.Context(), w, conformance.Scenarios())
	text, err := conformance.Report(w, results)
	t.Log("\n" + text)
	if err != nil {
		t.Error(err)
	}
	for _, r := range results {
		switch r.Verdict {
		case conformance.Passed:
		case conformance.Skipped:
			if !r.NeedsScript {
				t.Errorf("%s is skipped", r.Name)
			}
		case conformance.NotImplemented:
		default:
			t.Errorf("%s is %s: %q", r.Name, r.Verdict, r.Failures)
		}
	}
	if t.Failed() {
		t.Log(s.Output.String())
	}
	s.silent()
}

// The suite as its documentation has it run: by go test, with a kubeconfig and
// the installation's variables. It is the same suite once more, and so comes with
// RADIAL_FAULT=all only.
func TestExternal_C136_C139(t *testing.T) {
	if os.Getenv("RADIAL_FAULT") != "all" {
		t.Skip("the suite runs in this process; RADIAL_FAULT=all runs it by go test too")
	}
	s := newStage(t, "s3-external", -1)
	s.start("--recheck", "2s")
	suite := func(env ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "go", "test", "-v", "-count=1", "-run", "TestExternal_", "./provider/conformance", "-args",
			"-external="+s.k.Kubeconfig, "-unimplemented="+strings.Join(unimplemented, ","), "-name-prefix="+testPrefix, "-limit=60s", "-keep")
		cmd.Dir = filepath.Join("..", "..")
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	text, err := suite("ANKKA_CLOUD_PROVIDER="+s.name, "ANKKA_CLOUD_ACCOUNT=cellar", "ANKKA_CLOUD_LOCATION=Rack 4, Cellar")
	if err != nil || !strings.Contains(text, " passed, 0 failed") {
		t.Errorf("%v\n%s", err, text)
	}
	t.Log(text)
	if text, err := suite("ANKKA_CLOUD_PROVIDER="+s.name, "ANKKA_CLOUD_LOCATION=Rack 4, Cellar"); err == nil || !strings.Contains(text, "ANKKA_CLOUD_ACCOUNT") {
		t.Errorf("C-139: without the account: %v\n%s", err, text)
	}
}

// silent fails the test if what is secret was said.
func (s *stage) silent(values ...string) {
	s.t.Helper()
	text := s.Output.String()
	for _, v := range append(values, s.store.providerSecret, s.store.root.SecretAccessKey) {
		if v != "" && strings.Contains(text, v) {
			s.t.Errorf("C-100: a key stands in the provider's output")
		}
	}
}

// issued are the users of an identity's credentials, each with how many keys it
// has, as the store itself tells it.
func (s *stage) issued(sub v1alpha1.Subject, identity string) map[string]int {
	s.t.Helper()
	api := s.store.IAM(s.store.root)
	r := provider.Request{Installation: testInstallation, Subject: sub}
	out, err := api.ListUsers(s.t.Context(), &iam.ListUsersInput{PathPrefix: aws.String(identityPath(r, identity))})
	users := map[string]int{}
	if err != nil {
		s.t.Error(err)
		return users
	}
	for _, u := range out.Users {
		if *u.UserName == identity {
			continue
		}
		keys, err := api.ListAccessKeys(s.t.Context(), &iam.ListAccessKeysInput{UserName: u.UserName})
		if is(err, "NoSuchEntity") {
			continue
		}
		if err != nil {
			s.t.Error(err)
			continue
		}
		users[*u.UserName] = len(keys.AccessKeyMetadata)
	}
	return users
}

// A request that is applied a hundred times while the provider is restarted
// gracefully is issued one credential.
func TestReapplied_C94_C95(t *testing.T) {
	s := newStage(t, "s3-reapplied", -1)
	s.start()
	sub, by := s.service()
	ask := s.storage(sub, by)
	params, err := ask.Parameters()
	var name string
	for i := range 100 {
		name = s.apply(sub, by, v1alpha1.KindBucketCredential, 1, map[string]any{"applied": fmt.Sprint(i)}, params, err)
		if i%20 == 10 {
			s.Stop(t)
			s.start()
		}
	}
	s.await(sub, name, "answered", func(o *v1alpha1.CloudResource) bool { return done(o) && o.Annotations["applied"] == "99" })
	// Asked after all of it, and so answered after.
	after, byAfter := s.service()
	s.storage(after, byAfter)
	id, access, key := s.secret(sub)
	if got := s.issued(sub, ask.Identity); s.keys != 1 || len(got) != 1 || got[id] != 1 {
		t.Errorf("C-95: %d keys were made, and the store has %v", s.keys, got)
	}
	if err := s.store.reaches(t.Context(), access, key, ask.Bucket); err != nil {
		t.Errorf("C-117: %v", err)
	}
	s.silent(key)
}

// play asks for a credential and has it rotated, with the process killed at the
// stage's point, and judges what is left. It answers the points that it passed.
func (s *stage) play() []string {
	t := s.t
	t.Helper()
	s.start()
	sub, by := s.service()
	ask := s.storage(sub, by)
	params, perr := ask.Parameters()
	lost := make(chan bool, 1)
	s.Arm(s.kill)
	go func() {
		select {
		case <-s.Died():
			// A key was lost that was made and is not in the Secret.
			id, _, _ := s.secret(sub)
			gone := false
			for user, keys := range s.issued(sub, ask.Identity) {
				gone = gone || keys > 0 && user != id && !s.known(sub, user)
			}
			lost <- gone
			s.start()
		case <-t.Context().Done():
		}
	}()
	name := s.apply(sub, by, v1alpha1.KindBucketCredential, 1, nil, params, perr)
	s.await(sub, name, "answered", done)
	firstID, firstAccess, firstKey := s.secret(sub)
	if err := s.store.reaches(t.Context(), firstAccess, firstKey, ask.Bucket); err != nil {
		t.Errorf("C-117: the first credential: %v", err)
	}
	s.apply(sub, by, v1alpha1.KindBucketCredential, 2, nil, params, perr)
	o := s.await(sub, name, "answered", func(o *v1alpha1.CloudResource) bool { return done(o) && o.Status.CredentialGeneration == 2 })
	due := o.Status.CredentialReportedAt.Add(s.grace)
	id, access, key := s.secret(sub)
	if id == firstID || access == firstAccess {
		t.Errorf("C-122: the second credential is the first")
	}
	s.await(sub, name, "with one credential in its journal", func(o *v1alpha1.CloudResource) bool {
		return len(o.Status.Credentials) == 1 && o.Status.Credentials[0].State == v1alpha1.CredentialInPlace && o.Status.CredentialGeneration == 2
	})
	if err := s.store.reaches(t.Context(), access, key, ask.Bucket); err != nil {
		t.Errorf("C-144: the credential in place: %v", err)
	}
	if err := s.store.reaches(t.Context(), firstAccess, firstKey, ask.Bucket); !is(err, "InvalidAccessKeyId") {
		t.Errorf("C-126: the credential before: %v", err)
	}
	if got := s.issued(sub, ask.Identity); len(got) != 1 || got[id] != 1 {
		t.Errorf("C-144: the store has %v, the Secret %s", got, id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.ended[firstID]; !at.IsZero() && at.Before(due) {
		t.Errorf("C-124: the credential before ended %s before its grace was over", due.Sub(at))
	}
	want := 2
	if s.kill >= 0 {
		select {
		case gone := <-lost:
			if gone {
				want++
			}
		default:
			t.Errorf("the process was never killed: there is no point %d in %q", s.kill, s.Points())
		}
	}
	if s.keys != want {
		t.Errorf("C-95: %d keys were made for two generations, not %d", s.keys, want)
	}
	s.silent(key, firstKey)
	if t.Failed() {
		t.Logf("the provider said:\n%s", s.Output.String())
	}
	return s.Points()
}

// known says whether the journal has a user as in place or followed by another:
// then it is not lost.
func (s *stage) known(sub v1alpha1.Subject, user string) bool {
	name, err := v1alpha1.RequestName(sub, v1alpha1.KindBucketCredential, "")
	o := &v1alpha1.CloudResource{}
	if err := errors.Join(err, s.k.Admin.Get(s.t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(sub.Project), Name: name}, o)); err != nil {
		s.t.Error(err)
	}
	return slices.ContainsFunc(o.Status.Credentials, func(e v1alpha1.CredentialEntry) bool {
		return e.ID == user && (e.State == v1alpha1.CredentialRetiring || e.State == v1alpha1.CredentialInPlace)
	})
}

// The provider is killed at calls to the store and writes to the API server of
// issue, rotation and ending, before they are carried out and after: at a sample
// of them, and with RADIAL_FAULT=all at every one.
func TestKilled_C95_C124_C125_C126_C144(t *testing.T) {
	var points []string
	t.Run("undisturbed", func(t *testing.T) { points = newStage(t, "s3-undisturbed", -1).play() })
	if t.Failed() {
		return
	}
	if len(points) < 40 {
		t.Fatalf("%d points: %q", len(points), points)
	}
	t.Logf("%d points: %q", len(points), points)
	t.Run("killed", func(t *testing.T) {
		slots := make(chan struct{}, 3)
		for i, what := range points {
			sample := i%9 == 3 || strings.HasPrefix(what, "after store CreateAccessKey") || what == "before cluster POST secrets"
			if os.Getenv("RADIAL_FAULT") != "all" && !sample {
				continue
			}
			t.Run(fmt.Sprintf("%02d %s", i, what), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				newStage(t, fmt.Sprintf("s3-killed-%d", i), i).play()
			})
		}
	})
}
