package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnkkaProject is one project, named for it, in its own namespace. It names no
// account and no location: there is one of each per installation (C-29).
//
// +kubebuilder:object:root=true
type AnkkaProject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AnkkaProjectSpec   `json:"spec"`
	Status AnkkaProjectStatus `json:"status,omitempty"`
}

// AnkkaProjectSpec is what the control plane says of the project.
type AnkkaProjectSpec struct {
	// ProjectID is metadata.name; the namespace is [Namespace] of it.
	ProjectID string `json:"projectId"`
	// Organization that the project belongs to.
	Organization string `json:"organization,omitempty"`
	// DisplayName is for people.
	DisplayName string `json:"displayName,omitempty"`
	// Secrets are the project's secrets by name; never a value.
	Secrets []ProjectSecret `json:"secrets,omitempty"`
	// Backups says that the project has a database to back up. Where backups
	// go is the installation's setting.
	Backups bool `json:"backups,omitempty"`
	// BackupCredentialGeneration is raised to get a new credential for the
	// backup bucket. Absent means 1; the control plane never owns it.
	BackupCredentialGeneration *int64 `json:"backupCredentialGeneration,omitempty"`
	// Keyring says that the project has a keyring. What its keys are wrapped
	// with is the installation's setting.
	Keyring bool `json:"keyring,omitempty"`
}

// CredentialGeneration is the backup credential generation asked for.
func (s *AnkkaProjectSpec) CredentialGeneration() int64 {
	if s.BackupCredentialGeneration == nil {
		return 1
	}
	return *s.BackupCredentialGeneration
}

// ProjectSecret is a secret of a project, which its services may take entries
// of.
type ProjectSecret struct {
	Name string `json:"name"`
	// Entries are the names of its entries.
	Entries []string `json:"entries,omitempty"`
	// EntryGeneration is raised whenever a value changes; a service that takes
	// an entry is held until the synced Secret has come so far.
	EntryGeneration int64 `json:"entryGeneration,omitempty"`
}

// AnkkaProjectStatus is what is. The operator writes it.
type AnkkaProjectStatus struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Lifecycle is UpdateInProgress, Ready or Failed.
	Lifecycle          Lifecycle    `json:"lifecycle,omitempty"`
	Detail             string       `json:"detail,omitempty"`
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`

	// Identity is that of the project's database.
	Identity *IdentityStatus       `json:"identity,omitempty"`
	Secrets  []ProjectSecretStatus `json:"secrets,omitempty"`
	Backups  *BackupStatus         `json:"backups,omitempty"`
	Keyring  *KeyringStatus        `json:"keyring,omitempty"`

	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ProjectSecretStatus is one synced secret.
type ProjectSecretStatus struct {
	Name   string `json:"name"`
	Phase  Phase  `json:"phase,omitempty"`
	Detail string `json:"detail,omitempty"`
	// SecretName is the Secret that it is kept in step with.
	SecretName string `json:"secretName,omitempty"`
	// EntryGeneration is the one that the Secret holds.
	EntryGeneration int64 `json:"entryGeneration,omitempty"`
}

// BackupStatus is where the project's backups go.
type BackupStatus struct {
	// Phase is Waiting, Provisioned, Recovered or Failed.
	Phase      Phase  `json:"phase,omitempty"`
	Detail     string `json:"detail,omitempty"`
	Bucket     string `json:"bucket,omitempty"`
	Endpoint   string `json:"endpoint,omitempty"`
	Region     string `json:"region,omitempty"`
	SecretName string `json:"secretName,omitempty"`
	// CredentialGeneration is the one in place.
	CredentialGeneration int64 `json:"credentialGeneration,omitempty"`
	Recovered            bool  `json:"recovered,omitempty"`
}

// KeyringStatus is the key that the project's keyring is wrapped with.
type KeyringStatus struct {
	Phase  Phase  `json:"phase,omitempty"`
	Detail string `json:"detail,omitempty"`
	Key    string `json:"key,omitempty"`
}

// AnkkaProjectList is a list of projects.
//
// +kubebuilder:object:root=true
type AnkkaProjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AnkkaProject `json:"items"`
}
