package scripted

import (
	"context"
	"time"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// Version stands in the scripted provider's answers.
const Version = "radial-provider-scripted 0.1.0"

// Endpoint is where the made-up buckets are not.
const Endpoint = "https://storage.scripted.invalid"

// Cloud serves all six kinds from an account.
type Cloud struct{ Account Backend }

var _ interface {
	provider.Cloud
	provider.Identities
	provider.SecretAccess
	provider.SecretValues
	provider.Buckets
	provider.Credentials
	provider.WrappingKeys
} = Cloud{}

func (Cloud) Version() string { return Version }

func (c Cloud) EnsureIdentity(ctx context.Context, r provider.Request, ask v1alpha1.IdentityAsk) (v1alpha1.IdentityAnswer, provider.Thing, error) {
	a, err := c.Account.Do(ctx, Call{Op: OpEnsureIdentity, Request: r, Name: ask.ServiceAccount})
	return v1alpha1.IdentityAnswer{Identity: a.Text, ServiceAccountAnnotations: a.Annotations}, a.Thing, err
}

func (c Cloud) OwnsIdentity(ctx context.Context, r provider.Request, identity string) (bool, error) {
	a, err := c.Account.Do(ctx, Call{Op: OpOwnsIdentity, Request: r, Name: identity})
	return a.Yes, err
}

func (c Cloud) EnsureSecretAccess(ctx context.Context, r provider.Request, ask v1alpha1.SecretAccessAsk) error {
	_, err := c.Account.Do(ctx, Call{Op: OpEnsureSecretAccess, Request: r, Access: &ask})
	return err
}

func (c Cloud) SecretValues(ctx context.Context, r provider.Request, ids []string) (map[string][]byte, error) {
	a, err := c.Account.Do(ctx, Call{Op: OpSecretValues, Request: r, IDs: ids})
	return a.Values, err
}

func (c Cloud) EnsureBucket(ctx context.Context, r provider.Request, ask provider.BucketAsk) (v1alpha1.BucketAnswer, provider.Thing, error) {
	a, err := c.Account.Do(ctx, Call{Op: OpEnsureBucket, Request: r, Name: ask.Name, Bucket: &ask})
	return v1alpha1.BucketAnswer{Bucket: a.Text, Endpoint: Endpoint, Region: r.Location}, a.Thing, err
}

func (c Cloud) OwnsBucket(ctx context.Context, r provider.Request, bucket string) (bool, error) {
	a, err := c.Account.Do(ctx, Call{Op: OpOwnsBucket, Request: r, Name: bucket})
	return a.Yes, err
}

func (c Cloud) EnsureBucketAccess(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk) error {
	_, err := c.Account.Do(ctx, Call{Op: OpEnsureBucketAccess, Request: r, Name: ask.Bucket, Identity: ask.Identity})
	return err
}

func (c Cloud) IssueCredential(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk) (provider.Credential, error) {
	a, err := c.Account.Do(ctx, Call{Op: OpIssue, Request: r, Name: ask.Bucket, Identity: ask.Identity})
	return provider.Credential{ID: a.ID, AccessKey: a.AccessKey, SecretKey: a.SecretKey}, err
}

func (c Cloud) CredentialUsable(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk, k provider.Credential, _ time.Time) error {
	_, err := c.Account.Do(ctx, Call{Op: OpUsable, Request: r, Name: k.ID, Identity: ask.Identity})
	return err
}

func (c Cloud) EndCredential(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk, id string) error {
	_, err := c.Account.Do(ctx, Call{Op: OpEnd, Request: r, Name: id, Identity: ask.Identity})
	return err
}

func (c Cloud) ListCredentials(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk) ([]provider.Issued, error) {
	a, err := c.Account.Do(ctx, Call{Op: OpList, Request: r, Identity: ask.Identity})
	return a.Issued, err
}

func (c Cloud) EnsureWrappingKey(ctx context.Context, r provider.Request, ask v1alpha1.WrappingKeyAsk) error {
	_, err := c.Account.Do(ctx, Call{Op: OpEnsureWrappingKey, Request: r, Name: ask.Key, Identity: ask.Identity})
	return err
}
