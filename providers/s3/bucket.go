package s3

import (
	"context"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// EnsureBucket implements [provider.Buckets].
func (c *Cloud) EnsureBucket(ctx context.Context, r provider.Request, ask provider.BucketAsk) (v1alpha1.BucketAnswer, provider.Thing, error) {
	fail := func(err error) (v1alpha1.BucketAnswer, provider.Thing, error) {
		return v1alpha1.BucketAnswer{}, provider.Thing{}, err
	}
	if err := checkSoftDelete(ask.BucketAsk); err != nil {
		return fail(err)
	}
	have, found, err := c.bucketTags(ctx, ask.Name)
	if err != nil && !denied(err) {
		return fail(c.fault("s3:GetBucketTagging", err))
	}
	made := false
	if !found {
		// Where the tags are not told, this tells whether it is someone else's:
		// it makes nothing where there is something.
		if have, made, err = c.makeBucket(ctx, r, ask); err != nil {
			return fail(err)
		}
	}
	switch owns, here := owned(have, r, ask.Purpose); {
	case !owns:
		return fail(provider.Taken(ask.Name))
	case !here:
		return fail(provider.ErrMoved)
	}
	for _, form := range []func(context.Context, provider.BucketAsk) error{c.setVersioning, c.setLifecycle, c.setCORS, c.setEncryption} {
		if err := form(ctx, ask); err != nil {
			return fail(err)
		}
	}
	return v1alpha1.BucketAnswer{Bucket: ask.Name, Endpoint: c.config.InstanceEndpoint, Region: c.config.Region}, thing(have, made), nil
}

// checkSoftDelete: S3 keeps removed objects only as versions, and a rule about
// those is about replaced ones too. Credentials may not remove versions.
func checkSoftDelete(a v1alpha1.BucketAsk) error {
	switch {
	case a.SoftDeleteDays == 0:
		return nil
	case !a.Versioning:
		return provider.Refused("an object store of this kind keeps removed objects as versions only: parameter softDeleteDays needs versioning")
	case a.NoncurrentVersionDays != nil && *a.NoncurrentVersionDays < a.SoftDeleteDays:
		return provider.Refused("an object store of this kind keeps removed objects as versions, which noncurrentVersionDays lets go after %d days and softDeleteDays wants kept for %d; noncurrentVersionDays must be empty or no less",
			*a.NoncurrentVersionDays, a.SoftDeleteDays)
	}
	return nil
}

// OwnsBucket implements [provider.Buckets].
func (c *Cloud) OwnsBucket(ctx context.Context, r provider.Request, bucket string) (bool, error) {
	have, found, err := c.bucketTags(ctx, bucket)
	if err != nil || !found {
		return false, c.fault("s3:GetBucketTagging", err)
	}
	owns, here := owned(have, r, purposeOf(r.Subject))
	return owns && here, nil
}

// bucketTags are a bucket's, and whether it is there. The error is the store's.
func (c *Cloud) bucketTags(ctx context.Context, bucket string) (map[string]string, bool, error) {
	out, err := c.s3.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: &bucket})
	switch {
	case is(err, "NoSuchBucket"):
		return nil, false, nil
	case is(err, "NoSuchTagSet", "NoSuchTagSetError"):
		return nil, true, nil
	case err != nil:
		return nil, false, err
	}
	tags := map[string]string{}
	for _, t := range out.TagSet {
		tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return tags, true, nil
}

