package s3

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// newRequest is for a service of a project that no other test has.
func newRequest(service string) provider.Request {
	return provider.Request{Installation: testInstallation, Subject: v1alpha1.Subject{Project: "p" + strings.ToLower(rand.Text()[:9]), Service: service},
		Account: "cellar", Location: "Rack 4, Cellar", CreatedAt: time.Now().Truncate(time.Second)}
}

func bucketAsk(t *testing.T, r provider.Request) provider.BucketAsk {
	t.Helper()
	a := provider.BucketAsk{BucketAsk: v1alpha1.BucketAsk{Purpose: purposeOf(r.Subject), Location: r.Location, NamePrefix: testPrefix}}
	var err error
	if a.Name, err = v1alpha1.BucketNameFor(testPrefix, r.Subject, a.Purpose); err != nil {
		t.Fatal(err)
	}
	return a
}

// wants fails unless err is of the phase and says the words.
func wants(t *testing.T, err error, phase v1alpha1.Phase, words ...string) {
	t.Helper()
	if provider.PhaseOf(err) != phase {
		t.Errorf("%v: phase %q, not %q", err, provider.PhaseOf(err), phase)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func must[A, B any](t *testing.T) func(A, B, error) (A, B) {
	t.Helper()
	return func(a A, b B, err error) (A, B) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	}
}

// storage makes identity and bucket of a subject.
func storage(t *testing.T, c *Cloud, r provider.Request) v1alpha1.CredentialAsk {
	t.Helper()
	i, _ := must[v1alpha1.IdentityAnswer, provider.Thing](t)(c.EnsureIdentity(t.Context(), r, v1alpha1.IdentityAsk{}))
	b, _ := must[v1alpha1.BucketAnswer, provider.Thing](t)(c.EnsureBucket(t.Context(), r, bucketAsk(t, r)))
	ask := v1alpha1.CredentialAsk{Identity: i.Identity, Bucket: b.Bucket}
	if err := c.EnsureBucketAccess(t.Context(), r, ask); err != nil {
		t.Fatal(err)
	}
	return ask
}

func TestIdentity_C66_C143_C147_C148(t *testing.T) {
	s := theStore(t)
	c := s.cloud(t, nil)
	r := newRequest("reports")
	if owns, err := c.OwnsIdentity(t.Context(), r, identityName(r)); owns || err != nil {
		t.Errorf("before it is there: %v, %v", owns, err)
	}
	a, th := must[v1alpha1.IdentityAnswer, provider.Thing](t)(c.EnsureIdentity(t.Context(), r, v1alpha1.IdentityAsk{ServiceAccount: "reports"}))
	if !th.Made || a.Identity == "" || len(a.ServiceAccountAnnotations) != 0 {
		t.Errorf("%+v, %+v", a, th)
	}
	if _, err := a.Outputs(); err != nil {
		t.Error(err)
	}
	t.Run("C-147 the same request finds it Ready, a later one Recovered", func(t *testing.T) {
		_, again := must[v1alpha1.IdentityAnswer, provider.Thing](t)(c.EnsureIdentity(t.Context(), r, v1alpha1.IdentityAsk{}))
		if again.Made || again.CreatedAt.Before(r.CreatedAt) {
			t.Errorf("%+v for a request of %v", again, r.CreatedAt)
		}
		later := r
		later.CreatedAt = r.CreatedAt.Add(time.Hour)
		if _, again = must[v1alpha1.IdentityAnswer, provider.Thing](t)(c.EnsureIdentity(t.Context(), later, v1alpha1.IdentityAsk{})); !again.CreatedAt.Before(later.CreatedAt) {
			t.Errorf("%+v", again)
		}
	})
	t.Run("C-143 it is its subject's alone", func(t *testing.T) {
		other := newRequest("reports")
		for name, x := range map[string]provider.Request{"another project's": other,
			"another installation's": {Installation: "another", Subject: r.Subject, Account: r.Account, Location: r.Location}} {
			if owns, err := c.OwnsIdentity(t.Context(), x, a.Identity); owns || err != nil {
				t.Errorf("%s: %v, %v", name, owns, err)
			}
		}
		if owns, err := c.OwnsIdentity(t.Context(), r, a.Identity); !owns || err != nil {
			t.Errorf("the subject's own: %v, %v", owns, err)
		}
	})
	t.Run("C-148 a user of that name that is someone else's is not adopted", func(t *testing.T) {
		for place, path := range map[string]string{"elsewhere": "/", "in the identity's place, without tags": "here"} {
			x := newRequest("reports")
			if path == "here" {
				path = identityPath(x, identityName(x))
			}
			if _, err := s.IAM(s.root).CreateUser(t.Context(), &iam.CreateUserInput{UserName: aws.String(identityName(x)), Path: &path}); err != nil {
				t.Fatal(err)
			}
			_, _, err := c.EnsureIdentity(t.Context(), x, v1alpha1.IdentityAsk{})
			if err == nil {
				t.Errorf("%s: adopted", place)
				continue
			}
			wants(t, err, v1alpha1.PhaseFailed, "someone else's")
			if owns, _ := c.OwnsIdentity(t.Context(), x, identityName(x)); owns {
				t.Errorf("%s: owned", place)
			}
		}
	})
	t.Run("C-102 in another account or location it is not served", func(t *testing.T) {
		for _, x := range []provider.Request{{Account: "attic", Location: r.Location}, {Account: r.Account, Location: "Attic"}} {
			x.Installation, x.Subject = r.Installation, r.Subject
			if _, _, err := c.EnsureIdentity(t.Context(), x, v1alpha1.IdentityAsk{}); err != provider.ErrMoved {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestBucket_C71_C79_C87_C88_C102_C104_C147_C148(t *testing.T) {
	s := theStore(t)
	c := s.cloud(t, func(c *Config) { c.InstanceEndpoint = "https://s3.inside.example" })
	r := newRequest("reports")
	ask := bucketAsk(t, r)
	a, th := must[v1alpha1.BucketAnswer, provider.Thing](t)(c.EnsureBucket(t.Context(), r, ask))
	if want := (v1alpha1.BucketAnswer{Bucket: ask.Name, Endpoint: "https://s3.inside.example", Region: testRegion}); a != want || !th.Made {
		t.Errorf("%+v, %+v", a, th)
	}
	root := s.S3(s.root)
	t.Run("C-148 its tags say whose it is", func(t *testing.T) {
		have := tagsOf(t, root, ask.Name)
		for k, v := range map[string]string{tagInstallation: testInstallation, tagProject: r.Subject.Project, tagService: "reports", tagPurpose: "service"} {
			if have[k] != v {
				t.Errorf("tag %s is %q, not %q", k, have[k], v)
			}
		}
	})
	t.Run("C-147", func(t *testing.T) {
		_, again := must[v1alpha1.BucketAnswer, provider.Thing](t)(c.EnsureBucket(t.Context(), r, ask))
		if again.Made || again.CreatedAt.Before(r.CreatedAt) {
			t.Errorf("%+v for a request of %v", again, r.CreatedAt)
		}
		// What is put into it later does not make it younger.
		if _, err := root.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &ask.Name, Key: aws.String("x"), Body: strings.NewReader("x")}); err != nil {
			t.Fatal(err)
		}
		later := r
		later.CreatedAt = r.CreatedAt.Add(time.Hour)
		if _, again = must[v1alpha1.BucketAnswer, provider.Thing](t)(c.EnsureBucket(t.Context(), later, ask)); !again.CreatedAt.Before(later.CreatedAt) {
			t.Errorf("%+v", again)
		}
	})
	t.Run("C-87 C-88 C-148 a bucket of someone else's is left as it is", func(t *testing.T) {
		for name, have := range map[string]map[string]string{
			"untagged":               nil,
			"another installation's": {tagInstallation: "another", tagProject: "PROJECT", tagService: "reports", tagPurpose: "service"},
			"another purpose":        {tagInstallation: testInstallation, tagProject: "PROJECT", tagService: "reports", tagPurpose: "backup"},
			"another service's":      {tagInstallation: testInstallation, tagProject: "PROJECT", tagService: "accounts", tagPurpose: "service"},
		} {
			x := newRequest("reports")
			xa := bucketAsk(t, x)
			xa.Versioning, xa.CORSOrigins = true, []string{"*"}
			plant(t, root, xa.Name, have, x)
			before := tagsOf(t, root, xa.Name)
			_, _, err := c.EnsureBucket(t.Context(), x, xa)
			wants(t, err, v1alpha1.PhaseFailed, xa.Name, "someone else")
			if owns, err := c.OwnsBucket(t.Context(), x, xa.Name); owns || err != nil {
				t.Errorf("%s: owned %v, %v", name, owns, err)
			}
			if after := tagsOf(t, root, xa.Name); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("%s: tags were %v and are %v", name, before, after)
			}
			v, err := root.GetBucketVersioning(t.Context(), &s3.GetBucketVersioningInput{Bucket: &xa.Name})
			if err != nil || v.Status != "" {
				t.Errorf("%s: versioning is %q, %v", name, v.Status, err)
			}
			if _, err := root.GetBucketCors(t.Context(), &s3.GetBucketCorsInput{Bucket: &xa.Name}); !is(err, "NoSuchCORSConfiguration") {
				t.Errorf("%s: cors: %v", name, err)
			}
		}
	})
	t.Run("C-102 C-103 C-104 what was made elsewhere is neither moved nor made again", func(t *testing.T) {
		for _, x := range []provider.Request{{Account: "attic", Location: r.Location}, {Account: r.Account, Location: "Attic"}} {
			x.Installation, x.Subject, x.CreatedAt = r.Installation, r.Subject, r.CreatedAt
			before := tagsOf(t, root, ask.Name)
			if _, _, err := c.EnsureBucket(t.Context(), x, ask); err != provider.ErrMoved {
				t.Errorf("%v", err)
			}
			if after := tagsOf(t, root, ask.Name); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("tags were %v and are %v", before, after)
			}
		}
	})
}

func tagsOf(t *testing.T, c *s3.Client, bucket string) map[string]string {
	t.Helper()
	out, err := c.GetBucketTagging(t.Context(), &s3.GetBucketTaggingInput{Bucket: &bucket})
	if is(err, "NoSuchTagSet") {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, x := range out.TagSet {
		m[*x.Key] = *x.Value
	}
	return m
}

// plant has somebody else hold a bucket.
func plant(t *testing.T, c *s3.Client, name string, have map[string]string, r provider.Request) {
	t.Helper()
	all := map[string]string{}
	for k, v := range have {
		all[k] = strings.Replace(v, "PROJECT", r.Subject.Project, 1)
	}
	in := &s3.CreateBucketInput{Bucket: &name, CreateBucketConfiguration: &types.CreateBucketConfiguration{LocationConstraint: testRegion, Tags: tagSet(all)}}
	if _, err := c.CreateBucket(t.Context(), in); err != nil {
		t.Fatal(err)
	}
}

// The form of a bucket is what is asked, and becomes what is asked anew.
func TestBucketForms_C71(t *testing.T) {
	s := theStore(t)
	c, root := s.cloud(t, nil), s.S3(s.root)
	r := newRequest("forms")
	ask := bucketAsk(t, r)
	ensure := func(t *testing.T) {
		t.Helper()
		must[v1alpha1.BucketAnswer, provider.Thing](t)(c.EnsureBucket(t.Context(), r, ask))
	}
	versioning := func(t *testing.T, want types.BucketVersioningStatus) {
		t.Helper()
		v, err := root.GetBucketVersioning(t.Context(), &s3.GetBucketVersioningInput{Bucket: &ask.Name})
		if err != nil || v.Status != want {
			t.Errorf("versioning is %q, not %q: %v", v.Status, want, err)
		}
	}
	ensure(t)
	versioning(t, "")
	ask.Versioning, ask.SoftDeleteDays, ask.CORSOrigins = true, 30, []string{"https://a.example", "https://b.example"}
	ensure(t)
	versioning(t, types.BucketVersioningStatusEnabled)
	out, err := root.GetBucketCors(t.Context(), &s3.GetBucketCorsInput{Bucket: &ask.Name})
	if err != nil || len(out.CORSRules) != 1 || strings.Join(out.CORSRules[0].AllowedOrigins, " ") != "https://a.example https://b.example" {
		t.Errorf("%+v, %v", out, err)
	}
	ask.Versioning, ask.SoftDeleteDays, ask.CORSOrigins = false, 0, nil
	ensure(t)
	versioning(t, types.BucketVersioningStatusSuspended)
	if _, err := root.GetBucketCors(t.Context(), &s3.GetBucketCorsInput{Bucket: &ask.Name}); !is(err, "NoSuchCORSConfiguration") {
		t.Errorf("%v", err)
	}
}

// What the store cannot do is said, by the parameter's name, and is not passed
// over.
func TestBucketLimits_C71_C100(t *testing.T) {
	s := theStore(t)
	c := s.cloud(t, nil)
	days := int64(7)
	for name, x := range map[string]struct {
		change func(*provider.BucketAsk)
		words  []string
	}{
		"lifecycle":                        {func(a *provider.BucketAsk) { a.Versioning, a.NoncurrentVersionDays = true, &days }, []string{"noncurrentVersionDays", "has no"}},
		"key":                              {func(a *provider.BucketAsk) { a.KMSKey = "keys/one" }, []string{"kmsKey", "has no"}},
		"soft delete without versions":     {func(a *provider.BucketAsk) { a.SoftDeleteDays = 7 }, []string{"softDeleteDays needs versioning"}},
		"soft delete longer than versions": {func(a *provider.BucketAsk) { a.Versioning, a.SoftDeleteDays, a.NoncurrentVersionDays = true, 30, &days }, []string{"noncurrentVersionDays", "30"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequest("limits")
			ask := bucketAsk(t, r)
			x.change(&ask)
			_, _, err := c.EnsureBucket(t.Context(), r, ask)
			wants(t, err, v1alpha1.PhaseFailed, x.words...)
			// Asked without it, it is served.
			must[v1alpha1.BucketAnswer, provider.Thing](t)(c.EnsureBucket(t.Context(), r, bucketAsk(t, r)))
		})
	}
	t.Run("a store that keeps no versions", func(t *testing.T) {
		plain, err := startStore(t.TempDir(), false)
		skipWithout(t, err)
		t.Cleanup(plain.stop)
		r := newRequest("limits")
		ask := bucketAsk(t, r)
		ask.Versioning = true
		_, _, err = plain.cloud(t, nil).EnsureBucket(t.Context(), r, ask)
		wants(t, err, v1alpha1.PhaseFailed, "versioning", "has no versions")
		ask.Versioning = false
		must[v1alpha1.BucketAnswer, provider.Thing](t)(plain.cloud(t, nil).EnsureBucket(t.Context(), r, ask))
	})
}

// A key reaches its bucket and no other, can do nothing else, and nothing once
// it has ended.
func TestCredential_C72_C78_C143_C144_C151(t *testing.T) {
	s := theStore(t)
	c := s.cloud(t, nil)
	r, other := newRequest("reports"), newRequest("accounts")
	backup := r
	backup.Subject.Service = ""
	ask, theirs, backups := storage(t, c, r), storage(t, c, other), storage(t, c, backup)
	issue := func(r provider.Request, ask v1alpha1.CredentialAsk) provider.Credential {
		t.Helper()
		k, err := c.IssueCredential(t.Context(), r, ask)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.CredentialUsable(t.Context(), r, ask, k, time.Now()); err != nil {
			t.Fatal(err)
		}
		return k
	}
	k, b := issue(r, ask), issue(backup, backups)
	if err := s.reaches(t.Context(), k.AccessKey, k.SecretKey, ask.Bucket); err != nil {
		t.Errorf("its own bucket: %v", err)
	}
	if err := s.reaches(t.Context(), b.AccessKey, b.SecretKey, backups.Bucket); err != nil {
		t.Errorf("C-78: the database's key, the backup bucket: %v", err)
	}
	for name, bucket := range map[string]string{"another service's": theirs.Bucket, "C-78 its project's backups": backups.Bucket} {
		if err := s.reaches(t.Context(), k.AccessKey, k.SecretKey, bucket); !is(err, "AccessDenied") {
			t.Errorf("%s bucket: %v", name, err)
		}
	}
	t.Run("it can do nothing else", func(t *testing.T) {
		key := aws.Credentials{AccessKeyID: k.AccessKey, SecretAccessKey: k.SecretKey}
		x := s.S3(key)
		for name, f := range map[string]func() error{
			"list buckets": func() error { _, err := x.ListBuckets(t.Context(), &s3.ListBucketsInput{}); return err },
			"make a bucket": func() error {
				_, err := x.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("acme-of-its-own-1")})
				return err
			},
			"remove its bucket": func() error {
				_, err := x.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &ask.Bucket})
				return err
			},
			"retag its bucket": func() error {
				_, err := x.PutBucketTagging(t.Context(), &s3.PutBucketTaggingInput{Bucket: &ask.Bucket, Tagging: &types.Tagging{TagSet: tagSet(map[string]string{"a": "b"})}})
				return err
			},
			"open its bucket to all": func() error {
				_, err := x.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: &ask.Bucket, Policy: aws.String("{}")})
				return err
			},
			"end versions": func() error {
				_, err := x.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &ask.Bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: "Suspended"}})
				return err
			},
			"widen itself": func() error {
				_, err := s.IAM(key).PutUserPolicy(t.Context(), &iam.PutUserPolicyInput{UserName: &k.ID, PolicyName: aws.String("more"), PolicyDocument: aws.String(policy("*"))})
				return err
			},
			"make itself a key": func() error {
				_, err := s.IAM(key).CreateAccessKey(t.Context(), &iam.CreateAccessKeyInput{UserName: &k.ID})
				return err
			},
		} {
			if err := f(); !is(err, "AccessDenied") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("C-151 what was taken from it by hand comes back", func(t *testing.T) {
		if _, err := s.IAM(s.root).DeleteUserPolicy(t.Context(), &iam.DeleteUserPolicyInput{UserName: &k.ID, PolicyName: aws.String(policyName)}); err != nil {
			t.Fatal(err)
		}
		if err := s.reaches(t.Context(), k.AccessKey, k.SecretKey, ask.Bucket); !is(err, "AccessDenied") {
			t.Errorf("without its policy: %v", err)
		}
		wants(t, c.CredentialUsable(t.Context(), r, ask, k, time.Now()), v1alpha1.PhaseWaiting)
		if err := c.EnsureBucketAccess(t.Context(), r, ask); err != nil {
			t.Fatal(err)
		}
		if err := s.reaches(t.Context(), k.AccessKey, k.SecretKey, ask.Bucket); err != nil {
			t.Error(err)
		}
	})
	t.Run("C-144 more than two live at once, and each is listed", func(t *testing.T) {
		all := map[string]provider.Credential{k.ID: k}
		for range 4 {
			n := issue(r, ask)
			all[n.ID] = n
		}
		listed, err := c.ListCredentials(t.Context(), r, ask)
		if err != nil || len(listed) != len(all) {
			t.Fatalf("%v, %v", listed, err)
		}
		for _, i := range listed {
			if _, ok := all[i.ID]; !ok || !i.CreatedAt.Equal(r.CreatedAt) {
				t.Errorf("%+v for a request of %v", i, r.CreatedAt)
			}
			if err := s.reaches(t.Context(), all[i.ID].AccessKey, all[i.ID].SecretKey, ask.Bucket); err != nil {
				t.Error(err)
			}
		}
		for id := range all {
			if id != k.ID {
				if err := c.EndCredential(t.Context(), r, ask, id); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	t.Run("C-144 what a crash left before there was a key is listed and ended", func(t *testing.T) {
		name := ask.Identity + ".halfway"
		if _, err := s.IAM(s.root).CreateUser(t.Context(), &iam.CreateUserInput{UserName: &name, Path: aws.String(credentialPath(r, ask.Identity))}); err != nil {
			t.Fatal(err)
		}
		if listed, err := c.ListCredentials(t.Context(), r, ask); err != nil || len(listed) != 2 {
			t.Errorf("%v, %v", listed, err)
		}
		if err := c.EndCredential(t.Context(), r, ask, name); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("more than a page of them is listed whole", func(t *testing.T) {
		x := newRequest("pages")
		xa := storage(t, c, x)
		const many = 130
		for i := range many {
			if _, err := s.IAM(s.root).CreateUser(t.Context(), &iam.CreateUserInput{UserName: aws.String(fmt.Sprintf("%s.%03d", xa.Identity, i)), Path: aws.String(credentialPath(x, xa.Identity))}); err != nil {
				t.Fatal(err)
			}
		}
		listed, err := c.ListCredentials(t.Context(), x, xa)
		if err != nil || len(listed) != many {
			t.Errorf("%d, %v", len(listed), err)
		}
		if owns, err := c.OwnsIdentity(t.Context(), x, xa.Identity); !owns || err != nil {
			t.Errorf("%v, %v", owns, err)
		}
	})
	t.Run("after a restart its age decides", func(t *testing.T) {
		bare := provider.Credential{ID: k.ID}
		wants(t, c.CredentialUsable(t.Context(), r, ask, bare, time.Now()), v1alpha1.PhaseWaiting)
		if err := c.CredentialUsable(t.Context(), r, ask, bare, time.Now().Add(-time.Minute)); err != nil {
			t.Error(err)
		}
	})
	t.Run("nobody else's is ended", func(t *testing.T) {
		for _, id := range []string{b.ID, "radial-provider", theirs.Identity, ask.Identity, "nobody"} {
			if err := c.EndCredential(t.Context(), r, ask, id); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		if err := s.reaches(t.Context(), b.AccessKey, b.SecretKey, backups.Bucket); err != nil {
			t.Error(err)
		}
		if owns, err := c.OwnsIdentity(t.Context(), r, ask.Identity); !owns || err != nil {
			t.Errorf("the identity: %v, %v", owns, err)
		}
	})
	t.Run("C-126 ended, it is refused", func(t *testing.T) {
		for range 2 {
			if err := c.EndCredential(t.Context(), r, ask, k.ID); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.reaches(t.Context(), k.AccessKey, k.SecretKey, ask.Bucket); !is(err, "InvalidAccessKeyId") {
			t.Errorf("%v", err)
		}
		if listed, err := c.ListCredentials(t.Context(), r, ask); err != nil || len(listed) != 0 {
			t.Errorf("%v, %v", listed, err)
		}
		wants(t, c.CredentialUsable(t.Context(), r, ask, provider.Credential{ID: k.ID}, time.Now().Add(-time.Minute)), v1alpha1.PhaseFailed, "was ended")
	})
}

// The provider's own user can do what it must, and not more.
func TestOwnRights_C43_C148(t *testing.T) {
	s := theStore(t)
	own, err := s.cloud(t, nil).own.Retrieve(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c := s.cloud(t, nil)
	r := newRequest("rights")
	ask := storage(t, c, r)
	x, api := s.S3(own), s.IAM(own)
	for name, f := range map[string]func() error{
		"read objects": func() error {
			_, err := x.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &ask.Bucket})
			return err
		},
		"remove a bucket": func() error {
			_, err := x.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &ask.Bucket})
			return err
		},
		"make a bucket of another prefix": func() error {
			_, err := x.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("others-bucket")})
			return err
		},
		"make a user of another installation": func() error {
			_, err := api.CreateUser(t.Context(), &iam.CreateUserInput{UserName: aws.String("x"), Path: aws.String("/radial/another/")})
			return err
		},
		"widen itself": func() error {
			_, err := api.PutUserPolicy(t.Context(), &iam.PutUserPolicyInput{UserName: aws.String("radial-provider"), PolicyName: aws.String("more"), PolicyDocument: aws.String(policy("*"))})
			return err
		},
	} {
		if err := f(); !is(err, "AccessDenied") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
