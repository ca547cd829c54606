package gcp

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"slices"
	"strconv"
	"strings"

	cloudresourcemanager "google.golang.org/api/cloudresourcemanager/v3"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// roleRead is reading the values of secrets.
const roleRead = "roles/secretmanager.secretAccessor"

// A condition may have twelve logical operators.
const maxPrefixes = 12

// EnsureSecretAccess implements provider.SecretAccess, by conditional bindings of
// the identity in the account's policy. Google cannot condition the making of a
// secret by its name: whoever owns some may make any, but read and remove only
// those of its prefixes.
func (c *Cloud) EnsureSecretAccess(ctx context.Context, r provider.Request, ask v1alpha1.SecretAccessAsk) error {
	number, err := c.projectNumber(ctx)
	if err != nil {
		return err
	}
	if len(ask.Own) > maxPrefixes || len(ask.Read) > maxPrefixes {
		return provider.Refused("own and read have at most %d prefixes each in Google Cloud", maxPrefixes)
	}
	member := "serviceAccount:" + ask.Identity
	var want []binding
	add := func(role, what string, prefixes []string) {
		b := binding{Role: role, Members: []string{member}}
		if prefixes != nil {
			b.Condition = c.condition(r, number, what, prefixes)
		}
		want = append(want, b)
	}
	if len(ask.Own) > 0 {
		add(c.options.KeeperRole, "keep", ask.Own)
		want = append(want, binding{Role: c.options.CreatorRole, Members: []string{member}})
	}
	if len(ask.Read) > 0 {
		add(roleRead, "read", ask.Read)
	}
	roles := []string{roleRead, c.options.KeeperRole, c.options.CreatorRole}
	c.policy.Lock()
	defer c.policy.Unlock()
	project := "projects/" + c.account
	return c.edit(func() ([]binding, func([]binding) error, error) {
		p, err := c.projects.Projects.GetIamPolicy(project, &cloudresourcemanager.GetIamPolicyRequest{
			Options: &cloudresourcemanager.GetPolicyOptions{RequestedPolicyVersion: policyVersion}}).Context(ctx).Do()
		if err != nil {
			return nil, nil, c.explain(err, resourceManager, "resourcemanager.projects.getIamPolicy")
		}
		return bindings(p.Bindings), func(b []binding) error {
			p.Bindings, p.Version = native[*cloudresourcemanager.Binding](b), policyVersion
			_, err := c.projects.Projects.SetIamPolicy(project, &cloudresourcemanager.SetIamPolicyRequest{Policy: p}).Context(ctx).Do()
			switch {
			case clash(err):
				return err
			case code(err) == http.StatusBadRequest:
				return c.unspreadMember(ctx, r)(err)
			}
			return c.explain(err, resourceManager, "resourcemanager.projects.setIamPolicy")
		}, nil
	}, func(b []binding) []binding {
		// What is as it should be stays where it is, so that nothing is written.
		missing := slices.Clone(want)
		var out []binding
		for _, x := range b {
			if !slices.Contains(roles, x.Role) || !slices.Contains(x.Members, member) {
				out = append(out, x)
				continue
			}
			if i := slices.IndexFunc(missing, func(w binding) bool { return w.Role == x.Role && sameCondition(w.Condition, x.Condition) }); i >= 0 {
				missing = slices.Delete(missing, i, i+1)
				out = append(out, x)
				continue
			}
			x.Members = slices.DeleteFunc(slices.Clone(x.Members), func(m string) bool { return m == member })
			if len(x.Members) > 0 {
				out = append(out, x)
			}
		}
		for _, w := range missing {
			if w.Condition == nil {
				out = grant(out, w.Role, member)
			} else {
				out = append(out, w)
			}
		}
		return out
	})
}

// condition holds a binding to secrets whose ids start so. Google names them by
// the project's number.
func (c *Cloud) condition(r provider.Request, number uint64, what string, prefixes []string) *condition {
	var parts []string
	for _, p := range prefixes {
		parts = append(parts, fmt.Sprintf(`resource.name.startsWith("projects/%d/secrets/%s")`, number, p))
	}
	// Two subjects' titles differ, so that nobody's binding is taken for another's.
	sum := sha256.Sum256([]byte(r.Installation + "." + r.Subject.Project + "." + r.Subject.Service))
	return &condition{
		Title:       "radial-" + what + "-" + hex.EncodeToString(sum[:8]),
		Description: fmt.Sprintf("radial installation=%s project=%s service=%s", r.Installation, r.Subject.Project, r.Subject.Service),
		Expression:  strings.Join(parts, " || "),
	}
}

func sameCondition(a, b *condition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SecretValues implements provider.SecretValues.
func (c *Cloud) SecretValues(ctx context.Context, r provider.Request, ids []string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, id := range ids {
		v, err := c.secrets.Projects.Secrets.Versions.Access("projects/" + c.account + "/secrets/" + id + "/versions/latest").Context(ctx).Do()
		switch code(err) {
		case http.StatusNotFound:
			continue // none yet
		case http.StatusBadRequest:
			continue // its latest version is disabled or destroyed
		}
		if err != nil {
			return nil, c.explain(err, secretManager, "secretmanager.versions.access")
		}
		if v.Payload == nil {
			return nil, fmt.Errorf("%s answers no value", secretManager)
		}
		raw, err := base64.StdEncoding.DecodeString(v.Payload.Data)
		if err != nil {
			if raw, err = base64.URLEncoding.DecodeString(v.Payload.Data); err != nil {
				return nil, fmt.Errorf("%s answers a value that cannot be decoded", secretManager)
			}
		}
		if sum := v.Payload.DataCrc32c; sum != 0 && strconv.FormatInt(sum, 10) != strconv.FormatUint(uint64(crc32.Checksum(raw, castagnoli)), 10) {
			return nil, errors.New("a value of Secret Manager was damaged on its way")
		}
		out[id] = raw
	}
	return out, nil
}
