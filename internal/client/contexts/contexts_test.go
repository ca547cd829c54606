package contexts

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
)

func TestFile_D46(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "deep", "contexts.yaml")
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	one := Context{Name: "one", Server: "https://radial.example.com", OIDC: &OIDC{Issuer: "https://sso.example.com", ClientID: "cli"}}
	two := Context{Name: "two", Server: "https://localhost:1", Account: &Account{Namespace: "n", Name: "a", Kubeconfig: Kubeconfig{Context: "k"}}}
	for _, c := range []Context{one, two, two} {
		if err := f.Put(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Use("two"); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v", info.Mode())
	}
	f, err = Load(path)
	if err != nil || len(f.Contexts) != 2 {
		t.Fatalf("%+v, %v", f, err)
	}
	if c, ok := f.Find(""); !ok || c.Name != "two" || c.Account.Context != "k" {
		t.Errorf("the current context is %+v", c)
	}
	if c, ok := f.ForServer("https://radial.example.com/"); !ok || c.Name != "one" {
		t.Errorf("by server: %+v", c)
	}
	if err := f.Use("three"); err == nil || !strings.Contains(err.Error(), "one, two") {
		t.Errorf("an unknown context: %v", err)
	}
	if err := f.Remove("two"); err != nil || f.CurrentContext != "" {
		t.Errorf("%v, current %q", err, f.CurrentContext)
	}
	for name, c := range map[string]Context{
		"name":    {Name: "../x", Server: "https://a"},
		"server":  {Name: "x", Server: "radial"},
		"plain":   {Name: "x", Server: "http://a", TokenFile: "t"},
		"two":     {Name: "x", Server: "https://a", TokenFile: "t", Kubeconfig: &Kubeconfig{}},
		"account": {Name: "x", Server: "https://a", Account: &Account{Name: "a"}},
		"oidc":    {Name: "x", Server: "https://a", OIDC: &OIDC{Issuer: "https://i"}},
	} {
		if f.Put(c) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := os.WriteFile(path, []byte("contexts: [{name: a, sever: x}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "radial login") {
		t.Errorf("a broken file: %v", err)
	}
}

// TestTokenIsNotSentInPlain_D46: wherever a redirect or a mistake leads.
func TestTokenIsNotSentInPlain_D46(t *testing.T) {
	t.Parallel()
	asked := false
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer plain.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: FileTransport("", token)}).Get(plain.URL)
	if err == nil {
		_ = resp.Body.Close()
	}
	if err == nil || asked {
		t.Errorf("D-46: the token went out in plain: %v", err)
	}
}

// issuer is an OIDC issuer with device authorization.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu       sync.Mutex
	approved bool
	refresh  string // the refresh token that is good
	life     time.Duration
	given    int
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key, life: time.Hour}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "token_endpoint": i.URL + "/token", "authorization_endpoint": i.URL + "/a",
			"device_authorization_endpoint": i.URL + "/device"})
	})
	mux.HandleFunc("POST /device", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"device_code": "d", "user_code": "WORD-1", "verification_uri": i.URL + "/open", "interval": 1, "expires_in": 60})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		_ = r.ParseForm()
		ok := r.Form.Get("grant_type") == "refresh_token" && r.Form.Get("refresh_token") == i.refresh && i.refresh != ""
		if r.Form.Get("device_code") == "d" {
			if ok = i.approved; !ok {
				answer(w, 400, map[string]string{"error": "authorization_pending"})
				return
			}
		}
		if !ok {
			answer(w, 400, map[string]string{"error": "invalid_grant"})
			return
		}
		i.given++
		i.refresh = fmt.Sprintf("refresh-%d", i.given)
		answer(w, 200, map[string]any{"access_token": "a", "token_type": "Bearer", "refresh_token": i.refresh, "id_token": i.token(t), "expires_in": 60})
	})
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) token(t *testing.T) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: i.key}, nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	raw, _ := json.Marshal(map[string]any{"sub": "u", "n": i.given, "exp": time.Now().Add(i.life).Unix()})
	signed, err := signer.Sign(raw)
	if err != nil {
		t.Error(err)
		return ""
	}
	out, _ := signed.CompactSerialize()
	return out
}

// TestSignIn_D46: a person signs in with a browser; the token is renewed without
// them, and when it no longer can be they are told what to do.
func TestSignIn_D46(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("Authorization") }))
	server.StartTLS()
	defer server.Close()
	f, err := Load(filepath.Join(dir, "contexts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c := Context{Name: "c", Server: server.URL, CAFile: ca, OIDC: &OIDC{Issuer: i.URL, ClientID: "cli", CAFile: ca}}
	i.life = 10 * time.Second // about to end at once
	err = f.SignIn(t.Context(), c, func(url, code string) {
		if url != i.URL+"/open" || code != "WORD-1" {
			t.Errorf("shown: %s %s", url, code)
		}
		i.mu.Lock()
		i.approved = true
		i.mu.Unlock()
	})
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(f.signInPath("c")); info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the sign-in is %v", info.Mode())
	}
	i.mu.Lock()
	i.life = time.Hour
	i.mu.Unlock()
	tr, err := f.Transport(c)
	if err != nil {
		t.Fatal(err)
	}
	get := func() error {
		resp, err := (&http.Client{Transport: tr}).Get(server.URL)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	for range 2 {
		if err := get(); err != nil {
			t.Fatal(err)
		}
	}
	first, second := <-seen, <-seen
	if first != second || !strings.HasPrefix(first, "Bearer ey") || i.given != 2 {
		t.Errorf("D-46: %d tokens were given, sent %q", i.given, first)
	}
	// The next one is about to end, and the issuer no longer knows the sign-in.
	i.mu.Lock()
	i.life = time.Second
	i.mu.Unlock()
	s := f.signIn(c)
	if err := write(s.path, []byte(`{"idToken":"x.y.z","refreshToken":"stolen"}`)); err != nil {
		t.Fatal(err)
	}
	if err := get(); err == nil || !strings.Contains(err.Error(), "use radial login again") || strings.Contains(err.Error(), "stolen") {
		t.Errorf("D-46: a sign-in that is over: %v", err)
	}
}

// TestAuthoritiesAreFollowed_D46: a server whose authority was rotated is
// reached by a process that lives on.
func TestAuthoritiesAreFollowed_D46(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	other := newIssuerCA(t)
	if err := os.WriteFile(ca, other, 0o600); err != nil {
		t.Fatal(err)
	}
	tr := FileTransport(ca, "").(*transport)
	get := func() error {
		resp, err := (&http.Client{Transport: tr}).Get(server.URL)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	if get() == nil {
		t.Fatal("a server of another authority is trusted")
	}
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	tr.mu.Lock()
	tr.seen = tr.seen.Add(-reread) // the time in which a file is believed is over
	tr.mu.Unlock()
	if err := get(); err != nil {
		t.Errorf("D-46: %v", err)
	}
}

// newIssuerCA is a certificate of nobody here.
func newIssuerCA(t *testing.T) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "other.crt"))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
