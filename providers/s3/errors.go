package s3

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/radial-project/radial/provider"
)

// code is the store's code of an error; empty if the store did not answer one.
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

func status(err error) int {
	var r *smithyhttp.ResponseError
	if errors.As(err, &r) {
		return r.HTTPStatusCode()
	}
	return 0
}

func is(err error, codes ...string) bool { return err != nil && slices.Contains(codes, code(err)) }

// absent tells that a store does not have a part of the API. A store that says
// so of an API it has, since it is not set up for it, is meant too.
func absent(err error) bool {
	return err != nil && (status(err) == http.StatusNotImplemented || status(err) == http.StatusMethodNotAllowed ||
		is(err, "NotImplemented", "MethodNotAllowed", "VersioningNotConfigured", "UnsupportedOperation", "UnknownOperationException", "InvalidAction"))
}

func denied(err error) bool {
	return err != nil && (is(err, "AccessDenied", "AllAccessDisabled") || code(err) == "Forbidden" || status(err) == http.StatusForbidden && code(err) == "")
}

// lacks is the answer to a parameter that the store cannot honour.
func lacks(parameter, what string) error {
	return provider.Refused("this object store has no %s, which parameter %s asks for; ask without it, or have whoever runs the store set it up", what, parameter)
}

// fault is what an error of the store means to a member. action is the right
// that the call needs, by its name in policies.
func (c *Cloud) fault(action string, err error) error {
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var op *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return provider.Waiting("the object store at %s does not answer in time", c.address)
	case denied(err):
		return provider.Refused("the object store does not let the provider do %s; whoever runs it must grant that to the provider's own user", action)
	case is(err, "InvalidAccessKeyId", "InvalidClientTokenId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"):
		return provider.Refused("the object store does not take the provider's own key; whoever runs the installation must give the provider another")
	case is(err, "RequestTimeTooSkewed", "RequestExpired"):
		return provider.Waiting("the clocks of the object store and of the provider are too far apart")
	case is(err, "LimitExceeded", "AccessKeysLimitExceeded", "TooManyBuckets", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "NoSpaceLeftOnDevice", "InsufficientStorage"),
		status(err) == http.StatusInsufficientStorage:
		return provider.Refused("the object store is at a limit of its own (%s, at %s); whoever runs it must raise it or make room", c.clean(code(err)), action)
	case is(err, "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "RequestLimitExceeded", "ServiceUnavailable", "InternalError", "InternalFailure", "OperationAborted", "RequestTimeout"),
		status(err) == http.StatusTooManyRequests, status(err) >= 500 && status(err) != http.StatusNotImplemented:
		return provider.Waiting("the object store cannot do %s now (%s); it is asked again", action, c.what(err))
	case is(err, "InvalidBucketName"):
		return provider.Refused("the object store does not take the bucket's name; the installation's name prefix may be at fault")
	case absent(err):
		return provider.Refused("this object store does not know %s, which the provider needs", action)
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &invalid):
		return provider.Waiting("the certificate of the object store at %s is not one that the provider trusts (--ca-file)", c.address)
	case errors.As(err, &dns), errors.As(err, &op):
		return provider.Waiting("the object store at %s cannot be reached", c.address)
	case code(err) != "":
		return provider.Refused("the object store refuses %s: %s", action, c.what(err))
	}
	return errors.New(c.clean(fmt.Sprintf("%s: %v", action, err)))
}

// maxWords is how much of a store's own words is passed on, in bytes.
const maxWords = 300

// what is the store's own code and words.
func (c *Cloud) what(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return c.clean(api.ErrorCode() + ": " + api.ErrorMessage())
	}
	return http.StatusText(status(err))
}

// clean takes the provider's own key out of a text, and then bounds it: so no
// piece of a key is left at the end.
func (c *Cloud) clean(text string) string {
	text = c.own.conceal(text)
	if len(text) > maxWords {
		text = strings.ToValidUTF8(text[:maxWords], "") + "…"
	}
	return text
}
