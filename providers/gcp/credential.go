package gcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	storage "google.golang.org/api/storage/v1"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/providers/gcp/internal/sigv4"
)

// roleObjects is reading, writing, listing and removing objects, of a bucket
// when it stands in the bucket's policy.
const roleObjects = "roles/storage.objectUser"

// Google gives a service account so many HMAC keys that are not deleted.
const maxKeys = 10

// Keys' states.
const (
	active   = "ACTIVE"
	inactive = "INACTIVE"
)

// keyID names a key in the journal. Google names it by its access id, which is
// half of what the Secret holds and stands nowhere else.
func keyID(accessID string) string {
	sum := sha256.Sum256([]byte(accessID))
	return "hmac-" + hex.EncodeToString(sum[:])[:26]
}

// EnsureBucketAccess implements provider.Credentials. The identity gets one role on the
// bucket and no other, and no other subject's identity has any (C-78).
func (c *Cloud) EnsureBucketAccess(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk) error {
	member := "serviceAccount:" + ask.Identity
	return c.edit(func() ([]binding, func([]binding) error, error) {
		p, err := c.storage.Buckets.GetIamPolicy(ask.Bucket).OptionsRequestedPolicyVersion(policyVersion).Context(ctx).Do()
		if err != nil {
			return nil, nil, c.explain(err, storageAPI, "storage.buckets.getIamPolicy")
		}
		return bindings(p.Bindings), func(b []binding) error {
			p.Bindings, p.Version = native[*storage.PolicyBindings](b), policyVersion
			_, err := c.storage.Buckets.SetIamPolicy(ask.Bucket, p).Context(ctx).Do()
			switch {
			case clash(err):
				return err
			case code(err) == http.StatusBadRequest:
				return c.unspreadMember(ctx, r)(err)
			}
			return c.explain(err, storageAPI, "storage.buckets.setIamPolicy")
		}, nil
	}, func(b []binding) []binding {
		b = without(b, func(x binding) bool { return x.Role != roleObjects || x.Condition != nil }, func(m string) bool { return m == member })
		b = without(b, func(binding) bool { return true }, func(m string) bool { return m != member && c.anIdentity(m) })
		return grant(b, roleObjects, member)
	})
}

// anIdentity says whether a member of a policy is an identity that this provider makes.
func (c *Cloud) anIdentity(member string) bool {
	email, ok := strings.CutPrefix(member, "serviceAccount:")
	return ok && strings.HasSuffix(email, "@"+accountDomain(c.account)) && identityForm.MatchString(email)
}

// IssueCredential implements provider.Credentials. It is one call, made once.
func (c *Cloud) IssueCredential(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk) (provider.Credential, error) {
	k, err := c.storage.Projects.HmacKeys.Create(c.account, ask.Identity).Context(ctx).Do()
	switch {
	case err == nil:
	case code(err) == http.StatusPreconditionFailed:
		return provider.Credential{}, provider.Refused("an organization policy of account %s forbids keys (constraints/iam.disableServiceAccountKeyCreation)", c.account)
	case code(err) == http.StatusNotFound, code(err) == http.StatusBadRequest:
		return provider.Credential{}, c.unspreadMember(ctx, r)(err)
	case hasReason(err, "quotaExceeded") || code(err) == http.StatusForbidden && !passing(err) && !disabled(err) && c.full(ctx, ask.Identity):
		return provider.Credential{}, provider.Refused("the identity has as many keys as Google allows (%d); delete those that nothing uses in the account", maxKeys)
	default:
		return provider.Credential{}, c.explain(err, storageAPI, "storage.hmacKeys.create")
	}
	if k.Metadata == nil {
		return provider.Credential{}, fmt.Errorf("%s issues a key without saying which", storageAPI)
	}
	return provider.Credential{ID: keyID(k.Metadata.AccessId), AccessKey: k.Metadata.AccessId, SecretKey: k.Secret}, nil
}

func (c *Cloud) full(ctx context.Context, identity string) bool {
	keys, err := c.keys(ctx, identity)
	return err == nil && len(keys) >= maxKeys
}

