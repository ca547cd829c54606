package gcp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const keyFile = `{"type": "service_account", "project_id": "acme", "private_key": "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n"}`

func TestKeyFilesAreRefused_C42(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key.json")
	if err := os.WriteFile(path, []byte(keyFile), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other.json")
	if err := os.WriteFile(other, []byte(`{"type": "something"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "home")
	if err := os.MkdirAll(filepath.Join(home, ".config", "gcloud"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, kv := range []string{"GOOGLE_APPLICATION_CREDENTIALS=/none", "GOOGLE_CREDENTIALS=x", "ANYTHING=" + keyFile, "ANYTHING=" + path, "GOOGLE_OAUTH_ACCESS_TOKEN=ya29.x"} {
		err := RefuseKeyFiles([]string{"PATH=/bin", kv}, home)
		name, _, _ := strings.Cut(kv, "=")
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := RefuseKeyFiles([]string{"PATH=/bin", "GOOGLE_APPLICATION_CREDENTIALS=", "ANYTHING=" + other, "ANKKA_CLOUD_PROVIDER=gcp"}, home); err != nil {
		t.Errorf("without a key: %v", err)
	}
	adc := filepath.Join(home, ".config", "gcloud", "application_default_credentials.json")
	if err := os.WriteFile(adc, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RefuseKeyFiles(nil, home); err == nil || !strings.Contains(err.Error(), adc) {
		t.Errorf("with application default credentials: %v", err)
	}
}
