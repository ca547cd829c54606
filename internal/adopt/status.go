package adopt

import (
	"encoding/json"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/paired"
)

// Status is what the controller says about a Deployment in its annotation
// (K-28); the command line reads it too.
type Status radapp.DeploymentStatus

// StatusOperation resumes an operation after a restart.
type StatusOperation = radapp.DeploymentOperation

// Phrase sums the status up in a word.
type Phrase = radapp.Phrase

// Phrases.
const (
	PhraseWaiting  = radapp.PhraseWaiting
	PhraseUpdating = radapp.PhraseUpdating
	PhraseReady    = radapp.PhraseReady
	PhraseDeleting = radapp.PhraseDeleting
	PhraseFailed   = radapp.PhraseFailed
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

// ObservedHash covers what a status speaks of, see [radapp.ObservedHash].
func ObservedHash(d *appsv1.Deployment) string {
	return radapp.ObservedHash(d.Annotations, d.Spec.Template)
}

// ParseStatus reads the annotation.
func ParseStatus(d *appsv1.Deployment) Status {
	return Status(radapp.ParseDeploymentStatus(d.Annotations))
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
