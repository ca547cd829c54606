package s3

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/radial-project/radial/provider"
)

const canary = "Canary9of8the7own6key5in4the3file"

func keyFileOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const wholeKey = "# the provider's own\n[default]\naws_access_key_id = AKIDOFTHEPROVIDER\naws_secret_access_key = " + canary + "\n"

// A configuration that is wrong stops the provider and names the flag; nothing
// of the key is in the words.
func TestConfig_C153(t *testing.T) {
	whole := Config{Endpoint: "https://s3.example", Region: "cellar-1", CredentialsFile: keyFileOf(t, wholeKey)}
	if _, err := New(whole); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		change func(*Config)
		words  string
	}{
		"no endpoint":            {func(c *Config) { c.Endpoint = "" }, "--endpoint: is not set"},
		"an endpoint with path":  {func(c *Config) { c.Endpoint = "https://s3.example/data" }, "--endpoint"},
		"an endpoint with a key": {func(c *Config) { c.IAMEndpoint = "https://user:" + canary + "@iam.example" }, "--iam-endpoint"},
		"in the clear":           {func(c *Config) { c.Endpoint = "http://s3.example" }, "in the clear"},
		"no region":              {func(c *Config) { c.Region = "" }, "--region"},
		"no key":                 {func(c *Config) { c.CredentialsFile = "" }, "--credentials-file"},
		"a key that is missing":  {func(c *Config) { c.CredentialsFile = filepath.Join(t.TempDir(), "none") }, "--credentials-file"},
		"half a key":             {func(c *Config) { c.CredentialsFile = keyFileOf(t, "aws_secret_access_key = "+canary) }, "aws_access_key_id"},
		"another file":           {func(c *Config) { c.CredentialsFile = keyFileOf(t, canary+"\n") }, "line 1"},
		"no authorities":         {func(c *Config) { c.CAFile = keyFileOf(t, canary) }, "--ca-file"},
	} {
		t.Run(name, func(t *testing.T) {
			c := whole
			x.change(&c)
			_, err := New(c)
			if err == nil || !strings.Contains(err.Error(), x.words) {
				t.Errorf("%v does not say %q", err, x.words)
			}
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("the key stands in %v", err)
			}
		})
	}
	for _, ok := range []Config{{Endpoint: "http://127.0.0.1:9000"}, {Endpoint: "http://s3.example", AllowHTTP: true}} {
		ok.Region, ok.CredentialsFile = whole.Region, whole.CredentialsFile
		if _, err := New(ok); err != nil {
			t.Error(err)
		}
	}
}

// A key that is replaced is used at once, without a restart.
func TestKeyReplaced(t *testing.T) {
	k := &keyFile{path: keyFileOf(t, wholeKey)}
	a, err := k.Retrieve(t.Context())
	if err != nil || a.SecretAccessKey != canary {
		t.Fatal(err)
	}
	if err := os.WriteFile(k.path, []byte(strings.Replace(wholeKey, canary, "another", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := k.Retrieve(t.Context()); err != nil || b.SecretAccessKey != "another" {
		t.Errorf("%v", err)
	}
}

// A key in the environment is refused, with the settings whole and the way to
// the cluster there.
func TestKeyInEnvironment(t *testing.T) {
	kubeconfig := keyFileOf(t, "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n")
	vars := map[string]string{"ANKKA_CLOUD_PROVIDER": Name, "ANKKA_CLOUD_ACCOUNT": "cellar", "ANKKA_CLOUD_LOCATION": "Rack 4", "ANKKA_CLOUD_KMS_KEY": "", "ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND": "2m",
		"ANKKA_CLOUD_ROTATION_GRACE": "1h", provider.EnvInstallation: "one", "RADIAL_PROVIDER_ENDPOINT": "https://s3.example", "RADIAL_PROVIDER_REGION": "cellar-1",
		"RADIAL_PROVIDER_CREDENTIALS_FILE": keyFileOf(t, wholeKey)}
	for _, v := range keyVariables {
		var out, errs bytes.Buffer
		code := Main(context.Background(), []string{"--kubeconfig", kubeconfig}, func(n string) (string, bool) {
			if n == v {
				return canary, true
			}
			value, ok := vars[n]
			return value, ok
		}, &out, &errs)
		if code == 0 || !strings.Contains(errs.String(), v) || strings.Contains(out.String()+errs.String(), canary) {
			t.Errorf("%s: exit %d, %s", v, code, errs.String())
		}
	}
}
