package kubernetes

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func TestReadinessOfRequests_S50_C92(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		generation int64
		status     map[string]any
		want       status.Status
		says       string
	}{
		"New":       {"nobody has read it", 1, nil, status.InProgressStatus, "no provider for gcp has answered"},
		"Behind":    {"C-92: an answer to an older generation is none", 2, map[string]any{"observedGeneration": int64(1), "phase": "Ready"}, status.InProgressStatus, "generation 2"},
		"Refused":   {"nor is an older refusal", 2, map[string]any{"observedGeneration": int64(1), "phase": "Failed", "detail": "no"}, status.InProgressStatus, "generation 2"},
		"Waiting":   {"the provider's words", 1, map[string]any{"observedGeneration": int64(1), "phase": "Waiting", "detail": "making the bucket"}, status.InProgressStatus, "making the bucket"},
		"Read":      {"read, and nothing said", 1, map[string]any{"observedGeneration": int64(1)}, status.InProgressStatus, "has read the request"},
		"Ready":     {"answered", 2, map[string]any{"observedGeneration": int64(2), "phase": "Ready"}, status.CurrentStatus, ""},
		"Recovered": {"answered", 2, map[string]any{"observedGeneration": int64(2), "phase": "Recovered"}, status.CurrentStatus, ""},
		"Failed":    {"the provider's words, fit to print", 1, map[string]any{"observedGeneration": int64(1), "phase": "Failed", "detail": "the name\x1b[2J is taken"}, status.FailedStatus, "the name [2J is taken"},
		"NoReason":  {"a reason is always given", 1, map[string]any{"observedGeneration": int64(1), "phase": "Failed"}, status.FailedStatus, "the provider gave no reason"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "ankka.thinkmorestupidless.com/v1alpha1", "kind": "CloudResource",
				"metadata": map[string]any{"name": "x-bucket", "generation": tc.generation}, "spec": map[string]any{"provider": "gcp", "kind": "bucket"}}}
			if tc.status != nil {
				o.Object["status"] = tc.status
			}
			got, err := compute(o)
			if err != nil || got.Status != tc.want || !strings.Contains(got.Message, tc.says) {
				t.Errorf("%s: got %+v, %v; want %s, %q", tc.reason, got, err, tc.want, tc.says)
			}
		})
	}
}
