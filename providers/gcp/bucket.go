package gcp

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	cloudkms "google.golang.org/api/cloudkms/v1"
	storage "google.golang.org/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// Labels of a bucket. All four of the first say whose it is; labelAsked is the
// time of the request for which it was made, in seconds (see description).
const (
	labelInstallation = "radial-installation"
	labelProject      = "radial-project"
	labelService      = "radial-service"
	labelPurpose      = "radial-purpose"
	labelAsked        = "radial-asked"
)

const (
	day = 24 * 60 * 60
	// Google keeps removed objects for no time, or for so many days.
	minSoftDelete, maxSoftDelete = 7, 90
	corsMaxAge                   = 3600
)

func labels(r provider.Request, purpose string) map[string]string {
	return map[string]string{labelInstallation: r.Installation, labelProject: r.Subject.Project, labelService: r.Subject.Service, labelPurpose: purpose}
}

func labelled(b *storage.Bucket, r provider.Request) bool {
	purpose := v1alpha1.PurposeService
	if r.Subject.Service == "" {
		purpose = v1alpha1.PurposeBackup
	}
	for k, v := range labels(r, purpose) {
		if got, ok := b.Labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// bucket reads one of the subject's; nil if there is none of the name. Another's
// is Taken, and one of the subject's in another account ErrMoved. Nothing is told by
// the words of an error: two customers' buckets look alike to them (C-87).
func (c *Cloud) bucket(ctx context.Context, r provider.Request, name string) (*storage.Bucket, error) {
	b, err := c.storage.Buckets.Get(name).Projection("noAcl").Context(ctx).Do()
	switch code(err) {
	case http.StatusNotFound:
		return nil, nil
	case http.StatusForbidden:
		return nil, c.hidden(ctx, name, err)
	}
	if err != nil {
		return nil, c.explain(err, storageAPI, "storage.buckets.get")
	}
	number, err := c.projectNumber(ctx)
	switch {
	case err != nil:
		return nil, err
	case !labelled(b, r):
		return nil, provider.Taken(name)
	case b.ProjectNumber != number:
		return nil, provider.ErrMoved
	}
	return b, nil
}

// hidden tells a bucket of another customer's from one of ours that the provider
// may not see: the account's own list has the latter.
func (c *Cloud) hidden(ctx context.Context, name string, err error) error {
	if passing(err) || disabled(err) {
		return c.explain(err, storageAPI, "storage.buckets.get")
	}
	own, lerr := c.storage.Buckets.List(c.account).Prefix(name).Projection("noAcl").Context(ctx).Do()
	if lerr != nil {
		return c.explain(lerr, storageAPI, "storage.buckets.list")
	}
	if slices.ContainsFunc(own.Items, func(b *storage.Bucket) bool { return b.Name == name }) {
		return c.explain(err, storageAPI, "storage.buckets.get")
	}
	return provider.Taken(name)
}

// OwnsBucket implements provider.Buckets.
func (c *Cloud) OwnsBucket(ctx context.Context, r provider.Request, bucket string) (bool, error) {
	b, err := c.bucket(ctx, r, bucket)
	return b != nil, err
}

// EnsureBucket implements provider.Buckets.
func (c *Cloud) EnsureBucket(ctx context.Context, r provider.Request, ask provider.BucketAsk) (v1alpha1.BucketAnswer, provider.Thing, error) {
	var none v1alpha1.BucketAnswer
	var thing provider.Thing
	if d := ask.SoftDeleteDays; d != 0 && (d < minSoftDelete || d > maxSoftDelete) {
		return none, thing, provider.Refused("softDeleteDays is %d; Google keeps removed objects for 0 days, or for %d to %d", d, minSoftDelete, maxSoftDelete)
	}
	want := wanted(r, ask)
	b, err := c.bucket(ctx, r, ask.Name)
	if err != nil {
		return none, thing, err
	}
	if ask.KMSKey != "" && (b == nil || b.Encryption == nil || b.Encryption.DefaultKmsKeyName != ask.KMSKey) {
		if err := c.letStorageUse(ctx, ask.KMSKey); err != nil {
			return none, thing, err
		}
	}
	if b == nil {
		made := *want
		made.Name, made.Location = ask.Name, ask.Location
		made.Labels[labelAsked] = strconv.FormatInt(r.CreatedAt.Unix(), 10)
		if b, err = c.storage.Buckets.Insert(c.account, &made).Projection("noAcl").Context(ctx).Do(); err != nil {
			if code(err) != http.StatusConflict {
				return none, thing, c.explain(err, storageAPI, "storage.buckets.create")
			}
			// Of the same name there is one now: ours if an answer was lost.
			switch b, err = c.bucket(ctx, r, ask.Name); {
			case err != nil:
				return none, thing, err
			case b == nil:
				return none, thing, provider.Waiting("bucket %s is being made or removed by somebody; it is tried again", ask.Name)
			}
		} else {
			thing.Made = true
		}
	}
	switch {
	case !strings.EqualFold(b.Location, ask.Location):
		return none, thing, provider.ErrMoved
	case b.RetentionPolicy != nil && b.RetentionPolicy.RetentionPeriod > 0:
		return none, thing, provider.Refused("bucket %s has a retention policy, by which nothing in it can be removed for %d s; somebody has set it in the account", ask.Name, b.RetentionPolicy.RetentionPeriod)
	}
	thing.CreatedAt = madeFor(b)
	if patch := differs(b, want); patch != nil {
		_, err := c.storage.Buckets.Patch(ask.Name, patch).IfMetagenerationMatch(b.Metageneration).Projection("noAcl").Context(ctx).Do()
		if clash(err) && !hasReason(err, "orgPolicy") {
			return none, thing, provider.Waiting("bucket %s is being changed by somebody else; it is tried again", ask.Name)
		}
		if err != nil {
			return none, thing, c.explain(err, storageAPI, "storage.buckets.update")
		}
	}
	return v1alpha1.BucketAnswer{Bucket: ask.Name, Endpoint: c.s3, Region: ask.Location}, thing, nil
}

// madeFor is the time of the request that a bucket was made for, or else when it was
// made.
func madeFor(b *storage.Bucket) time.Time {
	if n, err := strconv.ParseInt(b.Labels[labelAsked], 10, 64); err == nil {
		return time.Unix(n, 0)
	}
	t, err := time.Parse(time.RFC3339, b.TimeCreated)
	if err != nil {
		return time.Time{}
	}
	return t
}

// wanted is the form of the bucket, in whole: what it does not have is taken
// away.
func wanted(r provider.Request, ask provider.BucketAsk) *storage.Bucket {
	b := &storage.Bucket{
		Labels: labels(r, ask.Purpose),
		IamConfiguration: &storage.BucketIamConfiguration{
			PublicAccessPrevention:   "enforced",
			UniformBucketLevelAccess: &storage.BucketIamConfigurationUniformBucketLevelAccess{Enabled: true},
		},
		Versioning:       &storage.BucketVersioning{Enabled: ask.Versioning, ForceSendFields: []string{"Enabled"}},
		SoftDeletePolicy: &storage.BucketSoftDeletePolicy{RetentionDurationSeconds: ask.SoftDeleteDays * day, ForceSendFields: []string{"RetentionDurationSeconds"}},
		Cors:             []*storage.BucketCors{},
		Lifecycle:        &storage.BucketLifecycle{Rule: []*storage.BucketLifecycleRule{}, ForceSendFields: []string{"Rule"}},
		ForceSendFields:  []string{"Cors"},
	}
	if len(ask.CORSOrigins) > 0 {
		b.Cors = append(b.Cors, &storage.BucketCors{
			Origin: ask.CORSOrigins, Method: []string{"GET", "PUT", "HEAD"}, ResponseHeader: []string{"*", "ETag"}, MaxAgeSeconds: corsMaxAge})
	}
	if ask.NoncurrentVersionDays != nil {
		b.Lifecycle.Rule = append(b.Lifecycle.Rule, &storage.BucketLifecycleRule{
			Action:    &storage.BucketLifecycleRuleAction{Type: "Delete"},
			Condition: &storage.BucketLifecycleRuleCondition{DaysSinceNoncurrentTime: *ask.NoncurrentVersionDays}})
	}
	if ask.KMSKey != "" {
		b.Encryption = &storage.BucketEncryption{DefaultKmsKeyName: ask.KMSKey}
	}
	return b
}

// differs is what to change about a bucket, nil if nothing. Labels of others
// stay.
func differs(b, want *storage.Bucket) *storage.Bucket {
	patch, n := &storage.Bucket{}, 0
	ubla := b.IamConfiguration != nil && b.IamConfiguration.UniformBucketLevelAccess != nil && b.IamConfiguration.UniformBucketLevelAccess.Enabled
	if !ubla || b.IamConfiguration.PublicAccessPrevention != "enforced" {
		patch.IamConfiguration, n = want.IamConfiguration, n+1
	}
	if (b.Versioning != nil && b.Versioning.Enabled) != want.Versioning.Enabled {
		patch.Versioning, n = want.Versioning, n+1
	}
	var kept int64
	if b.SoftDeletePolicy != nil {
		kept = b.SoftDeletePolicy.RetentionDurationSeconds
	}
	if kept != want.SoftDeletePolicy.RetentionDurationSeconds {
		patch.SoftDeletePolicy, n = want.SoftDeletePolicy, n+1
	}
	if !equality.Semantic.DeepEqual(transcode[[]map[string]any](b.Cors), transcode[[]map[string]any](want.Cors)) && len(b.Cors)+len(want.Cors) > 0 {
		patch.Cors, patch.ForceSendFields, n = want.Cors, []string{"Cors"}, n+1
	}
	var rules []*storage.BucketLifecycleRule
	if b.Lifecycle != nil {
		rules = b.Lifecycle.Rule
	}
	if !equality.Semantic.DeepEqual(transcode[[]map[string]any](rules), transcode[[]map[string]any](want.Lifecycle.Rule)) && len(rules)+len(want.Lifecycle.Rule) > 0 {
		patch.Lifecycle, n = want.Lifecycle, n+1
	}
	key := ""
	if b.Encryption != nil {
		key = b.Encryption.DefaultKmsKeyName
	}
	switch {
	case want.Encryption == nil && key != "":
		patch.NullFields, n = []string{"Encryption"}, n+1
	case want.Encryption != nil && key != want.Encryption.DefaultKmsKeyName:
		patch.Encryption, n = want.Encryption, n+1
	}
	if n == 0 {
		return nil
	}
	return patch
}

// letStorageUse lets Cloud Storage's own agent of the account use the key.
func (c *Cloud) letStorageUse(ctx context.Context, key string) error {
	agent, err := c.storage.Projects.ServiceAccount.Get(c.account).Context(ctx).Do()
	if err != nil {
		return c.explain(err, storageAPI, "storage.projects.get (resourcemanager.projects.get)")
	}
	return c.grantKey(ctx, key, "serviceAccount:"+agent.EmailAddress, nil)
}

const roleCryptoKey = "roles/cloudkms.cryptoKeyEncrypterDecrypter"

// EnsureWrappingKey implements provider.WrappingKeys.
func (c *Cloud) EnsureWrappingKey(ctx context.Context, r provider.Request, ask v1alpha1.WrappingKeyAsk) error {
	return c.grantKey(ctx, ask.Key, "serviceAccount:"+ask.Identity, c.unspreadMember(ctx, r))
}

// grantKey lets a member use a key. fresh, if there is one, explains a policy
// that Google does not take because of the member.
func (c *Cloud) grantKey(ctx context.Context, key, member string, fresh func(error) error) error {
	if p := strings.Split(key, "/"); len(p) != 8 || p[0] != "projects" || p[2] != "locations" || p[4] != "keyRings" || p[6] != "cryptoKeys" || slices.Contains(p, "") {
		return provider.Refused("the installation's key is not of the form projects/…/locations/…/keyRings/…/cryptoKeys/…")
	}
	keys := c.kms.Projects.Locations.KeyRings.CryptoKeys
	return c.edit(func() ([]binding, func([]binding) error, error) {
		p, err := keys.GetIamPolicy(key).OptionsRequestedPolicyVersion(policyVersion).Context(ctx).Do()
		switch {
		case code(err) == http.StatusNotFound:
			return nil, nil, provider.Refused("the installation's key is not there in Cloud KMS")
		case err != nil:
			return nil, nil, c.explain(err, kmsAPI, "cloudkms.cryptoKeys.getIamPolicy")
		}
		return bindings(p.Bindings), func(b []binding) error {
			p.Bindings, p.Version = native[*cloudkms.Binding](b), policyVersion
			_, err := keys.SetIamPolicy(key, &cloudkms.SetIamPolicyRequest{Policy: p}).Context(ctx).Do()
			switch {
			case clash(err):
				return err
			case code(err) == http.StatusBadRequest && fresh != nil:
				return fresh(err)
			}
			return c.explain(err, kmsAPI, "cloudkms.cryptoKeys.setIamPolicy")
		}, nil
	}, func(b []binding) []binding { return grant(b, roleCryptoKey, member) })
}

// unspreadMember explains a policy that Google refuses to take: it does so while
// it does not yet know the identity everywhere, in words that are not told apart;
// but the identity is there, and was made a moment ago.
func (c *Cloud) unspreadMember(ctx context.Context, r provider.Request) func(error) error {
	return func(err error) error {
		sa, rerr := c.identity(ctx, r)
		switch {
		case rerr != nil:
			return rerr
		case sa == nil:
			return provider.Waiting("the identity is not there yet for everybody at Google")
		}
		if asked, ok := isOurs(r, sa.Description); ok && c.options.Now().Sub(asked) < settlingAfter {
			return provider.Waiting("the identity is made; Google needs time until it is there for everybody")
		}
		return c.explain(err, iamAPI, "setIamPolicy")
	}
}
