package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What an installation says of its cloud is read before anything else: what is
// wrong ends the process by its name, before it listens or makes its store.
func TestInstallation_C24_C25_C26(t *testing.T) {
	t.Parallel()
	right := map[string]string{
		"ANKKA_CLOUD_PROVIDER": "gcp", "ANKKA_CLOUD_ACCOUNT": "acme", "ANKKA_CLOUD_LOCATION": "eu", "ANKKA_CLOUD_KMS_KEY": "",
		"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND": "2m", "ANKKA_CLOUD_ROTATION_GRACE": "1h", "ANKKA_OBJECT_STORAGE": "cloud", "ANKKA_PROJECT_SECRETS": "cluster",
		"ANKKA_BACKUPS": "none", "ANKKA_KEYRING": "local", "ANKKA_OBJECT_STORAGE_NAME_PREFIX": "acme",
	}
	for name, c := range map[string]struct {
		set  map[string]string // "-" takes one away
		want []string
	}{
		"C-24 unknown provider":    {map[string]string{"ANKKA_CLOUD_PROVIDER": "azure"}, []string{"ANKKA_CLOUD_PROVIDER", `"azure"`, "none", "gcp", "s3"}},
		"C-25 no account":          {map[string]string{"ANKKA_CLOUD_ACCOUNT": "-"}, []string{"ANKKA_CLOUD_ACCOUNT"}},
		"C-25 empty account":       {map[string]string{"ANKKA_CLOUD_ACCOUNT": ""}, []string{"ANKKA_CLOUD_ACCOUNT"}},
		"C-26 no location":         {map[string]string{"ANKKA_CLOUD_LOCATION": "-"}, []string{"ANKKA_CLOUD_LOCATION"}},
		"C-26 empty location":      {map[string]string{"ANKKA_CLOUD_LOCATION": ""}, []string{"ANKKA_CLOUD_LOCATION"}},
		"C-27 malformed duration":  {map[string]string{"ANKKA_CLOUD_ROTATION_GRACE": "soon"}, []string{"ANKKA_CLOUD_ROTATION_GRACE", `"soon"`}},
		"C-16 no provider":         {map[string]string{"ANKKA_CLOUD_PROVIDER": "-"}, []string{"ANKKA_CLOUD_PROVIDER"}},
		"C-155 cloud without one":  {map[string]string{"ANKKA_CLOUD_PROVIDER": "none"}, []string{"ANKKA_OBJECT_STORAGE"}},
		"both are said":            {map[string]string{"ANKKA_CLOUD_ACCOUNT": "-", "ANKKA_CLOUD_LOCATION": "-"}, []string{"ANKKA_CLOUD_ACCOUNT", "ANKKA_CLOUD_LOCATION"}},
		"services need a cluster":  {nil, []string{"--kubeconfig"}},
		"and one that can be read": {nil, []string{"cannot be used"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var environment []string
			for k, v := range right {
				if other, ok := c.set[k]; ok {
					if v = other; v == "-" {
						continue
					}
				}
				environment = append(environment, k+"="+v)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			args := []string{"--developer-mode", "--listen", "127.0.0.1:0", "--store", filepath.Join(dir, "radial.db"), "--key-file", filepath.Join(dir, "key")}
			if c.want[0] == "cannot be used" {
				broken := filepath.Join(dir, "kubeconfig")
				if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--kubeconfig", broken)
			}
			out, err := program(ctx, environment, args...).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Fatalf("it ended as %v: %s", err, out)
			}
			for _, w := range c.want {
				if !strings.Contains(string(out), w) {
					t.Errorf("it does not say %q: %s", w, out)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "radial.db")); err == nil {
				t.Error("it made its store first")
			}
		})
	}
}

// Without any of the variables there are no services, and that is said.
func TestInstallation_Off(t *testing.T) {
	t.Parallel()
	p := launch(t, t.TempDir())
	for _, path := range []string{"/installation", "/organizations", "/projects/a", "/services/a/b"} {
		if r := p.must(404, "GET", path, ""); !strings.Contains(r.raw, "ANKKA_CLOUD_PROVIDER") {
			t.Errorf("%s: %s", path, r.raw)
		}
	}
	if r := p.must(404, "PUT", "/planes/radius/local/providers/Radial.Services/organizations/a?api-version=2026-10-01-preview",
		`{"properties":{"members":[{"principal":{"kind":"user","name":"x"},"role":"owner"}]}}`); !strings.Contains(r.raw, "ANKKA_CLOUD_PROVIDER") {
		t.Errorf("%s", r.raw)
	}
}
