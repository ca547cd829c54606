// Package fakenode stands in for kubelets: its nodes are Ready, and the pods bound to them reach the state
// that their annotations ask for, at once and without running anything. A test gets the failures of a real
// node on demand that way.
package fakenode

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Annotations of a pod by which a test decides what becomes of it. They may be changed while it runs.
const (
	// FateAnnotation holds one of the Fate constants; a missing annotation is FateRun.
	FateAnnotation = "fakenode/fate"
	// ReadyAfterAnnotation delays the fate by a Go duration ("1.5s"), counted from when the node first sees
	// the pod: until then its containers run and are not ready.
	ReadyAfterAnnotation = "fakenode/ready-after"
)

// Fates.
const (
	FateRun     = ""        // Running and Ready
	FateCrash   = "crash"   // CrashLoopBackOff
	FateImage   = "image"   // ImagePullBackOff, phase Pending
	FateNever   = "never"   // bound to its node and never started
	FateSucceed = "succeed" // ended with exit code 0
	FateFail    = "fail"    // ended with exit code 1
)

const hostIP = "127.0.0.1"

// stage is how far a pod has come on the way to its fate.
type stage string

const stageStarting stage = "starting" // runs, not ready: ReadyAfterAnnotation has not passed

// nextStage is the policy: what a pod's status should show when the node has known it for age, and after how
// long to look again (0: nothing will change by time alone).
func nextStage(pod *corev1.Pod, age time.Duration) (stage, time.Duration, error) {
	fate := pod.Annotations[FateAnnotation]
	switch fate {
	case FateRun, FateCrash, FateImage, FateNever, FateSucceed, FateFail:
	default:
		return "", 0, fmt.Errorf("annotation %s: %q is none of crash, image, never, succeed, fail", FateAnnotation, fate)
	}
	if v := pod.Annotations[ReadyAfterAnnotation]; v != "" && fate != FateNever {
		after, err := time.ParseDuration(v)
		if err != nil {
			return "", 0, fmt.Errorf("annotation %s: %w", ReadyAfterAnnotation, err)
		}
		if age < after {
			return stageStarting, after - age, nil
		}
	}
	return stage(fate), 0, nil
}

// terminal tells whether a pod has ended: that is final, as on a real node.
func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// statusAt is the status of the pod at a stage. What the pod's status already says stays where it is still
// true: start time, addresses, and the transition times of conditions that do not change.
func statusAt(pod *corev1.Pod, s stage, now metav1.Time) corev1.PodStatus {
	st := corev1.PodStatus{
		ObservedGeneration: pod.Generation,
		Phase:              phaseOf(s),
		HostIP:             hostIP,
		HostIPs:            []corev1.HostIP{{IP: hostIP}},
		StartTime:          pod.Status.StartTime,
		QOSClass:           pod.Status.QOSClass,
	}
	if st.StartTime == nil {
		st.StartTime = &now
	}
	if s == stage(FateNever) {
		st.Conditions = conditions(pod, now, false, false)
		return st
	}
	ip := hostIP
	if !pod.Spec.HostNetwork {
		ip = podIP(pod.UID)
	}
	st.PodIP, st.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	st.Conditions = conditions(pod, now, true, s == stage(FateRun))
	for _, c := range pod.Spec.InitContainers {
		status := containerStatus(pod, c, now)
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways { // a sidecar
			fillMain(&status, s, now)
		} else {
			status.Ready = true
			status.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}
		}
		st.InitContainerStatuses = append(st.InitContainerStatuses, status)
	}
	for _, c := range pod.Spec.Containers {
		status := containerStatus(pod, c, now)
		fillMain(&status, s, now)
		st.ContainerStatuses = append(st.ContainerStatuses, status)
	}
	return st
}

func phaseOf(s stage) corev1.PodPhase {
	switch s {
	case stage(FateImage), stage(FateNever):
		return corev1.PodPending
	case stage(FateSucceed):
		return corev1.PodSucceeded
	case stage(FateFail):
		return corev1.PodFailed
	default:
		return corev1.PodRunning
	}
}

func containerStatus(pod *corev1.Pod, c corev1.Container, _ metav1.Time) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image,
		ImageID:     "fake://" + c.Image,
		ContainerID: "fake://" + string(pod.UID) + "/" + c.Name,
		Started:     ptr.To(false),
	}
}

// fillMain sets the part of a container's status that its fate decides.
func fillMain(status *corev1.ContainerStatus, s stage, now metav1.Time) {
	switch s {
	case stageStarting:
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
		status.Started = ptr.To(true)
	case stage(FateRun):
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
		status.Started, status.Ready = ptr.To(true), true
	case stage(FateCrash):
		status.RestartCount = 3
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off restarting failed container " + status.Name}
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", StartedAt: now, FinishedAt: now}
	case stage(FateImage):
		status.ContainerID, status.ImageID = "", ""
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image " + status.Image}
	case stage(FateSucceed):
		status.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}
	case stage(FateFail):
		status.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", StartedAt: now, FinishedAt: now}
	}
}

// conditions are the five that a kubelet keeps. A pod with readiness gates is Ready only when those conditions,
// which others set, are true as well.
func conditions(pod *corev1.Pod, now metav1.Time, initialized, ready bool) []corev1.PodCondition {
	gates := true
	for _, g := range pod.Spec.ReadinessGates {
		gates = gates && conditionStatus(pod, g.ConditionType) == corev1.ConditionTrue
	}
	var out []corev1.PodCondition
	set := func(t corev1.PodConditionType, holds bool) {
		c := corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, LastTransitionTime: now, ObservedGeneration: pod.Generation}
		if holds {
			c.Status = corev1.ConditionTrue
		}
		for _, old := range pod.Status.Conditions {
			if old.Type == t && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		out = append(out, c)
	}
	set(corev1.PodScheduled, true)
	set(corev1.PodReadyToStartContainers, initialized)
	set(corev1.PodInitialized, initialized)
	set(corev1.ContainersReady, ready)
	set(corev1.PodReady, ready && gates)
	return out
}

func conditionStatus(pod *corev1.Pod, t corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == t {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

// shows tells whether the pod's status already says what want says, in what a client can act on.
func shows(pod *corev1.Pod, want corev1.PodStatus) bool {
	have := pod.Status
	if have.Phase != want.Phase || have.PodIP != want.PodIP || have.ObservedGeneration != want.ObservedGeneration ||
		len(have.ContainerStatuses) != len(want.ContainerStatuses) || len(have.InitContainerStatuses) != len(want.InitContainerStatuses) {
		return false
	}
	for _, c := range want.Conditions {
		if conditionStatus(pod, c.Type) != c.Status {
			return false
		}
	}
	for i, c := range want.ContainerStatuses {
		h := have.ContainerStatuses[i]
		if h.Image != c.Image || h.Ready != c.Ready || stateOf(h.State) != stateOf(c.State) {
			return false
		}
	}
	return true
}

// stateOf names a container's state; two of the same name are the same to a client.
func stateOf(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return "terminated " + s.Terminated.Reason
	case s.Waiting != nil:
		return "waiting " + s.Waiting.Reason
	default:
		return ""
	}
}

// podIP gives a pod an address of its own in 10.128.0.0/9, from its UID: endpoints need distinct ones, and a
// restarted node must find the same. Nothing answers there.
func podIP(uid types.UID) string {
	h := fnv.New32a()
	h.Write([]byte(uid)) // never fails
	n := h.Sum32()
	return netip.AddrFrom4([4]byte{10, 128 | byte(n>>16)&0x7f, byte(n >> 8), byte(n)}).String()
}
