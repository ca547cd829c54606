// Package cloud reads what an installation says of its cloud: the six
// ANKKA_CLOUD_* variables and, for operator and control plane, what is kept
// there. Nothing has a default: the installation says each in one place, and
// a process that is not told something stops and names it (C-16, C-21, C-22).
package cloud

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// The six variables of the cloud. A provider gets these and no others.
const (
	EnvProvider             = "ANKKA_CLOUD_PROVIDER"
	EnvAccount              = "ANKKA_CLOUD_ACCOUNT"
	EnvLocation             = "ANKKA_CLOUD_LOCATION"
	EnvKMSKey               = "ANKKA_CLOUD_KMS_KEY"
	EnvAcknowledgementBound = "ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND"
	EnvRotationGrace        = "ANKKA_CLOUD_ROTATION_GRACE"
)

// What is kept in the cloud, for operator and control plane alone (C-155).
const (
	EnvObjectStorage           = "ANKKA_OBJECT_STORAGE"
	EnvProjectSecrets          = "ANKKA_PROJECT_SECRETS"
	EnvBackups                 = "ANKKA_BACKUPS"
	EnvKeyring                 = "ANKKA_KEYRING"
	EnvObjectStorageNamePrefix = "ANKKA_OBJECT_STORAGE_NAME_PREFIX"
)

// None is the provider of an installation without one.
const None = "none"

// providers are the names that the platform knows. A provider for another cloud
// is its name here and nothing else (C-8).
var providers = []string{"gcp", "s3"}

// A Key is one setting: its key in ConfigMap ankka-platform and the variable
// that the overlay copies it to.
type Key struct{ ConfigMap, Variable string }

// CloudKeys are the six of the cloud, in order.
func CloudKeys() []Key {
	return []Key{
		{"cloudProvider", EnvProvider},
		{"cloudAccount", EnvAccount},
		{"cloudLocation", EnvLocation},
		{"cloudKmsKey", EnvKMSKey},
		{"cloudAcknowledgementBound", EnvAcknowledgementBound},
		{"cloudRotationGrace", EnvRotationGrace},
	}
}

// ChoiceKeys are the five that only operator and control plane get.
func ChoiceKeys() []Key {
	return []Key{
		{"objectStorage", EnvObjectStorage},
		{"projectSecrets", EnvProjectSecrets},
		{"backups", EnvBackups},
		{"keyring", EnvKeyring},
		{"objectStorageNamePrefix", EnvObjectStorageNamePrefix},
	}
}

// Where something is kept.
const (
	inCloud   = "cloud"
	inCluster = "cluster"
	atLocal   = "local"
)

// choices are the values that each choice may have; the first is what there is
// without a provider.
var choices = []struct {
	variable, what string
	values         []string
}{
	{EnvObjectStorage, "object storage in the cloud account", []string{None, inCloud}},
	{EnvProjectSecrets, "keeping project secrets in the cloud account", []string{inCluster, inCloud}},
	{EnvBackups, "keeping backups in the cloud account", []string{None, inCloud}},
	{EnvKeyring, "wrapping the keyring in the cloud account", []string{atLocal, inCloud}},
}

// Settings are an installation's. The zero value is one without a provider.
type Settings struct {
	// Provider is None (or empty), or a provider's name.
	Provider string
	// Account is the one account that everything is made in.
	Account string
	// Location is in the installation's words; only the provider reads it.
	Location string
	// KMSKey is the name of the one key, or empty.
	KMSKey string
	// AcknowledgementBound is how long a request may go unanswered before that
	// is said; RotationGrace how long a replaced credential goes on working.
	AcknowledgementBound, RotationGrace time.Duration

	// What is kept in the cloud.
	ObjectStorage, ProjectSecrets, Backups, Keyring bool
	// NamePrefix starts the names of buckets.
	NamePrefix string
}

// HasProvider says whether there is one. Where there is none, nothing asks a
// cloud for anything (C-11).
func (s Settings) HasProvider() bool { return s.Provider != "" && s.Provider != None }

// Lookup reads a variable, as os.LookupEnv does.
type Lookup func(name string) (value string, ok bool)

// Present says whether any of the variables is set: a control plane that none
// is set for is not one of an installation of this kind.
func Present(lookup Lookup) bool {
	return slices.ContainsFunc(slices.Concat(CloudKeys(), ChoiceKeys()), func(k Key) bool { _, ok := lookup(k.Variable); return ok })
}

