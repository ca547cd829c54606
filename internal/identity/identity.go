// Package identity is how a workload asks for an identity in the cloud, and how
// it is told about it (K-34): annotations of its Deployment. The operator reads
// and answers them, whoever made the Deployment; the container renderer writes
// the first, and hands on the second (K-20).
package identity

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/api/radapp"
)

const (
	// Annotation asks, by 'true'.
	Annotation = radapp.AnnotationPrefix + "identity"
	// AnnotationStatus is the operator's: a [Report] as JSON. It has the
	// operator's own prefix, so that the controller, whose prefix is radapp.io,
	// has nothing to do with it.
	AnnotationStatus = v1alpha1.Group + "/identity"
	// Condition is the condition of a [Report].
	Condition = "Identity"
	// DefaultAccount is what Pods run as that name no ServiceAccount. Every Pod of
	// its namespace may, so it gets no identity.
	DefaultAccount = "default"
)

// Report is what the operator says about the identity of a Deployment. It holds
// nothing up.
type Report struct {
	// Identity that the cloud knows the workload by, once answered.
	Identity   string             `json:"identity,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ParseReport reads the annotation; a missing or broken one is empty.
func ParseReport(annotations map[string]string) Report {
	var r Report
	if json.Unmarshal([]byte(annotations[AnnotationStatus]), &r) != nil {
		return Report{}
	}
	return r
}

// Refused is why there is no identity, by the report's words; "" where there is
// one, or none was refused yet.
func (r Report) Refused() string {
	for _, c := range r.Conditions {
		if c.Type == Condition && c.Status == metav1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// Asks says whether a Deployment asks, and what is wrong with how.
func Asks(annotations map[string]string) (asks bool, fault string) {
	v, said := annotations[Annotation]
	if !said || strings.EqualFold(annotations[radapp.AnnotationEnabled], "false") {
		return false, ""
	}
	switch strings.ToLower(v) {
	case "true":
		return true, ""
	case "false", "":
		return false, ""
	}
	return false, Annotation + " must be 'true' or 'false'"
}

// Ask makes a Deployment ask: its annotation, which [Asks] reads.
func Ask(annotations map[string]string) { annotations[Annotation] = "true" }
