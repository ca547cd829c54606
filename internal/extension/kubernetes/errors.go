package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

func isNotServed(err error) bool { return errors.Is(err, extension.ErrNotServed) }

// fault turns what the API server, or the way to it, answered into an error
// that names the cluster, the object, what was asked of it and what to do. verb
// is of our words (apply, read, delete, watch), what names the object.
func (c *Cluster) fault(ctx context.Context, err error, verb, what string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s in cluster %q: %w", verb, what, c.name, context.Cause(ctx))
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return core.Errorf(core.CodeTarget, "cannot %s %s: cluster %q (%s) cannot be reached: %w: see that the address is right, that the cluster runs and that its certificate is of the authority in the kubeconfig", verb, what, c.name, c.host, err)
	}
	status := answer.Status()
	say := func(code core.Code, format string, args ...any) error {
		return core.Errorf(code, "cannot %s %s: cluster %q %s", verb, what, c.name, fmt.Sprintf(format, args...))
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return core.Errorf(core.CodeTarget, "cannot %s %s: cluster %q answered 401: %w: they have ended or were revoked, renew them", verb, what, c.name, extension.ErrCredentials)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return say(core.CodeConflict, "is deleting its namespace: wait until that is gone, or use another one")
	case apierrors.IsForbidden(err):
		return say(core.CodeForbidden, "forbids it: %s: grant that right there to who Radial signs in as", withoutValues(status.Message))
	case apierrors.IsConflict(err):
		return say(core.CodeConflict, "refused it: %s", conflicts(status))
	case missingNamespace(err) != "":
		name := missingNamespace(err)
		return say(core.CodeNotFound, "has no namespace %q: create it with: kubectl create namespace %s, or deploy it in the same template", name, name)
	case isNotFound(err):
		return core.Errorf(core.CodeNotFound, "%s does not exist in cluster %q", what, c.name)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return say(core.CodeInvalidTemplate, "refused it: %s", c.reasons(status, what))
	case strings.HasPrefix(status.Message, untyped):
		return say(core.CodeInvalidTemplate, "refused it: %s", withoutValues(status.Message))
	case apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err):
		return say(core.CodeTarget, "is not able to answer now: %s: try again", withoutValues(status.Message))
	}
	return say(core.CodeTarget, "answered %d: %s", status.Code, withoutValues(status.Message))
}

// missingNamespace is the name of the namespace that an answer misses, "" for
// any other answer.
func missingNamespace(err error) string {
	var answer apierrors.APIStatus
	if isNotFound(err) && errors.As(err, &answer) {
		if d := answer.Status().Details; d != nil && d.Kind == "namespaces" {
			return d.Name
		}
	}
	return ""
}

// conflicts names the fields and the managers that own them.
func conflicts(s metav1.Status) string {
	if parts := fieldConflicts(s); len(parts) > 0 {
		return strings.Join(parts, "; ") + ": take the field out of the template, or undo the other manager's change to it"
	}
	return withoutValues(s.Message)
}

func fieldConflicts(s metav1.Status) []string {
	if s.Details == nil {
		return nil
	}
	var parts []string
	for _, cause := range s.Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			parts = append(parts, fmt.Sprintf("field %s: %s", cause.Field, cause.Message))
		}
	}
	return parts
}

// isFieldConflict reports whether an answer names fields of other managers.
func isFieldConflict(err error) bool {
	var answer apierrors.APIStatus
	return apierrors.IsConflict(err) && errors.As(err, &answer) && len(fieldConflicts(answer.Status())) > 0
}

// isOtherUID reports whether an answer says that the object of that uid is not
// there (any more).
func isOtherUID(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	s := answer.Status()
	if apierrors.IsConflict(err) {
		return strings.Contains(strings.ToLower(s.Message), "uid")
	}
	if apierrors.IsInvalid(err) && s.Details != nil {
		for _, cause := range s.Details.Causes {
			if cause.Field == "metadata.uid" {
				return true
			}
		}
	}
	return false
}

// reasons says which fields are wrong and why, without their values.
func (c *Cluster) reasons(s metav1.Status, what string) string {
	if s.Details == nil || len(s.Details.Causes) == 0 {
		return withoutValues(s.Message)
	}
	var parts []string
	fixed := false
	for _, cause := range s.Details.Causes {
		parts = append(parts, strings.TrimSpace(cause.Field+": "+withoutValues(cause.Message)))
		fixed = fixed || isFixed(cause.Message)
	}
	text := strings.Join(parts, "; ")
	if fixed {
		text += fmt.Sprintf(". What cannot be changed is set when the object is made: leave it as it was, give the object another name, or delete %s and deploy again", what)
	}
	return text
}

// isFixed reports whether a reason is that a field cannot change.
func isFixed(reason string) bool {
	for _, words := range []string{"immutable", "may not change", "may not be changed", "updates to", "cannot be changed", "may not update", "cannot change"} {
		if strings.Contains(strings.ToLower(reason), words) {
			return true
		}
	}
	return false
}

// untyped starts the message of an object whose fields do not have the types
// of its schema; the API server answers it as an internal error.
const untyped = "failed to create typed patch object"

// The API server quotes the value that it refuses, and that may be a secret:
// after its reason (Invalid value: "x": must be …), or at the end (expected
// boolean, got &{x}).
//
// A value is a quoted text, or what Go or JSON makes of an object: it ends at a
// colon with a space that stands in no quotes.
var (
	quotedValue = regexp.MustCompile(`((?:Invalid|Unsupported|Duplicate) value|Too long): (?:` + quoted + `|[^":]|:[^ "]|:` + quoted + `)*`)
	gotValue    = regexp.MustCompile(`(?s), got .*`)
)

const quoted = `"(?:[^"\\]|\\.)*"`

func withoutValues(message string) string {
	return gotValue.ReplaceAllString(quotedValue.ReplaceAllString(message, "$1"), ", got another type")
}