// Load reads the settings of operator or control plane. The error names every
// variable that is wrong, and stops the process.
func Load(lookup Lookup) (Settings, error) {
	r := reader{lookup: lookup}
	s := r.cloud(func(name string) error {
		if name != None && !slices.Contains(providers, name) {
			return fmt.Errorf("%s is not a cloud provider that the platform knows; it knows %s and %s", quoted(name), None, strings.Join(providers, ", "))
		}
		return nil
	})
	r.choices(&s)
	return s, r.err()
}

// LoadForProvider reads the six settings of a provider process that answers to
// name. An installation that names another provider, or none, is an error: the
// process is not the one that it asks.
func LoadForProvider(lookup Lookup, name string) (Settings, error) {
	r := reader{lookup: lookup}
	s := r.cloud(func(named string) error {
		if named != name || name == None {
			return fmt.Errorf("the installation names %s, and this provider answers to %s", quoted(named), quoted(name))
		}
		return nil
	})
	return s, r.err()
}

type reader struct {
	lookup   Lookup
	problems []error
}

func (r *reader) fault(variable, format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf("%s: %w", variable, fmt.Errorf(format, args...)))
}

func (r *reader) err() error { return errors.Join(r.problems...) }

// value reads a variable as it stands. What a ConfigMap's block text easily
// adds, white space around it, would be part of a name: it is refused, as is
// what cannot be printed.
func (r *reader) value(variable string, needed bool) (string, bool) {
	v, ok := r.lookup(variable)
	switch {
	case !ok:
		if needed {
			r.fault(variable, "is not set; the installation's overlay copies it from ConfigMap %s", v1alpha1.SettingsConfigMap)
		}
	case strings.TrimSpace(v) != v || strings.ContainsFunc(v, func(c rune) bool { return !unicode.IsPrint(c) }):
		r.fault(variable, "has white space around it or characters that cannot be printed")
		return "", false
	}
	return v, ok
}

// cloud reads the six. known judges the provider's name.
func (r *reader) cloud(known func(string) error) Settings {
	var s Settings
	provider, ok := r.value(EnvProvider, true)
	s.Provider = provider
	named := ok && provider != None
	if ok {
		if provider == "" {
			r.fault(EnvProvider, "is empty; name %s or a provider (%s)", None, strings.Join(providers, ", "))
			named = false
		} else if err := known(provider); err != nil {
			r.fault(EnvProvider, "%w", err)
		}
	}
	s.Account = r.name(EnvAccount, named, provider)
	s.Location = r.name(EnvLocation, named, provider)
	s.KMSKey, _ = r.value(EnvKMSKey, named)
	s.AcknowledgementBound = r.duration(EnvAcknowledgementBound, named)
	s.RotationGrace = r.duration(EnvRotationGrace, named)
	return s
}

// name reads what a named provider cannot do without.
func (r *reader) name(variable string, needed bool, provider string) string {
	before := len(r.problems)
	v, _ := r.value(variable, false)
	if needed && v == "" && len(r.problems) == before {
		r.fault(variable, "is not set, and the installation names cloud provider %s", quoted(provider))
	}
	return v
}

func (r *reader) duration(variable string, needed bool) time.Duration {
	text, ok := r.value(variable, needed)
	if !ok || text == "" && !needed {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		r.fault(variable, "%s is not a duration above zero, such as 2m or 1h", quoted(text))
	}
	return d
}

func (r *reader) choices(s *Settings) {
	into := map[string]*bool{EnvObjectStorage: &s.ObjectStorage, EnvProjectSecrets: &s.ProjectSecrets, EnvBackups: &s.Backups, EnvKeyring: &s.Keyring}
	for _, c := range choices {
		v, ok := r.value(c.variable, s.HasProvider())
		switch {
		case !ok || v == "" && !s.HasProvider():
		case !slices.Contains(c.values, v):
			r.fault(c.variable, "%s is neither %s", quoted(v), strings.Join(c.values, " nor "))
		case v == inCloud && !s.HasProvider():
			r.fault(c.variable, "%s needs a cloud provider, and the installation has none (%s)", c.what, EnvProvider)
		default:
			*into[c.variable] = v == inCloud
		}
	}
	if s.Keyring && s.KMSKey == "" {
		r.fault(EnvKeyring, "wrapping the keyring in the cloud account needs a key, and %s names none", EnvKMSKey)
	}
	prefix, ok := r.value(EnvObjectStorageNamePrefix, s.HasProvider())
	s.NamePrefix = prefix
	if ok && (prefix != "" || s.ObjectStorage || s.Backups) {
		if err := v1alpha1.ValidateNamePrefix(prefix); err != nil {
			r.fault(EnvObjectStorageNamePrefix, "%w", err)
		}
	}
}

func quoted(s string) string {
	const limit = 80
	if r := []rune(s); len(r) > limit {
		s = string(r[:limit]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
