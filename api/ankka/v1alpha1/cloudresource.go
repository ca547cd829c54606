package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CloudResource is one request to the installation's cloud provider. Who asks
// writes the spec and nothing else; the provider writes the status and nothing
// else. It stands in the namespace of its subject's project, is owned by whom
// it serves and goes with it; nothing in the cloud goes with it.
//
// +kubebuilder:object:root=true
type CloudResource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CloudResourceSpec   `json:"spec"`
	Status CloudResourceStatus `json:"status,omitempty"`
}

// CloudResourceSpec is what is asked.
type CloudResourceSpec struct {
	// Provider is the installation's ANKKA_CLOUD_PROVIDER. A provider serves
	// requests of its own name and leaves all others alone.
	Provider string `json:"provider"`
	// Kind is one of [Kinds], or one that a later platform knows: a provider
	// answers Failed to a kind that it does not implement. It never changes.
	Kind string `json:"kind"`
	// Subject is whom the request serves. It never changes.
	Subject Subject `json:"subject"`
	// CredentialGeneration is for bucket-credential alone, from 1. Raising it
	// asks for a new credential; it never falls.
	CredentialGeneration int64 `json:"credentialGeneration,omitempty"`
	// Parameters are all strings, and for each kind a closed set
	// ([ParameterNames]).
	Parameters map[string]string `json:"parameters,omitempty"`
}

// Subject is a service of a project, or a project itself when Service is empty.
type Subject struct {
	Project string `json:"project"`
	Service string `json:"service,omitempty"`
}

// Phase is where the answer to a request, or a part of a service or project
// that comes from the cloud, stands.
type Phase string

// The phases of a request, exactly these.
const (
	// PhaseWaiting: the provider is working; detail says on what.
	PhaseWaiting Phase = "Waiting"
	// PhaseReady: done; outputs is the answer.
	PhaseReady Phase = "Ready"
	// PhaseRecovered: done, and the thing was there already for this subject;
	// recovered is true.
	PhaseRecovered Phase = "Recovered"
	// PhaseFailed: it cannot; detail says why, for a member to read and with
	// nothing secret in it.
	PhaseFailed Phase = "Failed"
)

// Done says that the answer is in outputs.
func (p Phase) Done() bool { return p == PhaseReady || p == PhaseRecovered }

// CloudResourceStatus is the answer. No answer whose ObservedGeneration is
// behind metadata.generation is one to the present spec.
type CloudResourceStatus struct {
	// ObservedGeneration is set before, or with, any phase. Absent: no
	// provider has read the request.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	Phase              Phase `json:"phase,omitempty"`
	// Detail is the provider's words for a member. Never a secret.
	Detail string `json:"detail,omitempty"`
	// Recovered stays true for what was there before this request.
	Recovered bool `json:"recovered,omitempty"`
	// Account and Location are where the thing was made. A request is never
	// moved: with other settings it is Failed ([DetailMoved]).
	Account  string `json:"account,omitempty"`
	Location string `json:"location,omitempty"`
	// ProviderVersion is name and version, such as "scripted 0.1.0".
	ProviderVersion string `json:"providerVersion,omitempty"`
	// CredentialGeneration is the generation whose credential is in the
	// Secret, and CredentialReportedAt when that was reported: the grace of
	// the credential before it counts from here ([ReportTime]).
	CredentialGeneration int64        `json:"credentialGeneration,omitempty"`
	CredentialReportedAt *metav1.Time `json:"credentialReportedAt,omitempty"`
	// Outputs are all strings, and for each kind a closed set ([OutputNames]).
	Outputs map[string]string `json:"outputs,omitempty"`

	// ReportedAt is when phase or detail last changed: the age of the
	// provider's last words (C-146). Optional; [SaidAt] has what stands in.
	ReportedAt *metav1.Time `json:"reportedAt,omitempty"`
	// CheckedAt is when the provider last looked at what it answered (C-151).
	// Optional.
	CheckedAt *metav1.Time `json:"checkedAt,omitempty"`
	// Credentials is the provider's journal (C-144): ids of credentials, never
	// the credentials. What a crash can leave behind is told from it.
	Credentials []CredentialEntry `json:"credentials,omitempty"`
}

// CredentialEntry is one credential that is not ended yet.
type CredentialEntry struct {
	// ID names the credential in the cloud. It is no secret: it opens nothing
	// without the key that the cloud gave out once.
	ID string `json:"id"`
	// Generation is the request's credentialGeneration that it was made for.
	Generation int64 `json:"generation,omitempty"`
	// State tells who may end it, and when.
	State CredentialState `json:"state"`
	// Since is when it came to State. For Retiring it is when the one that
	// replaced it was reported in place; the grace counts from it.
	Since metav1.Time `json:"since"`
}

// CredentialState is what is known of a journalled credential.
type CredentialState string

const (
	// CredentialOffered: made, and perhaps in the Secret; written before the
	// Secret is. Never to be ended before its fate is known.
	CredentialOffered CredentialState = "Offered"
	// CredentialInPlace: in the Secret. Never to be ended.
	CredentialInPlace CredentialState = "InPlace"
	// CredentialRetiring: it was in the Secret and another is now. To be ended
	// once the rotation grace has passed since Since.
	CredentialRetiring CredentialState = "Retiring"
	// CredentialUnused: it came into no Secret. To be ended at once.
	CredentialUnused CredentialState = "Unused"
)

// CloudResourceList is a list of requests.
//
// +kubebuilder:object:root=true
type CloudResourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CloudResource `json:"items"`
}
