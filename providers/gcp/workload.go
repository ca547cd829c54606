package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
)

// tokenEarly is how long before its end a token is replaced: the metadata
// server keeps one until shortly before.
const tokenEarly = 225 * time.Second

// scope is all of Google Cloud's: what the provider may do is its roles' to say.
const scope = "https://www.googleapis.com/auth/cloud-platform"

// workload is the identity that the Pod has by its ServiceAccount.
type workload struct {
	client *metadata.Client
	// email is Google's service account, project the cluster's.
	email, project string
}

// nodeAccount is the account that machines run under unless told otherwise.
var nodeAccount = regexp.MustCompile(`^[0-9]+-compute@developer\.gserviceaccount\.com$`)

// workloadIdentity asks the metadata server who this process is, and refuses to
// be the machine that it runs on.
func workloadIdentity(ctx context.Context) (*workload, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	w := &workload{client: metadata.NewClient(&http.Client{Timeout: 10 * time.Second})}
	var err, err2 error
	w.email, err = w.client.GetWithContext(ctx, "instance/service-accounts/default/email")
	w.project, err2 = w.client.GetWithContext(ctx, "project/project-id")
	w.email, w.project = strings.TrimSpace(w.email), strings.TrimSpace(w.project)
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("ask the metadata server whom this process runs as (the provider runs under Workload Identity alone, docs/cloud/gcp.md): %w", err)
	}
	switch {
	case nodeAccount.MatchString(w.email):
		return nil, fmt.Errorf("this process runs as the machine, %s: enable Workload Identity in the cluster, and bind ServiceAccount ankka-cloud-provider to the provider's service account by its annotation (docs/cloud/gcp.md)", w.email)
	case !strings.Contains(w.email, "@"):
		return nil, fmt.Errorf("ServiceAccount ankka-cloud-provider is bound to no service account of Google's (the metadata server answers %q): annotate it (docs/cloud/gcp.md)", w.email)
	}
	return w, nil
}

// tokenError tells a lack of tokens from a lack of anything else.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return "get a token from the metadata server: " + e.err.Error() }
func (e *tokenError) Unwrap() error { return e.err }

// Token implements oauth2.TokenSource.
func (w *workload) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	text, err := w.client.GetWithContext(ctx, "instance/service-accounts/default/token?scopes="+scope)
	if err != nil {
		var status *metadata.Error
		if errors.As(err, &status) {
			// Its text is not for everybody.
			err = fmt.Errorf("it answers %d", status.Code)
		}
		return nil, &tokenError{err}
	}
	var t struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
		TokenType   string `json:"token_type"`
	}
	if err := json.Unmarshal([]byte(text), &t); err != nil || t.AccessToken == "" || t.ExpiresIn <= 0 {
		return nil, &tokenError{errors.New("it answers no token")}
	}
	return &oauth2.Token{AccessToken: t.AccessToken, TokenType: t.TokenType, Expiry: time.Now().Add(time.Duration(t.ExpiresIn) * time.Second)}, nil
}

// keyVariables are those by which Google's libraries and tools are given
// credentials other than the workload's own.
var keyVariables = []string{
	"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CREDENTIALS", "GOOGLE_CLOUD_KEYFILE_JSON", "GCLOUD_KEYFILE_JSON",
	"CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", "CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN",
}

// keyFileLimit is more than any key file has.
const keyFileLimit = 64 << 10

// RefuseKeyFiles is an error if this process was given a key of a service
// account, whether it would use it or not (C-42): a key is for good and can be
// copied, what Workload Identity gives is neither. environ is os.Environ's, home
// the home directory.
func RefuseKeyFiles(environ []string, home string) error {
	const why = "the provider runs under Workload Identity alone and is given no key; remove it"
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		for _, k := range keyVariables {
			if name == k && value != "" {
				return fmt.Errorf("%s is set: %s", name, why)
			}
		}
		if isKey([]byte(value)) {
			return fmt.Errorf("variable %s holds a key of a service account: %s", name, why)
		}
		if strings.HasPrefix(value, "/") && isKeyFile(value) {
			return fmt.Errorf("variable %s names a key file of a service account: %s", name, why)
		}
	}
	if home != "" {
		if path := filepath.Join(home, ".config", "gcloud", "application_default_credentials.json"); exists(path) {
			return fmt.Errorf("%s is there: %s", path, why)
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func isKeyFile(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > keyFileLimit {
		return false
	}
	raw, err := os.ReadFile(path)
	return err == nil && isKey(raw)
}

func isKey(raw []byte) bool {
	var k struct {
		Type       string `json:"type"`
		PrivateKey string `json:"private_key"`
	}
	return json.Unmarshal(raw, &k) == nil && (k.Type == "service_account" || k.Type == "authorized_user" || k.PrivateKey != "")
}
