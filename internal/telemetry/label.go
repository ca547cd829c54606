package telemetry

import (
	"net/http"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// namespaces are those of the types that come with Radial.
var namespaces = []string{
	"Applications.Core", "Applications.Dapr", "Applications.Datastores", "Applications.Messaging",
	"Radius.AI", "Radius.Compute", "Radius.Core", "Radius.Data", "Radius.Messaging", "Radius.Security", "Radius.Storage",
	"Microsoft.Resources", "Radial.Services", "System.Authorization", "System.Resources",
}

// Class is the namespace of a resource, for those that come with Radial, and
// "Custom" for all others: operators may register any number of them.
func Class(id core.ID) string {
	if id.Provider == "" {
		return "Scope"
	}
	for _, n := range namespaces {
		if strings.EqualFold(n, id.Provider) {
			return n
		}
	}
	return "Custom"
}

// Verb is an operation's verb as a label.
func Verb(v core.Verb) string {
	switch v {
	case core.VerbPut, core.VerbPatch, core.VerbDelete:
		return string(v)
	}
	return "OTHER"
}

// Method is an HTTP method as a label.
func Method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodPost, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "OTHER"
}

// labelled are the codes of errors that a label may have. Others (a recipe's, a
// provider's) are "Other".
var labelled = []core.Code{
	core.CodeBadRequest, core.CodeInvalidContent, core.CodeInvalidAPIVersion, core.CodeInvalidResourceType, core.CodeUnauthorized,
	core.CodeForbidden, core.CodeNotFound, core.CodeConflict, core.CodeNameConflict, core.CodePrecondition, core.CodeUnavailable,
	core.CodeInternal, core.CodeCanceled, core.CodeFenced, core.CodeRecipeNotFound, core.CodeRecipeDownload, core.CodeRecipeInvalid,
	core.CodeRecipeDeployment, core.CodeRecipeDeletion, core.CodeRecipeOutputs, core.CodeInvalidTemplate, core.CodeTarget, "Changed",
}

// Outcome is how a call ended, as a label: "Succeeded" or the code of its error.
func Outcome(err error) string {
	if err == nil {
		return "Succeeded"
	}
	if code := core.CodeOf(err); slices.Contains(labelled, code) {
		return string(code)
	}
	return "Other"
}

// state is a terminal state as a label.
func state(s core.State) string {
	switch s {
	case core.StateSucceeded, core.StateFailed, core.StateCanceled:
		return string(s)
	}
	return "Other"
}

// RecipeKind is a kind of recipe as a label.
func RecipeKind(kind string) string {
	switch k := strings.ToLower(kind); k {
	case "bicep", "template", "terraform", "opentofu", "image":
		return k
	}
	return "other"
}
