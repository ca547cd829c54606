package kubernetes

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// isCloudResource reports whether an object is a request to the cloud provider.
// It is ready once it is answered (S-50), which kstatus cannot tell: it has no
// conditions. And it is not deleted: nobody is granted that, since it goes with
// its owner (C-50, C-59).
func isCloudResource(gk schema.GroupKind) bool {
	return gk == schema.GroupKind{Group: v1alpha1.Group, Kind: v1alpha1.CloudResourceKind}
}

// compute judges how far an object is: kstatus for all but requests.
func compute(o *unstructured.Unstructured) (*status.Result, error) {
	if !isCloudResource(o.GroupVersionKind().GroupKind()) {
		return status.Compute(o)
	}
	return answered(o)
}

// answered judges a request by its answer. One to an older generation is none
// (C-92); a refusal fails with the provider's words.
func answered(o *unstructured.Unstructured) (*status.Result, error) {
	raw, err := json.Marshal(o.Object)
	if err != nil {
		return nil, err
	}
	var r v1alpha1.CloudResource
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	waits := func(message string) (*status.Result, error) {
		return &status.Result{Status: status.InProgressStatus, Message: message}, nil
	}
	detail := v1alpha1.Clean(r.Status.Detail)
	switch {
	case r.Status.ObservedGeneration == 0:
		return waits(v1alpha1.DetailUnanswered(r.Spec.Provider))
	case r.Status.ObservedGeneration != r.Generation:
		return waits(v1alpha1.DetailBehind(r.Generation))
	case r.Status.Phase.Done():
		return &status.Result{Status: status.CurrentStatus, Message: string(r.Status.Phase)}, nil
	case r.Status.Phase == v1alpha1.PhaseFailed:
		if detail == "" {
			detail = v1alpha1.DetailNoReason
		}
		return &status.Result{Status: status.FailedStatus, Message: detail}, nil
	}
	if detail == "" {
		detail = "the provider has read the request"
	}
	return waits(detail)
}
