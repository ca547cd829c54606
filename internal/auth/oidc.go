package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/outgoing"
)

// IssuerOptions describe an OIDC issuer. A member cluster is one too: its
// ServiceAccounts' tokens are OIDC tokens, which is how its controller is known
// to a central server (K-36).
type IssuerOptions struct {
	// URL is the issuer's, as its tokens have it in iss.
	URL string `json:"issuer"`
	// Audience that tokens must have: the client's id.
	Audience string `json:"audience"`
	// UsernameClaim is sub unless set. With email, email_verified must be true.
	UsernameClaim string `json:"usernameClaim,omitempty"`
	// GroupsClaim is groups unless set: a text or a list of texts.
	GroupsClaim string `json:"groupsClaim,omitempty"`
	// Prefix stands before every name and group, so that an issuer cannot make
	// users of the cluster or of another issuer; "oidc:" unless set.
	Prefix string `json:"prefix,omitempty"`
	// CA is a PEM bundle of authorities for the issuer's own certificate; empty
	// are the system's (D-48).
	CA string `json:"ca,omitempty"`
	// Algorithms that signatures may have; empty are those that the issuer says.
	Algorithms []string `json:"algorithms,omitempty"`

	Log *slog.Logger     `json:"-"`
	Now func() time.Time `json:"-"`
}

// Issuer verifies the tokens of one OIDC issuer. What it needs of the issuer is
// fetched when the first token comes, so that a server starts without it.
type Issuer struct {
	o      IssuerOptions
	client *http.Client

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier
	// failed and retry keep a dead issuer from being asked by every request.
	failed error
	retry  time.Time
}

// issuerRetry is how long after a failure the issuer is asked again.
const issuerRetry = 5 * time.Second

// NewIssuer checks the options.
func NewIssuer(o IssuerOptions) (*Issuer, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the OIDC issuer is %q: it must be an https URL", o.URL)
	}
	if o.Audience == "" {
		return nil, fmt.Errorf("the OIDC issuer %s has no audience: name the one that its tokens for Radial have", o.URL)
	}
	if o.Prefix == "" {
		o.Prefix = "oidc:"
	}
	if strings.HasPrefix(o.Prefix, "system:") {
		return nil, fmt.Errorf("the prefix of OIDC issuer %s is %q: names of the cluster's system are not an issuer's to give", o.URL, o.Prefix)
	}
	if o.UsernameClaim == "" {
		o.UsernameClaim = "sub"
	}
	if o.GroupsClaim == "" {
		o.GroupsClaim = "groups"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	client, err := outgoing.Client([]byte(o.CA))
	if err != nil {
		return nil, fmt.Errorf("OIDC issuer %s: %w", o.URL, err)
	}
	return &Issuer{o: o, client: client}, nil
}

func (i *Issuer) ready() (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.verifier != nil {
		return i.verifier, nil
	}
	if i.failed != nil && i.o.Now().Before(i.retry) {
		return nil, i.failed
	}
	// Not the request's context: the keys are fetched with it again later.
	provider, err := oidc.NewProvider(oidc.ClientContext(context.Background(), i.client), i.o.URL)
	if err != nil {
		i.o.Log.Error("an OIDC issuer cannot be asked", "issuer", i.o.URL, "error", err.Error())
		i.failed, i.retry = err, i.o.Now().Add(issuerRetry)
		return nil, err
	}
	i.verifier, i.failed = provider.Verifier(&oidc.Config{ClientID: i.o.Audience, SupportedSigningAlgs: i.o.Algorithms, Now: i.o.Now}), nil
	return i.verifier, nil
}

func (i *Issuer) verify(ctx context.Context, raw string) (Identity, error) {
	v, err := i.ready()
	if err != nil {
		return Identity{}, core.Errorf(core.CodeUnavailable, "the OIDC issuer %s does not answer, so its tokens cannot be verified: try again", i.o.URL)
	}
	token, err := v.Verify(ctx, raw)
	var expired *oidc.TokenExpiredError
	switch {
	case errors.As(err, &expired):
		return Identity{}, refuse("the bearer token expired at %s: get a new one (radial login)", expired.Expiry.UTC().Format(time.RFC3339))
	case err != nil && strings.Contains(err.Error(), "fetching keys"):
		i.o.Log.Error("the keys of an OIDC issuer cannot be fetched", "issuer", i.o.URL, "error", err.Error())
		return Identity{}, core.Errorf(core.CodeUnavailable, "the keys of the OIDC issuer %s cannot be fetched, so its tokens cannot be verified: try again", i.o.URL)
	case err != nil && strings.Contains(err.Error(), "audience"):
		return Identity{}, refuse("the bearer token of %s is not for audience %q, which this server asks for", i.o.URL, i.o.Audience)
	case err != nil:
		// The text may quote the token: it goes nowhere.
		return Identity{}, refuse("the bearer token is not a valid one of %s: get a new one (radial login)", i.o.URL)
	}
	var c map[string]any
	if err := token.Claims(&c); err != nil {
		return Identity{}, refuse("the claims of the bearer token cannot be read")
	}
	name, _ := c[i.o.UsernameClaim].(string)
	if name == "" {
		return Identity{}, refuse("the bearer token has no claim %q, which names its user here", i.o.UsernameClaim)
	}
	if i.o.UsernameClaim == "email" {
		if ok, _ := c["email_verified"].(bool); !ok {
			return Identity{}, refuse("the address in the bearer token is not verified by %s (email_verified)", i.o.URL)
		}
	}
	who := Identity{Name: i.o.Prefix + name, UID: token.Subject, Method: MethodOIDC}
	switch groups := c[i.o.GroupsClaim].(type) {
	case string:
		who.Groups = []string{i.o.Prefix + groups}
	case []any:
		for _, g := range groups {
			if s, ok := g.(string); ok && s != "" {
				who.Groups = append(who.Groups, i.o.Prefix+s)
			}
		}
	}
	who.Groups = append(who.Groups, "system:authenticated")
	return who, nil
}
