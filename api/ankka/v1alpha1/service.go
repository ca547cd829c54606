package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnkkaService is a service of a project as the control plane describes it.
// The operator makes it run. It stands in the project's namespace and is named
// for the service.
//
// +kubebuilder:object:root=true
type AnkkaService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AnkkaServiceSpec   `json:"spec"`
	Status AnkkaServiceStatus `json:"status,omitempty"`
}

// AnkkaServiceSpec is what the service is to be. The control plane applies all
// of it but StorageCredentialGeneration, which it never owns (C-130, C-142).
type AnkkaServiceSpec struct {
	// ProjectID is the project; the namespace is [Namespace] of it.
	ProjectID string `json:"projectId"`
	// ServiceName is metadata.name, a DNS label without dots.
	ServiceName string `json:"serviceName"`
	// Generation is the control plane's own count of the descriptor. It is
	// echoed in the status and stands on nothing that runs.
	Generation int64 `json:"generation"`
	// Image is the container image of the service's instances.
	Image string `json:"image"`

	// Paused keeps the service at no instances.
	Paused bool `json:"paused,omitempty"`
	// Restarts is raised to replace the instances.
	Restarts int64 `json:"restarts,omitempty"`
	// Env are the container's variables, without the platform's own.
	Env []EnvVar `json:"env,omitempty"`
	// Labels and Annotations go on the pods.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// HTTP says that instances serve HTTP on Port: a Service stands before
	// them, and they are ready when the port answers.
	HTTP bool `json:"http,omitempty"`
	// Port that instances listen on. Absent: 8080.
	Port *int32 `json:"port,omitempty"`
	// Database is "none" (or absent), or how the service keeps its data.
	Database string `json:"database,omitempty"`
	// ProvisionObjectStorage asks for a bucket of the service's own.
	ProvisionObjectStorage bool `json:"provisionObjectStorage,omitempty"`
	// ExposeObjectStorage lets browsers of ObjectStorageOrigins reach it.
	ExposeObjectStorage bool `json:"exposeObjectStorage,omitempty"`
	// ObjectStorageOrigins are origins (https://host[:port]) or "*".
	ObjectStorageOrigins []string `json:"objectStorageOrigins,omitempty"`
	// ObjectStorageVersioning keeps replaced and removed objects as versions.
	ObjectStorageVersioning bool `json:"objectStorageVersioning,omitempty"`
	// ObjectStorageSoftDeleteDays keeps removed objects for days. 0: not.
	ObjectStorageSoftDeleteDays int64 `json:"objectStorageSoftDeleteDays,omitempty"`
	// ObjectStorageVersionAgeDays is how long versions are kept. Absent: for
	// good.
	ObjectStorageVersionAgeDays *int64 `json:"objectStorageVersionAgeDays,omitempty"`
	// StorageCredentialGeneration is raised to get a new storage credential.
	// Absent means 1. There is no command for it.
	StorageCredentialGeneration *int64 `json:"storageCredentialGeneration,omitempty"`
	// Resources of an instance, and how many there are.
	Resources *ServiceResources `json:"resources,omitempty"`
}

// CredentialGeneration is the storage credential generation asked for.
func (s *AnkkaServiceSpec) CredentialGeneration() int64 {
	if s.StorageCredentialGeneration == nil {
		return 1
	}
	return *s.StorageCredentialGeneration
}

// EnvVar is one variable: a value, or a reference to an entry of a Secret.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	// SecretName and SecretKey are set together, and then Value is not.
	SecretName string `json:"secretName,omitempty"`
	SecretKey  string `json:"secretKey,omitempty"`
}

