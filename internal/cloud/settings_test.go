package cloud

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func full() map[string]string {
	return map[string]string{
		"ANKKA_CLOUD_PROVIDER": "gcp", "ANKKA_CLOUD_ACCOUNT": "acme-production", "ANKKA_CLOUD_LOCATION": "Europe-West2",
		"ANKKA_CLOUD_KMS_KEY": "", "ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND": "2m", "ANKKA_CLOUD_ROTATION_GRACE": "1h",
		"ANKKA_OBJECT_STORAGE": "cloud", "ANKKA_PROJECT_SECRETS": "cluster", "ANKKA_BACKUPS": "none", "ANKKA_KEYRING": "local",
		"ANKKA_OBJECT_STORAGE_NAME_PREFIX": "acme",
	}
}

func of(env map[string]string) Lookup {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func with(set ...string) map[string]string {
	env := full()
	for _, s := range set {
		k, v, ok := strings.Cut(s, "=")
		if ok {
			env[k] = v
		} else {
			delete(env, k)
		}
	}
	return env
}

func TestLoad_C14_C19_C20_C155(t *testing.T) {
	got, err := Load(of(full()))
	want := Settings{Provider: "gcp", Account: "acme-production", Location: "Europe-West2", AcknowledgementBound: 2 * time.Minute,
		RotationGrace: time.Hour, ObjectStorage: true, NamePrefix: "acme"}
	if err != nil || got != want {
		t.Errorf("C-14: %v\n%s", err, cmp.Diff(want, got))
	}
	all := with("ANKKA_CLOUD_KMS_KEY=ring/Key", "ANKKA_OBJECT_STORAGE=none", "ANKKA_PROJECT_SECRETS=cloud", "ANKKA_BACKUPS=cloud", "ANKKA_KEYRING=cloud")
	want.KMSKey, want.ObjectStorage, want.ProjectSecrets, want.Backups, want.Keyring = "ring/Key", false, true, true, true
	if got, err := Load(of(all)); err != nil || got != want {
		t.Errorf("C-155: %v\n%s", err, cmp.Diff(want, got))
	}
	// Which key of the ConfigMap is which variable, written out once more.
	want14 := map[string]string{
		"cloudProvider": "ANKKA_CLOUD_PROVIDER", "cloudAccount": "ANKKA_CLOUD_ACCOUNT", "cloudLocation": "ANKKA_CLOUD_LOCATION", "cloudKmsKey": "ANKKA_CLOUD_KMS_KEY",
		"cloudAcknowledgementBound": "ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND", "cloudRotationGrace": "ANKKA_CLOUD_ROTATION_GRACE",
	}
	keys := map[string]string{}
	for _, k := range CloudKeys() {
		keys[k.ConfigMap] = k.Variable
	}
	if !maps.Equal(keys, want14) {
		t.Errorf("C-13 C-14: %v", keys)
	}
	if len(ChoiceKeys()) != 5 {
		t.Errorf("C-155: %v", ChoiceKeys())
	}
}

func TestLoad_C17(t *testing.T) {
	for _, name := range []string{"gcp", "s3"} {
		if s, err := Load(of(with("ANKKA_CLOUD_PROVIDER=" + name))); err != nil || !s.HasProvider() {
			t.Errorf("C-17: %s: %v", name, err)
		}
	}
	s, err := Load(of(map[string]string{"ANKKA_CLOUD_PROVIDER": "none"}))
	if err != nil || s.HasProvider() || s != (Settings{Provider: "none"}) {
		t.Errorf("C-17: none: %+v, %v", s, err)
	}
	// The overlay of an installation without a provider sets all of them.
	s, err = Load(of(map[string]string{"ANKKA_CLOUD_PROVIDER": "none", "ANKKA_CLOUD_ACCOUNT": "", "ANKKA_CLOUD_LOCATION": "", "ANKKA_CLOUD_KMS_KEY": "",
		"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND": "2m", "ANKKA_CLOUD_ROTATION_GRACE": "1h",
		"ANKKA_OBJECT_STORAGE": "none", "ANKKA_PROJECT_SECRETS": "cluster", "ANKKA_BACKUPS": "none", "ANKKA_KEYRING": "local", "ANKKA_OBJECT_STORAGE_NAME_PREFIX": "ankka"}))
	if err != nil || s.HasProvider() || s.ObjectStorage || s.ProjectSecrets || s.Backups || s.Keyring {
		t.Errorf("C-17: none in full: %+v, %v", s, err)
	}
	if s, err := LoadForProvider(of(with("ANKKA_CLOUD_PROVIDER=scripted-b")), "scripted-b"); err != nil || s.Account != "acme-production" || s.ObjectStorage || s.NamePrefix != "" {
		t.Errorf("C-17: the scripted provider answers to its name: %+v, %v", s, err)
	}
	for _, c := range [][2]string{{"gcp", "s3"}, {"none", "none"}, {"none", "gcp"}, {"", "gcp"}} {
		if s, err := LoadForProvider(of(with("ANKKA_CLOUD_PROVIDER="+c[0])), c[1]); err == nil {
			t.Errorf("C-17: installation of %q takes provider %q: %+v", c[0], c[1], s)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		rule string
		env  map[string]string
		want []string
	}{
		{"C-23 C-24", with("ANKKA_CLOUD_PROVIDER=azure"), []string{"ANKKA_CLOUD_PROVIDER", `"azure"`, "none", "gcp", "s3"}},
		{"C-23", with("ANKKA_CLOUD_PROVIDER=GCP"), []string{"ANKKA_CLOUD_PROVIDER", "gcp"}},
		{"C-23", with("ANKKA_CLOUD_PROVIDER="), []string{"ANKKA_CLOUD_PROVIDER", "none"}},
		{"C-16", with("ANKKA_CLOUD_PROVIDER"), []string{"ANKKA_CLOUD_PROVIDER: is not set"}},
		{"C-25", with("ANKKA_CLOUD_ACCOUNT"), []string{"ANKKA_CLOUD_ACCOUNT"}},
		{"C-25", with("ANKKA_CLOUD_ACCOUNT="), []string{"ANKKA_CLOUD_ACCOUNT"}},
		{"C-25", with("ANKKA_CLOUD_ACCOUNT=  "), []string{"ANKKA_CLOUD_ACCOUNT"}},
		{"C-26", with("ANKKA_CLOUD_LOCATION"), []string{"ANKKA_CLOUD_LOCATION"}},
		{"C-26", with("ANKKA_CLOUD_LOCATION="), []string{"ANKKA_CLOUD_LOCATION"}},
		{"C-26", with("ANKKA_CLOUD_LOCATION=a\nb"), []string{"ANKKA_CLOUD_LOCATION"}},
		{"C-16 C-20", with("ANKKA_CLOUD_KMS_KEY"), []string{"ANKKA_CLOUD_KMS_KEY: is not set"}},
		{"C-21", with("ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND"), []string{"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND: is not set"}},
		{"C-22", with("ANKKA_CLOUD_ROTATION_GRACE"), []string{"ANKKA_CLOUD_ROTATION_GRACE: is not set"}},
		{"C-27", with("ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND=2 minutes"), []string{"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND", "2 minutes"}},
		{"C-27", with("ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND="), []string{"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND"}},
		{"C-27", with("ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND=0s"), []string{"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND"}},
		{"C-27", with("ANKKA_CLOUD_ROTATION_GRACE=60"), []string{"ANKKA_CLOUD_ROTATION_GRACE"}},
		{"C-27", with("ANKKA_CLOUD_ROTATION_GRACE=-1h"), []string{"ANKKA_CLOUD_ROTATION_GRACE"}},
		{"C-27", with("ANKKA_CLOUD_PROVIDER=none", "ANKKA_OBJECT_STORAGE=none", "ANKKA_CLOUD_ROTATION_GRACE=x"), []string{"ANKKA_CLOUD_ROTATION_GRACE"}},
		{"C-149", with("ANKKA_OBJECT_STORAGE_NAME_PREFIX=" + strings.Repeat("n", 51)), []string{"ANKKA_OBJECT_STORAGE_NAME_PREFIX", "50"}},
		{"C-149", with("ANKKA_OBJECT_STORAGE_NAME_PREFIX=-acme"), []string{"ANKKA_OBJECT_STORAGE_NAME_PREFIX", "hyphen"}},
		{"C-149", with("ANKKA_OBJECT_STORAGE_NAME_PREFIX=Acme"), []string{"ANKKA_OBJECT_STORAGE_NAME_PREFIX"}},
		{"C-149", with("ANKKA_OBJECT_STORAGE_NAME_PREFIX="), []string{"ANKKA_OBJECT_STORAGE_NAME_PREFIX"}},
		{"C-149", with("ANKKA_OBJECT_STORAGE_NAME_PREFIX=", "ANKKA_OBJECT_STORAGE=none", "ANKKA_BACKUPS=cloud"), []string{"ANKKA_OBJECT_STORAGE_NAME_PREFIX"}},
		{"C-149", with("ANKKA_OBJECT_STORAGE_NAME_PREFIX=A", "ANKKA_OBJECT_STORAGE=none"), []string{"ANKKA_OBJECT_STORAGE_NAME_PREFIX"}},
		{"C-155", with("ANKKA_OBJECT_STORAGE=gcs"), []string{"ANKKA_OBJECT_STORAGE", "none", "cloud"}},
		{"C-155", with("ANKKA_PROJECT_SECRETS=none"), []string{"ANKKA_PROJECT_SECRETS", "cluster", "cloud"}},
		{"C-155", with("ANKKA_BACKUPS=cluster"), []string{"ANKKA_BACKUPS", "none", "cloud"}},
		{"C-155", with("ANKKA_KEYRING="), []string{"ANKKA_KEYRING", "local", "cloud"}},
		{"C-155", with("ANKKA_KEYRING"), []string{"ANKKA_KEYRING: is not set"}},
		{"C-155", with("ANKKA_KEYRING=cloud"), []string{"ANKKA_KEYRING", "ANKKA_CLOUD_KMS_KEY names none"}},
		{"C-155", with("ANKKA_CLOUD_PROVIDER=none"), []string{"ANKKA_OBJECT_STORAGE: object storage in the cloud account needs a cloud provider"}},
		{"C-155", with("ANKKA_CLOUD_PROVIDER=none", "ANKKA_OBJECT_STORAGE=none", "ANKKA_PROJECT_SECRETS=cloud"), []string{"ANKKA_PROJECT_SECRETS"}},
		{"C-155", with("ANKKA_CLOUD_PROVIDER=none", "ANKKA_OBJECT_STORAGE=none", "ANKKA_BACKUPS=cloud"), []string{"ANKKA_BACKUPS"}},
		{"C-155", with("ANKKA_CLOUD_PROVIDER=none", "ANKKA_OBJECT_STORAGE=none", "ANKKA_KEYRING=cloud", "ANKKA_CLOUD_KMS_KEY=k"), []string{"ANKKA_KEYRING"}},
		{"everything at once", map[string]string{"ANKKA_CLOUD_PROVIDER": "gcp"}, []string{"ANKKA_CLOUD_ACCOUNT", "ANKKA_CLOUD_LOCATION", "ANKKA_CLOUD_KMS_KEY",
			"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND", "ANKKA_CLOUD_ROTATION_GRACE", "ANKKA_OBJECT_STORAGE:", "ANKKA_PROJECT_SECRETS", "ANKKA_BACKUPS", "ANKKA_KEYRING", "ANKKA_OBJECT_STORAGE_NAME_PREFIX"}},
	} {
		_, err := Load(of(c.env))
		if err == nil {
			t.Errorf("%s: %v is taken", c.rule, c.want)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", c.rule, err, w)
			}
		}
	}
}

// What is wrong with one variable is said of that one, whatever it holds.
func TestRefused_NamesTheVariable_C27(t *testing.T) {
	cloudKeys := CloudKeys()
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom(cloudKeys[4:]).Draw(t, "key")
		text := rapid.String().Draw(t, "value")
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			t.Skip()
		}
		_, err := Load(of(with(k.Variable + "=" + text)))
		if err == nil || !strings.HasPrefix(err.Error(), k.Variable+": ") || strings.Contains(err.Error(), "\n") {
			t.Fatalf("C-27: %q: %v", text, err)
		}
	})
}

