package auth

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	webhooktoken "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/internal/core"
)

// DefaultAudience is what tokens for the control plane are bound to.
const DefaultAudience = "radial"

// DefaultTokenTTL is how long the review of a token is believed: how long a
// deleted ServiceAccount may still get in, and what spares the cluster a review
// a request.
const DefaultTokenTTL = 10 * time.Second

// reviewTimeout bounds one review by the cluster.
const reviewTimeout = 10 * time.Second

// VerifyOptions returns the present authorities of client certificates; false
// means that there are none.
type VerifyOptions = x509request.VerifyOptionFunc

// Proxy says whose headers are believed.
type Proxy struct {
	Verify VerifyOptions
	// AllowedNames are the common names that the proxy's certificate may have;
	// empty allows every certificate of the authority.
	AllowedNames func() []string
	// UsernameHeaders and so on name the headers that carry the caller.
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraPrefixes func() []string
}

// CertificateAuthority verifies client certificates.
type CertificateAuthority struct {
	Verify VerifyOptions
	// Cluster says that it is the cluster's own authority, which alone may speak
	// of users and groups of the system.
	Cluster bool
}

// AuthenticatorOptions say whom to believe. At least one source is needed.
type AuthenticatorOptions struct {
	// Cluster reviews bearer tokens; nil: none are.
	Cluster kubernetes.Interface
	// Audiences of which a reviewed token must have one; empty is DefaultAudience.
	Audiences []string
	// TokenTTL is how long a review is believed; 0 is DefaultTokenTTL.
	TokenTTL time.Duration
	// Issuers sign tokens that nobody needs to review.
	Issuers []*Issuer
	Proxies []Proxy
	// Authorities of client certificates.
	Authorities []CertificateAuthority
	Log         *slog.Logger
	Now         func() time.Time
}

// Authenticator finds out who sent a request. It is safe for concurrent use.
type Authenticator struct {
	o       AuthenticatorOptions
	review  authenticator.Token
	proxies []authenticator.Request
	certs   []certificates
}

type certificates struct {
	authenticator.Request
	cluster bool
}

// NewAuthenticator returns an authenticator.
func NewAuthenticator(o AuthenticatorOptions) (*Authenticator, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if len(o.Audiences) == 0 {
		o.Audiences = []string{DefaultAudience}
	}
	if o.TokenTTL == 0 {
		o.TokenTTL = DefaultTokenTTL
	}
	if o.Cluster == nil && len(o.Issuers) == 0 && len(o.Proxies) == 0 && len(o.Authorities) == 0 {
		return nil, errors.New("nobody could authenticate: give a cluster that reviews tokens (--kubeconfig), an OIDC issuer, or an authority of client certificates")
	}
	a := &Authenticator{o: o}
	if o.Cluster != nil {
		// One try and one more: the caller waits, and knows how to try again.
		backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 2}
		webhook, err := webhooktoken.NewFromInterface(o.Cluster.AuthenticationV1(), nil, backoff, reviewTimeout, webhooktoken.AuthenticatorMetrics{
			RecordRequestTotal:   func(context.Context, string) {},
			RecordRequestLatency: func(context.Context, string, float64) {},
		})
		if err != nil {
			return nil, err
		}
		a.review = cache.New(refusals{webhook}, false, o.TokenTTL, o.TokenTTL)
	}
	for _, p := range o.Proxies {
		a.proxies = append(a.proxies, headerrequest.NewDynamicVerifyOptionsSecure(p.Verify, values(p.AllowedNames),
			values(p.UsernameHeaders), values(p.UIDHeaders), values(p.GroupHeaders), values(p.ExtraPrefixes)))
	}
	for _, c := range o.Authorities {
		a.certs = append(a.certs, certificates{x509request.NewDynamic(c.Verify, x509request.CommonNameUserConversion), c.Cluster})
	}
	return a, nil
}

func values(f func() []string) headerrequest.StringSliceProvider {
	if f == nil {
		f = func() []string { return nil }
	}
	return headerrequest.StringSliceProviderFunc(f)
}

// refusals turns the errors by which the cluster refuses a token into plain
// refusals, which are cached as such; errors of the way there stay errors.
type refusals struct{ authenticator.Token }

func (t refusals) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	resp, ok, err := t.Token.AuthenticateToken(ctx, token)
	if err != nil && !unreachable(err) {
		return nil, false, nil
	}
	return resp, ok, err
}