// ServiceResources are what an instance gets and how many there are.
type ServiceResources struct {
	// CPU and Memory are quantities in Kubernetes' words. Absent: no request.
	CPU         string       `json:"cpu,omitempty"`
	Memory      string       `json:"memory,omitempty"`
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`
}

// Autoscaling bounds the number of instances.
type Autoscaling struct {
	// MinInstances is how many run at least. Absent: 1.
	MinInstances *int32 `json:"minInstances,omitempty"`
	// MaxInstances is how many run at most. Absent: MinInstances.
	MaxInstances *int32 `json:"maxInstances,omitempty"`
}

// Lifecycle is where a service, or a project, stands as a whole.
type Lifecycle string

// The lifecycle of a service.
const (
	LifecycleNotDeployed      Lifecycle = "NotDeployed"
	LifecycleUpdateInProgress Lifecycle = "UpdateInProgress"
	LifecycleReady            Lifecycle = "Ready"
	LifecyclePartiallyReady   Lifecycle = "PartiallyReady"
	LifecycleUnavailable      Lifecycle = "Unavailable"
	LifecyclePaused           Lifecycle = "Paused"
	LifecycleFailed           Lifecycle = "Failed"
)

// AnkkaServiceStatus is what is. The operator writes it.
type AnkkaServiceStatus struct {
	// Generation echoes spec.generation, and ObservedGeneration
	// metadata.generation, as they were when the status was made.
	Generation         int64     `json:"generation,omitempty"`
	ObservedGeneration int64     `json:"observedGeneration,omitempty"`
	Lifecycle          Lifecycle `json:"lifecycle,omitempty"`
	// Detail says why, in words for a member: a provider's words come after
	// the part they are for, and no request is named (C-109).
	Detail             string       `json:"detail,omitempty"`
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	ReadyInstances     int32        `json:"readyInstances,omitempty"`
	DesiredInstances   int32        `json:"desiredInstances,omitempty"`

	// The parts that come from the cloud, each absent where not asked for.
	Identity          *IdentityStatus          `json:"identity,omitempty"`
	ObjectStorage     *ObjectStorageStatus     `json:"objectStorage,omitempty"`
	StorageCredential *StorageCredentialStatus `json:"storageCredential,omitempty"`
	SecretAccess      *PartStatus              `json:"secretAccess,omitempty"`
	// ProjectSecrets are the synced secrets that the instances wait for.
	ProjectSecrets *PartStatus `json:"projectSecrets,omitempty"`

	// Conditions are Ready, and while true Progressing and Stalled.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PartStatus is a part that comes from the cloud.
type PartStatus struct {
	Phase Phase `json:"phase,omitempty"`
	// Detail is the provider's words, bounded and without control characters.
	Detail string `json:"detail,omitempty"`
}

// IdentityStatus is the identity that the cloud knows the service, or the
// project's database, by.
type IdentityStatus struct {
	Phase    Phase  `json:"phase,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Identity string `json:"identity,omitempty"`
}

// Phases of object storage beside Waiting, Recovered and Failed.
const (
	// PhaseProvisioned: the service has its bucket.
	PhaseProvisioned Phase = "Provisioned"
	// PhaseSupplied: the descriptor names a store of its own.
	PhaseSupplied Phase = "Supplied"
)

// ObjectStorageStatus is a service's object storage: the answers to identity,
// bucket and credential folded into one (C-108).
type ObjectStorageStatus struct {
	// Phase is Waiting, Provisioned, Recovered, Supplied or Failed.
	Phase  Phase  `json:"phase,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Bucket is as reported; empty until it is known.
	Bucket    string `json:"bucket,omitempty"`
	Endpoint  string `json:"endpoint,omitempty"`
	Region    string `json:"region,omitempty"`
	Location  string `json:"location,omitempty"`
	Recovered bool   `json:"recovered,omitempty"`
}

// StorageCredentialStatus is the credential that instances reach the bucket by.
type StorageCredentialStatus struct {
	Phase      Phase  `json:"phase,omitempty"`
	Detail     string `json:"detail,omitempty"`
	SecretName string `json:"secretName,omitempty"`
	// Generation is the one in place, which pods carry
	// ([AnnotationCredentialGeneration]); never the one asked for.
	Generation int64        `json:"generation,omitempty"`
	ReportedAt *metav1.Time `json:"reportedAt,omitempty"`
}

// Condition types of services and projects.
const (
	ConditionReady       = "Ready"
	ConditionProgressing = "Progressing"
	ConditionStalled     = "Stalled"
)

// AnkkaServiceList is a list of services.
//
// +kubebuilder:object:root=true
type AnkkaServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AnkkaService `json:"items"`
}
