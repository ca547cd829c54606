package gcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	iam "google.golang.org/api/iam/v1"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

const (
	// annotationIdentity binds a Kubernetes ServiceAccount to Google's.
	annotationIdentity = "iam.gke.io/gcp-service-account"
	roleWorkload       = "roles/iam.workloadIdentityUser"

	// Google allows ids of 6 to 30 characters, far fewer than a subject's names
	// may have: so most of an id is a digest.
	maxID         = 30
	idPrefix      = "r-"
	idDigest      = 10
	idReadable    = maxID - len(idPrefix) - 1 - idDigest
	maxDisplay    = 100
	settlingAfter = 3 * time.Minute
)

// identityID is the id of a subject's service account: r-<project>-<service>
// cut to fit, and a digest over installation, project and service that is never
// cut. Two installations in one account have different ones.
func identityID(r provider.Request) string {
	sum := sha256.Sum256([]byte(r.Installation + "." + r.Subject.Project + "." + r.Subject.Service))
	readable := r.Subject.Project
	if r.Subject.Service != "" {
		readable += "-" + r.Subject.Service
	}
	return idPrefix + readable[:min(len(readable), idReadable)] + "-" + hex.EncodeToString(sum[:])[:idDigest]
}

var identityForm = regexp.MustCompile(`^r-[-a-z0-9]{1,` + strconv.Itoa(idReadable) + `}-[0-9a-f]{10}@`)

// identityEmail names the service account everywhere.
func (c *Cloud) identityEmail(r provider.Request) string {
	return identityID(r) + "@" + accountDomain(c.account)
}

// accountDomain is that of a project's service accounts: a project of a domain
// (example.com:project) has the two turned around.
func accountDomain(project string) string {
	if domain, id, ok := strings.Cut(project, ":"); ok {
		project = id + "." + domain
	}
	return project + ".iam.gserviceaccount.com"
}

// A service account has no labels: its description carries what they would.
// asked is the time of the request for which it was made, in seconds: by that
// Ready and Recovered are told apart exactly, whatever clocks say, and whenever
// a crash came (C-147).
func description(r provider.Request, asked time.Time) string {
	return owned(r) + " asked=" + strconv.FormatInt(asked.Unix(), 10)
}

func owned(r provider.Request) string {
	return fmt.Sprintf("radial installation=%s project=%s service=%s purpose=identity", r.Installation, r.Subject.Project, r.Subject.Service)
}

// isOurs says whether a description is the subject's, and since when.
func isOurs(r provider.Request, text string) (time.Time, bool) {
	rest, ok := strings.CutPrefix(text, owned(r)+" asked=")
	n, err := strconv.ParseInt(rest, 10, 64)
	return time.Unix(n, 0), ok && err == nil
}

// identity reads the subject's service account; nil if there is none.
func (c *Cloud) identity(ctx context.Context, r provider.Request) (*iam.ServiceAccount, error) {
	sa, err := c.iam.Projects.ServiceAccounts.Get(c.resource(c.identityEmail(r))).Context(ctx).Do()
	switch {
	case code(err) == http.StatusNotFound:
		return nil, nil
	case err != nil:
		return nil, c.explain(err, iamAPI, "iam.serviceAccounts.get")
	}
	return sa, nil
}

func (c *Cloud) resource(email string) string {
	return "projects/" + c.account + "/serviceAccounts/" + email
}

// EnsureIdentity implements provider.Identities.
func (c *Cloud) EnsureIdentity(ctx context.Context, r provider.Request, ask v1alpha1.IdentityAsk) (v1alpha1.IdentityAnswer, provider.Thing, error) {
	var none v1alpha1.IdentityAnswer
	email := c.identityEmail(r)
	sa, err := c.identity(ctx, r)
	if err != nil {
		return none, provider.Thing{}, err
	}
	thing := provider.Thing{}
	if sa == nil {
		display := r.Subject.String()
		sa, err = c.iam.Projects.ServiceAccounts.Create("projects/"+c.account, &iam.CreateServiceAccountRequest{
			AccountId: identityID(r),
			ServiceAccount: &iam.ServiceAccount{
				DisplayName: display[:min(len(display), maxDisplay)], Description: description(r, r.CreatedAt),
			},
		}).Context(ctx).Do()
		switch {
		case code(err) == http.StatusConflict:
			// Made by a call whose answer was lost, or removed a moment ago.
			return none, thing, provider.Waiting("the identity is there already, but Google does not show it yet")
		case code(err) == http.StatusTooManyRequests && !passing(err):
			return none, thing, provider.Refused("the account has as many service accounts as Google allows it")
		case err != nil:
			return none, thing, c.explain(err, iamAPI, "iam.serviceAccounts.create")
		}
		thing.Made = true
	}
	asked, ok := isOurs(r, sa.Description)
	switch {
	case !ok:
		return none, thing, provider.Refused("service account %s is in the account but was not made for %s; a provider never adopts it", email, r.Subject)
	case sa.Disabled:
		return none, thing, provider.Refused("service account %s is disabled; enable it in the account", email)
	}
	thing.CreatedAt = asked
	// Nobody but the subject's workload may act as it.
	member := fmt.Sprintf("serviceAccount:%s[%s/%s]", c.pool, r.Namespace, ask.ServiceAccount)
	err = c.edit(func() ([]binding, func([]binding) error, error) {
		p, err := c.iam.Projects.ServiceAccounts.GetIamPolicy(c.resource(email)).OptionsRequestedPolicyVersion(policyVersion).Context(ctx).Do()
		if err != nil {
			return nil, nil, c.unspread(err, asked, "iam.serviceAccounts.getIamPolicy")
		}
		return bindings(p.Bindings), func(b []binding) error {
			p.Bindings, p.Version = native[*iam.Binding](b), policyVersion
			_, err := c.iam.Projects.ServiceAccounts.SetIamPolicy(c.resource(email), &iam.SetIamPolicyRequest{Policy: p}).Context(ctx).Do()
			if clash(err) {
				return err
			}
			return c.unspread(err, asked, "iam.serviceAccounts.setIamPolicy")
		}, nil
	}, func(b []binding) []binding {
		b = slices.DeleteFunc(b, func(b binding) bool { return b.Role == roleWorkload })
		return append(b, binding{Role: roleWorkload, Members: []string{member}})
	})
	if err != nil {
		return none, thing, err
	}
	return v1alpha1.IdentityAnswer{Identity: email, ServiceAccountAnnotations: map[string]string{annotationIdentity: email}}, thing, nil
}

// unspread explains an error about a service account that is there. Google
// answers 403, 404 or 400 about one that it has only just made.
func (c *Cloud) unspread(err error, asked time.Time, permission string) error {
	switch code(err) {
	case http.StatusNotFound, http.StatusBadRequest:
		return provider.Waiting("the identity is made; Google needs time until it is there for everybody")
	case http.StatusForbidden:
		if !passing(err) && !disabled(err) && c.options.Now().Sub(asked) < settlingAfter {
			return provider.Waiting("the identity is made; Google needs time until it is there for everybody, or permission %s is missing", permission)
		}
	}
	return c.explain(err, iamAPI, permission)
}

// OwnsIdentity implements provider.Identities.
func (c *Cloud) OwnsIdentity(ctx context.Context, r provider.Request, identity string) (bool, error) {
	if identity != c.identityEmail(r) {
		return false, nil
	}
	sa, err := c.identity(ctx, r)
	if err != nil || sa == nil {
		return false, err
	}
	_, ok := isOurs(r, sa.Description)
	return ok, nil
}