// keys are those of an identity that are not deleted.
func (c *Cloud) keys(ctx context.Context, identity string) ([]*storage.HmacKeyMetadata, error) {
	var out []*storage.HmacKeyMetadata
	err := c.storage.Projects.HmacKeys.List(c.account).ServiceAccountEmail(identity).Pages(ctx, func(p *storage.HmacKeysMetadata) error {
		for _, k := range p.Items {
			if k.State == active || k.State == inactive {
				out = append(out, k)
			}
		}
		return nil
	})
	if code(err) == http.StatusNotFound {
		return nil, nil
	}
	return out, c.explain(err, storageAPI, "storage.hmacKeys.list")
}

func (c *Cloud) key(ctx context.Context, identity, id string) (*storage.HmacKeyMetadata, error) {
	keys, err := c.keys(ctx, identity)
	if i := slices.IndexFunc(keys, func(k *storage.HmacKeyMetadata) bool { return keyID(k.AccessId) == id }); i >= 0 {
		return keys[i], nil
	}
	return nil, err
}

// ListCredentials implements provider.Credentials.
func (c *Cloud) ListCredentials(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk) ([]provider.Issued, error) {
	keys, err := c.keys(ctx, ask.Identity)
	var out []provider.Issued
	for _, k := range keys {
		at, _ := time.Parse(time.RFC3339, k.TimeCreated)
		out = append(out, provider.Issued{ID: keyID(k.AccessId), CreatedAt: at})
	}
	return out, err
}

// EndCredential implements provider.Credentials: a key is deactivated, by which it
// opens nothing any more, and then deleted.
func (c *Cloud) EndCredential(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk, id string) error {
	k, err := c.key(ctx, ask.Identity, id)
	if err != nil || k == nil {
		return err
	}
	if k.State == active {
		_, err := c.storage.Projects.HmacKeys.Update(c.account, k.AccessId, &storage.HmacKeyMetadata{State: inactive, Etag: k.Etag}).Context(ctx).Do()
		if err != nil && code(err) != http.StatusNotFound {
			return c.explain(err, storageAPI, "storage.hmacKeys.update")
		}
	}
	err = c.storage.Projects.HmacKeys.Delete(c.account, k.AccessId).Context(ctx).Do()
	switch code(err) {
	case http.StatusNotFound:
		return nil
	case http.StatusBadRequest, http.StatusConflict, http.StatusPreconditionFailed:
		return provider.Waiting("the key opens nothing any more; Google deletes it only some minutes after that")
	}
	return c.explain(err, storageAPI, "storage.hmacKeys.delete")
}

// CredentialUsable implements provider.Credentials: it lists the bucket by the key, as
// the service will. A new key may take a minute, and a grant longer (G14).
func (c *Cloud) CredentialUsable(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk, cr provider.Credential, issuedAt time.Time) error {
	const notYet = "the key is made and in its Secret; Google does not take it yet"
	if cr.SecretKey == "" {
		k, err := c.key(ctx, ask.Identity, cr.ID)
		switch {
		case err != nil:
			return err
		case k == nil || k.State != active:
			return provider.Refused("the key in the Secret was deactivated or deleted in the account; ask for another by raising the credential generation")
		case c.options.Now().Sub(issuedAt) < c.options.KeySettles:
			return provider.Waiting(notYet)
		}
		return nil
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, c.s3+"/"+ask.Bucket+"?list-type=2&max-keys=1", nil)
	if err != nil {
		return err
	}
	sigv4.Sign(q, sigv4.Key{Access: cr.AccessKey, Secret: cr.SecretKey, Region: "auto", Service: "s3"}, c.options.Now())
	// Not c.http, which would put the provider's token beside the signature.
	res, err := anonymous.Do(q)
	if err != nil {
		return c.explain(err, storageAPI, "")
	}
	_ = res.Body.Close()
	switch s := res.StatusCode; {
	case s == http.StatusOK:
		return nil
	case s == http.StatusNotFound:
		return provider.Refused("bucket %s is not there", ask.Bucket)
	case s == http.StatusForbidden, s == http.StatusUnauthorized, s == http.StatusBadRequest:
		return provider.Waiting(notYet)
	default:
		return provider.Waiting("%s; %s does not answer as it should (%d)", notYet, storageAPI, s)
	}
}

var anonymous = &http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
