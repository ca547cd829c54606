package cloud

import (
	"fmt"
	"slices"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// Reserved says that a variable is the platform's: the six of the cloud and the
// five that say what is kept there (C-28).
func Reserved(variable string) bool {
	return slices.ContainsFunc(slices.Concat(CloudKeys(), ChoiceKeys()), func(k Key) bool { return k.Variable == variable })
}

// CheckVariable refuses a variable that a service's descriptor may not set,
// whether by value or by reference to a Secret.
func CheckVariable(name string) error {
	if Reserved(name) {
		return fmt.Errorf("env var '%s' is set by the platform and cannot be declared", name)
	}
	return nil
}

// CheckSecretReference refuses the name of a Secret that a descriptor may not
// refer to, and no project secret may have (C-141).
func CheckSecretReference(name string) error {
	if v1alpha1.ReservedSecret(name) {
		return fmt.Errorf("secret '%s' is the platform's: names that end in %s or %s are", name, v1alpha1.ReservedSecretEnding, v1alpha1.SyncedSecretEnding)
	}
	return nil
}
