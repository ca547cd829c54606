package s3

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// policyName is that of a credential's one policy.
const policyName = "bucket"

// credentialPath is of a credential's user: it says when the request was made
// that it was issued for, in seconds. So what is an older request's is told by
// the API server's time, not the store's.
func credentialPath(r provider.Request, identity string) string {
	return identityPath(r, identity) + strconv.FormatInt(r.CreatedAt.Unix(), 10) + "/"
}

// policy lets in to one bucket: reading, writing and removing objects, with what
// clients ask about a bucket on the way. Older versions can be read, and not
// removed: what a service removes by mistake or malice is still there.
func policy(bucket string) string {
	type statement struct {
		Effect   string
		Action   []string
		Resource string
	}
	raw, err := json.Marshal(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", []statement{
		{"Allow", []string{"s3:ListBucket", "s3:ListBucketVersions", "s3:GetBucketLocation", "s3:ListBucketMultipartUploads"}, "arn:aws:s3:::" + bucket},
		{"Allow", []string{"s3:GetObject", "s3:GetObjectVersion", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"}, "arn:aws:s3:::" + bucket + "/*"},
	}})
	if err != nil {
		panic(err) // text alone always marshals
	}
	return string(raw)
}

// EnsureBucketAccess implements [provider.Credentials]: the policy of each
// credential is what it is to be.
func (c *Cloud) EnsureBucketAccess(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk) error {
	_, users, err := c.users(ctx, r, ask.Identity)
	if err != nil {
		return err
	}
	want := policy(ask.Bucket)
	for _, u := range users {
		out, err := c.iam.GetUserPolicy(ctx, &iam.GetUserPolicyInput{UserName: u.UserName, PolicyName: aws.String(policyName)})
		if err == nil && samePolicy(aws.ToString(out.PolicyDocument), want) {
			continue
		}
		if err != nil && !is(err, "NoSuchEntity") {
			return c.fault("iam:GetUserPolicy", err)
		}
		if err := c.putPolicy(ctx, aws.ToString(u.UserName), want); err != nil && !is(err, "NoSuchEntity") {
			return c.fault("iam:PutUserPolicy", err)
		}
	}
	return nil
}

func (c *Cloud) putPolicy(ctx context.Context, user, document string) error {
	_, err := c.iam.PutUserPolicy(ctx, &iam.PutUserPolicyInput{UserName: &user, PolicyName: aws.String(policyName), PolicyDocument: &document})
	return err
}

// samePolicy compares what a store answers, which is escaped and may be laid out
// otherwise.
func samePolicy(answered, want string) bool {
	if text, err := url.QueryUnescape(answered); err == nil {
		answered = text
	}
	var a, b any
	return json.Unmarshal([]byte(answered), &a) == nil && json.Unmarshal([]byte(want), &b) == nil && reflect.DeepEqual(a, b)
}

// IssueCredential implements [provider.Credentials].
func (c *Cloud) IssueCredential(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk) (provider.Credential, error) {
	name := ask.Identity + "." + strings.ToLower(rand.Text()[:13])
	if _, err := c.iam.CreateUser(ctx, &iam.CreateUserInput{UserName: &name, Path: aws.String(credentialPath(r, ask.Identity)), Tags: userTagSet(tags(r, purposeCredential))}); err != nil {
		return provider.Credential{}, c.fault("iam:CreateUser", err)
	}
	if err := c.putPolicy(ctx, name, policy(ask.Bucket)); err != nil {
		return provider.Credential{}, c.fault("iam:PutUserPolicy", err)
	}
	out, err := c.iam.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: &name})
	if err != nil {
		return provider.Credential{}, c.fault("iam:CreateAccessKey", err)
	}
	return provider.Credential{ID: name, AccessKey: aws.ToString(out.AccessKey.AccessKeyId), SecretKey: aws.ToString(out.AccessKey.SecretAccessKey)}, nil
}

// CredentialUsable implements [provider.Credentials]. With the keys at hand the
// credential itself is tried.
func (c *Cloud) CredentialUsable(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk, k provider.Credential, issuedAt time.Time) error {
	if k.AccessKey != "" && k.SecretKey != "" {
		key := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: k.AccessKey, SecretAccessKey: k.SecretKey}, nil
		})
		_, err := c.client(key).ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &ask.Bucket, MaxKeys: aws.Int32(1)})
		if denied(err) || is(err, "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidClientTokenId") {
			return provider.Waiting("the object store does not take the new credential yet")
		}
		return c.fault("s3:ListBucket", err)
	}
	keys, _, err := c.keys(ctx, r, ask, k.ID)
	switch {
	case err != nil:
		return err
	case len(keys) == 0:
		return provider.Refused("the credential was ended in the object store; a higher storage credential generation asks for another")
	case c.now().Sub(issuedAt) < c.config.Settle:
		return provider.Waiting("the object store is given time to take the new credential")
	}
	return nil
}

// EndCredential implements [provider.Credentials]. The key goes first.
func (c *Cloud) EndCredential(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk, id string) error {
	keys, found, err := c.keys(ctx, r, ask, id)
	if err != nil || !found {
		return err
	}
	for _, k := range keys {
		if _, err := c.iam.DeleteAccessKey(ctx, &iam.DeleteAccessKeyInput{UserName: &id, AccessKeyId: &k}); err != nil && !is(err, "NoSuchEntity") {
			return c.fault("iam:DeleteAccessKey", err)
		}
	}
	// Whatever else a hand has given the user, it goes.
	policies, err := c.iam.ListUserPolicies(ctx, &iam.ListUserPoliciesInput{UserName: &id})
	if err != nil {
		return c.fault("iam:ListUserPolicies", err)
	}
	for _, p := range policies.PolicyNames {
		if _, err := c.iam.DeleteUserPolicy(ctx, &iam.DeleteUserPolicyInput{UserName: &id, PolicyName: &p}); err != nil && !is(err, "NoSuchEntity") {
			return c.fault("iam:DeleteUserPolicy", err)
		}
	}
	if _, err := c.iam.DeleteUser(ctx, &iam.DeleteUserInput{UserName: &id}); err != nil && !is(err, "NoSuchEntity") {
		return c.fault("iam:DeleteUser", err)
	}
	return nil
}

// ListCredentials implements [provider.Credentials].
func (c *Cloud) ListCredentials(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk) ([]provider.Issued, error) {
	_, users, err := c.users(ctx, r, ask.Identity)
	if err != nil {
		return nil, err
	}
	issued := make([]provider.Issued, 0, len(users))
	for _, u := range users {
		i := provider.Issued{ID: aws.ToString(u.UserName), CreatedAt: aws.ToTime(u.CreateDate)}
		at := strings.Trim(strings.TrimPrefix(aws.ToString(u.Path), identityPath(r, ask.Identity)), "/")
		if s, err := strconv.ParseInt(at, 10, 64); err == nil {
			i.CreatedAt = time.Unix(s, 0)
		}
		issued = append(issued, i)
	}
	return issued, nil
}

// keys are the ids of the keys of a credential's user, and whether there is such
// a user.
func (c *Cloud) keys(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk, id string) ([]string, bool, error) {
	_, users, err := c.users(ctx, r, ask.Identity)
	if err != nil || !slices.ContainsFunc(users, func(u types.User) bool { return aws.ToString(u.UserName) == id }) {
		return nil, false, err
	}
	out, err := c.iam.ListAccessKeys(ctx, &iam.ListAccessKeysInput{UserName: &id})
	if err != nil {
		return nil, false, c.fault("iam:ListAccessKeys", err)
	}
	var ids []string
	for _, k := range out.AccessKeyMetadata {
		ids = append(ids, aws.ToString(k.AccessKeyId))
	}
	return ids, true, nil
}
