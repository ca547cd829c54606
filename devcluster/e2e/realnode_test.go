package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The real node changes the machine that it runs on, so it is tried only where somebody asks for it
// (make test-realnode, as root).
func TestRealNode(t *testing.T) {
	if os.Getenv("RADIAL_REAL_NODE") != "1" {
		t.Skip("RADIAL_REAL_NODE is not 1: this test needs root and changes the machine while it runs")
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(program(t)), "realnode", "kubelet")); err != nil {
		t.Fatalf("%v: make realnode builds it", err)
	}
	before := machine(t)
	dir := t.TempDir()
	r := cluster(t, dir, "--node", "real")
	nodes, err := r.client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 1 || nodes.Items[0].Name != "real-0" {
		t.Fatalf("nodes: %v", nodes.Items)
	}

	inside := filepath.Join(t.TempDir(), "inside")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", inside, "./testdata/inside")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := call(t, "load", "example.test/inside:1", inside); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d := deployment("inside", 2, nil)
	container := &d.Spec.Template.Spec.Containers[0]
	container.Image, container.ImagePullPolicy = "example.test/inside:1", corev1.PullNever
	container.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	container.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}}
	makeDeployment(t, r.client(), d)
	waitAvailable(t, r.client(), "inside", 2)

	pods, err := r.client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=inside"})
	if err != nil {
		t.Fatal(err)
	}
	logs, err := r.client().CoreV1().Pods(namespace).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil || !strings.Contains(string(logs), "started") {
		t.Errorf("logs: %q, %v", logs, err)
	}

	t.Run("a second real node is refused", func(t *testing.T) {
		out, err := call(t, "up", "--state", t.TempDir(), "--node", "real")
		if err == nil || !strings.Contains(out, "a machine can have only one") {
			t.Errorf("err %v\n%s", err, out)
		}
	})

	// Killed without a chance to tidy up: its containers die with it, and the next start undoes the rest.
	if err := r.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.waitEnd()
	r = cluster(t, dir, "--node", "real")
	waitAvailable(t, r.client(), "inside", 2)
	r.stop()
	if r.err != nil {
		t.Errorf("it ended with %v\n%s", r.err, r.output())
	}
	if after := machine(t); after != before {
		t.Errorf("the machine before:\n%s\nand after:\n%s", before, after)
	}
}

// machine describes what a real node changes: packet filter, interfaces, control groups, mounts, kernel settings.
func machine(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", `
		iptables-save | grep KUBE
		ip -o link | grep -E 'devcluster|veth' | cut -d: -f2
		find /sys/fs/cgroup -name '*devcluster*'
		grep -c . /proc/self/mountinfo
		cat /proc/sys/kernel/panic /proc/sys/kernel/panic_on_oops /proc/sys/vm/overcommit_memory /proc/sys/net/ipv4/ip_forward
		ls /run | grep devcluster-node | grep -v lock
		exit 0`).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
