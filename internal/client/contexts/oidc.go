package contexts

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/radial-project/radial/internal/outgoing"
)

// signIn is a sign-in with an OIDC issuer: its tokens are kept in a file of
// their own, readable by their owner only.
type signIn struct {
	o    OIDC
	name string
	path string
	mu   sync.Mutex
}

type kept struct {
	IDToken      string `json:"idToken"`
	RefreshToken string `json:"refreshToken,omitempty"`
}

func (f *File) signInPath(name string) string {
	return filepath.Join(filepath.Dir(f.path), "sign-ins", name+".json")
}

func (f *File) signIn(c Context) *signIn {
	return &signIn{o: *c.OIDC, name: c.Name, path: f.signInPath(c.Name)}
}

// SignIn asks the person to sign in: show is given the address to open and the
// code to enter, and SignIn waits until that is done.
func (f *File) SignIn(ctx context.Context, c Context, show func(url, code string)) error {
	s := f.signIn(c)
	ctx, config, err := s.config(ctx)
	if err != nil {
		return err
	}
	if config.Endpoint.DeviceAuthURL == "" {
		return fmt.Errorf("the OIDC issuer %s offers no device authorization: let something else keep a token in a file, and use --token-file", s.o.Issuer)
	}
	device, err := config.DeviceAuth(ctx)
	if err != nil {
		return fmt.Errorf("the OIDC issuer %s did not begin the sign-in: %w", s.o.Issuer, plain(err))
	}
	url := device.VerificationURIComplete
	if url == "" {
		url = device.VerificationURI
	}
	show(url, device.UserCode)
	token, err := config.DeviceAccessToken(ctx, device)
	if err != nil {
		return fmt.Errorf("the sign-in with %s did not end well: %w", s.o.Issuer, plain(err))
	}
	return s.keep(token, "")
}

// plain keeps the code of an OAuth error and drops its body, which may hold
// anything.
func plain(err error) error {
	var r *oauth2.RetrieveError
	if errors.As(err, &r) && r.ErrorCode != "" {
		return errors.New(strings.TrimSpace(r.ErrorCode + " " + r.ErrorDescription))
	}
	if errors.As(err, &r) {
		return fmt.Errorf("the issuer answered %s", r.Response.Status)
	}
	return err
}

func (s *signIn) config(ctx context.Context) (context.Context, *oauth2.Config, error) {
	var ca []byte
	if s.o.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(s.o.CAFile); err != nil {
			return ctx, nil, fmt.Errorf("the authorities of the OIDC issuer cannot be read: %w", err)
		}
	}
	client, err := outgoing.Client(ca)
	if err != nil {
		return ctx, nil, err
	}
	ctx = context.WithValue(oidc.ClientContext(ctx, client), oauth2.HTTPClient, client)
	provider, err := oidc.NewProvider(ctx, s.o.Issuer)
	if err != nil {
		return ctx, nil, fmt.Errorf("the OIDC issuer %s cannot be asked: %w", s.o.Issuer, err)
	}
	scopes := s.o.Scopes
	if len(scopes) == 0 {
		scopes = []string{oidc.ScopeOpenID, "profile", "email", "groups", oidc.ScopeOfflineAccess}
	}
	return ctx, &oauth2.Config{ClientID: s.o.ClientID, Endpoint: provider.Endpoint(), Scopes: scopes}, nil
}

func (s *signIn) keep(token *oauth2.Token, refresh string) error {
	id, _ := token.Extra("id_token").(string)
	if id == "" {
		return fmt.Errorf("the OIDC issuer %s gave no id token: ask for the scope openid", s.o.Issuer)
	}
	if token.RefreshToken != "" {
		refresh = token.RefreshToken
	}
	raw, err := json.Marshal(kept{id, refresh})
	if err != nil {
		return err
	}
	return write(s.path, raw)
}

// token is the kept one, renewed when it is about to end.
func (s *signIn) token(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := fmt.Errorf("the sign-in of context %s is over: use radial login again", s.name)
	k, err := s.load()
	if err != nil {
		return "", again
	}
	if time.Until(expiry(k.IDToken)) > 30*time.Second {
		return k.IDToken, nil
	}
	if k.RefreshToken == "" {
		return "", again
	}
	ctx, config, err := s.config(ctx)
	if err != nil {
		return "", err
	}
	token, err := config.TokenSource(ctx, &oauth2.Token{RefreshToken: k.RefreshToken}).Token()
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.Response.StatusCode < http.StatusInternalServerError:
		return "", again
	case err != nil:
		return "", fmt.Errorf("the token of context %s cannot be renewed: %w", s.name, plain(err))
	}
	if err := s.keep(token, k.RefreshToken); err != nil {
		return "", err
	}
	k, err = s.load()
	return k.IDToken, err
}

func (s *signIn) load() (k kept, err error) {
	raw, err := os.ReadFile(s.path)
	if err != nil {
		return k, err
	}
	return k, json.Unmarshal(raw, &k)
}

// expiry is what the token says of itself; zero when it says nothing.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	var c struct {
		Expires float64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(raw, &c) != nil {
		return time.Time{}
	}
	return time.Unix(int64(c.Expires), 0)
}
