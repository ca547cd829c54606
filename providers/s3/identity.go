package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

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

// identityPath is of an identity and, further below, of its credentials.
func identityPath(r provider.Request, identity string) string {
	return installationPath(r) + identity + "/"
}

// EnsureIdentity implements [provider.Identities]. On premises there is nothing
// by which a ServiceAccount acts as a user: its instances reach the store by the
// credential in their Secret, and so nothing is annotated.
func (c *Cloud) EnsureIdentity(ctx context.Context, r provider.Request, _ v1alpha1.IdentityAsk) (v1alpha1.IdentityAnswer, provider.Thing, error) {
	fail := func(err error) (v1alpha1.IdentityAnswer, provider.Thing, error) {
		return v1alpha1.IdentityAnswer{}, provider.Thing{}, err
	}
	name := identityName(r)
	user, _, err := c.users(ctx, r, name)
	if err != nil {
		return fail(err)
	}
	made := false
	if user == nil {
		_, err := c.iam.CreateUser(ctx, &iam.CreateUserInput{UserName: &name, Path: aws.String(identityPath(r, name)), Tags: userTagSet(tags(r, purposeIdentity))})
		if err != nil && !is(err, "EntityAlreadyExists") {
			return fail(c.fault("iam:CreateUser", err))
		}
		made = err == nil
		if user, _, err = c.users(ctx, r, name); err != nil {
			return fail(err)
		}
		if user == nil && made {
			return fail(provider.Waiting("the object store does not show the new identity yet"))
		}
	}
	// Names are one set for all users of a store, wherever they are.
	taken := provider.Refused("user %s of the object store is someone else's; a provider never adopts it", name)
	if user == nil {
		return fail(taken)
	}
	have, err := c.userTags(ctx, name)
	if err != nil {
		return fail(err)
	}
	switch owns, here := owned(have, r, purposeIdentity); {
	case !owns:
		return fail(taken)
	case !here:
		return fail(provider.ErrMoved)
	}
	return v1alpha1.IdentityAnswer{Identity: name}, thing(have, made), nil
}

// OwnsIdentity implements [provider.Identities].
func (c *Cloud) OwnsIdentity(ctx context.Context, r provider.Request, identity string) (bool, error) {
	if identity != identityName(r) {
		return false, nil
	}
	user, _, err := c.users(ctx, r, identity)
	if err != nil || user == nil {
		return false, err
	}
	have, err := c.userTags(ctx, identity)
	if err != nil {
		return false, err
	}
	owns, here := owned(have, r, purposeIdentity)
	return owns && here, nil
}

// users are an identity's user, nil if there is none, and those that are its
// credentials. Whether a user is there is told by listing, always: asking for
// one by name is refused where the provider's own rights end at a path and there
// is none of that name.
func (c *Cloud) users(ctx context.Context, r provider.Request, identity string) (itself *types.User, credentials []types.User, err error) {
	in := &iam.ListUsersInput{PathPrefix: aws.String(identityPath(r, identity))}
	for {
		out, err := c.iam.ListUsers(ctx, in)
		if err != nil {
			return nil, nil, c.fault("iam:ListUsers", err)
		}
		for _, u := range out.Users {
			switch {
			case aws.ToString(u.UserName) == identity:
				itself = &u
			case strings.HasPrefix(aws.ToString(u.UserName), identity+"."):
				credentials = append(credentials, u)
			}
		}
		if in.Marker = out.Marker; !out.IsTruncated || in.Marker == nil {
			return itself, credentials, nil
		}
	}
}

// userTags are those of a user that is there.
func (c *Cloud) userTags(ctx context.Context, name string) (map[string]string, error) {
	tags := map[string]string{}
	in := &iam.ListUserTagsInput{UserName: &name}
	for {
		out, err := c.iam.ListUserTags(ctx, in)
		if err != nil {
			return nil, c.fault("iam:ListUserTags", err)
		}
		for _, t := range out.Tags {
			tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
		}
		if in.Marker = out.Marker; !out.IsTruncated || in.Marker == nil {
			return tags, nil
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
