package connection

// This file is how a workload refers to the data of its connections: the same
// for a Deployment that the controller adopts and for one that the control plane
// renders (K-20).

// HashAnnotation stands on a pod template: the [Hash] of the connection data
// that the template refers to, so that new data is a new template (K-19).
const HashAnnotation = "radapp.io/connections-hash"

// maxWorkload leaves room for a hash within the length of a name.
const maxWorkload = 200

// SecretPrefix is what the names of a workload's connection Secrets start with.
func SecretPrefix(workload string) string {
	if len(workload) > maxWorkload {
		workload = workload[:maxWorkload]
	}
	return workload + "-connections-"
}

// SecretName is the name of the Secret with a workload's connection data: named
// by its content, it is never changed.
func SecretName(workload, hash string) string { return SecretPrefix(workload) + hash }

// Share parts the variables of a workload's connections for one container: those
// that it takes from the Secret, and those that its user has set, which win
// (K-17). Both keep the order of names.
func Share(names []string, users func(name string) bool) (taken, overridden []string) {
	for _, name := range names {
		if users(name) {
			overridden = append(overridden, name)
		} else {
			taken = append(taken, name)
		}
	}
	return taken, overridden
}
