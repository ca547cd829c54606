package radapp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of Deployments that others than the controller read.
// docs/spec/deployment.md describes each.
const (
	AnnotationPrefix  = "radapp.io/"
	AnnotationEnabled = "radapp.io/enabled"
	// AnnotationConnection is followed by the connection's name.
	AnnotationConnection = "radapp.io/connection-"
	// AnnotationStatus is the controller's: a [DeploymentStatus] as JSON.
	AnnotationStatus = "radapp.io/status"
	// AnnotationHeld is the controller's: the mark of a pause that is a hold.
	AnnotationHeld = "radapp.io/held"
	// AnnotationOwner is the control plane's: the id of the resource that an
	// object was made for; a label of the same name has a hash of it.
	AnnotationOwner = "radapp.io/resource-id"
	// AnnotationReadyTimeout bounds how long the control plane waits for an object
	// that it makes, as 90s or 30m.
	AnnotationReadyTimeout = "radapp.io/ready-timeout"
)

// Rendered says that the control plane made a Deployment for a container of its
// own: then it alone writes it, and nobody adopts it.
func Rendered(annotations map[string]string) bool {
	return strings.Contains(strings.ToLower(annotations[AnnotationOwner]), "/providers/applications.core/containers/")
}

// DeploymentStatus is what the controller says about a Deployment, in the
// annotation radapp.io/status as one line of JSON (K-28). Everything in it may
// be lost, copied from elsewhere or forged: it informs people, and the
// controller believes nothing of it that it cannot check.
//
// +kubebuilder:object:generate=false
type DeploymentStatus struct {
	// ObservedHash is [ObservedHash] of the object that the rest speaks of.
	ObservedHash string `json:"observedHash,omitempty"`
	// Scope is the resource group, Environment and Application are full ids.
	Scope       string `json:"scope,omitempty"`
	Environment string `json:"environment,omitempty"`
	Application string `json:"application,omitempty"`
	// Container is the id of the paired resource.
	Container string `json:"container,omitempty"`
	// Operation is in flight and has outlived a second.
	Operation *DeploymentOperation `json:"operation,omitempty"`
	Phrase    Phrase               `json:"phrase,omitempty"`
	// Conditions: Ready always, the others while they are true.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DeploymentOperation resumes an operation after a restart.
//
// +kubebuilder:object:generate=false
type DeploymentOperation struct {
	ResumeToken   string `json:"resumeToken"`
	OperationKind string `json:"operationKind"`
}

// Phrase sums a status up in a word; the conditions say more.
type Phrase string

// Phrases.
const (
	// PhraseWaiting for a Recipe, an environment or the server.
	PhraseWaiting  Phrase = "Waiting"
	PhraseUpdating Phrase = "Updating"
	PhraseReady    Phrase = "Ready"
	PhraseDeleting Phrase = "Deleting"
	// PhraseFailed is for what does not mend itself when something appears.
	PhraseFailed Phrase = "Failed"
)

// ObservedHash covers what a status speaks of: a Deployment's pod template and
// the annotations of our prefix that people write. The generation would not
// do, since writing the status raises it. The template is a typed
// corev1.PodTemplateSpec, so that every reader gets the same JSON of it.
func ObservedHash(annotations map[string]string, template any) string {
	said := make(map[string]string)
	for k, v := range annotations {
		if strings.HasPrefix(k, AnnotationPrefix) && k != AnnotationStatus && k != AnnotationHeld {
			said[k] = v
		}
	}
	raw, err := json.Marshal([]any{template, said})
	if err != nil {
		panic("radapp: a pod template that is no JSON: " + err.Error()) // decoded from JSON
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// ParseDeploymentStatus reads the annotation. A missing or broken one is the
// zero status: ids are deterministic, so nothing depends on it.
func ParseDeploymentStatus(annotations map[string]string) DeploymentStatus {
	var s DeploymentStatus
	if json.Unmarshal([]byte(annotations[AnnotationStatus]), &s) != nil {
		return DeploymentStatus{}
	}
	return s
}
