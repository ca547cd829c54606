package core

import (
	"errors"
	"fmt"
)

// Code says of what kind an error is. Codes are those of the ARM wire; the
// HTTP status that goes with each is [Code.Status].
type Code string

// The codes that Radial answers with.
const (
	CodeBadRequest          Code = "BadRequest"
	CodeInvalidContent      Code = "InvalidRequestContent"
	CodeInvalidAPIVersion   Code = "InvalidApiVersionParameter"
	CodeInvalidResourceType Code = "InvalidResourceType"
	CodeInvalidPlaneType    Code = "InvalidPlaneType"
	CodeUnauthorized        Code = "InvalidAuthenticationInfo"
	CodeForbidden           Code = "AuthorizationFailed"
	CodeNotFound            Code = "NotFound"
	CodeMethodNotAllowed    Code = "MethodNotAllowed"
	CodeConflict            Code = "Conflict"
	CodeNameConflict        Code = "NameConflict"
	CodePrecondition        Code = "PreconditionFailed"
	CodeTooLarge            Code = "RequestEntityTooLarge"
	CodeMediaType           Code = "UnsupportedMediaType"
	CodeUnavailable         Code = "ServiceUnavailable"
	CodeInternal            Code = "Internal"
	CodeCanceled            Code = "OperationCanceled"
	CodeFenced              Code = "OperationFenced"

	CodeRecipeNotFound   Code = "RecipeNotFoundFailure"
	CodeRecipeDownload   Code = "RecipeDownloadFailed"
	CodeRecipeInvalid    Code = "RecipeValidationFailed"
	CodeRecipeDeployment Code = "RecipeDeploymentFailed"
	CodeRecipeDeletion   Code = "RecipeDeletionFailed"
	CodeRecipeOutputs    Code = "InvalidRecipeOutputs"
	CodeInvalidTemplate  Code = "InvalidTemplate"
	CodeTarget           Code = "TargetUnavailable"

	// CodeDeploymentActive: a deployment of the name runs already.
	// CodeInvalidDeployment: the template can be read, and cannot be deployed.
	CodeDeploymentActive  Code = "DeploymentActive"
	CodeInvalidDeployment Code = "InvalidTemplateDeployment"
	CodeInvalidLink       Code = "InvalidContentLink"

	// CodeWrongTarget, CodeScopeGone and CodeCredentialsNeeded are of scopes; the
	// extension package says what each means.
	CodeWrongTarget       Code = "TargetMismatch"
	CodeScopeGone         Code = "ScopeNotFound"
	CodeCredentialsNeeded Code = "CredentialsNeeded"
)

var statuses = map[Code]int{
	CodeBadRequest: 400, CodeInvalidContent: 400, CodeInvalidAPIVersion: 400, CodeInvalidResourceType: 400,
	CodeInvalidPlaneType: 400,
	CodeInvalidTemplate:  400, CodeRecipeNotFound: 400,
	CodeUnauthorized: 401, CodeForbidden: 403, CodeNotFound: 404, CodeMethodNotAllowed: 405,
	CodeConflict: 409, CodeNameConflict: 409, CodePrecondition: 412, CodeTooLarge: 413, CodeMediaType: 415,
	CodeUnavailable: 503, CodeCanceled: 409,
	CodeDeploymentActive: 409, CodeInvalidDeployment: 400, CodeInvalidLink: 400,
	CodeWrongTarget: 409, CodeScopeGone: 404, CodeCredentialsNeeded: 400,
}

// Status is the HTTP status that goes with the code, 500 where none is known.
func (c Code) Status() int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return 500
}

// Error is an error of the ARM wire: what happened, to what, and what to do
// next. It must never hold a sensitive value. Its JSON is the inner object of
// the error envelope.
type Error struct {
	Code    Code    `json:"code"`
	Message string  `json:"message"`
	Target  string  `json:"target,omitempty"`
	Details []Error `json:"details,omitempty"`
	// Info is additional information for programs, such as the owner of a
	// conflicting resource.
	Info []ErrorInfo `json:"additionalInfo,omitempty"`

	cause error
}

// ErrorInfo is one entry of an error's additionalInfo.
type ErrorInfo struct {
	Type string `json:"type"`
	Info any    `json:"info"`
}

// Errorf makes an Error. %w keeps its operand reachable for errors.Is and As.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), cause: errors.Unwrap(err)}
}

// WithTarget returns a copy of e that names what it is about.
func (e *Error) WithTarget(target string) *Error {
	c := *e
	c.Target = target
	return &c
}

// WithDetails returns a copy of e with the details added.
func (e *Error) WithDetails(details ...Error) *Error {
	c := *e
	c.Details = append(append([]Error(nil), e.Details...), details...)
	return &c
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, if any.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf returns the code of the first Error in err's tree, CodeInternal for
// any other error and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// AsError returns err as an Error; one that is none becomes Internal with its
// text.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		if e.Error() == err.Error() {
			return e
		}
		c := *e // wrapped on its way up: the outer text says more
		c.Message = err.Error()
		return &c
	}
	return &Error{Code: CodeInternal, Message: err.Error(), cause: err}
}

// IsCode reports whether err is an Error with the code.
func IsCode(err error, code Code) bool { return err != nil && CodeOf(err) == code }
