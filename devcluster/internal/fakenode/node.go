package fakenode

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// Label marks the nodes of this package.
const Label = "devcluster/fake-node"

// NamePrefix starts the name of every fake node; what follows is its number from 0.
const NamePrefix = "fake-"

// A lease is what the node lifecycle controller watches; it counts a node as gone after 40-50 s without one.
const (
	leaseNamespace = corev1.NamespaceNodeLease
	leaseSeconds   = 40
	beatPeriod     = 10 * time.Second
)

// NodeName is the name of the i-th fake node.
func NodeName(i int) string { return fmt.Sprintf("%s%d", NamePrefix, i) }

// node keeps one Node object and its lease alive.
type node struct {
	client  kubernetes.Interface
	name    string
	untaint bool // no controller manager will take the not-ready taint away
}

// beat creates what is missing and renews the lease. It is safe to repeat.
func (n *node) beat(ctx context.Context) error {
	obj, err := n.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		obj, err = n.client.CoreV1().Nodes().Create(ctx, n.object(), metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	if !isReady(obj) {
		if err := n.patchStatus(ctx, obj); err != nil {
			return fmt.Errorf("node %s: status: %w", n.name, err)
		}
	}
	if n.untaint {
		if err := n.removeTaints(ctx, obj); err != nil {
			return fmt.Errorf("node %s: taints: %w", n.name, err)
		}
	}
	if err := n.renewLease(ctx); err != nil {
		return fmt.Errorf("node %s: lease: %w", n.name, err)
	}
	return nil
}

func (n *node) object() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{
		Label:                  "true",
		corev1.LabelHostname:   n.name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: runtime.GOARCH,
	}}}
}

func isReady(obj *corev1.Node) bool {
	return slices.ContainsFunc(obj.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (n *node) patchStatus(ctx context.Context, obj *corev1.Node) error {
	now := metav1.Now()
	resources := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourcePods:             resource.MustParse("1000"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	status := corev1.NodeStatus{
		Capacity: resources, Allocatable: resources,
		NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v0.0.0-fake", ContainerRuntimeVersion: "fake://0", OperatingSystem: "linux", Architecture: runtime.GOARCH},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: hostIP}, {Type: corev1.NodeHostName, Address: n.name}},
		Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "FakeNode", Message: "runs nothing and says so", LastHeartbeatTime: now, LastTransitionTime: now},
		},
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": obj.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = n.client.CoreV1().Nodes().Patch(ctx, n.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func (n *node) removeTaints(ctx context.Context, obj *corev1.Node) error {
	kept := slices.DeleteFunc(slices.Clone(obj.Spec.Taints), func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
	})
	if len(kept) == len(obj.Spec.Taints) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": obj.ResourceVersion},
		"spec":     map[string]any{"taints": kept},
	})
	if err != nil {
		return err
	}
	_, err = n.client.CoreV1().Nodes().Patch(ctx, n.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsConflict(err) { // somebody else wrote the node; the next beat looks again
		return nil
	}
	return err
}

func (n *node) renewLease(ctx context.Context) error {
	leases := n.client.CoordinationV1().Leases(leaseNamespace)
	now := metav1.NowMicro()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": now, "holderIdentity": n.name}})
	if err != nil {
		return err
	}
	_, err = leases.Patch(ctx, n.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: n.name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &n.name, LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: &now},
		}, metav1.CreateOptions{})
	}
	return err
}
