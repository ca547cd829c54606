package gcp

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"

	"github.com/radial-project/radial/provider"
)

// The APIs as Google calls them, for words that a member reads.
const (
	storageAPI      = "Cloud Storage"
	iamAPI          = "Google's IAM"
	resourceManager = "Google's Resource Manager"
	secretManager   = "Secret Manager"
	kmsAPI          = "Cloud KMS"
)

// code is the HTTP status of Google's answer; 0 if it was none, and for nil.
func code(err error) int {
	var g *googleapi.Error
	if errors.As(err, &g) {
		return g.Code
	}
	return 0
}

// reasons are the machine-readable ones, of both forms that Google has.
func reasons(err error) []string {
	var g *googleapi.Error
	if !errors.As(err, &g) {
		return nil
	}
	var out []string
	for _, e := range g.Errors {
		out = append(out, e.Reason)
	}
	for _, d := range g.Details {
		if m, ok := d.(map[string]any); ok {
			if r, ok := m["reason"].(string); ok {
				out = append(out, r)
			}
		}
	}
	return out
}

func hasReason(err error, any ...string) bool {
	for _, r := range reasons(err) {
		for _, a := range any {
			if strings.EqualFold(r, a) {
				return true
			}
		}
	}
	return false
}

// passing is a refusal for now only.
func passing(err error) bool {
	return hasReason(err, "rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED", "backendError")
}

// disabled is that the API is not switched on in the project.
func disabled(err error) bool {
	return hasReason(err, "accessNotConfigured", "SERVICE_DISABLED")
}

// explain turns an error of an API into words for a member: Waiting for what
// passes, Refused for what somebody must change. permission is the one that the
// call needs. It is for what the caller does not know better.
func (c *Cloud) explain(err error, api, permission string) error {
	var token *tokenError
	var g *googleapi.Error
	switch {
	case err == nil || provider.PhaseOf(err) != "":
		return err
	case errors.As(err, &token):
		return provider.Waiting("the provider gets no token from Google's metadata server: %v", token.err)
	case !errors.As(err, &g):
		var u *url.Error
		var o *oauth2.RetrieveError
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return provider.Waiting("%s does not answer in time", api)
		case errors.As(err, &o):
			return provider.Waiting("the provider gets no token from Google")
		case errors.As(err, &u):
			return provider.Waiting("%s cannot be reached: %v", api, u.Err)
		}
		return err
	}
	switch {
	case g.Code == http.StatusUnauthorized:
		return provider.Waiting("%s does not take the provider's token", api)
	case disabled(err):
		return provider.Refused("%s is not enabled in account %s", api, c.account)
	case g.Code == http.StatusTooManyRequests || g.Code == http.StatusForbidden && passing(err):
		return provider.Waiting("%s limits how often it may be asked (%d)", api, g.Code)
	case g.Code == http.StatusForbidden:
		return provider.Refused("%s does not let the provider do it: permission %s is missing in account %s", api, permission, c.account)
	case g.Code == http.StatusRequestTimeout || g.Code >= 500:
		return provider.Waiting("%s does not answer as it should (%d)", api, g.Code)
	case g.Code == http.StatusConflict || g.Code == http.StatusPreconditionFailed && !hasReason(err, "orgPolicy"):
		return provider.Waiting("%s says that somebody else changes the same thing (%d)", api, g.Code)
	}
	return provider.Refused("%s refuses: %s", api, g.Message)
}
