package v1alpha1

import (
	"fmt"
	"regexp"
	"strings"
)

// Names that the platform gives, one place for both sides.
const (
	// NamespacePrefix starts the namespace of a project.
	NamespacePrefix = "ankka-"
	// PlatformNamespace holds the platform, and ProviderNamespace a cloud
	// provider; no project can be named so that it owns either.
	PlatformNamespace = "ankka-platform"
	ProviderNamespace = "ankka-cloud-provider"
	// ProviderAccount and OperatorAccount are the ServiceAccounts there.
	ProviderAccount = "ankka-cloud-provider"
	OperatorAccount = "ankka-operator"
	// SettingsConfigMap holds the installation's settings in PlatformNamespace;
	// ProviderConfigMap the six of the cloud in ProviderNamespace.
	SettingsConfigMap = "ankka-platform"
	ProviderConfigMap = "ankka-cloud"
	// FieldManagerOperator applies requests and what runs;
	// FieldManagerControlPlane applies services and projects.
	FieldManagerOperator     = "ankka-operator"
	FieldManagerControlPlane = "ankka-control-plane"
)

// Labels that tell whose an object is.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelName      = "app.kubernetes.io/name"
	LabelProject   = Group + "/project"
	LabelService   = Group + "/service"
	// ManagedBy is LabelManagedBy's value.
	ManagedBy = "ankka"
)

// AnnotationCredentialGeneration stands on pod templates with the storage
// credential generation in place, so that instances are replaced when another
// credential is (C-127).
const AnnotationCredentialGeneration = Group + "/storage-credential-generation"

// AnnotationCredentialID stands on a Secret with the id (never the value) of
// the credential that it holds. A provider writes it with the credential and
// can test it by a conditional patch, without reading anything (C-144).
const AnnotationCredentialID = Group + "/credential-id"

// Entries of a Secret that holds a storage credential; the same names are the
// variables of a service's instances, with the next three.
const (
	EntryAccessKey   = "ANKKA_S3_ACCESS_KEY"
	EntrySecretKey   = "ANKKA_S3_SECRET_KEY"
	VariableEndpoint = "ANKKA_S3_ENDPOINT"
	VariableRegion   = "ANKKA_S3_REGION"
	VariableBucket   = "ANKKA_S3_BUCKET"
)

// Suffixes of requests (C-55, C-56).
const (
	SuffixIdentity          = "identity"
	SuffixSecretAccess      = "secret-access"
	SuffixBucket            = "bucket"
	SuffixStorageCredential = "storage-credential"
	// SuffixSecretSync is followed by a dot and the secret's name.
	SuffixSecretSync       = "secret-sync"
	SuffixBackupBucket     = "backup-bucket"
	SuffixBackupCredential = "backup-credential"
	SuffixWrappingKey      = "wrapping-key"
)

// ServiceSuffixes are those of a service's requests. None ends in a hyphen and
// another one, so that no two services have a request of one name.
func ServiceSuffixes() []string {
	return []string{SuffixIdentity, SuffixSecretAccess, SuffixBucket, SuffixStorageCredential}
}

// Namespace of a project.
func Namespace(project string) string { return NamespacePrefix + project }

// ServiceRequestName is <service>-<suffix>.
func ServiceRequestName(service, suffix string) string { return service + "-" + suffix }

// ProjectRequestName is <project>.<suffix>. It can be no service's request's
// name: a service's name has no dot.
func ProjectRequestName(project, suffix string) string { return project + "." + suffix }

// SecretSyncName is the name of the request that keeps a project's secret in
// step.
func SecretSyncName(project, secret string) string {
	return ProjectRequestName(project, SuffixSecretSync+"."+secret)
}

// RequestName is the one name that a request of kind may have for a subject.
// secret is the project secret's name, for secret-sync alone. A kind that the
// subject cannot ask for, and an unknown one, is an error.
func RequestName(s Subject, kind, secret string) (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	if s.Service != "" {
		suffix := map[string]string{
			KindIdentity: SuffixIdentity, KindSecretAccess: SuffixSecretAccess,
			KindBucket: SuffixBucket, KindBucketCredential: SuffixStorageCredential,
		}[kind]
		if suffix == "" {
			return "", fmt.Errorf("a service has no request of kind %s", printable(kind))
		}
		return ServiceRequestName(s.Service, suffix), nil
	}
	switch kind {
	case KindIdentity:
		return ProjectRequestName(s.Project, SuffixIdentity), nil
	case KindSecretSync:
		if err := ValidateName("secret", secret); err != nil {
			return "", err
		}
		return SecretSyncName(s.Project, secret), nil
	case KindBucket:
		return ProjectRequestName(s.Project, SuffixBackupBucket), nil
	case KindBucketCredential:
		return ProjectRequestName(s.Project, SuffixBackupCredential), nil
	case KindWrappingKey:
		return ProjectRequestName(s.Project, SuffixWrappingKey), nil
	}
	return "", fmt.Errorf("a project has no request of kind %s", printable(kind))
}

