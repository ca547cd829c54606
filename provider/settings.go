package provider

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/radial-project/radial/internal/cloud"
)

// EnvInstallation is the id of the installation, set in the provider's own
// Deployment: two installations that share an account must not take each
// other's things for their own (C-148).
const EnvInstallation = "RADIAL_PROVIDER_INSTALLATION"

// Settings are what a provider is told.
type Settings struct {
	// Provider is the name that requests name: the provider answers to it.
	Provider string
	// Account is the one account that everything is made in; Location where,
	// in the installation's own words; KMSKey its one key, or empty.
	Account, Location, KMSKey string
	// RotationGrace is how long a replaced credential goes on working.
	RotationGrace time.Duration
	// Installation is the id that things in the cloud are marked with.
	Installation string
}

var installationID = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// LoadSettings reads the six ANKKA_CLOUD_* variables and [EnvInstallation] by
// lookup, as os.LookupEnv does, for a provider that answers to name. The error
// names every variable that is wrong.
func LoadSettings(name string, lookup func(string) (string, bool)) (Settings, error) {
	c, err := cloud.LoadForProvider(lookup, name)
	s := Settings{Provider: c.Provider, Account: c.Account, Location: c.Location, KMSKey: c.KMSKey, RotationGrace: c.RotationGrace}
	id, ok := lookup(EnvInstallation)
	switch {
	case !ok || id == "":
		err = errors.Join(err, fmt.Errorf("%s: is not set; give the installation an id in the provider's Deployment, and never change it", EnvInstallation))
	case !installationID.MatchString(id):
		err = errors.Join(err, fmt.Errorf("%s: an id is 1 to 63 characters of a-z, 0-9 and hyphens, with no hyphen at either end", EnvInstallation))
	}
	s.Installation = id
	return s, err
}
