package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// identityName is the subject's user: as much of its names as fits, and a digest
// over installation, project and service that tells it from all others. With a
// credential's ending it stays within the 64 characters that users have.
func identityName(r provider.Request) string {
	const whole, digest = 50, 10
	text := r.Subject.Project
	if r.Subject.Service != "" {
		text = r.Subject.Service + "." + r.Subject.Project
	}
	sum := sha256.Sum256([]byte(r.Installation + "\x00" + r.Subject.Project + "\x00" + r.Subject.Service))
	return text[:min(len(text), whole-digest-1)] + "-" + hex.EncodeToString(sum[:])[:digest]
}

// installationPath is of all users of an installation.
func installationPath(r provider.Request) string { return "/radial/" + r.Installation + "/" }

// EnsureIdentity implements [provider.Identities]. On premises there is nothing
// by which a ServiceAccount acts as a user: its instances reach the store by the
// credential in their Secret, and so nothing is annotated.
func (c *Cloud) EnsureIdentity(ctx context.Context, r provider.Request, _ v1alpha1.IdentityAsk) (v1alpha1.IdentityAnswer, provider.Thing, error) {
	name := identityName(r)
	have, found, err := c.userTags(ctx, name)
	made := false
	if err == nil && !found {
		have = tags(r, purposeIdentity)
		_, err = c.iam.CreateUser(ctx, &iam.CreateUserInput{UserName: &name, Path: aws.String(installationPath(r)), Tags: userTagSet(have)})
		made = err == nil
		if is(err, "EntityAlreadyExists") {
			err = provider.Waiting("the identity is being made")
		} else {
			err = c.fault("iam:CreateUser", err)
		}
	}
	if err != nil {
		return v1alpha1.IdentityAnswer{}, provider.Thing{}, err
	}
	switch owns, here := owned(have, r, purposeIdentity); {
	case !owns:
		return v1alpha1.IdentityAnswer{}, provider.Thing{}, provider.Refused("user %s of the object store is someone else's; a provider never adopts it", name)
	case !here:
		return v1alpha1.IdentityAnswer{}, provider.Thing{}, provider.ErrMoved
	}
	return v1alpha1.IdentityAnswer{Identity: name}, thing(have, made), nil
}

// OwnsIdentity implements [provider.Identities].
func (c *Cloud) OwnsIdentity(ctx context.Context, r provider.Request, identity string) (bool, error) {
	if identity != identityName(r) {
		return false, nil
	}
	have, found, err := c.userTags(ctx, identity)
	if err != nil || !found {
		return false, err
	}
	owns, here := owned(have, r, purposeIdentity)
	return owns && here, nil
}

// userTags are a user's, and whether it is there.
func (c *Cloud) userTags(ctx context.Context, name string) (map[string]string, bool, error) {
	tags := map[string]string{}
	in := &iam.ListUserTagsInput{UserName: &name}
	for {
		out, err := c.iam.ListUserTags(ctx, in)
		if is(err, "NoSuchEntity") {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, c.fault("iam:ListUserTags", err)
		}
		for _, t := range out.Tags {
			tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
		}
		if in.Marker = out.Marker; !out.IsTruncated || in.Marker == nil {
			return tags, true, nil
		}
	}
}

func userTagSet(tags map[string]string) []types.Tag {
	var set []types.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		set = append(set, types.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}
	return set
}
