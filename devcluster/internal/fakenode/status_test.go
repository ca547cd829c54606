package fakenode

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestNextStage(t *testing.T) {
	type want struct {
		stage stage
		again time.Duration
		bad   bool
	}
	for name, c := range map[string]struct {
		reason      string
		annotations map[string]string
		age         time.Duration
		want        want
	}{
		"plain":          {"A pod without annotations runs at once.", nil, 0, want{stage: stage(FateRun)}},
		"crash":          {"A fate is reached at once.", map[string]string{FateAnnotation: FateCrash}, 0, want{stage: stage(FateCrash)}},
		"early":          {"Before its time a pod runs unready, and the rest of the time is waited.", map[string]string{ReadyAfterAnnotation: "5s"}, 2 * time.Second, want{stage: stageStarting, again: 3 * time.Second}},
		"due":            {"When its time has come a pod is ready.", map[string]string{ReadyAfterAnnotation: "5s"}, 5 * time.Second, want{stage: stage(FateRun)}},
		"late failure":   {"The delay holds for every fate.", map[string]string{FateAnnotation: FateFail, ReadyAfterAnnotation: "1s"}, 0, want{stage: stageStarting, again: time.Second}},
		"never":          {"A pod that never starts has nothing to wait for.", map[string]string{FateAnnotation: FateNever, ReadyAfterAnnotation: "1s"}, 0, want{stage: stage(FateNever)}},
		"unknown fate":   {"A misspelt fate must not pass for success.", map[string]string{FateAnnotation: "crsh"}, 0, want{bad: true}},
		"wrong duration": {"A misspelt delay must not pass for none.", map[string]string{ReadyAfterAnnotation: "soon"}, 0, want{bad: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s, again, err := nextStage(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}}, c.age)
			if diff := cmp.Diff(c.want, want{s, again, err != nil}, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("%s\n-want +got:\n%s(error: %v)", c.reason, diff, err)
			}
		})
	}
}

func testPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: types.UID("1c7b"), Generation: 2},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{
				{Name: "setup", Image: "i"},
				{Name: "sidecar", Image: "s", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			},
			Containers: []corev1.Container{{Name: "main", Image: "m"}},
		},
	}
}

var noon = metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))

// at returns the pod with the status of a stage.
func at(pod *corev1.Pod, s stage, now metav1.Time) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status = statusAt(pod, s, now)
	return pod
}

func TestStatusIsSettled(t *testing.T) {
	for _, s := range []stage{stageStarting, stage(FateRun), stage(FateCrash), stage(FateImage), stage(FateNever), stage(FateSucceed), stage(FateFail)} {
		pod := at(testPod(), s, noon)
		if later := statusAt(pod, s, metav1.NewTime(noon.Add(time.Minute))); !shows(pod, later) {
			t.Errorf("stage %q: a pod that has the status is written again", s)
		}
	}
}

func TestStatusAt(t *testing.T) {
	later := metav1.NewTime(noon.Add(time.Minute))
	starting := at(testPod(), stageStarting, noon)
	ready := statusAt(starting, stage(FateRun), later)
	if shows(starting, ready) {
		t.Error("a pod that runs unready counts as ready")
	}
	if !ready.StartTime.Equal(&noon) {
		t.Errorf("start time moved to %s", ready.StartTime)
	}
	for _, c := range ready.Conditions {
		moved := c.Type == corev1.PodReady || c.Type == corev1.ContainersReady
		if want := map[bool]metav1.Time{true: later, false: noon}[moved]; !c.LastTransitionTime.Equal(&want) {
			t.Errorf("condition %s changed at %s, want %s", c.Type, c.LastTransitionTime, want)
		}
	}
	if got := ready.InitContainerStatuses[0].State; got.Terminated == nil || got.Terminated.ExitCode != 0 {
		t.Errorf("an init container ends with success before the others run: %+v", got)
	}
	if got := ready.InitContainerStatuses[1]; got.State.Running == nil || !got.Ready {
		t.Errorf("a sidecar runs on beside the others: %+v", got)
	}
	if ready.PodIP == hostIP || ready.PodIP != podIP(starting.UID) {
		t.Errorf("pod address %s", ready.PodIP)
	}

	host := testPod()
	host.Spec.HostNetwork = true
	if got := statusAt(host, stage(FateRun), noon).PodIP; got != hostIP {
		t.Errorf("a pod on the host's network has address %s", got)
	}
}

func TestReadinessGates(t *testing.T) {
	pod := testPod()
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.test/gate"}}
	isReady := func(pod *corev1.Pod) bool {
		return conditionStatus(at(pod, stage(FateRun), noon), corev1.PodReady) == corev1.ConditionTrue
	}
	if isReady(pod) {
		t.Error("ready although nobody has opened its gate")
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: "example.test/gate", Status: corev1.ConditionTrue}}
	if !isReady(pod) {
		t.Error("not ready although its gate is open")
	}
}