// SyncedSecret is the project secret that a request of kind secret-sync is for,
// by the request's name.
func SyncedSecret(project, requestName string) (secret string, ok bool) {
	secret, ok = strings.CutPrefix(requestName, SecretSyncName(project, ""))
	return secret, ok && ValidateName("secret", secret) == nil
}

// Endings of Secrets that providers write. The admission policy of
// installation/ankka holds providers to them (C-145).
const (
	// StorageSecretEnding ends the name of a Secret with a storage credential.
	StorageSecretEnding = "-cloud-storage"
	// SyncedSecretEnding ends the name of a Secret kept in step with the account.
	SyncedSecretEnding = "-cloud-secret"
	// ReservedSecretEnding: a descriptor names no Secret that ends so (C-141),
	// nor in SyncedSecretEnding.
	ReservedSecretEnding = "-storage"
)

// StorageSecretName is the Secret of a subject's storage credential: a
// service's is <service>-cloud-storage, a project's for its backups
// <project>.backup-cloud-storage.
func StorageSecretName(s Subject) string {
	if s.Service == "" {
		return s.Project + ".backup" + StorageSecretEnding
	}
	return s.Service + StorageSecretEnding
}

// SyncedSecretName is the Secret that a project's secret is synced into.
func SyncedSecretName(secret string) string { return secret + SyncedSecretEnding }

// ReservedSecret says that a Secret's name is the platform's: no descriptor may
// refer to it and no project secret may be named so.
func ReservedSecret(name string) bool {
	return strings.HasSuffix(name, ReservedSecretEnding) || strings.HasSuffix(name, SyncedSecretEnding)
}

// ServiceAccountName of a service is the service's name; of a project's
// database it has a dot, so that it is no service's.
func ServiceAccountName(s Subject) string {
	if s.Service == "" {
		return s.Project + ".database"
	}
	return s.Service
}

var (
	label     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

const (
	maxName = 63
	// maxProject leaves room for NamespacePrefix in a namespace's name.
	maxProject = maxName - len(NamespacePrefix)
	// maxSecret leaves room for SyncedSecretEnding, and in a request's name.
	maxSecret = maxName
)

// ReservedProjects are ids that no project has: their namespaces are the
// platform's.
func ReservedProjects() []string { return []string{"platform", "local", "cloud-provider"} }

// ValidateProject says whether id can be a project's: a DNS label of at most 57
// characters that is not reserved.
func ValidateProject(id string) error {
	if len(id) > maxProject || !label.MatchString(id) {
		return fmt.Errorf("project %s: an id is at most %d characters of a-z, 0-9 and hyphens, with no hyphen at either end", printable(id), maxProject)
	}
	for _, r := range ReservedProjects() {
		if id == r {
			return fmt.Errorf("project %s: the id is the platform's; choose another", printable(id))
		}
	}
	return nil
}

// ValidateName says whether name can be that of a service, or of a project's
// secret; what is the word for it in the error.
func ValidateName(what, name string) error {
	if len(name) > maxSecret || !label.MatchString(name) {
		return fmt.Errorf("%s %s: a name is at most %d characters of a-z, 0-9 and hyphens, with no hyphen at either end", what, printable(name), maxName)
	}
	return nil
}

// Validate says whether the subject's names are names.
func (s Subject) Validate() error {
	if err := ValidateProject(s.Project); err != nil {
		return err
	}
	if s.Service == "" {
		return nil
	}
	return ValidateName("service", s.Service)
}

// String is project/service, or the project alone.
func (s Subject) String() string {
	if s.Service == "" {
		return s.Project
	}
	return s.Project + "/" + s.Service
}

// printable is a name as it may stand in a message: hostile input neither runs
// on nor carries control characters.
func printable(s string) string {
	const limit = 80
	r := []rune(s)
	if len(r) > limit {
		r = append(r[:limit:limit], '…')
	}
	return fmt.Sprintf("%q", string(r))
}