// makeBucket makes the bucket with its tags, and answers those that it has then.
func (c *Cloud) makeBucket(ctx context.Context, r provider.Request, ask provider.BucketAsk) (have map[string]string, made bool, err error) {
	want := tags(r, ask.Purpose)
	in := &s3.CreateBucketInput{Bucket: &ask.Name, CreateBucketConfiguration: &types.CreateBucketConfiguration{Tags: tagSet(want)}}
	if c.config.Region != "us-east-1" {
		// That one is meant by none, and may not be named.
		in.CreateBucketConfiguration.LocationConstraint = types.BucketLocationConstraint(c.config.Region)
	}
	_, err = c.s3.CreateBucket(ctx, in)
	switch {
	case is(err, "BucketAlreadyExists"):
		return nil, false, provider.Taken(ask.Name)
	case is(err, "BucketAlreadyOwnedByYou"):
		// Somebody was faster; whoever it was, the tags tell.
	case err != nil:
		return nil, false, c.fault("s3:CreateBucket", err)
	default:
		made = true
	}
	have, found, err := c.bucketTags(ctx, ask.Name)
	if err != nil {
		return nil, false, c.fault("s3:GetBucketTagging", err)
	}
	if made && found && len(have) == 0 {
		// A store that overlooks tags of a bucket that it makes. If this process
		// dies here, the bucket is nobody's, and whoever runs the store removes
		// it: that is told rather than taken over.
		if _, err := c.s3.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{Bucket: &ask.Name, Tagging: &types.Tagging{TagSet: tagSet(want)}}); err != nil {
			return nil, false, c.fault("s3:PutBucketTagging", err)
		}
		have = want
	}
	return have, made, nil
}

func tagSet(tags map[string]string) []types.Tag {
	var set []types.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		set = append(set, types.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}
	return set
}

func (c *Cloud) setVersioning(ctx context.Context, ask provider.BucketAsk) error {
	out, err := c.s3.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &ask.Name})
	switch {
	case absent(err) && ask.Versioning:
		return lacks(v1alpha1.ParamVersioning, "versions")
	case absent(err):
		return nil
	case err != nil:
		return c.fault("s3:GetBucketVersioning", err)
	}
	want := out.Status
	if ask.Versioning {
		want = types.BucketVersioningStatusEnabled
	} else if out.Status == types.BucketVersioningStatusEnabled {
		want = types.BucketVersioningStatusSuspended
	}
	if want == out.Status {
		return nil
	}
	_, err = c.s3.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{Bucket: &ask.Name, VersioningConfiguration: &types.VersioningConfiguration{Status: want}})
	if absent(err) {
		return lacks(v1alpha1.ParamVersioning, "versions")
	}
	return c.fault("s3:PutBucketVersioning", err)
}

// ruleNoncurrent is the one rule of a bucket's life cycle that is the
// provider's; others are left as they are.
const ruleNoncurrent = "radial-noncurrent-versions"

func (c *Cloud) setLifecycle(ctx context.Context, ask provider.BucketAsk) error {
	var rules []types.LifecycleRule
	out, err := c.s3.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &ask.Name})
	switch {
	case is(err, "NoSuchLifecycleConfiguration"):
	case absent(err) && ask.NoncurrentVersionDays != nil:
		return lacks(v1alpha1.ParamNoncurrentVersionDays, "rules by which versions go")
	case absent(err):
		return nil
	case err != nil:
		return c.fault("s3:GetLifecycleConfiguration", err)
	default:
		rules = out.Rules
	}
	at := slices.IndexFunc(rules, func(r types.LifecycleRule) bool { return aws.ToString(r.ID) == ruleNoncurrent })
	switch days := ask.NoncurrentVersionDays; {
	case days == nil && at < 0:
		return nil
	case days == nil:
		rules = slices.Delete(rules, at, at+1)
	case at >= 0 && rules[at].Status == types.ExpirationStatusEnabled && rules[at].NoncurrentVersionExpiration != nil &&
		int64(aws.ToInt32(rules[at].NoncurrentVersionExpiration.NoncurrentDays)) == *days:
		return nil
	case *days > 1<<31-1:
		return provider.Refused("noncurrentVersionDays is more than the object store can count")
	default:
		if at >= 0 {
			rules = slices.Delete(rules, at, at+1)
		}
		rules = append(rules, types.LifecycleRule{
			ID: aws.String(ruleNoncurrent), Status: types.ExpirationStatusEnabled, Filter: &types.LifecycleRuleFilter{Prefix: aws.String("")},
			NoncurrentVersionExpiration: &types.NoncurrentVersionExpiration{NoncurrentDays: aws.Int32(int32(*days))},
		})
	}
	if len(rules) == 0 {
		_, err = c.s3.DeleteBucketLifecycle(ctx, &s3.DeleteBucketLifecycleInput{Bucket: &ask.Name})
	} else {
		_, err = c.s3.PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{Bucket: &ask.Name,
			LifecycleConfiguration: &types.BucketLifecycleConfiguration{Rules: rules}})
	}
	if absent(err) {
		return lacks(v1alpha1.ParamNoncurrentVersionDays, "rules by which versions go")
	}
	return c.fault("s3:PutLifecycleConfiguration", err)
}

