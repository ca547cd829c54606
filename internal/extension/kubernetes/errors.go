package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/core"
)

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

// fault turns what the API server, or the way to it, answered into an error
// that names the cluster, the object and what to do. what names the object.
func (c *Cluster) fault(ctx context.Context, err error, what string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s in cluster %q: %w", what, c.name, context.Cause(ctx))
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return core.Errorf(core.CodeTarget, "cluster %q (%s) cannot be reached for %s: %w", c.name, c.host, what, err)
	}
	details := status.Status().Details
	switch {
	case apierrors.IsUnauthorized(err):
		return core.Errorf(core.CodeTarget, "cluster %q refused our credentials for %s: renew them", c.name, what)
	case apierrors.IsForbidden(err):
		return core.Errorf(core.CodeForbidden, "%s: cluster %q forbids it: %s: grant the right to Radial's service account there", what, c.name, status.Status().Message)
	case apierrors.IsConflict(err):
		return core.Errorf(core.CodeConflict, "%s in cluster %q: %s", what, c.name, conflicts(status.Status()))
	case isNotFound(err) && details != nil && details.Kind == "namespaces":
		return core.Errorf(core.CodeNotFound, "%s: cluster %q has no namespace %q: create it with: kubectl create namespace %s", what, c.name, details.Name, details.Name)
	case isNotFound(err):
		return core.Errorf(core.CodeNotFound, "%s does not exist in cluster %q", what, c.name)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return core.Errorf(core.CodeInvalidTemplate, "%s: cluster %q refused it: %s", what, c.name, reasons(status.Status()))
	case strings.HasPrefix(status.Status().Message, untyped):
		return core.Errorf(core.CodeInvalidTemplate, "%s: cluster %q refused it: %s", what, c.name, withoutValues(status.Status().Message))
	case apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err):
		return core.Errorf(core.CodeTarget, "%s: cluster %q is not able to answer now: %s", what, c.name, withoutValues(status.Status().Message))
	}
	return core.Errorf(core.CodeTarget, "%s: cluster %q answered: %s", what, c.name, withoutValues(status.Status().Message))
}

// conflicts names the fields and the managers that own them.
func conflicts(s metav1.Status) string {
	if s.Details == nil {
		return s.Message
	}
	var parts []string
	for _, cause := range s.Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			parts = append(parts, fmt.Sprintf("field %s: %s", cause.Field, cause.Message))
		}
	}
	if len(parts) == 0 {
		return s.Message
	}
	return strings.Join(parts, "; ") + ": take the field out of the template, or undo the other manager's change to it"
}

// reasons says which fields are wrong and why, without their values.
func reasons(s metav1.Status) string {
	if s.Details == nil || len(s.Details.Causes) == 0 {
		return withoutValues(s.Message)
	}
	var parts []string
	for _, cause := range s.Details.Causes {
		parts = append(parts, strings.TrimSpace(cause.Field+": "+withoutValues(cause.Message)))
	}
	return strings.Join(parts, "; ")
}

// untyped starts the message of an object whose fields do not have the types
// of its schema; the API server answers it as an internal error.
const untyped = "failed to create typed patch object"

// The API server quotes the value that it refuses, and that may be a secret:
// after its reason (Invalid value: "x": must be …), or at the end (expected
// boolean, got &{x}).
var (
	quotedValue = regexp.MustCompile(`((?:Invalid|Unsupported|Duplicate) value|Too long): (?:"(?:[^"\\]|\\.)*"|[^:]*)`)
	gotValue    = regexp.MustCompile(`(?s), got .*`)
)

func withoutValues(message string) string {
	return gotValue.ReplaceAllString(quotedValue.ReplaceAllString(message, "$1"), ", got another type")
}
