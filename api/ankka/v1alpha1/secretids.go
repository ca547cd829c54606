package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Secrets in the account are named after whose they are. Project and service
// names hold no underscore, and those in other names are escaped: so no prefix
// of one subject is a prefix of another's, and a grant by prefix (secret-access)
// reaches one subject's secrets alone.

// maxSecretID is what clouds take.
const maxSecretID = 255

// ServiceSecretPrefix starts the id of each of a service's own secrets.
func ServiceSecretPrefix(project, service string) string {
	return "s_" + project + "_" + service + "_"
}

// ProjectSecretPrefix starts the id of each entry of a project's secrets.
func ProjectSecretPrefix(project string) string { return "p_" + project + "_" }

// ServiceSecretID is the id of a service's own secret.
func ServiceSecretID(project, service, name string) string {
	return bounded(ServiceSecretPrefix(project, service) + escapeID(name))
}

// ProjectSecretID is the id of one entry of a project's secret.
func ProjectSecretID(project, secret, entry string) string {
	return bounded(ProjectSecretPrefix(project) + escapeID(secret) + "__" + escapeID(entry))
}

var idEscapes = strings.NewReplacer("_", "_u", ".", "_p", "/", "_s")

func escapeID(name string) string { return idEscapes.Replace(name) }

// bounded keeps the start of an id that is too long, the subject's prefix with
// it, and tells ids of one start apart by a digest of the whole.
func bounded(id string) string {
	if len(id) <= maxSecretID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	end := "__" + hex.EncodeToString(sum[:])
	return id[:maxSecretID-len(end)] + end
}
