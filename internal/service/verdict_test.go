package service

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// request is one of generation g, whose spec was written at asked.
func request(g int64, asked time.Time, status v1alpha1.CloudResourceStatus) *v1alpha1.CloudResource {
	r := &v1alpha1.CloudResource{Spec: v1alpha1.CloudResourceSpec{Provider: "gcp", Kind: v1alpha1.KindBucket}, Status: status}
	r.Name, r.Generation, r.CreationTimestamp = "reports-bucket", g, metav1.NewTime(noon.Add(-24*time.Hour))
	// As the API server writes it: of a write just before the next second.
	t := metav1.NewTime(asked.Add(-coarse))
	r.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "ankka-operator", Operation: metav1.ManagedFieldsOperationApply, Time: &t, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:kind":{}}}`)}}
	return r
}

func TestDecide_C92_C112_C113_C146(t *testing.T) {
	const bound = 2 * time.Minute
	at := func(d time.Duration) *metav1.Time { t := metav1.NewTime(noon.Add(d)); return &t }
	status := func(observed int64, phase v1alpha1.Phase, detail string, said time.Duration) v1alpha1.CloudResourceStatus {
		return v1alpha1.CloudResourceStatus{ObservedGeneration: observed, Phase: phase, Detail: detail, ReportedAt: at(said), Outputs: map[string]string{"bucket": "b"}}
	}
	const none = "no provider for gcp has answered"
	for name, tc := range map[string]struct {
		reason  string
		request *v1alpha1.CloudResource
		phase   v1alpha1.Phase
		detail  string
		answer  bool
		next    time.Duration // from noon; 0 is never
	}{
		"Absent":             {"what is not asked is not answered", nil, "Waiting", "", false, 0},
		"New":                {"C-113: within the bound nothing is said", request(1, noon.Add(-bound+time.Second), v1alpha1.CloudResourceStatus{}), "Waiting", "", false, time.Second},
		"AtBound":            {"C-112: at the bound it is", request(1, noon.Add(-bound), v1alpha1.CloudResourceStatus{}), "Waiting", none, false, 0},
		"Late":               {"C-112", request(1, noon.Add(-time.Hour), v1alpha1.CloudResourceStatus{}), "Waiting", none, false, 0},
		"ReadyBehind":        {"C-92: an answer to an older generation is none", request(2, noon, status(1, "Ready", "", -time.Hour)), "Waiting", "waiting on the provider for generation 2", false, bound},
		"FailedBehind":       {"C-92: nor is a refusal", request(2, noon, status(1, "Failed", "the quota is used up", -time.Hour)), "Waiting", "waiting on the provider for generation 2", false, bound},
		"BehindLate":         {"C-146: the bound applies to every generation", request(2, noon.Add(-bound), status(1, "Ready", "", -time.Hour)), "Waiting", none, false, 0},
		"Ahead":              {"an observed generation that is not yet is no answer either", request(1, noon, status(2, "Ready", "", 0)), "Waiting", "waiting on the provider for generation 1", false, bound},
		"Acknowledged":       {"read, and nothing said", request(1, noon, status(1, "", "", -time.Second)), "Waiting", "", false, bound - time.Second},
		"Waiting":            {"the provider's words", request(1, noon, status(1, "Waiting", "making the bucket", -time.Minute)), "Waiting", "making the bucket", false, time.Minute},
		"WaitingLong":        {"C-146: the words stay, with their age", request(1, noon.Add(-time.Hour), status(1, "Waiting", "making the bucket", -7*time.Minute-20*time.Second)), "Waiting", "making the bucket (said 7m ago)", false, 40 * time.Second},
		"WaitingLongNoWords": {"C-146", request(1, noon.Add(-time.Hour), status(1, "", "", -3*time.Hour)), "Waiting", "the provider has read the request (said 3h ago)", false, time.Hour},
		"Ready":              {"done", request(1, noon.Add(-time.Hour), status(1, "Ready", "", 0)), "Ready", "", true, 0},
		"Recovered":          {"done", request(3, noon.Add(-time.Hour), status(3, "Recovered", "", 0)), "Recovered", "", true, 0},
		"Failed":             {"word for word", request(1, noon, status(1, "Failed", "the name acme-shop is taken", 0)), "Failed", "the name acme-shop is taken", false, 0},
		"FailedNoWords":      {"a reason is always given", request(1, noon, status(1, "Failed", "", 0)), "Failed", "the provider gave no reason", false, 0},
		"UnknownPhase":       {"of a later protocol", request(1, noon, status(1, "Resting", "at rest", 0)), "Waiting", "at rest", false, bound},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(tc.request, bound, noon)
			want := Verdict{Phase: tc.phase, Detail: tc.detail}
			if tc.answer {
				want.Answer = &tc.request.Status
			}
			if tc.next != 0 {
				want.Next = noon.Add(tc.next)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s:\n%s", tc.reason, d)
			}
		})
	}
}

// Words of any length and of any characters become fit for a status, and their
// age stays readable behind them.
func TestDecideHostileWords_C152(t *testing.T) {
	long := strings.Repeat("a\x1b[31m\x00", 1<<18)
	said := metav1.NewTime(noon.Add(-time.Hour))
	v := Decide(request(1, noon.Add(-time.Hour), v1alpha1.CloudResourceStatus{ObservedGeneration: 1, Phase: v1alpha1.PhaseWaiting, Detail: long, ReportedAt: &said}), time.Minute, noon)
	if len(v.Detail) > v1alpha1.MaxDetail+32 || strings.ContainsAny(v.Detail, "\x1b\x00") || !strings.HasSuffix(v.Detail, "(said 1h ago)") {
		t.Errorf("detail has %d bytes and ends in %q", len(v.Detail), v.Detail[max(0, len(v.Detail)-40):])
	}
}

func TestAgeReadsTheSameUntilItDoesNot(t *testing.T) {
	for _, d := range []time.Duration{30 * time.Second, 59 * time.Second, time.Minute, 59*time.Minute + 59*time.Second, time.Hour, 47*time.Hour + 59*time.Minute, 48 * time.Hour, 1000 * time.Hour, 61*time.Second + 5*time.Millisecond} {
		text, rest := ageOf(d)
		if rest <= 0 {
			t.Errorf("%v: rest is %v", d, rest)
		}
		if still, _ := ageOf(d + rest - 1); still != text {
			t.Errorf("%v reads %q, and %q before its time", d, text, still)
		}
		if then, _ := ageOf(d + rest); then == text {
			t.Errorf("%v reads %q, and still when it should not", d, text)
		}
	}
	if text, _ := ageOf(7*time.Minute + 59*time.Second); text != "7m" {
		t.Errorf("ageOf = %q", text)
	}
}