// unreachable tells an outage or a missing grant from what a review says of a
// token: the latter is plain text.
func unreachable(err error) bool {
	var status apierrors.APIStatus
	var timeout interface{ Timeout() bool }
	return errors.As(err, &status) || errors.As(err, &timeout) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Authenticate returns who sent the request: InvalidAuthenticationInfo when
// nobody proved to have, with what to do; ServiceUnavailable when that cannot be
// found out now.
func (a *Authenticator) Authenticate(r *http.Request) (Identity, error) {
	presented := false // a certificate that nobody verified
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		for _, p := range a.proxies {
			if resp, ok, err := p.AuthenticateRequest(r); err == nil && ok {
				return identityOf(resp.User, MethodFrontProxy), nil
			}
		}
		for _, c := range a.certs {
			resp, ok, err := c.AuthenticateRequest(r)
			if err != nil || !ok {
				presented = true
				continue
			}
			who := identityOf(resp.User, MethodCertificate)
			if !c.cluster && who.ofSystem() {
				return Identity{}, refuse("the client certificate names a user or group of the cluster's system, and only the cluster's own authority may")
			}
			return who, nil
		}
	}
	token, ok := bearer(r)
	switch {
	case ok:
		return a.token(r.Context(), token)
	case presented:
		return Identity{}, refuse("the client certificate is not accepted: it is expired, not for clients, or not signed by an authority that this server knows")
	default:
		return Identity{}, refuse("the request says not who sends it: send a bearer token (radial login), or a client certificate")
	}
}

func refuse(format string, args ...any) error {
	return core.Errorf(core.CodeUnauthorized, format, args...)
}

// ofSystem reports whether the identity claims to be part of the cluster.
func (i Identity) ofSystem() bool {
	return strings.HasPrefix(i.Name, "system:") || slices.ContainsFunc(i.Groups, func(g string) bool { return strings.HasPrefix(g, "system:") })
}

func bearer(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

func (a *Authenticator) token(ctx context.Context, token string) (Identity, error) {
	claims := peek(token)
	for _, issuer := range a.o.Issuers {
		if claims.Issuer == issuer.o.URL {
			// Only its issuer is asked about it: a token is shown to nobody else.
			return issuer.verify(ctx, token)
		}
	}
	if a.review == nil {
		return Identity{}, refuse("the bearer token is of no issuer that this server knows: it knows %s", a.issuers())
	}
	resp, ok, err := a.review.AuthenticateToken(authenticator.WithAudiences(ctx, authenticator.Audiences(a.o.Audiences)), token)
	switch {
	case err != nil && ctx.Err() != nil:
		return Identity{}, core.Errorf(core.CodeUnavailable, "the request ended before its token was reviewed")
	case err != nil:
		a.o.Log.Error("the cluster did not review a token", "error", err.Error())
		return Identity{}, core.Errorf(core.CodeUnavailable, "the cluster that reviews tokens does not answer: try again; the server's log says more")
	case !ok:
		return Identity{}, a.whyNot(claims)
	}
	return identityOf(resp.User, MethodToken), nil
}

func (a *Authenticator) issuers() string {
	var names []string
	for _, i := range a.o.Issuers {
		names = append(names, i.o.URL)
	}
	if len(names) == 0 {
		return "client certificates only"
	}
	return strings.Join(names, ", ")
}

// whyNot says what is wrong with a refused token as far as the token itself
// tells: it is the caller's own, so nothing is given away.
func (a *Authenticator) whyNot(c claims) error {
	switch {
	case c.Expires != 0 && !a.o.Now().Before(time.Unix(int64(c.Expires), 0)):
		return refuse("the bearer token expired at %s: get a new one (radial login)", time.Unix(int64(c.Expires), 0).UTC().Format(time.RFC3339))
	case len(c.Audience) > 0 && !slices.ContainsFunc(a.o.Audiences, func(want string) bool { return slices.Contains(c.Audience, want) }):
		return refuse("the bearer token is for %q, this server asks for audience %s: get one for it, such as by kubectl create token <account> --audience %s",
			[]string(c.Audience), strings.Join(a.o.Audiences, " or "), a.o.Audiences[0])
	default:
		return refuse("the bearer token is not accepted: the cluster does not know its issuer, its signature or its account (which may be deleted); get a new one (radial login)")
	}
}

// claims are what a token says of itself, unverified: good to choose who
// verifies it and to explain a refusal, for nothing else.
type claims struct {
	Issuer   string   `json:"iss"`
	Audience audience `json:"aud"`
	Expires  float64  `json:"exp"`
}

type audience []string

func (a *audience) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*a = audience{one}
		return nil
	}
	var many []string
	err := json.Unmarshal(b, &many)
	*a = many
	return err
}

func peek(token string) (c claims) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(raw, &c) != nil {
		return claims{}
	}
	return c
}

// StaticAuthorities returns the VerifyOptions of a PEM bundle.
func StaticAuthorities(bundle []byte) (VerifyOptions, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("the bundle of authorities holds no certificate in PEM")
	}
	return func() (x509.VerifyOptions, bool) {
		o := x509request.DefaultVerifyOptions()
		o.Roots = pool
		return o, true
	}, nil
}

// fixed is a list that does not change.
func fixed(list ...string) func() []string { return func() []string { return list } }
