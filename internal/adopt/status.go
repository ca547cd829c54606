package adopt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/paired"
)

// Status is what the controller says about a Deployment, in the annotation
// radapp.io/status as one line of JSON (K-28). Everything in it may be lost,
// copied from elsewhere or forged: it informs people, and the controller
// believes nothing of it that it cannot check.
type Status struct {
	// ObservedHash is [ObservedHash] of the object that the rest speaks of.
	ObservedHash string `json:"observedHash,omitempty"`
	// Scope is the resource group, Environment and Application are full ids.
	Scope       string `json:"scope,omitempty"`
	Environment string `json:"environment,omitempty"`
	Application string `json:"application,omitempty"`
	// Container is the id of the paired resource.
	Container string `json:"container,omitempty"`
	// Operation is in flight and has outlived a second.
	Operation *StatusOperation `json:"operation,omitempty"`
	Phrase    Phrase           `json:"phrase,omitempty"`
	// Conditions: Ready always, the others while they are true.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// StatusOperation resumes an operation after a restart.
type StatusOperation struct {
	ResumeToken   string `json:"resumeToken"`
	OperationKind string `json:"operationKind"`
}

// Phrase sums the status up in a word; the conditions say more.
type Phrase string

// Phrases.
const (
	// Waiting for a Recipe, an environment or the server.
	PhraseWaiting  Phrase = "Waiting"
	PhraseUpdating Phrase = "Updating"
	PhraseReady    Phrase = "Ready"
	PhraseDeleting Phrase = "Deleting"
	PhraseFailed   Phrase = "Failed"
)

// Types of conditions. All but Ready are there only while they are true, and
// do not keep a Deployment from being Ready.
const (
	ConditionReady = "Ready"
	// ConditionOverridden: the user set variables of the same name (K-17).
	ConditionOverridden = "VariablesOverridden"
	// ConditionCollision: two properties claim one variable (K-18).
	ConditionCollision = "VariableCollision"
	// ConditionUnknownContainer: radapp.io/containers names what is not there.
	ConditionUnknownContainer = "UnknownContainer"
	// ConditionAnnotation: an annotation of ours cannot be understood.
	ConditionAnnotation = "UnknownAnnotation"
)

// Reasons of condition Ready, and of events.
const (
	ReasonReady             = "Ready"
	ReasonPaused            = "PausedByUser"
	ReasonUpdating          = "Updating"
	ReasonRecipeNotFound    = "RecipeNotFound"
	ReasonRecipeNotReady    = "RecipeNotReady"
	ReasonEnvironment       = "EnvironmentNotFound"
	ReasonAmbiguous         = "EnvironmentAmbiguous"
	ReasonRefused           = "EnvironmentRefused"
	ReasonInvalid           = "InvalidAnnotation"
	ReasonNameConflict      = "NameConflict"
	ReasonContainerFailed   = "ContainerFailed"
	ReasonConnectionFailed  = "ConnectionFailed"
	ReasonNoContainer       = "NoSuchContainer"
	ReasonServerUnavailable = "ServerUnavailable"
	ReasonDeleting          = "Deleting"
	// ReasonHeldLate is an event only: a Deployment was written while nothing
	// held it, and its pods may have started without their variables (K-25).
	ReasonHeldLate = "HeldLate"
	// ReasonTombstone is an event only: a deletion waits for the server.
	ReasonTombstone = "DeletionDeferred"
)

// ObservedHash covers what a status speaks of: the pod template and the
// annotations of our prefix that people write. The generation would not do,
// since writing the status raises it.
func ObservedHash(d *appsv1.Deployment) string {
	said := make(map[string]string)
	for k, v := range d.Annotations {
		if strings.HasPrefix(k, AnnotationPrefix) && k != AnnotationStatus && k != AnnotationHeld {
			said[k] = v
		}
	}
	raw, err := json.Marshal([]any{d.Spec.Template, said})
	if err != nil {
		panic("adopt: a pod template that is no JSON: " + err.Error()) // decoded from JSON
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// ParseStatus reads the annotation. A missing or broken one is the zero Status:
// ids are deterministic, so nothing depends on it.
func ParseStatus(d *appsv1.Deployment) Status {
	var s Status
	if json.Unmarshal([]byte(d.Annotations[AnnotationStatus]), &s) != nil {
		return Status{}
	}
	return s
}

// Text is the annotation's value.
func (s Status) Text() string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic("adopt: a status that is no JSON: " + err.Error()) // strings and times
	}
	return string(raw)
}

// set sets a condition with status True, or for Ready the one given, keeping
// the time of its last transition from before.
func (s *Status) set(before Status, kind string, status metav1.ConditionStatus, reason, message string, now metav1.Time) {
	c := metav1.Condition{Type: kind, Status: status, Reason: reason, Message: shorten(message), LastTransitionTime: now}
	if old := meta.FindStatusCondition(before.Conditions, kind); old != nil && old.Status == status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	s.Conditions = append(slices.DeleteFunc(s.Conditions, func(o metav1.Condition) bool { return o.Type == kind }), c)
}

// ready returns the condition Ready, or a zero one.
func (s Status) ready() metav1.Condition {
	if c := meta.FindStatusCondition(s.Conditions, ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// maxMessage bounds the messages in the annotation, in bytes: all annotations
// of an object share 256 KiB, and every ReplicaSet gets a copy.
const maxMessage = 1024

func shorten(text string) string {
	if len(text) > maxMessage {
		return strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

// operation is what of a memory is worth storing.
func operation(m *paired.Memory) *StatusOperation {
	if m.Operation == nil {
		return nil
	}
	return &StatusOperation{ResumeToken: m.Operation.ResumeToken, OperationKind: m.Operation.OperationKind}
}
