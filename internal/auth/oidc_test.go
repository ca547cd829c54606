package auth_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/radial-project/radial/internal/auth"
)

// issuer is an OIDC issuer: discovery, keys, and whatever tokens a test wants.
type issuer struct {
	*httptest.Server
	url  string
	key  *rsa.PrivateKey
	down atomic.Bool
	asks atomic.Int64
}

func newIssuer(t *testing.T, url string) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.asks.Add(1)
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys", "authorization_endpoint": i.url + "/a", "token_endpoint": i.url + "/t",
			"id_token_signing_alg_values_supported": []string{"RS256"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
	})
	i.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.down.Load() {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(i.Close)
	if i.url = url; url == "" {
		i.url = i.URL
	}
	return i
}

func (i *issuer) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}))
}

func (i *issuer) token(t *testing.T, key *rsa.PrivateKey, change map[string]any) string {
	t.Helper()
	claims := map[string]any{"iss": i.url, "aud": "radial-cli", "sub": "u-1", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix()}
	for k, v := range change {
		if claims[k] = v; v == nil {
			delete(claims, k)
		}
	}
	raw, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(raw)
	if err != nil {
		t.Fatal(err)
	}
	out, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func newAuthIssuer(t *testing.T, o auth.IssuerOptions) *auth.Issuer {
	t.Helper()
	i, err := auth.NewIssuer(o)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestOIDC_D46: tokens of a configured issuer, without any cluster; D-48: the
// issuer's certificate is by an authority of its own.
func TestOIDC_D46_D48(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	f := start(t, nil, auth.AuthenticatorOptions{Issuers: []*auth.Issuer{newAuthIssuer(t, auth.IssuerOptions{URL: i.url, Audience: "radial-cli", CA: i.ca()})}},
		auth.Principal{Kind: auth.KindGroup, Name: "oidc:admins"})
	root := f.bearer(i.token(t, i.key, map[string]any{"groups": []string{"staff", "admins"}}))
	root.want(200, "PUT", shop, `{}`)
	root.give(shop, "u1", "user:oidc:u-2", "Reader")
	root.give(shop, "staff", "group:oidc:staff", "Contributor")
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		key    *rsa.PrivateKey
		claims map[string]any
		method string
		status int
		says   []string
	}{
		"reader":           {i.key, map[string]any{"sub": "u-2"}, "GET", 200, nil},
		"reader writes":    {i.key, map[string]any{"sub": "u-2"}, "PUT", 403, []string{"user:oidc:u-2", "role Contributor"}},
		"by group":         {i.key, map[string]any{"groups": "staff"}, "PUT", 200, nil},
		"nobody":           {i.key, map[string]any{"sub": "u-3"}, "GET", 403, []string{"user:oidc:u-3"}},
		"expired":          {i.key, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}, "GET", 401, []string{"expired at", "radial login"}},
		"no expiry":        {i.key, map[string]any{"exp": nil}, "GET", 401, nil},
		"other audience":   {i.key, map[string]any{"aud": []string{"billing"}}, "GET", 401, []string{`audience "radial-cli"`}},
		"other key":        {other, nil, "GET", 401, []string{"not a valid one"}},
		"no user":          {i.key, map[string]any{"sub": nil}, "GET", 401, []string{`claim "sub"`}},
		"other issuer":     {i.key, map[string]any{"iss": "https://evil.example"}, "GET", 401, []string{"no issuer that this server knows"}},
		"not of our world": {i.key, map[string]any{"sub": "system:admin", "groups": []string{"system:masters"}}, "GET", 403, []string{"user:oidc:system:admin"}},
	}
	for name, tc := range tests {
		t.Run("D-46 "+name, func(t *testing.T) {
			body := ""
			if tc.method == "PUT" {
				body = `{}`
			}
			raw := i.token(t, tc.key, tc.claims)
			a := f.bearer(raw).want(tc.status, tc.method, shop, body, tc.says...)
			if strings.Contains(a.raw, raw[:40]) {
				t.Error("the answer quotes the token")
			}
		})
	}
}

func TestOIDCEmail_D46(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	f := start(t, nil, auth.AuthenticatorOptions{Issuers: []*auth.Issuer{newAuthIssuer(t, auth.IssuerOptions{
		URL: i.url, Audience: "radial-cli", CA: i.ca(), UsernameClaim: "email", GroupsClaim: "roles", Prefix: "corp:"})}},
		auth.Principal{Kind: auth.KindUser, Name: "corp:ann@example.com"})
	f.bearer(i.token(t, i.key, map[string]any{"email": "ann@example.com", "email_verified": true})).want(200, "PUT", shop, `{}`)
	f.bearer(i.token(t, i.key, map[string]any{"email": "ann@example.com"})).want(401, "PUT", shop, `{}`, "not verified")
}

// TestOIDCOutage_D46: what cannot be verified is not a refusal.
func TestOIDCOutage_D46(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	i.down.Store(true)
	now := &atomic.Int64{}
	clock := func() time.Time { return time.Now().Add(time.Duration(now.Load())) }
	f := start(t, nil, auth.AuthenticatorOptions{Issuers: []*auth.Issuer{newAuthIssuer(t, auth.IssuerOptions{URL: i.url, Audience: "radial-cli", CA: i.ca(), Now: clock})}},
		auth.Principal{Kind: auth.KindUser, Name: "oidc:u-1"})
	c := f.bearer(i.token(t, i.key, nil))
	c.want(503, "PUT", shop, `{}`, i.url, "try again")
	i.down.Store(false)
	c.want(503, "PUT", shop, `{}`) // a dead issuer is not asked by every request
	if i.asks.Load() != 0 {
		t.Errorf("the issuer was asked %d times in a moment", i.asks.Load())
	}
	now.Store(int64(6 * time.Second))
	c.want(200, "PUT", shop, `{}`)
}

// TestOIDCThroughProxy_D48: the way to the issuer leads through the proxy of the
// environment when it says so.
func TestOIDCThroughProxy_D48(t *testing.T) {
	i := newIssuer(t, "https://issuer.example.com")
	var tunnels atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != "issuer.example.com:443" {
			http.Error(w, "unexpected "+r.Method+" "+r.Host, http.StatusBadRequest)
			return
		}
		tunnels.Add(1)
		to, err := net.Dial("tcp", i.Listener.Addr().String())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		from, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
		_, _ = io.Copy(from, to)
		_ = from.Close()
	}))
	defer proxy.Close()
	t.Setenv("HTTPS_PROXY", proxy.URL)
	o := auth.IssuerOptions{URL: i.url, Audience: "radial-cli", CA: i.ca()}
	configured := newAuthIssuer(t, o)
	f := start(t, nil, auth.AuthenticatorOptions{Issuers: []*auth.Issuer{configured}}, auth.Principal{Kind: auth.KindUser, Name: "oidc:u-1"})
	f.bearer(i.token(t, i.key, nil)).want(200, "PUT", shop, `{}`)
	if tunnels.Load() == 0 {
		t.Error("D-48: the proxy was not used")
	}
}

func TestIssuerOptions_D46(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]auth.IssuerOptions{
		"plain":    {URL: "http://issuer.example", Audience: "a"},
		"no url":   {Audience: "a"},
		"audience": {URL: "https://issuer.example"},
		"prefix":   {URL: "https://issuer.example", Audience: "a", Prefix: "system:"},
		"ca":       {URL: "https://issuer.example", Audience: "a", CA: "no certificate"},
	} {
		if _, err := auth.NewIssuer(o); err == nil {
			t.Errorf("D-46 %s: accepted", name)
		}
	}
}