func TestPresent(t *testing.T) {
	if Present(of(map[string]string{"ANKKA_OTHER": "x"})) {
		t.Error("nothing is set")
	}
	for _, k := range slices.Concat(CloudKeys(), ChoiceKeys()) {
		if !Present(of(map[string]string{k.Variable: ""})) {
			t.Errorf("%s is set", k.Variable)
		}
	}
}

func TestCheckVariable_C28(t *testing.T) {
	for k := range full() {
		if err := CheckVariable(k); err == nil || err.Error() != "env var '"+k+"' is set by the platform and cannot be declared" {
			t.Errorf("C-28: %s: %v", k, err)
		}
	}
	for _, k := range []string{"ANKKA_CLOUD", "ANKKA_S3_BUCKET", "MY_ANKKA_CLOUD_PROVIDER", "ankka_cloud_provider"} {
		if err := CheckVariable(k); err != nil {
			t.Errorf("C-28: %v", err)
		}
	}
	for name, ok := range map[string]bool{"stripe": true, "reports-cloud-storage": false, "x-storage": false, "stripe-cloud-secret": false} {
		if err := CheckSecretReference(name); (err == nil) != ok {
			t.Errorf("C-141: %s: %v", name, err)
		}
	}
}

// TestOneAccount_C30: a process has one account, read from one variable, and
// the installation's page says what a second one is.
func TestOneAccount_C30(t *testing.T) {
	accounts := 0
	for _, k := range append(CloudKeys(), ChoiceKeys()...) {
		if strings.Contains(strings.ToLower(k.ConfigMap+k.Variable), "account") {
			accounts++
		}
	}
	if accounts != 1 {
		t.Errorf("C-30: %d settings name an account", accounts)
	}
	page, err := os.ReadFile("../../docs/cloud/installation.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "is a second installation") {
		t.Error("C-30: docs/cloud/installation.md does not say what a second account is")
	}
}