// corsMethods are what a browser may do with an object.
var corsMethods = []string{"GET", "HEAD", "PUT", "POST", "DELETE"}

func (c *Cloud) setCORS(ctx context.Context, ask provider.BucketAsk) error {
	var rules []types.CORSRule
	out, err := c.s3.GetBucketCors(ctx, &s3.GetBucketCorsInput{Bucket: &ask.Name})
	switch {
	case is(err, "NoSuchCORSConfiguration"):
	case absent(err) && len(ask.CORSOrigins) > 0:
		return lacks(v1alpha1.ParamCORSOrigins, "origins of browsers")
	case absent(err):
		return nil
	case err != nil:
		return c.fault("s3:GetBucketCORS", err)
	default:
		rules = out.CORSRules
	}
	if len(ask.CORSOrigins) == 0 {
		if len(rules) == 0 {
			return nil
		}
		_, err = c.s3.DeleteBucketCors(ctx, &s3.DeleteBucketCorsInput{Bucket: &ask.Name})
		return c.fault("s3:PutBucketCORS", err)
	}
	if len(rules) == 1 && slices.Equal(rules[0].AllowedOrigins, ask.CORSOrigins) && slices.Equal(rules[0].AllowedMethods, corsMethods) {
		return nil
	}
	_, err = c.s3.PutBucketCors(ctx, &s3.PutBucketCorsInput{Bucket: &ask.Name, CORSConfiguration: &types.CORSConfiguration{CORSRules: []types.CORSRule{{
		AllowedOrigins: ask.CORSOrigins, AllowedMethods: corsMethods, AllowedHeaders: []string{"*"}, ExposeHeaders: []string{"ETag"}, MaxAgeSeconds: aws.Int32(3600),
	}}}})
	if absent(err) {
		return lacks(v1alpha1.ParamCORSOrigins, "origins of browsers")
	}
	return c.fault("s3:PutBucketCORS", err)
}

func (c *Cloud) setEncryption(ctx context.Context, ask provider.BucketAsk) error {
	now := ""
	out, err := c.s3.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: &ask.Name})
	switch {
	case is(err, "ServerSideEncryptionConfigurationNotFoundError"):
	case absent(err) && ask.KMSKey != "":
		return lacks(v1alpha1.ParamKMSKey, "keys of its own")
	case absent(err):
		return nil
	case err != nil:
		return c.fault("s3:GetEncryptionConfiguration", err)
	case out.ServerSideEncryptionConfiguration != nil:
		for _, rule := range out.ServerSideEncryptionConfiguration.Rules {
			if d := rule.ApplyServerSideEncryptionByDefault; d != nil && d.SSEAlgorithm == types.ServerSideEncryptionAwsKms {
				now = aws.ToString(d.KMSMasterKeyID)
			}
		}
	}
	switch {
	case now == ask.KMSKey:
		return nil
	case ask.KMSKey == "":
		_, err = c.s3.DeleteBucketEncryption(ctx, &s3.DeleteBucketEncryptionInput{Bucket: &ask.Name})
	default:
		_, err = c.s3.PutBucketEncryption(ctx, &s3.PutBucketEncryptionInput{Bucket: &ask.Name, ServerSideEncryptionConfiguration: &types.ServerSideEncryptionConfiguration{
			Rules: []types.ServerSideEncryptionRule{{ApplyServerSideEncryptionByDefault: &types.ServerSideEncryptionByDefault{
				SSEAlgorithm: types.ServerSideEncryptionAwsKms, KMSMasterKeyID: aws.String(ask.KMSKey)}}}}})
	}
	if absent(err) {
		return lacks(v1alpha1.ParamKMSKey, "keys of its own")
	}
	return c.fault("s3:PutEncryptionConfiguration", err)
}
